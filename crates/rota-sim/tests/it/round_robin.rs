//! A plain policy to test programs with.

use std::collections::VecDeque;

use rota_sim::{Arrival, CpuId, Departure, Idle, Machine, Next, Policy, TaskId};

/// Each CPU runs those on its queue in turn, for a tick each. A woken task goes to an idle CPU if there is one, else
/// back to where it was; a CPU that would idle takes another's first.
#[derive(Default)]
pub struct RoundRobin {
    queues: Vec<VecDeque<TaskId>>,
}

impl RoundRobin {
    /// Takes the present task from the front, and perhaps puts it at the back.
    fn turn(&mut self, cpu: CpuId, task: TaskId) {
        let queue = &mut self.queues[cpu.index()];
        if queue.front() == Some(&task) {
            queue.rotate_left(1);
        }
    }
}

impl Policy for RoundRobin {
    fn start(&mut self, machine: &mut Machine) {
        self.queues = vec![VecDeque::new(); machine.nr_cpus() as usize];
    }

    fn task_new(&mut self, _: &mut Machine, _: TaskId) {}

    fn task_dead(&mut self, _: &mut Machine, _: TaskId) {}

    fn select_cpu(&mut self, machine: &mut Machine, task: TaskId, _: Arrival) -> CpuId {
        let idle = |cpu: &CpuId| machine.cpu(*cpu).current.is_none() && self.queues[cpu.index()].is_empty();
        let before = machine.task(task).cpu;
        let cpus = std::iter::once(before).chain((0..machine.nr_cpus()).map(CpuId));
        cpus.filter(|&cpu| machine.task(task).may_run_on(cpu)).find(idle).unwrap_or(before)
    }

    fn enqueue(&mut self, machine: &mut Machine, task: TaskId, _: Arrival) {
        self.queues[machine.task(task).cpu.index()].push_back(task);
    }

    fn dequeue(&mut self, machine: &mut Machine, task: TaskId, _: Departure) {
        self.queues[machine.task(task).cpu.index()].retain(|other| *other != task);
    }

    fn pick(&mut self, machine: &mut Machine, cpu: CpuId) -> Option<TaskId> {
        if let Some(first) = self.queues[cpu.index()].front() {
            return Some(*first);
        }
        let waits = |task: &&TaskId| {
            machine.task(**task).may_move_to(cpu)
                && machine.cpu(machine.task(**task).cpu).current != Some(**task)
        };
        let task = *self.queues.iter().flatten().find(waits)?;
        self.queues.iter_mut().for_each(|queue| queue.retain(|other| *other != task));
        machine.set_task_cpu(task, cpu);
        self.queues[cpu.index()].push_back(task);
        Some(task)
    }

    fn put_prev(&mut self, _: &mut Machine, _: CpuId, _: TaskId, _: Next) {}

    fn set_next(&mut self, _: &mut Machine, _: CpuId, _: TaskId) {}

    fn yielded(&mut self, _: &mut Machine, cpu: CpuId, task: TaskId) {
        self.turn(cpu, task);
    }

    fn tick(&mut self, machine: &mut Machine, cpu: CpuId, task: TaskId) {
        self.turn(cpu, task);
        machine.resched(cpu);
    }

    fn idle(&mut self, _: &mut Machine, _: CpuId, _: Idle) {}

    fn timer(&mut self, _: &mut Machine, _: CpuId, _: u64) {}

    fn deferred(&mut self, _: &mut Machine, _: CpuId) {}

    fn hotplug(&mut self, _: &mut Machine, _: CpuId, _: bool) {}
}
