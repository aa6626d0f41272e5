//! Other schedulers, to compare with: each a [`rota_sim::Policy`] on the same machines, programs and observers.
//!
//! They take what they need to know from cgroups and tasks: weights, `cpu.max`, affinities. What each one is after,
//! with its parameters, is in docs/PEERS.md; what each makes of a tenant, in `tenants.rs`.

pub mod credit;
pub mod credit2;
mod deadline;
mod edf;
pub mod fair;
pub mod mqfq;
mod over;
mod rtds;
mod tenants;

pub use credit::{Credit, Delay};
pub use credit2::Credit2;
pub use deadline::Deadline;
pub use edf::Server;
pub use fair::{Cfs, Eevdf, Fair};
pub use mqfq::Mqfq;
pub use over::{Gleaner, Irs, Pinned, RelaxedCo};
pub use rtds::Rtds;
