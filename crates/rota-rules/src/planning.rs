//! From reservations to a certified table: planner, encoder and certifier in a row.

use std::collections::BTreeMap;
use std::sync::Arc;

use rota_model::{Costs, CpuSet, Host, Model, Reservation, Tenant, TenantId};
use rota_plan::{Change, Edits, Infeasible, Method, Options, Plan, Planner, Seat, VcpuKey};
use rota_table::{
    Certified, CpuSource, EncodeError, Promise, SlotSource, TableSource, VcpuSource, Violation, certify,
    encode,
};

/// The reserved tenants that a table is for, by their numbers in the scheduler.
pub type Grants = BTreeMap<TenantId, Tenant>;

/// A table that may be installed, and what there is to say about it.
#[derive(Debug)]
pub struct Proposal {
    /// The table.
    pub table: Certified,
    /// Its length in ns.
    pub length_ns: u64,
    /// How many vCPUs have slots in it.
    pub vcpus: usize,
    /// How many CPUs have slots in it.
    pub cpus: usize,
    /// How many spares of each kind of the host are ready.
    pub spares: Vec<u32>,
    /// What was planned for it; on other CPUs it has the slots of the proposal before.
    pub change: Change,
}

/// Why there is no table.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// The promises cannot all be kept.
    #[error(transparent)]
    Infeasible(#[from] Infeasible),
    /// The plan is too large for the table's format.
    #[error(transparent)]
    Encode(#[from] EncodeError),
    /// A mistake of the planner, caught before it could do harm.
    #[error("the planned table breaks a promise and is not used; this is a bug in the planner: {0}")]
    Violation(#[from] Violation),
}

/// Plans, encodes and certifies a table for `grants`, from nothing. Pure and deterministic, like its parts.
///
/// # Errors
/// If a promise cannot be kept; see [`Refusal`].
pub fn propose(host: &Host, grants: &Grants) -> Result<Proposal, Refusal> {
    Proposer::default().propose(host, grants)
}

/// Proposes table after table, each from the plan of the one before: CPUs that it need not change it does not.
#[derive(Debug, Default)]
pub struct Proposer {
    planner: Option<Planner>,
}

impl Proposer {
    /// As [`propose`], on the CPUs of those who came, changed or went since the last proposal; all of the table is
    /// encoded and certified.
    ///
    /// # Errors
    /// If a promise cannot be kept; see [`Refusal`]. Then the next proposal starts from where this one did.
    pub fn propose(&mut self, host: &Host, grants: &Grants) -> Result<Proposal, Refusal> {
        let kept = self.planner.take().filter(|planner| planner.model().host == *host);
        let planner = match kept {
            Some(planner) => self.planner.insert(planner),
            None => {
                let nobody = Model { host: host.clone(), tenants: Vec::new() };
                let options = Options { placement: host.placement };
                self.planner.insert(Planner::new(nobody, &options)?)
            }
        };
        let change = planner.update(edits(&planner.model().tenants, grants))?;
        let change = change.and(&planner.restock());
        proposal(planner, change)
    }

    /// Where vCPUs are in the newest plan.
    pub fn seats(&self) -> Vec<Seat> {
        self.planner.as_ref().map(Planner::seats).unwrap_or_default()
    }

    /// Has pairs of vCPUs change places, as far as they are interchangeable, and says how many have moved. Nothing if
    /// nobody has, or nothing is planned for this host.
    ///
    /// # Errors
    /// If the table that comes of it is none; see [`Refusal`].
    pub fn swap(
        &mut self,
        host: &Host,
        pairs: &[(VcpuKey, VcpuKey)],
    ) -> Option<Result<(Proposal, u64), Refusal>> {
        let planner = self.planner.as_mut().filter(|planner| planner.model().host == *host)?;
        let before = planner.seats();
        let changes = pairs.iter().filter_map(|&(one, other)| planner.swap(one, other).ok());
        let change = changes.reduce(|one, other| one.and(&other))?;
        let moved = planner.seats().iter().zip(&before).filter(|(now, before)| now != before).count();
        (moved > 0).then(|| Ok((proposal(planner, change)?, moved as u64)))
    }
}

/// The plan as a table.
fn proposal(planner: &Planner, change: Change) -> Result<Proposal, Refusal> {
    let host = &planner.model().host;
    let (model, plan) = (planner.model(), planner.plan());
    let ids: Vec<TenantId> = (0..).take(model.tenants.len()).collect();
    let bytes = encode(&source(&plan, &ids, host.costs))?;
    let table = certify(bytes, &promises(model, &ids), host.costs)?;
    let cpus = plan.cpus.iter().filter(|cpu| !cpu.slots.is_empty()).count();
    let (length_ns, vcpus, spares) = (plan.table_length_ns, plan.vcpus.len(), plan.spares);
    Ok(Proposal { table, length_ns, vcpus, cpus, spares, change })
}

/// What makes `grants` of the tenants that are planned, whose numbers are their places.
fn edits(planned: &[Tenant], grants: &Grants) -> Edits {
    let reserved = (0..).zip(planned).filter(|(_, tenant)| tenant.reservation().is_some());
    let gone = reserved.filter(|(id, _)| !grants.contains_key(id)).map(|(id, _)| (id, None));
    let differs = |(id, tenant): &(&TenantId, &Tenant)| planned.get(**id as usize) != Some(*tenant);
    let new = grants.iter().filter(differs).map(|(&id, tenant)| (id, Some(tenant.clone())));
    gone.chain(new).collect()
}

/// A plan as the encoder takes it. `ids` has the scheduler's number of each tenant of the planned model.
pub fn source(plan: &Plan, ids: &[TenantId], costs: Costs) -> TableSource {
    let slot = |slot: &rota_plan::Slot| SlotSource {
        start_ns: ns(slot.start_ns),
        end_ns: ns(slot.end_ns),
        vcpu: slot.vcpu,
    };
    let cpus = plan.cpus.iter().map(|cpu| CpuSource {
        cpu: cpu.cpu,
        length_ns: ns(cpu.length_ns),
        slots: cpu.slots.iter().map(slot).collect(),
        exclusive: cpu.exclusive_to.is_some(),
    });
    let vcpus = plan.vcpus.iter().map(|vcpu| VcpuSource {
        tenant: ids[vcpu.tenant as usize],
        index: vcpu.index,
        reservation: Reservation { share: vcpu.share, latency_ns: vcpu.latency_ns, capped: vcpu.capped },
        budget_ns: ns(vcpu.budget_ns),
        period_ns: ns(vcpu.period_ns),
        walls: vcpu.method == Method::Together || vcpu.is_shown,
    });
    TableSource {
        length_ns: ns(plan.table_length_ns),
        switch_ns: ns(costs.switch_ns),
        cpus: cpus.collect(),
        vcpus: vcpus.collect(),
    }
}

/// What the reserved tenants of `model` are promised, straight from their reservations. `ids` as for [`source`].
pub fn promises(model: &Model, ids: &[TenantId]) -> Vec<Promise> {
    let (tenant_cpus, exclusive_cpus) = (model.host.tenant_cpus(), model.host.exclusive_cpus());
    let (cores, none): (Arc<[CpuSet]>, Arc<[CpuSet]>) = (model.host.topology.siblings().into(), [].into());
    let mut promises = Vec::new();
    for (tenant, &id) in model.tenants.iter().zip(ids) {
        let (cpus, unshared) =
            if tenant.exclusive_cores { (&exclusive_cpus, &cores) } else { (&tenant_cpus, &none) };
        let reserved = (0..tenant.vcpus).filter_map(|index| Some((index, tenant.vcpu_reservation(index)?)));
        promises.extend(reserved.map(|(index, reservation)| Promise {
            tenant: id,
            index,
            reservation,
            cpus: tenant.vcpu_cpus(index, cpus),
            unshared: unshared.clone(),
            together: tenant.team.together,
        }));
    }
    promises
}

/// Every time in a table is within a hyperperiod of 102,702,600 ns.
fn ns(time: u64) -> u32 {
    u32::try_from(time).expect("a table's times are at most its length, which fits 32 bits")
}
