//! How a tenant gets on beside the others and with the others held off, in parts of a run; and how long it takes for
//! all of its work.

use std::ops::Range;

use anyhow::{Context, Result, ensure};
use rota_model::{Class, Counts, TenantId};
use rota_sim::observe::UnitMetrics;
use rota_sim::programs::Freezer;
use rota_sim::{CacheCounters, Costs, CpuId, Program};
use rota_twin::apart;

use super::{Options, Scenario, Session};
use crate::policies::Entry;
use crate::run::counters;
use crate::spent::TimeSpent;

/// Two samples of a tenant, each in [`PARTS`] parts of the same length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sampled {
    /// The others were held off, but for those with a reservation.
    pub dedicated: Vec<Counts>,
    /// They were not: half of it before, half of it after.
    pub beside: Vec<Counts>,
}

/// How a tenant is sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Which.
    pub tenant: TenantId,
    /// How long each of the two samples is, in ns.
    pub sample_ns: u64,
    /// How long nobody looks whenever the others are held off or come back, in ns.
    pub settle_ns: u64,
}

/// A sample has so many parts.
pub const PARTS: usize = 10;

/// Whom to hold off: everybody but one tenant and those with a reservation.
pub(crate) struct Held {
    tenant: TenantId,
    freezer: Freezer,
}

impl Held {
    /// A thread of that tenant, or of none.
    pub fn thread(&self, tenant: Option<(TenantId, Class)>, program: Box<dyn Program>) -> Box<dyn Program> {
        match tenant {
            Some((id, Class::Shared { .. } | Class::Background)) if id != self.tenant => {
                Box::new(self.freezer.thread(program))
            }
            _ => program,
        }
    }
}

impl Scenario {
    /// Samples a tenant under a policy, in a thread of its own.
    ///
    /// # Errors
    ///
    /// As [`Scenario::run`].
    pub fn sample(&self, policy: &Entry, seed: Option<u64>, plan: Plan) -> Result<Sampled> {
        apart(|| {
            let held = Held { tenant: plan.tenant, freezer: Freezer::default() };
            let mut session = self.start_held(policy, Options { seed, trace: false }, Some(&held))?;
            let now_ns = session.run.machine.now_ns();
            let half_ns = plan.sample_ns / 2;
            let held_off = (now_ns + half_ns)..(now_ns + half_ns + 2 * plan.settle_ns + plan.sample_ns);
            session.hold(&held, &held_off);
            let mut beside = session.parts(&plan, PARTS / 2)?;
            session.advance(plan.settle_ns);
            let dedicated = session.parts(&plan, PARTS)?;
            session.advance(2 * plan.settle_ns);
            beside.extend(session.parts(&plan, PARTS / 2)?);
            session.is_fit()?;
            Ok(Sampled { dedicated, beside })
        })
    }

    /// How long a tenant takes under a policy for so much work, as its programs count it, from when everybody is
    /// there; in ns, to [`STEP_NS`].
    ///
    /// # Errors
    ///
    /// As [`Scenario::run`]; or it takes longer than `most_ns`.
    pub fn time_for(
        &self,
        policy: &Entry,
        seed: Option<u64>,
        tenant: TenantId,
        work: u64,
        most_ns: u64,
    ) -> Result<u64> {
        apart(|| {
            let mut session = self.start(policy, Options { seed, trace: false })?;
            let began_ns = session.run.machine.now_ns();
            while session.work(tenant) < work {
                let so_far_ns = session.run.machine.now_ns() - began_ns;
                ensure!(so_far_ns < most_ns, "a program is not done after {} s", so_far_ns / 1_000_000_000);
                session.advance(STEP_NS);
            }
            session.is_fit()?;
            Ok(session.run.machine.now_ns() - began_ns)
        })
    }
}

/// How often is looked whether the work is done.
pub const STEP_NS: u64 = 1_000_000;

impl Session<'_> {
    /// Holds off whoever can be, from and to these times.
    fn hold(&mut self, held: &Held, times: &Range<u64>) {
        let device = held.freezer.device(&[(times.start, times.end)]);
        self.run.attach(device, CpuId(self.scenario.model.host.cpus.first().unwrap_or(0)), Some(times.start));
    }

    fn parts(&mut self, plan: &Plan, count: usize) -> Result<Vec<Counts>> {
        let mut before = self.counts(plan.tenant)?;
        let mut parts = Vec::new();
        for _ in 0..count {
            self.advance(plan.sample_ns / PARTS as u64);
            let now = self.counts(plan.tenant)?;
            parts.push(now.since(&before));
            before = now;
        }
        Ok(parts)
    }

    /// Of a tenant's threads since the measurement began.
    fn counts(&mut self, tenant: TenantId) -> Result<Counts> {
        let name = &self.scenario.model.tenants[tenant as usize].name;
        let units = self.run.observer.0.2.so_far(&mut self.run.machine).to_vec();
        let TimeSpent { spent, .. } = TimeSpent::of(self.tenants.home(name), &units, &self.tenants);
        let (_, tasks, before) = self
            .threads
            .iter()
            .find(|(of, ..)| of == name)
            .with_context(|| format!("{name} has no thread"))?;
        let caches = counters(&self.run, tasks).map(|now| now.since(before.unwrap_or_default()));
        let CacheCounters { misses, stalled_ns, .. } = caches.unwrap_or_default();
        Ok(Counts {
            total_ns: spent.total_ns(),
            steal_ns: spent.waiting_ns,
            sync_ns: spent.spinning_ns + spent.blocked_ns.iter().sum::<u64>() + self.switching_ns(tenant),
            memory_ns: stalled_ns,
            // A loop that waits executes as many in a ns as a computation that finds all in its own cache.
            instructions: spent.running_ns.saturating_sub(stalled_ns),
            misses,
        })
    }

    fn work(&self, tenant: TenantId) -> u64 {
        self.counted(tenant).map(|metrics| metrics.work).sum()
    }

    /// What changes of task have cost a tenant, in ns: each switch and each migration what the scenario says.
    fn switching_ns(&self, tenant: TenantId) -> u64 {
        let Costs { switch_ns, migration_ns, .. } = self.scenario.costs;
        let cost = |metrics: &UnitMetrics| metrics.dispatches * switch_ns + metrics.migrations * migration_ns;
        self.counted(tenant).map(cost).sum()
    }

    fn counted(&self, tenant: TenantId) -> impl Iterator<Item = &UnitMetrics> {
        let home = self.tenants.home(&self.scenario.model.tenants[tenant as usize].name);
        (0..=home.last_unit()).filter_map(|index| self.run.observer.0.0.counted(home.unit(index)))
    }
}
