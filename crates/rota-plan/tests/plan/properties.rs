//! Random hosts: whatever is planned keeps its promises, and what is refused was refused for a reason.

use std::cell::Cell;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use rota_model::{Class, Costs, CpuSet, Model, Reservation, Share, Team, Tenant};
use rota_plan::{Infeasible, Options, Placement, plan};

use crate::checker::check;
use crate::models::{MS, host, model, reserved};

#[derive(Clone, Debug)]
pub struct Host {
    cpus: u32,
    floor_ppb: u32,
    slot_min_ns: u64,
    switch_ns: u64,
    tenants: Vec<RandomTenant>,
    /// Sum of all shares, in thousandths of the CPUs.
    load: u32,
}

#[derive(Clone, Debug)]
struct RandomTenant {
    vcpus: u32,
    /// What a vCPU has of the load, compared with the others.
    part: u32,
    latency_us: u64,
    capped: bool,
    /// The first CPU of its affinity, and how many; modulo the host's.
    affinity: Option<(u32, u32)>,
}

pub fn hosts() -> impl Strategy<Value = Host> {
    let latency = prop_oneof![
        // Usual ones, some very close to each other, and any.
        prop::sample::select(vec![1_000, 5_000, 10_000, 20_000, 30_000, 100_000_u64]),
        20_000..20_500_u64,
        300..200_000_u64,
    ];
    let affinity = prop::option::weighted(0.2, (0..6_u32, 1..6_u32));
    let tenant = (1..4_u32, 1..100_u32, latency, any::<bool>(), affinity).prop_map(
        |(vcpus, part, latency_us, capped, affinity)| RandomTenant {
            vcpus,
            part,
            latency_us,
            capped,
            affinity,
        },
    );
    let floors = prop::sample::select(vec![0, 5_000_000, 50_000_000]);
    let slots = prop::sample::select(vec![0, 10_000, 50_000, 200_000]);
    let switches = prop::sample::select(vec![0, 0, 1, 5_000, 20_000]);
    (1..6_u32, floors, (slots, switches), prop::collection::vec(tenant, 1..24), 300..1001_u32).prop_map(
        |(cpus, floor_ppb, (slot_min_ns, switch_ns), tenants, load)| Host {
            cpus,
            floor_ppb,
            slot_min_ns,
            switch_ns,
            tenants,
            load,
        },
    )
}

pub fn to_model(random: &Host) -> Model {
    let parts: u64 = random.tenants.iter().map(|tenant| u64::from(tenant.vcpus * tenant.part)).sum();
    let load_ppb = u64::from(random.cpus) * u64::from(random.load) * 1_000_000;
    let tenants = random.tenants.iter().enumerate().map(|(name, tenant)| {
        let ppb = (load_ppb * u64::from(tenant.part) / parts).clamp(1, 1_000_000_000);
        let share = Share::from_ppb(ppb as u32).unwrap();
        let RandomTenant { vcpus, latency_us, capped, affinity, .. } = *tenant;
        let affinity = affinity
            .map(|(first, count)| (first..first + count).map(|cpu| cpu % random.cpus).collect::<CpuSet>());
        Tenant {
            name: format!("t{name}"),
            class: Class::Reserved(Reservation { share, latency_ns: latency_us * 1_000, capped }),
            vcpus,
            affinity,
            pinned: false,
            exclusive_cores: false,
            oversubscribe: true,
            team: Team::default(),
            matcher: None,
        }
    });
    let machine = rota_model::Host {
        floor_ppb: random.floor_ppb,
        slot_min_ns: random.slot_min_ns,
        placement: Placement::WorstFit,
        costs: Costs { switch_ns: random.switch_ns, migration_ns: 0 },
        spares: Vec::new(),
        interference: rota_model::Interference::Off,
        branch_records: false,
        ..host(&format!("0-{}", random.cpus - 1), "")
    };
    model(machine, tenants)
}

/// Whether a budget may be below a 65,536th of the longest table: the period is a quarter of the latency at least.
fn has_tiny_budget(model: &Model) -> bool {
    let reservations = model.tenants.iter().filter_map(Tenant::reservation);
    reservations.into_iter().any(|reservation| reservation.share.of(reservation.latency_ns / 4) < 1_568)
}

#[test]
fn every_plan_keeps_its_promises() {
    let mut runner = TestRunner::new(Config { cases: 2_000, failure_persistence: None, ..Config::default() });
    let placements = prop::sample::select(vec![Placement::WorstFit, Placement::BestFit]);
    let (planned, refused) = (Cell::new(0), Cell::new(0));
    let result = runner.run(&(hosts(), placements), |(random, placement)| {
        let model = to_model(&random);
        let options = Options { placement };
        let first = plan(&model, &options);
        prop_assert_eq!(&first, &plan(&model, &options), "same input, same output");
        match first {
            Ok(plan) => {
                planned.set(planned.get() + 1);
                check(&model, &plan).map_err(TestCaseError::fail)
            }
            Err(Infeasible::Slices { .. }) if random.floor_ppb > 0 && !has_tiny_budget(&model) => {
                Err(TestCaseError::fail("no table with slots of a useful length"))
            }
            Err(_) => {
                refused.set(refused.get() + 1);
                Ok(())
            }
        }
    });
    result.unwrap();
    // A generator that makes only one kind shows nothing.
    let (planned, refused) = (planned.get(), refused.get());
    assert!(planned > 500 && refused > 20, "{planned} planned, {refused} refused");
}

/// Below half of every CPU's capacity no vCPU can fail to find room, wherever the others went.
#[test]
fn light_hosts_are_never_refused() {
    let mut runner = TestRunner::new(Config { cases: 500, failure_persistence: None, ..Config::default() });
    let result = runner.run(&hosts(), |random| {
        let mut model = to_model(&Host { load: random.load / 3, switch_ns: 0, ..random });
        for tenant in &mut model.tenants {
            tenant.affinity = None;
            if let Class::Reserved(reservation) = &mut tenant.class {
                reservation.latency_ns = reservation.latency_ns.max(MS);
                reservation.share = reservation.share.min(Share::from_fraction(0.5).unwrap());
            }
        }
        match plan(&model, &Options::default()) {
            Ok(plan) => check(&model, &plan).map_err(TestCaseError::fail),
            Err(error) => Err(TestCaseError::fail(error.to_string())),
        }
    });
    result.unwrap();
}

/// Where budgets are long enough, next to no slot stays short, unless pieces of divided vCPUs stand in the way.
#[test]
fn short_slots_are_rare() {
    let mut runner = TestRunner::new(Config { cases: 300, failure_persistence: None, ..Config::default() });
    let (slots, short) = (Cell::new(0), Cell::new(0));
    let result = runner.run(&hosts(), |random| {
        let mut model = to_model(&Host { slot_min_ns: 50_000, ..random });
        for tenant in &mut model.tenants {
            let Class::Reserved(reservation) = &mut tenant.class else { continue };
            reservation.latency_ns = reservation.latency_ns.max(10 * MS);
            reservation.share = reservation.share.max(Share::from_fraction(0.02).unwrap());
        }
        match plan(&model, &Options::default()) {
            Ok(plan) if plan.vcpus.iter().all(|vcpu| vcpu.cpus.len() == 1) => {
                slots.set(slots.get() + plan.cpus.iter().map(|cpu| cpu.slots.len()).sum::<usize>());
                short.set(short.get() + plan.short_slots);
            }
            _ => {}
        }
        Ok(())
    });
    result.unwrap();
    let (slots, short) = (slots.get(), short.get());
    assert!(slots > 10_000 && short * 2_000 < slots, "{short} of {slots} are short");
}

/// Filled to the floor with unlike periods: as they are they cut some slot too short for the table's format, and
/// shorter ones need a little of the floor for their rounding.
#[test]
fn a_cpu_filled_with_unlike_periods_has_a_table() {
    let latencies = [1, 1, 5, 10, 20, 30, 100];
    let parts: Vec<u64> = (0..40).map(|vcpu| 4 + vcpu * 37 % 96).collect();
    let sum: u64 = parts.iter().sum();
    let tenants = (0..40).map(|vcpu| {
        let share = 0.99499 * parts[vcpu] as f64 / sum as f64;
        reserved(&format!("t{vcpu}"), 1, share, latencies[vcpu % latencies.len()] * MS)
    });
    let machine = rota_model::Host { floor_ppb: 5_000_000, ..host("0", "") };
    let model = model(machine, tenants);
    check(&model, &plan(&model, &Options::default()).unwrap()).unwrap();
}
