//! What Rota schedules and where: tenants with their reservations, the host with its topology, and the configuration
//! that describes both.
//!
//! **Invariant:** no I/O and no clock in this crate. Text comes in, values or located errors go out.

mod cause;
pub mod config;
mod cpuset;
pub mod histogram;
mod share;
mod tenant;
mod topology;

pub use cause::Cause;
pub use cpuset::{CpuSet, CpuSetError};
pub use share::Share;
pub use tenant::{Cgroup, Class, Match, Reservation, Tenant, TenantId};
pub use topology::{Costs, CpuPlace, Host, Placement, Spare, Topology};

/// Tenants and the host that carries them: all that the planner is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Model {
    /// The machine to plan for, which need not be this one.
    pub host: Host,
    /// Every tenant, templates expanded. A tenant's place in this list is its [`TenantId`].
    pub tenants: Vec<Tenant>,
}

impl Model {
    /// The system's own tenant, if the host keeps no housekeeping CPUs: reserved, uncapped, one vCPU a CPU, pinned to
    /// it. The system's user tasks are served there, since a small host cannot give whole CPUs away.
    pub fn system(&self) -> Option<TenantId> {
        let id = self.tenants.iter().position(|tenant| tenant.name == Tenant::SYSTEM)?;
        TenantId::try_from(id).ok()
    }
}

/// A text from outside in quotes, escaped and short enough for an error message.
pub fn quote(text: &str) -> String {
    match text.char_indices().nth(60) {
        Some((end, _)) => format!("{:?}...", &text[..end]),
        None => format!("{text:?}"),
    }
}
