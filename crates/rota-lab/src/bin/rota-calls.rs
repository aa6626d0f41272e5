//! Prints which of its operations a sched_ext scheduler is called for, in their order, until its input ends:
//! `rota-calls rota_ <FIFO`.

use anyhow::Result;
use clap::Parser;
use rota_lab::guest::calls;

/// The kernel's calls of a scheduler's operations, a line each, until the input ends
#[derive(Parser)]
struct Arguments {
    /// What its programs' names begin with, before the operation's: `rota_`
    prefix: String,
}

fn main() -> Result<()> {
    calls::trace(&Arguments::parse().prefix, std::io::stdin(), &mut std::io::stdout().lock())
}
