//! The certifier: the gate that every table passes before it is installed.
//! Whoever changes it: no code of the encoder or the planner may be used here.

mod cpus;
mod format;
mod records;
mod service;
mod violation;

use rota_model::{CpuSet, Reservation, TenantId};

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

/// Checks that `bytes` are a sound table which keeps exactly these promises.
///
/// It is given nothing else, shares no code with the encoder or the planner, and takes any bytes for hostile. A table
/// passes if
///
/// - **format**: magic, version, size and checksum are right, the sections are aligned, in order and within the table,
///   and reserved fields and what lies between sections are 0;
/// - **CPUs**: the table's length divides the hyperperiod and each CPU's length divides the table's; the CPUs' runs of
///   slots, slices and locals cover their sections in CPU order; slots are ascending, disjoint, within the CPU's length
///   and of vCPUs that exist; the slice index sends every offset to its slot; the locals are exactly the slots' owners;
/// - **records**: there is one vCPU record for each promise and none without, with the promised share, latency and
///   cap; its period T divides the table's length and its budget C is at least the share of T;
/// - **promises**: each vCPU's slots lie on CPUs that it may run on and never overlap; it has at least C in every
///   window [kT, (k+1)T); no gap between its slots is longer than the latency; a capped vCPU has no more in the whole
///   table than the share of T, rounded up to a ns, in each period, hence exactly that in every window; home_cpu and
///   nr_cpus say where its slots are.
///
/// A vCPU's slots repeat with the least common multiple of its CPUs' lengths, which divides the table's length; gaps
/// and windows are looked at around that ring, so that the wrap is no special place. The time taken is linear in slots,
/// slices and windows, but for sorting.
///
/// # Errors
///
/// The first rule found broken, with place and extent.
pub fn certify(bytes: &[u8], promises: &[Promise]) -> Result<Certified, Violation> {
    let table = Table::read(bytes)?;
    let slots = cpus::check(&table)?;
    let promise_of = records::check(&table, promises)?;
    service::check(&table, &slots, &promise_of)?;
    Ok(Certified { bytes: bytes.to_vec() })
}
