//! Makes a thread real-time for a while: `rota-realtime 1234 --ms 5`.

use std::time::Duration;

use clap::Parser;
use rota_lab::guest::realtime;

/// Give a thread SCHED_FIFO for a while, and SCHED_OTHER again
#[derive(Parser)]
#[command(version)]
struct Arguments {
    /// The thread's id
    thread: i32,
    /// For how many milliseconds
    #[arg(long)]
    ms: u64,
}

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    realtime::lend_fifo(arguments.thread, Duration::from_millis(arguments.ms))
}
