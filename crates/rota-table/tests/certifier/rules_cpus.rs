//! Tables that break one rule about CPUs, slots, slices or locals and no other.

use rota_table::Violation;
use rota_table::layout::{HYPERPERIOD_NS, Slice};

use crate::made::{Made, Task, by_hand, cpu};
use crate::parts::{Parts, broken_parts};

const fn task(name: (u32, u32), budget: u32, period: u32) -> Task {
    Task { name, budget, period, capped: false }
}

#[test]
fn lengths_of_cpus() {
    let slots = [(0, 4, 0), (8, 12, 0)];
    let made = Made::new(840, vec![cpu(0, 16, &slots)], &[task((1, 0), 4, 8)]);
    let violation = made.certify(&made.bytes()).unwrap_err();
    assert_eq!(violation, Violation::CpuLength { cpu: 0, length_ns: 16, table_ns: 840 });
    let zero = broken_parts(&made, |parts| parts.cpus[0].length_ns = 0);
    assert_eq!(zero, Violation::CpuLength { cpu: 0, length_ns: 0, table_ns: 840 });
}

#[test]
fn idle_cpus() {
    let expected = Violation::EmptyCpu { cpu: 0 };
    assert_eq!(broken_parts(&by_hand(), |parts| parts.cpus[0].slice_ns = 2), expected);
    assert_eq!(broken_parts(&by_hand(), |parts| parts.cpus[0].length_ns = 420), expected);
    let sliced = broken_parts(&by_hand(), |parts| {
        parts.slices.insert(0, Slice { slot: 0, boundary_ns: 840 });
        parts.cpus[0].nr_slices = 1;
        parts.cpus[1..].iter_mut().for_each(|cpu| cpu.first_slice += 1);
    });
    assert_eq!(sliced, expected);
}

#[test]
fn runs() {
    let run = |what| Violation::Run { cpu: 0, what, found: 1, expected: 0 };
    let made = by_hand();
    assert_eq!(broken_parts(&made, |parts| parts.cpus[0].first_slot = 1), run("slots"));
    assert_eq!(broken_parts(&made, |parts| parts.cpus[0].first_slice = 1), run("slices"));
    assert_eq!(broken_parts(&made, |parts| parts.cpus[0].first_local = 1), run("locals"));

    let beyond = |what, first, count, total| Violation::RunBeyond { cpu: 4, what, first, count, total };
    assert_eq!(broken_parts(&made, |parts| parts.cpus[4].nr_slots = 2), beyond("slots", 11, 2, 12));
    assert_eq!(broken_parts(&made, |parts| parts.cpus[4].nr_locals = 2), beyond("locals", 7, 2, 8));
    let all = broken_parts(&made, |parts| parts.cpus[4].nr_slots = u32::MAX);
    assert_eq!(all, beyond("slots", 11, u32::MAX, 12));

    let total = |what, claimed| Violation::RunTotal { whose: "CPUs", what, claimed, total: claimed + 1 };
    assert_eq!(broken_parts(&made, |parts| parts.slots.push(parts.slots[0])), total("slots", 12));
    let slices = Parts::of(&made.bytes()).slices.len() as u32;
    assert_eq!(broken_parts(&made, |parts| parts.slices.push(parts.slices[0])), total("slices", slices));
    assert_eq!(broken_parts(&made, |parts| parts.locals.push(0)), total("locals", 8));
}

#[test]
fn slots() {
    let extent = |start_ns, end_ns| Violation::SlotExtent { cpu: 4, start_ns, end_ns, length_ns: 105 };
    let long = broken_parts(&by_hand(), |parts| {
        parts.slots[11].end_ns = 106;
        parts.slices.last_mut().unwrap().boundary_ns = 106;
    });
    assert_eq!(long, extent(0, 106));
    assert_eq!(broken_parts(&by_hand(), |parts| parts.slots[11].start_ns = 105), extent(105, 105));
    // The slices send each offset to the first slot that ends after it, so that they do not change.
    let early = broken_parts(&by_hand(), |parts| parts.slots[2].start_ns = 190);
    assert_eq!(early, Violation::SlotOrder { cpu: 1, start_ns: 190, after_ns: 200 });
    let stranger = broken_parts(&by_hand(), |parts| parts.slots[7].vcpu = 7);
    assert_eq!(stranger, Violation::SlotVcpu { cpu: 3, start_ns: 0, vcpu: 7, total: 7 });
}

#[test]
fn number_of_slices() {
    let count = |count, slice_ns| Violation::SliceCount { cpu: 4, count, slice_ns, length_ns: 105 };
    let more = broken_parts(&by_hand(), |parts| {
        parts.cpus[4].nr_slices = 2;
        parts.slices.push(Slice { slot: 12, boundary_ns: 105 });
    });
    assert_eq!(more, count(2, 105));
    assert_eq!(broken_parts(&by_hand(), |parts| parts.cpus[4].slice_ns = 0), count(1, 0));
    assert_eq!(broken_parts(&by_hand(), |parts| parts.cpus[4].slice_ns = 104), count(1, 104));

    let length_ns = HYPERPERIOD_NS;
    let made = Made::new(length_ns, vec![cpu(0, length_ns, &[(0, length_ns, 0)])], &[task((1, 0), 1, 1000)]);
    let (slice_ns, slices) = (1567, 65541);
    let many = broken_parts(&made, |parts| {
        parts.cpus[0].slice_ns = slice_ns;
        parts.cpus[0].nr_slices = slices;
        parts.slices = vec![Slice { slot: 0, boundary_ns: length_ns }; slices as usize];
    });
    assert_eq!(many, Violation::SliceCount { cpu: 0, count: slices, slice_ns, length_ns });
}

#[test]
fn slices() {
    let made = by_hand();
    let parts = Parts::of(&made.bytes());
    // One off in either field of any entry.
    for place in 0..parts.slices.len() {
        let owner =
            parts.cpus.iter().position(|cpu| place < (cpu.first_slice + cpu.nr_slices) as usize).unwrap();
        let start_ns = (place as u32 - parts.cpus[owner].first_slice) * parts.cpus[owner].slice_ns;
        let Slice { slot, boundary_ns } = parts.slices[place];
        for (found, at) in [(slot + 1, boundary_ns), (slot, boundary_ns + 1), (slot, boundary_ns - 1)] {
            let change = |parts: &mut Parts| parts.slices[place] = Slice { slot: found, boundary_ns: at };
            let (cpu, expected, expected_ns) = (owner as u32, slot, boundary_ns);
            let violation =
                Violation::SliceEntry { cpu, start_ns, found, boundary_ns: at, expected, expected_ns };
            assert_eq!(broken_parts(&made, change), violation);
        }
    }
}

#[test]
fn slices_that_meet_three_slots() {
    let crowded = |slots: [(u32, u32, u32); 3], slice_ns, slices: [(u32, u32); 2]| {
        let tasks = [0, 1, 2].map(|place| task((1, place), 10, 420));
        let made = Made::new(420, vec![cpu(0, 420, &slots)], &tasks);
        let mut parts = Parts::of(&made.bytes());
        parts.cpus[0].slice_ns = slice_ns;
        parts.cpus[0].nr_slices = 2;
        parts.slices = slices.map(|(slot, boundary_ns)| Slice { slot, boundary_ns }).to_vec();
        made.certify(&parts.bytes()).map(|_| ())
    };
    let early = [(0, 60, 0), (60, 250, 1), (250, 300, 2)];
    assert_eq!(crowded(early, 250, [(0, 60), (2, 300)]), Ok(()));
    let violation = Violation::SliceCrowded { cpu: 0, start_ns: 0, third_ns: 250 };
    assert_eq!(crowded(early, 251, [(0, 60), (2, 300)]), Err(violation));
    let late = [(220, 270, 0), (270, 400, 1), (400, 420, 2)];
    let violation = Violation::SliceCrowded { cpu: 0, start_ns: 210, third_ns: 400 };
    assert_eq!(crowded(late, 210, [(0, 270), (0, 270)]), Err(violation));
}

#[test]
fn locals() {
    let locals = |cpu, owners, place| Violation::Locals { cpu, owners, place };
    assert_eq!(broken_parts(&by_hand(), |parts| parts.locals.swap(0, 1)), locals(1, 3, 0));
    assert_eq!(broken_parts(&by_hand(), |parts| parts.locals[2] = 3), locals(1, 3, 2));
    let fewer = broken_parts(&by_hand(), |parts| {
        parts.locals.pop();
        parts.cpus[4].nr_locals = 0;
    });
    assert_eq!(fewer, locals(4, 1, 0));
    let more = broken_parts(&by_hand(), |parts| {
        parts.locals.push(6);
        parts.cpus[4].nr_locals = 2;
    });
    assert_eq!(more, locals(4, 1, 1));
}
