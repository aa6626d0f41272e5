//! What Rota schedules and where: tenants with their reservations, the host with its topology, and the configuration
//! that describes both.
//!
//! **Invariant:** no I/O and no clock in this crate. Text comes in, values or located errors go out.

mod cpuset;
mod share;
mod tenant;
mod topology;

pub use cpuset::CpuSet;
pub use share::Share;
pub use tenant::{Class, Match, Reservation, Tenant, TenantId};
pub use topology::{CpuPlace, Host, Topology};

/// Tenants and the host that carries them: all that the planner is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Model {
    /// The machine to plan for, which need not be this one.
    pub host: Host,
    /// Every tenant, templates expanded. A tenant's place in this list is its [`TenantId`].
    pub tenants: Vec<Tenant>,
}
