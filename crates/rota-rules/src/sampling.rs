//! How a tenant is sampled on a host: what the daemon is asked, and what it answers. From that `rota profile --predict`
//! foretells a slowdown ([`crate::slowdown`]).

use rota_model::{Counts, TenantId};
use serde::{Deserialize, Serialize};

use crate::accounts::Reading;
use crate::profile::BySpent;

/// What is asked of a tenant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// Its name.
    pub tenant: String,
    /// Others are held off for so many ms; 0: nobody is, and it is told what the tenant has spent so far.
    pub hold_off_ms: u64,
}

/// What the daemon says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// What the tenant has spent since it came.
    SoFar(Sample),
    /// What it spent while others were held off, without the first few ms.
    Dedicated(Sample),
    /// The last time that others were held off is not long enough ago, or the daemon was held up itself.
    NotNow,
    /// Why not at all.
    Refused(String),
}

/// What a tenant's threads spent their time on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sample {
    /// Its number: another one if it has gone and come back.
    pub id: TenantId,
    /// Of all its threads.
    pub spent_ns: BySpent,
    /// Of the time in which they ran: they were seen to wait in a loop.
    pub spins_ns: u64,
}

impl Sample {
    /// What the scheduler has counted of a tenant.
    pub fn of(id: TenantId, reading: &Reading) -> Sample {
        let (mut spent_ns, mut spins_ns) = ([0; 7], 0);
        for queue in reading.queues.iter().filter(|queue| queue.tenant == id) {
            (0..spent_ns.len()).for_each(|kind| spent_ns[kind] += queue.profile.spent_ns[kind]);
            spins_ns += queue.spins_ns;
        }
        Sample { id, spent_ns: spent_ns.into(), spins_ns }
    }

    /// What came after `before`, of the same tenant.
    pub fn since(&self, before: &Sample) -> Option<Sample> {
        let (now, then) = (self.spent_ns.values(), before.spent_ns.values());
        let growth: [u64; 7] = std::array::from_fn(|kind| now[kind].saturating_sub(then[kind]));
        let spins_ns = self.spins_ns.saturating_sub(before.spins_ns);
        (self.id == before.id).then(|| Sample { id: self.id, spent_ns: growth.into(), spins_ns })
    }

    /// As slowdowns are foretold from. What a host does not count is nothing.
    pub fn counts(&self) -> Counts {
        let BySpent { running, waiting, .. } = self.spent_ns;
        let total_ns = self.spent_ns.total();
        let sync_ns = total_ns - running - waiting + self.spins_ns.min(running);
        Counts { total_ns, steal_ns: waiting, sync_ns, ..Counts::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(id: TenantId, spent_ns: [u64; 7], spins_ns: u64) -> Sample {
        Sample { id, spent_ns: spent_ns.into(), spins_ns }
    }

    #[test]
    fn useful_work_is_what_ran_and_did_not_spin() {
        let (before, after) =
            (sample(1, [5, 5, 5, 0, 0, 0, 0], 1), sample(1, [105, 35, 15, 20, 30, 0, 0], 11));
        let counts = after.since(&before).unwrap().counts();
        assert_eq!((counts.total_ns, counts.steal_ns, counts.useful_ns()), (190, 30, 90));
        assert_eq!(after.since(&sample(2, [0; 7], 0)), None, "another tenant");
    }
}
