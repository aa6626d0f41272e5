//! In which order a scheduler's operations come, as `kernel/sched/ext.c` has it. What the model calls is held against
//! this, and so is a trace of a real kernel.

use std::collections::{BTreeMap, BTreeSet};

/// Where a task is, as far as its scheduler was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    /// Would not run: new, or it has blocked.
    Away,
    /// Its CPU was selected, and it is about to wake up.
    Selected,
    /// Would run.
    Ready,
    /// Runs on a CPU.
    Runs(u32),
}

/// What has been seen.
#[derive(Clone, Debug, Default)]
pub struct Order {
    tasks: BTreeMap<u32, At>,
    /// Who runs on a CPU.
    cpus: BTreeMap<u32, u32>,
    last: BTreeMap<u32, &'static str>,
    last_on_cpu: BTreeMap<u32, &'static str>,
    pairs: BTreeSet<Pair>,
    pairs_on_cpus: BTreeSet<Pair>,
}

/// An operation, and the next one.
pub type Pair = (&'static str, &'static str);

/// Those about one task that the model makes.
pub const PAIRS: &[Pair] = &[
    ("enqueue", "enqueue"),
    ("enqueue", "running"),
    ("running", "stopping"),
    ("select_cpu", "enqueue"),
    ("stopping", "enqueue"),
    ("stopping", "running"),
    ("stopping", "select_cpu"),
];

/// Those about one CPU that it makes. To idle and to end idling are `idles` and `wakes`.
pub const PAIRS_ON_CPUS: &[Pair] = &[
    ("dispatch", "dispatch"),
    ("dispatch", "idles"),
    ("dispatch", "running"),
    ("dispatch", "stopping"),
    ("dispatch", "wakes"),
    ("idles", "dispatch"),
    ("running", "dispatch"),
    ("running", "stopping"),
    ("stopping", "dispatch"),
    ("stopping", "idles"),
    ("stopping", "running"),
    ("wakes", "running"),
];

/// The operations that are about a task.
const OPERATIONS: [&str; 4] = ["enqueue", "running", "select_cpu", "stopping"];

impl Order {
    /// Takes an operation as a line of words: its name, the task's number, and `on CPU` for `running`, `blocked` for
    /// `stopping` of one that would not go on; `dispatch CPU` and `update_idle CPU true` or `false`. Lines of other
    /// operations mean nothing. A task that is seen for the first time may have been anywhere.
    ///
    /// # Errors
    ///
    /// It cannot come after what came before it.
    pub fn see(&mut self, line: &str) -> Result<(), String> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [operation, number, ref rest @ ..] = words[..] else { return Ok(()) };
        let Ok(number) = number.parse::<u32>() else { return Ok(()) };
        match (operation, rest) {
            ("dispatch", _) => self.on_cpu(number, "dispatch"),
            ("update_idle", ["true"]) => self.idles(number)?,
            ("update_idle", ["false"]) => self.on_cpu(number, "wakes"),
            _ => {
                if let Some(operation) = OPERATIONS.into_iter().find(|known| *known == operation) {
                    self.of_task(operation, number, rest).map_err(|why| format!("{line}: {why}"))?;
                }
            }
        }
        Ok(())
    }

    fn of_task(&mut self, operation: &'static str, task: u32, rest: &[&str]) -> Result<(), String> {
        let at = self.tasks.get(&task).copied();
        let may = |allowed: &[At]| at.is_none_or(|at| allowed.contains(&at));
        let next = match (operation, rest) {
            ("select_cpu", _) if may(&[At::Away]) => At::Selected,
            ("enqueue", _) if may(&[At::Away, At::Selected, At::Ready]) => At::Ready,
            ("running", ["on", cpu]) if may(&[At::Away, At::Selected, At::Ready]) => self.runs(task, cpu)?,
            ("stopping", how) if at.is_none_or(|at| matches!(at, At::Runs(_))) => {
                self.stops(task);
                if how.contains(&"blocked") { At::Away } else { At::Ready }
            }
            _ => return Err(format!("the task was {at:?}")),
        };
        self.tasks.insert(task, next);
        if let Some(before) = self.last.insert(task, operation) {
            self.pairs.insert((before, operation));
        }
        Ok(())
    }

    fn runs(&mut self, task: u32, cpu: &str) -> Result<At, String> {
        let cpu = cpu.parse().map_err(|_| format!("{cpu} is no CPU"))?;
        if let Some(other) = self.cpus.insert(cpu, task) {
            return Err(format!("{other} runs there"));
        }
        self.on_cpu(cpu, "running");
        Ok(At::Runs(cpu))
    }

    fn stops(&mut self, task: u32) {
        let ran = self.cpus.iter().find(|(_, runs)| **runs == task).map(|(&cpu, _)| cpu);
        if let Some(cpu) = ran {
            self.cpus.remove(&cpu);
            self.on_cpu(cpu, "stopping");
        }
    }

    fn idles(&mut self, cpu: u32) -> Result<(), String> {
        if let Some(task) = self.cpus.get(&cpu) {
            return Err(format!("{cpu} idles, and {task} runs there"));
        }
        self.on_cpu(cpu, "idles");
        Ok(())
    }

    fn on_cpu(&mut self, cpu: u32, operation: &'static str) {
        if let Some(before) = self.last_on_cpu.insert(cpu, operation) {
            self.pairs_on_cpus.insert((before, operation));
        }
    }

    /// Every pair that was seen of one task, in the alphabet's order.
    pub fn pairs(&self) -> impl Iterator<Item = Pair> {
        self.pairs.iter().copied()
    }

    /// Every pair that was seen of one CPU, in the alphabet's order.
    pub fn pairs_on_cpus(&self) -> impl Iterator<Item = Pair> {
        self.pairs_on_cpus.iter().copied()
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
            "enqueue 7 wakeup",
            "dispatch 0 after nobody",
            "running 7 on 0",
            "stopping 7",
            "enqueue 7",
            "running 7 on 1",
            "stopping 7 blocked",
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
        assert!(see(&["running 1 on 0", "update_idle 0 true"]).is_err());
        see(&["running 1 on 0", "update_idle 1 true", "stopping 1", "update_idle 0 true"]).unwrap();
    }

    #[test]
    fn what_follows_on_a_cpu_is_known() {
        let mut order = Order::default();
        let lines =
            ["dispatch 0 after nobody", "update_idle 0 false", "dispatch 1 after 3", "running 7 on 0"];
        lines.iter().for_each(|line| order.see(line).unwrap());
        assert!(order.pairs_on_cpus().eq([("dispatch", "wakes"), ("wakes", "running")]));
    }
}
