//! A table taken apart, to change one thing in it and put it together again.

use rota_table::Violation;
use rota_table::layout::{Cpu, Header, Records, Slice, Slot, Vcpu};

use crate::made::Made;

/// A table's header and sections.
#[derive(Clone)]
pub struct Parts {
    pub header: Header,
    pub cpus: Vec<Cpu>,
    pub vcpus: Vec<Vcpu>,
    pub slots: Vec<Slot>,
    pub slices: Vec<Slice>,
    pub locals: Vec<u32>,
    pub homes: Vec<u32>,
}

impl Parts {
    /// Of a well-formed table.
    pub fn of(bytes: &[u8]) -> Parts {
        let header = Records::<Header>::within(bytes, 0, 1).unwrap().get(0).unwrap();
        fn section<T: bytemuck::Pod>(bytes: &[u8], offset: u32, count: u32) -> Vec<T> {
            Records::<T>::within(bytes, offset, count).unwrap().iter().collect()
        }
        Parts {
            header,
            cpus: section(bytes, header.cpus_offset, header.nr_cpus),
            vcpus: section(bytes, header.vcpus_offset, header.nr_vcpus),
            slots: section(bytes, header.slots_offset, header.nr_slots),
            slices: section(bytes, header.slices_offset, header.nr_slices),
            locals: section(bytes, header.locals_offset, header.nr_locals),
            homes: section(bytes, header.homes_offset, header.nr_homes),
        }
    }

    /// Laid out afresh, so that sections may have grown or shrunk; every other header field is kept as it is.
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = bytemuck::bytes_of(&self.header).to_vec();
        let mut header = self.header;
        let mut append = |section: &[u8]| {
            bytes.resize(bytes.len().next_multiple_of(64), 0);
            bytes.extend(section);
            (bytes.len() - section.len()) as u32
        };
        header.cpus_offset = append(bytemuck::cast_slice(&self.cpus));
        header.vcpus_offset = append(bytemuck::cast_slice(&self.vcpus));
        header.slots_offset = append(bytemuck::cast_slice(&self.slots));
        header.slices_offset = append(bytemuck::cast_slice(&self.slices));
        header.locals_offset = append(bytemuck::cast_slice(&self.locals));
        header.homes_offset = append(bytemuck::cast_slice(&self.homes));
        header.nr_cpus = self.cpus.len() as u32;
        header.nr_vcpus = self.vcpus.len() as u32;
        header.nr_slots = self.slots.len() as u32;
        header.nr_slices = self.slices.len() as u32;
        header.nr_locals = self.locals.len() as u32;
        header.nr_homes = self.homes.len() as u32;
        header.bytes = bytes.len() as u32;
        bytes[..size_of::<Header>()].copy_from_slice(bytemuck::bytes_of(&header));
        signed(bytes)
    }
}

/// The same bytes with the checksum that fits them, if they are long enough to have one.
pub fn signed(mut bytes: Vec<u8>) -> Vec<u8> {
    let checksum = checksum(&bytes);
    if let Some(field) = bytes.get_mut(16..24) {
        field.copy_from_slice(&checksum.to_le_bytes());
    }
    bytes
}

/// FNV-1a by folded words, with checksum and generation (bytes 16 to 31) taken as zero.
pub fn checksum(bytes: &[u8]) -> u64 {
    let byte =
        |at: usize| bytes.get(at).filter(|_| !(16..32).contains(&at)).map_or(0, |&byte| u64::from(byte));
    let word = |at: usize| (0..8).map(|place| byte(at + place) << (8 * place)).sum::<u64>();
    (0..bytes.len()).step_by(8).fold(0xcbf29ce484222325, |hash, at| {
        let product = (hash ^ word(at)).wrapping_mul(0x100000001b3);
        product ^ (product >> 32)
    })
}

/// What the certifier says of a table after a change to its parts. The checksum is always made to fit.
pub fn broken_parts(made: &Made, change: impl FnOnce(&mut Parts)) -> Violation {
    let mut parts = Parts::of(&made.bytes());
    change(&mut parts);
    made.certify(&parts.bytes()).unwrap_err()
}

/// What the certifier says of a table after a change to its bytes. The checksum is always made to fit.
pub fn broken_bytes(made: &Made, change: impl FnOnce(&mut Vec<u8>)) -> Violation {
    let mut bytes = made.bytes();
    change(&mut bytes);
    made.certify(&signed(bytes)).unwrap_err()
}

/// What the certifier says of the table of a changed source, or to changed promises.
pub fn broken_source(mut made: Made, change: impl FnOnce(&mut Made)) -> Violation {
    change(&mut made);
    made.certify(&made.bytes()).unwrap_err()
}
