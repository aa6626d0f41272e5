//! Ten thousand random hosts through planner, encoder and certifier, as the daemon sends every table: whatever is
//! planned is certified, to the byte that would be installed.

use std::cell::Cell;

use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use rota_model::{Class, CpuSet, Host, Model, Reservation, Share, Tenant, TenantId, Topology};
use rota_plan::{Options, plan};
use rota_table::{certify, encode};
use rotad::planning::{promises, source};

/// How many hosts must have been planned for the test to have seen enough.
const PLANNED: u32 = 10_000;

fn tenants(cpus: u32) -> impl Strategy<Value = Vec<Tenant>> {
    let share =
        prop_oneof![prop::sample::select(vec![0.05, 0.1, 0.2, 0.25, 0.3333, 0.5, 1.0]), 0.01..0.6_f64,];
    let latency = prop_oneof![
        prop::sample::select(vec![1_000_000, 10_000_000, 20_000_000, 50_000_000_u64]),
        2_000_000..200_000_000_u64,
    ];
    let affinity = prop::option::weighted(0.2, prop::collection::btree_set(0..cpus, 1..=cpus as usize));
    let tenant = (share, latency, any::<bool>(), 1..3_u32, affinity).prop_map(
        |(share, latency_ns, capped, vcpus, affinity)| Tenant {
            name: String::new(),
            class: Class::Reserved(Reservation {
                share: Share::from_fraction(share).expect("a share"),
                latency_ns,
                capped,
            }),
            vcpus,
            affinity: affinity.map(CpuSet::from_iter),
            pinned: false,
            matcher: None,
        },
    );
    prop::collection::vec(tenant, 1..=3 * cpus as usize)
}

fn models() -> impl Strategy<Value = Model> {
    let floor = prop::sample::select(vec![0, Host::FLOOR_PPB]);
    (1..9_u32, floor).prop_flat_map(|(nr_cpus, floor_ppb)| {
        tenants(nr_cpus).prop_map(move |mut tenants| {
            for (number, tenant) in tenants.iter_mut().enumerate() {
                tenant.name = format!("t{number}");
            }
            let cpus = CpuSet::from_iter(0..nr_cpus);
            let host = Host {
                topology: Topology::flat(&cpus),
                cpus,
                housekeeping: CpuSet::default(),
                floor_ppb,
                slot_min_ns: Host::SLOT_MIN_NS,
            };
            Model { host, tenants }
        })
    })
}

#[test]
fn ten_thousand_random_hosts_are_planned_and_certified() {
    let (planned, refused) = (Cell::new(0), Cell::new(0));
    for batch in 0.. {
        if planned.get() >= PLANNED {
            break;
        }
        let config = Config { failure_persistence: None, ..Config::with_cases(500) };
        let mut runner =
            TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &[batch; 32]));
        let outcome = runner.run(&models(), |model| {
            let ids: Vec<TenantId> = (0..model.tenants.len() as TenantId).collect();
            let Ok(plan) = plan(&model, &Options::default()) else {
                refused.set(refused.get() + 1);
                return Ok(());
            };
            let bytes =
                encode(&source(&plan, &ids)).map_err(|error| TestCaseError::fail(error.to_string()))?;
            let certified = certify(&bytes, &promises(&model, &ids));
            prop_assert!(certified.is_ok(), "{}", certified.unwrap_err());
            planned.set(planned.get() + 1);
            Ok(())
        });
        outcome.unwrap_or_else(|error| panic!("{error}"));
        assert!(refused.get() < 4 * PLANNED, "too few hosts are feasible to learn anything");
    }
    println!("{} hosts planned and certified, {} refused", planned.get(), refused.get());
}
