//! Runs one virtual machine in QEMU, from boot, or from a snapshot made after it, to power-off.

use crate::accel::{self, Accel};
use crate::console::{Console, last_lines};
use crate::folder::{RunFolder, lab_folder};
use crate::guest::realtime;
use crate::image::Image;
use crate::kernel::Kernel;
use crate::machine::Start;
use crate::scenario::result::Clock;
use crate::seats::Seats;
use crate::snapshot::{self, Snapshot};
use anyhow::{Context, Result, bail};
use nix::sys::{prctl, signal::Signal};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufWriter, Read};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

pub(crate) const QEMU: &str = "qemu-system-x86_64";
/// Of its first thread, among the machine's real-time tasks: the least.
const PRIORITY: i32 = 1;

/// How often a running guest's console is looked at.
const POLL: Duration = Duration::from_millis(20);

/// A virtual machine to be run.
#[derive(Clone, Debug)]
pub struct Vm {
    /// What it boots.
    pub kernel: Kernel,
    /// Number of CPUs, at least 1.
    pub cpus: u32,
    /// Memory, MiB. The image is unpacked into it; 1024 fits the usual programs.
    pub memory_mib: u32,
    /// What its time follows.
    pub clock: Clock,
    /// Where time follows instructions: how often its speed, an instruction in a nanosecond, is halved; 10 at most. The
    /// slower a machine is, the sooner a second of it is emulated.
    pub halvings: u32,
    /// Whether each run on several CPUs that count instructions is the same. Such a guest boots: of those that go on
    /// from a snapshot, some take a turn at another time. Any other guest repeats, or cannot.
    pub repeats: bool,
    /// Whether a guest in real time has this machine for itself, so that its times mean something.
    pub alone: bool,
    /// Whether it can run virtual machines itself (modules `kvm` and `kvm-amd`).
    pub nested: bool,
    /// More words for the kernel's command line. With any, the guest boots and is not restored.
    pub append: Vec<String>,
}

/// How a run ended, and what it left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Exit status of the image's command, 0 to 255.
    pub status: i32,
    /// The files that it left in `/results`, by path below that folder.
    pub results: BTreeMap<String, Vec<u8>>,
    /// All that was written to the console.
    pub console: String,
    /// The console's log, kept unless the status is 0.
    pub log: PathBuf,
    /// Time from start to power-off.
    pub wall: Duration,
}

impl Vm {
    /// A machine with 1 GiB, in real time and alone, without nested virtualisation; it repeats where it can.
    pub fn new(kernel: Kernel, cpus: u32) -> Vm {
        let (clock, append) = (Clock::Real, Vec::new());
        Vm {
            kernel,
            cpus,
            memory_mib: 1024,
            clock,
            halvings: 0,
            repeats: true,
            alone: true,
            nested: false,
            append,
        }
    }

    /// Boots or restores it, runs the image's command and waits for power-off; `on_line` sees each line of the console
    /// as it comes.
    ///
    /// First it waits for other guests of this machine to end, if they leave it no room; `on_line` is told so. All CPUs
    /// are for a guest in real time that is to be alone. One CPU is room enough for any other: counted instructions are
    /// those of one thread and take the same time however long they take, and what nobody measures may be slow.
    ///
    /// A command that fails is no error here, see [`Outcome::ok`]. Errors are a QEMU that cannot be started, a guest
    /// that dies, and a run longer than `timeout`; they name the console's log, which is kept then.
    pub fn run(&self, image: &Image, timeout: Duration, on_line: &mut dyn FnMut(&str)) -> Result<Outcome> {
        self.run_from(&lab_folder().join("snapshots"), image, timeout, on_line)
    }

    /// The same with snapshots in the folder `store`.
    pub(crate) fn run_from(
        &self,
        store: &Path,
        image: &Image,
        timeout: Duration,
        on_line: &mut dyn FnMut(&str),
    ) -> Result<Outcome> {
        let cpus = std::thread::available_parallelism()?.get();
        let wanted = if self.clock == Clock::Real && self.alone { cpus } else { 1 };
        let _seats = Seats::wait_for(wanted, on_line)?;
        let accel = match self.clock {
            Clock::Real => accel::best(self)?,
            Clock::Instructions => Accel::Tcg,
        };
        let folder = RunFolder::create()?;
        let outcome = match self.run_saved(accel, store, image, &folder, timeout, on_line)? {
            Some(outcome) => outcome,
            None => self.run_with(accel, image, &folder, timeout, on_line)?,
        };
        if outcome.status == 0 {
            folder.remove();
        }
        Ok(outcome)
    }

    /// The same from a snapshot: `None` if there can be none for this machine, or if none can be used, which `on_line`
    /// is told.
    fn run_saved(
        &self,
        accel: Accel,
        store: &Path,
        image: &Image,
        folder: &RunFolder,
        timeout: Duration,
        on_line: &mut dyn FnMut(&str),
    ) -> Result<Option<Outcome>> {
        if !snapshot::serves(self, accel) {
            return Ok(None);
        }
        let base = snapshot::base(&self.kernel)?;
        let mut snapshot = match Snapshot::find(self, accel, &base, store) {
            Ok(snapshot) => snapshot,
            Err(error) => {
                on_line(&format!("lab: the guest boots, because there is no snapshot: {error:#}"));
                return Ok(None);
            }
        };
        write_image(&image.beyond(&base), folder)?;
        let mut guest = Guest::start(&self.arguments(accel, folder, Start::Restore)?, folder)?;
        snapshot.feed(&mut guest.0)?;
        let mut console = Console::new(folder.path("console.log"));
        let exit = guest.end(&mut console, timeout, on_line)?;
        if !exit.success() && console.text().is_empty() {
            on_line(&format!("lab: the guest boots, because QEMU cannot restore it: {}", complaint(folder)));
            snapshot.forget();
            return Ok(None);
        }
        guest.outcome(exit, &console, folder).map(Some)
    }

    /// The same with a given executor, booted, leaving the files in `folder`.
    pub(crate) fn run_with(
        &self,
        accel: Accel,
        image: &Image,
        folder: &RunFolder,
        timeout: Duration,
        on_line: &mut dyn FnMut(&str),
    ) -> Result<Outcome> {
        write_image(image, folder)?;
        let mut guest = Guest::start(&self.arguments(accel, folder, Start::Boot)?, folder)?;
        let mut console = Console::new(folder.path("console.log"));
        let exit = guest.end(&mut console, timeout, on_line)?;
        guest.outcome(exit, &console, folder)
    }
}

/// Writes what a guest gets to where [`Vm::arguments`] expects it.
pub(crate) fn write_image(image: &Image, folder: &RunFolder) -> Result<()> {
    let mut out = BufWriter::new(File::create(folder.path("image"))?);
    image.write(&mut out)?;
    out.into_inner()?;
    Ok(())
}

/// What QEMU said.
pub(crate) fn complaint(folder: &RunFolder) -> String {
    fs::read_to_string(folder.path("qemu.log")).unwrap_or_default().trim().to_owned()
}

impl Outcome {
    /// The outcome if the command succeeded, else an error with the console's last lines.
    pub fn ok(self) -> Result<Outcome> {
        if self.status != 0 {
            bail!(
                "the guest's command failed with status {}; its last lines:\n{}",
                self.status,
                last_lines(&self.console)
            );
        }
        Ok(self)
    }
}

/// Unpacks the archive the guest sent: the command's status, and the files in `/results`.
fn read_results(archive: &Path) -> Result<(i32, BTreeMap<String, Vec<u8>>)> {
    let mut status = None;
    let mut results = BTreeMap::new();
    for member in tar::Archive::new(File::open(archive)?).entries()? {
        let mut member = member?;
        let path = member.path()?.to_string_lossy().into_owned();
        let mut content = Vec::new();
        member.read_to_end(&mut content)?;
        if path == "lab/status" {
            status = Some(String::from_utf8(content)?.trim().parse()?);
        } else if let (Some(name), true) =
            (path.strip_prefix("results/"), member.header().entry_type().is_file())
        {
            results.insert(name.to_owned(), content);
        }
    }
    Ok((status.context("the guest reported no status")?, results))
}

/// A running QEMU, ended when this is dropped.
pub(crate) struct Guest(pub Child, Instant);

impl Guest {
    /// Starts QEMU, which ends with the calling thread at the latest. Its standard input and output are pipes.
    pub fn start(arguments: &[String], folder: &RunFolder) -> Result<Guest> {
        let mut command = Command::new(QEMU);
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
        command.stderr(File::create(folder.path("qemu.log"))?);
        // QEMU's first thread rings the guest's timers: on a machine whose CPUs the guest's CPUs keep busy it would be
        // late by milliseconds. Its other threads, the guest's CPUs, do not inherit the priority. Without the right to
        // it, the guest runs all the same.
        let first_thread = || {
            let _ = realtime::try_fifo(PRIORITY);
            Ok(prctl::set_pdeathsig(Signal::SIGKILL)?)
        };
        // SAFETY: the closure runs between fork and exec and only makes system calls.
        unsafe { command.pre_exec(first_thread) };
        let child =
            command.spawn().with_context(|| format!("cannot run {QEMU}: run scripts/setup.sh as root"))?;
        Ok(Guest(child, Instant::now()))
    }

    /// Waits for its end; `on_line` sees each line of the console as it comes.
    fn end(
        &mut self,
        console: &mut Console,
        timeout: Duration,
        on_line: &mut dyn FnMut(&str),
    ) -> Result<ExitStatus> {
        loop {
            let exit = self.0.try_wait()?;
            console.follow(on_line)?;
            match exit {
                Some(exit) => return Ok(exit),
                None if self.1.elapsed() > timeout => {
                    let seconds = timeout.as_secs();
                    return Err(console.blame(&format!("the guest was still running after {seconds} s")));
                }
                None => std::thread::sleep(POLL),
            }
        }
    }

    /// What it left, once it has ended.
    fn outcome(&self, exit: ExitStatus, console: &Console, folder: &RunFolder) -> Result<Outcome> {
        let wall = self.1.elapsed();
        if !exit.success() {
            return Err(console.blame(&format!("{QEMU} failed ({exit}): {}", complaint(folder))));
        }
        let Ok((status, results)) = read_results(&folder.path("results.tar")) else {
            return Err(console.blame("the guest ended before its command did"));
        };
        let log = folder.path("console.log");
        Ok(Outcome { status, results, console: console.text().to_owned(), log, wall })
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
