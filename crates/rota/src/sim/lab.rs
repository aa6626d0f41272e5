//! The lab's scenarios in the simulator: the same tenants, and programs of the simulator for those that run in a guest.
//! So one file describes what is run on a real kernel and on the model of it.

use anyhow::{Context, Result, bail};
use rota_lab::scenario::{Program, Scenario, Shape};

/// Whether a text is a scenario of the lab's: these have `[[program]]`, the simulator's have `[[workload]]`.
pub fn is_lab(text: &str) -> bool {
    text.lines().any(|line| line.trim() == "[[program]]")
}

/// The scenario as the simulator reads it.
///
/// # Errors
///
/// Nothing in the simulator stands for one of the programs; it is named.
pub fn translated(lab: &Scenario) -> Result<String> {
    let Scenario { cpus, warm_up, window, config, programs, .. } = lab;
    let config = on_machine(config, *cpus);
    let mut text = format!("duration = \"{window}ns\"\nwarm_up = \"{warm_up}ns\"\n{config}\n");
    for program in programs {
        let workload = match program {
            Program::Probe { .. } => Some("program = \"probe\"\n".to_owned()),
            // Its client's requests are what it does.
            Program::Server { .. } => None,
            Program::Client { rate_hz, .. } => Some(server(*rate_hz)),
            Program::Parallel { shape, threads, compute, .. } => Some(parallel(*shape, *threads, *compute)),
            Program::Load { command, .. } => Some(load(command)?),
        };
        if let Some(workload) = workload {
            text += &format!("[[workload]]\ntenant = \"{}\"\n{workload}", program.tenant());
        }
    }
    Ok(text)
}

/// The configuration with the guest's CPUs, where it takes those that the machine has.
fn on_machine(config: &str, cpus: u32) -> String {
    let all = format!("[host]\ncpus = \"0-{}\"\n", cpus - 1);
    let is = |line: &str, key: &str| line.trim_start().starts_with(key);
    match config.lines().any(|line| is(line, "cpus")) {
        true => config.to_owned(),
        false if config.lines().any(|line| is(line, "[host]")) => config.replacen("[host]", &all, 1),
        false => format!("{config}\n{all}"),
    }
}

/// What a request takes a server, in ns, when a guest is emulated and a ns is an instruction: nginx received 67 ms for
/// 500 (crates/rota-lab/scenarios/sample-result.json).
const REQUEST_NS: u64 = 134_000;

/// What each of two processes does before the other one's turn. Assumed: a system call each way, and a change of task.
const TURN_NS: u64 = 20_000;

/// An open loop of requests at a steady rate.
fn server(rate_hz: u32) -> String {
    let between_ns = 1_000_000_000 / u64::from(rate_hz);
    format!("program = \"server\"\nservice = \"{REQUEST_NS}ns\"\narrival = \"{between_ns}ns\"\n")
}

/// Two processes that wait for each other.
fn in_turn(pairs: u32) -> String {
    format!("program = \"pipeline\"\nthreads = {pairs}\ncompute = \"{TURN_NS}ns\"\n")
}

/// The lab's own parallel program.
fn parallel(shape: Shape, threads: u32, compute_ns: u64) -> String {
    let piece = format!("{{ uniform = [\"{}ns\", \"{}ns\"] }}", compute_ns * 4 / 5, compute_ns * 6 / 5);
    match shape {
        Shape::Barrier => format!("program = \"barrier\"\nthreads = {threads}\ncompute = {piece}\n"),
        Shape::Loops => {
            let alone = compute_ns / 10;
            format!(
                "program = \"fork-join\"\nthreads = {threads}\nparallel = {piece}\nsequential = \"{alone}ns\"\n"
            )
        }
        Shape::Pipeline => {
            format!("program = \"pipeline\"\nthreads = 1\nstages = {threads}\nroom = 4\ncompute = {piece}\n")
        }
        Shape::Hog => format!("program = \"hog\"\nthreads = {threads}\n"),
    }
}

fn load(command: &[String]) -> Result<String> {
    let words: Vec<&str> = command.iter().map(String::as_str).collect();
    let workers =
        |count: &str| count.parse::<u32>().with_context(|| format!("{count:?} is no number of workers"));
    Ok(match words[..] {
        // sync() finds nothing to write in a guest whose files are in memory, and does not wait.
        ["stress-ng", "--cpu" | "--io", count] => {
            format!("program = \"hog\"\nthreads = {}\n", workers(count)?)
        }
        ["stress-ng", "--pipe", count] => in_turn(workers(count)?),
        // One client that asks again as soon as it has its answer, beside its server.
        ["redis-benchmark", ..] => in_turn(1),
        _ => bail!(
            "nothing in the simulator stands for {}; write stress-ng with --cpu, --io or --pipe, or redis-benchmark",
            words.join(" ")
        ),
    })
}
