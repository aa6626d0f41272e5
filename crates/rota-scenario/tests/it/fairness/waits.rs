//! Nobody starves: how long a thread waits for a CPU at most, by its class, as docs/PROMISES.md has it.

use std::fmt::Write;

use rota_model::Class;
use rota_peers::mqfq::{HORIZON_NS, QUANTUM_NS};
use rota_scenario::Scenario;
use rota_sim::observe::Longest;
use rota_sim::{Rng, Tenants, UnitId};
use rota_twin::apart;

use super::scenarios::{MS, Run, advance, draw, parse, seeds, start};

/// The longest waits of each tenant's threads, in the configuration's order but for the system's.
fn longest(run: &mut Run, tenants: u32) -> Vec<Longest> {
    let units = (Tenants::SYSTEM.0 + 1..=tenants).map(UnitId);
    units.map(|unit| run.observer.2.1.of(&run.machine, unit)).collect()
}

/// Who is behind others may have all CPUs for as long as they owe it something, which is the horizon at most. Then each
/// thread has its turn after its siblings, for which its tenant has its part of the CPUs.
fn bounds(scenario: &Scenario, run: &Run) -> Vec<u64> {
    let shared =
        |class: &Class| if let Class::Shared { weight } = class { Some(u64::from(*weight)) } else { None };
    let weights: Vec<u64> =
        scenario.model.tenants.iter().filter_map(|tenant| shared(&tenant.class)).collect();
    let cpus = scenario.model.host.cpus.len() as u64;
    let of_tenant = |(unit, weight): (u32, &u64)| {
        let threads = run.machine.tasks().filter(|(_, task)| task.unit == UnitId(unit)).count() as u64;
        HORIZON_NS + 2 * (threads + cpus) * QUANTUM_NS * weights.iter().sum::<u64>() / (weight * cpus)
    };
    (1..).zip(&weights).map(of_tenant).collect()
}

#[test]
fn everybody_runs_under_the_definition() {
    for seed in seeds(8) {
        apart(|| {
            let scenario = draw(seed);
            let mut run = start(&scenario, "mqfq");
            advance(&mut run, 400 * MS);
            let bounds = bounds(&scenario, &run);
            for (longest, bound_ns) in longest(&mut run, bounds.len() as u32).into_iter().zip(bounds) {
                assert!(longest.wait_ns <= bound_ns, "seed {seed}: {longest:?}, {bound_ns} ns");
                let late_ns = scenario.costs.late_ns();
                assert!(longest.beside_idle_ns <= late_ns, "seed {seed}: {longest:?}, {late_ns} ns");
            }
        });
    }
}

/// Four CPUs, half of them reserved and used; what wants the rest.
fn composed(hogs: u32) -> Scenario {
    let tenant = |name: &str, class: &str| format!("[[tenant]]\nname = \"{name}\"\nclass = \"{class}\"\n");
    let work = |name: &str, program: &str| format!("[[workload]]\ntenant = \"{name}\"\n{program}\n");
    let barrier = "program = \"barrier\"\nthreads = 4\ncompute = { uniform = [\"100us\", \"300us\"] }";
    let hog = |threads: u32| format!("program = \"hog\"\nthreads = {threads}");
    let mut text = "[host]\ncpus = \"0-3\"\n".to_owned();
    text += &(tenant("web", "reserved") + "vcpus = 4\nshare = 0.5\nlatency = \"20ms\"\ncapped = true\n");
    text += &(work("web", &hog(4)) + &tenant("parallel", "shared") + &work("parallel", barrier));
    if hogs > 0 {
        text += &(tenant("hogs", "shared") + &work("hogs", &hog(hogs)));
    }
    parse(text + &tenant("batch", "background") + &work("batch", &hog(4)))
}

/// Rota, where reserved, shared and background tenants want more than there is: nobody waits longer than the floor has
/// it, a second and the grants of those that wait as long. Where shared tenants leave some, background tenants have it
/// within a round of the table.
#[test]
fn every_class_runs_under_rota() {
    for (hogs, tenants, most_ns) in [(8, 4, 1_050 * MS), (0, 3, 50 * MS)] {
        apart(|| {
            let scenario = composed(hogs);
            let mut run = start(&scenario, "rota");
            advance(&mut run, 6_000 * MS);
            let longest = longest(&mut run, tenants);
            let late_ns = scenario.costs.late_ns();
            for longest in &longest {
                assert!(longest.wait_ns > 0 && longest.wait_ns <= most_ns, "{longest:?}, {most_ns} ns");
                assert!(longest.beside_idle_ns <= late_ns, "{longest:?}, {late_ns} ns");
            }
            assert!(longest[0].wait_ns <= 20 * MS, "what is reserved: {:?}", longest[0]);
        });
    }
}

/// What is known of how long Rota lets a thread wait, in ns.
const QUANTUM: f64 = 4e6;
const SLICE: f64 = 1e6;
const HORIZON: f64 = 200e6;
const ROUND: f64 = 102_702_600.0;
const GRANT: f64 = 5e6;

/// What each sibling may have before a thread's turn, if turns end within so long: see docs/PROMISES.md.
fn turns(end: f64) -> f64 {
    4.0 * (QUANTUM + end)
}

/// One shared tenant: its weight in hundreds, and its threads.
type Weighed = (f64, f64);

/// How long a thread of a shared tenant waits at most, beside others on so many CPUs with so many lines.
fn shared_bound(of: usize, tenants: &[Weighed], cpus: f64, lines: f64) -> f64 {
    let (weight, threads) = tenants[of];
    let weights: f64 = tenants.iter().map(|(weight, _)| weight).sum();
    let others = tenants.iter().enumerate().filter(|(other, _)| *other != of);
    let ahead = others.map(|(_, (other, _))| match lines {
        1.0 => (3.0 + cpus / 8.0) * SLICE / other + cpus * SLICE / weight,
        _ => (lines * cpus + 2.0 + cpus / 8.0) * SLICE / other + (cpus + 2.0) * SLICE / weight,
    });
    let lag = weight * (1.0 - weight / weights) * ahead.fold(0.0, f64::max);
    let needs = threads * turns(SLICE) + 2.0 * lag;
    (needs * weights / weight + HORIZON * (weights - weight)) / cpus
}

/// As [`bounds`], for Rota.
#[test]
fn everybody_runs_within_the_formula_under_rota() {
    let mut most = (0.0, 0);
    for seed in seeds(8) {
        apart(|| {
            let scenario = draw(seed);
            let mut run = start(&scenario, "rota");
            advance(&mut run, 1_000 * MS);
            let threads =
                |unit: u32| run.machine.tasks().filter(|(_, task)| task.unit == UnitId(unit)).count();
            let weighed = |(unit, class): (u32, &Class)| match class {
                Class::Shared { weight } => Some((f64::from(*weight) / 100.0, threads(unit) as f64)),
                _ => None,
            };
            let classes = scenario.model.tenants.iter().map(|tenant| &tenant.class);
            let classes = classes.filter(|class| matches!(class, Class::Shared { .. }));
            let tenants: Vec<Weighed> = (1..).zip(classes).filter_map(weighed).collect();
            let places = &scenario.model.host.topology.places;
            let lines = 1 + places.iter().map(|place| place.cache).max().unwrap_or(0);
            for (of, longest) in longest(&mut run, tenants.len() as u32).into_iter().enumerate() {
                let bound_ns = shared_bound(of, &tenants, places.len() as f64, f64::from(lines));
                let part = longest.wait_ns as f64 / bound_ns;
                assert!(part <= 1.0, "seed {seed}: {longest:?}, {bound_ns} ns");
                most = if part > most.0 { (part, seed) } else { most };
            }
        });
    }
    println!("at most {:.0} % of the bound, with seed {}", 100.0 * most.0, most.1);
}

/// Tenants of all classes that compute without a pause, on a few CPUs.
struct Mixed {
    cpus: u32,
    /// The reserved tenant, capped, with a vCPU on each CPU: its share, latency in ms, threads.
    share: f64,
    latency_ms: u64,
    threads: u32,
    shared: Vec<(u32, u32)>,
    /// The threads of each.
    background: Vec<u32>,
}

impl Mixed {
    fn draw(seed: u64) -> Mixed {
        let mut rng = Rng::new(seed, 2);
        let cpus = [1, 2, 4][rng.below(3) as usize];
        Mixed {
            cpus,
            share: rng.between(20, 80) as f64 / 100.0,
            latency_ms: [20, 50][rng.below(2) as usize],
            threads: rng.between(1, 8) as u32,
            shared: (0..rng.below(4))
                .map(|_| ([50, 100, 400][rng.below(3) as usize], rng.between(1, 20) as u32))
                .collect(),
            background: (0..rng.between(1, 2)).map(|_| rng.between(1, 5) as u32).collect(),
        }
    }

    fn scenario(&self) -> Scenario {
        let Mixed { cpus, share, latency_ms, .. } = self;
        let mut text = format!("[host]\ncpus = \"0-{}\"\n", cpus - 1);
        let mut tenant = |name: String, class: &str, threads: u32| {
            writeln!(text, "[[tenant]]\nname = \"{name}\"\n{class}").expect("a string takes all");
            writeln!(text, "[[workload]]\ntenant = \"{name}\"\nprogram = \"hog\"\nthreads = {threads}")
                .expect("a string takes all");
        };
        let reserved = format!(
            "class = \"reserved\"\nvcpus = {cpus}\nshare = {share}\nlatency = \"{latency_ms}ms\"\ncapped = true"
        );
        tenant("web".to_owned(), &reserved, self.threads);
        for (number, (weight, threads)) in self.shared.iter().enumerate() {
            tenant(format!("s{number}"), &format!("class = \"shared\"\nweight = {weight}"), *threads);
        }
        for (number, threads) in self.background.iter().enumerate() {
            tenant(format!("b{number}"), "class = \"background\"", *threads);
        }
        parse(text)
    }

    /// In the order of the tenants.
    fn bounds(&self, tick: f64) -> Vec<f64> {
        let (cpus, left) = (f64::from(self.cpus), 1.0 - self.share);
        let siblings = f64::from(self.threads - 1) * turns(tick);
        let mut bounds = vec![self.latency_ms as f64 * 1e6 + siblings / (cpus * self.share)];
        let weighed = |&(weight, threads)| (f64::from(weight) / 100.0, f64::from(threads));
        let shared: Vec<Weighed> = self.shared.iter().map(weighed).collect();
        // The CPUs that the reserved tenant leaves, and the background tenants' grants.
        let per_cpu = left - 0.005;
        let one = |of| ROUND + shared_bound(of, &shared, cpus, 1.0) / per_cpu;
        bounds.extend((0..shared.len()).map(one));
        // All of them may be at one CPU.
        let threads: f64 = self.background.iter().map(|&threads| f64::from(threads)).sum();
        let ahead = (self.background.len() - 1) as f64 * 2.0 * QUANTUM;
        let grant_ns = 1e9 + ROUND + GRANT / left;
        let turn = (10.0 * GRANT / threads).clamp(100e3, GRANT);
        let floor = grant_ns * (1.0 + (((threads - 1.0) * turn + ahead) / GRANT).ceil());
        let idle = ROUND * 2.0 + ((threads - 1.0) * (QUANTUM + tick) + ahead) / left;
        let background = if self.shared.is_empty() { idle } else { floor };
        bounds.extend(self.background.iter().map(|_| background));
        bounds
    }
}

#[test]
fn every_class_runs_within_the_formula_under_rota() {
    let mut most = [(0.0, 0); 3];
    for seed in seeds(12) {
        apart(|| {
            let mixed = Mixed::draw(seed);
            let scenario = mixed.scenario();
            let mut run = start(&scenario, "rota");
            advance(&mut run, 20_000 * MS);
            assert_eq!(run.observer.1.finish(&run.machine), [], "seed {seed}");
            let bounds = mixed.bounds(scenario.costs.tick_ns as f64);
            for (place, (longest, bound_ns)) in
                longest(&mut run, bounds.len() as u32).into_iter().zip(&bounds).enumerate()
            {
                let part = longest.wait_ns as f64 / bound_ns;
                assert!(part <= 1.0, "seed {seed}, tenant {place}: {longest:?}, {bound_ns} ns");
                let class = usize::from(place > 0) + usize::from(place > mixed.shared.len());
                most[class] = if part > most[class].0 { (part, seed) } else { most[class] };
            }
        });
    }
    println!("at most of the bound, by class, and with which seed: {most:?}");
}
