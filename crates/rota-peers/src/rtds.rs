//! Xen's RTDS: each vCPU is a deferrable server with a budget and a period, and on all CPUs together the earliest
//! deadlines run (`xen/common/sched/rt.c`; Vanga, thesis section 2.3.3). Nobody runs without budget: time that is over
//! is lost. Each task is a vCPU.
//!
//! Left out: extra time, which came after the version that the thesis compares with (4.9), and the costs of its one
//! lock.

use std::collections::BTreeMap;

use rota_sim::{Arrival, CgroupId, CpuId, Departure, Idle, Machine, Next, Policy, TaskId};

use super::edf::{Edf, Kind, Server};

/// `RTDS_DEFAULT_BUDGET` and `RTDS_DEFAULT_PERIOD`.
const DEFAULT: Server = Server { budget_ns: 4_000_000, period_ns: 10_000_000 };

/// The scheduler.
pub struct Rtds {
    edf: Edf,
    servers: BTreeMap<CgroupId, Server>,
}

impl Default for Rtds {
    fn default() -> Rtds {
        Rtds { edf: Edf::new(Kind::Deferrable), servers: BTreeMap::new() }
    }
}

impl Rtds {
    /// Each vCPU of a domain that begins from now on has this server.
    pub fn reserve(&mut self, domain: CgroupId, server: Server) {
        self.servers.insert(domain, server);
    }
}

impl Policy for Rtds {
    fn start(&mut self, machine: &mut Machine) {
        self.edf.start(machine);
    }

    fn task_new(&mut self, machine: &mut Machine, task: TaskId) {
        let server = self.servers.get(&machine.task(task).cgroup).copied().unwrap_or(DEFAULT);
        self.edf.add(task, server);
    }

    fn task_dead(&mut self, _: &mut Machine, task: TaskId) {
        self.edf.remove(task);
    }

    /// Where a vCPU waits means nothing: there is one queue.
    fn select_cpu(&mut self, machine: &mut Machine, task: TaskId, _: Arrival) -> CpuId {
        machine.task(task).cpu
    }

    fn enqueue(&mut self, machine: &mut Machine, task: TaskId, _: Arrival) {
        self.edf.enqueue(machine, task);
    }

    fn dequeue(&mut self, machine: &mut Machine, task: TaskId, _: Departure) {
        self.edf.dequeue(machine, task);
    }

    fn pick(&mut self, machine: &mut Machine, cpu: CpuId) -> Option<TaskId> {
        self.edf.pick(machine, cpu)
    }

    fn put_prev(&mut self, machine: &mut Machine, cpu: CpuId, task: TaskId, _: Next) {
        self.edf.put(machine, cpu, task);
    }

    fn set_next(&mut self, machine: &mut Machine, cpu: CpuId, task: TaskId) {
        self.edf.set(machine, cpu, task);
    }

    /// RTDS knows nothing of yielding.
    fn yielded(&mut self, _: &mut Machine, _: CpuId, _: TaskId) {}

    fn tick(&mut self, _: &mut Machine, _: CpuId, _: TaskId) {}

    fn idle(&mut self, _: &mut Machine, _: CpuId, _: Idle) {}

    fn timer(&mut self, machine: &mut Machine, _: CpuId, key: u64) {
        self.edf.timer(machine, key);
    }

    fn deferred(&mut self, _: &mut Machine, _: CpuId) {}

    fn hotplug(&mut self, _: &mut Machine, _: CpuId, _: bool) {}
}
