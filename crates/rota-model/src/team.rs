//! What a tenant's vCPUs are to each other.

/// How the vCPUs of one tenant are served beside each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Team {
    /// All vCPUs have their slots at the same times, each on a CPU of its own. So no vCPU waits for a lock or a message
    /// of one that is stopped. There are two vCPUs at least, and the tenant is reserved.
    pub together: bool,
}
