//! Why pods are not served as they ask, told by kind, so that they can be counted.

use std::collections::BTreeMap;
use std::fmt;

use rota_model::{Match, Model};

use crate::status::{KubernetesStatus, TenantStatus};

/// The kind of a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// An annotation does not count, or has a value that means nothing.
    Annotation,
    /// It asks for more CPU or weight than it requests.
    Request,
    /// It asks for shorter waits than the node promises.
    Latency,
    /// It asks for more vCPUs than the node has CPUs, or than its CPU is enough for.
    Vcpus,
    /// Its class alone makes no tenant: its uid or its name is none.
    NoTenant,
    /// The timetable has no room for its reservation.
    Room,
}

impl Reason {
    /// All of them.
    pub const ALL: [Reason; 6] =
        [Reason::Annotation, Reason::Request, Reason::Latency, Reason::Vcpus, Reason::NoTenant, Reason::Room];

    /// As metrics have it.
    pub fn name(self) -> &'static str {
        match self {
            Reason::Annotation => "annotation",
            Reason::Request => "request",
            Reason::Latency => "latency",
            Reason::Vcpus => "vcpus",
            Reason::NoTenant => "no_tenant",
            Reason::Room => "room",
        }
    }
}

/// Why a pod is not served as it asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The kind.
    pub reason: Reason,
    /// In words, with the mend and how it is served instead.
    pub why: String,
}

impl Refusal {
    pub(super) fn new(reason: Reason, why: impl Into<String>) -> Refusal {
        Refusal { reason, why: why.into() }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}

impl KubernetesStatus {
    /// Adds what has become of the pods: who is refused what it asks for, and who was found among the tenants.
    #[must_use]
    pub fn with(
        self,
        refused: &BTreeMap<String, Refusal>,
        model: &Model,
        tenants: &[TenantStatus],
    ) -> KubernetesStatus {
        let of_pods: BTreeMap<&str, &TenantStatus> =
            tenants.iter().map(|tenant| (tenant.name.as_str(), tenant)).collect();
        let is_pod = |matcher: &Option<Match>| matches!(matcher, Some(Match::Pod(_)));
        let pods = model.tenants.iter().filter(|tenant| is_pod(&tenant.matcher));
        let pods: Vec<&TenantStatus> =
            pods.filter_map(|tenant| of_pods.get(tenant.name.as_str()).copied()).collect();
        let mut refused_by: BTreeMap<String, u32> =
            Reason::ALL.iter().map(|reason| (reason.name().to_owned(), 0)).collect();
        let without_room = pods.iter().filter(|tenant| tenant.refused.is_some()).map(|_| Reason::Room);
        for reason in refused.values().map(|refusal| refusal.reason).chain(without_room) {
            *refused_by.entry(reason.name().to_owned()).or_default() += 1;
        }
        KubernetesStatus {
            refused: refused.iter().map(|(pod, refusal)| (pod.clone(), refusal.why.clone())).collect(),
            refused_by,
            matched: pods.iter().filter(|tenant| tenant.cgroup.is_some()).count() as u32,
            ..self
        }
    }
}
