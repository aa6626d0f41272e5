//! `SCHED_DEADLINE`: threads with a reservation are constant bandwidth servers, and on all CPUs together the earliest
//! deadlines run, before every ordinary thread (`kernel/sched/deadline.c`, and `sched-deadline.rst` of its
//! documentation). The others are EEVDF's. A thread is admitted while all reservations together are at most 95 % of the
//! CPUs.
//!
//! Budgets end in time, as with the kernel's `HRTICK_DL`, not at the next tick. Threads with a reservation may have
//! affinities, which the kernel refuses. Left out: reclaiming, the fair server, and inheritance.

use std::collections::BTreeMap;

use rota_sim::{Arrival, CgroupId, CpuId, Departure, Idle, Machine, Next, Policy, TaskId};

use super::edf::{Edf, Kind, Server};
use super::fair::{Eevdf, Fair};

/// What may be reserved of all CPUs, in parts per million: `sched_rt_runtime_us` of a second.
const ADMITTED_PPM: u128 = 950_000;
const PPM: u128 = 1_000_000;

/// What is promised in a cgroup: a server, and to how many more threads.
#[derive(Clone, Copy, Debug)]
struct Reserved {
    server: Server,
    threads: u32,
}

/// The classes.
pub struct Deadline {
    edf: Edf,
    fair: Fair<Eevdf>,
    reserved: BTreeMap<CgroupId, Reserved>,
    /// Of each thread with a server, whose promise it has taken.
    taken: BTreeMap<TaskId, CgroupId>,
    /// What is reserved, in parts per million of a CPU.
    admitted_ppm: u128,
}

impl Default for Deadline {
    fn default() -> Deadline {
        let edf = Edf::new(Kind::ConstantBandwidth);
        let (reserved, taken) = (BTreeMap::new(), BTreeMap::new());
        Deadline { edf, fair: Fair::default(), reserved, taken, admitted_ppm: 0 }
    }
}

/// A server's part of a CPU, in parts per million, rounded up.
fn ppm(server: Server) -> u128 {
    (u128::from(server.budget_ns) * PPM).div_ceil(u128::from(server.period_ns))
}

impl Deadline {
    /// So many threads at once of a cgroup, of those that begin from now on, have this server each, if it is admitted.
    pub fn reserve(&mut self, cgroup: CgroupId, server: Server, threads: u32) {
        self.reserved.insert(cgroup, Reserved { server, threads });
    }

    /// Whether the thread has a reservation.
    pub fn is_reserved(&self, task: TaskId) -> bool {
        self.edf.has(task)
    }

    /// The server of a new thread, if its cgroup has one left and the CPUs have room for it.
    fn admit(&mut self, machine: &Machine, task: TaskId) -> Option<Server> {
        let cgroup = machine.task(task).cgroup;
        let reserved = self.reserved.get_mut(&cgroup).filter(|reserved| reserved.threads > 0)?;
        let with_it = self.admitted_ppm + ppm(reserved.server);
        if with_it > ADMITTED_PPM * machine.topology().places.len() as u128 {
            return None;
        }
        reserved.threads -= 1;
        self.admitted_ppm = with_it;
        self.taken.insert(task, cgroup);
        Some(reserved.server)
    }
}

impl Policy for Deadline {
    fn start(&mut self, machine: &mut Machine) {
        self.edf.start(machine);
        self.fair.start(machine);
    }

    fn task_new(&mut self, machine: &mut Machine, task: TaskId) {
        match self.admit(machine, task) {
            Some(server) => self.edf.add(task, server),
            None => self.fair.task_new(machine, task),
        }
    }

    fn task_dead(&mut self, machine: &mut Machine, task: TaskId) {
        let Some(cgroup) = self.taken.remove(&task) else { return self.fair.task_dead(machine, task) };
        self.admitted_ppm -= ppm(self.edf.remove(task));
        if let Some(reserved) = self.reserved.get_mut(&cgroup) {
            reserved.threads += 1;
        }
    }

    fn select_cpu(&mut self, machine: &mut Machine, task: TaskId, arrival: Arrival) -> CpuId {
        match self.edf.has(task) {
            true => machine.task(task).cpu,
            false => self.fair.select_cpu(machine, task, arrival),
        }
    }

    fn enqueue(&mut self, machine: &mut Machine, task: TaskId, arrival: Arrival) {
        match self.edf.has(task) {
            true => self.edf.enqueue(machine, task),
            false => self.fair.enqueue(machine, task, arrival),
        }
    }

    fn dequeue(&mut self, machine: &mut Machine, task: TaskId, departure: Departure) {
        match self.edf.has(task) {
            true => self.edf.dequeue(machine, task),
            false => self.fair.dequeue(machine, task, departure),
        }
    }

    fn pick(&mut self, machine: &mut Machine, cpu: CpuId) -> Option<TaskId> {
        self.edf.pick(machine, cpu).or_else(|| self.fair.pick(machine, cpu))
    }

    fn put_prev(&mut self, machine: &mut Machine, cpu: CpuId, task: TaskId, next: Next) {
        let next = match next {
            Next::Ordinary(next) if self.edf.has(next) && next != task => Next::Higher,
            next => next,
        };
        match self.edf.has(task) {
            true => self.edf.put(machine, cpu, task),
            false => self.fair.put_prev(machine, cpu, task, next),
        }
    }

    fn set_next(&mut self, machine: &mut Machine, cpu: CpuId, task: TaskId) {
        match self.edf.has(task) {
            true => self.edf.set(machine, cpu, task),
            false => self.fair.set_next(machine, cpu, task),
        }
    }

    fn yielded(&mut self, machine: &mut Machine, cpu: CpuId, task: TaskId) {
        match self.edf.has(task) {
            true => self.edf.give_up(machine, cpu, task),
            false => self.fair.yielded(machine, cpu, task),
        }
    }

    fn tick(&mut self, machine: &mut Machine, cpu: CpuId, task: TaskId) {
        match self.edf.has(task) {
            true => self.fair.balance(machine, cpu),
            false => self.fair.tick(machine, cpu, task),
        }
    }

    fn idle(&mut self, machine: &mut Machine, cpu: CpuId, idle: Idle) {
        self.fair.idle(machine, cpu, idle);
    }

    fn timer(&mut self, machine: &mut Machine, cpu: CpuId, key: u64) {
        match Edf::owns_timer(key) {
            true => self.edf.timer(machine, key),
            false => self.fair.timer(machine, cpu, key),
        }
    }

    fn deferred(&mut self, _: &mut Machine, _: CpuId) {}

    fn hotplug(&mut self, machine: &mut Machine, cpu: CpuId, online: bool) {
        self.fair.hotplug(machine, cpu, online);
    }
}
