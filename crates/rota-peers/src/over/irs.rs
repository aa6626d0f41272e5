//! The host's side of interference-resilient scheduling (Zhao, dissertation, section 4.3.1 and algorithm 1): before a
//! vCPU is stopped that would run on, its guest is told, and the vCPU goes on until the guest gives the CPU up. Where
//! no guest answers, nothing is different from the policy below.

use rota_sim::{State, Timer};

use super::{Arrival, CpuId, Departure, Idle, KEYS, Machine, Next, Policy, TaskId, Under, pass_on};

/// A guest that has not answered by then is stopped all the same: the hard limit of section 4.4.1, which has no number.
/// Twice the longest answer.
const LIMIT_NS: u64 = 52_000;

/// What a CPU has told.
#[derive(Clone, Copy)]
struct Told {
    /// The vCPU that is about to be stopped, if it has not answered.
    pending: Option<TaskId>,
    /// One that has answered, or not in time.
    done: Option<TaskId>,
    limit: Timer,
}

/// A policy below that has guests told.
pub struct Irs<P> {
    under: Under<P>,
    cpus: Vec<Told>,
}

impl<P: Policy + Default> Default for Irs<P> {
    fn default() -> Irs<P> {
        Irs { under: Under::new(P::default()), cpus: Vec::new() }
    }
}

impl<P: Policy> Irs<P> {
    pub(crate) fn below(&mut self) -> &mut P {
        &mut self.under.policy
    }

    /// Whether what runs on a CPU may be stopped now.
    fn may_stop(&mut self, machine: &mut Machine, cpu: CpuId, current: TaskId) -> bool {
        let Told { pending, done, limit } = self.cpus[cpu.index()];
        if done == Some(current) {
            return true;
        }
        if pending == Some(current) {
            return false;
        }
        if !machine.upcall(current) {
            return true;
        }
        let until_ns = machine.now_ns() + LIMIT_NS;
        machine.timer_set(limit, cpu, until_ns);
        self.cpus[cpu.index()].pending = Some(current);
        false
    }

    /// What ran on a CPU need not be told again.
    fn answered(&mut self, machine: &mut Machine, cpu: CpuId, task: TaskId) {
        let told = &mut self.cpus[cpu.index()];
        if told.pending == Some(task) {
            (told.pending, told.done) = (None, Some(task));
            machine.timer_cancel(told.limit);
        }
    }
}

impl<P: Policy> Policy for Irs<P> {
    fn start(&mut self, machine: &mut Machine) {
        self.under.policy.start(machine);
        for cpu in (0..machine.nr_cpus()).map(CpuId) {
            let limit = machine.timer_new(cpu, KEYS + u64::from(cpu.0));
            self.cpus.push(Told { pending: None, done: None, limit });
        }
    }

    fn dequeue(&mut self, machine: &mut Machine, task: TaskId, departure: Departure) {
        let cpu = machine.task(task).cpu;
        self.answered(machine, cpu, task);
        self.under.policy.dequeue(machine, task, departure);
    }

    fn pick(&mut self, machine: &mut Machine, cpu: CpuId) -> Option<TaskId> {
        let next = self.under.policy.pick(machine, cpu);
        let current = machine.cpu(cpu).current.filter(|current| {
            machine.task(*current).state == State::Running && machine.task(*current).realtime.is_none()
        });
        match (current, next) {
            (Some(current), Some(next)) if current != next && !self.may_stop(machine, cpu, current) => {
                Some(current)
            }
            _ => next,
        }
    }

    fn set_next(&mut self, machine: &mut Machine, cpu: CpuId, task: TaskId) {
        let told = &mut self.cpus[cpu.index()];
        (told.pending, told.done) = (None, None);
        machine.timer_cancel(told.limit);
        self.under.policy.set_next(machine, cpu, task);
    }

    fn yielded(&mut self, machine: &mut Machine, cpu: CpuId, task: TaskId) {
        self.answered(machine, cpu, task);
        self.under.policy.yielded(machine, cpu, task);
    }

    fn timer(&mut self, machine: &mut Machine, cpu: CpuId, key: u64) {
        if key < KEYS {
            return self.under.policy.timer(machine, cpu, key);
        }
        if let Some(late) = self.cpus[(key - KEYS) as usize].pending {
            self.answered(machine, cpu, late);
            machine.resched(cpu);
        }
    }

    pass_on! {
        task_new(task: TaskId);
        task_dead(task: TaskId);
        select_cpu(task: TaskId, arrival: Arrival) -> CpuId;
        enqueue(task: TaskId, arrival: Arrival);
        put_prev(cpu: CpuId, task: TaskId, next: Next);
        tick(cpu: CpuId, task: TaskId);
        idle(cpu: CpuId, idle: Idle);
        deferred(cpu: CpuId);
        hotplug(cpu: CpuId, online: bool);
    }
}
