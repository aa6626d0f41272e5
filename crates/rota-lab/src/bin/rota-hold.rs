//! Holds one thread of a process still, as a lock that is not given back would: `rota-hold TID --for-ms 3000`.

use std::thread;
use std::time::Duration;

use anyhow::Context;
use clap::Parser;
use nix::sys::ptrace::{self, Options};
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;

/// Stop a single thread for some time, as root, and let it go on
#[derive(Parser)]
#[command(version)]
struct Arguments {
    /// The thread's number; of a process' first thread it is the process'
    thread: i32,
    /// For how long, in ms
    #[arg(long)]
    for_ms: u64,
}

fn main() -> anyhow::Result<()> {
    let Arguments { thread, for_ms } = Arguments::parse();
    let held = Pid::from_raw(thread);
    ptrace::seize(held, Options::empty()).with_context(|| format!("holding thread {thread}"))?;
    ptrace::interrupt(held)?;
    waitpid(held, Some(WaitPidFlag::__WALL))?;
    thread::sleep(Duration::from_millis(for_ms));
    Ok(ptrace::detach(held, None)?)
}
