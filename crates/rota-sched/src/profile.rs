//! Where the time of tenants' threads went, and for whom they waited: read from the scheduler's maps.

use rota_model::TenantId;

use crate::shared::{self, NR_SPENT};

/// What a thread spends its time on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Spent {
    /// It runs.
    Running,
    /// It would run, and waits for a CPU.
    Waiting,
    /// It is blocked, and waits for other threads: synchronisation.
    Others,
    /// For devices or the network.
    Devices,
    /// For a time.
    Time,
    /// For an interrupt: it is a vCPU, and its guest idles.
    Halted,
    /// For something that its system call does not tell.
    Unknown,
}

impl Spent {
    /// All, in the order of the scheduler's counters.
    pub const ALL: [Spent; NR_SPENT] = [
        Spent::Running,
        Spent::Waiting,
        Spent::Others,
        Spent::Devices,
        Spent::Time,
        Spent::Halted,
        Spent::Unknown,
    ];
}

/// Of one queue since it came into use; times are of its threads, in ns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Profile {
    /// By what it was spent on: indexed as [`Spent::ALL`].
    pub spent_ns: [u64; NR_SPENT],
    /// For whom threads waited that have run since: tenants with their times, longest first.
    pub waited_for: Vec<(TenantId, u64)>,
    /// For other tenants, which are not known one by one.
    pub waited_for_rest_ns: u64,
    /// While no tenant ran: the CPU idled, or another class had it.
    pub waited_for_nobody_ns: u64,
    /// Longer ago than what a CPU remembers.
    pub waited_unseen_ns: u64,
    /// How often a thread stopped running that would have gone on.
    pub preempted: u64,
    /// How often a thread said that others may run: `sched_yield(2)`. It goes on if no other would.
    pub yields: u64,
}

impl Profile {
    /// Reads a queue's entry of the map. What threads do at `now_ns` counts up to then.
    pub(crate) fn decode(entry: &[u8], now_ns: u64) -> Profile {
        let read: shared::Profile = bytemuck::pod_read_unaligned(&entry[..size_of::<shared::Profile>()]);
        let until_now =
            |time: shared::SpentTime| time.ns + u64::from(time.threads) * now_ns.saturating_sub(time.since);
        let known = read.waited_for.iter().filter(|waited| waited.ns > 0);
        let mut waited_for: Vec<_> = known.map(|waited| (waited.tenant, waited.ns)).collect();
        waited_for.sort_by_key(|&(tenant, ns)| (std::cmp::Reverse(ns), tenant));
        Profile {
            spent_ns: read.spent.map(until_now),
            waited_for,
            waited_for_rest_ns: read.waited_for_rest_ns,
            waited_for_nobody_ns: read.waited_for_nobody_ns,
            waited_unseen_ns: read.waited_unseen_ns,
            preempted: read.preempted,
            yields: read.yields,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytemuck::Zeroable;

    #[test]
    fn what_goes_on_counts_up_to_now() {
        let mut entry = shared::Profile::zeroed();
        entry.spent[Spent::Time as usize] = shared::SpentTime { ns: 5, since: 100, threads: 3, reserved: 0 };
        entry.waited_for[2] = shared::WaitedFor { ns: 7, tenant: 4, reserved: 0 };
        entry.waited_for[5] = shared::WaitedFor { ns: 9, tenant: 1, reserved: 0 };
        let profile = Profile::decode(bytemuck::bytes_of(&entry), 110);
        assert_eq!(profile.spent_ns, [0, 0, 0, 0, 35, 0, 0]);
        assert_eq!(profile.waited_for, [(1, 9), (4, 7)]);
    }
}
