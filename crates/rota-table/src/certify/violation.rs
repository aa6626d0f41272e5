//! What a table can have wrong.

use std::fmt;

use rota_model::{CpuSet, Share, TenantId};

use crate::layout;

/// A vCPU's name, `tenant/index`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VcpuName {
    /// The tenant's number.
    pub tenant: TenantId,
    /// Which of the tenant's vCPUs, from 0.
    pub index: u32,
}

impl fmt::Display for VcpuName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "vCPU {}/{}", self.tenant, self.index)
    }
}

/// The rule that a table breaks: what, where and by how much. Times are ns from the table's start.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)] // the messages name the fields
pub enum Violation {
    // Format.
    #[error("{bytes} bytes are no table: its header alone takes {}", size_of::<layout::Header>())]
    Short { bytes: usize },
    #[error("not a table: it starts with {found:#018x} instead of {:#018x}", layout::MAGIC)]
    Magic { found: u64 },
    #[error("the table has version {found}, this program knows version {}", layout::VERSION)]
    Version { found: u32 },
    #[error("the header says {header} bytes, but there are {actual}; the table may have been cut off")]
    Size { header: u32, actual: usize },
    #[error("the table is {bytes} bytes long, more than {}", layout::BYTES_MAX)]
    TooLong { bytes: usize },
    #[error(
        "the checksum is {found:#018x}, but the bytes give {computed:#018x}; the table was damaged or altered"
    )]
    Checksum { found: u64, computed: u64 },
    #[error("a reserved field of {what} {number} is not 0")]
    Reserved { what: &'static str, number: usize },
    #[error("the table has {count} CPUs; from 1 to {} are allowed", layout::CPUS_MAX)]
    NrCpus { count: u32 },
    #[error("the section of {what} starts at byte {offset}, not a multiple of {}", layout::ALIGN)]
    Misaligned { what: &'static str, offset: u32 },
    #[error("the section of {what} starts at byte {offset}, before its predecessor ends at byte {after}")]
    Overlap { what: &'static str, offset: u32, after: u64 },
    #[error("the section of {what} ends at byte {end}, beyond the table's {bytes}")]
    Beyond { what: &'static str, end: u64, bytes: u32 },
    #[error("byte {at} belongs to no section and is not 0")]
    Padding { at: usize },

    // CPUs.
    #[error("the table's length of {length_ns} ns does not divide {} ns", layout::HYPERPERIOD_NS)]
    TableLength { length_ns: u32 },
    #[error("CPU {cpu}: its length of {length_ns} ns does not divide the table's {table_ns} ns")]
    CpuLength { cpu: u32, length_ns: u32, table_ns: u32 },
    #[error(
        "CPU {cpu} has no slots; then it must have the table's length, 1 ns slices and no slice or local"
    )]
    EmptyCpu { cpu: u32 },
    #[error("CPU {cpu}: its {what} start at place {found}, not at {expected} where its predecessor's end")]
    Run { cpu: u32, what: &'static str, found: u32, expected: u32 },
    #[error("CPU {cpu}: its {count} {what} from place {first} on are more than the table's {total}")]
    RunBeyond { cpu: u32, what: &'static str, first: u32, count: u32, total: u32 },
    #[error("the {whose} have {claimed} {what} together, but the table has {total}")]
    RunTotal { whose: &'static str, what: &'static str, claimed: u32, total: u32 },
    #[error("CPU {cpu}: the slot [{start_ns}, {end_ns}) ns is empty or ends beyond the CPU's {length_ns} ns")]
    SlotExtent { cpu: u32, start_ns: u32, end_ns: u32, length_ns: u32 },
    #[error("CPU {cpu}: the slot at {start_ns} ns starts before its predecessor ends at {after_ns} ns")]
    SlotOrder { cpu: u32, start_ns: u32, after_ns: u32 },
    #[error("CPU {cpu}: the slot at {start_ns} ns is of vCPU number {vcpu}, but the table has {total}")]
    SlotVcpu { cpu: u32, start_ns: u32, vcpu: u32, total: u32 },
    #[error(
        "CPU {cpu}: {count} slices of {slice_ns} ns do not make up {length_ns} ns, or are more than {}",
        layout::SLICES_MAX
    )]
    SliceCount { cpu: u32, count: u32, slice_ns: u32, length_ns: u32 },
    #[error(
        "CPU {cpu}: the slice at {start_ns} ns names slot {found} with boundary {boundary_ns} ns, but the first \
        slot that ends after its start is slot {expected}, at {expected_ns} ns"
    )]
    SliceEntry { cpu: u32, start_ns: u32, found: u32, boundary_ns: u32, expected: u32, expected_ns: u32 },
    #[error("CPU {cpu}: the slice at {start_ns} ns meets a third slot at {third_ns} ns")]
    SliceCrowded { cpu: u32, start_ns: u32, third_ns: u32 },
    #[error("CPU {cpu}: {changes} changes of task of {switch_ns} ns each do not fit into its {length_ns} ns")]
    Changes { cpu: u32, changes: u64, switch_ns: u64, length_ns: u64 },
    #[error(
        "CPU {cpu}: its locals are not, ascending, the {owners} vCPUs that own its slots; they differ at {place}"
    )]
    Locals { cpu: u32, owners: usize, place: usize },

    #[error("CPU {cpu} has unknown flags {flags:#x}")]
    CpuFlags { cpu: u32, flags: u32 },

    // Homes.
    #[error("{vcpu} has no slot")]
    NoSlot { vcpu: VcpuName },
    #[error("{vcpu}: its home is CPU {found} in the table, but its first slot is on CPU {expected}")]
    HomeCpu { vcpu: VcpuName, found: u32, expected: u32 },
    #[error("{vcpu} has slots on {expected} CPUs, the table says {found}")]
    CpuCount { vcpu: VcpuName, found: u32, expected: u32 },
    #[error("{vcpu} has slots on {cpus} CPUs; {} are allowed", layout::VCPU_CPUS_MAX)]
    Scattered { vcpu: VcpuName, cpus: u32 },
    #[error("{vcpu}: its homes start at place {found}, not at {expected} where its predecessor's end")]
    HomeRun { vcpu: VcpuName, found: u32, expected: u32 },
    #[error("{vcpu}: its {count} homes are more than are left of the table's {total}")]
    HomesBeyond { vcpu: VcpuName, count: u32, total: u32 },
    #[error("{vcpu}: CPU {found} is among its homes where CPU {expected} has to be")]
    Homes { vcpu: VcpuName, found: u32, expected: u32 },

    // Records.
    #[error("{vcpu} has unknown flags {flags:#x}")]
    Flags { vcpu: VcpuName, flags: u32 },
    #[error("{vcpu} is promised twice")]
    PromisedTwice { vcpu: VcpuName },
    #[error("{vcpu} is in the table twice")]
    RecordedTwice { vcpu: VcpuName },
    #[error("{vcpu} is in the table, but nothing is promised to it")]
    NotPromised { vcpu: VcpuName },
    #[error("{vcpu} is promised a reservation, but is not in the table")]
    Missing { vcpu: VcpuName },
    #[error("{vcpu} is promised a share of {promised}, the table says {found_ppb} parts per billion")]
    Share { vcpu: VcpuName, promised: Share, found_ppb: u32 },
    #[error("{vcpu} is promised a latency of {promised_ns} ns, the table says {found_ns} ns")]
    Latency { vcpu: VcpuName, promised_ns: u64, found_ns: u64 },
    #[error("{vcpu}: capped is {promised} in its promise and {found} in the table")]
    Capped { vcpu: VcpuName, promised: bool, found: bool },
    #[error("{vcpu}: its period of {period_ns} ns does not divide the table's {table_ns} ns")]
    Period { vcpu: VcpuName, period_ns: u32, table_ns: u32 },
    #[error("{vcpu}: its budget of {budget_ns} ns a period is less than its share, {least_ns} ns")]
    Budget { vcpu: VcpuName, budget_ns: u32, least_ns: u64 },

    // Windows.
    #[error("CPU {cpu}: a change of tasks takes {expected} ns where the table says {found} ns")]
    SwitchTime { cpu: u32, found: u32, expected: u64 },
    #[error("CPU {cpu} serves {count} vCPUs in windows; from 1 to {} are allowed", layout::WINDOW_VCPUS_MAX)]
    WindowVcpus { cpu: u32, count: u32 },
    #[error("CPU {cpu} serves its vCPUs in windows, but {vcpu} has slots elsewhere as well")]
    WindowMigrates { cpu: u32, vcpu: VcpuName },
    #[error("CPU {cpu} serves its vCPUs in windows, but one has all of its time")]
    WindowWhole { cpu: u32 },
    #[error(
        "{vcpu} can wait for {wait_ns} ns where it is served in windows, {} ns longer than its latency of \
        {latency_ns} ns",
        wait_ns - latency_ns
    )]
    WindowWait { vcpu: VcpuName, wait_ns: u64, latency_ns: u64 },
    #[error(
        "{vcpu} may claim {found_ns} ns of each window; {least_ns} ns are due, or 0 where slots say who is served"
    )]
    WindowTime { vcpu: VcpuName, found_ns: u32, least_ns: u64 },
    #[error("{vcpu} is capped, but may claim {found_ns} ns of each window, where {most_ns} ns are due to it")]
    WindowBeyond { vcpu: VcpuName, found_ns: u32, most_ns: u64 },
    #[error("CPU {cpu}: its vCPUs may claim {claimed_ns} ns in windows, but the table has {length_ns} ns")]
    WindowClaims { cpu: u32, claimed_ns: u64, length_ns: u64 },

    // Promises.
    #[error("{vcpu} has a slot on CPU {cpu} at {start_ns} ns, but may run on CPUs {allowed} only")]
    Affinity { vcpu: VcpuName, cpu: u32, start_ns: u32, allowed: CpuSet },
    #[error(
        "{vcpu}: its slots repeat only after {pieces} slots and {windows} windows, too many to look at; give its \
        CPUs the same length, a multiple of its period"
    )]
    Unwieldy { vcpu: VcpuName, pieces: u64, windows: u64 },
    #[error("{vcpu} is on CPUs {first} and {second} at once, from {from_ns} to {until_ns} ns")]
    TwoCpus { vcpu: VcpuName, first: u32, second: u32, from_ns: u64, until_ns: u64 },
    #[error("{vcpu} has {got_ns} ns in [{from_ns}, {until_ns}) ns{}, {} ns short of its budget of {budget_ns} ns",
        lost(*lost_ns), u64::from(*budget_ns).saturating_sub(*got_ns))]
    Window { vcpu: VcpuName, from_ns: u64, until_ns: u64, got_ns: u64, lost_ns: u64, budget_ns: u32 },
    #[error("{vcpu} is not served for {} ns from {from_ns} ns on, {} ns longer than its latency of {latency_ns} ns",
        until_ns - from_ns, until_ns - from_ns - latency_ns)]
    Blackout { vcpu: VcpuName, from_ns: u64, until_ns: u64, latency_ns: u64 },
    #[error(
        "{vcpu} is first served {before_ns} ns after the table's start and last {after_ns} ns before its end; where \
        tables are exchanged it could wait longer than its latency of {latency_ns} ns, as one exceeds half of it"
    )]
    Edges { vcpu: VcpuName, before_ns: u64, after_ns: u64, latency_ns: u64 },
    #[error(
        "{vcpu} has a slot on CPU {cpu} at {start_ns} ns, but tenant {owner} has the core of CPUs {core} to itself"
    )]
    Neighbour { vcpu: VcpuName, cpu: u32, start_ns: u32, owner: TenantId, core: CpuSet },
    #[error("a tenant has the core of CPUs {core} to itself, but the table has no CPU {cpu}")]
    Core { cpu: u32, core: CpuSet },
    #[error("CPU {cpu}: that one tenant has its core to itself is {expected}, and {found} in the table")]
    Exclusive { cpu: u32, found: bool, expected: bool },
    #[error("{vcpu} is to have its slots together with {with}, but at {at_ns} ns only one of them has one")]
    NotTogether { vcpu: VcpuName, with: VcpuName, at_ns: u64 },
    #[error(
        "{vcpu} is to have its slots together with others, but CPU {cpu} serves it in windows, not by its slots"
    )]
    TogetherInWindows { vcpu: VcpuName, cpu: u32 },
    #[error("{vcpu} is capped, but has {got_ns} ns in the whole table, {} ns more than its share of {most_ns} ns",
        got_ns - most_ns)]
    Cap { vcpu: VcpuName, got_ns: u64, most_ns: u64 },
}

fn lost(lost_ns: u64) -> String {
    match lost_ns {
        0 => String::new(),
        _ => format!(", without the {lost_ns} ns that changing to it takes"),
    }
}
