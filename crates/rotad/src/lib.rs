//! The daemon: it finds tenants, has their timetable planned and certified, tells the scheduler, and keeps accounts.
//!
//! `life` decides and does no I/O; `daemon` carries out. `sources`, `topology`, `cgroup` and `vm` read the machine;
//! `planning` makes tables; `accounts`, `background` and `status` read the scheduler's counters.
//!
//! **Invariant:** the daemon is never in the way of a tenant: whatever happens to it, the kernel's scheduler takes over
//! and every tenant runs on.

pub mod accounts;
pub mod background;
pub mod cgroup;
pub mod enactor;
pub mod life;
pub mod planning;
pub mod sources;
pub mod status;
pub mod topology;
pub mod vm;
