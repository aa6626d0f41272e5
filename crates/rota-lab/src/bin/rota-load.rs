//! The open-loop client: `rota-load redis --port 6379 --rate-hz 50 --start-ns S --end-ns E` prints latencies as JSON.

use clap::Parser;
use rota_lab::guest::clock::Window;
use rota_lab::guest::{client, realtime};
use rota_lab::scenario::Protocol;

/// Below the runner's, above everything that a tenant runs.
const PRIORITY: i32 = 10;

/// Send requests to a server on this machine at a fixed rate and print, as JSON, how long the answers took
///
/// Each is timed from when its request was due, sent or not.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    /// What the server speaks
    protocol: Protocol,
    /// Where it listens
    #[arg(long)]
    port: u16,
    /// Requests a second
    #[arg(long)]
    rate_hz: u32,
    #[command(flatten)]
    window: Window,
}

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    realtime::set_fifo(PRIORITY)?;
    let requests = client::run(arguments.protocol, arguments.port, arguments.rate_hz, arguments.window)?;
    println!("{}", serde_json::to_string(&requests)?);
    Ok(())
}
