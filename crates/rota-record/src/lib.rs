//! Recordings: which threads of which tenants ran, blocked and woke on a host, who woke whom, and under which
//! scheduler.
//!
//! A [`Recording`] is what a host's recorder or a simulation leaves; [`Recording::to_bytes`] and
//! [`Recording::from_bytes`] are its file ([`format`] describes the layout), [`Summary`] says what each tenant got in
//! it. What it is good for: `rota sim --replay` runs the load in it under any policy.
//!
//! **Invariant:** a recording says what happened and nothing about why; who reads one makes of it what it likes. The
//! bytes are hostile: what [`Recording::from_bytes`] returns holds the rules of [`Recording::check`], so that nobody
//! after it has to look twice.

mod check;
pub mod format;
pub mod recorder;
mod recording;
mod summary;

pub use check::Meaningless;
pub use format::{FormatError, VERSION};
pub use recorder::Recorder;
pub use recording::{
    Class, Event, Host, How, Limits, Place, Policy, Quota, Rank, Recording, Tenant, Thread, What,
};
pub use rota_model::Cause;
pub use summary::{Summary, summaries};
