//! What runs inside a guest: it sets a scenario's tenants up, runs their programs under one policy, and measures.
//!
//! **Invariant:** knows nothing of how the guest was booted, and ends all that it has started.

pub mod adversary;
pub mod calls;
mod cgroup;
pub mod client;
pub mod clock;
mod control;
pub mod crowd;
pub mod fifo;
pub mod observer;
pub mod parallel;
pub mod probe;
mod process;
pub mod realtime;
mod run;
mod scheduler;
pub mod spin;
pub mod taken;
mod tenant;
pub mod vm;

pub use run::{Options, run};
