//! A tenant whose vCPUs have unequal parts of its total share.

use rota_model::{Model, Share, Team, Tenant};
use rota_plan::{Options, Planner, plan};

use crate::checker::check;
use crate::models::{MS, host, model, reserved};

fn with_parts(parts: &[f64], tenant: Tenant) -> Tenant {
    let parts = parts.iter().map(|&part| Share::from_fraction(part).unwrap()).collect();
    Tenant { team: Team { matching: true, parts, ..Team::default() }, ..tenant }
}

fn shares(model: &Model, planner: &Planner) -> Vec<f64> {
    let plan = planner.plan();
    check(model, &plan).unwrap();
    plan.vcpus.iter().map(|vcpu| vcpu.share.fraction()).collect()
}

#[test]
fn each_vcpu_has_its_part() {
    let vm = || reserved("vm", 4, 0.45, 12 * MS);
    let model =
        model(host("0-3", ""), [with_parts(&[0.9, 0.3, 0.3, 0.3], vm()), reserved("web", 2, 0.6, 20 * MS)]);
    let plan = plan(&model, &Options::default()).unwrap();
    check(&model, &plan).unwrap();
    let first = &plan.vcpus[0];
    assert!(first.budget_ns * 10 >= first.period_ns * 9, "{first:?}");
    assert!(plan.vcpus[1].period_ns < first.period_ns, "each has the longest period that its bound allows");
}

/// An edit moves only those CPUs whose vCPUs have other parts.
#[test]
fn parts_change_by_an_edit() {
    let vm = || reserved("vm", 2, 0.4, 20 * MS);
    let web = reserved("web", 2, 0.3, 20 * MS);
    let mut planner = Planner::new(model(host("0-3", ""), [vm(), web]), &Options::default()).unwrap();
    let change = planner.admit(0, with_parts(&[0.6, 0.2], vm())).unwrap();
    assert!(!change.is_full, "{change}");
    assert_eq!(shares(planner.model(), &planner), [0.6, 0.2, 0.3, 0.3]);
    assert!(!planner.admit(0, vm()).unwrap().is_full);
    assert_eq!(shares(planner.model(), &planner), [0.4, 0.4, 0.3, 0.3]);
}
