//! The simulator: machines of any size, threads, and a policy that schedules them. Rota's own scheduler is run from its
//! source: the C that the kernel runs, compiled for this machine, on a model of what it calls.
//!
//! A [`Simulation`] is a [`Machine`] with tasks, a [`Policy`] that decides, and an [`Observer`] that sees what happens
//! and knows nothing of the policy. Time is in integer ns; all chance comes from one seed.
//!
//! **Invariant:** no clock, no I/O, and no order that depends on an address or a hash: the same seed gives the same
//! events everywhere. The model may know less than the kernel does, but it calls a scheduler in no order in which the
//! kernel could not.

mod change;
mod contender;
mod costs;
mod decide;
mod distribution;
mod engine;
mod event;
pub mod ext;
pub mod farm;
mod fetch;
mod guest;
mod ids;
mod machine;
mod mask;
pub mod observe;
pub mod peers;
pub mod policies;
mod policy;
mod program;
pub mod programs;
pub mod replay;
mod rng;
pub mod rota;
pub mod scenario;
mod steps;
mod task;
mod tenants;
mod thread;

pub use contender::Contender;
pub use costs::Costs;
pub use distribution::Distribution;
pub use engine::Simulation;
pub use guest::Guest;
pub use ids::{CpuId, DeviceId, TaskId, UnitId};
pub use machine::{Cpu, Machine, Theft, Timer};
pub use mask::CpuMask;
pub use observe::Observer;
pub use policy::{Arrival, Departure, Idle, Next, Policy};
pub use program::{Device, Interrupt, Program, Resumed, Site, Step, Why, World};
pub use rng::Rng;
pub use task::{Cgroup, CgroupId, State, Task, TaskSpec};
pub use tenants::{Home, Limits, Tenants};
pub use thread::{Script, Thread};

/// Runs `call` in a thread of its own, and waits for it: in there is a scheduler of Rota's as nobody has used it yet.
/// Several at once run beside each other.
///
/// # Panics
///
/// If `call` does.
pub fn apart<T: Send>(call: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| match scope.spawn(call).join() {
        Ok(result) => result,
        Err(panic) => std::panic::resume_unwind(panic),
    })
}
