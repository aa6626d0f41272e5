//! What the planner returns.

use std::fmt;

use rota_model::{Share, TenantId};

use crate::HYPERPERIOD_NS;

/// Most slices that one CPU's part of a table may have (`ROTA_TABLE_SLICES_MAX` of the table's format): a CPU's length
/// divided by its shortest slot, rounded up.
pub const SLICES_MAX: u64 = 65_536;

/// Slots shorter than this are dissolved even if the host's `slot_min_ns` is less: slots of at least this length never
/// need more than [`SLICES_MAX`] slices.
pub const SLOT_MIN_NS: u64 = HYPERPERIOD_NS.div_ceil(SLICES_MAX);

/// On so many CPUs one vCPU may have slots (`ROTA_VCPU_CPUS_MAX` of the table's format): the scheduler looks at all of
/// them when the vCPU wakes up.
pub const VCPU_CPUS_MAX: usize = 64;

/// So many vCPUs at most has a CPU whose scheduler decides as they wake in which order they are served
/// (`ROTA_WINDOW_VCPUS_MAX` of the table's format): it looks at all of them each time.
pub const WINDOW_VCPUS_MAX: usize = 16;

/// The timetable of a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// All CPUs together repeat after this, in ns: the least common multiple of their lengths.
    pub table_length_ns: u64,
    /// Every CPU of the host, ascending by number; those without a slot too.
    pub cpus: Vec<CpuPlan>,
    /// Every vCPU that has a reservation, by tenant and index.
    pub vcpus: Vec<PlannedVcpu>,
    /// Slots that stayed shorter than the host's `slot_min_ns`, or [`SLOT_MIN_NS`], or a change of tasks, because
    /// nothing could take their work without a promise broken. Each CPU's are counted over its own length.
    pub short_slots: usize,
    /// How many spares of each kind in [`rota_model::Host::spares`] are ready. Their time is in no slot.
    pub spares: Vec<u32>,
}

/// One CPU's slots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpuPlan {
    /// The CPU's number.
    pub cpu: u32,
    /// The slots repeat after this, in ns. Divides the table's length; equals it on a CPU without slots.
    pub length_ns: u64,
    /// Ascending and disjoint, within [0, `length_ns`). Time in no slot is idle.
    pub slots: Vec<Slot>,
    /// The tenant that has this CPU's core to itself: it has slots on the core, several CPUs make the core up, and the
    /// tenant shares no core ([`rota_model::Tenant::exclusive_cores`]).
    pub exclusive_to: Option<TenantId>,
}

/// [start, end) on one CPU, owned by one vCPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Slot {
    /// In ns from the start of the CPU's length.
    pub start_ns: u64,
    /// In ns, greater than `start_ns`.
    pub end_ns: u64,
    /// The owner: its place in [`Plan::vcpus`].
    pub vcpu: u32,
}

impl Slot {
    /// How long it lasts, in ns.
    pub fn len_ns(&self) -> u64 {
        self.end_ns - self.start_ns
    }
}

/// One vCPU: what it was promised and how the table keeps it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedVcpu {
    /// Its tenant.
    pub tenant: TenantId,
    /// Which of the tenant's vCPUs, from 0.
    pub index: u32,
    /// Promised share of one CPU.
    pub share: Share,
    /// Promised bound of the blackout, in ns.
    pub latency_ns: u64,
    /// Never runs outside of its slots.
    pub capped: bool,
    /// C, in ns: it owns this much of every window [k*T, (k+1)*T). Net of the host's costs that is its share of T at
    /// least.
    pub budget_ns: u64,
    /// T, in ns.
    pub period_ns: u64,
    /// The CPUs that it has slots on, ascending.
    pub cpus: Vec<u32>,
    /// The longest time in ns without service in this table, across the wrap: from the end of a slot of it to the start
    /// of the next and the end of the change of tasks there.
    pub blackout_ns: u64,
    /// How it was planned.
    pub method: Method,
    /// Its guest is shown its slots, and relies on their times.
    pub is_shown: bool,
}

/// How a vCPU's slots were found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Method {
    /// It has a whole CPU (share 1).
    Dedicated,
    /// All of its slots are on one CPU, which it may share with others.
    Partitioned,
    /// All of its slots are on one CPU, at the same times as those of its tenant's other vCPUs on theirs.
    Together,
    /// Its budget is cut into pieces that run one after another on several CPUs.
    Split,
    /// It has its part of every block of time that the CPUs of a cluster have in common, on several of them.
    Clustered,
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Method::Dedicated => "dedicated",
            Method::Partitioned => "partitioned",
            Method::Together => "together",
            Method::Split => "split",
            Method::Clustered => "clustered",
        })
    }
}
