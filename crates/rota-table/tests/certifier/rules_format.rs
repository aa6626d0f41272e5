//! Tables that break one rule of the format and no other.

use std::mem::offset_of;

use rota_model::Costs;
use rota_table::layout::{BYTES_MAX, CPUS_MAX, HYPERPERIOD_NS, Header, MAGIC};
use rota_table::{Violation, certify};

use crate::made::{Made, by_hand, cpu};
use crate::parts::{broken_bytes, broken_parts, checksum, signed};

/// A table of idle CPUs.
fn idle(cpus: u32) -> Made {
    Made::new(840, vec![cpu(cpus - 1, 840, &[])], &[])
}

fn put(bytes: &mut [u8], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
}

#[test]
fn magic_and_version() {
    let magic = broken_parts(&by_hand(), |parts| parts.header.magic += 1);
    assert_eq!(magic, Violation::Magic { found: MAGIC + 1 });
    assert_eq!(broken_parts(&by_hand(), |parts| parts.header.version = 1), Violation::Version { found: 1 });
}

#[test]
fn size() {
    let bytes = by_hand().bytes();
    assert_eq!(certify(&bytes[..127], &[], Costs::default()), Err(Violation::Short { bytes: 127 }));
    assert_eq!(certify(&[], &[], Costs::default()), Err(Violation::Short { bytes: 0 }));
    let (header, actual) = (bytes.len() as u32, bytes.len() + 1);
    let longer = broken_bytes(&by_hand(), |bytes| bytes.push(0));
    assert_eq!(longer, Violation::Size { header, actual });

    let of_size = |size: u32| {
        let mut bytes = idle(1).bytes();
        bytes.resize(size as usize, 0);
        put(&mut bytes, offset_of!(Header, bytes), size);
        certify(signed(bytes), &[], Costs::default()).map(|_| ())
    };
    assert_eq!(of_size(BYTES_MAX), Ok(()));
    assert_eq!(of_size(BYTES_MAX + 1), Err(Violation::TooLong { bytes: BYTES_MAX as usize + 1 }));
}

#[test]
fn signature() {
    let made = by_hand();
    let mut bytes = made.bytes();
    let computed = checksum(&bytes);
    bytes[offset_of!(Header, checksum)] ^= 1;
    let violation = made.certify(&bytes).unwrap_err();
    assert_eq!(violation, Violation::Checksum { found: computed ^ 1, computed });
}

#[test]
fn reserved_fields() {
    let reserved = |what, number| Violation::Reserved { what, number };
    let made = by_hand();
    assert_eq!(broken_parts(&made, |parts| parts.header.reserved[10] = 1), reserved("header", 0));
    assert_eq!(broken_parts(&made, |parts| parts.cpus[4].reserved[5] = 1), reserved("CPU", 4));
    assert_eq!(broken_parts(&made, |parts| parts.vcpus[3].reserved[3] = 1), reserved("vCPU number", 3));
    assert_eq!(broken_parts(&made, |parts| parts.slots[9].reserved = 1), reserved("slot", 9));
}

#[test]
fn number_of_cpus() {
    let none = broken_parts(&idle(1), |parts| parts.cpus.clear());
    assert_eq!(none, Violation::NrCpus { count: 0 });
    let made = idle(CPUS_MAX);
    assert!(certify(made.bytes(), &[], Costs::default()).is_ok());
    let many = broken_parts(&made, |parts| parts.cpus.push(parts.cpus[0]));
    assert_eq!(many, Violation::NrCpus { count: CPUS_MAX + 1 });
}

#[test]
fn sections() {
    let at = offset_of!(Header, homes_offset);
    // An empty section may lie anywhere after its predecessors.
    let mut bytes = idle(1).bytes();
    put(&mut bytes, at, 192);
    assert!(certify(signed(bytes), &[], Costs::default()).is_ok());

    let odd = broken_bytes(&idle(1), |bytes| {
        bytes.extend([0; 4]);
        let size = bytes.len() as u32;
        put(bytes, offset_of!(Header, bytes), size);
        put(bytes, at, 196);
    });
    assert_eq!(odd, Violation::Misaligned { what: "homes", offset: 196 });
    let early = broken_bytes(&idle(1), |bytes| put(bytes, at, 128));
    assert_eq!(early, Violation::Overlap { what: "homes", offset: 128, after: 192 });
    let in_header = broken_bytes(&idle(1), |bytes| put(bytes, offset_of!(Header, cpus_offset), 64));
    assert_eq!(in_header, Violation::Overlap { what: "CPUs", offset: 64, after: 128 });
    let end = by_hand().bytes().len();
    let cut = broken_bytes(&by_hand(), |bytes| {
        bytes.truncate(end - 4);
        put(bytes, offset_of!(Header, bytes), end as u32 - 4);
    });
    assert_eq!(cut, Violation::Beyond { what: "homes", end: end as u64, bytes: end as u32 - 4 });
    let far = broken_bytes(&idle(1), |bytes| put(bytes, at, 1 << 31));
    assert_eq!(far, Violation::Beyond { what: "homes", end: 1 << 31, bytes: 192 });
}

#[test]
fn padding() {
    let size = by_hand().bytes().len();
    let between = broken_bytes(&idle(1), |bytes| {
        bytes.extend([0; 64]);
        bytes[200] = 1;
        put(bytes, offset_of!(Header, bytes), 256);
        put(bytes, offset_of!(Header, homes_offset), 256);
    });
    assert_eq!(between, Violation::Padding { at: 200 });
    let behind = broken_bytes(&by_hand(), |bytes| {
        bytes.push(1);
        put(bytes, offset_of!(Header, bytes), size as u32 + 1);
    });
    assert_eq!(behind, Violation::Padding { at: size });
}

#[test]
fn length() {
    for length_ns in [0, 17, 2 * HYPERPERIOD_NS] {
        let violation = broken_parts(&idle(1), |parts| {
            parts.header.length_ns = length_ns;
            parts.cpus[0].length_ns = length_ns;
        });
        assert_eq!(violation, Violation::TableLength { length_ns });
    }
}

#[test]
fn messages_name_place_and_extent() {
    let cut = Violation::Size { header: 4096, actual: 100 };
    assert_eq!(
        cut.to_string(),
        "the header says 4096 bytes, but there are 100; the table may have been cut off"
    );
    let magic = Violation::Magic { found: 1 };
    assert_eq!(
        magic.to_string(),
        "not a table: it starts with 0x0000000000000001 instead of 0x315442544154304f"
    );
}
