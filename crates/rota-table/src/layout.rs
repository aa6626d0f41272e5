//! The Rust mirror of `include/rota_table.h`, which says what each field means. A test compiles the header and compares
//! the two, field by field and constant by constant.

use std::marker::PhantomData;

use bytemuck::{Pod, Zeroable};

/// First field of every table.
pub const MAGIC: u64 = 0x3154_4254_4154_304f;
/// The format's version.
pub const VERSION: u32 = 4;
/// Sections start at multiples of this many bytes.
pub const ALIGN: u32 = 64;
/// No table is larger, in bytes.
pub const BYTES_MAX: u32 = 64 << 20;
/// CPU numbers are below this.
pub const CPUS_MAX: u32 = 4096;
/// A table has no more vCPUs.
pub const VCPUS_MAX: u32 = 1 << 20;
/// A CPU has no more slices.
pub const SLICES_MAX: u32 = 65536;
/// A vCPU has slots on no more CPUs.
pub const VCPU_CPUS_MAX: u32 = 64;
/// A CPU that serves its vCPUs in windows has no more.
pub const WINDOW_VCPUS_MAX: u32 = 16;
/// The longest table; every table's length divides it, in ns (thesis section 5.1).
pub const HYPERPERIOD_NS: u32 = 102_702_600;
/// Flag of a CPU whose core one tenant has to itself.
pub const CPU_EXCLUSIVE: u32 = 1;
/// Flag of a CPU that serves its vCPUs in windows, in an order that is decided as they wake.
pub const CPU_WINDOWS: u32 = 2;
/// Flag of a vCPU that never has more than its slots come to.
pub const VCPU_CAPPED: u32 = 1;

// The format is little-endian and read in place.
const _: () = assert!(cfg!(target_endian = "little"), "the table's format needs a little-endian machine");

/// Defines records as the header does, and for the test that compares the two: each one's name, size and fields.
macro_rules! records {
    ($($(#[$doc:meta])* $name:ident = $c_name:literal { $($field:ident: $type:ty,)* })*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
            #[repr(C)]
            #[allow(missing_docs)] // the header documents the fields
            pub struct $name { $(pub $field: $type,)* }
        )*

        /// Each record: its C name, its size in bytes and its fields' names, offsets and sizes in bytes.
        pub const RECORDS: &[(&str, usize, &[(&str, usize, usize)])] = &[$((
            $c_name,
            size_of::<$name>(),
            &[$((stringify!($field), std::mem::offset_of!($name, $field), size_of::<$type>()),)*],
        ),)*];
    };
}

records! {
    /// Starts the table.
    Header = "rota_table_header" {
        magic: u64,
        version: u32,
        bytes: u32,
        checksum: u64,
        generation: u64,
        length_ns: u32,
        nr_cpus: u32,
        nr_vcpus: u32,
        nr_slots: u32,
        nr_slices: u32,
        nr_locals: u32,
        nr_homes: u32,
        cpus_offset: u32,
        vcpus_offset: u32,
        slots_offset: u32,
        slices_offset: u32,
        locals_offset: u32,
        homes_offset: u32,
        reserved: [u32; 11],
    }

    /// One CPU.
    Cpu = "rota_table_cpu" {
        length_ns: u32,
        slice_ns: u32,
        first_slot: u32,
        nr_slots: u32,
        first_slice: u32,
        nr_slices: u32,
        first_local: u32,
        nr_locals: u32,
        flags: u32,
        switch_ns: u32,
        reserved: [u32; 6],
    }

    /// One vCPU and what it is promised.
    Vcpu = "rota_table_vcpu" {
        tenant: u32,
        index: u32,
        flags: u32,
        share_ppb: u32,
        latency_ns: u64,
        budget_ns: u32,
        period_ns: u32,
        home_cpu: u32,
        nr_cpus: u32,
        first_home: u32,
        window_ns: u32,
        reserved: [u32; 4],
    }

    /// One slot of one CPU.
    Slot = "rota_table_slot" {
        start_ns: u32,
        end_ns: u32,
        vcpu: u32,
        reserved: u32,
    }

    /// One entry of a CPU's slice index.
    Slice = "rota_table_slice" {
        slot: u32,
        boundary_ns: u32,
    }
}

const _: () = assert!(size_of::<Header>() == 128);
const _: () = assert!(size_of::<Cpu>() == 64);
const _: () = assert!(size_of::<Vcpu>() == 64);
const _: () = assert!(size_of::<Slot>() == 16);
const _: () = assert!(size_of::<Slice>() == 8);

/// A section of a table as records, wherever its bytes lie.
#[derive(Clone, Copy, Debug)]
pub struct Records<'a, T> {
    bytes: &'a [u8],
    record: PhantomData<T>,
}

impl<'a, T: Pod> Records<'a, T> {
    /// The `count` records that start `offset` bytes into `bytes`, or nothing if they are not all within.
    pub fn within(bytes: &'a [u8], offset: u32, count: u32) -> Option<Self> {
        let start = offset as usize;
        let end = (count as usize).checked_mul(size_of::<T>())?.checked_add(start)?;
        Some(Records { bytes: bytes.get(start..end)?, record: PhantomData })
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.bytes.len() / size_of::<T>()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The record at `place`, if there is one.
    pub fn get(&self, place: usize) -> Option<T> {
        let start = place.checked_mul(size_of::<T>())?;
        let record = self.bytes.get(start..start.checked_add(size_of::<T>())?)?;
        Some(bytemuck::pod_read_unaligned(record))
    }

    /// The `count` records from `first` on, or nothing if they are not all within.
    pub fn run(&self, first: u32, count: u32) -> Option<Self> {
        Self::within(self.bytes, u32::try_from(u64::from(first) * size_of::<T>() as u64).ok()?, count)
    }

    /// All, in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = T> + Clone + use<'a, T> {
        self.bytes.chunks_exact(size_of::<T>()).map(bytemuck::pod_read_unaligned)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_read_where_they_lie_and_never_beyond() {
        let bytes: Vec<u8> = (0..33).collect();
        let slices = Records::<Slice>::within(&bytes, 1, 4).unwrap();
        assert_eq!(slices.len(), 4);
        assert_eq!(slices.get(1), Some(Slice { slot: 0x0c0b_0a09, boundary_ns: 0x100f_0e0d }));
        assert_eq!(slices.get(4), None);
        assert_eq!(slices.run(2, 2).unwrap().iter().next(), slices.get(2));
        assert!(slices.run(2, 3).is_none());
        assert!(slices.run(u32::MAX, 1).is_none());
        assert!(Records::<Slice>::within(&bytes, 1, 5).is_none());
        assert!(Records::<Header>::within(&bytes, u32::MAX, u32::MAX).is_none());
    }
}
