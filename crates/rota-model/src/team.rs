//! What a tenant's vCPUs are to each other, and to their monitor.

use crate::{Share, Tenant};

/// Whose slots the threads of a VM have that are no vCPUs: those of its monitor's that emulate devices, serve disks and
/// networks (QEMU's I/O threads, the kernel's vhost threads), and manage the VM.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum Monitor {
    /// They stand in for the VM's vCPUs, in the VM's own slots.
    #[default]
    Own,
    /// They are tasks of the system's: on the housekeeping CPUs, or in the slots of the system's own tenant.
    System,
    /// They are this tenant's, which has no `match` and is here as long as one of its VMs is.
    Tenant(String),
}

impl Monitor {
    /// The name of the tenant that has the threads, if that is not the VM itself.
    pub fn name(&self) -> Option<&str> {
        match self {
            Monitor::Own => None,
            Monitor::System => Some(Tenant::SYSTEM),
            Monitor::Tenant(name) => Some(name),
        }
    }
}

/// How the vCPUs of one tenant are served beside each other.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Team {
    /// All vCPUs have their slots at the same times, each on a CPU of its own. So no vCPU waits for a lock or a message
    /// of one that is stopped. There are two vCPUs at least, and the tenant is reserved.
    pub together: bool,
    /// What the vCPUs are promised in sum goes to each of them by its load. The tenant is a reserved VM with two vCPUs
    /// at least, and does not ask for `together`.
    pub matching: bool,
    /// The VM is shown when its vCPUs have their slots, and they have them just then. The tenant is a reserved VM.
    pub timetable: bool,
    /// Whose slots the other threads have. The tenant is a VM, of any class, unless these are its own.
    pub monitor: Monitor,
    /// What each vCPU has of that sum now: nothing, if all have the same, or else a part for each. No configuration has
    /// it; it follows from what is measured.
    pub parts: Vec<Share>,
}
