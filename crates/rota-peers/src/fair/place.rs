//! Where a task that wakes or is new is queued (`select_task_rq_fair`): on the CPU where it was or on the waker's, by
//! their loads, or on an idle one that shares their cache.

use rota_sim::{Arrival, CpuId, Machine, TaskId};

use super::Fair;
use super::rule::Rule;

/// How much lighter the waker's CPU must be, in percent: half of a domain's `imbalance_pct` above 100.
const WAKE_BIAS_PERCENT: u128 = 108;

impl<R: Rule> Fair<R> {
    /// The CPU that a task goes to.
    pub(super) fn place(&mut self, machine: &Machine, task: TaskId, arrival: Arrival) -> CpuId {
        let before = machine.task(task).cpu;
        let allowed = |cpu: CpuId| machine.task(task).may_move_to(cpu) && machine.cpu(cpu).online;
        let id = self.task(task);
        if self.entity(id).delayed && allowed(before) {
            return before; // it is still on that queue
        }
        if arrival == Arrival::New {
            return self.least_loaded(machine, task).unwrap_or(before);
        }
        let waker = machine.this_cpu();
        let target = match (allowed(before), allowed(waker)) {
            (true, true) => self.affine(machine, task, before, waker),
            (false, true) => waker,
            _ => before,
        };
        self.idle_near(machine, task, before, target)
    }

    pub(super) fn is_idle(&self, machine: &Machine, cpu: CpuId) -> bool {
        let of = machine.cpu(cpu);
        of.online && of.current.is_none() && self.queues[self.root(cpu).0 as usize].tasks == 0
    }

    /// A CPU's load, lately.
    pub(super) fn load_on(&self, cpu: CpuId) -> u64 {
        self.queues[self.root(cpu).0 as usize].load
    }

    /// `wake_affine`: the waker's CPU if that idles or has less to do, else the one before.
    fn affine(&self, machine: &Machine, task: TaskId, before: CpuId, waker: CpuId) -> CpuId {
        if before == waker || self.is_idle(machine, before) && self.shares_cache(before, waker) {
            return before;
        }
        if self.is_idle(machine, waker) && self.shares_cache(before, waker) {
            return waker;
        }
        let own = u128::from(self.load_of(task));
        let there = u128::from(self.load_on(waker)) + own;
        let here = u128::from(self.load_on(before)).saturating_sub(own);
        if there * 100 < here * WAKE_BIAS_PERCENT { waker } else { before }
    }

    fn shares_cache(&self, one: CpuId, other: CpuId) -> bool {
        one == other || self.near(one).contains(&other)
    }

    /// The CPUs that share a CPU's cache, itself included.
    fn near(&self, cpu: CpuId) -> &[CpuId] {
        let near = self.cpus[cpu.index()].levels.iter().rfind(|level| level.shares_cache);
        near.map_or(&[], |level| &level.span)
    }

    /// `select_idle_sibling`: an idle CPU near the target, one whose siblings idle too if there is one.
    fn idle_near(&self, machine: &Machine, task: TaskId, before: CpuId, target: CpuId) -> CpuId {
        let usable = |cpu: CpuId| machine.task(task).may_move_to(cpu) && self.is_idle(machine, cpu);
        if usable(target) {
            return target;
        }
        if before != target && self.shares_cache(before, target) && usable(before) {
            return before;
        }
        let near = self.near(target);
        let from = near.iter().position(|&cpu| cpu == target).unwrap_or(0);
        let round = || near[from..].iter().chain(&near[..from]).copied().filter(|&cpu| usable(cpu));
        let whole = round().find(|&cpu| self.siblings_idle(machine, cpu));
        whole.or_else(|| round().next()).unwrap_or(target)
    }

    fn siblings_idle(&self, machine: &Machine, cpu: CpuId) -> bool {
        let core = self.cpus[cpu.index()].levels.iter().find(|level| level.is_core);
        core.is_none_or(|core| core.span.iter().all(|&cpu| self.is_idle(machine, cpu)))
    }

    /// Where a new task goes: an idle CPU, near if there is one, else the one with least to do.
    fn least_loaded(&self, machine: &Machine, task: TaskId) -> Option<CpuId> {
        let allowed = |cpu: CpuId| machine.task(task).may_move_to(cpu) && machine.cpu(cpu).online;
        let here = machine.this_cpu();
        for level in &self.cpus[here.index()].levels {
            let idle = |cpu: &CpuId| allowed(*cpu) && self.is_idle(machine, *cpu);
            if let Some(&idle) = level.span.iter().find(|cpu| idle(cpu)) {
                return Some(idle);
            }
        }
        let all = (0..machine.nr_cpus()).map(CpuId).filter(|&cpu| allowed(cpu));
        all.min_by_key(|&cpu| (self.queues[self.root(cpu).0 as usize].tasks, self.load_on(cpu), cpu != here))
    }
}
