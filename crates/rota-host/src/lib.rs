//! What a machine shows of itself and its tenants.
//!
//! `topology` reads the CPUs and `tree` follows the cgroups. `find` tells which cgroups are tenants and which threads
//! are a VM's vCPUs. `discovery` puts together what these see, and tells what has changed.
//!
//! **Invariant:** nothing on the machine is changed, and nothing is known of plans, tables and schedulers.

mod discovery;
pub mod find;
pub mod topology;
pub mod tree;

pub use discovery::{Discovery, Sighting};
pub use find::context::{CommandLine, Context};
pub use find::monitors::Trust;
