//! Tenants with a weight: none waits while another one has much more, by weight, of what is left to them. That is
//! coarse, for hosts on which everything changes; `tests/fairness` holds the scheduler to its bound.
//!
//! It looks at each tenant's thread that has waited longest: all the time since then the tenant would have had more.

use std::collections::{BTreeMap, VecDeque};

use rota_model::{Model, TenantId};
use rota_sim::Machine;

use super::finding::{Fault, Finding};
use super::service::Service;

/// Everybody is looked at so often.
const LOOK_NS: u64 = 5_000_000;
/// No turn is longer.
const TURN_NS: u64 = 4_000_000;
/// A tenant may be behind by what others had in so long, on CPUs that it had no threads for, and makes that good within
/// the same time.
const OWED_NS: u64 = 200_000_000;

/// What each tenant with a weight had, in ns, and when that was.
struct Count {
    at_ns: u64,
    had: BTreeMap<TenantId, Had>,
}

/// What a tenant had: of all, so much while nobody could take the CPU from it. That counts for whoever had it, as it
/// does for the scheduler, and is no reason for others to complain.
struct Had {
    ns: u64,
    kept_ns: u64,
}

impl Had {
    fn of(service: &Service, tenant: TenantId) -> Had {
        Had { ns: service.had_ns(tenant), kept_ns: service.kept_ns(tenant) }
    }
}

/// Who looks.
pub struct Weights {
    cpus: u64,
    late_ns: u64,
    /// Since all is as it is now: one a look.
    counts: VecDeque<Count>,
}

impl Weights {
    pub fn new(model: &Model, late_ns: u64) -> Weights {
        Weights { cpus: model.host.topology.places.len() as u64, late_ns, counts: VecDeque::new() }
    }

    /// Looks at everybody.
    pub fn look(&mut self, machine: &Machine, service: &Service) -> Result<(), Finding> {
        let now_ns = machine.now_ns();
        if self.counts.back().is_some_and(|count| now_ns < count.at_ns + LOOK_NS) {
            return Ok(());
        }
        let since_ns =
            service.table(now_ns).map(|table| table.from_ns.max(service.changed_ns()) + self.late_ns);
        let Some(since_ns) = since_ns.filter(|_| !service.is_daemon_held(now_ns)) else {
            self.counts.clear();
            return Ok(());
        };
        self.counts.retain(|count| count.at_ns >= since_ns);
        if now_ns < since_ns {
            return Ok(());
        }
        let weights: BTreeMap<TenantId, u32> = service.threads().weights().collect();
        let had = weights.keys().map(|&tenant| (tenant, Had::of(service, tenant))).collect();
        self.counts.push_back(Count { at_ns: now_ns, had });
        for (tenant, since_ns) in waiting_since(service) {
            let Some(&weight) = weights.get(&tenant) else { continue };
            let first = self.counts.partition_point(|count| count.at_ns < since_ns);
            let Some(first) = self.counts.get(first) else { continue };
            let had = |tenant| service.had_ns(tenant) - first.had[&tenant].ns;
            let kept = |tenant| service.kept_ns(tenant) - first.had[&tenant].kept_ns;
            let own = by_weight(had(tenant), weight);
            for (&to, &other) in weights.iter().filter(|(to, _)| **to != tenant) {
                let rest = weights.iter().filter(|(rest, _)| **rest != to).map(|(_, weight)| *weight);
                let lightest = rest.min().unwrap_or(weight);
                if by_weight(had(to) - kept(to), other) > own + self.allowed(weight, other, lightest) {
                    let fault = Fault::Outweighed { tenant, to, ns: now_ns - first.at_ns };
                    return Err(Finding { at_ns: now_ns, fault });
                }
            }
        }
        Ok(())
    }

    /// How far, by weight, one may be ahead of the other in the end: the bound for several lines (docs/FAIRNESS.md),
    /// with the longest turns and on both sides, and what it was owed in the beginning. The system's time is as far
    /// ahead of it as the lightest of the rest may have taken it.
    fn allowed(&self, weight: u32, other: u32, lightest: u32) -> u64 {
        let lines = self.cpus.div_ceil(8);
        let slices = (lines + 1) * self.cpus + 4 + self.cpus;
        let bound = slices * (by_weight(TURN_NS, weight) + by_weight(TURN_NS, other));
        2 * bound + by_weight(OWED_NS * self.cpus, other.max(lightest))
    }
}

/// Service by weight: of the weight 100 in ns.
fn by_weight(ns: u64, weight: u32) -> u64 {
    ns * 100 / u64::from(weight)
}

/// Each tenant of which a free thread waits, and since when the one does that has waited longest.
fn waiting_since(service: &Service) -> BTreeMap<TenantId, u64> {
    let mut all = BTreeMap::new();
    for (_, thread) in service.threads().all().filter(|(_, thread)| thread.free) {
        if let Some(since_ns) = thread.waits_since_ns {
            let first_ns = all.entry(thread.owner.tenant).or_insert(since_ns);
            *first_ns = since_ns.min(*first_ns);
        }
    }
    all
}
