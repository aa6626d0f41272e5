//! The daemon: it finds tenants, tells the scheduler what follows from [`rota_rules`], and keeps accounts.
//!
//! `daemon` carries out what the rules say. `sources` reads the configuration; `server` answers `rota status`, and
//! `metrics` Prometheus, at a `socket`. `service` tells systemd how it goes.
//! `preview` says what the daemon would do, and does nothing.
//!
//! **Invariant:** the daemon is never in the way of a tenant: whatever happens to it, the kernel's scheduler takes over
//! and every tenant runs on.

mod comeback;
mod daemon;
mod installer;
mod log;
pub mod metrics;
mod misses;
mod preview;
pub mod server;
mod service;
mod socket;
pub mod sources;

pub use daemon::{Failure, Machine, Options, run};
pub use preview::{Preview, preview};
