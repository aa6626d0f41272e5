//! A plan in the binary layout of Tableau's prototype for Xen (thesis, appendix D; where the appendix has lost a page,
//! the prototype's own reading of the layout).
//!
//! All integers are little-endian and of 64 bits, but for a vCPU's two numbers. Records are 64 bytes, sections start at
//! multiples of 4096 bytes:
//!
//! ```text
//! header       number of vCPUs, offset of their records, number of CPUs, offset of each CPU's part (64 of them)
//! vCPUs        a record each: domain and vCPU number (32 bits each), mask of its CPUs, flags, 0
//! for each CPU, with offsets from its part's start:
//!   header     number and offset of slots, of slices; length of a slice, of the table; number and offset of vCPUs
//!   slots      start, vCPU, length, start, end; idle time is a slot of no vCPU
//!   slices     start, end, and three slots: the first, an idle one between, the last
//!   vCPUs      those with slots here, as above
//! ```
//!
//! What the layout cannot say is converted: every CPU's slots are written out for the whole table, and a capped vCPU
//! has the flag of one that migrates, which the prototype keeps out of the second level too.
//! The configuration's tenants are the domains from 1 on: domain 0 is Xen's own.

use anyhow::{Result, ensure};
use rota_plan::{CpuPlan, Plan, PlannedVcpu, Slot};

/// The header has room for so many CPUs, and a mask of CPUs for so many bits.
const CPUS_MAX: u32 = 64;
/// Stands for no slot and for no vCPU.
const NONE: u64 = 32_767;
const PAGE: usize = 4096;
const RECORD: usize = 64;
/// Of a vCPU: it takes no part in the second level.
const BOUND: u64 = 1;

/// Writes the plan.
///
/// # Errors
///
/// The layout has no room for a CPU's number, for so many vCPUs, or for so many slots on one CPU.
pub fn render_tableau(plan: &Plan) -> Result<Vec<u8>> {
    let last = plan.cpus.last().map_or(0, |cpu| cpu.cpu);
    ensure!(last < CPUS_MAX, "CPU {last}: a table of Tableau has room for CPUs below {CPUS_MAX}");
    let vcpus = plan.vcpus.len();
    ensure!((vcpus as u64) < NONE, "{vcpus} vCPUs: a table of Tableau has room for less than {NONE}");
    let list = vcpu_list(&mut plan.vcpus.iter());
    let mut header = Bytes::default();
    header.words([vcpus as u64, PAGE as u64, u64::from(last) + 1]);
    let mut parts = Vec::new();
    let mut offset = PAGE + list.len();
    for number in 0..=last {
        let part = part(plan, number)?;
        header.words([offset as u64]);
        offset += part.len();
        parts.push(part);
    }
    Ok([header.aligned(PAGE), list, parts.concat()].concat())
}

/// One CPU's part.
fn part(plan: &Plan, number: u32) -> Result<Vec<u8>> {
    let slots = whole_table(plan, number);
    ensure!(
        (slots.len() as u64) < NONE,
        "CPU {number} has {} slots: a table of Tableau has room for less than {NONE}",
        slots.len()
    );
    let owned = slots.iter().filter(|slot| slot.owner != NONE);
    let slice_ns = owned.map(|slot| slot.end_ns - slot.start_ns).min().unwrap_or(plan.table_length_ns);
    let mut slot_list = Bytes::default();
    for &Stretch { start_ns, end_ns, owner } in &slots {
        slot_list.record(|record| record.words([start_ns, owner, end_ns - start_ns, start_ns, end_ns]));
    }
    let slot_list = slot_list.aligned(PAGE);
    let (slices, slice_list) = slice_list(&slots, slice_ns, plan.table_length_ns);
    let mut locals = plan.vcpus.iter().filter(|vcpu| vcpu.cpus.contains(&number));
    let nr_locals = locals.clone().count();
    let mut header = Bytes::default();
    header.words([slots.len() as u64, PAGE as u64]);
    header.words([slices, (PAGE + slot_list.len()) as u64]);
    header.words([slice_ns, plan.table_length_ns]);
    header.words([nr_locals as u64, (PAGE + slot_list.len() + slice_list.len()) as u64]);
    Ok([header.aligned(PAGE), slot_list, slice_list, vcpu_list(&mut locals)].concat())
}

/// A slot, or idle time.
#[derive(Clone, Copy)]
struct Stretch {
    start_ns: u64,
    end_ns: u64,
    /// The vCPU's place in the list, or [`NONE`].
    owner: u64,
}

/// All of a CPU's time in a table without gaps.
fn whole_table(plan: &Plan, number: u32) -> Vec<Stretch> {
    let idle =
        CpuPlan { cpu: number, length_ns: plan.table_length_ns, slots: Vec::new(), exclusive_to: None };
    let cpu = plan.cpus.iter().find(|cpu| cpu.cpu == number).unwrap_or(&idle);
    let mut stretches: Vec<Stretch> = Vec::new();
    let mut now = 0;
    for round_ns in (0..plan.table_length_ns).step_by(cpu.length_ns as usize) {
        for &Slot { start_ns, end_ns, vcpu } in &cpu.slots {
            let (start_ns, end_ns) = (round_ns + start_ns, round_ns + end_ns);
            if now < start_ns {
                stretches.push(Stretch { start_ns: now, end_ns: start_ns, owner: NONE });
            }
            stretches.push(Stretch { start_ns, end_ns, owner: u64::from(vcpu) });
            now = end_ns;
        }
    }
    if now < plan.table_length_ns {
        stretches.push(Stretch { start_ns: now, end_ns: plan.table_length_ns, owner: NONE });
    }
    stretches
}

/// The slices, and their number. None is longer than a slot with an owner, so that it meets two of these at most, and
/// idle time only before, between or behind them.
fn slice_list(slots: &[Stretch], slice_ns: u64, table_ns: u64) -> (u64, Vec<u8>) {
    let mut list = Bytes::default();
    let mut first = 0;
    for start_ns in (0..table_ns).step_by(slice_ns as usize) {
        let end_ns = table_ns.min(start_ns + slice_ns);
        while slots[first].end_ns <= start_ns {
            first += 1;
        }
        let met = slots[first..].partition_point(|slot| slot.start_ns < end_ns);
        let (middle, last) = match met {
            1 => (NONE, NONE),
            2 => (NONE, first as u64 + 1),
            _ => (first as u64 + 1, first as u64 + 2),
        };
        list.record(|record| record.words([start_ns, end_ns, first as u64, middle, last]));
    }
    (table_ns.div_ceil(slice_ns), list.aligned(PAGE))
}

fn vcpu_list(vcpus: &mut dyn Iterator<Item = &PlannedVcpu>) -> Vec<u8> {
    let mut list = Bytes::default();
    for vcpu in vcpus {
        let mask = vcpu.cpus.iter().map(|cpu| 1 << cpu).sum::<u64>();
        let flags = if vcpu.cpus.len() > 1 || vcpu.capped { BOUND } else { 0 };
        list.record(|record| {
            record.halves([vcpu.tenant + 1, vcpu.index]);
            record.words([mask, flags, 0]);
        });
    }
    list.aligned(PAGE)
}

/// Bytes as they are written.
#[derive(Default)]
struct Bytes(Vec<u8>);

impl Bytes {
    fn words<const N: usize>(&mut self, words: [u64; N]) {
        words.iter().for_each(|word| self.0.extend(word.to_le_bytes()));
    }

    fn halves(&mut self, halves: [u32; 2]) {
        halves.iter().for_each(|half| self.0.extend(half.to_le_bytes()));
    }

    fn record(&mut self, write: impl FnOnce(&mut Bytes)) {
        write(self);
        self.0.resize(self.0.len().next_multiple_of(RECORD), 0);
    }

    fn aligned(mut self, to: usize) -> Vec<u8> {
        self.0.resize(self.0.len().next_multiple_of(to), 0);
        self.0
    }
}

#[cfg(test)]
mod tests;
