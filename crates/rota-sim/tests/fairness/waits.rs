//! Nobody starves: how long a thread waits for a CPU at most, by its class.

use rota_model::Class;
use rota_sim::apart;
use rota_sim::observe::Longest;
use rota_sim::peers::mqfq::{HORIZON_NS, QUANTUM_NS};
use rota_sim::scenario::Scenario;
use rota_sim::{Tenants, UnitId};

use crate::scenarios::{MS, Run, advance, draw, parse, seeds, start};

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
