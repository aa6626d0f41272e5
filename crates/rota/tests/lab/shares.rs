//! Fair shares on a real kernel: a program whose threads wait for each other beside threads that never wait.

use rota_lab::scenario::result::PolicyResult;

use crate::guest::{Guest, OLDER, rota, scenario, script, tenant};

/// Of half of the CPUs' time, at least: the simulator gives 98 %, and a real guest's own system takes some.
const SHARE: f64 = 0.9;

/// The longest that a thread takes for a piece of computing: it waits for the lag of D + 3 minimum slices and D grains
/// on D = 2 CPUs (docs/FAIRNESS.md), 5.25 ms, then for its tenant's other thread, which may have 4 ms and the
/// millisecond until its CPU decides. A hog's piece takes 0.24 ms, the program's 0.6 ms, on two CPUs that take turns.
const LONGEST_NS: u64 = 12_000_000;

#[test]
#[ignore = "boots a guest"]
fn a_parallel_program_has_its_share_beside_hogs() {
    let arguments = ["--clock", "instructions", "--policies", "rota", "--json"];
    let runs: Vec<PolicyResult> = rota(&[&["lab", &scenario("barrier.toml")], &arguments[..]].concat());
    let half = f64::from(runs[0].cpus) / 2.0;
    for tenant in &runs[0].tenants {
        assert!(tenant.received_share >= SHARE * half, "{}: {}", tenant.name, tenant.received_share);
        let work = tenant.work.unwrap();
        assert!(work.rounds > 0 && work.longest_ns <= LONGEST_NS, "{}: {work:?}", tenant.name);
    }
}

/// Threads that may use the same two CPUs of three: neither CPU has more of them for long.
#[test]
#[ignore = "boots a guest"]
fn threads_of_a_cpuset_have_as_much_of_its_cpus() {
    const KEPT: &str = "[[tenant]]\nname = \"kept\"\nclass = \"shared\"\nmatch = { cgroup = \"kept\" }\n";
    let results = Guest::exact_on(OLDER, 3).halved(2).run(KEPT, &script!("cpuset.sh"));
    let [before, after] = ["before.txt", "after.txt"]
        .map(|name| -> Vec<u32> { results.text(name).lines().map(|ticks| ticks.parse().unwrap()).collect() });
    let had: Vec<u32> = after.iter().zip(&before).map(|(after, before)| after - before).collect();
    println!("ticks of each: {had:?}, {} migrations", tenant(&results.status("status"), "kept").migrations);
    let [least, most] = [had.iter().min(), had.iter().max()].map(|ticks| *ticks.unwrap());
    assert!(least > 0 && 10 * least >= 7 * most, "{had:?}");
}
