//! A scheduler for Linux guests that know their timetable, and the agent that tells it: the file that the host has
//! published is read again whenever it is replaced, and the host's clock is followed.
//!
//! `load` has the scheduler (`src/bpf`) in the kernel, `tables` makes of a timetable what it looks up, `clock` compares
//! the host's clock, and `steal` is what there is to go by without a timetable.
//!
//! **Invariant:** what is read from the host is checked here before the kernel has it, and nothing is sent to the host.
//! When the agent ends, however it does, the kernel's own scheduler has every thread.

mod clock;
mod load;
mod shared;
mod steal;
mod tables;

use std::fs;
use std::io::ErrorKind;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::time::{ClockId, clock_gettime};
use rota_table::{HostClock, Timetable};

use clock::Clocks;
use load::Loaded;
pub use shared::Account;
use steal::Steal;
use tables::Table;

/// How often the file is looked at, and the host's clock, in ms.
const LOOK_MS: u8 = 250;
/// How often what was stolen is looked at: `/proc/stat` counts in hundredths of a second.
const STEAL: Duration = Duration::from_secs(1);
/// No timetable is larger.
const BYTES_MAX: u64 = 4 << 20;

/// A file that holds a timetable, or will again.
#[derive(Debug)]
pub struct File {
    path: PathBuf,
    /// Inode, time of change and length, as it was read last.
    seen: Option<(u64, i64, i64, u64)>,
}

impl File {
    /// That at a path.
    pub fn new(path: PathBuf) -> File {
        File { path, seen: None }
    }

    /// What is in it, if it was replaced since the last time; none in it if it has gone.
    ///
    /// # Errors
    ///
    /// It cannot be read, or is no timetable: with the line, and the mend.
    pub fn read(&mut self) -> Result<Option<Option<Timetable>>> {
        let status = match fs::metadata(&self.path) {
            Ok(status) => status,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return Ok(self.seen.take().map(|_| None));
            }
            Err(error) => return Err(error).with_context(|| format!("reading {}", self.path.display())),
        };
        let seen = (status.ino(), status.mtime(), status.mtime_nsec(), status.len());
        if self.seen.replace(seen) == Some(seen) {
            return Ok(None);
        }
        let shown = self.path.display();
        ensure!(status.is_file(), "{shown} is no file; name the timetable that the host has published");
        ensure!(status.len() <= BYTES_MAX, "{shown} is larger than {} MiB: no timetable is", BYTES_MAX >> 20);
        let text = fs::read_to_string(&self.path).with_context(|| format!("reading {shown}"))?;
        let timetable = text.parse::<Timetable>().map_err(|error| anyhow!("{shown}: {error}"))?;
        Ok(Some(Some(timetable)))
    }
}

/// What a machine that begins with this file would do wrong: to be asked before [`Agent::start`].
///
/// # Errors
///
/// There is no file, or it is no timetable, or another machine's.
pub fn check(path: &Path) -> Result<Timetable> {
    let timetable = File::new(path.to_owned()).read()?.flatten();
    let timetable = timetable.with_context(|| {
        format!("{} is not there; the host publishes it for a VM with timetable = true", path.display())
    })?;
    Table::new(&timetable, load::nr_cpus()?).with_context(|| path.display().to_string())?;
    Ok(timetable)
}

/// The scheduler at work, and what it was told.
pub struct Agent {
    file: File,
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
    /// Attaches the scheduler.
    ///
    /// # Errors
    ///
    /// If the kernel does not take it; what it lacks is named.
    pub fn start(path: &Path) -> Result<Agent> {
        Ok(Agent {
            file: File::new(path.to_owned()),
            scheduler: Loaded::attach()?,
            clocks: Clocks::default(),
            steal: Steal::default(),
            clock: None,
            offset_ns: None,
            error_ns: 0,
        })
    }

    /// Follows file and clock until `stop` can be read. Says what has changed.
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
            match self.file.read() {
                Ok(None) => {}
                Ok(Some(timetable)) => self.take(timetable.as_ref(), say),
                Err(error) => say(&format!("{error:#}; the timetable before it stays in force")),
            }
            self.follow_clock(say);
            if stolen_at.elapsed() >= STEAL {
                stolen_at = Instant::now();
                let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
                self.scheduler.set_stolen(self.steal.update(&stat));
            }
            let mut fds = [PollFd::new(stop, PollFlags::POLLIN)];
            match poll(&mut fds, PollTimeout::from(LOOK_MS)) {
                Ok(0) | Err(nix::errno::Errno::EINTR) => {}
                Ok(_) => return self.scheduler.account(),
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

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "rota-timetable 1\ngeneration 3\nfrom 0\nclock own\nvcpu 0 of 1000: 0-500\nend\n";

    #[test]
    fn a_file_is_read_when_it_was_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("timetable");
        let mut file = File::new(path.clone());
        assert_eq!(file.read().unwrap(), None, "it is not there yet");
        let replace = |text: &str| {
            fs::write(folder.path().join("new"), text).unwrap();
            fs::rename(folder.path().join("new"), &path).unwrap();
        };
        replace(TEXT);
        assert_eq!(file.read().unwrap().unwrap().unwrap().generation, 3);
        assert_eq!(file.read().unwrap(), None);
        replace(&TEXT.replace("generation 3", "generation 4"));
        assert_eq!(file.read().unwrap().unwrap().unwrap().generation, 4);
        replace(&TEXT.replace("0-500", "0-5x0"));
        let error = file.read().unwrap_err().to_string();
        assert!(error.ends_with(
            "timetable: line 5: \"0-5x0\" is no slot; write its start and end in ns, as in 0-500"
        ));
        assert_eq!(file.read().unwrap(), None, "it is said once");
        fs::remove_file(&path).unwrap();
        assert_eq!(file.read().unwrap(), Some(None));
        assert_eq!(file.read().unwrap(), None);
    }

    #[test]
    fn what_cannot_be_a_timetable_is_told_before_anything_is_attached() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("timetable");
        let refused = || check(&path).map_err(|error| format!("{error:#}")).unwrap_err();
        assert!(refused().ends_with("is not there; the host publishes it for a VM with timetable = true"));
        fs::write(&path, TEXT.replace("vcpu 0", "vcpu 1000")).unwrap();
        assert!(refused().contains("it lists vcpu 1000, and this machine's CPUs are 0 to"), "{}", refused());
        fs::write(&path, TEXT).unwrap();
        assert_eq!(check(&path).unwrap().generation, 3);
        assert!(format!("{:#}", check(folder.path()).unwrap_err()).contains("is no file"));
    }
}
