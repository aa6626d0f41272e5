//! The open-loop client: `rota-load redis --port 6379 --rate-hz 50 --start-ns S --end-ns E` prints latencies as JSON.

use clap::Parser;
use rota_lab::guest::clock::Window;
use rota_lab::guest::{client, realtime};

/// Below the runner's, above everything that a tenant runs.
const PRIORITY: i32 = 10;

/// Send requests to a server on this machine at a fixed rate and print, as JSON, how long the answers took
///
/// Each is timed from when its request was due, sent or not.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    #[command(flatten)]
    asking: client::Asking,
    #[command(flatten)]
    window: Window,
}

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    realtime::set_fifo(PRIORITY)?;
    let requests = client::run(arguments.asking, arguments.window)?;
    println!("{}", serde_json::to_string(&requests)?);
    Ok(())
}
