//! Threads that wait busily: `rota-spin ticket --threads 8 --outside 400000 --inside 50000 --start-ns S --end-ns E`
//! prints as JSON how many turns they had.

use clap::Parser;
use rota_lab::guest::clock::Window;
use rota_lab::guest::spin::{self, Kind};

/// Wait busily in several threads for each other, or compute, and print, as JSON, how often all was done
#[derive(Parser)]
#[command(version)]
struct Arguments {
    /// How they wait for each other, or what they compute
    kind: Kind,
    /// How many, up to 64
    #[arg(long)]
    threads: usize,
    /// What each computes between two turns, in instructions
    #[arg(long)]
    outside: u64,
    /// What each computes in its turn, in instructions
    #[arg(long)]
    inside: u64,
    #[command(flatten)]
    window: Window,
}

fn main() -> anyhow::Result<()> {
    let Arguments { kind, threads, outside, inside, window } = Arguments::parse();
    let work = spin::run(kind, threads, (outside, inside), window);
    println!("{}", serde_json::to_string(&work)?);
    Ok(())
}
