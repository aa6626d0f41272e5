//! Every thread is bound to a CPU, and the policy below shares each CPU among those that are bound there: "Pin" of Zhao
//! et al., *Preemptive multi-queue fair queuing*, HPDC 2019, section 4.1.

use super::{Arrival, CpuId, Departure, Idle, Machine, Next, Policy, TaskId, Under, pass_on};

/// The policy with bound threads.
pub struct Pinned<P> {
    pub(super) under: Under<P>,
    /// Where each thread is bound.
    homes: Vec<Option<CpuId>>,
}

impl<P: Policy + Default> Default for Pinned<P> {
    fn default() -> Pinned<P> {
        Pinned::new(P::default())
    }
}

impl<P: Policy> Pinned<P> {
    /// Over that policy.
    pub fn new(policy: P) -> Pinned<P> {
        Pinned { under: Under::new(policy), homes: Vec::new() }
    }

    pub(crate) fn below(&mut self) -> &mut P {
        &mut self.under.policy
    }

    /// A CPU with as few as possible of the thread's own group, then of all threads.
    fn choose(&self, machine: &Machine, task: TaskId) -> Option<CpuId> {
        let of = machine.task(task);
        let usable = |cpu: &CpuId| machine.cpu(*cpu).online && of.affinity.has(*cpu);
        let mut bound = vec![(0, 0); machine.nr_cpus() as usize];
        for (home, (other, of_other)) in self.homes.iter().zip(machine.tasks()) {
            if let Some(home) = home.filter(|_| other != task) {
                let (own, all) = &mut bound[home.index()];
                *own += u32::from(of_other.cgroup == of.cgroup);
                *all += 1;
            }
        }
        (0..machine.nr_cpus()).map(CpuId).filter(usable).min_by_key(|cpu| bound[cpu.index()])
    }

    fn bind(&mut self, machine: &mut Machine, task: TaskId, cpu: CpuId) {
        if self.homes[task.index()].replace(cpu) != Some(cpu) {
            let mask = machine.mask([cpu]);
            machine.keep_to(task, Some(mask));
        }
    }
}

impl<P: Policy> Policy for Pinned<P> {
    fn task_new(&mut self, machine: &mut Machine, task: TaskId) {
        self.homes.resize(task.index() + 1, None);
        self.under.policy.task_new(machine, task);
    }

    fn task_dead(&mut self, machine: &mut Machine, task: TaskId) {
        self.homes[task.index()] = None;
        self.under.policy.task_dead(machine, task);
    }

    fn select_cpu(&mut self, machine: &mut Machine, task: TaskId, _: Arrival) -> CpuId {
        let usable = |cpu: &CpuId| machine.cpu(*cpu).online && machine.task(task).affinity.has(*cpu);
        let home = self.homes[task.index()].filter(usable).or_else(|| self.choose(machine, task));
        home.unwrap_or(machine.task(task).cpu)
    }

    fn enqueue(&mut self, machine: &mut Machine, task: TaskId, arrival: Arrival) {
        let cpu = machine.task(task).cpu;
        self.bind(machine, task, cpu);
        self.under.policy.enqueue(machine, task, arrival);
    }

    pass_on! {
        start();
        dequeue(task: TaskId, departure: Departure);
        pick(cpu: CpuId) -> Option<TaskId>;
        put_prev(cpu: CpuId, task: TaskId, next: Next);
        set_next(cpu: CpuId, task: TaskId);
        yielded(cpu: CpuId, task: TaskId);
        tick(cpu: CpuId, task: TaskId);
        idle(cpu: CpuId, idle: Idle);
        timer(cpu: CpuId, key: u64);
        deferred(cpu: CpuId);
        hotplug(cpu: CpuId, online: bool);
    }
}
