//! What is right must pass, and read back as it was written.

use proptest::prelude::*;
use rota_model::Costs;
use rota_table::layout::HYPERPERIOD_NS;
use rota_table::{Owner, TableView, VcpuName, certify};

use crate::made::{Made, at_random, by_hand, cpu};

#[test]
fn the_table_made_by_hand_passes() {
    let made = by_hand();
    let bytes = made.bytes();
    assert_eq!(made.judge(&bytes), Ok(()));
    assert_eq!(made.certify(&bytes).unwrap().bytes(), bytes);
}

#[test]
fn a_table_without_tenants_passes() {
    let made = Made::new(HYPERPERIOD_NS, vec![cpu(3, 0, &[])], &[]);
    let certified = certify(made.bytes(), &[], Costs::default()).unwrap();
    assert_eq!(certified.view().header().nr_cpus, 4);
    let idle = Owner { vcpu: None, until_ns: u64::from(HYPERPERIOD_NS) };
    assert_eq!(certified.view().lookup(3, 5), Some(idle));
}

#[test]
fn the_generation_is_not_signed() {
    let made = by_hand();
    let certified = made.certify(&made.bytes()).unwrap();
    assert_eq!(certified.generation(), 0);
    let installed = certified.with_generation(u64::MAX - 7);
    assert_eq!(installed.generation(), u64::MAX - 7);
    assert_eq!(made.certify(installed.bytes()), Ok(installed));
}

#[test]
fn vcpus_are_named_by_tenant_and_index() {
    assert_eq!(VcpuName { tenant: 3, index: 1 }.to_string(), "vCPU 3/1");
}

/// Each CPU's owner and the end of its slot or idle time, by searching the source.
fn naive_lookup(made: &Made, number: u32, now_ns: u64) -> Owner {
    let idle = cpu(number, made.source.length_ns, &[]);
    let cpu = made.source.cpus.iter().find(|cpu| cpu.cpu == number && !cpu.slots.is_empty()).unwrap_or(&idle);
    let offset = (now_ns % u64::from(cpu.length_ns)) as u32;
    let owner = cpu.slots.iter().find(|slot| slot.start_ns <= offset && offset < slot.end_ns);
    let next = cpu.slots.iter().map(|slot| slot.start_ns).find(|&start| start > offset);
    let until = owner.map(|slot| slot.end_ns).or(next).unwrap_or(cpu.length_ns);
    Owner { vcpu: owner.map(|slot| slot.vcpu), until_ns: now_ns + u64::from(until - offset) }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn sound_tables_pass(seed: u64) {
        let made = at_random(seed);
        let bytes = made.bytes();
        prop_assert_eq!(made.judge(&bytes), Ok(()));
        prop_assert_eq!(made.certify(&bytes).map(|_| ()), Ok(()));
    }

    #[test]
    fn lookups_find_what_the_source_says(seed: u64, round in 0..1u64 << 40) {
        let made = at_random(seed);
        let bytes = made.bytes();
        let view = TableView::new(&bytes).unwrap();
        let nr_cpus = view.header().nr_cpus;
        let start_ns = round * u64::from(made.source.length_ns);
        for cpu in 0..nr_cpus {
            for now_ns in start_ns..start_ns + u64::from(made.source.length_ns) {
                prop_assert_eq!(view.lookup(cpu, now_ns), Some(naive_lookup(&made, cpu, now_ns)));
            }
        }
        prop_assert_eq!(view.lookup(nr_cpus, start_ns), None);
    }
}
