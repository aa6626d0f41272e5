//! `rota down`: the daemon ends, and the scheduler with it.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rota_sched::{BPF_FS, NoPins, Pins};

use crate::server::ask;

/// The daemon ends within this: it may be in the middle of a plan.
const PATIENCE: Duration = Duration::from_secs(60);

/// What there was to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Was {
    /// A daemon.
    pub daemon: bool,
    /// A scheduler that a daemon had left behind.
    pub scheduler: bool,
}

/// Ends the daemon that answers at `socket`, if one does, and the scheduler.
///
/// # Errors
/// The daemon does not end, or this user may not end it.
pub fn down(socket: &Path) -> Result<Was> {
    let daemon = ask(socket).ok().map(|status| Pid::from_raw(status.pid as i32));
    if let Some(pid) = daemon {
        kill(pid, Signal::SIGTERM).with_context(|| format!("ending the daemon, process {pid}"))?;
        let end = Instant::now() + PATIENCE;
        while kill(pid, None) != Err(Errno::ESRCH) {
            if Instant::now() >= end {
                bail!("the daemon, process {pid}, has not ended within {} s", PATIENCE.as_secs());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    let pins = match Pins::open(Path::new(BPF_FS)) {
        Ok(pins) => Some(pins),
        Err(NoPins::NotMounted) => None,
        Err(NoPins::Held(folder)) => {
            bail!("a daemon that does not answer has {}; end it first", folder.display())
        }
        Err(NoPins::Failed(error)) => return Err(error),
    };
    let scheduler = pins.as_ref().is_some_and(Pins::has_scheduler);
    pins.map_or(Ok(()), |pins| pins.clear())?;
    Ok(Was { daemon: daemon.is_some(), scheduler })
}
