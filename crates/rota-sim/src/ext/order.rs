//! In which order a scheduler's operations come, as `kernel/sched/ext.c` has it. What the model calls is held against
//! this; a trace of a real kernel can be too.

use std::collections::{BTreeMap, BTreeSet};

/// Where a task is, as far as its scheduler was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    /// Would not run: new, or quiescent.
    Away,
    /// Its CPU was selected, and it is about to wake up.
    Selected,
    /// Would run.
    Ready,
    /// Runs on a CPU.
    Runs(u32),
    /// Has left its CPU for good, and is about to be quiescent.
    Stopped,
}

/// What has been seen.
#[derive(Clone, Debug, Default)]
pub struct Order {
    tasks: BTreeMap<u32, At>,
    /// Who runs on a CPU.
    cpus: BTreeMap<u32, u32>,
    last: BTreeMap<u32, &'static str>,
    pairs: BTreeSet<Pair>,
}

/// Of one task an operation, and the next one.
pub type Pair = (&'static str, &'static str);

/// Those that the model makes.
pub const PAIRS: &[Pair] = &[
    ("enqueue", "enqueue"),
    ("enqueue", "quiescent"),
    ("enqueue", "running"),
    ("quiescent", "runnable"),
    ("quiescent", "select_cpu"),
    ("runnable", "enqueue"),
    ("runnable", "running"),
    ("running", "stopping"),
    ("select_cpu", "runnable"),
    ("stopping", "enqueue"),
    ("stopping", "quiescent"),
    ("stopping", "running"),
];

/// The operations that are about a task.
const OPERATIONS: [&str; 6] = ["enqueue", "quiescent", "runnable", "running", "select_cpu", "stopping"];

impl Order {
    /// Takes an operation as a line of words: its name, the task's number, and `on CPU` for `running`, `blocked` for
    /// `stopping` of one that would not go on. Lines of other operations mean nothing. A task that is seen for the
    /// first time may have been anywhere.
    ///
    /// # Errors
    ///
    /// It cannot come after what came before it.
    pub fn see(&mut self, line: &str) -> Result<(), String> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [operation, task, ref rest @ ..] = words[..] else { return Ok(()) };
        let known = OPERATIONS.into_iter().find(|known| *known == operation);
        let (Some(operation), Ok(task)) = (known, task.parse::<u32>()) else { return Ok(()) };
        let at = self.tasks.get(&task).copied();
        let may = |allowed: &[At]| at.is_none_or(|at| allowed.contains(&at));
        let next = match (operation, rest) {
            ("select_cpu", _) if may(&[At::Away]) => At::Selected,
            ("runnable", _) if may(&[At::Away, At::Selected]) => At::Ready,
            ("enqueue", _) if may(&[At::Ready]) => At::Ready,
            ("running", ["on", cpu]) if may(&[At::Ready]) => self.runs(task, cpu)?,
            ("stopping", how) if at.is_none_or(|at| matches!(at, At::Runs(_))) => {
                self.cpus.retain(|_, runs| *runs != task);
                if how.contains(&"blocked") { At::Stopped } else { At::Ready }
            }
            ("quiescent", _) if may(&[At::Ready, At::Stopped]) => At::Away,
            _ => return Err(format!("{line}: the task was {at:?}")),
        };
        self.tasks.insert(task, next);
        if let Some(before) = self.last.insert(task, operation) {
            self.pairs.insert((before, operation));
        }
        Ok(())
    }

    fn runs(&mut self, task: u32, cpu: &str) -> Result<At, String> {
        let cpu = cpu.parse().map_err(|_| format!("{cpu} is no CPU"))?;
        match self.cpus.insert(cpu, task) {
            Some(other) => Err(format!("{task} runs on {cpu}, where {other} does")),
            None => Ok(At::Runs(cpu)),
        }
    }

    /// Every pair that was seen, in the alphabet's order.
    pub fn pairs(&self) -> impl Iterator<Item = Pair> {
        self.pairs.iter().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn see(lines: &[&str]) -> Result<(), String> {
        let mut order = Order::default();
        lines.iter().try_for_each(|line| order.see(line))
    }

    #[test]
    fn a_life_is_in_order() {
        let life = [
            "select_cpu 7",
            "runnable 7",
            "enqueue 7 wakeup",
            "dispatch after nobody",
            "running 7 on 0",
            "stopping 7",
            "enqueue 7",
            "running 7 on 1",
            "stopping 7 blocked",
            "quiescent 7 sleeps",
        ];
        see(&life).unwrap();
        for missing in 1..life.len() - 1 {
            let mut lines = life.to_vec();
            let dropped = lines.remove(missing);
            let optional = dropped.starts_with("enqueue") || dropped.starts_with("dispatch");
            assert_eq!(see(&lines).is_ok(), optional, "without {dropped}");
        }
    }

    #[test]
    fn a_cpu_runs_one_task() {
        assert!(see(&["running 1 on 0", "running 2 on 1", "running 3 on 0"]).is_err());
        see(&["running 1 on 0", "stopping 1", "running 3 on 0"]).unwrap();
    }
}
