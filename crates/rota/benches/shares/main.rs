//! What parallel programs get beside as many hogs as CPUs, each a tenant of the same weight, on a real kernel: under
//! Rota and under the kernel's own scheduler with `cpu.weight`.
//!
//! `cargo build --release -p rota-lab && cargo bench -p rota --bench shares [-- KERNEL [CPUS ...]]`. A guest's time
//! counts instructions, so a run repeats, and what a scheduler's own instructions cost shows in what a program has
//! done. CPUs that compute at the same time take turns: shares are exact, speed-ups are not to be seen. What a server
//! and its client do depends on which of the CPUs they are on, as the turns have an order: they are started several
//! times, and the median is shown.

use anyhow::{Context, Result};
use rota_lab::scenario::result::{PolicyResult, TenantResult};
use rota_lab::scenario::{Policy, Scenario};
use rota_lab::{Clock, Experiment, Kernel, experiment};

/// By name: a shape of the lab's parallel program and its pieces in us, or a scenario's text.
const PROGRAMS: [(&str, Program); 5] = [
    ("barrier, 250 us", Program::Parallel("barrier", 250)),
    ("barrier, 25 us", Program::Parallel("barrier", 25)),
    ("parallel loops, 250 us", Program::Parallel("loops", 250)),
    ("pipeline, 250 us", Program::Parallel("pipeline", 250)),
    ("redis", Program::Text(include_str!("redis.toml"))),
];

enum Program {
    Parallel(&'static str, u32),
    Text(&'static str),
}

impl Program {
    /// How often it is run. The parallel program has a thread for each CPU, so it matters little which is where.
    fn starts(&self) -> usize {
        match self {
            Program::Parallel(..) => 1,
            Program::Text(_) => 30,
        }
    }
}

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1).filter(|argument| !argument.starts_with("--"));
    let kernel = Kernel::fetch(&arguments.next().unwrap_or_default(), &mut |step| eprintln!("{step}"))?;
    let mut cpus: Vec<u32> = arguments.map(|cpus| cpus.parse()).collect::<Result<_, _>>().context("CPUS")?;
    if cpus.is_empty() {
        cpus = vec![2, 4];
    }
    println!("{}, instructions counted, 1 s each\n", kernel.version);
    println!(
        "| program, CPUs | policy | alone | beside | of fair | times as long | alone, against cpu.weight |"
    );
    println!("| --- | --- | --- | --- | --- | --- | --- |");
    for cpus in cpus {
        let scenarios = PROGRAMS.iter().flat_map(|(_, program)| [false, true].map(|hogs| (program, hogs)));
        let scenarios = scenarios
            .flat_map(|(program, hogs)| (0..program.starts()).map(move |_| scenario(program, cpus, hogs)));
        let scenarios: Vec<Scenario> = scenarios.collect::<Result<_>>()?;
        let programs = experiment::own_folder()?;
        let programs =
            programs.parent().context("a benchmark is in the folder deps of the programs'")?.to_owned();
        let lab =
            Experiment { kernel: kernel.clone(), clock: Clock::Instructions, memory_mib: 1024, programs };
        let mut results = lab.run_all(&scenarios, &mut |step| eprintln!("{step}"))?.into_iter();
        for (name, program) in &PROGRAMS {
            let name = format!("{name}, {cpus}");
            let [alone, beside] = ["alone", "beside"]
                .map(|what| median(&format!("{name}, {what}"), results.by_ref().take(program.starts())));
            print(&name, &alone, &beside);
        }
    }
    Ok(())
}

/// The program, and stress-ng's workers beside it.
fn scenario(program: &Program, cpus: u32, hogs: bool) -> Result<Scenario> {
    let mut text = include_str!("scenario.toml").to_owned();
    match program {
        Program::Text(more) => text += more,
        Program::Parallel(shape, us) => {
            text += "\n[[program]]\nkind = \"parallel\"\ntenant = \"program\"\nthreads = CPUS\n";
            text += &format!("shape = \"{shape}\"\ncompute = \"{us}us\"\n");
        }
    }
    if hogs {
        text += "\n[[program]]\nkind = \"load\"\ntenant = \"hogs\"\ncommand = [\"stress-ng\", \"--cpu\", \"CPUS\"]\n";
    }
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("scenario.toml");
    std::fs::write(&path, text.replace("CPUS", &cpus.to_string()))?;
    Scenario::load(&path)
}

/// What a tenant had, in CPUs.
fn cpus_of(tenant: &TenantResult) -> f64 {
    tenant.received_share * f64::from(tenant.vcpus)
}

/// How much a program has done.
fn done(run: &PolicyResult) -> u64 {
    let tenant = &run.tenants[0];
    let rounds = tenant.work.map(|work| work.rounds);
    rounds.or_else(|| tenant.requests.as_ref().map(|requests| requests.counted)).unwrap_or(0)
}

/// Of each policy the run in which the program has done the median.
fn median(name: &str, starts: impl Iterator<Item = Vec<PolicyResult>>) -> Vec<PolicyResult> {
    let mut by_policy: Vec<Vec<PolicyResult>> = Vec::new();
    for run in starts.flatten() {
        match by_policy.iter_mut().find(|runs| runs[0].policy == run.policy) {
            Some(runs) => runs.push(run),
            None => by_policy.push(vec![run]),
        }
    }
    for runs in by_policy.iter_mut().filter(|runs| runs.len() > 1) {
        runs.sort_by_key(done);
        let all: Vec<u64> = runs.iter().map(done).collect();
        eprintln!("{name}, {}: done in {} starts {all:?}", runs[0].policy, runs.len());
    }
    by_policy.into_iter().map(|mut runs| runs.swap_remove(runs.len() / 2)).collect()
}

/// Two lines of the table, and of each run what else there is to see.
fn print(name: &str, alone: &[PolicyResult], beside: &[PolicyResult]) {
    let kernels = alone.iter().find(|run| run.policy == Policy::Weight).map_or(0, done);
    for (alone, beside) in alone.iter().zip(beside) {
        let half = f64::from(alone.cpus) / 2.0;
        let (uses, gets) = (cpus_of(&alone.tenants[0]), cpus_of(&beside.tenants[0]));
        let slower = done(alone) as f64 / done(beside) as f64;
        let against = 100.0 * (kernels as f64 / done(alone) as f64 - 1.0);
        print!("| {name} | {} | {uses:.3} | {gets:.3} | ", alone.policy);
        println!("{:.1} % | {slower:.2} | {against:+.1} % |", 100.0 * gets / half.min(uses));
        for (what, run) in [("alone", alone), ("beside", beside)] {
            for tenant in run.tenants.iter().filter(|tenant| tenant.cpu_ns > 0) {
                let (moves, waits) = (tenant.moves, tenant.blackouts.longest_ns as f64 / 1e6);
                eprint!("{name}, {}, {what}: {} had {:.3} CPUs, ", run.policy, tenant.name, cpus_of(tenant));
                eprint!("preempted {}, migrated {}, waited {waits:.2} ms", moves.preempted, moves.migrated);
                if let Some(requests) = &tenant.requests {
                    let [p50, p99] = [requests.p50_ns, requests.p99_ns].map(|ns| ns as f64 / 1e6);
                    eprint!(", answered in {p50:.2} and {p99:.2} ms");
                }
                eprintln!();
            }
        }
    }
}
