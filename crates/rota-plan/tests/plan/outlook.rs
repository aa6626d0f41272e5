//! What would follow if tenants came is what follows if they come, and asking changes nothing.

use std::cell::Cell;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use rota_model::{Share, Spare, Team, Tenant};
use rota_plan::{Edits, Options, Plan, Planner, VcpuKey};

use crate::models::MS;
use crate::properties::{hosts, to_model};

/// The vCPUs of the first plan that are on other CPUs in the second.
fn moved(before: &Plan, after: &Plan) -> Vec<VcpuKey> {
    let now = |vcpu: &VcpuKey| {
        let is_it = |planned: &&rota_plan::PlannedVcpu| (planned.tenant, planned.index) == *vcpu;
        &after.vcpus.iter().find(is_it).unwrap().cpus
    };
    let keys = before.vcpus.iter().map(|planned| ((planned.tenant, planned.index), &planned.cpus));
    keys.filter(|(vcpu, cpus)| now(vcpu) != *cpus).map(|(vcpu, _)| vcpu).collect()
}

#[test]
fn a_question_is_answered_as_the_edit_would_be_and_changes_nothing() {
    let [asked, full, refused, with_moves] = [const { Cell::new(0) }; 4];
    let count = |counter: &Cell<u32>| counter.set(counter.get() + 1);
    let cases = (hosts(), 1..4_usize, any::<[bool; 2]>());
    let mut runner = TestRunner::new(Config { cases: 600, failure_persistence: None, ..Config::default() });
    let outcome = runner.run(&cases, |(host, newcomers, [has_spares, together])| {
        let mut model = to_model(&host);
        if has_spares {
            let share = Share::from_fraction(0.1).unwrap();
            model.host.spares = vec![Spare { share, latency_ns: 20 * MS, count: 2 }];
        }
        let present = model.tenants.len().saturating_sub(newcomers);
        let mut newcomers: Vec<Tenant> = model.tenants.split_off(present);
        if together {
            let team = |tenant: &Tenant| Team { together: tenant.vcpus > 1, ..Team::default() };
            newcomers.iter_mut().for_each(|tenant| tenant.team = team(tenant));
        }
        let Ok(mut planner) = Planner::new(model, &Options::default()) else { return Ok(()) };
        let before = planner.plan();
        let mut edited = planner.clone();
        let edits: Edits =
            (present as u32..).zip(&newcomers).map(|(id, tenant)| (id, Some(tenant.clone()))).collect();
        let expected = edited.update(edits);
        // What was asked before, and refused or not, is of no consequence.
        for newcomers in [&newcomers[..1], &newcomers[..], &newcomers[..]] {
            let outlook = planner.consider(newcomers);
            prop_assert_eq!(&planner.plan(), &before);
            if newcomers.len() > 1 && outlook.is_err() != expected.is_err() {
                return Err(TestCaseError::fail(format!("{outlook:?}, {expected:?}")));
            }
        }
        match (planner.consider(&newcomers), &expected) {
            (Ok(outlook), Ok(change)) => {
                prop_assert_eq!(&outlook.change, change);
                let expected = moved(&before, &edited.plan());
                prop_assert_eq!(&outlook.moved, &expected);
                if !expected.is_empty() {
                    count(&with_moves);
                }
                count(if change.is_full { &full } else { &asked });
            }
            (Err(one), Err(other)) => {
                prop_assert_eq!(&one, other);
                count(&refused);
            }
            (one, other) => return Err(TestCaseError::fail(format!("{one:?}, {other:?}"))),
        }
        Ok(())
    });
    outcome.unwrap();
    for (counter, least) in [(&asked, 50), (&full, 20), (&refused, 20), (&with_moves, 10)] {
        assert!(counter.get() >= least, "{asked:?} {full:?} {refused:?} {with_moves:?}");
    }
}
