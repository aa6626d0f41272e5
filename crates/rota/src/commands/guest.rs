//! `rota guest`.

use std::os::fd::AsFd;
use std::path::PathBuf;

use anyhow::Context;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use rota_agent::{Account, Agent, Source};

use super::{Failure, note, print_text};

/// Schedule this VM's threads by the timetable that its host has published for it
///
/// Run inside of the VM, as root. A thread leaves a CPU just before that stops, for one that runs then, and comes back
/// when it runs again. A new timetable is taken when the host has one. Without one, CPUs of whose time the host takes
/// much are avoided. When this ends, however it does, the kernel's own scheduler has every thread.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// `vsock` for the host itself, or a file: /run/rota/guests/NAME/timetable of the host. Without this the host is
    /// asked, and if it does not answer, /run/rota-host/timetable is read
    source: Option<PathBuf>,
}

pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let source = Source::find(arguments.source.as_deref()).map_err(Failure::Usage)?;
    let mut ends = SigSet::empty();
    ends.add(Signal::SIGINT);
    ends.add(Signal::SIGTERM);
    ends.thread_block().context("blocking signals")?;
    let signals = SignalFd::with_flags(&ends, SfdFlags::SFD_NONBLOCK).context("waiting for signals")?;
    let mut agent = Agent::start(source)?;
    note("ready");
    let account = agent.run(signals.as_fd(), &mut |line| note(line))?;
    let Account { left, caught, strays, moved, back, distrusted, spins } = account;
    print_text(&format!(
        "ends of slots: left in time {left}, ran on {caught}; started on a stopped CPU {strays}; went elsewhere \
         {moved}, came back {back}; gave way as they waited busily {spins}; not believed {distrusted}; clock within \
         {} ns\n",
        agent.error_ns()
    ))
}
