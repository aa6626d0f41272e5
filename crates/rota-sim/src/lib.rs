//! The simulator: machines of any size, threads, and a policy that schedules them.
//!
//! A [`Simulation`] is a [`Machine`] with tasks, a [`Policy`] that decides, and an [`Observer`] that sees what happens
//! and knows nothing of the policy. Time is in integer ns; all chance comes from one seed.
//!
//! **Invariant:** no clock, no I/O, and no order that depends on an address or a hash: the same seed gives the same
//! events everywhere.

mod caches;
mod change;
mod contender;
mod costs;
mod decide;
mod distribution;
mod engine;
mod event;
pub mod fetch;
mod guest;
mod ids;
mod machine;
mod mask;
pub mod observe;
mod policy;
mod program;
pub mod programs;
mod rng;
mod steps;
mod task;
mod tenants;
mod thread;

pub use caches::{CacheCounters, Memory, PRIVATE_KIB, SHARED_KIB};
pub use contender::Contender;
pub use costs::Costs;
pub use distribution::Distribution;
pub use engine::Simulation;
pub use guest::{Guest, GuestScheduler, Help, Slots, Timetable};
pub use ids::{CpuId, DeviceId, TaskId, UnitId};
pub use machine::{Cpu, Machine, Theft, Timer};
pub use mask::CpuMask;
pub use observe::Observer;
pub use policy::{Arrival, Departure, Idle, Next, Policy};
pub use program::{Device, Interrupt, Program, Reason, Resumed, Site, Step, Virtual, Why, World};
pub use rng::Rng;
pub use task::{Cgroup, CgroupId, State, Task, TaskSpec};
pub use tenants::{Home, Limits, Tenants};
pub use thread::{Script, Thread};
