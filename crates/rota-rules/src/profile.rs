//! Where the time of tenants' threads went, as `rota status` and `rota profile` show it.

use std::collections::BTreeMap;

use rota_model::TenantId;
use rota_sched::Profile;
use serde::{Deserialize, Serialize};

/// Time for each of [`rota_sched::Spent`], in ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BySpent {
    /// Threads ran.
    pub running: u64,
    /// They waited for a CPU.
    pub waiting: u64,
    /// They were blocked for other threads of their program.
    pub synchronisation: u64,
    /// For devices or the network.
    pub devices: u64,
    /// For a time.
    pub sleep: u64,
    /// They are vCPUs, whose guest idled.
    pub halted: u64,
    /// For something that their system calls do not tell.
    pub unknown: u64,
}

impl BySpent {
    /// Names for people, in the order of [`rota_sched::Spent::ALL`].
    pub const NAMES: [&'static str; 7] =
        ["running", "waiting for a CPU", "synchronisation", "devices", "sleep", "halted", "unknown"];

    /// The times in the order of [`rota_sched::Spent::ALL`].
    pub fn values(&self) -> [u64; 7] {
        let BySpent { running, waiting, synchronisation, devices, sleep, halted, unknown } = *self;
        [running, waiting, synchronisation, devices, sleep, halted, unknown]
    }

    /// All together: the threads' lifetime.
    pub fn total(&self) -> u64 {
        self.values().iter().sum()
    }

    /// The part of the time in which threads would have run that they waited for a CPU.
    pub fn waiting_part(&self) -> f64 {
        let would_run = self.running + self.waiting;
        if would_run == 0 { 0.0 } else { self.waiting as f64 / would_run as f64 }
    }
}

impl From<[u64; 7]> for BySpent {
    fn from(times: [u64; 7]) -> BySpent {
        let [running, waiting, synchronisation, devices, sleep, halted, unknown] = times;
        BySpent { running, waiting, synchronisation, devices, sleep, halted, unknown }
    }
}

/// One of a tenant's threads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ThreadStatus {
    /// Its number.
    pub tid: i32,
    /// What it calls itself.
    pub name: String,
    /// Its time, by what it was spent on.
    pub spent_ns: BySpent,
}

/// Tenants whose time is told together.
const REST: &str = "(other tenants)";
/// The CPU idled, or another class had it.
pub const NOBODY: &str = "(no tenant)";
/// Longer ago than what the CPU remembers.
const UNSEEN: &str = "(longer ago)";

/// Of some threads, since they came or between two times.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Spending {
    /// By what the time was spent on, in ns.
    pub spent_ns: BySpent,
    /// Of waits for a CPU that are over: which tenant ran meanwhile, by name, in ns. What is in brackets is no tenant.
    pub waited_for_ns: BTreeMap<String, u64>,
}

impl Spending {
    /// What a queue has counted; a tenant that is not among `names` is gone.
    pub fn new(profile: &Profile, names: &BTreeMap<TenantId, &str>) -> Spending {
        let mut waited_for_ns = BTreeMap::new();
        let known = profile.waited_for.iter().map(|(id, ns)| (*names.get(id).unwrap_or(&REST), *ns));
        let others = [
            (REST, profile.waited_for_rest_ns),
            (NOBODY, profile.waited_for_nobody_ns),
            (UNSEEN, profile.waited_unseen_ns),
        ];
        for (name, ns) in known.chain(others).filter(|(_, ns)| *ns > 0) {
            *waited_for_ns.entry(name.to_owned()).or_default() += ns;
        }
        Spending { spent_ns: BySpent::from(profile.spent_ns), waited_for_ns }
    }

    /// Takes in what other threads of the same tenant spent.
    pub fn add(&mut self, other: &Spending) {
        let (own, others) = (self.spent_ns.values(), other.spent_ns.values());
        self.spent_ns = BySpent::from(std::array::from_fn(|kind| own[kind] + others[kind]));
        for (name, ns) in &other.waited_for_ns {
            *self.waited_for_ns.entry(name.clone()).or_default() += ns;
        }
    }

    /// What has come since `before`. What has begun anew meanwhile has grown by what it shows.
    #[must_use]
    pub fn since(&self, before: &Spending) -> Spending {
        let growth = |after: u64, before: u64| after.checked_sub(before).unwrap_or(after);
        let (now, then) = (self.spent_ns.values(), before.spent_ns.values());
        let grown = self.waited_for_ns.iter().map(|(name, ns)| {
            (name.clone(), growth(*ns, before.waited_for_ns.get(name).copied().unwrap_or_default()))
        });
        Spending {
            spent_ns: BySpent::from(std::array::from_fn(|kind| growth(now[kind], then[kind]))),
            waited_for_ns: grown.filter(|(_, ns)| *ns > 0).collect(),
        }
    }

    /// For whom threads waited, longest first, with the part of all waits that are over.
    pub fn waited_for(&self) -> Vec<(&str, f64)> {
        let total: u64 = self.waited_for_ns.values().sum();
        let mut longest: Vec<(&str, u64)> =
            self.waited_for_ns.iter().map(|(name, ns)| (name.as_str(), *ns)).collect();
        longest.sort_by_key(|(_, ns)| std::cmp::Reverse(*ns));
        longest.into_iter().map(|(name, ns)| (name, ns as f64 / total as f64)).collect()
    }
}

/// One queue: a container's threads, one vCPU of a VM, or the VM monitor's other threads.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueStatus {
    /// Which vCPU of a VM; nothing for a container, or the monitor.
    pub vcpu: Option<u32>,
    /// Since it came.
    #[serde(flatten)]
    pub spending: Spending,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_grown_is_told_by_name() {
        let profile = |running, for_one| Profile {
            spent_ns: [running, 40, 0, 0, 0, 0, 7],
            waited_for: vec![(1, for_one), (9, 5)],
            waited_for_rest_ns: 1,
            waited_unseen_ns: 4,
            ..Profile::default()
        };
        let names = BTreeMap::from([(1, "web")]);
        let then = Spending::new(&profile(100, 10), &names);
        assert_eq!(then.waited_for(), [("web", 0.5), ("(other tenants)", 0.3), ("(longer ago)", 0.2)]);
        let grown = Spending::new(&profile(110, 25), &names).since(&then);
        assert_eq!(grown.spent_ns, BySpent { running: 10, ..BySpent::default() });
        assert_eq!(grown.waited_for(), [("web", 1.0)]);
        let anew = then.since(&Spending::new(&profile(110, 25), &names));
        assert_eq!((anew.spent_ns.running, anew.waited_for_ns["web"]), (100, 10));
    }
}
