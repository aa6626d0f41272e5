//! Equal tables: vCPUs that are promised the same change places, and nothing else changes.

use proptest::prelude::*;
use rota_model::Tenant;
use rota_plan::{Options, Plan, PlannedVcpu, Planner, Seat, Unequal};

use crate::checker::check;
use crate::models::{MS, alone, host, model, on, reserved, with_siblings};

fn planner(cpus: &str, tenants: impl IntoIterator<Item = Tenant>) -> Planner {
    Planner::new(model(host(cpus, ""), tenants), &Options::default()).unwrap()
}

#[track_caller]
fn plan_of(planner: &Planner) -> Plan {
    let plan = planner.plan();
    check(planner.model(), &plan).unwrap();
    plan
}

fn cpus(planner: &Planner) -> Vec<Vec<u32>> {
    planner.seats().into_iter().map(|seat| seat.cpus).collect()
}

#[test]
fn two_change_places_and_nobody_else_moves() {
    let mut planner = planner("0-3", (0..8).map(|vm| reserved(&format!("vm-{vm}"), 1, 0.4, 20 * MS)));
    let before = cpus(&planner);
    let other = (1..8).find(|&other| before[other] != before[0]).unwrap();
    let change = planner.swap((0, 0), (other as u32, 0)).unwrap();
    assert!(!change.is_full && change.cpus.len() == 2, "{change}");
    let mut expected = before.clone();
    expected.swap(0, other);
    assert_eq!(cpus(&planner), expected);
    plan_of(&planner);
    planner.swap((0, 0), (other as u32, 0)).unwrap();
    assert_eq!(cpus(&planner), before);
}

#[test]
fn unequal_ones_stay() {
    let tenants = [
        reserved("a", 1, 0.6, 20 * MS),
        reserved("b", 1, 0.5, 20 * MS),
        on("2", reserved("c", 1, 0.6, 20 * MS)),
        reserved("d", 2, 0.4, 20 * MS),
        reserved("e", 2, 0.4, 20 * MS),
    ];
    let mut planner = planner("0-3", tenants);
    let before = plan_of(&planner);
    assert_eq!(planner.swap((0, 0), (1, 0)), Err(Unequal::Promises));
    assert_eq!(planner.swap((0, 0), (9, 0)), Err(Unequal::Absent));
    assert_eq!(planner.swap((0, 0), (0, 1)), Err(Unequal::Absent));
    assert_eq!(planner.swap((0, 0), (0, 0)), Err(Unequal::SamePlace));
    assert_eq!(planner.swap((0, 0), (2, 0)), Err(Unequal::Cpus));
    assert_eq!(plan_of(&planner), before);
}

#[test]
fn a_tenants_vcpus_stay_apart() {
    let mut planner = planner("0-1", [reserved("d", 2, 0.4, 20 * MS), reserved("e", 2, 0.4, 20 * MS)]);
    let seats = planner.seats();
    let elsewhere = seats.iter().find(|seat| seat.vcpu.0 == 1 && seat.cpus != seats[0].cpus).unwrap();
    assert_eq!(planner.swap((0, 0), elsewhere.vcpu), Err(Unequal::Together));
    assert!(planner.swap((0, 0), (0, 1)).is_ok());
    plan_of(&planner);
}

#[test]
fn who_shares_no_core_keeps_it() {
    let tenants = [alone(reserved("alone", 1, 0.3, 20 * MS)), reserved("vm", 1, 0.3, 20 * MS)];
    let model = model(with_siblings(2, host("0-3", "")), tenants);
    let mut planner = Planner::new(model, &Options::default()).unwrap();
    assert_eq!(planner.swap((0, 0), (1, 0)), Err(Unequal::Promises));
}

/// Some of three sizes, so full that on few CPUs some are divided; with two vCPUs, or bound to some CPUs, now and then.
fn tenants() -> impl Strategy<Value = Vec<Tenant>> {
    prop::collection::vec((0usize..3, 1u32..3, 0u32..6), 2..14).prop_map(|drawn| {
        let tenant = |(place, (size, vcpus, bound)): (usize, &(usize, u32, u32))| {
            let (share, latency_ms) = [(0.1, 30), (0.2, 20), (0.3, 40)][*size];
            let tenant = reserved(&format!("vm-{place}"), *vcpus, share, latency_ms * MS);
            if *bound == 0 { on("0-1", tenant) } else { tenant }
        };
        drawn.iter().enumerate().map(tenant).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// After any sequence of swaps each promise is kept, and each vCPU is promised what it was.
    #[test]
    fn any_swaps_keep_every_promise(
        tenants in tenants(),
        swaps in prop::collection::vec((0usize..32, 0usize..32), 1..40),
        leaver in 0u32..14,
    ) {
        let Ok(mut planner) = Planner::new(model(host("0-4", ""), tenants), &Options::default()) else {
            return Ok(());
        };
        let promised = |plan: &Plan| {
            let of = |vcpu: &PlannedVcpu| (vcpu.tenant, vcpu.index, vcpu.share, vcpu.latency_ns, vcpu.capped);
            plan.vcpus.iter().map(of).collect::<Vec<_>>()
        };
        let before = promised(&planner.plan());
        for (one, other) in swaps {
            let seats: Vec<Seat> = planner.seats();
            let [one, other] = [one, other].map(|place| seats[place % seats.len()].clone());
            let moved = planner.swap(one.vcpu, other.vcpu);
            let now = planner.seats();
            let at = |vcpu| now.iter().find(|seat: &&Seat| seat.vcpu == vcpu).map(|seat| seat.cpus.clone());
            if moved.is_ok() {
                prop_assert_eq!((at(one.vcpu), at(other.vcpu)), (Some(other.cpus), Some(one.cpus)));
            }
            for seat in seats.iter().filter(|seat| moved.is_err() || ![one.vcpu, other.vcpu].contains(&seat.vcpu)) {
                prop_assert_eq!(at(seat.vcpu), Some(seat.cpus.clone()), "nobody else moves");
            }
        }
        let plan = planner.plan();
        prop_assert_eq!(check(planner.model(), &plan), Ok(()));
        prop_assert_eq!(promised(&plan), before);
        // Edits go on from there.
        planner.remove(leaver);
        planner.admit(20, reserved("new", 1, 0.05, 50 * MS)).ok();
        prop_assert_eq!(check(planner.model(), &planner.plan()), Ok(()));
    }
}
