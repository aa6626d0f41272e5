//! Prints which of its operations a sched_ext scheduler is called for, in their order: `rota-calls rota_ 2`.

use std::time::Duration;

use anyhow::Result;
use clap::Parser;
use rota_lab::guest::calls;

/// The kernel's calls of a scheduler's operations, a line each
#[derive(Parser)]
struct Arguments {
    /// What its programs' names begin with, before the operation's: `rota_`
    prefix: String,
    /// For how many seconds
    seconds: u64,
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    calls::trace(&arguments.prefix, Duration::from_secs(arguments.seconds), &mut std::io::stdout().lock())
}
