//! Evening out what CPUs have to do: one that would idle takes a task from another; a busy one looks at its tick, level
//! by level of the machine, whether another has more load; and it wakes an idle CPU for a task that waits with it.

use rota_sim::{CpuId, Machine, State, TaskId};

use super::Fair;
use super::rule::Rule;

/// A busy CPU balances this many times less often than once in as many ms as the level has CPUs: `busy_factor`.
const BUSY_FACTOR: u64 = 16;
/// How much more load another must have, in percent: `imbalance_pct`, between CPUs and between siblings.
const IMBALANCE_PERCENT: u128 = 117;
const SIBLING_IMBALANCE_PERCENT: u128 = 110;
/// So many failures let a task through that has twice as much load each time.
const FAILURES_MAX: u32 = 8;
/// Tasks moved at once: `sched_nr_migrate_break`.
const MOVES_MAX: usize = 32;

/// CPUs of equal distance: the kernel's `struct sched_domain`.
#[derive(Clone, Debug)]
pub struct Level {
    /// With the CPU itself, ascending.
    pub span: Vec<CpuId>,
    pub is_core: bool,
    pub shares_cache: bool,
    next_ns: u64,
    failures: u32,
}

/// The levels of a CPU, from near to far; each has more CPUs than the one before.
pub fn levels(machine: &Machine, cpu: CpuId) -> Vec<Level> {
    let topology = machine.topology();
    let Some(own) = topology.place(cpu.0) else { return Vec::new() };
    let mut levels: Vec<Level> = Vec::new();
    for distance in 0..=4 {
        let near = topology.places.iter().filter(|place| own.distance(place) <= distance);
        let span: Vec<CpuId> = near.map(|place| CpuId(place.cpu)).collect();
        if span.len() > levels.last().map_or(1, |level| level.span.len()) {
            let (is_core, shares_cache) = (distance == 0, distance <= 1);
            levels.push(Level { span, is_core, shares_cache, next_ns: 0, failures: 0 });
        } else if let Some(level) = levels.last_mut() {
            level.shares_cache |= distance <= 1;
        }
    }
    levels
}

impl<R: Rule> Fair<R> {
    fn tasks_on(&self, cpu: CpuId) -> u32 {
        self.queues[self.root(cpu).0 as usize].tasks
    }

    /// Tasks of another CPU that may be moved here, those that came first first.
    fn movable(&self, machine: &Machine, from: CpuId, to: CpuId) -> Vec<TaskId> {
        let waits = |task: TaskId| {
            let of = machine.task(task);
            of.state == State::Queued
                && self.entities[self.task(task).0 as usize].queued
                && of.cpu == from
                && machine.cpu(from).current != Some(task)
                && of.may_move_to(to)
                && !self.is_throttled(self.task(task))
        };
        self.cpus[from.index()].attached.iter().copied().filter(|&task| waits(task)).collect()
    }

    /// Takes a waiting task over from another CPU.
    fn take(&mut self, machine: &mut Machine, task: TaskId, to: CpuId) {
        use rota_sim::{Arrival, Departure, Policy};
        self.dequeue(machine, task, Departure::Moved);
        machine.set_task_cpu(task, to);
        self.enqueue(machine, task, Arrival::Moved);
    }

    /// A CPU would idle: it takes a task from the CPU that has most (`sched_balance_newidle`).
    pub(super) fn pull_idle(&mut self, machine: &mut Machine, cpu: CpuId) {
        if !machine.cpu(cpu).online {
            return;
        }
        for level in 0..self.cpus[cpu.index()].levels.len() {
            let span = &self.cpus[cpu.index()].levels[level].span;
            let waits = |other: &CpuId| {
                let runs = u32::from(self.cpus[other.index()].current.is_some());
                *other != cpu && self.tasks_on(*other) > runs
            };
            let mut busy: Vec<CpuId> = span.iter().copied().filter(waits).collect();
            busy.sort_by_key(|&other| std::cmp::Reverse((self.tasks_on(other), self.load_on(other))));
            for other in busy {
                if let Some(&task) = self.movable(machine, other, cpu).first() {
                    return self.take(machine, task, cpu);
                }
            }
        }
    }

    /// At a tick: balances the levels that are due, and wakes an idle CPU if tasks wait here.
    pub(crate) fn balance(&mut self, machine: &mut Machine, cpu: CpuId) {
        for level in 0..self.cpus[cpu.index()].levels.len() {
            let of = &mut self.cpus[cpu.index()].levels[level];
            let interval_ns = of.span.len() as u64 * 1_000_000 * BUSY_FACTOR;
            if machine.now_ns() >= of.next_ns {
                of.next_ns = machine.now_ns() + interval_ns;
                self.balance_level(machine, cpu, level);
            }
        }
        if self.tasks_on(cpu) > u32::from(self.cpus[cpu.index()].current.is_some()) {
            self.kick_idle(machine, cpu);
        }
    }

    /// `nohz_balancer_kick`: the nearest idle CPU that could take a task from here is woken to do so.
    fn kick_idle(&mut self, machine: &mut Machine, cpu: CpuId) {
        for level in &self.cpus[cpu.index()].levels {
            for &other in level.span.iter().filter(|&&other| self.is_idle(machine, other)) {
                if !self.movable(machine, cpu, other).is_empty() {
                    return machine.resched(other);
                }
            }
        }
    }

    /// Moves load here from the CPU of a level that has most, if it has much more (`sched_balance_rq`).
    fn balance_level(&mut self, machine: &mut Machine, cpu: CpuId, level: usize) {
        let span = self.cpus[cpu.index()].levels[level].span.clone();
        let percent = match self.cpus[cpu.index()].levels[level].is_core {
            true => SIBLING_IMBALANCE_PERCENT,
            false => IMBALANCE_PERCENT,
        };
        self.forget(machine, &span);
        let online = span.iter().copied().filter(|&other| machine.cpu(other).online);
        let (mut sum, mut count) = (0, 0);
        let mut busiest: Option<CpuId> = None;
        for other in online {
            (sum, count) = (sum + u128::from(self.load_on(other)), count + 1);
            let more = busiest.is_none_or(|busiest| self.load_on(other) > self.load_on(busiest));
            if other != cpu && self.tasks_on(other) > 1 && more {
                busiest = Some(other);
            }
        }
        let Some(busiest) = busiest else { return };
        let (here, there) = (u128::from(self.load_on(cpu)), u128::from(self.load_on(busiest)));
        let average = sum / count;
        if there * 100 <= here * percent || here >= average {
            return;
        }
        let imbalance = (there - average.min(there)).min(average - here);
        let moved = self.move_load(machine, busiest, cpu, imbalance, level);
        let failures = &mut self.cpus[cpu.index()].levels[level].failures;
        *failures = if moved { 0 } else { (*failures + 1).min(FAILURES_MAX) };
    }

    /// Counts the loads of CPUs' tasks up to now: those that sleep add less and less.
    fn forget(&mut self, machine: &Machine, span: &[CpuId]) {
        for &cpu in span {
            for task in self.cpus[cpu.index()].attached.clone() {
                let id = self.task(task);
                let runnable = self.entity(id).queued && !self.entity(id).delayed;
                self.track(machine, id, runnable);
                self.refresh(id);
            }
        }
    }

    /// `detach_tasks`; whether anything was moved.
    fn move_load(
        &mut self,
        machine: &mut Machine,
        from: CpuId,
        to: CpuId,
        imbalance: u128,
        level: usize,
    ) -> bool {
        let failures = self.cpus[to.index()].levels[level].failures;
        let mut left = imbalance;
        let mut moved = false;
        for task in self.movable(machine, from, to).into_iter().take(MOVES_MAX) {
            let load = u128::from(self.load_of(task).max(1));
            if left == 0 || self.tasks_on(from) <= 1 {
                break;
            }
            if load >> failures > left {
                continue;
            }
            self.take(machine, task, to);
            moved = true;
            left = left.saturating_sub(load);
        }
        moved
    }
}
