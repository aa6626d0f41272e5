//! Tenants that have the threads of VMs' monitors: they have no cgroup, and are here as long as one of their VMs is.

use std::collections::BTreeSet;

use rota_model::{Monitor, Tenant, TenantId};
use rota_sched::SYSTEM;

use super::{Entry, Life, describe};

impl Life {
    /// Has those come that VMs name which are here, and those go that none names any more.
    pub(super) fn follow_vms(&mut self, now_ns: u64, said: &mut Vec<String>) {
        let present = || self.entries.iter().filter(|(_, entry)| entry.present);
        let wanted: BTreeSet<String> = present()
            .filter_map(|(_, vm)| self.model.monitor_of(&vm.tenant))
            .map(|monitor| monitor.name.clone())
            .collect();
        let named = |(_, entry): (&TenantId, &Entry)| entry.tenant.name.clone();
        let here: BTreeSet<String> = present().map(named).collect();
        let is_monitors = |(id, entry): &(&TenantId, &Entry)| **id != SYSTEM && entry.cgroup.is_none();
        let monitors: BTreeSet<String> = present().filter(is_monitors).map(named).collect();
        monitors.difference(&wanted).for_each(|name| self.vanished(now_ns, name, said));
        for name in wanted.difference(&here) {
            let Some(tenant) = self.model.tenants.iter().find(|tenant| tenant.name == *name).cloned() else {
                continue;
            };
            said.push(format!("{name}: has the threads of VMs' monitors: {}", describe(&tenant)));
            let id = self.free_id();
            self.enter(id, now_ns, tenant, None);
        }
    }

    /// Who has the threads of a VM that are no vCPUs, if that is not the VM. As long as no vCPU is known, each thread
    /// may be one.
    pub(super) fn monitor(&self, vm: &Entry) -> Option<TenantId> {
        if vm.threads.is_empty() {
            return None;
        }
        match &vm.tenant.team.monitor {
            Monitor::Own => None,
            Monitor::System => Some(SYSTEM),
            Monitor::Tenant(_) => {
                let monitor: &Tenant = self.model.monitor_of(&vm.tenant)?;
                let is_it = |entry: &Entry| entry.present && entry.tenant.name == monitor.name;
                self.entries.iter().find(|(_, entry)| is_it(entry)).map(|(id, _)| *id)
            }
        }
    }
}
