//! Equal tables: vCPUs change places while nobody comes, changes or goes.

use std::collections::BTreeMap;

use rota_model::{Cgroup, TenantId};
use rota_plan::{Seat, VcpuKey};

use super::{Action, Entry, Life, Table};
use crate::interference::spread::Pair;
use crate::interference::{Counted, ThreadCount};

impl Life {
    /// Where vCPUs have their slots in the newest table; nothing before there is one.
    pub fn seats(&self) -> Vec<Seat> {
        self.proposer.seats()
    }

    /// Has pairs of vCPUs change places in the next table, as far as they are promised the same, and says how many have
    /// moved. Nothing happens while a table is on its way or about to be planned.
    pub fn exchange(&mut self, pairs: &[Pair]) -> (Vec<Action>, u64) {
        if self.next.is_some()
            || self.due_ns.is_some()
            || self.in_force.host.as_ref() != Some(&self.model.host)
        {
            return (Vec::new(), 0);
        }
        let (proposal, moved) = match self.proposer.swap(&self.model.host, pairs) {
            None => return (Vec::new(), 0),
            Some(Err(refusal)) => {
                return (vec![Action::Say(format!("interference: the table stays: {refusal}"))], 0);
            }
            Some(Ok(made)) => made,
        };
        self.next =
            Some(Table { generation: 0, adopted_at_ns: None, is_exchange: true, ..self.in_force.clone() });
        (vec![Action::Install(proposal.table)], moved)
    }

    /// What was counted of threads, by the vCPU in which they run. What a container's threads have is its vCPUs' in
    /// equal parts: any thread may run in any.
    pub fn by_vcpu(&self, threads: &[ThreadCount]) -> BTreeMap<VcpuKey, Counted> {
        let of_cgroup = |(id, entry): (&TenantId, &Entry)| Some((entry.cgroup.as_ref()?.id, *id));
        let ids: BTreeMap<u64, TenantId> = self.entries.iter().filter_map(of_cgroup).collect();
        let mut counted: BTreeMap<VcpuKey, Counted> = BTreeMap::new();
        for thread in threads {
            let Some((id, entry)) = ids.get(&thread.cgroup).and_then(|id| Some((*id, self.entries.get(id)?)))
            else {
                continue;
            };
            let is_it = |(_, tid): &(&u32, &i32)| **tid == thread.tid;
            let indexes: Vec<u32> = match entry.is_vm {
                true => entry.threads.iter().filter(is_it).map(|(index, _)| *index).collect(),
                false => (0..entry.tenant.vcpus).collect(),
            };
            for index in &indexes {
                let own = counted.entry((id, *index)).or_default();
                let part = |whole: u64| whole / indexes.len() as u64;
                own.ran_ns += part(thread.counted.ran_ns);
                own.references += part(thread.counted.references);
                own.misses += part(thread.counted.misses);
            }
        }
        counted
    }

    /// The cgroups and vCPU threads of those with slots; no threads for a container.
    pub fn reserved(&self) -> Vec<(&Cgroup, Vec<i32>)> {
        let granted = self.entries.iter().filter(|(id, _)| self.in_force.grants.contains_key(id));
        let threads = |entry: &Entry| entry.threads.values().copied().collect();
        granted.filter_map(|(_, entry)| Some((entry.cgroup.as_ref()?, threads(entry)))).collect()
    }
}
