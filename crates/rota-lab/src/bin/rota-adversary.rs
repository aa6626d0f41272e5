//! A hostile tenant: `rota-adversary /sys/fs/cgroup/user --cgroups 2000 --threads 500 --end-ns E` prints as JSON what
//! it has done.

use clap::Parser;
use rota_lab::guest::adversary::{self, Plan};

/// Do all that a user may do to cgroups, names, threads and affinities, and print, as JSON, how often
#[derive(Parser)]
#[command(version)]
struct Arguments {
    #[command(flatten)]
    plan: Plan,
}

fn main() -> anyhow::Result<()> {
    adversary::run(Arguments::parse().plan, |done| {
        println!("{}", serde_json::to_string(done).expect("numbers are JSON"));
    })
}
