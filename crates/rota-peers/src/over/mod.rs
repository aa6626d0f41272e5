//! What is laid over another policy, which then decides the rest: threads are kept to CPUs, stopped, or moved.

mod gleaner;
mod irs;
mod pinned;
mod relaxed;

use std::collections::BTreeSet;

use rota_sim::{Arrival, CpuId, Departure, Idle, Machine, Next, Policy, State, TaskId};

use crate::credit::Credit;
use crate::fair::{Fair, Rule};
pub use gleaner::Gleaner;
pub use irs::Irs;
pub use pinned::Pinned;
pub use relaxed::RelaxedCo;

/// Timers from here on are of what lies over the policy.
const KEYS: u64 = 1 << 62;

/// A policy that says which of its queued tasks wait for their quota or cap, and not for a CPU.
pub trait Below: Policy {
    /// Whether a queued task may have a CPU now.
    fn may_run(&self, task: TaskId) -> bool;
}

impl<R: Rule> Below for Fair<R> {
    fn may_run(&self, task: TaskId) -> bool {
        !self.waits_for_quota(task)
    }
}

impl Below for Credit {
    fn may_run(&self, task: TaskId) -> bool {
        !self.is_parked(task)
    }
}

impl<P: Below> Below for Pinned<P> {
    fn may_run(&self, task: TaskId) -> bool {
        self.under.policy.may_run(task)
    }
}

/// Another policy, from which runnable tasks can be taken for a while.
struct Under<P> {
    policy: P,
    /// Taken out.
    out: BTreeSet<TaskId>,
}

impl<P: Policy> Under<P> {
    fn new(policy: P) -> Under<P> {
        Under { policy, out: BTreeSet::new() }
    }

    /// Has the policy below take a task for gone. If it runs, it stops as soon as its CPU can decide.
    fn take_out(&mut self, machine: &mut Machine, task: TaskId) {
        let (state, cpu) = (machine.task(task).state, machine.task(task).cpu);
        if matches!(state, State::Queued | State::Running) && self.out.insert(task) {
            self.policy.dequeue(machine, task, Departure::Moved);
            if state == State::Running {
                machine.resched(cpu);
            }
        }
    }

    /// Gives the policy a task back, on this CPU. It does not run.
    fn put_back(&mut self, machine: &mut Machine, task: TaskId, cpu: CpuId) {
        if self.out.remove(&task) {
            if machine.task(task).cpu != cpu {
                machine.set_task_cpu(task, cpu);
            }
            self.policy.enqueue(machine, task, Arrival::Moved);
            if machine.cpu(cpu).current.is_none() {
                machine.resched(cpu);
            }
        }
    }

    /// Whether a task waits, and the policy below knows.
    fn waits(&self, machine: &Machine, task: TaskId) -> bool {
        let of = machine.task(task);
        of.state == State::Queued && machine.cpu(of.cpu).current != Some(task) && !self.out.contains(&task)
    }

    fn dequeue(&mut self, machine: &mut Machine, task: TaskId, departure: Departure) {
        if !self.out.remove(&task) {
            self.policy.dequeue(machine, task, departure);
        }
    }
}

/// Passes calls on that nothing is added to.
macro_rules! pass_on {
    ($($call:ident($($name:ident: $type:ty),*) $(-> $result:ty)?;)*) => {
        $(fn $call(&mut self, machine: &mut Machine, $($name: $type),*) $(-> $result)? {
            self.under.policy.$call(machine, $($name),*)
        })*
    };
}
use pass_on;
