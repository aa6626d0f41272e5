//! A daemon begins where another one ended: the scheduler has tenants and a table, and goes on serving them.
//!
//! What the scheduler knows has numbers and no names. A tenant is recognised by its cgroup: the kernel gives no two one
//! id. Until all tenants are recognised, or have been looked for long enough, nothing is planned, and nothing changes
//! for them. The first table after that is planned from nothing, for what the configuration says now.

use std::collections::BTreeSet;

use rota_model::{Cgroup, Class, Model, Reservation, Share, Team, Tenant, TenantId};
use rota_sched::{Found, FoundTenant, SYSTEM, TenantKind};

use super::{Entry, Life, SETTLE_NS, Table, Told, describe};

/// A tenant that was not found within this is gone.
const LOOK_NS: u64 = 5_000_000_000;

impl Life {
    /// The life of a host whose scheduler was taken over.
    pub fn found(now_ns: u64, model: Model, found: Found) -> Life {
        let mut life = Life::new(now_ns, model);
        life.in_force = Table {
            generation: found.generation,
            length_ns: found.length_ns,
            vcpus: found.tenants.iter().map(|tenant| tenant.promised.len()).sum(),
            cpus: found.cpus,
            ..Table::default()
        };
        let monitors: BTreeSet<TenantId> =
            found.tenants.iter().filter_map(|tenant| tenant.spec.monitor).collect();
        for tenant in found.tenants {
            let is_monitor = monitors.contains(&tenant.spec.id);
            life.seek(tenant, is_monitor);
        }
        if life.entries.values().any(|entry| entry.sought.is_some()) {
            life.due_ns = Some(now_ns + LOOK_NS);
        }
        life
    }

    /// Has a tenant of the scheduler's looked for. The system's own is here.
    fn seek(&mut self, found: FoundTenant, is_monitor: bool) {
        let id = found.spec.id;
        let system = self.entries.get(&id).map(|entry| entry.tenant.clone());
        let tenant = system.as_ref().filter(|_| id == SYSTEM).cloned().unwrap_or_else(|| nameless(&found));
        if let Some(granted) = as_promised(&tenant, &found.promised) {
            self.in_force.grants.insert(id, granted);
        }
        let told = Told {
            spec: Some(found.spec.clone()),
            cgroup: found.cgroup,
            threads: found.threads.iter().map(|(tid, index)| (*tid, *index)).collect(),
        };
        match self.entries.get_mut(&id) {
            Some(system) => system.told = told,
            None if id == SYSTEM => {}
            None => {
                self.enter(id, found.since_ns, tenant, None);
                let arrived = self.entries.get_mut(&id).expect("it has entered");
                (arrived.present, arrived.told) = (false, told);
                // Without a cgroup or a VM it cannot be recognised: the daemon ended as it came or went.
                arrived.sought = (is_monitor || found.cgroup.is_some()).then_some(found);
            }
        }
    }

    /// The tenant of the scheduler's whose cgroup this is.
    pub(super) fn sought(&self, cgroup: &Cgroup) -> Option<TenantId> {
        let is_it = |entry: &Entry| entry.sought.as_ref()?.cgroup.filter(|id| *id == cgroup.id);
        self.entries.iter().find_map(|(id, entry)| is_it(entry).map(|_| *id))
    }

    /// It is this one.
    pub(super) fn recognise(
        &mut self,
        now_ns: u64,
        id: TenantId,
        (tenant, cgroup): (Tenant, Option<Cgroup>),
        said: &mut Vec<String>,
    ) {
        let Some(entry) = self.entries.get_mut(&id) else { return };
        let Some(found) = entry.sought.take() else { return };
        let goes_on = if found.promised.is_empty() { describe(&tenant) } else { "as promised".to_owned() };
        let place = cgroup.as_ref().map(|cgroup| format!(" in cgroup {}", cgroup.path.display()));
        said.push(format!("{}: goes on{}: {goes_on}", tenant.name, place.unwrap_or_default()));
        let monitor = found.spec.monitor.zip(self.model.monitor_of(&tenant).cloned());
        entry.tenant = tenant;
        entry.cgroup = cgroup;
        entry.present = true;
        entry.is_vm |= found.spec.kind == TenantKind::Vm;
        entry.threads = found.threads.iter().map(|(tid, index)| (*index, *tid)).collect();
        if let Some(granted) = as_promised(&entry.tenant, &found.promised) {
            if keeps_parts(&entry.tenant, &granted.team.parts) {
                entry.tenant.team.parts.clone_from(&granted.team.parts);
            }
            self.in_force.grants.insert(id, granted);
        }
        if let Some((id, tenant)) = monitor {
            self.recognise(now_ns, id, (tenant, None), said);
        }
        if self.entries.values().all(|entry| entry.sought.is_none()) {
            self.due_ns = Some(now_ns + SETTLE_NS);
        }
    }

    /// Those that are still looked for as the next table is planned are gone.
    pub(super) fn give_up(&mut self, now_ns: u64, said: &mut Vec<String>) {
        if self.due_ns.is_none_or(|due_ns| due_ns > now_ns) {
            return;
        }
        let lost = self.entries.values_mut().filter_map(|entry| entry.sought.take()).count();
        if lost > 0 {
            said.push(format!("{lost} tenants that the scheduler knew are gone"));
        }
    }
}

/// A tenant of which nothing but what it is promised is known.
fn nameless(found: &FoundTenant) -> Tenant {
    Tenant {
        name: format!("number {} of before", found.spec.id),
        class: found.spec.class,
        vcpus: found.spec.vcpus,
        affinity: None,
        pinned: false,
        exclusive_cores: false,
        oversubscribe: found.spec.oversubscribe,
        team: Team::default(),
        matcher: None,
    }
}

/// Whether parts by load are still a tenant's wish: it is configured to have such, and they are no more than its total.
fn keeps_parts(tenant: &Tenant, parts: &[Share]) -> bool {
    let sum: u64 = parts.iter().map(|part| u64::from(part.ppb())).sum();
    let total = |own: Reservation| u64::from(own.share.ppb()) * u64::from(tenant.vcpus);
    let has_room = tenant.reservation().is_some_and(|own| sum <= total(own));
    tenant.team.matching && parts.len() == tenant.vcpus as usize && has_room
}

/// The tenant as a table has it that promises its vCPUs this; nothing if it promises nothing.
fn as_promised(tenant: &Tenant, promised: &[Reservation]) -> Option<Tenant> {
    let [first, ..] = promised else { return None };
    let (mut granted, vcpus) = (tenant.clone(), promised.len() as u32);
    let is_wished = tenant.vcpus == vcpus
        && (0..vcpus).zip(promised).all(|(index, own)| tenant.vcpu_reservation(index) == Some(*own));
    if !is_wished {
        let parts: Vec<Share> = promised.iter().map(|own| own.share).collect();
        let total: u64 = parts.iter().map(|share| u64::from(share.ppb())).sum();
        let each = Share::from_ppb((total / u64::from(vcpus)) as u32).unwrap_or(first.share);
        let is_even = parts.iter().all(|share| *share == first.share);
        granted.class = Class::Reserved(Reservation { share: each, ..*first });
        granted.vcpus = vcpus;
        granted.team.parts = if is_even { Vec::new() } else { parts };
    }
    Some(granted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_kept_by_who_is_configured_to_have_them_and_has_room() {
        let share = |percent: u32| Share::from_ppb(percent * 10_000_000).expect("a share");
        let reservation = Reservation { share: share(50), latency_ns: 20_000_000, capped: false };
        let cpus = "0-1".parse().expect("CPUs");
        let matching = Team { matching: true, ..Team::default() };
        let tenant = Tenant { team: matching, ..Tenant::system(reservation, &cpus) };
        let parts = [share(70), share(30)];
        assert!(keeps_parts(&tenant, &parts));
        assert!(!keeps_parts(&tenant, &[share(70), share(40)]), "its total is less now");
        assert!(!keeps_parts(&tenant, &parts[..1]) && !keeps_parts(&tenant, &[]));
        assert!(
            !keeps_parts(&Tenant { team: Team::default(), ..tenant }, &parts),
            "it is not configured so now"
        );
    }
}
