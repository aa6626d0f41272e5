//! A tenant that grows has other queues from one moment to the next.

use anyhow::Result;
use rota_model::TenantId;

use super::{Known, Scheduler, TenantSpec, queues_needed};
use crate::kernel::Kernel;
use crate::placement::Placement;
use crate::shared;

impl<K: Kernel> Scheduler<K> {
    /// A tenant that grows has slots for its new vCPUs before it is told of them, and claims each in a queue's entry of
    /// its own by then.
    pub(super) fn make_room(&self, placement: &Placement) -> Result<()> {
        self.free_former()?;
        let grows = |(id, known): (&TenantId, &Known)| {
            let &(_, vcpus) = placement.first_vcpu.get(id)?;
            (queues_needed(known.spec.kind, vcpus) > known.queues).then(|| (known.spec.clone(), vcpus))
        };
        let grown: Vec<(TenantSpec, u32)> = self.tenants.borrow().iter().filter_map(grows).collect();
        grown.into_iter().try_for_each(|(spec, vcpus)| self.set(spec, vcpus))
    }

    /// CPUs are told by which entries the tenant's vCPUs may still be claimed, before they find its new ones: one that
    /// the hypervisor holds up goes on with a vCPU that it claimed by its former entry. Returns the record. If the
    /// tenant has grown before, and a CPU has been held up since, those entries are asked no more.
    pub(super) fn keep_former(&self, id: TenantId, known: &Known) -> Result<shared::Tenant> {
        let own = known.record.kind;
        let (former_entry, nr_former) = (known.record.first_queue + own, known.queues - own);
        let record = shared::Tenant { former_entry, nr_former, ..known.record };
        self.kernel.put("tenants", id, &record)?;
        Ok(record)
    }

    /// Gives back the queues that tenants had before they grew and by which nobody serves them any more.
    pub(super) fn free_former(&self) -> Result<()> {
        for (&id, known) in self.tenants.borrow_mut().iter_mut() {
            let Some((first, count)) = known.former else { continue };
            if self.is_claimed(first, count)? {
                continue;
            }
            known.former = None;
            known.record.nr_former = 0;
            self.kernel.put("tenants", id, &known.record)?;
            self.numbers.borrow_mut().free(first, count);
        }
        Ok(())
    }

    fn is_claimed(&self, first: u32, count: u32) -> Result<bool> {
        for queue in first..first + count {
            if self.queue_head(queue)?.claimed_by != 0 {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
