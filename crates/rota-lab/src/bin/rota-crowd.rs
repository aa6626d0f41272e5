//! A crowd: `rota-crowd --threads 10000 --start-ns S --end-ns E` prints as JSON how many ran, and how long one waited.

use clap::Parser;
use rota_lab::guest::clock::Window;
use rota_lab::guest::crowd;

/// Compute in very many threads from one moment on and print, as JSON, how many ran and the longest wait
#[derive(Parser)]
#[command(version)]
struct Arguments {
    /// How many
    #[arg(long)]
    threads: u32,
    #[command(flatten)]
    window: Window,
}

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    println!("{}", serde_json::to_string(&crowd::run(arguments.threads, arguments.window)?)?);
    Ok(())
}
