//! Plain data in, a table's bytes out.

mod windows;

use rota_model::{Reservation, TenantId};

use crate::layout::{self, Cpu, Header, Slice, Slot, Vcpu};

/// A timetable as plain data: what [`encode`] writes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TableSource {
    /// The table's length in ns: a multiple of every CPU's, a divisor of [`layout::HYPERPERIOD_NS`].
    pub length_ns: u32,
    /// What a change of tasks takes, in ns.
    pub switch_ns: u32,
    /// The CPUs, in any order. One that is left out has no slots; the host's highest must be here.
    pub cpus: Vec<CpuSource>,
    /// The vCPUs, each with a slot at least.
    pub vcpus: Vec<VcpuSource>,
}

/// One CPU's slots.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuSource {
    /// Its number, below [`layout::CPUS_MAX`].
    pub cpu: u32,
    /// Its slots repeat after this many ns. Not looked at if it has none.
    pub length_ns: u32,
    /// Ascending and disjoint; idle time is left out.
    pub slots: Vec<SlotSource>,
    /// One tenant has its core to itself.
    pub exclusive: bool,
}

/// One slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotSource {
    /// First ns of the slot.
    pub start_ns: u32,
    /// First ns after it, at most the CPU's length.
    pub end_ns: u32,
    /// The owner's place in [`TableSource::vcpus`].
    pub vcpu: u32,
}

/// One vCPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VcpuSource {
    /// The tenant's number.
    pub tenant: TenantId,
    /// Which of the tenant's vCPUs, from 0.
    pub index: u32,
    /// What it is promised.
    pub reservation: Reservation,
    /// C of the periodic task that stands for the reservation, in ns.
    pub budget_ns: u32,
    /// T of it, in ns.
    pub period_ns: u32,
    /// Its slots are walls, since others rely on their times: its CPUs do not serve in windows.
    pub walls: bool,
}

/// Why a source cannot be written as a table. Whether a table keeps its promises is the certifier's question.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)] // the messages name the fields
pub enum EncodeError {
    /// A number no CPU may have.
    #[error("CPU {0} is beyond the limit of {limit}", limit = layout::CPUS_MAX - 1)]
    CpuTooHigh(u32),
    /// One CPU, two lists of slots.
    #[error("CPU {0} is there twice")]
    CpuTwice(u32),
    /// An empty slot, one that starts before its predecessor ends, or one that ends beyond the CPU's length.
    #[error(
        "CPU {cpu}: the slot [{start_ns}, {end_ns}) ns is empty, or not between its predecessor's end at {after_ns} \
         ns and the CPU's length of {length_ns} ns"
    )]
    Slot { cpu: u32, start_ns: u32, end_ns: u32, after_ns: u32, length_ns: u32 },
    /// A slot of a vCPU that is not in the source.
    #[error("CPU {cpu}: the slot at {start_ns} ns is of vCPU number {vcpu}, but there are {count}")]
    UnknownVcpu { cpu: u32, start_ns: u32, vcpu: u32, count: usize },
    /// A vCPU that never runs.
    #[error("vCPU {tenant}/{index} has no slot")]
    NoSlot { tenant: TenantId, index: u32 },
    /// Slots on more CPUs than the format allows.
    #[error("vCPU {tenant}/{index} has slots on {cpus} CPUs, more than {max}", max = layout::VCPU_CPUS_MAX)]
    Scattered { tenant: TenantId, index: u32, cpus: u32 },
    /// Slots too short for the slice index.
    #[error(
        "CPU {cpu}: its slots are so short that it needs {slices} slices, more than {max}; plan with a larger \
         shortest slot",
        max = layout::SLICES_MAX
    )]
    Slices { cpu: u32, slices: u32 },
    /// More of something than the format has room for.
    #[error("the table would have {count} {what}, more than {max}")]
    TooMany { what: &'static str, count: usize, max: u32 },
}

/// Writes a table, generation 0.
///
/// # Errors
///
/// The source is malformed or larger than the format allows; see [`EncodeError`].
pub fn encode(source: &TableSource) -> Result<Vec<u8>, EncodeError> {
    let mut tables = Sections::new(source)?;
    let mut cpus: Vec<&CpuSource> = source.cpus.iter().collect();
    cpus.sort_unstable_by_key(|cpu| cpu.cpu);
    for cpu in cpus {
        if cpu.cpu >= layout::CPUS_MAX {
            return Err(EncodeError::CpuTooHigh(cpu.cpu));
        }
        if (cpu.cpu as usize) < tables.cpus.len() {
            return Err(EncodeError::CpuTwice(cpu.cpu));
        }
        while tables.cpus.len() < cpu.cpu as usize {
            tables.push_empty_cpu(source.length_ns, false);
        }
        if cpu.slots.is_empty() {
            tables.push_empty_cpu(source.length_ns, cpu.exclusive);
        } else {
            tables.push_cpu(cpu)?;
        }
    }
    let homes = tables.settle_homes()?;
    tables.open_windows(source);
    tables.into_bytes(source.length_ns, &homes)
}

/// The table's sections as they grow, CPU by CPU.
struct Sections {
    cpus: Vec<Cpu>,
    vcpus: Vec<Vcpu>,
    slots: Vec<Slot>,
    slices: Vec<Slice>,
    locals: Vec<u32>,
    /// Each vCPU with each of its CPUs, by its first slot there: (vCPU, start in ns, CPU).
    homes: Vec<(u32, u32, u32)>,
}

impl Sections {
    fn new(source: &TableSource) -> Result<Sections, EncodeError> {
        let count = source.vcpus.len();
        if count > layout::VCPUS_MAX as usize {
            return Err(EncodeError::TooMany { what: "vCPUs", count, max: layout::VCPUS_MAX });
        }
        let vcpus = source.vcpus.iter().map(|vcpu| Vcpu {
            tenant: vcpu.tenant,
            index: vcpu.index,
            flags: if vcpu.reservation.capped { layout::VCPU_CAPPED } else { 0 },
            share_ppb: vcpu.reservation.share.ppb(),
            latency_ns: vcpu.reservation.latency_ns,
            budget_ns: vcpu.budget_ns,
            period_ns: vcpu.period_ns,
            home_cpu: 0,
            nr_cpus: 0,
            first_home: 0,
            window_ns: 0,
            reserved: [0; 4],
        });
        Ok(Sections {
            cpus: Vec::with_capacity(source.cpus.len()),
            vcpus: vcpus.collect(),
            slots: Vec::with_capacity(source.cpus.iter().map(|cpu| cpu.slots.len()).sum()),
            slices: Vec::new(),
            locals: Vec::with_capacity(count),
            homes: Vec::with_capacity(count),
        })
    }

    fn push_empty_cpu(&mut self, table_length_ns: u32, exclusive: bool) {
        self.cpus.push(Cpu {
            length_ns: table_length_ns,
            slice_ns: 1,
            first_slot: self.slots.len() as u32,
            nr_slots: 0,
            first_slice: self.slices.len() as u32,
            nr_slices: 0,
            first_local: self.locals.len() as u32,
            nr_locals: 0,
            flags: cpu_flags(exclusive),
            switch_ns: 0,
            reserved: [0; 6],
        });
    }

    fn push_cpu(&mut self, source: &CpuSource) -> Result<(), EncodeError> {
        check_slots(source, self.vcpus.len())?;
        let slice_ns = slice_length(&source.slots, source.length_ns);
        let nr_slices = source.length_ns.div_ceil(slice_ns);
        if nr_slices > layout::SLICES_MAX {
            return Err(EncodeError::Slices { cpu: source.cpu, slices: nr_slices });
        }
        let (first_slot, first_slice) = (self.slots.len() as u32, self.slices.len() as u32);
        let first_local = self.locals.len();
        self.push_locals(source);
        self.slots.extend(source.slots.iter().map(|slot| Slot {
            start_ns: slot.start_ns,
            end_ns: slot.end_ns,
            vcpu: slot.vcpu,
            reserved: 0,
        }));
        self.slices.extend(slice_index(source, first_slot, slice_ns, nr_slices));
        self.cpus.push(Cpu {
            length_ns: source.length_ns,
            slice_ns,
            first_slot,
            nr_slots: source.slots.len() as u32,
            first_slice,
            nr_slices,
            first_local: first_local as u32,
            nr_locals: (self.locals.len() - first_local) as u32,
            flags: cpu_flags(source.exclusive),
            switch_ns: 0,
            reserved: [0; 6],
        });
        Ok(())
    }

    /// Notes which vCPUs own slots on a CPU, and from when on.
    fn push_locals(&mut self, source: &CpuSource) {
        let mut first: Vec<(u32, u32)> = source.slots.iter().map(|slot| (slot.vcpu, slot.start_ns)).collect();
        first.sort_unstable();
        first.dedup_by_key(|&mut (vcpu, _)| vcpu);
        self.locals.extend(first.iter().map(|&(vcpu, _)| vcpu));
        self.homes.extend(first.into_iter().map(|(vcpu, start_ns)| (vcpu, start_ns, source.cpu)));
    }

    /// Tells each vCPU its homes, which are all known now, and returns them as they are written.
    fn settle_homes(&mut self) -> Result<Vec<u32>, EncodeError> {
        self.homes.sort_unstable();
        let mut homes = self.homes.as_slice();
        for (number, vcpu) in (0..).zip(&mut self.vcpus) {
            vcpu.first_home = (self.homes.len() - homes.len()) as u32;
            let (own, rest) = homes.split_at(homes.partition_point(|&(owner, ..)| owner == number));
            homes = rest;
            let (tenant, index) = (vcpu.tenant, vcpu.index);
            vcpu.home_cpu = own.first().ok_or(EncodeError::NoSlot { tenant, index })?.2;
            vcpu.nr_cpus = own.len() as u32;
            if vcpu.nr_cpus > layout::VCPU_CPUS_MAX {
                return Err(EncodeError::Scattered { tenant, index, cpus: vcpu.nr_cpus });
            }
        }
        Ok(self.homes.iter().map(|&(.., cpu)| cpu).collect())
    }

    /// Marks the CPUs that can serve their vCPUs in windows, and writes what each of these may claim of a window.
    fn open_windows(&mut self, source: &TableSource) {
        let (length_ns, switch_ns) = (source.length_ns, source.switch_ns);
        for cpu in &mut self.cpus {
            let slots = &self.slots[cpu.first_slot as usize..][..cpu.nr_slots as usize];
            let locals = &self.locals[cpu.first_local as usize..][..cpu.nr_locals as usize];
            let vcpus: Vec<(u32, Vcpu)> =
                locals.iter().map(|&local| (local, self.vcpus[local as usize])).collect();
            if locals.iter().any(|&local| source.vcpus[local as usize].walls) {
                continue;
            }
            let Some(windows) = windows::of(cpu, slots, &vcpus, length_ns, switch_ns) else { continue };
            cpu.flags |= layout::CPU_WINDOWS;
            cpu.switch_ns = switch_ns;
            for (&local, window_ns) in locals.iter().zip(windows) {
                self.vcpus[local as usize].window_ns = window_ns;
            }
        }
    }

    /// Lays the sections out and signs the result.
    fn into_bytes(self, length_ns: u32, homes: &[u32]) -> Result<Vec<u8>, EncodeError> {
        let sections: [&[u8]; 6] = [
            bytemuck::cast_slice(&self.cpus),
            bytemuck::cast_slice(&self.vcpus),
            bytemuck::cast_slice(&self.slots),
            bytemuck::cast_slice(&self.slices),
            bytemuck::cast_slice(&self.locals),
            bytemuck::cast_slice(homes),
        ];
        let mut offsets = [0; 6];
        let mut size = size_of::<Header>();
        for (offset, section) in offsets.iter_mut().zip(sections) {
            *offset = size.next_multiple_of(layout::ALIGN as usize);
            size = *offset + section.len();
        }
        if size > layout::BYTES_MAX as usize {
            return Err(EncodeError::TooMany { what: "bytes", count: size, max: layout::BYTES_MAX });
        }
        let [cpus_offset, vcpus_offset, slots_offset, slices_offset, locals_offset, homes_offset] =
            offsets.map(|at| at as u32);
        let mut header = Header {
            magic: layout::MAGIC,
            version: layout::VERSION,
            bytes: size as u32,
            checksum: 0,
            generation: 0,
            length_ns,
            nr_cpus: self.cpus.len() as u32,
            nr_vcpus: self.vcpus.len() as u32,
            nr_slots: self.slots.len() as u32,
            nr_slices: self.slices.len() as u32,
            nr_locals: self.locals.len() as u32,
            nr_homes: homes.len() as u32,
            cpus_offset,
            vcpus_offset,
            slots_offset,
            slices_offset,
            locals_offset,
            homes_offset,
            reserved: [0; 11],
        };
        let mut bytes = vec![0; size];
        bytes[..size_of::<Header>()].copy_from_slice(bytemuck::bytes_of(&header));
        for (offset, section) in offsets.into_iter().zip(sections) {
            bytes[offset..offset + section.len()].copy_from_slice(section);
        }
        // The checksum and generation fields are still 0, which is how the checksum takes them.
        header.checksum = checksum(&bytes);
        bytes[..size_of::<Header>()].copy_from_slice(bytemuck::bytes_of(&header));
        Ok(bytes)
    }
}

fn cpu_flags(exclusive: bool) -> u32 {
    if exclusive { layout::CPU_EXCLUSIVE } else { 0 }
}

fn check_slots(source: &CpuSource, vcpus: usize) -> Result<(), EncodeError> {
    let mut after_ns = 0;
    for slot in &source.slots {
        let SlotSource { start_ns, end_ns, vcpu } = *slot;
        if start_ns < after_ns || start_ns >= end_ns || end_ns > source.length_ns {
            let length_ns = source.length_ns;
            return Err(EncodeError::Slot { cpu: source.cpu, start_ns, end_ns, after_ns, length_ns });
        }
        if vcpu as usize >= vcpus {
            return Err(EncodeError::UnknownVcpu { cpu: source.cpu, start_ns, vcpu, count: vcpus });
        }
        after_ns = end_ns;
    }
    Ok(())
}

/// A slice length for which no slice meets more than two slots.
///
/// Three neighbours meet one slice if the last ns of the first and the first ns of the third do. No slice that is
/// as long as what lies between these two, or shorter, holds both; the shortest slot, which the thesis takes (section
/// 4.2.1), never does. A longer slice serves as well where a slice happens to begin between the two, for all such
/// pairs, and makes a smaller index. For the closest pair it has to, so candidates are the lengths whose k-th slice
/// begins right with the third slot, k = 1, 2, ...; a few are tried, so that encoding stays linear in the slots.
fn slice_length(slots: &[SlotSource], length_ns: u32) -> u32 {
    const TRIES: u32 = 64;
    let pairs =
        || slots.iter().zip(slots.iter().skip(2)).map(|(first, third)| (first.end_ns - 1, third.start_ns));
    let Some((last, next)) = pairs().min_by_key(|(last, next)| next - last) else { return length_ns };
    let safe_ns = next - last;
    (1..=TRIES)
        .map(|k| next / k)
        .take_while(|&slice_ns| slice_ns > safe_ns)
        .find(|slice_ns| pairs().all(|(last, next)| last / slice_ns != next / slice_ns))
        .unwrap_or(safe_ns)
}

/// For each slice, the first slot that ends after the slice begins.
fn slice_index(
    source: &CpuSource,
    first_slot: u32,
    slice_ns: u32,
    nr_slices: u32,
) -> impl Iterator<Item = Slice> + '_ {
    let mut place = 0;
    (0..nr_slices).map(move |slice| {
        let start_ns = slice * slice_ns;
        while source.slots.get(place).is_some_and(|slot| slot.end_ns <= start_ns) {
            place += 1;
        }
        let boundary_ns = source.slots.get(place).map_or(source.length_ns, |slot| slot.end_ns);
        Slice { slot: first_slot + place as u32, boundary_ns }
    })
}

/// The checksum of the format. The certifier has its own, on purpose.
fn checksum(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks();
    let mut last = [0; size_of::<u64>()];
    last[..rest.len()].copy_from_slice(rest);
    let last = (!rest.is_empty()).then_some(&last);
    words.iter().chain(last).fold(0xcbf2_9ce4_8422_2325, |hash, &word| {
        let hash = (hash ^ u64::from_le_bytes(word)).wrapping_mul(0x0000_0100_0000_01b3);
        hash ^ hash >> 32
    })
}

#[cfg(test)]
mod tests {
    use rota_model::Share;

    use super::*;

    fn cpu(cpu: u32, length_ns: u32, slots: &[(u32, u32, u32)]) -> CpuSource {
        let slots = slots.iter().map(|&(start_ns, end_ns, vcpu)| SlotSource { start_ns, end_ns, vcpu });
        CpuSource { cpu, length_ns, slots: slots.collect(), exclusive: false }
    }

    fn source(length_ns: u32, cpus: Vec<CpuSource>, vcpus: u32) -> TableSource {
        let reservation = Reservation { share: Share::ONE, latency_ns: 1, capped: false };
        let vcpus = (0..vcpus).map(|index| VcpuSource {
            tenant: 7,
            index,
            reservation,
            budget_ns: 1,
            period_ns: length_ns,
            walls: false,
        });
        TableSource { length_ns, switch_ns: 0, cpus, vcpus: vcpus.collect() }
    }

    fn slices(slots: &[(u32, u32, u32)], length_ns: u32) -> u32 {
        length_ns.div_ceil(slice_length(&cpu(0, length_ns, slots).slots, length_ns))
    }

    #[test]
    fn as_few_slices_as_serve() {
        assert_eq!(slices(&[(5, 10, 0)], 420), 1);
        assert_eq!(slices(&[(0, 1, 0), (400, 420, 1)], 420), 1);
        // Quarters: two slices, although a slice as long as the shortest slot would make four.
        assert_eq!(slices(&[(0, 105, 0), (105, 210, 1), (210, 315, 2), (315, 420, 3)], 420), 2);
        // The middle slot alone keeps its neighbours apart.
        assert_eq!(slices(&[(0, 200, 0), (200, 201, 1), (201, 420, 2)], 420), 3);
        assert_eq!(slices(&[(0, 209, 0), (209, 210, 1), (210, 420, 2)], 420), 2);
        assert_eq!(slices(&[(0, 1, 0), (1, 2, 1), (2, 3, 2)], 420), 210);
    }

    #[test]
    fn the_same_source_in_any_order_is_the_same_bytes() {
        let cpus = vec![cpu(3, 420, &[(0, 60, 0)]), cpu(1, 210, &[(100, 160, 1)])];
        let bytes = encode(&source(840, cpus.clone(), 2)).unwrap();
        assert_eq!(encode(&source(840, cpus.into_iter().rev().collect(), 2)).unwrap(), bytes);
    }

    #[test]
    fn malformed_sources_are_refused_with_the_place() {
        let refused = |cpus: Vec<CpuSource>| encode(&source(840, cpus, 1)).unwrap_err();
        assert_eq!(refused(vec![cpu(4096, 840, &[])]), EncodeError::CpuTooHigh(4096));
        assert_eq!(refused(vec![cpu(2, 840, &[]), cpu(2, 840, &[(0, 1, 0)])]), EncodeError::CpuTwice(2));
        assert_eq!(refused(vec![cpu(2, 840, &[])]), EncodeError::NoSlot { tenant: 7, index: 0 });
        let stranger = refused(vec![cpu(2, 840, &[(3, 4, 1)])]);
        assert_eq!(stranger, EncodeError::UnknownVcpu { cpu: 2, start_ns: 3, vcpu: 1, count: 1 });
        for (start_ns, end_ns) in [(9, 20), (10, 10), (20, 19), (20, 841)] {
            let slot = EncodeError::Slot { cpu: 2, start_ns, end_ns, after_ns: 10, length_ns: 840 };
            assert_eq!(refused(vec![cpu(2, 840, &[(0, 10, 0), (start_ns, end_ns, 0)])]), slot);
        }
    }

    #[test]
    fn slots_too_short_for_the_index_are_refused() {
        let length_ns = layout::HYPERPERIOD_NS;
        let short = cpu(0, length_ns, &[(0, 1, 0), (1, 2, 0), (2, 3, 0)]);
        let refused = encode(&source(length_ns, vec![short], 1)).unwrap_err();
        assert_eq!(refused, EncodeError::Slices { cpu: 0, slices: length_ns / 2 });
    }

    #[test]
    fn tables_larger_than_the_format_are_refused() {
        let cpus = (0..2048).map(|number| {
            let slots = (0..1 << 11).map(|start_ns| (50_000 * start_ns, 50_000 * start_ns + 25_000, number));
            cpu(number, layout::HYPERPERIOD_NS, &slots.collect::<Vec<_>>())
        });
        let refused = encode(&source(layout::HYPERPERIOD_NS, cpus.collect(), 2048)).unwrap_err();
        assert!(matches!(refused, EncodeError::TooMany { what: "bytes", .. }), "{refused}");
    }

    /// The thesis' evaluation host: 44 CPUs, four vCPUs each, here with a latency of 1 ms.
    #[test]
    fn a_host_of_176_vcpus_takes_less_than_64_kib() {
        let period_ns = 102_702_600 / 156;
        let cpus = (0..44).map(|number| {
            let slot = |place: u32| (place * period_ns / 4, (place + 1) * period_ns / 4, 4 * number + place);
            cpu(number, period_ns, &[slot(0), slot(1), slot(2), slot(3)])
        });
        let bytes = encode(&source(period_ns, cpus.collect(), 176)).unwrap();
        assert!(bytes.len() < 64 << 10, "{}", bytes.len());
    }
}
