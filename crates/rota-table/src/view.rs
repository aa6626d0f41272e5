//! Reading a table the way the dispatcher does.

use crate::layout::{self, Cpu, Header, Records, Slice, Slot, Vcpu};

/// A table's bytes, found to be readable: every section and every CPU's run of records is where it must be. What the
/// records say is the certifier's business; no look-up leaves the bytes whatever they say.
#[derive(Clone, Copy, Debug)]
pub struct TableView<'a> {
    header: Header,
    cpus: Records<'a, Cpu>,
    vcpus: Records<'a, Vcpu>,
    slots: Records<'a, Slot>,
    slices: Records<'a, Slice>,
    locals: Records<'a, u32>,
    homes: Records<'a, u32>,
}

/// One CPU of a table.
#[derive(Clone, Copy, Debug)]
pub struct CpuView<'a> {
    /// Its record.
    pub record: Cpu,
    /// Its slots, ascending.
    pub slots: Records<'a, Slot>,
    /// Its slice index.
    pub slices: Records<'a, Slice>,
    /// The vCPUs with slots here, ascending.
    pub locals: Records<'a, u32>,
}

/// Who owns a CPU at some time, and how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    /// The owner's place among the table's vCPUs; `None` if the CPU is idle in the table.
    pub vcpu: Option<u32>,
    /// CLOCK_MONOTONIC time in ns at which this slot or idle time ends, at the latest at the CPU's next wrap. The same
    /// vCPU may own what follows.
    pub until_ns: u64,
}

/// Why bytes are no table that can be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)] // the messages name the fields
pub enum FormatError {
    /// Fewer bytes than a header, or not as many as the header says.
    #[error("the table is {actual} bytes long, not {expected}; it may have been cut off")]
    Size { actual: usize, expected: usize },
    /// Something else, or a table of another version.
    #[error("not a table of version {version}: magic {magic:#x}, version {found}", version = layout::VERSION)]
    Version { magic: u64, found: u32 },
    /// A section that is not within the table.
    #[error("the section of {what} is not within the table")]
    Section { what: &'static str },
    /// A CPU whose length, slice length or runs of records cannot be.
    #[error("CPU {cpu}: its record points outside of the table's sections, or its lengths do not fit")]
    Cpu { cpu: u32 },
}

impl<'a> TableView<'a> {
    /// Finds the sections and checks that look-ups have what they read, in time linear in the number of CPUs.
    ///
    /// # Errors
    ///
    /// The bytes are no table of this version, or parts of it lie outside of them; see [`FormatError`].
    pub fn new(bytes: &'a [u8]) -> Result<TableView<'a>, FormatError> {
        let header = Records::<Header>::within(bytes, 0, 1).and_then(|headers| headers.get(0));
        let header =
            header.ok_or(FormatError::Size { actual: bytes.len(), expected: size_of::<Header>() })?;
        if header.magic != layout::MAGIC || header.version != layout::VERSION {
            return Err(FormatError::Version { magic: header.magic, found: header.version });
        }
        if header.bytes as usize != bytes.len() {
            return Err(FormatError::Size { actual: bytes.len(), expected: header.bytes as usize });
        }
        let view = TableView {
            header,
            cpus: section(bytes, "CPUs", header.cpus_offset, header.nr_cpus)?,
            vcpus: section(bytes, "vCPUs", header.vcpus_offset, header.nr_vcpus)?,
            slots: section(bytes, "slots", header.slots_offset, header.nr_slots)?,
            slices: section(bytes, "slices", header.slices_offset, header.nr_slices)?,
            locals: section(bytes, "locals", header.locals_offset, header.nr_locals)?,
            homes: section(bytes, "homes", header.homes_offset, header.nr_homes)?,
        };
        for (cpu, record) in (0..).zip(view.cpus.iter()) {
            view.cpu_view(record).ok_or(FormatError::Cpu { cpu })?;
        }
        Ok(view)
    }

    /// The header.
    pub fn header(&self) -> Header {
        self.header
    }

    /// The CPUs, from CPU 0 on.
    pub fn cpus(&self) -> impl Iterator<Item = CpuView<'a>> {
        let view = *self;
        self.cpus.iter().filter_map(move |record| view.cpu_view(record))
    }

    /// One CPU, if the table has it.
    pub fn cpu(&self, cpu: u32) -> Option<CpuView<'a>> {
        self.cpu_view(self.cpus.get(cpu as usize)?)
    }

    /// The vCPUs; slots name them by their place here.
    pub fn vcpus(&self) -> Records<'a, Vcpu> {
        self.vcpus
    }

    /// The CPUs on which `vcpu` has slots, in the order of its first slot on each; nothing if its record points outside
    /// of the section.
    pub fn homes(&self, vcpu: &Vcpu) -> Option<Records<'a, u32>> {
        self.homes.run(vcpu.first_home, vcpu.nr_cpus)
    }

    /// Who owns `cpu` at `now_ns` of CLOCK_MONOTONIC; `None` if the table has no such CPU.
    ///
    /// Constant time: one slice and one slot tell the owner (thesis section 4.2.1); in idle time after a slot, the next
    /// slot tells its end.
    pub fn lookup(&self, cpu: u32, now_ns: u64) -> Option<Owner> {
        let CpuView { record, slots, slices, .. } = self.cpu(cpu)?;
        let offset_ns = (now_ns % u64::from(record.length_ns)) as u32;
        let until = |end_ns: u32| now_ns.saturating_add(u64::from(end_ns.saturating_sub(offset_ns)));
        // Beyond the CPU's last slot lies idle time to the wrap.
        let slot_at = |place: Option<usize>| place.and_then(|place| slots.get(place));
        let place = slices.get((offset_ns / record.slice_ns) as usize).and_then(|slice| {
            let place = slice.slot.checked_sub(record.first_slot)?;
            Some(place as usize + usize::from(offset_ns >= slice.boundary_ns))
        });
        let owner = match slot_at(place) {
            Some(slot) if offset_ns < slot.start_ns => Owner { vcpu: None, until_ns: until(slot.start_ns) },
            Some(slot) if offset_ns < slot.end_ns => {
                Owner { vcpu: Some(slot.vcpu), until_ns: until(slot.end_ns) }
            }
            Some(_) => {
                let next = slot_at(place.map(|place| place + 1));
                Owner { vcpu: None, until_ns: until(next.map_or(record.length_ns, |slot| slot.start_ns)) }
            }
            None => Owner { vcpu: None, until_ns: until(record.length_ns) },
        };
        Some(owner)
    }

    fn cpu_view(&self, record: Cpu) -> Option<CpuView<'a>> {
        if record.length_ns == 0 || record.slice_ns == 0 {
            return None;
        }
        let slices = if record.nr_slots == 0 { 0 } else { record.length_ns.div_ceil(record.slice_ns) };
        if record.nr_slices != slices {
            return None;
        }
        Some(CpuView {
            record,
            slots: self.slots.run(record.first_slot, record.nr_slots)?,
            slices: self.slices.run(record.first_slice, record.nr_slices)?,
            locals: self.locals.run(record.first_local, record.nr_locals)?,
        })
    }
}

fn section<'a, T: bytemuck::Pod>(
    bytes: &'a [u8],
    what: &'static str,
    offset: u32,
    count: u32,
) -> Result<Records<'a, T>, FormatError> {
    Records::within(bytes, offset, count).ok_or(FormatError::Section { what })
}
