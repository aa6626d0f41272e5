//! The daemon's rules, without the daemon: what happens goes in, what is to be done comes out.
//!
//! `driver` says what to do next, and when. `life` says what the scheduler shall be told of tenants, and `planning`
//! makes tables. `accounts`, `background` and `status` are about the scheduler's counters. `enactor` is the scheduler,
//! as far as these rules need it. `fleet` asks many hosts at once. `pods` makes tenants of a node's pods.
//!
//! **Invariant:** no I/O and no clock. The time comes with what happens, so a simulated host goes by the same rules.

pub mod accounts;
pub mod advice;
pub mod background;
mod capacity;
pub mod counters;
mod driver;
mod enactor;
pub mod fleet;
pub mod interference;
pub mod life;
pub mod matching;
pub mod measures;
pub mod planning;
pub mod pods;
pub mod profile;
pub mod sampling;
pub mod slowdown;
pub mod status;

pub use capacity::capacity;
pub use driver::{Chore, Command, Driver, Job};
pub use enactor::Enactor;
