//! The parallel program: `rota-parallel barrier --threads 2 --compute-ns 500000 --start-ns S --end-ns E` prints as JSON
//! how much it has done.

use clap::Parser;
use rota_lab::guest::clock::Window;
use rota_lab::guest::parallel;
use rota_lab::scenario::Shape;

/// Compute in several threads that wait for each other and print, as JSON, how often all was done
#[derive(Parser)]
#[command(version)]
struct Arguments {
    /// How they wait for each other
    shape: Shape,
    /// How many
    #[arg(long)]
    threads: u32,
    /// A piece of computing, in instructions
    #[arg(long)]
    compute_ns: u64,
    #[command(flatten)]
    window: Window,
}

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let work = parallel::run(arguments.shape, arguments.threads, arguments.compute_ns, arguments.window);
    println!("{}", serde_json::to_string(&work)?);
    Ok(())
}
