//! The certifier: the gate that every table passes before it is installed.
//! Whoever changes it: no code of the encoder or the planner may be used here.

mod changes;
mod cores;
mod cpus;
mod format;
mod homes;
mod records;
mod service;
mod together;
mod violation;
mod windows;

use std::borrow::Cow;
use std::sync::Arc;

use rota_model::{Costs, CpuSet, Reservation, TenantId};

use crate::layout::Header;
use crate::view::TableView;
use format::Table;
pub use violation::{VcpuName, Violation};

/// What one vCPU has been promised, and where it may run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Promise {
    /// The tenant's number.
    pub tenant: TenantId,
    /// Which of the tenant's vCPUs, from 0.
    pub index: u32,
    /// The promise.
    pub reservation: Reservation,
    /// The CPUs that it may run on.
    pub cpus: CpuSet,
    /// The host's cores of several CPUs, of which its tenant shares none with others; empty if it may share them.
    pub unshared: Arc<[CpuSet]>,
    /// It has its slots at the same times as all vCPUs of its tenant that are promised this.
    pub together: bool,
}

/// A table that has passed. Only [`certify`] makes one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certified {
    bytes: Vec<u8>,
}

impl Certified {
    /// The table.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The table, to look things up in.
    pub fn view(&self) -> TableView<'_> {
        TableView::new(&self.bytes).expect("what the certifier checks includes what the view needs")
    }

    /// The table's generation; 0 until it has been given one.
    pub fn generation(&self) -> u64 {
        self.view().header().generation
    }

    /// The same table with this generation, which is not part of what the checksum covers.
    #[must_use]
    pub fn with_generation(mut self, generation: u64) -> Certified {
        let place = std::mem::offset_of!(Header, generation);
        self.bytes[place..place + size_of::<u64>()].copy_from_slice(&generation.to_le_bytes());
        self
    }
}

/// Checks that `bytes` are a sound table which keeps exactly these promises, net of these costs. Bytes that are handed
/// over are not copied.
///
/// It is given nothing else, shares no code with the encoder or the planner, and takes any bytes for hostile. A table
/// passes if
///
/// - **format**: magic, version, size and checksum are right, the sections are aligned, in order and within the table,
///   and reserved fields and what lies between sections are 0;
/// - **CPUs**: the table's length divides the hyperperiod and each CPU's length divides the table's; the CPUs' runs of
///   slots, slices and locals cover their sections in CPU order; slots are ascending, disjoint, within the CPU's length
///   and of vCPUs that exist; the slice index sends every offset to its slot; the locals are exactly the slots' owners;
/// - **homes**: home_cpu, nr_cpus and homes of each vCPU say on which CPUs its slots are, no more than 64, and the
///   vCPUs' runs of homes cover their section in vCPU order;
/// - **records**: there is one vCPU record for each promise and none without, with the promised share, latency and
///   cap; its period T divides the table's length and its budget C is at least the share of T;
/// - **promises**: each vCPU's slots lie on CPUs that it may run on and never overlap; it has at least C in every
///   window [kT, (k+1)T); no gap in its service is longer than the latency, nor longer than half of it at the table's
///   start or end, where another table may hold; a capped vCPU has no more in the whole table than the share of T,
///   rounded up to a ns, in each period, and what costs take in its costliest period;
/// - **windows**: on a CPU that serves its vCPUs in windows each vCPU has its slots there alone, they are no more than
///   the scheduler looks at, and none has the CPU wholly; what each may claim of a window has room for C and all
///   changes of task to it there, and a capped one may claim no more than that or its slots come to; over the table's
///   length all claims come to no more than that; and each latency is at least 2 (T - C), what the vCPU can wait for
///   there;
/// - **cores**: where a vCPU of a tenant that shares no cores has a slot, no other tenant has one on the same core, and
///   exactly the CPUs of such cores are marked;
/// - **together**: the vCPUs of one tenant that are promised so have slots at exactly the same times, and none of them
///   is on a CPU that serves in windows, where slots are no walls.
///
/// All service is net: each stretch of slots of one vCPU that touch, on one CPU, loses `costs.switch_ns` at its start,
/// and `costs.migration_ns` as well if the vCPU's stretch before was on another CPU. What a stretch is too short to
/// lose, the next on that CPU loses. A stretch ends with its CPU's length, for another table may begin there; but a CPU
/// that is one vCPU's all of the time changes no tasks.
///
/// A vCPU's slots repeat with the least common multiple of its CPUs' lengths, which divides the table's length; gaps
/// and windows are looked at around that ring, so that the wrap is no special place. The time taken is linear in slots,
/// slices and windows, but for sorting.
///
/// # Errors
///
/// The first rule found broken, with place and extent.
pub fn certify<'a>(
    bytes: impl Into<Cow<'a, [u8]>>,
    promises: &[Promise],
    costs: Costs,
) -> Result<Certified, Violation> {
    let bytes = bytes.into();
    check(&bytes, promises, costs)?;
    Ok(Certified { bytes: bytes.into_owned() })
}

fn check(bytes: &[u8], promises: &[Promise], costs: Costs) -> Result<(), Violation> {
    let table = Table::read(bytes)?;
    let slots = cpus::check(&table, costs.switch_ns)?;
    homes::check(&table, &slots)?;
    let promise_of = records::check(&table, promises)?;
    let least_ns = service::check(&table, &slots, &promise_of, costs.migration_ns)?;
    windows::check(&table, costs.switch_ns, &least_ns)?;
    cores::check(&table, &slots, &promise_of)?;
    together::check(&table, &slots, &promise_of)
}
