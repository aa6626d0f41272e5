//! Rota beside the definition: the same tenants and threads, and what each tenant receives by both.

use std::cmp::Reverse;

use rota_model::Class;
use rota_sim::observe::{Metrics, Sanity};
use rota_twin::apart;

use super::scenarios::{MS, WATCHDOG_NS, advance, draw, seeds, settle};

/// For how long, in ms.
const WINDOW_MS: u64 = 1_000;

/// 99 in 100 tenants receive no more or less than by the definition by more of their fair share.
const LIMIT_PER_MILLE: u64 = 300;

/// What each tenant received, in ns.
fn received(seed: u64, policy: &str) -> Vec<u64> {
    apart(|| {
        let observers = (Metrics::default(), Sanity::new(WATCHDOG_NS));
        let mut run = settle(&draw(seed), policy, observers, |_, _, _| {});
        run.observer.0.begin(&mut run.machine);
        advance(&mut run, WINDOW_MS * MS);
        assert_eq!(run.observer.1.finish(&run.machine), [], "seed {seed}, {policy}");
        assert_eq!(run.policy.failed(), None, "seed {seed}, {policy}");
        // Unit 0 is the system's, and each container is the next one.
        run.observer.0.finish(&mut run.machine)[1..].iter().map(|unit| unit.received_ns).collect()
    })
}

/// A tenant's part of the CPUs by its weight, in ns.
fn fair(seed: u64) -> Vec<u64> {
    let scenario = draw(seed);
    let weights: Vec<u64> = scenario
        .model
        .tenants
        .iter()
        .filter_map(
            |tenant| if let Class::Shared { weight } = tenant.class { Some(weight.into()) } else { None },
        )
        .collect();
    let whole = scenario.model.host.cpus.len() as u64 * WINDOW_MS * MS;
    weights.iter().map(|weight| whole * weight / weights.iter().sum::<u64>()).collect()
}

/// CPUs that do not see whom the others serve take turns in herds. With this seed a tenant then
/// receives 13 % of its fair share more than by the definition.
#[test]
fn cpus_do_not_take_turns_in_herds() {
    let (mqfq, rota) = (received(6, "mqfq"), received(6, "rota"));
    for ((by_mqfq, by_rota), fair) in mqfq.iter().zip(&rota).zip(fair(6)) {
        let per_mille = by_mqfq.abs_diff(*by_rota) * 1_000 / fair;
        assert!(per_mille < 50, "{per_mille}: {by_rota} ns, {by_mqfq} by the definition");
    }
}

/// With these seeds a tenant gets nearly as much as by the definition.
fn nearly_as_much(seeds: &[(u64, usize)]) {
    for &(seed, tenant) in seeds {
        let (mqfq, rota) = (received(seed, "mqfq")[tenant], received(seed, "rota")[tenant]);
        assert!(rota * 100 > mqfq * 95, "seed {seed}: {rota} ns, {mqfq} by the definition");
    }
}

/// Threads that wake at the same time each have a CPU. With these seeds a program whose threads wake each other had
/// 31 % and 35 % less than by the definition: two were sent to the same idle CPU, and one asked nobody to give way.
#[test]
fn who_wakes_beside_a_sibling_has_a_cpu_of_its_own() {
    nearly_as_much(&[(1067, 0), (2099, 1)]);
}

/// Of threads that wake all at once each finds a CPU that serves a tenant further ahead, if only a few do. They had
/// 29 % less, since the CPU that was known of had been told already.
#[test]
fn all_that_wake_at_once_find_a_cpu_that_gives_way() {
    nearly_as_much(&[(1091, 1), (5466, 0)]);
}

/// Nobody could tell a CPU that was on its way to another thread: it was not looked at, and did not look either until
/// a slice was over. Then 9 % were missing.
#[test]
fn a_cpu_that_was_on_its_way_sees_who_came_meanwhile() {
    nearly_as_much(&[(6438, 0)]);
}

/// What a tenant's service differs by, in parts per mille of its fair share and in ns.
struct Difference {
    per_mille: u64,
    ns: u64,
    about: String,
}

fn differences(seed: u64) -> Vec<Difference> {
    let (mqfq, rota) = (received(seed, "mqfq"), received(seed, "rota"));
    let tenants = mqfq.into_iter().zip(rota).zip(fair(seed)).enumerate();
    let differ = |(tenant, ((by_mqfq, by_rota), fair)): (usize, ((u64, u64), u64))| {
        let ns = by_mqfq.abs_diff(by_rota);
        let (mqfq_ms, rota_ms, fair_ms) = (by_mqfq / MS, by_rota / MS, fair / MS);
        let about = format!(
            "seed {seed}, tenant {tenant}: {rota_ms} ms, {mqfq_ms} by the definition, {fair_ms} by weight"
        );
        Difference { per_mille: ns * 1_000 / fair, ns, about }
    };
    tenants.map(differ).collect()
}

/// Says how they are spread, the largest first.
fn report(differences: &mut [Difference]) {
    differences.sort_unstable_by_key(|difference| Reverse((difference.per_mille, difference.ns)));
    let at = |per_mille: usize| differences[differences.len() * per_mille / 1_000].per_mille;
    println!("differences in service of {} tenants, in parts per mille of fair:", differences.len());
    let (half, tenth, hundredth, thousandth) = (at(500), at(100), at(10), at(1));
    println!("half: {half} at most; 9 in 10: {tenth}; 99 in 100: {hundredth}; 999 in 1000: {thousandth}");
    for Difference { per_mille, about, .. } in differences.iter().take(20) {
        println!("  {per_mille}: {about}");
    }
    let most_ns = differences.iter().map(|difference| difference.ns).max().unwrap_or(0);
    println!("largest in time: {} ms in {WINDOW_MS} ms", most_ns / MS);
}

/// `ROTA_FAIR_SCENARIOS=10000 cargo test --release -p rota-scenario --test it compare -- --nocapture` says how near
/// it is, and how near it has been so far.
#[test]
fn rota_serves_as_the_definition_does() {
    let mut all = Vec::new();
    for (done, seed) in (1..).zip(seeds(8)) {
        all.extend(differences(seed));
        if done % 100 == 0 {
            println!("{done} scenarios");
            report(&mut all);
        }
    }
    report(&mut all);
    let hundredth = &all[all.len() / 100];
    assert!(hundredth.per_mille < LIMIT_PER_MILLE, "{}: {}", hundredth.per_mille, hundredth.about);
}
