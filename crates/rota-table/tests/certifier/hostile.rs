//! Bytes that nobody meant as a table: nothing panics, and what passes is sound.

use proptest::collection::vec;
use proptest::prelude::*;
use rota_model::Costs;
use rota_table::layout::{Header, MAGIC, VERSION};
use rota_table::{Promise, TableView, certify};

use crate::brute::judge;
use crate::made::at_random;
use crate::parts::signed;

/// Everything that reads a table's bytes, on these.
fn withstand(bytes: &[u8], promises: &[Promise], costs: Costs) {
    // The judge takes a second for each ms of table.
    if certify(bytes, promises, costs).is_ok_and(|table| table.view().header().length_ns < 100_000) {
        assert_eq!(judge(bytes, promises, costs), Ok(()));
    }
    let Ok(view) = TableView::new(bytes) else { return };
    for vcpu in view.vcpus().iter() {
        let homes = view.homes(&vcpu);
        assert!(homes.is_none_or(|homes| homes.len() == vcpu.nr_cpus as usize));
    }
    let times = (0..8).map(|step| step * 97).chain([u64::MAX, u64::MAX - 1]);
    for (number, cpu) in (0..).zip(view.cpus()) {
        assert_eq!(cpu.record.nr_slots as usize, cpu.slots.len());
        for now_ns in times.clone().chain([u64::from(cpu.record.length_ns) - 1]) {
            let owner = view.lookup(number, now_ns).unwrap();
            assert!(owner.until_ns >= now_ns);
        }
    }
}

/// Values that are likelier to get far than any others.
fn value() -> impl Strategy<Value = u32> {
    let lengths = [1, 2, 8, 105, 210, 420, 840, 1260, 51_351_300, 102_702_600];
    prop_oneof![
        0..16u32,
        0..1300u32,
        (0..64u32).prop_map(|multiple| 64 * multiple),
        proptest::sample::select(lengths.to_vec()),
        (0..32u32).prop_map(|bit| 1 << bit),
        (0..32u32).prop_map(|bit| u32::MAX >> bit),
        any::<u32>(),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn noise(bytes in vec(any::<u8>(), 0..512)) {
        withstand(&bytes, &[], Costs::default());
        withstand(&signed(bytes), &[], Costs::default());
    }

    #[test]
    fn noise_behind_a_right_start(mut words in vec(value(), 32..80)) {
        words[0] = MAGIC as u32;
        words[1] = (MAGIC >> 32) as u32;
        words[2] = VERSION;
        words[3] = 4 * words.len() as u32;
        words[21..32].fill(0);
        withstand(&signed(bytemuck::cast_slice(&words).to_vec()), &[], Costs::default());
    }

    #[test]
    fn changed_words(seed: u64, changes in vec((any::<prop::sample::Index>(), value()), 1..12)) {
        let made = at_random(seed);
        let mut bytes = made.bytes();
        for (place, value) in changes {
            let place = 4 * place.index(bytes.len() / 4);
            bytes[place..place + 4].copy_from_slice(&value.to_le_bytes());
        }
        withstand(&signed(bytes), &made.promises, made.costs);
    }

    /// The header may say anything, its size and signature being right.
    #[test]
    fn changed_headers(seed: u64, changes in vec((8..32usize, value()), 1..5)) {
        let made = at_random(seed);
        let mut bytes = made.bytes();
        for (word, value) in changes {
            bytes[4 * word..4 * word + 4].copy_from_slice(&value.to_le_bytes());
        }
        prop_assert_eq!(size_of::<Header>(), 4 * 32);
        withstand(&signed(bytes), &made.promises, made.costs);
    }
}
