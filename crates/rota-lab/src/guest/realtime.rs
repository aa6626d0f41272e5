//! Real-time priority for what measures, so that it is not itself measured.

use anyhow::{Context, Result};
use nix::errno::Errno;
use nix::libc;
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;

/// Gives the calling thread SCHED_FIFO at this priority (1 ..= 99). Its children start without it.
///
/// # Errors
///
/// Without the right to it (root, or CAP_SYS_NICE).
pub fn set_fifo(priority: i32) -> Result<()> {
    try_fifo(priority).context("cannot take real-time priority; it needs root")
}

/// The same as one system call and nothing else, as it may be made between fork and exec.
///
/// # Errors
///
/// See [`set_fifo`].
pub fn try_fifo(priority: i32) -> nix::Result<()> {
    let parameter = libc::sched_param { sched_priority: priority };
    // SAFETY: the pointer is to a value that lives through the call; 0 is the calling thread.
    let result =
        unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK, &parameter) };
    Errno::result(result).map(drop)
}

/// Binds the calling thread to one CPU.
///
/// # Errors
///
/// If that CPU is not online or not allowed.
pub fn pin(cpu: u32) -> Result<()> {
    let mut cpus = CpuSet::new();
    cpus.set(cpu as usize)
        .and_then(|()| sched_setaffinity(Pid::from_raw(0), &cpus))
        .with_context(|| format!("cannot run on CPU {cpu}"))
}
