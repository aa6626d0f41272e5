//! The signals by which the daemon is told something from outside.

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

use crate::log::say;
use crate::service::Service;

/// What the daemon is told from outside.
#[derive(Clone, Copy, Debug)]
pub(super) struct Signals<'a> {
    /// To end, and the scheduler with it.
    pub stop: BorrowedFd<'a>,
    /// To end, and leave the scheduler to the next daemon.
    pub leave: BorrowedFd<'a>,
    /// To read the configuration anew.
    pub reload: BorrowedFd<'a>,
}

/// Tells of these signals, which do nothing else from now on.
pub(super) fn signals(which: &[Signal]) -> Result<SignalFd> {
    let signals = which.iter().copied().collect::<SigSet>();
    signals.thread_block().context("blocking signals")?;
    SignalFd::with_flags(&signals, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)
        .context("making a signalfd")
}

/// Waits before the scheduler is started again. False: the end was asked for meanwhile.
pub(super) fn pause(signals: Signals, pause: Duration) -> Result<bool> {
    let line = format!("the scheduler is started again in {} s", pause.as_secs());
    say(&line);
    let (mut service, end) = (Service::default(), Instant::now() + pause);
    service.status(&line);
    while let Some(left) = end.checked_duration_since(Instant::now()) {
        service.alive();
        let timeout = PollTimeout::try_from(left.min(Duration::from_secs(1))).unwrap_or(PollTimeout::MAX);
        let mut ends = [signals.stop, signals.leave].map(|fd| PollFd::new(fd, PollFlags::POLLIN));
        match poll(&mut ends, timeout) {
            Ok(0) | Err(nix::errno::Errno::EINTR) => {}
            Ok(_) => {
                service.stopping();
                return Ok(false);
            }
            Err(error) => return Err(error).context("waiting for a signal"),
        }
    }
    Ok(true)
}

/// Takes all that can be read now.
pub(super) fn drain(fd: BorrowedFd) {
    let mut bytes = [0; 1024];
    while nix::unistd::read(fd, &mut bytes).is_ok_and(|read| read == bytes.len()) {}
}
