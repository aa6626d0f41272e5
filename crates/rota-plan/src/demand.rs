//! What is asked for: every vCPU with a reservation, and the CPUs that it may use.

use std::collections::HashMap;
use std::sync::Arc;

use rota_model::{CpuSet, Host, Reservation, Share, Tenant, TenantId};

use crate::Infeasible;

/// So many lists of CPUs are remembered that nobody may be using any more.
const LISTS_MAX: usize = 1_024;

/// One vCPU that has a reservation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Demand {
    pub tenant: TenantId,
    pub index: u32,
    pub reservation: Reservation,
    /// Places, in the list of CPUs that may carry reservations, of those that it may use, ascending; all of them if
    /// absent.
    pub allowed: Option<Arc<[usize]>>,
    /// Its tenant shares no cores.
    pub is_exclusive: bool,
    /// Its slots come together with those of the tenant's other vCPUs.
    pub is_together: bool,
}

impl Demand {
    /// Whether it takes more than a CPU of its own for that: vCPUs with whole CPUs are together anyway.
    pub fn is_in_gang(&self) -> bool {
        self.is_together && self.reservation.share != Share::ONE
    }
}

/// The CPUs of a host that may carry reservations, and their places in a list.
#[derive(Clone, Debug)]
pub(crate) struct Places {
    /// Ascending.
    pub cpus: Vec<u32>,
    usable: CpuSet,
    exclusive: CpuSet,
    place: HashMap<u32, usize>,
    /// Tenants of one template have one affinity between them.
    lists: HashMap<CpuSet, Option<Arc<[usize]>>>,
}

impl Places {
    pub fn new(host: &Host) -> Places {
        let usable = host.tenant_cpus();
        Places {
            cpus: usable.iter().collect(),
            exclusive: host.exclusive_cpus(),
            place: usable.iter().enumerate().map(|(place, cpu)| (cpu, place)).collect(),
            lists: HashMap::from([(usable.clone(), None)]),
            usable,
        }
    }

    /// By tenant and index. A tenant's number is its place in the list.
    pub fn collect(&mut self, tenants: &[Tenant]) -> Result<Vec<Demand>, Infeasible> {
        let mut demands = Vec::new();
        for (tenant, entry) in (0..).zip(tenants) {
            self.demand(tenant, entry, &mut demands)?;
        }
        Ok(demands)
    }

    /// What one tenant asks for, by index.
    pub fn demand(
        &mut self,
        tenant: TenantId,
        entry: &Tenant,
        demands: &mut Vec<Demand>,
    ) -> Result<(), Infeasible> {
        for index in 0..entry.vcpus {
            let Some(reservation) = entry.vcpu_reservation(index) else { return Ok(()) };
            let usable = if entry.exclusive_cores { &self.exclusive } else { &self.usable };
            let cpus = entry.vcpu_cpus(index, usable);
            if cpus.is_empty() {
                let affinity = entry.affinity.clone().unwrap_or_default();
                return Err(Infeasible::NoCpu {
                    tenant: entry.name.clone(),
                    affinity,
                    usable: usable.clone(),
                });
            }
            let (allowed, is_exclusive) = (self.list(cpus), entry.exclusive_cores);
            let is_together = entry.team.together;
            demands.push(Demand { tenant, index, reservation, allowed, is_exclusive, is_together });
        }
        Ok(())
    }

    fn list(&mut self, cpus: CpuSet) -> Option<Arc<[usize]>> {
        if self.lists.len() > LISTS_MAX {
            self.lists.retain(|_, list| list.as_ref().is_none_or(|list| Arc::strong_count(list) > 1));
        }
        let place = &self.place;
        let places = |cpus: &CpuSet| Some(cpus.iter().map(|cpu| place[&cpu]).collect());
        self.lists.entry(cpus).or_insert_with_key(places).clone()
    }
}
