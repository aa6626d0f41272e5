//! What each of Rota's operations costs in the kernel, beside a minimal FIFO, in one guest and under one load.
//!
//! `cargo build --release -p rota-lab && cargo bench -p rota --bench cost [-- KERNEL [RUNS]]`. The guest is emulated:
//! nanoseconds compare with each other, and with nothing else.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use rota_lab::guest::fifo::Cost;
use rota_lab::{Image, Kernel, Vm};

type Costs = BTreeMap<String, Cost>;

/// The operation that runs once a decision.
const DECISION: &str = "dispatch";

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1).filter(|argument| !argument.starts_with("--"));
    let kernel = arguments.next().unwrap_or_default();
    let runs: u32 = arguments.next().map_or(Ok(3), |runs| runs.parse()).context("RUNS is a number")?;
    let kernel = Kernel::fetch(&kernel, &mut |step| eprintln!("{step}"))?;
    println!("{} in QEMU, 2 CPUs, real time, {runs} runs; ns per call\n", kernel.version);
    for run in 1..=runs {
        let (fifo, rota) = measure(&kernel)?;
        println!("run {run}");
        print("FIFO", "fifo_", &fifo);
        print("Rota", "rota_", &rota);
        let ratio = per_decision(&rota, "rota_") / per_decision(&fifo, "fifo_");
        println!("  all operations for each decision: Rota {ratio:.2} times the FIFO\n");
    }
    Ok(())
}

fn measure(kernel: &Kernel) -> Result<(Costs, Costs)> {
    let mut image = Image::new(kernel)?;
    let rota = Path::new(env!("CARGO_BIN_EXE_rota"));
    image.program(rota, "/usr/bin/rota")?;
    let fifo = rota.with_file_name("rota-fifo");
    image.program(&fifo, "/usr/bin/rota-fifo").context("run `cargo build --release -p rota-lab` first")?;
    image.program_on_path("stress-ng")?;
    image.bytes("/lab/rota.toml", 0o644, include_str!("rota.toml"));
    image.command(include_str!("guest.sh"));
    let mut vm = Vm::new(kernel.clone(), 2);
    vm.memory_mib = 2048;
    let outcome = vm.run(&image, Duration::from_secs(300), &mut |_| {})?.ok()?;
    let read = |name: &str| -> Result<Costs> {
        let bytes = outcome.results.get(name).with_context(|| format!("the guest left no {name}"))?;
        Ok(serde_json::from_slice(bytes)?)
    };
    Ok((read("fifo.json")?, read("rota.json")?))
}

fn print(who: &str, prefix: &str, costs: &Costs) {
    for (name, cost) in costs.iter().filter(|(_, cost)| cost.calls > 0) {
        let operation = name.strip_prefix(prefix).unwrap_or(name);
        let each = cost.time_ns as f64 / cost.calls as f64;
        println!("  {who}  {operation:<12} {each:>8.0} ns  x {:>8}", cost.calls);
    }
    println!("  {who}  {:<12} {:>8.0} ns", "a decision", per_decision(costs, prefix));
}

/// The time in all operations for each run of dispatch, ns.
fn per_decision(costs: &Costs, prefix: &str) -> f64 {
    let all: u64 = costs.values().map(|cost| cost.time_ns).sum();
    let decisions = costs.get(&format!("{prefix}{DECISION}")).map_or(0, |cost| cost.calls);
    all as f64 / decisions.max(1) as f64
}
