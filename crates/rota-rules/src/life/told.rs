//! What the scheduler knows about a tenant, and how that changes.

use std::collections::BTreeMap;

use rota_model::TenantId;
use rota_sched::TenantSpec;

use super::{Action, Change};

/// What the scheduler was told about a tenant.
#[derive(Clone, Debug, Default)]
pub struct Told {
    pub spec: Option<TenantSpec>,
    pub cgroup: Option<u64>,
    pub threads: BTreeMap<i32, u32>,
}

/// The actions that lead from what was told to what shall be: what no longer holds first, then the tenant itself, then
/// what is the tenant's.
pub fn tell(id: TenantId, told: &Told, shall: &Told, actions: &mut Vec<Action>) {
    for (&tid, index) in &told.threads {
        if shall.threads.get(&tid) != Some(index) {
            actions.push(Action::Tell(Change::UnbindThread { tid }));
        }
    }
    if let Some(cgroup) = told.cgroup.filter(|cgroup| shall.cgroup != Some(*cgroup)) {
        actions.push(Action::Tell(Change::Unbind { cgroup }));
    }
    match &shall.spec {
        Some(spec) if told.spec.as_ref() != Some(spec) => {
            actions.push(Action::Tell(Change::Set(spec.clone())))
        }
        None if told.spec.is_some() => actions.push(Action::Tell(Change::Remove(id))),
        _ => {}
    }
    if let Some(cgroup) = shall.cgroup.filter(|cgroup| told.cgroup != Some(*cgroup)) {
        actions.push(Action::Tell(Change::Bind { cgroup, id }));
    }
    for (&tid, &index) in &shall.threads {
        if told.threads.get(&tid) != Some(&index) {
            actions.push(Action::Tell(Change::BindThread { tid, id, index }));
        }
    }
}
