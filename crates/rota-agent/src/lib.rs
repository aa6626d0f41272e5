//! A scheduler for Linux guests that know their timetable, and the agent that tells it: what the host publishes is
//! followed, and the host's clock.
//!
//! `source` is where timetables come from: a `file`, or the `host` itself over vsock. `load` has the scheduler
//! (`src/bpf`) in the kernel, `tables` makes of a timetable what it looks up
//! and `published` puts it there, `clock` compares the host's clock,
//! and `steal` is what there is to go by without a timetable.
//!
//! **Invariant:** what is read from the host is checked here before the kernel has it, and nothing is sent to the host.
//! When the agent ends, however it does, the kernel's own scheduler has every thread.

mod clock;
mod file;
mod host;
mod load;
mod published;
#[cfg(test)]
mod rules;
mod shared;
mod source;
mod steal;
mod tables;

use std::fs;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::time::{ClockId, clock_gettime};
use rota_table::{HostClock, Timetable};

use clock::Clocks;
use load::Loaded;
pub use published::{Maps, Published, set_stolen};
pub use shared::{Account, Live, Settings};
pub use source::Source;
pub use steal::Steal;
pub use tables::Table;

/// How often the source is looked at, and the host's clock, in ms.
const LOOK_MS: u8 = 250;
/// How often what was stolen is looked at: `/proc/stat` counts in hundredths of a second.
const STEAL: Duration = Duration::from_secs(1);
/// The scheduler at work, and what it was told.
pub struct Agent {
    source: Source,
    scheduler: Loaded,
    clocks: Clocks,
    steal: Steal,
    /// How the host's time follows, if a table is published.
    clock: Option<HostClock>,
    /// The host's time less the guest's as it was measured last, and the most that it was wrong, in ns.
    offset_ns: Option<i64>,
    error_ns: i64,
}

impl Agent {
    /// Attaches the scheduler, which gets its timetables from `source`.
    ///
    /// # Errors
    ///
    /// If the kernel does not take it; what it lacks is named.
    pub fn start(source: Source) -> Result<Agent> {
        Ok(Agent {
            source,
            scheduler: Loaded::attach()?,
            clocks: Clocks::default(),
            steal: Steal::default(),
            clock: None,
            offset_ns: None,
            error_ns: 0,
        })
    }

    /// Follows source and clock until `stop` can be read. Says what has changed.
    ///
    /// # Errors
    ///
    /// If the kernel has ended the scheduler, with its reason.
    pub fn run(&mut self, stop: BorrowedFd<'_>, say: &mut dyn FnMut(&str)) -> Result<Account> {
        let mut stolen_at = Instant::now();
        loop {
            if let Some(reason) = self.scheduler.exited() {
                bail!("the kernel has ended the scheduler, and its own has every thread: {reason}");
            }
            match self.source.read() {
                Ok(None) => {}
                Ok(Some(timetable)) => self.take(timetable.as_ref(), say),
                Err(error) if self.clock.is_none() => say(&format!("{error:#}; going by steal time")),
                Err(error) => say(&format!("{error:#}; the timetable before it stays in force")),
            }
            self.follow_clock(say);
            if stolen_at.elapsed() >= STEAL {
                stolen_at = Instant::now();
                let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
                self.scheduler.set_stolen(self.steal.update(&stat));
            }
            let fds = [Some(stop), self.source.fd()].into_iter().flatten();
            let mut fds: Vec<PollFd> = fds.map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
            match poll(&mut fds, PollTimeout::from(LOOK_MS)) {
                Ok(_) if fds[0].any() == Some(true) => return self.scheduler.account(),
                Ok(_) | Err(nix::errno::Errno::EINTR) => {}
                Err(error) => return Err(error).context("waiting"),
            }
        }
    }

    /// The most by which the host's time was wrong, in ns: half of an exchange, and what it moved since the one before.
    pub fn error_ns(&self) -> i64 {
        self.error_ns
    }

    /// A new timetable, or none.
    fn take(&mut self, timetable: Option<&Timetable>, say: &mut dyn FnMut(&str)) {
        let Some(timetable) = timetable else {
            self.fall_back();
            return say("the timetable has gone; going by steal time");
        };
        match self.publish(timetable) {
            Ok(offset_ns) => say(&format!(
                "timetable {} of {} CPUs, the host's clock is {offset_ns} ns ahead, within {} ns",
                timetable.generation,
                timetable.vcpus.len(),
                self.error_ns
            )),
            Err(error) => {
                self.fall_back();
                say(&format!("the timetable cannot be used: {error:#}; going by steal time"));
            }
        }
    }

    fn fall_back(&mut self) {
        self.scheduler.withdraw();
        (self.clock, self.offset_ns) = (None, None);
    }

    /// The offset of the clocks, in ns.
    fn publish(&mut self, timetable: &Timetable) -> Result<i64> {
        let table = Table::new(timetable, self.scheduler.nr_cpus)?;
        let offset = self.clocks.offset(timetable.clock)?;
        let now = clock_gettime(ClockId::CLOCK_MONOTONIC).context("reading the clock")?;
        let now_ns = now.tv_sec() * 1_000_000_000 + now.tv_nsec() + offset.ns;
        self.scheduler.set_offset(offset.ns);
        let now_ns = u64::try_from(now_ns).unwrap_or(0);
        self.scheduler.publish(&table, timetable.generation, timetable.from_ns, now_ns)?;
        (self.clock, self.offset_ns) = (Some(timetable.clock), Some(offset.ns));
        self.error_ns = self.error_ns.max(offset.error_ns);
        Ok(offset.ns)
    }

    fn follow_clock(&mut self, say: &mut dyn FnMut(&str)) {
        let Some(clock) = self.clock else { return };
        match self.clocks.offset(clock) {
            Ok(offset) => {
                let moved_ns = self.offset_ns.map_or(0, |before_ns| (offset.ns - before_ns).abs());
                self.error_ns = self.error_ns.max(offset.error_ns + moved_ns);
                self.offset_ns = Some(offset.ns);
                self.scheduler.set_offset(offset.ns);
            }
            Err(error) => {
                self.fall_back();
                say(&format!("the host's clock is not seen any more: {error:#}; going by steal time"));
            }
        }
    }
}
