//! The daemon: it finds tenants, has their timetable planned and certified, tells the scheduler, and keeps accounts.
//!
//! `life` decides and does no I/O; `daemon` carries out. `sources` reads the configuration; `planning` makes tables; `accounts`, `background`, `status` and
//! `metrics` are about the scheduler's counters.
//!
//! **Invariant:** the daemon is never in the way of a tenant: whatever happens to it, the kernel's scheduler takes over
//! and every tenant runs on.

pub mod accounts;
pub mod background;
mod daemon;
mod enactor;
pub mod life;
mod log;
pub mod metrics;
pub mod planning;
pub mod sources;
pub mod status;

pub use daemon::{ACCOUNTS_NS, Failure, Options, RETRY_NS, capacity, run};
