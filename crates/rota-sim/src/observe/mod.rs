//! What is seen from outside: observers are told what happens and know nothing of the policy.

mod digest;
mod fairness;
mod lags;
mod metrics;
mod promises;
mod sanity;
mod spending;
mod tail;
mod trace;
mod waits;

use crate::ids::{CpuId, TaskId};
use crate::machine::{Machine, Theft};
pub use digest::Digest;
pub use fairness::{Bound, Fairness, Lead, Unfair};
pub use lags::{Lag, Lags};
pub use metrics::{Metrics, UnitMetrics};
pub use promises::{Broken, How, Promise, Promises};
pub use sanity::{Insane, Sanity};
pub use spending::{Spending, Spent};
pub use tail::Tail;
pub use trace::{Trace, perfetto};
pub use waits::{Longest, Waits};

/// Something that has happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A task is new; it is queued next.
    Born(TaskId),
    /// A task would run: it is queued on its CPU.
    Woken(TaskId),
    /// A task runs on a CPU.
    Runs(CpuId, TaskId),
    /// A task no longer runs on a CPU; whether it would go on.
    Stops(CpuId, TaskId, bool),
    /// A task is over.
    Died(TaskId),
    /// Something else has a CPU, for so many ns.
    Stolen(CpuId, Theft, u64),
    /// A CPU comes or goes.
    Hotplug(CpuId, bool),
    /// A program says that it has done so much.
    Work(TaskId, u64),
    /// A program says that something took so many ns.
    Latency(TaskId, u64),
}

/// Told of each event, once everything about it has been done.
pub trait Observer {
    /// At [`Machine::now_ns`]. Who tells of an event knows which it is: inlined there, nothing is left of asking.
    fn observe(&mut self, machine: &Machine, event: Event);
}

/// Sees nothing.
impl Observer for () {
    fn observe(&mut self, _: &Machine, _: Event) {}
}

impl<A: Observer, B: Observer> Observer for (A, B) {
    #[inline(always)]
    fn observe(&mut self, machine: &Machine, event: Event) {
        self.0.observe(machine, event);
        self.1.observe(machine, event);
    }
}

impl<A: Observer, B: Observer, C: Observer> Observer for (A, B, C) {
    #[inline(always)]
    fn observe(&mut self, machine: &Machine, event: Event) {
        self.0.observe(machine, event);
        self.1.observe(machine, event);
        self.2.observe(machine, event);
    }
}

impl<O: Observer> Observer for Option<O> {
    #[inline(always)]
    fn observe(&mut self, machine: &Machine, event: Event) {
        if let Some(observer) = self {
            observer.observe(machine, event);
        }
    }
}
