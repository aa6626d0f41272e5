//! What a tenant's vCPUs are to each other.

use crate::Share;

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
    /// What each vCPU has of that sum now: nothing, if all have the same, or else a part for each. No configuration has
    /// it; it follows from what is measured.
    pub parts: Vec<Share>,
}
