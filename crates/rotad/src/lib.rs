//! The daemon: it finds tenants, tells the scheduler what follows from [`rota_rules`], and keeps accounts.
//!
//! `daemon` carries out what the rules say. `sources` and `configuration` read what it is told; `server` answers
//! `rota status`, and `metrics` Prometheus, at a `socket`. `pods` hears of Kubernetes' pods. `service` tells systemd
//! how it goes.
//! `takeover` is how it comes to a scheduler that outlives it, and `down` ends both. `guests` has timetables for VMs.
//! `misses` reads what threads fetch from memory, and `resctrl` does where the processor has no counters for it.
//! `counters` are those of a tenant that is profiled; both ask the kernel by `perf`. `threads` are that tenant's.
//! `preview` says what the daemon would do, and does nothing.
//!
//! **Invariant:** the daemon is never in the way of a tenant: whatever happens to it, promises are kept until the next
//! daemon comes, or the kernel's scheduler takes over, and every tenant runs on.

mod branches;
mod comeback;
mod configuration;
pub mod counters;
mod daemon;
mod down;
mod guests;
mod installer;
mod log;
pub mod metrics;
mod misses;
mod perf;
mod pods;
mod preview;
mod resctrl;
pub mod sampler;
pub mod server;
mod service;
mod socket;
pub mod sources;
mod takeover;
pub mod threads;

pub use daemon::{Failure, Machine, Options, run};
pub use down::{Was, down};
pub use guests::vsock;
pub use preview::{Preview, preview};
pub use rota_sched::BPF_FS;
