//! Divided vCPUs on no more CPUs than the table's format allows.
//!
//! What is free may lie on many CPUs, a little on each. A vCPU that takes all of it changes places with those who are
//! on its CPUs already: it gets more from one CPU and nothing from another, and whoever gave way there gets as much
//! from the other.

use crate::period::HYPERPERIOD_NS;
use crate::piece::{Load, Piece};
use crate::timetable::VCPU_CPUS_MAX;

/// What each of `tasks` tasks has on each CPU, as far as that is something.
struct Parts {
    of_task: Vec<Vec<(usize, u64)>>,
    on_cpu: Vec<Vec<usize>>,
}

/// The same loads, and as much of each task, with no task on more than [`VCPU_CPUS_MAX`] CPUs, if `may_use` (a task and
/// a CPU) allows that. The loads only say how much goes where.
pub(crate) fn gather(loads: Vec<Load>, tasks: usize, may_use: impl Fn(usize, usize) -> bool) -> Vec<Load> {
    if loads.len() <= VCPU_CPUS_MAX {
        return loads;
    }
    let mut parts = Parts::new(&loads, tasks);
    let mut is_changed = false;
    for task in 0..tasks {
        while parts.of_task[task].len() > VCPU_CPUS_MAX && parts.exchange(task, &may_use) {
            is_changed = true;
        }
    }
    if is_changed { parts.loads(&loads) } else { loads }
}

impl Parts {
    fn new(loads: &[Load], tasks: usize) -> Parts {
        let mut parts = Parts { of_task: vec![Vec::new(); tasks], on_cpu: vec![Vec::new(); loads.len()] };
        for (cpu, load) in loads.iter().enumerate() {
            for (piece, &task) in load.pieces.iter().zip(&load.tasks) {
                parts.add(task as usize, cpu, piece.load());
            }
        }
        parts
    }

    fn on(&self, task: usize, cpu: usize) -> u64 {
        self.of_task[task].iter().find(|part| part.0 == cpu).map_or(0, |part| part.1)
    }

    fn add(&mut self, task: usize, cpu: usize, load: u64) {
        match self.of_task[task].iter_mut().find(|part| part.0 == cpu) {
            Some(part) => part.1 += load,
            None => {
                self.of_task[task].push((cpu, load));
                self.on_cpu[cpu].push(task);
            }
        }
    }

    fn take(&mut self, task: usize, cpu: usize, load: u64) {
        let left = self.on(task, cpu) - load;
        self.of_task[task].retain(|part| part.0 != cpu);
        self.on_cpu[cpu].retain(|&other| other != task);
        if left > 0 {
            self.add(task, cpu, left);
        }
    }

    /// Takes a task off one of its CPUs, the one where it has least if that can be. Whether it could.
    fn exchange(&mut self, task: usize, may_use: impl Fn(usize, usize) -> bool) -> bool {
        let mut least_first = self.of_task[task].clone();
        least_first.sort_unstable_by_key(|&(cpu, load)| (load, cpu));
        for (from, load) in least_first {
            let others = self.of_task[task].iter().filter(|part| part.0 != from);
            let on_others =
                others.flat_map(|&(cpu, _)| self.on_cpu[cpu].iter().map(move |&other| (other, cpu)));
            let can = |&(other, cpu): &(usize, usize)| {
                let has_room = self.of_task[other].len() < VCPU_CPUS_MAX || self.on(other, from) > 0;
                other != task && has_room && self.on(other, cpu) >= load && may_use(other, from)
            };
            let Some((other, cpu)) =
                on_others.filter(can).min_by_key(|&(other, cpu)| (self.of_task[other].len(), other, cpu))
            else {
                continue;
            };
            self.take(task, from, load);
            self.add(task, cpu, load);
            self.take(other, cpu, load);
            self.add(other, from, load);
            return true;
        }
        false
    }

    fn loads(&self, before: &[Load]) -> Vec<Load> {
        let capacity = |load: &Load| load.free + load.pieces.iter().map(|piece| piece.load()).sum::<u64>();
        let mut loads: Vec<Load> = before.iter().map(|load| Load::new(capacity(load))).collect();
        for (task, parts) in self.of_task.iter().enumerate() {
            for &(cpu, load) in parts {
                loads[cpu].put(task, Piece::whole(HYPERPERIOD_NS, load));
            }
        }
        loads
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CPUS: usize = 100;

    /// On each CPU a task of 98 %, and of the last task 1 %.
    fn scattered() -> Vec<Load> {
        let percent = HYPERPERIOD_NS / 100;
        let load = |cpu| {
            let mut load = Load::new(HYPERPERIOD_NS);
            load.put(cpu, Piece::whole(HYPERPERIOD_NS, 98 * percent));
            load.put(CPUS, Piece::whole(HYPERPERIOD_NS, percent));
            load
        };
        (0..CPUS).map(load).collect()
    }

    #[test]
    fn nobody_is_on_more_cpus_than_can_be_stored() {
        let before = scattered();
        let after = gather(before.clone(), CPUS + 1, |_, _| true);
        let (old, new) = (Parts::new(&before, CPUS + 1), Parts::new(&after, CPUS + 1));
        for (task, parts) in new.of_task.iter().enumerate() {
            let sum = |parts: &[(usize, u64)]| parts.iter().map(|part| part.1).sum::<u64>();
            assert_eq!(sum(parts), sum(&old.of_task[task]));
            assert!(parts.len() <= if task < CPUS { 2 } else { VCPU_CPUS_MAX }, "{task}: {parts:?}");
        }
        assert!(before.iter().zip(&after).all(|(before, after)| before.free == after.free));
    }

    #[test]
    fn who_may_not_move_stays() {
        assert_eq!(gather(scattered(), CPUS + 1, |task, cpu| task == cpu || task == CPUS), scattered());
    }
}
