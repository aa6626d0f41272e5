//! Hosts that are 90 to 100 % reserved, with odd shares and unlike latencies: what a fluid could do is planned.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestRng, TestRunner};
use rota_model::{
    Class, Costs, CpuPlace, CpuSet, Host, Model, Placement, Reservation, Share, Tenant, Topology,
};
use rota_plan::{Method, Options, Plan, PlannedVcpu, plan};

use crate::checker::check;
use crate::fluid::{Verdict, verdict};
use crate::models::{MS, PERIODS};

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
    }
}

/// How vCPUs come by their shares: all of one size, or all of their own, in sum so many parts per million of the host.
#[derive(Clone, Debug)]
enum Shares {
    Equal(u32),
    Random(Vec<u32>),
}

fn hosts() -> impl Strategy<Value = Model> {
    let shares = prop_oneof![
        prop::sample::select(vec![
            333_300_000,
            940_000_000,
            600_000_000,
            700_000_000,
            123_456_789,
            510_000_000_u32
        ])
        .prop_map(Shares::Equal),
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

/// Plans `count` random hosts.
fn plan_hosts(count: u32) -> Counts {
    let counts = RefCell::new(Counts::default());
    let config = Config { failure_persistence: None, ..Config::with_cases(count) };
    let mut runner = TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &[3; 32]));
    let outcome = runner.run(&hosts(), |model| match (plan(&model, &Options::default()), verdict(&model)) {
        (Ok(_), Verdict::Infeasible) => Err(TestCaseError::fail("planned what cannot be served")),
        (Err(error), Verdict::Feasible) => Err(TestCaseError::fail(error.to_string())),
        (Err(_), verdict) => {
            counts.borrow_mut().refused(verdict);
            Ok(())
        }
        (Ok(plan), _) => {
            counts.borrow_mut().planned(&plan);
            check(&model, &plan).map_err(TestCaseError::fail)
        }
    });
    outcome.unwrap_or_else(|error| panic!("{error}"));
    counts.into_inner()
}

/// What became of the hosts.
#[derive(Debug, Default)]
struct Counts {
    infeasible: u32,
    open: u32,
    /// Hosts by what they needed.
    partitioned: u32,
    split: u32,
    clustered: u32,
    /// Divided vCPUs by method and number of CPUs.
    vcpus: BTreeMap<(&'static str, usize), u32>,
    /// CPUs that are joined by divided vCPUs, by how many there are together.
    groups: BTreeMap<usize, u32>,
    /// Of the hosts with divided vCPUs: this planner's tables, and DP-Fair's.
    ours: Pace,
    dp_fair: Pace,
}

/// What happens in a second of a table, summed up over hosts.
#[derive(Clone, Copy, Debug, Default)]
struct Pace {
    slots: f64,
    migrations: f64,
}

impl Counts {
    fn refused(&mut self, verdict: Verdict) {
        *(if verdict == Verdict::Infeasible { &mut self.infeasible } else { &mut self.open }) += 1;
    }

    fn planned(&mut self, plan: &Plan) {
        let has = |method| plan.vcpus.iter().any(|vcpu| vcpu.method == method);
        match (has(Method::Clustered), has(Method::Split)) {
            (true, _) => self.clustered += 1,
            (false, true) => self.split += 1,
            (false, false) => {
                self.partitioned += 1;
                return;
            }
        }
        for vcpu in plan.vcpus.iter().filter(|vcpu| vcpu.cpus.len() > 1) {
            let method = if vcpu.method == Method::Split { "split" } else { "clustered" };
            *self.vcpus.entry((method, vcpu.cpus.len())).or_default() += 1;
        }
        for cpus in joined(plan) {
            *self.groups.entry(cpus).or_default() += 1;
        }
        self.ours.add(pace(plan));
        self.dp_fair.add(dp_fair(plan));
    }
}

impl Pace {
    fn add(&mut self, other: Pace) {
        self.slots += other.slots;
        self.migrations += other.migrations;
    }
}

/// Sizes of the sets of CPUs that divided vCPUs join.
fn joined(plan: &Plan) -> Vec<usize> {
    let mut sets: Vec<CpuSet> = Vec::new();
    for vcpu in plan.vcpus.iter().filter(|vcpu| vcpu.cpus.len() > 1) {
        let mut set: CpuSet = vcpu.cpus.iter().copied().collect();
        sets.retain(|other| {
            let is_apart = other.intersection(&set).is_empty();
            if !is_apart {
                set = other.iter().chain(set.iter()).collect();
            }
            is_apart
        });
        sets.push(set);
    }
    sets.iter().map(CpuSet::len).collect()
}

fn pace(plan: &Plan) -> Pace {
    let mut slots_of: Vec<Vec<(u64, u32)>> = vec![Vec::new(); plan.vcpus.len()];
    for cpu in &plan.cpus {
        for round in (0..plan.table_length_ns).step_by(cpu.length_ns as usize) {
            cpu.slots
                .iter()
                .for_each(|slot| slots_of[slot.vcpu as usize].push((round + slot.start_ns, cpu.cpu)));
        }
    }
    let mut pace = Pace::default();
    for slots in &mut slots_of {
        slots.sort_unstable();
        let next = slots.iter().cycle().skip(1);
        let moves = slots.iter().zip(next).filter(|(slot, next)| slot.1 != next.1).count();
        pace.add(Pace { slots: slots.len() as f64, migrations: moves as f64 });
    }
    let per_second = 1e9 / plan.table_length_ns as f64;
    Pace { slots: pace.slots * per_second, migrations: pace.migrations * per_second }
}

/// Plain DP-Fair (Levin, Funk, Sadowski, Pye and Brandt 2010) for the same vCPUs: time is cut wherever a period of any
/// of them ends, and in each slice each has its share of it, CPU after CPU by McNaughton's rule. Every slice is laid
/// out alike, so one that is cut at a CPU's end migrates twice in it.
fn dp_fair(plan: &Plan) -> Pace {
    let longest = PERIODS[0];
    let period = |vcpu: &PlannedVcpu| {
        let wait = |period: u64| 2 * (period - vcpu.share.of(period));
        PERIODS.iter().copied().find(|&period| wait(period) <= vcpu.latency_ns)
    };
    let divisible: Vec<&PlannedVcpu> =
        plan.vcpus.iter().filter(|vcpu| vcpu.method != Method::Dedicated).collect();
    let deadlines: BTreeSet<u64> = divisible
        .iter()
        .filter_map(|vcpu| period(vcpu))
        .flat_map(|period| (period..=longest).step_by(period as usize))
        .collect();
    // In parts per billion of a CPU.
    let (mut filled, mut cut) = (0_u64, 0);
    for vcpu in &divisible {
        let end = filled + u64::from(vcpu.share.ppb());
        cut += u64::from(end.div_ceil(1_000_000_000) > filled / 1_000_000_000 + 1);
        filled = end;
    }
    let per_second = deadlines.len() as f64 * 1e9 / longest as f64;
    Pace {
        slots: (divisible.len() as u64 + cut) as f64 * per_second,
        migrations: 2.0 * cut as f64 * per_second,
    }
}

#[test]
fn what_a_fluid_could_do_is_planned() {
    let counts = plan_hosts(2_000);
    assert!(counts.split > 200 && counts.clustered > 100, "{counts:#?}");
}

#[test]
#[ignore = "100,000 hosts; for the figures in docs/BENCHMARKS.md"]
fn of_many_hosts_what_a_fluid_could_do_is_planned() {
    println!("{:#?}", plan_hosts(100_000));
}
