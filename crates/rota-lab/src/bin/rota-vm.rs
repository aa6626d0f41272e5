//! A virtual machine that counts: `rota-vm --vcpus 2 --seconds 10` prints as JSON what each vCPU has done.

use clap::Parser;
use rota_lab::guest::vm;
use std::time::Duration;

/// Run a virtual machine under KVM whose vCPUs do nothing but count, and print, as JSON, how far each has come
#[derive(Parser)]
#[command(version)]
struct Arguments {
    /// How many vCPUs it has
    #[arg(long, default_value_t = 1)]
    vcpus: u8,
    /// One counts at a time, and the others wait for their turn busily
    #[arg(long)]
    by_turns: bool,
    /// How long it runs
    #[arg(long, default_value_t = 10)]
    seconds: u64,
}

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let program = if arguments.by_turns { vm::Program::TakeTurns } else { vm::Program::Count };
    let work = vm::run(program, arguments.vcpus, Duration::from_secs(arguments.seconds))?;
    println!("{}", serde_json::to_string(&work)?);
    Ok(())
}
