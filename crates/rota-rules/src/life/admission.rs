//! Who gets a reservation when not everyone can: those who have one keep it, then first come, first served.

use std::collections::BTreeMap;

use rota_model::{CpuSet, Host, Tenant, TenantId};

use crate::planning::{Grants, Proposal, Proposer, Refusal};

/// Which wishes can be granted, and the table for them.
pub struct Admission<'a> {
    host: &'a Host,
    /// Where tables come from.
    pub proposer: &'a mut Proposer,
    /// What the table promises.
    pub grants: Grants,
    /// The table; absent if nothing was added to what there was.
    pub proposal: Option<Proposal>,
    /// Who cannot have what it wishes for, and why.
    pub refused: BTreeMap<TenantId, String>,
}

impl<'a> Admission<'a> {
    /// Starts from what is granted already and grants `wishes`, the earlier first, as far as they fit. A wish of a
    /// tenant that has a grant is for a change of it, and if refused leaves it as it was.
    pub fn decide(
        host: &'a Host,
        proposer: &'a mut Proposer,
        granted: Grants,
        wishes: &[(TenantId, &Tenant)],
    ) -> Admission<'a> {
        let mut admission =
            Admission { host, proposer, grants: granted, proposal: None, refused: BTreeMap::new() };
        admission.grant(wishes);
        // A wish for less makes room for others: ask again as long as that helps.
        while !admission.refused.is_empty() && admission.proposal.is_some() {
            let refused: Vec<(TenantId, &Tenant)> =
                wishes.iter().copied().filter(|(id, _)| admission.refused.contains_key(id)).collect();
            let before = refused.len();
            admission.refused.clear();
            admission.grant(&refused);
            if admission.refused.len() == before {
                break;
            }
        }
        admission
    }

    /// Halves what does not fit as a whole, so that k refusals among n wishes cost about k log n plans, not n.
    fn grant(&mut self, wishes: &[(TenantId, &Tenant)]) {
        let [first, ..] = wishes else { return };
        let mut grants = self.grants.clone();
        grants.extend(wishes.iter().map(|&(id, tenant)| (id, tenant.clone())));
        match self.proposer.propose(self.host, &grants) {
            Ok(mut proposal) => {
                if let Some(before) = self.proposal.take() {
                    proposal.change = before.change.and(&proposal.change);
                }
                self.grants = grants;
                self.proposal = Some(proposal);
            }
            Err(refusal) if wishes.len() == 1 => {
                self.refused.insert(first.0, reason(first.1, &refusal));
            }
            Err(_) => {
                let (earlier, later) = wishes.split_at(wishes.len() / 2);
                self.grant(earlier);
                self.grant(later);
            }
        }
    }
}

fn reason(tenant: &Tenant, refusal: &Refusal) -> String {
    match refusal {
        // The configuration takes no empty affinity: what it named is left out.
        _ if tenant.affinity.as_ref().is_some_and(CpuSet::is_empty) => {
            "every CPU that it may run on is offline; bring one online, or change its affinity".to_owned()
        }
        Refusal::Infeasible(infeasible) => infeasible.to_string(),
        other => other.to_string(),
    }
}
