//! Parts of a tenant's total share that go to its vCPUs by load.

use std::collections::BTreeMap;

use rota_model::{Share, Team, Tenant, TenantId};

use super::Life;
use crate::planning::Grants;

impl Life {
    /// From the next table on a tenant's vCPUs are to have these parts, which come to no more than it is promised.
    pub(super) fn parted(&mut self, now_ns: u64, id: TenantId, parts: Vec<Share>, said: &mut Vec<String>) {
        let Some(entry) = self.entries.get_mut(&id).filter(|entry| entry.present) else { return };
        let tenant = &mut entry.tenant;
        let sum = |parts: &[Share]| parts.iter().map(|part| u64::from(part.ppb())).sum::<u64>();
        let Some(reservation) = tenant.reservation().filter(|_| tenant.team.matching) else { return };
        let promised = u64::from(reservation.share.ppb()) * u64::from(tenant.vcpus);
        if parts.len() != tenant.vcpus as usize || sum(&parts) > promised || tenant.team.parts == parts {
            return;
        }
        said.push(format!("{}: its vCPUs are to have {} by their load", tenant.name, shown(&parts)));
        tenant.team.parts = parts;
        self.change(now_ns);
    }

    /// Tenants as configured, with the parts that those have who are here and configured as before.
    pub(super) fn with_parts(&self, configured: &[Tenant]) -> Vec<Tenant> {
        let here: BTreeMap<&str, &Tenant> =
            self.entries.values().map(|entry| (entry.tenant.name.as_str(), &entry.tenant)).collect();
        let kept = |tenant: &Tenant| {
            let mut kept = tenant.clone();
            let before = here.get(tenant.name.as_str()).filter(|before| {
                before.class == tenant.class && before.vcpus == tenant.vcpus && tenant.team.matching
            });
            if let Some(before) = before {
                kept.team.parts.clone_from(&before.team.parts);
            }
            kept
        };
        configured.iter().map(kept).collect()
    }

    /// Parts for which there is no room are no wish that waits: the vCPUs keep those that they have.
    pub(super) fn take_back_parts(
        &mut self,
        grants: &Grants,
        refused: &mut BTreeMap<TenantId, String>,
        said: &mut Vec<String>,
    ) {
        refused.retain(|id, reason| {
            let (Some(entry), Some(granted)) = (self.entries.get_mut(id), grants.get(id)) else {
                return true;
            };
            let team = Team { parts: granted.team.parts.clone(), ..entry.tenant.team.clone() };
            let as_granted = Tenant { team, ..entry.tenant.clone() };
            if entry.tenant == as_granted || as_granted != *granted {
                return true;
            }
            said.push(format!("{}: no room for parts by load, they stay: {reason}", entry.tenant.name));
            entry.tenant = as_granted;
            false
        });
    }
}

fn shown(parts: &[Share]) -> String {
    let parts: Vec<String> = parts.iter().map(|part| format!("{:.3}", part.fraction())).collect();
    parts.join(", ")
}
