//! How many instructions each of Rota's operations takes in the kernel, beside a minimal FIFO and other builds of Rota,
//! in one guest: under one load, and for Rota also in a crowd of threads that meet at a barrier.
//!
//! `cargo build --release -p rota-lab && cargo bench -p rota --bench cost [-- KERNEL [PROGRAM ...]]`; each PROGRAM is
//! another build's `rota`. The guest's time counts instructions, so a run repeats. It has one CPU: of two that take
//! turns each one's instructions would be the other's time.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use rota_lab::guest::fifo::Cost;
use rota_lab::{Clock, Image, Kernel, Vm};

type Costs = BTreeMap<String, Cost>;

/// The operation that runs once a decision.
const DECISION: &str = "dispatch";
const TIMEOUT: Duration = Duration::from_secs(1200);

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1).filter(|argument| !argument.starts_with("--"));
    let kernel = Kernel::fetch(&arguments.next().unwrap_or_default(), &mut |step| eprintln!("{step}"))?;
    let programs = std::iter::once(PathBuf::from(env!("CARGO_BIN_EXE_rota")));
    let programs: Vec<PathBuf> = programs.chain(arguments.map(PathBuf::from)).collect();
    println!("{}, 1 CPU; instructions for each call\n", kernel.version);
    let (fifo, rotas) = measure(&kernel, &programs)?;
    print("FIFO", "fifo_", &fifo);
    for (program, [load, crowd]) in programs.iter().zip(&rotas) {
        print(&program.display().to_string(), "rota_", load);
        let ratio = |other: f64| per_decision(load, "rota_") / other;
        let (fifo, this) = (ratio(per_decision(&fifo, "fifo_")), ratio(per_decision(&rotas[0][0], "rota_")));
        println!("  for each decision {fifo:.2} times the FIFO's, {this:.2} times this build's\n");
        print("  in a crowd", "rota_", crowd);
        let this = per_decision(crowd, "rota_") / per_decision(&rotas[0][1], "rota_");
        println!("  for each decision {this:.2} times this build's\n");
    }
    Ok(())
}

/// What the FIFO costs, and each of the programs under the load and in a crowd.
fn measure(kernel: &Kernel, programs: &[PathBuf]) -> Result<(Costs, Vec<[Costs; 2]>)> {
    let mut image = Image::new(kernel)?;
    for (index, program) in programs.iter().enumerate() {
        image.program(program, &format!("/usr/bin/rota-{index}"))?;
    }
    for name in ["rota-fifo", "rota-parallel"] {
        let program = Path::new(env!("CARGO_BIN_EXE_rota")).with_file_name(name);
        image
            .program(&program, &format!("/usr/bin/{name}"))
            .context("run `cargo build --release -p rota-lab` first")?;
    }
    image.program_on_path("stress-ng")?;
    image.bytes("/lab/load.toml", 0o644, include_str!("load.toml"));
    image.bytes("/lab/crowd.toml", 0o644, include_str!("crowd.toml"));
    image.command(&format!("BUILDS={}\n{}", programs.len(), include_str!("guest.sh")));
    let mut vm = Vm::new(kernel.clone(), 1);
    (vm.memory_mib, vm.clock) = (2048, Clock::Instructions);
    let outcome = vm.run(&image, TIMEOUT, &mut |_| {})?.ok()?;
    let read = |name: String| -> Result<Costs> {
        let bytes = outcome.results.get(&name).with_context(|| format!("the guest left no {name}"))?;
        Ok(serde_json::from_slice(bytes)?)
    };
    let rota = |index| Ok([read(format!("load-{index}.json"))?, read(format!("crowd-{index}.json"))?]);
    Ok((read("fifo.json".to_owned())?, (0..programs.len()).map(rota).collect::<Result<_>>()?))
}

fn print(program: &str, prefix: &str, costs: &Costs) {
    println!("{program}");
    for (name, cost) in costs.iter().filter(|(_, cost)| cost.calls > 0) {
        let operation = name.strip_prefix(prefix).unwrap_or(name);
        let each = cost.time_ns as f64 / cost.calls as f64;
        println!("  {operation:<12} {each:>8.0} x {:>8}", cost.calls);
    }
    println!("  {:<12} {:>8.0}", "a decision", per_decision(costs, prefix));
}

/// The time in all operations for each run of dispatch.
fn per_decision(costs: &Costs, prefix: &str) -> f64 {
    let all: u64 = costs.values().map(|cost| cost.time_ns).sum();
    let decisions = costs.get(&format!("{prefix}{DECISION}")).map_or(0, |cost| cost.calls);
    all as f64 / decisions.max(1) as f64
}
