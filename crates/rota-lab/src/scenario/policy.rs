//! What shares the CPUs out, and what that means for a cgroup.

use rota_model::{Class, Tenant, quote};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;
use std::sync::{Mutex, PoisonError};

/// What shares the CPUs out between the tenants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Policy {
    /// The kernel's own scheduler with `cpu.weight`: equal for all reserved tenants, the least for background ones.
    Weight,
    /// The same, and `cpu.max`: each reserved tenant's share as its quota.
    Max,
    /// Rota.
    Rota,
    /// Another scheduler of sched_ext's, with `cpu.weight`: `scx:NAME` is the program `scx_NAME` on this PATH.
    Scx(&'static str),
}

/// What the policies that are other schedulers begin with.
const SCX: &str = "scx:";
/// A name is no longer.
const NAME_MAX: usize = 40;

impl Policy {
    /// Rota and the kernel's own, in the order in which they are compared.
    pub const ALL: [Policy; 3] = [Policy::Weight, Policy::Max, Policy::Rota];

    /// As the scenario and the results' file names write it.
    pub fn name(self) -> &'static str {
        match self {
            Policy::Weight => "weight",
            Policy::Max => "max",
            Policy::Rota => "rota",
            Policy::Scx(name) => name,
        }
    }

    /// The program that is the scheduler, if it is neither the kernel nor Rota.
    pub fn program(self) -> Option<String> {
        match self {
            Policy::Scx(name) => Some(format!("scx_{}", name.trim_start_matches(SCX))),
            Policy::Weight | Policy::Max | Policy::Rota => None,
        }
    }

    /// What is written into the files of a tenant's cgroup. Under Rota nothing is: the scheduler knows its tenants.
    pub fn knobs(self, tenant: &Tenant, quota_period_ns: u64) -> Vec<(&'static str, String)> {
        let mut knobs = Vec::new();
        if self != Policy::Rota {
            knobs.push(("cpu.weight", weight(tenant.class).to_string()));
        }
        if let (Policy::Max, Some(reservation)) = (self, tenant.reservation()) {
            let quota_ns = reservation.share.of(quota_period_ns) * u64::from(tenant.vcpus);
            // Whole microseconds, rounded up so that the quota is the share at least; the kernel takes 1 ms at least.
            let quota_us = quota_ns.div_ceil(1000).max(1000);
            knobs.push(("cpu.max", format!("{quota_us} {}", quota_period_ns / 1000)));
        }
        knobs
    }
}

/// The `cpu.weight` that comes nearest to a class.
fn weight(class: Class) -> u32 {
    match class {
        Class::Reserved(_) => 100,
        Class::Shared { weight } => weight,
        Class::Background => 1,
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Policy {
    type Err = String;

    fn from_str(text: &str) -> Result<Policy, String> {
        if let Some(known) = Policy::ALL.into_iter().find(|policy| policy.name() == text) {
            return Ok(known);
        }
        let is_plain =
            |name: &str| name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
        match text.strip_prefix(SCX) {
            Some(name) if (1..=NAME_MAX).contains(&name.len()) && is_plain(name) => {
                Ok(Policy::Scx(kept(text)))
            }
            _ => Err(format!("{} is no policy; write weight, max, rota, or e.g. scx:bpfland", quote(text))),
        }
    }
}

/// The name, once for all policies of that name: it lives as long as the program does.
fn kept(name: &str) -> &'static str {
    static NAMES: Mutex<BTreeSet<&str>> = Mutex::new(BTreeSet::new());
    let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(kept) = names.get(name) {
        return kept;
    }
    let kept: &'static str = name.to_owned().leak();
    names.insert(kept);
    kept
}

impl Serialize for Policy {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl<'de> Deserialize<'de> for Policy {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Policy, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rota_model::{Reservation, Share, Team};

    fn tenant(class: Class, vcpus: u32) -> Tenant {
        Tenant {
            name: "t".into(),
            class,
            vcpus,
            affinity: None,
            pinned: false,
            exclusive_cores: false,
            oversubscribe: true,
            team: Team::default(),
            matcher: None,
        }
    }

    fn reserved(share: f64) -> Class {
        let share = Share::from_fraction(share).unwrap();
        Class::Reserved(Reservation { share, latency_ns: 20_000_000, capped: false })
    }

    #[test]
    fn a_quota_is_the_share_of_all_vcpus_and_never_less() {
        let quota = |share, vcpus, period_ns| {
            Policy::Max.knobs(&tenant(reserved(share), vcpus), period_ns)[1].1.clone()
        };
        assert_eq!(quota(0.2, 1, 100_000_000), "20000 100000");
        assert_eq!(quota(0.25, 4, 100_000_000), "100000 100000");
        assert_eq!(quota(1.0 / 3.0, 1, 10_000_000), "3334 10000");
        assert_eq!(quota(0.001, 1, 100_000_000), "1000 100000");
    }

    #[test]
    fn only_reserved_tenants_have_a_quota_and_rota_sets_nothing() {
        let period_ns = 100_000_000;
        assert_eq!(
            Policy::Weight.knobs(&tenant(reserved(0.2), 1), period_ns),
            [("cpu.weight", "100".into())]
        );
        assert_eq!(Policy::Max.knobs(&tenant(Class::Background, 1), period_ns), [("cpu.weight", "1".into())]);
        assert_eq!(
            Policy::Max.knobs(&tenant(Class::Shared { weight: 250 }, 2), period_ns),
            [("cpu.weight", "250".into())]
        );
        assert_eq!(Policy::Rota.knobs(&tenant(reserved(0.2), 1), period_ns), []);
    }

    #[test]
    fn policies_are_read_as_they_are_written() {
        for name in ["weight", "max", "rota", "scx:bpfland", "scx:rlfifo_2"] {
            let policy: Policy = name.parse().unwrap();
            assert_eq!(
                (policy.name(), policy),
                (name, serde_json::from_str(&format!("\"{name}\"")).unwrap())
            );
            assert_eq!(serde_json::to_string(&policy).unwrap(), format!("\"{name}\""));
        }
        assert_eq!("scx:bpfland".parse::<Policy>().unwrap().program().as_deref(), Some("scx_bpfland"));
        for name in ["", "Rota", "scx", "scx:", "scx:../sh", "scx:a b", "bpfland"] {
            let error = name.parse::<Policy>().unwrap_err();
            assert!(error.ends_with("is no policy; write weight, max, rota, or e.g. scx:bpfland"), "{error}");
        }
    }
}
