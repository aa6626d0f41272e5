//! The bound of preemptive multi-queue fair queuing, at every event: the definition keeps it, whatever tenants do, and
//! others break it.

use rota_twin::apart;

use super::scenarios::{MS, Shared, advance, draw, scenario, seeds, start};

/// Seeds with which the definition or the observer was wrong once.
const FOUND: [u64; 11] = [25, 34, 74, 97, 211, 420, 443, 558, 800, 872, 1152];

#[test]
fn the_definition_keeps_the_bound() {
    for seed in seeds(16).chain(FOUND) {
        apart(|| {
            let scenario = draw(seed);
            let mut run = start(&scenario, "mqfq");
            advance(&mut run, 400 * MS);
            assert_eq!(run.observer.1.finish(&run.machine), [], "seed {seed}");
            let unfair = run.observer.2.0.finish(&run.machine).to_vec();
            assert_eq!(unfair, [], "seed {seed}: {:?}", run.observer.2.0.worst());
        });
    }
}

/// The scheduler's own form, by the bound that is derived for it.
#[test]
fn rota_keeps_its_bound() {
    let mut worst = (0, 0);
    for seed in seeds(16) {
        apart(|| {
            let mut run = start(&draw(seed), "rota");
            advance(&mut run, 400 * MS);
            assert_eq!(run.observer.1.finish(&run.machine), [], "seed {seed}");
            let unfair = run.observer.2.0.finish(&run.machine).to_vec();
            let lead = run.observer.2.0.worst();
            assert_eq!(unfair, [], "seed {seed}: {lead:?}");
            worst = worst.max((lead.map_or(0, |lead| lead.of_bound), seed));
        });
    }
    println!("at most {} parts per mille of the bound, with seed {}", worst.0, worst.1);
}

/// How many parts per mille of the bound a tenant gets ahead of another, where a program with a barrier is beside as
/// many hogs as there are CPUs.
fn worst(policy: &str) -> u64 {
    apart(|| {
        let barrier = "program = \"barrier\"\ncompute = { uniform = [\"400us\", \"600us\"] }";
        let tenant = |program: &str| Shared { weight: 100, threads: 12, program: program.to_owned() };
        let scenario = scenario(12, 1, 1, &[tenant(barrier), tenant("program = \"hog\"")]);
        let mut run = start(&scenario, policy);
        advance(&mut run, 1_000 * MS);
        let unfair = !run.observer.2.0.finish(&run.machine).is_empty();
        let worst = run.observer.2.0.worst().expect("there are two");
        assert_eq!(unfair, worst.of_bound >= 1_000, "{policy}: {worst:?}");
        worst.of_bound
    })
}

/// Deceptive idleness: what the program loses adds up for as long as it runs.
#[test]
fn others_break_it() {
    let kept = worst("mqfq");
    assert!(kept < 500, "{kept} per mille of the bound");
    for policy in ["eevdf", "cfs", "pin-cfs", "relaxed-co", "gleaner", "credit"] {
        let worst = worst(policy);
        assert!(worst > 10_000, "{policy}: {worst} per mille of the bound");
    }
}
