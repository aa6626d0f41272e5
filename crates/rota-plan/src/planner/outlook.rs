//! What would follow if tenants came: the edit is made and undone, so that a question copies no plan.

use rota_model::{Placement, Tenant, TenantId};

use super::{Change, Edits, Planner, Wishes, is_better};
use crate::Infeasible;
use crate::edit::Edit;
use crate::roster::Roster;
use crate::swap::VcpuKey;

/// What an edit would do to the plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outlook {
    /// As [`Planner::update`] would say it.
    pub change: Change,
    /// The vCPUs of those who are here that would be on other CPUs, by tenant and index.
    pub moved: Vec<VcpuKey>,
}

/// What comes of an edit that plans only the CPUs concerned.
struct Partly {
    change: Change,
    /// What the plan would be burdened with, if a tenant's vCPUs shared a CPU so.
    crowded: Option<(usize, u64)>,
}

impl Planner {
    /// What [`Planner::update`] would do with these tenants, which come beside those that are here. The plan stays as
    /// it is.
    ///
    /// # Errors
    ///
    /// [`Infeasible`], if not every promise could be kept.
    pub fn consider(&mut self, newcomers: &[Tenant]) -> Result<Outlook, Infeasible> {
        let first = self.model.tenants.len() as TenantId;
        let edits: Edits = (first..).zip(newcomers).map(|(id, tenant)| (id, Some(tenant.clone()))).collect();
        let Some(Partly { change, crowded }) = self.consider_partly(&edits)? else {
            let roster = self.anew(edits)?;
            return Ok(self.full(&roster));
        };
        let may_spread = self.ground.placement != Placement::BestFit;
        if let Some(burdens) = crowded.filter(|_| may_spread)
            && let Ok(roster) = self.anew(edits)
            && is_better(&roster, burdens)
        {
            return Ok(self.full(&roster));
        }
        // Nobody who is here moves: those who come get what is free.
        Ok(Outlook { change, moved: Vec::new() })
    }

    /// None if all has to be planned anew.
    fn consider_partly(&mut self, edits: &Edits) -> Result<Option<Partly>, Infeasible> {
        if self.roster.is_empty() && !edits.is_empty() {
            return Ok(None);
        }
        let Wishes { newcomers, teams, .. } = self.wishes(edits)?;
        if newcomers.iter().any(|newcomer| newcomer.demand.is_in_gang()) {
            return Ok(None);
        }
        let judge = |roster: &mut Roster, vcpus: &[u32]| {
            let tenants = roster.tenants();
            let mut is_crowded = false;
            for (id, team) in teams {
                let number = |vcpu: Result<u32, usize>| vcpu.unwrap_or_else(|place| vcpus[place]);
                roster.set_of_tenant(id, team.into_iter().map(number).collect());
                is_crowded |= roster.is_crowded(id);
            }
            let crowded = is_crowded.then(|| roster.burdens());
            roster.cut_tenants(tenants);
            crowded
        };
        let edit = Edit::new(&self.model, &mut self.ground, &mut self.roster);
        let Some((done, crowded)) = edit.try_out(newcomers, judge) else { return Ok(None) };
        let cpus = done.cpus.iter().map(|&place| self.ground.places.cpus[place]).collect();
        Ok(Some(Partly { change: Change { cpus, is_full: false, spares: done.spares }, crowded }))
    }

    /// The plan from nothing of an edited model.
    fn anew(&mut self, edits: Edits) -> Result<Roster, Infeasible> {
        let present = self.model.tenants.len();
        self.exchange(edits);
        let roster = self.ground.plan(&self.model, None);
        self.model.tenants.truncate(present);
        roster
    }

    fn full(&self, roster: &Roster) -> Outlook {
        let cpus = self.model.host.tenant_cpus();
        let mut moved = Vec::new();
        for tenant in 0..self.roster.tenants() {
            let both = self.roster.of_tenant(tenant).iter().zip(roster.of_tenant(tenant));
            for (index, (&now, &then)) in (0..).zip(both) {
                if self.roster.cpus_of(now) != roster.cpus_of(then) {
                    moved.push((tenant, index));
                }
            }
        }
        Outlook { change: Change { cpus, is_full: true, spares: 0 }, moved }
    }
}
