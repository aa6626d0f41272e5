//! Runs a scenario under one policy on this machine: `rota-guest --scenario demo.toml --policy weight`.

use clap::Parser;
use rota_lab::guest::{self, Options};

/// Run a scenario's tenants under one policy on this machine, as root, and measure them
#[derive(Parser)]
#[command(version)]
struct Arguments {
    #[command(flatten)]
    options: Options,
}

fn main() -> anyhow::Result<()> {
    guest::run(&Arguments::parse().options)
}
