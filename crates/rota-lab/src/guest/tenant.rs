//! The tenants of a run: their cgroups, and what those say.

use anyhow::{Context, Result};
use rota_model::{Class, Model, Tenant};

use super::cgroup::Cgroup;
use super::clock::now_ns;
use super::observer::Observed;
use crate::scenario::result::{Blackouts, Moves, TenantResult, Throttled};
use crate::scenario::{Policy, Scenario, cgroup_of, observed};

/// The tenants, each with its cgroup, in the configuration's order.
pub struct Tenants {
    tenants: Vec<(Tenant, Cgroup)>,
}

/// What the cgroups have used at one moment.
pub struct Reading {
    at_ns: u64,
    tenants: Vec<Usage>,
}

/// What one cgroup has used.
#[derive(Clone, Copy)]
struct Usage {
    cpu_ns: u64,
    throttled: Throttled,
}

impl Usage {
    fn since(self, start: &Usage) -> Usage {
        let (before, after) = (start.throttled, self.throttled);
        let throttled = Throttled {
            periods: after.periods - before.periods,
            throttled: after.throttled - before.throttled,
            throttled_ns: after.throttled_ns - before.throttled_ns,
        };
        Usage { cpu_ns: self.cpu_ns - start.cpu_ns, throttled }
    }
}

impl Tenants {
    /// Makes the cgroups, set as the policy wants them.
    ///
    /// # Errors
    ///
    /// If the kernel does not let it.
    pub fn create(scenario: &Scenario, model: &Model, policy: Policy) -> Result<Tenants> {
        let mut tenants = Tenants { tenants: Vec::new() };
        for tenant in observed(model) {
            let path = cgroup_of(tenant).with_context(|| format!("tenant {} has no cgroup", tenant.name))?;
            let cgroup = Cgroup::create(path)?;
            for (file, value) in policy.knobs(tenant, scenario.quota_period) {
                cgroup.set(file, &value)?;
            }
            tenants.tenants.push((tenant.clone(), cgroup));
        }
        Ok(tenants)
    }

    /// A tenant's cgroup.
    ///
    /// # Errors
    ///
    /// If there is no tenant of that name.
    pub fn cgroup(&self, name: &str) -> Result<&Cgroup> {
        let found = self.tenants.iter().find(|(tenant, _)| tenant.name == name);
        found.map(|(_, cgroup)| cgroup).with_context(|| format!("there is no tenant {name}"))
    }

    /// What the observer has to know.
    ///
    /// # Errors
    ///
    /// If a cgroup was removed.
    pub fn observed(&self) -> Result<Vec<Observed>> {
        let observed = |(tenant, cgroup): &(Tenant, Cgroup)| {
            let bound_ns = tenant.reservation().map(|reservation| reservation.latency_ns);
            Ok(Observed { cgroup: cgroup.id()?, bound_ns })
        };
        self.tenants.iter().map(observed).collect()
    }

    /// Reads what every cgroup has used.
    ///
    /// # Errors
    ///
    /// If a cgroup was removed.
    pub fn read(&self) -> Result<Reading> {
        let read = |(_, cgroup): &(Tenant, Cgroup)| {
            Ok(Usage { cpu_ns: cgroup.cpu_ns()?, throttled: cgroup.throttled()? })
        };
        Ok(Reading { at_ns: now_ns(), tenants: self.tenants.iter().map(read).collect::<Result<_>>()? })
    }

    /// The tenants' results between two readings, without those of their own programs.
    pub fn results(
        &self,
        start: &Reading,
        end: &Reading,
        seen: Vec<(Blackouts, Moves)>,
        policy: Policy,
    ) -> Vec<TenantResult> {
        let elapsed_ns = end.at_ns - start.at_ns;
        let used = start.tenants.iter().zip(&end.tenants).map(|(start, end)| end.since(start));
        let parts = self.tenants.iter().zip(used).zip(seen);
        parts
            .map(|(((tenant, _), used), seen)| tenant_result(tenant, used, seen, elapsed_ns, policy))
            .collect()
    }
}

impl Drop for Tenants {
    /// All are told to end before one is waited for: one with little weight would wait long for the CPU to end on. They
    /// go the other way round than they were made, so that a folder goes with the last cgroup in it.
    fn drop(&mut self) {
        for (_, cgroup) in &self.tenants {
            if let Err(error) = cgroup.kill() {
                eprintln!("{error:#}");
            }
        }
        while self.tenants.pop().is_some() {}
    }
}

fn tenant_result(
    tenant: &Tenant,
    used: Usage,
    (blackouts, moves): (Blackouts, Moves),
    elapsed_ns: u64,
    policy: Policy,
) -> TenantResult {
    let reservation = tenant.reservation();
    let limited = policy == Policy::Max && reservation.is_some();
    TenantResult {
        name: tenant.name.clone(),
        class: class_name(tenant.class).to_owned(),
        vcpus: tenant.vcpus,
        promised_share: reservation.map(|reservation| reservation.share.fraction()),
        latency_bound_ns: reservation.map(|reservation| reservation.latency_ns),
        capped: reservation.is_some_and(|reservation| reservation.capped),
        cpu_ns: used.cpu_ns,
        received_share: used.cpu_ns as f64 / (elapsed_ns as f64 * f64::from(tenant.vcpus)),
        blackouts,
        wanted_ns: Vec::new(),
        moves,
        throttled: limited.then_some(used.throttled),
        probe: None,
        requests: None,
        work: None,
    }
}

fn class_name(class: Class) -> &'static str {
    match class {
        Class::Reserved(_) => "reserved",
        Class::Shared { .. } => "shared",
        Class::Background => "background",
    }
}
