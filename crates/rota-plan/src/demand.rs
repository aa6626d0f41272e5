//! What is asked for: every vCPU with a reservation, and the CPUs that it may use.

use std::collections::HashMap;
use std::rc::Rc;

use rota_model::{CpuSet, Model, Reservation, TenantId};

use crate::Infeasible;

/// One vCPU that has a reservation.
#[derive(Clone, Debug)]
pub(crate) struct Demand {
    pub tenant: TenantId,
    pub index: u32,
    pub reservation: Reservation,
    /// Places, in the list of CPUs that may carry reservations, of those that it may use, ascending; all of them if
    /// absent.
    pub allowed: Option<Rc<[usize]>>,
}

/// By tenant and index.
pub(crate) fn collect(model: &Model, usable: &CpuSet) -> Result<Vec<Demand>, Infeasible> {
    let place: HashMap<u32, usize> = usable.iter().enumerate().map(|(place, cpu)| (cpu, place)).collect();
    // Tenants of one template have one affinity between them.
    let mut known: HashMap<CpuSet, Option<Rc<[usize]>>> = HashMap::from([(usable.clone(), None)]);
    let mut demands = Vec::new();
    let exclusive = model.host.exclusive_cpus();
    for (tenant, entry) in (0..).zip(&model.tenants) {
        let Some(reservation) = entry.reservation() else { continue };
        let usable = if entry.exclusive_cores { &exclusive } else { usable };
        for index in 0..entry.vcpus {
            let cpus = entry.vcpu_cpus(index, usable);
            if cpus.is_empty() {
                let affinity = entry.affinity.clone().unwrap_or_default();
                return Err(Infeasible::NoCpu {
                    tenant: entry.name.clone(),
                    affinity,
                    usable: usable.clone(),
                });
            }
            let allowed = known
                .entry(cpus)
                .or_insert_with_key(|cpus| Some(cpus.iter().map(|cpu| place[&cpu]).collect()))
                .clone();
            demands.push(Demand { tenant, index, reservation, allowed });
        }
    }
    Ok(demands)
}
