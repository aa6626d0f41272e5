//! Loads of queues and vCPUs, and moving vCPUs between queues so that these come near each other (`balance_load`).

use rota_sim::{CpuId, Machine, State};

use super::{Credit2, TaskId};

/// What is longer ago does not count: about a second.
const WINDOW_NS: u64 = 1 << 30;
/// One runnable vCPU.
const ONE: u64 = 1 << 18;
/// Loads may differ by this much while there are CPUs for all, and if there are not: an eighth.
const UNDERLOAD_TOLERANCE: u64 = ONE;
const OVERLOAD_TOLERANCE: u64 = ONE / 8;

/// How many were runnable, lately.
#[derive(Clone, Copy, Debug, Default)]
pub struct Average {
    value: u64,
    counted_ns: u64,
}

impl Average {
    /// So many were runnable since the last time.
    pub fn count(&mut self, now_ns: u64, runnable: u32) {
        let passed_ns = (now_ns - std::mem::replace(&mut self.counted_ns, now_ns)).min(WINDOW_NS);
        let of = |load: u64, ns: u64| (u128::from(load) * u128::from(ns) / u128::from(WINDOW_NS)) as u64;
        self.value = of(self.value, WINDOW_NS - passed_ns) + of(u64::from(runnable) * ONE, passed_ns);
    }
}

impl Credit2 {
    fn load(&mut self, machine: &Machine, queue: usize) -> u64 {
        let queue = &mut self.queues[queue];
        queue.average.count(machine.now_ns(), queue.runnable);
        queue.average.value
    }

    /// The vCPUs of a queue that wait and may go to another, each with its load and a CPU there.
    fn movable(
        &mut self,
        machine: &Machine,
        from: usize,
        to: usize,
        next: TaskId,
    ) -> Vec<(TaskId, u64, CpuId)> {
        let mut movable = Vec::new();
        for task in self.queues[from].waiting.clone() {
            let may_go = |cpu: &CpuId| machine.task(task).may_move_to(*cpu) && machine.cpu(*cpu).online;
            let cpu = self.queues[to].cpus.iter().copied().find(may_go);
            if let Some(cpu) = cpu.filter(|_| task != next && machine.task(task).state == State::Queued) {
                let vcpu = self.vcpu(task);
                vcpu.average.count(machine.now_ns(), 1);
                movable.push((task, vcpu.average.value, cpu));
            }
        }
        movable
    }

    /// Moves one vCPU of `queue` away, one here, or both, if that brings the queues together whose loads differ most.
    /// `next` is about to run, and stays.
    pub(super) fn balance(&mut self, machine: &mut Machine, queue: usize, next: TaskId) {
        let here = self.load(machine, queue);
        let others = (0..self.queues.len()).filter(|&other| other != queue);
        let loads: Vec<(u64, usize, u64)> = others
            .map(|other| (self.load(machine, other), other))
            .map(|(load, other)| (load.abs_diff(here), other, load))
            .collect();
        let Some(&(delta, other, there)) =
            loads.iter().max_by_key(|(delta, other, _)| (*delta, usize::MAX - other))
        else {
            return;
        };
        let cpus = self.queues[queue].cpus.len().max(self.queues[other].cpus.len()) as u64;
        let fits = here.max(there) < cpus * ONE;
        if delta < if fits { UNDERLOAD_TOLERANCE } else { OVERLOAD_TOLERANCE } {
            return;
        }
        let pushes = self.movable(machine, queue, other, next);
        let pulls = self.movable(machine, other, queue, next);
        let load_of = |moved: Option<&(TaskId, u64, CpuId)>| moved.map_or(0, |&(_, load, _)| load as i64);
        let (mut best, mut best_delta) = ((None, None), delta);
        for push in pushes.iter().map(Some).chain([None]) {
            for pull in pulls.iter().map(Some).chain([None]) {
                let moved = load_of(push) - load_of(pull);
                let after = ((here as i64 - moved) - (there as i64 + moved)).unsigned_abs();
                if after < best_delta {
                    (best, best_delta) = ((push, pull), after);
                }
            }
        }
        for &(task, _, cpu) in [best.0, best.1].into_iter().flatten() {
            self.move_to(machine, task, cpu);
        }
    }

    fn move_to(&mut self, machine: &mut Machine, task: TaskId, cpu: CpuId) {
        self.count(machine, task, false);
        self.remove(task);
        machine.set_task_cpu(task, cpu);
        self.join(machine, task);
        self.count(machine, task, true);
        self.insert(task);
        self.tickle(machine, task);
    }
}
