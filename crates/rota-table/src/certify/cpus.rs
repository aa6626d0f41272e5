//! Each CPU's slots, slice index and locals.

use bytemuck::Pod;

use super::changes::{self, Taken};
use super::format::Table;
use super::violation::Violation;
use crate::layout::{self, Cpu, Records, Slice, Slot};

/// A slot together with its CPU.
#[derive(Clone, Copy, Debug)]
pub(super) struct CpuSlot {
    pub start_ns: u32,
    pub end_ns: u32,
    pub cpu: u32,
    pub taken: Taken,
}

/// Every vCPU's slots, by CPU and then by start.
pub(super) struct SlotsByVcpu {
    slots: Vec<CpuSlot>,
    /// The slots of vCPU v end at ends[v], where those of v + 1 start.
    ends: Vec<usize>,
}

impl SlotsByVcpu {
    pub fn of(&self, vcpu: usize) -> &[CpuSlot] {
        let start = if vcpu == 0 { 0 } else { self.ends[vcpu - 1] };
        &self.slots[start..self.ends[vcpu]]
    }

    /// Sorts by counting; the slots must have been found sound.
    fn collect(table: &Table, taken: &[Taken]) -> SlotsByVcpu {
        let mut ends = vec![0; table.vcpus.len()];
        for slot in table.slots.iter() {
            ends[slot.vcpu as usize] += 1;
        }
        let mut total = 0;
        for end in &mut ends {
            // For now the start; it becomes the end as the slots come in.
            total += std::mem::replace(end, total);
        }
        let nowhere = Taken { from_ns: 0, changes: false };
        let mut slots = vec![CpuSlot { start_ns: 0, end_ns: 0, cpu: 0, taken: nowhere }; table.slots.len()];
        let mut all = table.slots.iter().zip(taken);
        for (cpu, record) in (0..).zip(table.cpus.iter()) {
            for (slot, &taken) in all.by_ref().take(record.nr_slots as usize) {
                let Slot { start_ns, end_ns, vcpu, .. } = slot;
                let place = &mut ends[vcpu as usize];
                slots[*place] = CpuSlot { start_ns, end_ns, cpu, taken };
                *place += 1;
            }
        }
        SlotsByVcpu { slots, ends }
    }
}

/// Checks every CPU and returns whose slots are where. A change of tasks takes `switch_ns`.
pub(super) fn check(table: &Table, switch_ns: u64) -> Result<SlotsByVcpu, Violation> {
    if table.length_ns == 0 || !layout::HYPERPERIOD_NS.is_multiple_of(table.length_ns) {
        return Err(Violation::TableLength { length_ns: table.length_ns });
    }
    let mut slot_runs = Runs { what: "slots", next: 0, section: table.slots };
    let mut slice_runs = Runs { what: "slices", next: 0, section: table.slices };
    let mut local_runs = Runs { what: "locals", next: 0, section: table.locals };
    let mut owners = Vec::new();
    let mut taken = Vec::with_capacity(table.slots.len());
    for (number, cpu) in (0..).zip(table.cpus.iter()) {
        if cpu.length_ns == 0 || !table.length_ns.is_multiple_of(cpu.length_ns) {
            let (length_ns, table_ns) = (cpu.length_ns, table.length_ns);
            return Err(Violation::CpuLength { cpu: number, length_ns, table_ns });
        }
        let slots = slot_runs.next(number, cpu.first_slot, cpu.nr_slots)?;
        let slices = slice_runs.next(number, cpu.first_slice, cpu.nr_slices)?;
        let locals = local_runs.next(number, cpu.first_local, cpu.nr_locals)?;
        if slots.is_empty() {
            check_empty(table, number, &cpu)?;
        } else {
            check_slots(table, number, &cpu, slots)?;
            check_slices(number, &cpu, slots, slices)?;
            changes::check(number, &cpu, slots, switch_ns, &mut taken)?;
        }
        check_locals(number, slots, locals, &mut owners)?;
    }
    slot_runs.finish()?;
    slice_runs.finish()?;
    local_runs.finish()?;
    Ok(SlotsByVcpu::collect(table, &taken))
}

/// The CPUs' runs in one section, which must follow each other without gap or overlap. That keeps all work linear in
/// the table's size, whatever the CPUs claim.
struct Runs<'a, T> {
    what: &'static str,
    next: u32,
    section: Records<'a, T>,
}

impl<'a, T: Pod> Runs<'a, T> {
    fn next(&mut self, cpu: u32, first: u32, count: u32) -> Result<Records<'a, T>, Violation> {
        let what = self.what;
        if first != self.next {
            return Err(Violation::Run { cpu, what, found: first, expected: self.next });
        }
        let beyond = Violation::RunBeyond { cpu, what, first, count, total: self.total() };
        let run = self.section.run(first, count).ok_or(beyond)?;
        self.next += count;
        Ok(run)
    }

    fn finish(self) -> Result<(), Violation> {
        let (what, claimed, total) = (self.what, self.next, self.total());
        if claimed == total {
            Ok(())
        } else {
            Err(Violation::RunTotal { whose: "CPUs", what, claimed, total })
        }
    }

    /// A section is shorter than 4 GiB, so that its count fits.
    fn total(&self) -> u32 {
        self.section.len() as u32
    }
}

fn check_empty(table: &Table, number: u32, cpu: &Cpu) -> Result<(), Violation> {
    if cpu.nr_slices == 0 && cpu.slice_ns == 1 && cpu.length_ns == table.length_ns {
        return Ok(());
    }
    Err(Violation::EmptyCpu { cpu: number })
}

fn check_slots(table: &Table, number: u32, cpu: &Cpu, slots: Records<Slot>) -> Result<(), Violation> {
    let mut after_ns = 0;
    for Slot { start_ns, end_ns, vcpu, .. } in slots.iter() {
        if start_ns >= end_ns || end_ns > cpu.length_ns {
            return Err(Violation::SlotExtent { cpu: number, start_ns, end_ns, length_ns: cpu.length_ns });
        }
        if start_ns < after_ns {
            return Err(Violation::SlotOrder { cpu: number, start_ns, after_ns });
        }
        let total = table.vcpus.len() as u32;
        if vcpu >= total {
            return Err(Violation::SlotVcpu { cpu: number, start_ns, vcpu, total });
        }
        after_ns = end_ns;
    }
    Ok(())
}

/// Walks slices and slots side by side: each slice must name the first slot that ends after it begins, and the slot
/// after the next must begin in a later slice.
fn check_slices(
    number: u32,
    cpu: &Cpu,
    slots: Records<Slot>,
    slices: Records<Slice>,
) -> Result<(), Violation> {
    let Cpu { length_ns, slice_ns, nr_slices: count, .. } = *cpu;
    if slice_ns == 0 || count != length_ns.div_ceil(slice_ns) || count > layout::SLICES_MAX {
        return Err(Violation::SliceCount { cpu: number, count, slice_ns, length_ns });
    }
    let mut place = 0;
    for (slice, start_ns) in slices.iter().zip((0..length_ns).step_by(slice_ns as usize)) {
        while slots.get(place).is_some_and(|slot| slot.end_ns <= start_ns) {
            place += 1;
        }
        let expected = cpu.first_slot + place as u32;
        let expected_ns = slots.get(place).map_or(length_ns, |slot| slot.end_ns);
        if slice != (Slice { slot: expected, boundary_ns: expected_ns }) {
            let Slice { slot: found, boundary_ns } = slice;
            let cpu = number;
            return Err(Violation::SliceEntry { cpu, start_ns, found, boundary_ns, expected, expected_ns });
        }
        if let Some(Slot { start_ns: third_ns, .. }) = slots.get(place + 2)
            && third_ns - start_ns < slice_ns
        {
            return Err(Violation::SliceCrowded { cpu: number, start_ns, third_ns });
        }
    }
    Ok(())
}

/// `owners` is scratch space.
fn check_locals(
    number: u32,
    slots: Records<Slot>,
    locals: Records<u32>,
    owners: &mut Vec<u32>,
) -> Result<(), Violation> {
    owners.clear();
    owners.extend(slots.iter().map(|slot| slot.vcpu));
    owners.sort_unstable();
    owners.dedup();
    if locals.iter().eq(owners.iter().copied()) {
        return Ok(());
    }
    let place = locals.iter().zip(owners.iter()).take_while(|(local, owner)| local == *owner).count();
    Err(Violation::Locals { cpu: number, owners: owners.len(), place })
}
