//! Experiments: which programs run in which tenants, for how long and under which policies; and what came out of them.

mod histogram;
pub mod result;

use serde::{Deserialize, Serialize};
use std::fmt;

pub use histogram::{BUCKETS, Histogram};

/// What shares the CPUs out between the tenants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Policy {
    /// The kernel's own scheduler with `cpu.weight`: equal for all reserved tenants, the least for background ones.
    Weight,
    /// The kernel's own scheduler with `cpu.max`: each reserved tenant's share as its quota.
    Max,
    /// Rota.
    Rota,
}

impl Policy {
    /// All, in the order in which they are compared.
    pub const ALL: [Policy; 3] = [Policy::Weight, Policy::Max, Policy::Rota];

    /// As the scenario and the results' file names write it.
    pub fn name(self) -> &'static str {
        match self {
            Policy::Weight => "weight",
            Policy::Max => "max",
            Policy::Rota => "rota",
        }
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
