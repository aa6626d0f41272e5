//! The table's bytes into sections, nothing taken for granted.

use bytemuck::Pod;

use super::violation::Violation;
use crate::layout::{self, Cpu, Header, Records, Slice, Slot, Vcpu};

// There is no room for more vCPUs, so that their number needs no check.
const _: () = assert!(layout::BYTES_MAX / size_of::<Vcpu>() as u32 <= layout::VCPUS_MAX);

/// A table whose sections are where they must be. What is in them is still unchecked, but for reserved fields.
pub(super) struct Table<'a> {
    pub length_ns: u32,
    pub cpus: Records<'a, Cpu>,
    pub vcpus: Records<'a, Vcpu>,
    pub slots: Records<'a, Slot>,
    pub slices: Records<'a, Slice>,
    pub locals: Records<'a, u32>,
    pub homes: Records<'a, u32>,
}

impl<'a> Table<'a> {
    pub fn read(bytes: &'a [u8]) -> Result<Table<'a>, Violation> {
        let header = read_header(bytes)?;
        if header.nr_cpus == 0 || header.nr_cpus > layout::CPUS_MAX {
            return Err(Violation::NrCpus { count: header.nr_cpus });
        }
        let mut sections = Sections { bytes, after: size_of::<Header>() as u64 };
        let table = Table {
            length_ns: header.length_ns,
            cpus: sections.next("CPUs", header.cpus_offset, header.nr_cpus)?,
            vcpus: sections.next("vCPUs", header.vcpus_offset, header.nr_vcpus)?,
            slots: sections.next("slots", header.slots_offset, header.nr_slots)?,
            slices: sections.next("slices", header.slices_offset, header.nr_slices)?,
            locals: sections.next("locals", header.locals_offset, header.nr_locals)?,
            homes: sections.next("homes", header.homes_offset, header.nr_homes)?,
        };
        sections.finish()?;
        zero("header", [header.reserved])?;
        zero("CPU", table.cpus.iter().map(|cpu| cpu.reserved))?;
        zero("vCPU number", table.vcpus.iter().map(|vcpu| vcpu.reserved))?;
        zero("slot", table.slots.iter().map(|slot| [slot.reserved]))?;
        Ok(table)
    }
}

fn read_header(bytes: &[u8]) -> Result<Header, Violation> {
    let short = Violation::Short { bytes: bytes.len() };
    let header: Header = bytemuck::pod_read_unaligned(bytes.get(..size_of::<Header>()).ok_or(short)?);
    if header.magic != layout::MAGIC {
        return Err(Violation::Magic { found: header.magic });
    }
    if header.version != layout::VERSION {
        return Err(Violation::Version { found: header.version });
    }
    if header.bytes as usize != bytes.len() {
        return Err(Violation::Size { header: header.bytes, actual: bytes.len() });
    }
    if header.bytes > layout::BYTES_MAX {
        return Err(Violation::TooLong { bytes: bytes.len() });
    }
    let computed = checksum(bytes, &header);
    if header.checksum != computed {
        return Err(Violation::Checksum { found: header.checksum, computed });
    }
    Ok(header)
}

/// Over the header, two fields of it blanked, and all that follows it.
fn checksum(bytes: &[u8], header: &Header) -> u64 {
    let blanked = Header { checksum: 0, generation: 0, ..*header };
    let mut hash: u64 = 14_695_981_039_346_656_037;
    let mut take = |word: [u8; 8]| {
        hash ^= u64::from_le_bytes(word);
        hash = hash.wrapping_mul(1_099_511_628_211);
        hash ^= hash >> 32;
    };
    bytemuck::bytes_of(&blanked).as_chunks().0.iter().for_each(|&word| take(word));
    let (words, rest) = bytes[size_of::<Header>()..].as_chunks();
    words.iter().for_each(|&word| take(word));
    if !rest.is_empty() {
        take(std::array::from_fn(|at| rest.get(at).copied().unwrap_or(0)));
    }
    hash
}
const _: () = assert!(size_of::<Header>().is_multiple_of(size_of::<u64>()));

/// Walks over the sections in the order in which they must lie.
struct Sections<'a> {
    bytes: &'a [u8],
    /// The end of the section before, in bytes from the table's start.
    after: u64,
}

impl<'a> Sections<'a> {
    fn next<T: Pod>(
        &mut self,
        what: &'static str,
        offset: u32,
        count: u32,
    ) -> Result<Records<'a, T>, Violation> {
        if !offset.is_multiple_of(layout::ALIGN) {
            return Err(Violation::Misaligned { what, offset });
        }
        if u64::from(offset) < self.after {
            return Err(Violation::Overlap { what, offset, after: self.after });
        }
        self.check_padding(u64::from(offset))?;
        self.after = u64::from(offset) + u64::from(count) * size_of::<T>() as u64;
        let beyond = Violation::Beyond { what, end: self.after, bytes: self.bytes.len() as u32 };
        Records::within(self.bytes, offset, count).ok_or(beyond)
    }

    /// Looks at what follows the last section.
    fn finish(self) -> Result<(), Violation> {
        self.check_padding(self.bytes.len() as u64)
    }

    /// From the section before up to `until`, as far as there are bytes, all must be 0.
    fn check_padding(&self, until: u64) -> Result<(), Violation> {
        let (after, until) = (self.after as usize, (until as usize).min(self.bytes.len()));
        let padding = self.bytes.get(after..until).unwrap_or_default();
        match padding.iter().position(|&byte| byte != 0) {
            Some(place) => Err(Violation::Padding { at: after + place }),
            None => Ok(()),
        }
    }
}

fn zero<const N: usize>(
    what: &'static str,
    fields: impl IntoIterator<Item = [u32; N]>,
) -> Result<(), Violation> {
    match fields.into_iter().position(|reserved| reserved != [0; N]) {
        Some(number) => Err(Violation::Reserved { what, number }),
        None => Ok(()),
    }
}
