//! A plan that is edited: which CPUs are planned anew, and which are as they were.

use rota_model::{Host, Model, Share, Spare, Tenant};
use rota_plan::{Change, Edits, Infeasible, Method, Options, Plan, Planner};

use crate::checker::check;
use crate::models::{MS, alone, host, model, on, reserved, with_siblings};

/// The plan, which keeps every promise.
#[track_caller]
fn plan_of(planner: &Planner) -> Plan {
    let plan = planner.plan();
    check(planner.model(), &plan).unwrap();
    plan
}

fn planner(model: Model) -> Planner {
    Planner::new(model, &Options::default()).unwrap()
}

/// An edit's CPUs, and whether all were planned anew.
fn told(change: &Change) -> (String, bool) {
    (change.cpus.to_string(), change.is_full)
}

fn one_cpu(cpu: &str) -> (String, bool) {
    (cpu.to_owned(), false)
}

#[test]
fn who_comes_and_goes_changes_one_cpu() {
    let tenants = (0..8).map(|vm| reserved(&format!("vm-{vm}"), 1, 0.2, (10 + vm) * MS));
    let mut planner = planner(model(host("0-4", "0"), tenants));
    let before = plan_of(&planner);
    let change = planner.admit(8, reserved("new", 1, 0.3, 5 * MS)).unwrap();
    assert_eq!(told(&change), one_cpu("1"));
    let after = plan_of(&planner);
    assert_eq!(before.cpus[2..], after.cpus[2..]);
    assert_ne!(before.cpus[1], after.cpus[1]);
    assert_eq!(told(&planner.remove(8)), one_cpu("1"));
    assert_eq!(plan_of(&planner), before);
    assert_eq!(told(&planner.remove(8)), one_cpu(""));
}

/// On its CPU as long as that has room, then on another.
#[test]
fn who_changes_stays_where_it_is_if_it_can() {
    let tenants = (0..4).map(|vm| reserved(&format!("vm-{vm}"), 1, 0.3, 20 * MS));
    let mut planner = planner(model(host("0-1", ""), tenants));
    let changed = |share, latency_ms| reserved("vm-3", 1, share, latency_ms * MS);
    assert_eq!(told(&planner.admit(3, changed(0.6, 20)).unwrap()), one_cpu("1"));
    assert_eq!(told(&planner.admit(3, changed(0.6, 20)).unwrap()), one_cpu(""));
    assert_eq!(told(&planner.remove(0)), one_cpu("0"));
    assert_eq!(told(&planner.admit(3, changed(0.65, 30)).unwrap()), one_cpu("1"));
    assert!(!planner.admit(1, reserved("vm-1", 1, 0.6, 20 * MS)).unwrap().is_full);
    plan_of(&planner);
}

/// Three vCPUs on two CPUs: one of them is divided. What one that goes leaves makes that needless.
#[test]
fn cpus_with_a_vcpu_in_common_are_planned_anew_together() {
    let tenants = (0..3).map(|vm| reserved(&format!("vm-{vm}"), 1, 0.6, 50 * MS));
    let mut planner = planner(model(host("0-2", "0"), tenants));
    let methods = |plan: &Plan| plan.vcpus.iter().map(|vcpu| vcpu.method).collect::<Vec<Method>>();
    assert!(methods(&plan_of(&planner)).contains(&Method::Split));
    assert_eq!(told(&planner.remove(0)), ("1-2".to_owned(), false));
    assert_eq!(methods(&plan_of(&planner)), [Method::Partitioned; 2]);
    let change = planner.admit(0, reserved("vm-0", 1, 0.6, 50 * MS)).unwrap();
    assert!(change.is_full, "{change}");
    assert!(methods(&plan_of(&planner)).contains(&Method::Split));
}

#[test]
fn who_does_not_fit_changes_nothing() {
    let tenants = [reserved("one", 2, 0.5, 20 * MS), reserved("two", 1, 0.9, 20 * MS)];
    let mut planner = planner(model(host("0-1", ""), tenants));
    let before = plan_of(&planner);
    let refused = |result: Result<Change, Infeasible>| result.unwrap_err();
    assert!(matches!(
        refused(planner.admit(2, reserved("new", 1, 0.2, 20 * MS))),
        Infeasible::OverUtilised { .. }
    ));
    assert!(matches!(
        refused(planner.admit(0, reserved("one", 2, 0.5, 100_000))),
        Infeasible::Latency { .. }
    ));
    assert!(matches!(
        refused(planner.admit(2, on("7", reserved("new", 1, 0.05, 20 * MS)))),
        Infeasible::NoCpu { .. }
    ));
    assert_eq!(plan_of(&planner), before);
    assert_eq!(planner.admit(2, reserved("new", 1, 0.1, 20 * MS)).map(|change| change.is_full), Ok(false));
    plan_of(&planner);
}

/// What was rounded up to fill the host to the last ns is filled again.
#[test]
fn a_full_host_takes_who_goes_back_on_one_cpu() {
    let vm = |vm: u32| reserved(&format!("vm-{vm}"), 1, 0.25, 20 * MS);
    let mut planner = planner(model(host("0-47", "0-3"), (0..176).map(vm)));
    let before = plan_of(&planner);
    let gone = told(&planner.remove(90));
    assert_eq!(told(&planner.admit(90, vm(90)).unwrap()), gone);
    assert_eq!(plan_of(&planner).cpus.len(), before.cpus.len());
}

/// Cores 0 and 1 of two CPUs each.
#[test]
fn who_shares_no_core_gets_an_empty_one() {
    let mut planner = planner(model(with_siblings(2, host("0-3", "")), [reserved("vm", 1, 0.2, 20 * MS)]));
    let change = planner.admit(1, alone(reserved("alone", 2, 0.2, 20 * MS))).unwrap();
    assert_eq!(told(&change), ("2-3".to_owned(), false));
    assert_eq!(plan_of(&planner).cpus.iter().filter(|cpu| cpu.exclusive_to == Some(1)).count(), 2);
    // Where there is room is not for everybody.
    let change = planner.admit(2, reserved("new", 3, 0.4, 20 * MS)).unwrap();
    assert_eq!(told(&change), ("0-1".to_owned(), false));
    assert_eq!(told(&planner.remove(1)), ("2-3".to_owned(), false));
    assert_eq!(told(&planner.admit(3, reserved("more", 1, 0.9, 20 * MS)).unwrap()), one_cpu("2"));
    plan_of(&planner);
}

/// Edits made at once, and a second time from the start.
#[test]
fn equal_edits_give_equal_plans() {
    let run = || {
        let mut planner = planner(model(host("0-3", ""), []));
        let vm = |vm: u32| reserved(&format!("vm-{vm}"), 1 + vm % 2, 0.07, (3 + u64::from(vm)) * MS);
        planner.update((0..20).map(|number| (number, Some(vm(number)))).collect()).unwrap();
        for round in 0..30_u32 {
            let edits: Edits = [(round * 7 % 20, None), (round * 11 % 23, Some(vm(round)))].into();
            planner.update(edits).unwrap();
        }
        (planner.model().clone(), plan_of(&planner))
    };
    assert_eq!(run(), run());
    let (model, plan) = run();
    let named: Vec<&Tenant> = model.tenants.iter().filter(|tenant| !tenant.name.is_empty()).collect();
    assert_eq!(plan.vcpus.len(), named.iter().map(|tenant| tenant.vcpus as usize).sum::<usize>());
}

fn with_spares(host: Host, spares: &[(f64, u64, u32)]) -> Host {
    let spare = |&(share, latency_ms, count): &(f64, u64, u32)| Spare {
        share: Share::from_fraction(share).unwrap(),
        latency_ns: latency_ms * MS,
        count,
    };
    Host { spares: spares.iter().map(spare).collect(), ..host }
}

/// Who is content with a spare has its slots, and nobody else's change. The least that is enough is taken.
#[test]
fn a_spare_is_taken_without_a_plan() {
    let host = with_spares(host("0-2", "0"), &[(0.3, 10, 1), (0.2, 10, 2)]);
    let mut planner = planner(model(host, [reserved("vm", 2, 0.3, 7 * MS)]));
    let before = plan_of(&planner);
    assert_eq!(before.spares, [1, 2]);
    let change = planner.admit(1, reserved("new", 1, 0.15, 12 * MS)).unwrap();
    assert_eq!((change.spares, change.cpus.len(), change.is_full), (1, 1, false), "{change}");
    let after = plan_of(&planner);
    assert_eq!(after.spares, [1, 1]);
    for (old, new) in before.cpus.iter().zip(&after.cpus) {
        let mut others = new.slots.clone();
        others.retain(|slot| after.vcpus[slot.vcpu as usize].tenant == 0);
        assert_eq!(others, old.slots);
    }
    // A capped one may not have more than its share; one in a hurry not wait so long.
    let capped = |share| {
        let mut tenant = reserved("capped", 1, share, 12 * MS);
        if let rota_model::Class::Reserved(reservation) = &mut tenant.class {
            reservation.capped = true;
        }
        tenant
    };
    assert_eq!(planner.admit(2, capped(0.1)).unwrap().spares, 0);
    assert_eq!(planner.admit(3, reserved("hurried", 1, 0.1, 9 * MS)).unwrap().spares, 0);
    assert_eq!(planner.admit(4, capped(0.2)).unwrap().spares, 1);
    assert_eq!(plan_of(&planner).spares, [1, 0]);
    planner.remove(2);
    planner.remove(3);
    assert!(!planner.restock().cpus.is_empty());
    assert_eq!(plan_of(&planner).spares, [1, 2]);
    assert!(planner.restock().cpus.is_empty());
}

/// Spares give way to whoever finds no room beside them, even to a whole CPU, and come back when there is room again.
#[test]
fn spares_give_way() {
    let host = with_spares(host("0-1", ""), &[(0.5, 20, 3), (1.0, 20, 1)]);
    let mut planner = planner(model(host, [reserved("vm", 1, 0.5, 20 * MS)]));
    assert_eq!(plan_of(&planner).spares, [3, 0]);
    let change = planner.admit(1, reserved("whole", 1, 1.0, 20 * MS)).unwrap();
    assert_eq!(told(&change), one_cpu("1"));
    assert_eq!(plan_of(&planner).spares, [1, 0]);
    let change = planner.admit(2, reserved("half", 1, 0.5, 5 * MS)).unwrap();
    assert_eq!(told(&change), one_cpu("0"));
    assert_eq!(plan_of(&planner).spares, [0, 0]);
    planner.remove(0);
    planner.remove(1);
    planner.restock();
    assert_eq!(plan_of(&planner).spares, [3, 0]);
}

/// A spare whole CPU is for who wants all of one.
#[test]
fn a_whole_cpu_can_be_spare() {
    let host = with_spares(host("0-1", ""), &[(1.0, 20, 1)]);
    let mut planner = planner(model(host, [reserved("vm", 1, 0.3, 20 * MS)]));
    assert_eq!(plan_of(&planner).spares, [1]);
    assert_eq!(planner.admit(1, reserved("less", 1, 0.6, 20 * MS)).unwrap().spares, 0);
    assert_eq!(planner.admit(2, reserved("whole", 1, 1.0, MS)).unwrap().spares, 1);
    assert_eq!(plan_of(&planner).vcpus[2].method, Method::Dedicated);
    assert_eq!(told(&planner.remove(2)), one_cpu("1"));
    plan_of(&planner);
}
