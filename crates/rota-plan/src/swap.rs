//! Equal tables: two vCPUs that are promised the same change places, and every promise is kept as before.
//!
//! Vanga's thesis (section 7.2) exchanges the slots of two VMs to spread what their caches suffer. Here each of the two
//! has to be allowed on the other's CPUs, and no tenant gets more vCPUs on one CPU than it had.

use std::fmt;

use rota_model::{Reservation, TenantId};

use crate::roster::{Owner, Roster};

/// A vCPU: its tenant's number, and its own among the tenant's.
pub type VcpuKey = (TenantId, u32);

/// Where a vCPU has its slots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seat {
    /// Which.
    pub vcpu: VcpuKey,
    /// What it is promised. Those with other promises never change places with it.
    pub reservation: Reservation,
    /// The numbers of its CPUs, ascending. Several if it is divided.
    pub cpus: Vec<u32>,
}

/// Why two vCPUs do not change places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unequal {
    /// One of them is not here.
    Absent,
    /// They are promised different things, or one shares no cores.
    Promises,
    /// They have slots on the same CPUs: nothing would change.
    SamePlace,
    /// One may not use the other's CPUs.
    Cpus,
    /// More vCPUs of a tenant would share a CPU.
    Together,
}

impl fmt::Display for Unequal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Unequal::Absent => "one of them is not here",
            Unequal::Promises => "they are not promised the same",
            Unequal::SamePlace => "they are on the same CPUs",
            Unequal::Cpus => "one may not use the other's CPUs",
            Unequal::Together => "more vCPUs of a tenant would share a CPU",
        })
    }
}

impl Roster {
    /// Every vCPU's seat, by tenant and index. `numbers` are those of the CPUs that may carry reservations.
    pub fn seats(&self, numbers: &[u32]) -> Vec<Seat> {
        let seat = |&vcpu: &u32| {
            let demand = &self.vcpu(vcpu).demand;
            let cpus = self.cpus_of(vcpu).into_iter().map(|place| numbers[place]).collect();
            Seat { vcpu: (demand.tenant, demand.index), reservation: demand.reservation, cpus }
        };
        (0..self.tenants()).flat_map(|tenant| self.of_tenant(tenant)).map(seat).collect()
    }

    fn number(&self, (tenant, index): VcpuKey) -> Result<u32, Unequal> {
        self.of_tenant(tenant).get(index as usize).copied().ok_or(Unequal::Absent)
    }

    /// Has two vCPUs change places, and returns the CPUs whose slots differ then, by place.
    ///
    /// # Errors
    ///
    /// [`Unequal`], if they are not interchangeable. Then nothing has changed.
    pub fn swap(&mut self, one: VcpuKey, other: VcpuKey) -> Result<Vec<usize>, Unequal> {
        let pair = [self.number(one)?, self.number(other)?];
        let [a, b] = pair.map(|vcpu| &self.vcpu(vcpu).demand);
        if a.reservation != b.reservation || a.is_exclusive || b.is_exclusive {
            return Err(Unequal::Promises);
        }
        let [on_a, on_b] = pair.map(|vcpu| self.cpus_of(vcpu));
        if on_a == on_b {
            return Err(Unequal::SamePlace);
        }
        let may_use = |allowed: &Option<std::sync::Arc<[usize]>>, cpus: &[usize]| {
            let has = |cpu: &usize| allowed.as_ref().is_none_or(|allowed| allowed.binary_search(cpu).is_ok());
            cpus.iter().all(has)
        };
        if !may_use(&a.allowed, &on_b) || !may_use(&b.allowed, &on_a) {
            return Err(Unequal::Cpus);
        }
        let tenants = [a.tenant, b.tenant];
        let pairs = |roster: &Roster| tenants.map(|tenant| roster.pairs(tenant));
        let before = pairs(self);
        self.exchange(pair);
        let after = pairs(self);
        if after[0] > before[0] || after[1] > before[1] {
            self.exchange(pair);
            return Err(Unequal::Together);
        }
        Ok([on_a, on_b].concat())
    }

    /// Each has the other's tasks from now on; what they take of their CPUs stays.
    fn exchange(&mut self, [a, b]: [u32; 2]) {
        let groups = [a, b].map(|vcpu| self.vcpu(vcpu).group);
        for group in groups {
            for member in &mut self.groups[group].members {
                member.owner = match member.owner {
                    Owner::Vcpu(vcpu) if vcpu == a => Owner::Vcpu(b),
                    Owner::Vcpu(vcpu) if vcpu == b => Owner::Vcpu(a),
                    owner => owner,
                };
            }
            if groups[0] == groups[1] {
                break;
            }
        }
        self.set_group(a, groups[1]);
        self.set_group(b, groups[0]);
    }
}
