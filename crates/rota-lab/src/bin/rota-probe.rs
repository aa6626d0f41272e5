//! The intrinsic-latency probe: `rota-probe --seconds 10` prints as JSON when and how long it was not let run.

use clap::Parser;
use rota_lab::guest::clock::Window;
use rota_lab::guest::probe;

/// Read the clock in a loop and print, as JSON, the gaps in which it was not let
#[derive(Parser)]
#[command(version)]
struct Arguments {
    #[command(flatten)]
    window: Option<Window>,
    /// Look for this long from now, instead of a window
    #[arg(long, default_value_t = 10, conflicts_with_all = ["start_ns", "end_ns"])]
    seconds: u32,
}

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let window =
        arguments.window.unwrap_or_else(|| Window::after(0, u64::from(arguments.seconds) * 1_000_000_000));
    println!("{}", serde_json::to_string(&probe::watch(window))?);
    Ok(())
}
