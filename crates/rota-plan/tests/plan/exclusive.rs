//! Tenants that share no core: kept apart, and refused only if no choice of cores is to be found.

use std::cell::Cell;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use rota_model::{CpuSet, Model, Tenant};
use rota_plan::{Infeasible, Options, plan};

use crate::checker::check;
use crate::models::{MS, alone, host, model, on, pinned, reserved, with_siblings};

fn cpus_of(model: &Model, tenant: &str) -> String {
    let plan = plan(model, &Options::default()).unwrap();
    check(model, &plan).unwrap();
    let own = plan.vcpus.iter().filter(|vcpu| model.tenants[vcpu.tenant as usize].name == tenant);
    own.flat_map(|vcpu| vcpu.cpus.iter().copied()).collect::<CpuSet>().to_string()
}

#[test]
fn nobody_is_on_a_sibling() {
    let tenants = [reserved("web", 6, 0.5, 20 * MS), alone(reserved("bank", 3, 0.5, 20 * MS))];
    let model = model(with_siblings(2, host("0-7", "0-1")), tenants);
    assert_eq!(cpus_of(&model, "bank"), "2-3");
    assert_eq!(cpus_of(&model, "web"), "4-7");
}

/// A VM with two threads a core has vCPUs 0 and 1 on one core, 2 and 3 on another.
#[test]
fn vcpus_with_neighbouring_numbers_are_on_one_core() {
    for share in [1.0, 0.6] {
        let mut host = host("0-15", "0,8");
        host.topology.places.iter_mut().for_each(|place| place.core = place.cpu % 8);
        let model = model(host, [alone(reserved("vm", 4, share, MS))]);
        let plan = plan(&model, &Options::default()).unwrap();
        check(&model, &plan).unwrap();
        let cpus: Vec<&[u32]> = plan.vcpus.iter().map(|vcpu| &vcpu.cpus[..]).collect();
        assert_eq!(cpus, [[1], [9], [2], [10]], "{share}");
    }
}

#[test]
fn cores_are_taken_where_others_need_them_least() {
    let tenants = [
        on("2-3", reserved("near", 3, 0.5, 20 * MS)),
        alone(reserved("bank", 1, 0.1, 20 * MS)),
        alone(on("4-7", reserved("mint", 1, 0.1, 20 * MS))),
    ];
    let model = model(with_siblings(2, host("0-7", "0-1")), tenants);
    assert_eq!((cpus_of(&model, "bank"), cpus_of(&model, "mint")), ("6".to_owned(), "4".to_owned()));
}

#[test]
fn without_siblings_cpus_are_shared_as_ever() {
    let tenants = [alone(reserved("bank", 1, 0.4, 20 * MS)), reserved("web", 1, 0.4, 20 * MS)];
    let model = model(host("0-1", "0"), tenants);
    assert_eq!((cpus_of(&model, "bank"), cpus_of(&model, "web")), ("1".to_owned(), "1".to_owned()));
}

#[test]
fn a_core_with_a_housekeeping_cpu_is_not_for_one_tenant() {
    let model = model(with_siblings(2, host("0-5", "0,2")), [alone(reserved("bank", 2, 0.5, 20 * MS))]);
    assert_eq!(cpus_of(&model, "bank"), "4-5");
}

#[test]
fn too_few_cores_are_told() {
    let refusal = |tenants: &[Tenant]| {
        let model = model(with_siblings(2, host("0-5", "0-1")), tenants.to_vec());
        plan(&model, &Options::default()).unwrap_err().to_string()
    };
    let bank = |name| alone(reserved(name, 1, 0.1, 20 * MS));
    assert_eq!(
        refusal(&[bank("a"), bank("b"), bank("c")]),
        "tenant `b`: wants cores to itself, and of those with CPUs 2-5 not enough were found that the others can do \
         without; lower a share, widen an affinity or add cores"
    );
    assert_eq!(
        refusal(&[bank("a"), pinned("everywhere", "2-5", 0.05)]),
        "tenant `a`: wants cores to itself, and of those with CPUs 2-5 not enough were found that the others can do \
         without; lower a share, widen an affinity or add cores"
    );
}

/// Whether loads that may be divided at will fit if each core (bit of a set) goes to one of the tenants that want cores
/// to themselves, or to all the others: every way is tried, with Hall's condition for each.
fn some_choice_fits(model: &Model, cores: usize, threads: u64) -> bool {
    let wanting: Vec<usize> =
        (0..model.tenants.len()).filter(|&at| model.tenants[at].exclusive_cores).collect();
    let owners = wanting.len() + 1;
    (0..owners.pow(cores as u32)).any(|choice| {
        let owner = |core: usize| choice / owners.pow(core as u32) % owners;
        let allowed = |tenant: usize| -> u32 {
            let group = wanting.iter().position(|&wanting| wanting == tenant).unwrap_or(wanting.len());
            let affinity = &model.tenants[tenant].affinity;
            let may = |cpu: u64| affinity.as_ref().is_none_or(|cpus| cpus.contains(cpu as u32 + 1));
            let cpus = (0..cores as u64 * threads).filter(|cpu| owner((cpu / threads) as usize) == group);
            cpus.filter(|&cpu| may(cpu)).map(|cpu| 1 << cpu).sum()
        };
        let masks: Vec<u32> = (0..model.tenants.len()).map(allowed).collect();
        (1..1_u32 << masks.len()).all(|set| {
            let members = || (0..masks.len()).filter(|at| set >> at & 1 == 1);
            let needed: u64 = members()
                .map(|at| {
                    let share = model.tenants[at].reservation().unwrap().share.ppb();
                    u64::from(share) * u64::from(model.tenants[at].vcpus)
                })
                .sum();
            let given = members().fold(0, |union, at| union | masks[at]).count_ones();
            needed <= u64::from(given) * 1_000_000_000
        })
    })
}

#[test]
fn refused_is_next_to_nothing_that_fits() {
    let tenant =
        (1..3_u32, 1..8_u32, prop::option::weighted(0.4, (0..8_u32, 1..8_u32)), prop::bool::weighted(0.4));
    let hosts = (1..5_usize, 1..4_u64, prop::collection::vec(tenant, 1..7));
    let mut runner = TestRunner::new(Config { cases: 2_000, failure_persistence: None, ..Config::default() });
    let (planned, refused, missed) = (Cell::new(0), Cell::new(0), Cell::new(0));
    let count = |counter: &Cell<u32>| counter.set(counter.get() + 1);
    let result = runner.run(&hosts, |(cores, threads, tenants)| {
        let cpus = cores as u64 * threads;
        // CPU 0 is the system's, and a core of its own; the cores after it have `threads` CPUs.
        let mut host = host(&format!("0-{cpus}"), "0");
        for place in host.topology.places.iter_mut().skip(1) {
            place.core = 1 + (place.cpu - 1) / threads as u32;
        }
        let tenants = tenants.iter().enumerate().map(|(number, &(vcpus, eighths, affinity, exclusive))| {
            let tenant = reserved(&format!("t{number}"), vcpus, f64::from(eighths) / 8.0, 20 * MS);
            let some = |(first, count)| (first..first + count).map(|cpu| 1 + cpu % cpus as u32).collect();
            Tenant { affinity: affinity.map(some), exclusive_cores: exclusive, ..tenant }
        });
        let model = model(host, tenants);
        // On cores of one CPU, nobody is alone: then any choice will do.
        let feasible = threads == 1 || some_choice_fits(&model, cores, threads);
        match plan(&model, &Options::default()) {
            Ok(plan) => {
                count(&planned);
                prop_assert!(feasible);
                check(&model, &plan).map_err(TestCaseError::fail)?;
            }
            Err(Infeasible::Cores { .. }) if feasible => count(&missed),
            Err(Infeasible::Cores { .. }) => count(&refused),
            Err(Infeasible::Bottleneck { .. } | Infeasible::OverUtilised { .. }) if threads > 1 => {
                prop_assert!(!feasible);
            }
            Err(_) => {}
        }
        Ok(())
    });
    result.unwrap();
    let (planned, refused, missed) = (planned.get(), refused.get(), missed.get());
    assert!(planned > 500 && refused > 100, "{planned} planned, {refused} refused");
    assert!(missed * 20 < refused, "{missed} missed, {refused} refused rightly");
}
