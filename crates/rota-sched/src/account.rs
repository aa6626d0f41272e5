//! What the scheduler has counted, as plain values: read from its maps, shown by `rota status` and the metrics.

use rota_model::TenantId;

use crate::profile::Profile;
use crate::shared::{CpuCounters, QueueCounters, QueueHead};

/// What kept an owner from its slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// A kernel thread that had to run on this CPU.
    KernelThread,
    /// A task of a higher scheduling class: real-time, deadline, stop.
    HigherClass,
    /// Interrupts.
    Interrupt,
    /// Time that the hypervisor below took.
    Steal,
    /// The floor of service for whatever may wait long.
    Floor,
    /// Rota itself: a late timer, a slow decision.
    Rota,
}

impl Cause {
    /// All, in the order of the scheduler's counters.
    pub const ALL: [Cause; 6] =
        [Cause::KernelThread, Cause::HigherClass, Cause::Interrupt, Cause::Steal, Cause::Floor, Cause::Rota];
}

/// One queue: a container tenant (`vcpu` absent), or one vCPU thread of a VM tenant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueAccount {
    /// Whose.
    pub tenant: TenantId,
    /// Which vCPU of a VM tenant; absent for a container, whose threads share one queue.
    pub vcpu: Option<u32>,
    /// CPU time received, in and outside of slots, in ns.
    pub used_ns: u64,
    /// The part of it received in its own slots.
    pub used_in_slots_ns: u64,
    /// Time in which at least one of its threads was runnable or running.
    pub wanted_ns: u64,
    /// The longest blackout seen: runnable, and no service.
    pub blackout_max_ns: u64,
    /// Blackouts beyond the bound.
    pub missed: u64,
    /// Those, by the cause that took most of the time: indexed as [`Cause::ALL`].
    pub missed_by_cause: [u64; 6],
    /// Time lost in its slots while it wanted them, by cause: indexed as [`Cause::ALL`].
    pub lost_ns: [u64; 6],
    /// Times that a thread of it was put on a CPU.
    pub dispatches: u64,
    /// Times that a thread of it was put on another CPU than before.
    pub migrations: u64,
    /// Times that a thread of it was seen to wait busily, and gave way to its siblings.
    pub spins: u64,
    /// CPU time in which that was seen, in ns, to a tenth of a millisecond.
    pub spins_ns: u64,
    /// Threads runnable or running now.
    pub runnable: u32,
    /// Where its threads' time went.
    pub profile: Profile,
}

/// One CPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpuAccount {
    /// Its number.
    pub cpu: u32,
    /// The generation of the table that it enacts; 0 before the first.
    pub generation: u64,
    /// Rounds in which it saw two generations. Always 0: an invariant.
    pub mixed: u64,
    /// Time with nothing to run.
    pub idle_ns: u64,
    /// Time given to background tenants.
    pub background_ns: u64,
    /// Time given to the second level and to shared tenants.
    pub second_level_ns: u64,
    /// Time taken from tenants, by cause: indexed as [`Cause::ALL`].
    pub lost_ns: [u64; 6],
}

impl QueueAccount {
    /// Reads a queue's entry of the map.
    ///
    /// What goes on at `now_ns` counts too: a tenant that never sleeps wants all along, and a blackout that has not
    /// ended is as long as it is by now. What was before `promised_from_ns` is not part of the promise.
    pub(crate) fn decode(
        tenant: TenantId,
        vcpu: Option<u32>,
        (entry, profile): (&[u8], &[u8]),
        (now_ns, promised_from_ns): (u64, u64),
    ) -> QueueAccount {
        let (head, rest) = entry.split_at(size_of::<QueueHead>());
        let head: QueueHead = bytemuck::pod_read_unaligned(head);
        let counters: QueueCounters = bytemuck::pod_read_unaligned(&rest[..size_of::<QueueCounters>()]);
        let since = |start_ns: u64, goes_on: bool| if goes_on { now_ns.saturating_sub(start_ns) } else { 0 };
        let wanting = since(head.wanted_since, head.nr_runnable > 0);
        let in_blackout = head.blackout_since != 0 && head.nr_runnable > 0 && head.nr_running == 0;
        let blackout = since(head.blackout_since.max(promised_from_ns), in_blackout);
        QueueAccount {
            tenant,
            vcpu,
            used_ns: counters.used_ns,
            used_in_slots_ns: counters.used_in_slots_ns,
            wanted_ns: counters.wanted_ns + wanting,
            blackout_max_ns: counters.blackout_max_ns.max(blackout),
            missed: counters.missed,
            missed_by_cause: counters.missed_by_cause,
            lost_ns: counters.lost_ns,
            dispatches: counters.dispatches,
            migrations: counters.migrations,
            spins: counters.spins,
            spins_ns: counters.spins_ns,
            runnable: head.nr_runnable,
            profile: Profile::decode(profile, now_ns),
        }
    }
}

impl CpuAccount {
    /// Reads a CPU's entry of the map.
    pub(crate) fn decode(cpu: u32, entry: &[u8]) -> CpuAccount {
        let counters: CpuCounters = bytemuck::pod_read_unaligned(&entry[..size_of::<CpuCounters>()]);
        CpuAccount {
            cpu,
            generation: counters.generation,
            mixed: counters.mixed,
            idle_ns: counters.idle_ns,
            background_ns: counters.background_ns,
            second_level_ns: counters.second_level_ns,
            lost_ns: counters.lost_ns,
        }
    }
}
