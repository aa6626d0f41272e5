//! The daemon's rules, without the daemon: what happens goes in, what is to be done comes out.
//!
//! `life` says what the scheduler shall be told of tenants, and `planning` makes tables. `accounts`, `background` and
//! `status` are about the scheduler's counters.
//!
//! **Invariant:** no I/O and no clock. The time comes with what happens, so a simulated host goes by the same rules.

pub mod accounts;
pub mod background;
mod capacity;
pub mod life;
pub mod planning;
pub mod status;

pub use capacity::capacity;

/// How often the scheduler's counters are read, and running VMs looked for.
pub const ACCOUNTS_NS: u64 = 1_000_000_000;
/// A table that could not be installed is tried again after this.
pub const RETRY_NS: u64 = 1_000_000_000;
