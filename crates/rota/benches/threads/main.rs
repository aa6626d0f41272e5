//! What programs get done with more threads than CPUs, on a real kernel: under Rota and under the kernel's own
//! scheduler. They have the CPUs to themselves.
//!
//! `cargo build --release -p rota-lab && cargo bench -p rota --bench threads [-- KERNEL [CPUS]]`. Parallel programs do
//! as much work in a round with 32 threads as with as many as CPUs. memcached has as many workers as CPUs, or 16. Its
//! client asks on 64 connections, whether or not earlier requests are answered. A guest's time counts instructions, so
//! a run repeats, and what wake-ups and changes of task cost shows in what is done. CPUs that compute at the same time
//! take turns, so that more of them do not do more.

use anyhow::{Context, Result};
use rota_lab::scenario::Scenario;
use rota_lab::scenario::result::PolicyResult;
use rota_lab::{Clock, Experiment, Kernel, experiment};

/// More than CPUs.
const THREADS: u32 = 32;
const WORKERS: u32 = 16;
/// What all threads of a parallel program together compute in a round.
const ROUND_US: u32 = 8_000;
const SHAPES: [&str; 3] = ["barrier", "loops", "pipeline"];
/// Requests a second for each CPU.
const RATES_HZ: [u32; 2] = [1_000, 2_500];

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1).filter(|argument| !argument.starts_with("--"));
    let kernel = Kernel::fetch(&arguments.next().unwrap_or_default(), &mut |step| eprintln!("{step}"))?;
    let cpus: u32 = arguments.next().map_or(Ok(4), |cpus| cpus.parse()).context("CPUS")?;
    let parallel = SHAPES.iter().flat_map(|shape| [cpus, THREADS].map(|threads| parallel(shape, threads)));
    let servers =
        RATES_HZ.iter().flat_map(|rate_hz| [cpus, WORKERS].map(|workers| memcached(workers, rate_hz * cpus)));
    let scenarios: Vec<Scenario> =
        parallel.chain(servers).map(|program| scenario(&program, cpus)).collect::<Result<_>>()?;
    let programs = experiment::own_folder()?;
    let programs =
        programs.parent().context("a benchmark is in the folder deps of the programs'")?.to_owned();
    let lab = Experiment { kernel: kernel.clone(), clock: Clock::Instructions, memory_mib: 1024, programs };
    let results = lab.run_all(&scenarios, &mut |step| eprintln!("{step}"))?;
    println!("{}, instructions counted, {cpus} CPUs, 2 s each\n", kernel.version);
    let (parallel, servers) = results.split_at(2 * SHAPES.len());
    println!(
        "| program | policy | rounds, {cpus} threads | {THREADS} threads | part | migrations a second |"
    );
    println!("| --- | --- | ---: | ---: | ---: | ---: |");
    for (shape, runs) in SHAPES.iter().zip(parallel.chunks(2)) {
        print_parallel(shape, &runs[0], &runs[1]);
    }
    println!("\n| memcached | policy | workers | p50 | p95 | p99 | CPUs used |");
    println!("| --- | --- | ---: | ---: | ---: | ---: | ---: |");
    for (rate_hz, runs) in RATES_HZ.iter().zip(servers.chunks(2)) {
        for (workers, runs) in [cpus, WORKERS].iter().zip(runs) {
            runs.iter().for_each(|run| print_server(rate_hz * cpus, *workers, run));
        }
    }
    Ok(())
}

fn parallel(shape: &str, threads: u32) -> String {
    format!(
        "\n[[program]]\nkind = \"parallel\"\ntenant = \"program\"\nshape = \"{shape}\"\nthreads = {threads}\n\
         compute = \"{}us\"\n",
        ROUND_US / threads
    )
}

fn memcached(workers: u32, rate_hz: u32) -> String {
    format!(
        "\n[[program]]\nkind = \"server\"\ntenant = \"program\"\nport = 11211\n\
         command = [\"memcached\", \"-u\", \"root\", \"-l\", \"127.0.0.1\", \"-m\", \"16\", \"-t\", \"{workers}\"]\n\
         \n[[program]]\nkind = \"client\"\ntenant = \"program\"\nprotocol = \"memcached\"\nport = 11211\n\
         rate_hz = {rate_hz}\nconnections = 64\n"
    )
}

fn scenario(program: &str, cpus: u32) -> Result<Scenario> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("scenario.toml");
    let text = include_str!("scenario.toml").replace("CPUS", &cpus.to_string());
    std::fs::write(&path, text + program)?;
    Scenario::load(&path)
}

/// A line for each policy.
fn print_parallel(shape: &str, fit: &[PolicyResult], more: &[PolicyResult]) {
    let rounds = |run: &PolicyResult| run.tenants[0].work.map_or(0, |work| work.rounds);
    for (fit, more) in fit.iter().zip(more) {
        let migrated = more.tenants[0].moves.migrated as f64 / (more.window_ns as f64 / 1e9);
        let (with, without) = (rounds(more), rounds(fit));
        let part = with as f64 / without as f64;
        println!("| {shape} | {} | {without} | {with} | {part:.3} | {migrated:.0} |", more.policy);
    }
}

fn print_server(rate_hz: u32, workers: u32, run: &PolicyResult) {
    let tenant = &run.tenants[0];
    let Some(requests) = &tenant.requests else { return };
    let [p50, p95, p99] = [0.5, 0.95, 0.99]
        .map(|quantile| requests.histogram.quantile(quantile).unwrap_or(0) as f64 / 1e3)
        .map(|us| format!("{us:.0} us"));
    let cpus = tenant.received_share * f64::from(tenant.vcpus);
    println!(
        "| {rate_hz} requests a second | {} | {workers} | {p50} | {p95} | {p99} | {cpus:.2} |",
        run.policy
    );
    eprintln!("{} of {} answered, {} errors", requests.answered, requests.due, requests.errors);
}
