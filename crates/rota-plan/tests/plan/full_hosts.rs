//! Hosts that are 90 to 100 % reserved, with odd shares and unlike latencies: what a fluid could do is planned.

use std::cell::Cell;

use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestRng, TestRunner};
use rota_model::{
    Class, Costs, CpuPlace, CpuSet, Host, Model, Placement, Reservation, Share, Team, Tenant, Topology,
};
use rota_plan::{Method, Options, plan};

use crate::checker::check;
use crate::fluid::{Verdict, verdict};
use crate::models::MS;

/// CPUs of a machine with two threads a core, two cores a cache and two caches a node.
fn machine(cpus: u32, floor_ppb: u32) -> Host {
    let place = |cpu| CpuPlace { cpu, core: cpu / 2, cache: cpu / 4, node: cpu / 8, socket: cpu / 8 };
    Host {
        cpus: (0..cpus).collect(),
        housekeeping: CpuSet::default(),
        topology: Topology { places: (0..cpus).map(place).collect() },
        floor_ppb,
        slot_min_ns: Host::SLOT_MIN_NS,
        placement: Placement::WorstFit,
        costs: Costs::default(),
        spares: Vec::new(),
        interference: rota_model::Interference::Off,
        branch_records: false,
    }
}

/// How vCPUs come by their shares: all of one size, or all of their own, in sum so many parts per million of the host.
#[derive(Clone, Debug)]
enum Shares {
    Equal(u32),
    Random(Vec<u32>),
}

/// Shares of which many do not fill a CPU.
const EQUAL_PPB: [u32; 6] = [333_300_000, 940_000_000, 600_000_000, 700_000_000, 123_456_789, 510_000_000];

fn hosts() -> impl Strategy<Value = Model> {
    let shares = prop_oneof![
        prop::sample::select(EQUAL_PPB.to_vec()).prop_map(Shares::Equal),
        prop::collection::vec(1..1_000_u32, 2..40).prop_map(Shares::Random),
    ];
    let latencies = prop_oneof![
        prop::sample::select(vec![1, 2, 5, 20, 100]).prop_map(|latency| vec![latency * MS]),
        prop::collection::vec(prop::sample::select(vec![1, 5, 10, 20, 30, 50, 100]), 40)
            .prop_map(|latencies| latencies.into_iter().map(|latency| latency * MS).collect()),
        prop::collection::vec(MS..200 * MS, 40),
    ];
    let affinities = prop_oneof![
        3 => Just(Vec::new()),
        1 => prop::collection::vec(any::<u8>(), 40),
    ];
    let floors = prop::sample::select(vec![0, 0, Host::FLOOR_PPB]);
    let load_ppm = prop_oneof![900_000..1_000_000_u32, 995_000..1_000_000_u32, Just(1_000_000)];
    (1..9_u32, shares, latencies, affinities, floors, load_ppm, any::<bool>()).prop_map(
        |(cpus, shares, latencies, affinities, floor_ppb, load_ppm, capped)| {
            let available_ppb = u64::from(cpus) * u64::from(1_000_000_000 - floor_ppb);
            let load_ppb = available_ppb * u64::from(load_ppm) / 1_000_000;
            let tenant = |number: usize, share_ppb: u64| {
                let latency_ns = latencies[number % latencies.len()];
                let share = Share::from_ppb(share_ppb.clamp(1, 999_999_999) as u32).unwrap();
                // Every second one, on neighbouring CPUs.
                let affinity = affinities.get(number).filter(|seed| **seed % 2 == 1).map(|seed| {
                    let (first, count) = (u32::from(seed / 2) % cpus, u32::from(seed / 16) % cpus + 1);
                    (first..first + count).map(|cpu| cpu % cpus).collect::<CpuSet>()
                });
                Tenant {
                    name: format!("t{number}"),
                    class: Class::Reserved(Reservation { share, latency_ns, capped }),
                    vcpus: 1,
                    affinity,
                    pinned: false,
                    exclusive_cores: false,
                    oversubscribe: true,
                    team: Team::default(),
                    matcher: None,
                }
            };
            let tenants = match &shares {
                Shares::Equal(ppb) => {
                    let count = load_ppb / u64::from(*ppb);
                    (0..count as usize).map(|number| tenant(number, u64::from(*ppb))).collect()
                }
                Shares::Random(parts) => {
                    let sum: u64 = parts.iter().map(|&part| u64::from(part)).sum();
                    let share = |part: u32| load_ppb * u64::from(part) / sum;
                    parts.iter().enumerate().map(|(number, &part)| tenant(number, share(part))).collect()
                }
            };
            Model { host: machine(cpus, floor_ppb), tenants }
        },
    )
}

/// Both kinds of plans with divided vCPUs have to come up.
#[test]
fn what_a_fluid_could_do_is_planned() {
    let (split, clustered) = (Cell::new(0), Cell::new(0));
    let config = Config { failure_persistence: None, ..Config::with_cases(2_000) };
    let mut runner = TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &[3; 32]));
    let outcome = runner.run(&hosts(), |model| match (plan(&model, &Options::default()), verdict(&model)) {
        (Ok(_), Verdict::Infeasible) => Err(TestCaseError::fail("planned what cannot be served")),
        (Err(error), Verdict::Feasible) => Err(TestCaseError::fail(error.to_string())),
        (Err(_), _) => Ok(()),
        (Ok(plan), _) => {
            let has = |method| u32::from(plan.vcpus.iter().any(|vcpu| vcpu.method == method));
            split.set(split.get() + has(Method::Split));
            clustered.set(clustered.get() + has(Method::Clustered));
            check(&model, &plan).map_err(TestCaseError::fail)
        }
    });
    outcome.unwrap_or_else(|error| panic!("{error}"));
    let (split, clustered) = (split.get(), clustered.get());
    assert!(split > 200 && clustered > 100, "{split} hosts with split vCPUs, {clustered} with clusters");
}
