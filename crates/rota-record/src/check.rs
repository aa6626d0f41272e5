//! What every recording that can be read holds.

use std::collections::BTreeSet;

use rota_model::config::VCPUS_MAX;
use rota_model::{Cause, CpuSet, Share, quote};

use crate::recording::{Class, Event, Host, Limits, Policy, Quota, Rank, Recording, Tenant, Thread, What};

/// What a recording says and cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Meaningless(String);

type Checked = Result<(), Meaningless>;

/// The longest recording: a day.
const DURATION_MAX_NS: u64 = 86_400_000_000_000;
/// The most threads.
const THREADS_MAX: usize = 1 << 20;
/// The longest text, in bytes.
const TEXT_MAX: usize = 4096;
/// No CPU has events faster than this, one after the other; at its ends a recording may have some more, all at once.
const EVENT_NS: u64 = 50;
const EVENTS_SPARE: u64 = 65_536;
/// A quota is at least so much, a period at least so much and at most a second: as the kernel takes them.
const QUOTA_MIN_NS: u64 = 1_000_000;
const PERIOD_MAX_NS: u64 = 1_000_000_000;
/// The longest of everything else that is a time.
const TIME_MAX_NS: u64 = 1_000_000_000_000;

fn ensure(holds: bool, otherwise: impl FnOnce() -> String) -> Checked {
    if holds { Ok(()) } else { Err(Meaningless(otherwise())) }
}

impl Recording {
    /// Whether what it says can be: numbers within their bounds, everything that is referred to there, times in order.
    /// Not whether a thread's events fit to each other: events may be lost.
    ///
    /// # Errors
    ///
    /// The first thing that cannot be.
    pub fn check(&self) -> Checked {
        self.check_head()?;
        self.check_count(self.events.len() as u64)?;
        let cpus = self.cpus();
        let mut before_ns = 0;
        for event in &self.events {
            event.check(before_ns, self, &cpus)?;
            before_ns = event.at_ns;
        }
        Ok(())
    }

    fn cpus(&self) -> CpuSet {
        self.host.cpus.iter().map(|place| place.cpu).collect()
    }

    /// All but the events.
    pub(crate) fn check_head(&self) -> Checked {
        text(&self.kernel)?;
        if let Policy::Other(name) = &self.policy {
            text(name)?;
        }
        ensure((1..=DURATION_MAX_NS).contains(&self.duration_ns), || {
            format!("it lasts {} ns", self.duration_ns)
        })?;
        self.host.check()?;
        ensure(self.tenants.len() <= VCPUS_MAX as usize, || "it has too many tenants".to_owned())?;
        ensure(self.threads.len() <= THREADS_MAX, || "it has too many threads".to_owned())?;
        let cpus = self.cpus();
        let mut names = BTreeSet::new();
        for tenant in &self.tenants {
            tenant.check(&cpus)?;
            ensure(names.insert(&tenant.name), || format!("two tenants are called {}", quote(&tenant.name)))?;
        }
        let vcpus: u64 = self.tenants.iter().map(|tenant| u64::from(tenant.vcpus)).sum();
        ensure(vcpus <= u64::from(VCPUS_MAX), || "it has too many vCPUs".to_owned())?;
        self.threads.iter().try_for_each(|thread| thread.check(&self.tenants))
    }

    /// Whether so many events can have happened on its CPUs in its time.
    pub(crate) fn check_count(&self, events: u64) -> Checked {
        let busy = self.duration_ns / EVENT_NS * self.host.cpus.len() as u64;
        let possible = EVENTS_SPARE + 16 * self.threads.len() as u64 + busy;
        ensure(events <= possible, || {
            format!("{events} events are more than {} ns have room for", self.duration_ns)
        })
    }
}

fn text(text: &str) -> Checked {
    ensure(text.len() <= TEXT_MAX, || format!("{} is too long", quote(text)))
}

fn time(ns: u64) -> Checked {
    ensure(ns <= TIME_MAX_NS, || format!("{ns} ns is too long"))
}

fn check_weight(weight: u32) -> Checked {
    ensure((1..=10_000).contains(&weight), || format!("{weight} is no weight"))
}

impl Host {
    fn check(&self) -> Checked {
        ensure(!self.cpus.is_empty(), || "it has no CPU".to_owned())?;
        let ascending = self.cpus.windows(2).all(|pair| pair[0].cpu < pair[1].cpu);
        let in_bounds = self.cpus.iter().all(|place| place.cpu < CpuSet::LIMIT);
        ensure(ascending && in_bounds, || "its CPUs are not in order".to_owned())?;
        let cpus: CpuSet = self.cpus.iter().map(|place| place.cpu).collect();
        let spare = cpus.difference(&self.housekeeping);
        let known = self.housekeeping.difference(&cpus).is_empty();
        ensure(known && !spare.is_empty(), || format!("its housekeeping CPUs are {}", self.housekeeping))?;
        ensure(self.floor_ppb < Share::ONE.ppb(), || "its floor is all".to_owned())?;
        [self.slot_min_ns, self.switch_ns, self.migration_ns].into_iter().try_for_each(time)
    }
}

impl Tenant {
    fn check(&self, cpus: &CpuSet) -> Checked {
        text(&self.name)?;
        text(&self.cgroup)?;
        let name = quote(&self.name);
        let named = !self.name.is_empty() && self.name != rota_model::Tenant::SYSTEM;
        ensure(named, || format!("no tenant can be called {name}"))?;
        ensure((1..=VCPUS_MAX).contains(&self.vcpus), || format!("{name} has {} vCPUs", self.vcpus))?;
        match self.class {
            Class::Reserved { share_ppb, latency_ns, .. } => {
                let share = Share::from_ppb(share_ppb).is_some();
                ensure(share && latency_ns > 0, || format!("the reservation of {name} is none"))?;
                time(latency_ns)?;
            }
            Class::Shared { weight } => check_weight(weight)?,
            Class::Background => {}
        }
        if let Some(affinity) = &self.affinity {
            let known = affinity.difference(cpus).is_empty();
            ensure(known && !affinity.is_empty(), || format!("{name} has the affinity {affinity}"))?;
        }
        self.limits.check()
    }
}

impl Limits {
    fn check(&self) -> Checked {
        check_weight(self.weight)?;
        let Some(Quota { quota_ns, period_ns }) = self.quota else { return Ok(()) };
        let period = (QUOTA_MIN_NS..=PERIOD_MAX_NS).contains(&period_ns);
        ensure(period && quota_ns >= QUOTA_MIN_NS, || format!("{quota_ns} in {period_ns} ns is no quota"))?;
        time(quota_ns)
    }
}

impl Thread {
    fn check(&self, tenants: &[Tenant]) -> Checked {
        text(&self.name)?;
        let name = quote(&self.name);
        let tenant = self.tenant.map(|tenant| tenants.get(tenant as usize));
        ensure(tenant != Some(None), || format!("the tenant of thread {name} is not there"))?;
        if let Some(vcpu) = self.vcpu {
            let vcpus = tenant.flatten().filter(|tenant| tenant.is_vm).map_or(0, |tenant| tenant.vcpus);
            ensure(vcpu < vcpus, || format!("thread {name} is vCPU {vcpu} of {vcpus}"))?;
        }
        let in_bounds = match self.rank {
            Rank::Ordinary(nice) => (-20..=19).contains(&nice),
            Rank::Idle => true,
            Rank::Realtime(priority) => (1..=99).contains(&priority),
        };
        ensure(in_bounds, || format!("thread {name} has the rank {:?}", self.rank))?;
        let somewhere = self.cpus.as_ref().is_none_or(|cpus| !cpus.is_empty());
        ensure(somewhere, || format!("thread {name} may run nowhere"))
    }
}

impl Event {
    fn check(&self, before_ns: u64, recording: &Recording, cpus: &CpuSet) -> Checked {
        let in_order = (before_ns..=recording.duration_ns).contains(&self.at_ns);
        ensure(in_order, || format!("an event is at {} ns", self.at_ns))?;
        let known = |thread: u32| {
            ensure((thread as usize) < recording.threads.len(), || format!("there is no thread {thread}"))
        };
        known(self.what.thread())?;
        match self.what {
            What::Waking { cause: Cause::Thread(by), .. } | What::Starts { cause: Cause::Thread(by), .. } => {
                known(by)
            }
            What::Runs { cpu, .. } => ensure(cpus.contains(cpu), || format!("there is no CPU {cpu}")),
            _ => Ok(()),
        }
    }
}
