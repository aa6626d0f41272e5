//! The daemon: it finds tenants, has their timetable planned and certified, tells the scheduler, and keeps accounts.
//!
//! `life` decides and does no I/O; `daemon` carries out. `sources`, `topology`, `cgroup` and `vm` read the machine, and
//! `discovery` puts together what they see; `planning` makes tables; `accounts`, `background`, `status` and
//! `metrics` are about the scheduler's counters.
//!
//! **Invariant:** the daemon is never in the way of a tenant: whatever happens to it, the kernel's scheduler takes over
//! and every tenant runs on.

pub mod accounts;
pub mod background;
pub mod cgroup;
mod daemon;
mod discovery;
mod enactor;
pub mod life;
mod log;
pub mod metrics;
pub mod planning;
pub mod sources;
pub mod status;
pub mod topology;
pub mod vm;

pub use cgroup::Found;
pub use daemon::{ACCOUNTS_NS, Failure, Options, RETRY_NS, capacity, run};
