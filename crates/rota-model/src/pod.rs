//! A pod of Kubernetes', as the container runtime of its node knows it.

use std::collections::BTreeMap;

/// Kubernetes' class of a pod's service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Qos {
    /// Each container's limits are what it requests.
    Guaranteed,
    /// Some container requests something.
    Burstable,
    /// Nobody requests anything.
    BestEffort,
}

/// One pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pod {
    /// What Kubernetes tells it by for ever. A static pod's is a hash without `-`.
    pub uid: String,
    /// Where its name is.
    pub namespace: String,
    /// Its name, which another pod may have after it.
    pub name: String,
    /// Its class.
    pub qos: Qos,
    /// What its containers request together, in thousandths of a CPU; 0 if that is nothing, or not known.
    pub request_millis: u64,
    /// What its author has written beside it.
    pub annotations: BTreeMap<String, String>,
}
