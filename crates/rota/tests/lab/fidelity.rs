//! The simulator is held against real kernels: one scenario in both, in time that nothing else takes from.

use serde_json::Value;

use crate::guest::{rota, scenario};

/// How much the share of a vCPU with a bound may differ, of a CPU.
const PROMISED: f64 = 0.01;
/// The same of a tenant without: it bears what the guest's own system takes, which no tenant of the simulation does.
/// That is 0.9 % of each CPU.
const REST_ONE_CPU: f64 = 0.01;
const REST_TWO_CPUS: f64 = 0.03;

/// What is declared of either end of a blackout: a change of tasks, and an interrupt or a kernel thread beside it (see
/// `promises`).
const BLACKOUT_NS: u64 = 2 * (20_000 + 500_000);

/// What a tenant got.
#[derive(Debug)]
struct Found {
    share: f64,
    longest_blackout_ns: u64,
    /// Shown with what differs: a program that began late has less, and not because of the scheduler.
    #[expect(dead_code, reason = "read by Debug")]
    wanted_ns: u64,
    /// The bound of its blackouts, if they have one.
    bound_ns: Option<u64>,
}

/// What each tenant got, by name.
fn run(arguments: &[&str]) -> Vec<(String, Found)> {
    let runs: Value = rota(arguments);
    let tenants = runs[0]["tenants"].as_array().unwrap();
    let found = |tenant: &Value| {
        let found = Found {
            share: tenant["received_share"].as_f64().unwrap(),
            longest_blackout_ns: tenant["blackouts"]["longest_ns"].as_u64().unwrap(),
            wanted_ns: tenant["blackouts"]["wanted_ns"].as_u64().unwrap(),
            bound_ns: tenant["latency_bound_ns"].as_u64(),
        };
        (tenant["name"].as_str().unwrap().to_owned(), found)
    };
    tenants.iter().map(found).collect()
}

/// Everybody has the same in the lab and in the simulator.
fn the_simulator_gives_what_a_real_kernel_gives(name: &str, rest: f64) {
    let path = &scenario(name);
    let lab = run(&["lab", path, "--clock", "instructions", "--policies", "rota", "--json"]);
    let sim = run(&["sim", path, "--policy", "rota", "--json"]);
    for ((name, real), (same, simulated)) in lab.iter().zip(&sim) {
        println!("{name}: {real:?}, simulated {simulated:?}");
        assert_eq!(name, same);
        let allowed = if real.bound_ns.is_some() { PROMISED } else { rest };
        assert!((real.share - simulated.share).abs() < allowed, "{name}: {real:?}, simulated {simulated:?}");
        // In which order a period's budgets are had is free, and so is how long each waits, within its bound.
        let longest_ns = real.longest_blackout_ns.max(simulated.longest_blackout_ns);
        let is_kept = real.bound_ns.is_none_or(|bound_ns| longest_ns <= bound_ns + BLACKOUT_NS);
        assert!(is_kept, "{name}: {real:?}, simulated {simulated:?}");
    }
    assert_eq!(lab.len(), sim.len());
}

#[test]
#[ignore = "boots a guest"]
fn the_simulator_gives_what_a_real_kernel_gives_on_one_cpu() {
    the_simulator_gives_what_a_real_kernel_gives("one-cpu.toml", REST_ONE_CPU);
}

#[test]
#[ignore = "boots a guest"]
fn the_simulator_gives_what_a_real_kernel_gives_on_two_cpus() {
    the_simulator_gives_what_a_real_kernel_gives("two-cpus.toml", REST_TWO_CPUS);
}
