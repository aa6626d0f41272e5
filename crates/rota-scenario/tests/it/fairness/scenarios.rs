//! Scenarios of shared tenants, by hand and by chance, under any policy.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::ops::RangeInclusive;

use rota_model::Class;
use rota_model::config::Source;
use rota_peers::mqfq::{HORIZON_NS, MIN_SLICE_NS};
use rota_scenario::{Scenario, policies};
use rota_sim::observe::{Bound, Fairness, Metrics, Observer, Sanity, Waits};
use rota_sim::{Contender, Rng, Simulation, Tenants, UnitId};

pub const MS: u64 = 1_000_000;

/// What a tenant may be owed by the scheduler: its share of so long (shares.bpf.h).
const ROTA_HORIZON_NS: u64 = 200 * MS;

/// A thread that waits longer is starved.
pub const WATCHDOG_NS: u64 = 30_000 * MS;

pub type Run = Simulation<Box<dyn Contender>, (Metrics, Sanity, (Fairness, Waits))>;

/// A shared tenant: its weight, its threads and what they do, as a workload's keys.
pub struct Shared {
    pub weight: u32,
    pub threads: u32,
    pub program: String,
}

/// On so many CPUs with so many caches, with these tenants, called `t0`, `t1` and so on.
pub fn scenario(cpus: u32, caches: u32, seed: u64, tenants: &[Shared]) -> Scenario {
    let mut text = format!("seed = {seed}\n[host]\ncpus = \"0-{}\"\n", cpus - 1);
    let part = cpus / caches;
    let sets: Vec<_> = (0..caches).map(|cache| [cache * part, (cache + 1) * part - 1]).collect();
    let sets: Vec<_> = sets.iter().map(|[first, last]| format!("\"{first}-{last}\"")).collect();
    writeln!(text, "caches = [{}]", sets.join(", ")).expect("a string takes all");
    for (number, Shared { weight, threads, program }) in tenants.iter().enumerate() {
        let tenant = format!("[[tenant]]\nname = \"t{number}\"\nclass = \"shared\"\nweight = {weight}\n");
        let threads = if program.contains("pipeline") { threads.div_ceil(4) } else { *threads };
        let workload = format!("[[workload]]\ntenant = \"t{number}\"\nthreads = {threads}\n{program}\n");
        write!(text, "{tenant}{workload}").expect("a string takes all");
    }
    parse(text)
}

pub fn parse(text: String) -> Scenario {
    let source = Source { path: "fairness.toml".to_owned(), text };
    Scenario::parse(&source).unwrap_or_else(|errors| panic!("{errors}\n{}", source.text))
}

/// The seeds of the scenarios that are drawn: so many from 0 on, unless `ROTA_FAIR_SCENARIOS` has another number, or
/// the first and the last one (`100-199`).
pub fn seeds(usual: u64) -> RangeInclusive<u64> {
    let Ok(drawn) = std::env::var("ROTA_FAIR_SCENARIOS") else { return 0..=usual - 1 };
    let number = |text: &str| text.parse().expect("ROTA_FAIR_SCENARIOS is a number, or two: FIRST-LAST");
    match drawn.split_once('-') {
        Some((first, last)) => number(first)..=number(last),
        None => 0..=number(&drawn) - 1,
    }
}

/// 4 to 48 CPUs, 2 to 5 tenants, and as many threads as twice the CPUs at most in each.
pub fn draw(seed: u64) -> Scenario {
    let mut rng = Rng::new(seed, 0);
    let cpus = [4, 4, 6, 8, 8, 12, 12, 16, 24, 48][rng.below(10) as usize];
    let tenants: Vec<Shared> = (0..rng.between(2, 5)).map(|_| shared(&mut rng, cpus)).collect();
    scenario(cpus, caches(seed, cpus), seed, &tenants)
}

/// One, two or four.
fn caches(seed: u64, cpus: u32) -> u32 {
    let drawn = [1, 1, 2, 4][Rng::new(seed, 1).below(4) as usize];
    if cpus.is_multiple_of(drawn) { drawn } else { 1 }
}

fn shared(rng: &mut Rng, cpus: u32) -> Shared {
    let mean_us = [50, 100, 300, 1_000, 3_000, 10_000, 50_000][rng.below(7) as usize];
    let (least_us, most_us) = (mean_us * rng.between(50, 100) / 100, mean_us * rng.between(100, 150) / 100);
    let drawn = format!("{{ uniform = [\"{least_us}us\", \"{most_us}us\"] }}");
    let part = format!("\"{}us\"", (mean_us / rng.between(5, 50)).max(1));
    let program = match rng.below(8) {
        0 | 1 => format!("program = \"barrier\"\ncompute = {drawn}"),
        2 => format!("program = \"mutex\"\noutside = {drawn}\ninside = {part}"),
        3 => format!("program = \"condition\"\ncompute = {drawn}\nbetween = {part}"),
        4 => format!("program = \"pipeline\"\nstages = 4\nroom = 4\ncompute = {drawn}"),
        5 => format!("program = \"intermittent\"\nleast = \"{least_us}us\"\nmost = \"{most_us}us\""),
        _ => "program = \"hog\"".to_owned(),
    };
    let threads = match rng.below(4) {
        0 => rng.between(2, u64::from(cpus)) as u32,
        1 => 2 * cpus,
        _ => cpus,
    };
    let weight = [100, 100, 100, 50, 200, 400][rng.below(6) as usize];
    Shared { weight, threads, program }
}

/// Under a policy that has settled, watched from then on. In a thread that has had none before.
pub fn start(scenario: &Scenario, policy: &str) -> Run {
    let topology = &scenario.model.host.topology;
    let cpus = topology.places.len() as u32;
    let slice_ns = MIN_SLICE_NS + scenario.costs.late_ns();
    let caches: BTreeSet<u32> = topology.places.iter().map(|place| place.cache).collect();
    let fairness = match policy {
        "rota" => Fairness::new(cpus, Bound::of_lines(cpus, caches.len() as u32, slice_ns), ROTA_HORIZON_NS),
        _ => Fairness::new(cpus, Bound::of_definition(cpus, slice_ns), HORIZON_NS),
    };
    let observers = (Metrics::default(), Sanity::new(WATCHDOG_NS), (fairness, Waits::default()));
    let mut run = settle(scenario, policy, observers, |of, unit, weight| of.2.0.tenant(unit, weight));
    run.observer.0.begin(&mut run.machine);
    run.observer.2.0.begin(&run.machine);
    run.observer.2.1.begin(&run.machine);
    run
}

/// Watched by whoever is to watch it, to whom each tenant is named with its unit and weight. It sees the policy settle.
pub fn settle<O: Observer>(
    scenario: &Scenario,
    policy: &str,
    observers: O,
    named: impl Fn(&mut O, UnitId, u32),
) -> Simulation<Box<dyn Contender>, O> {
    let entry = policies::find(policy).unwrap_or_else(|| panic!("no policy {policy:?}"));
    let made = (entry.make)(&scenario.model).unwrap_or_else(|error| panic!("{policy}: {error:#}"));
    let topology = scenario.model.host.topology.clone();
    let mut run = Simulation::new(topology, scenario.costs.clone(), scenario.seed, 0, made, observers);
    let mut tenants = Tenants::new(&mut run.machine, &scenario.model);
    for home in tenants.homes() {
        run.act(|run| run.policy.appears(&mut run.machine, home));
        if let Class::Shared { weight } = home.tenant.class {
            named(&mut run.observer, home.first_unit, weight);
        }
    }
    for member in scenario.members(&mut run) {
        let tenant = member.tenant.expect("a workload is a tenant's");
        let name = &scenario.model.tenants[tenant as usize].name;
        let spec = tenants.thread(name, member.program);
        run.spawn(spec);
    }
    let mut until_ns = 100 * MS;
    run.run_until(until_ns);
    while !run.policy.is_settled() {
        assert!(until_ns < 60_000 * MS, "{policy} does not settle");
        until_ns += 100 * MS;
        run.run_until(until_ns);
    }
    run
}

/// Simulates so many ns more.
pub fn advance<O: Observer>(run: &mut Simulation<Box<dyn Contender>, O>, ns: u64) {
    let until_ns = run.machine.now_ns() + ns;
    run.run_until(until_ns);
}
