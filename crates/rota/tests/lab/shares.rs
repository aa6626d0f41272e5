//! Fair shares on a real kernel: a program whose threads wait for each other beside threads that never wait.

use rota_lab::scenario::result::PolicyResult;

use crate::guest::{rota, scenario};

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
