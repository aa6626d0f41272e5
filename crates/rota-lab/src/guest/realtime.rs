//! Real-time priority: for what measures, so that it is not itself measured, and for who comes before sched_ext.

use std::thread::sleep;
use std::time::Duration;

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
    set_policy(0, libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK, priority)
}

/// Gives another thread SCHED_FIFO for as long as told, and SCHED_OTHER again.
///
/// Between the two the caller asks nothing of anybody. On a kernel whose real-time threads leave sched_ext's nothing,
/// who started a program then, for example, could wait for a kernel thread that the real-time thread holds up, and so
/// for ever.
///
/// # Errors
///
/// Without the right to it, or without that thread.
pub fn lend_fifo(thread: i32, length: Duration) -> Result<()> {
    set_fifo(2)?;
    set_policy(thread, libc::SCHED_FIFO, 1)
        .and_then(|()| {
            sleep(length);
            set_policy(thread, libc::SCHED_OTHER, 0)
        })
        .with_context(|| format!("cannot change the policy of {thread}"))
}

/// Thread 0 is the calling one.
fn set_policy(thread: i32, policy: i32, priority: i32) -> nix::Result<()> {
    let parameter = libc::sched_param { sched_priority: priority };
    // SAFETY: the pointer is to a value that lives through the call.
    let result = unsafe { libc::sched_setscheduler(thread, policy, &parameter) };
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
