//! Runs one virtual machine in QEMU, from boot to power-off.

use crate::accel::{self, Accel};
use crate::console::{Console, last_lines};
use crate::folder::{RunFolder, lab_folder};
use crate::guest::realtime;
use crate::image::Image;
use crate::kernel::Kernel;
use crate::resync;
use crate::scenario::result::Clock;
use crate::seats::{Seats, WAITED};
use anyhow::{Context, Result, bail, ensure};
use nix::sys::{prctl, signal::Signal};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufWriter, Read};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const QEMU: &str = "qemu-system-x86_64";
/// Of its first thread, among the machine's real-time tasks: the least.
const PRIORITY: i32 = 1;

/// How long all CPUs together have, in microseconds of the guest's, where they take turns.
const TURNS_US: u32 = 200;

/// How often a running guest's console is looked at.
const POLL: Duration = Duration::from_millis(20);

/// What the emulated processor leaves out. Random numbers would differ from run to run, and `monitor` is emulated as a
/// busy loop. The last five say that string instructions are fast: a kernel then copies memory by them, which an
/// emulator does byte by byte. That was a third of all that guests took.
const LEFT_OUT: &str = "-rdrand,-rdseed,-monitor,-erms,-fsrm,-fzrm,-fsrs,-fsrc";

/// What every kernel is told. The last two leave out signatures and self-tests of ciphers: a third of a boot's
/// instructions, some of them executed long after its end.
const COMMAND_LINE: &[&str] = &[
    "console=ttyS0",
    "quiet",
    "panic=-1",
    "nokaslr",
    "norandmaps",
    "mitigations=off",
    "idle=halt",
    "cryptomgr.notests=1",
    "initcall_blacklist=load_system_certificate_list",
];

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
    /// Whether a guest in real time has this machine for itself, so that its times mean something.
    pub alone: bool,
    /// Whether it can run virtual machines itself (modules `kvm` and `kvm-amd`).
    pub nested: bool,
    /// More words for the kernel's command line.
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
    /// A machine with 1 GiB, in real time and alone, without nested virtualisation.
    pub fn new(kernel: Kernel, cpus: u32) -> Vm {
        let (clock, append) = (Clock::Real, Vec::new());
        Vm { kernel, cpus, memory_mib: 1024, clock, halvings: 0, alone: true, nested: false, append }
    }

    /// Boots, runs the image's command and waits for power-off; `on_line` sees each line of the console as it comes.
    ///
    /// First it waits for other guests of this machine to end, if they leave it no room; `on_line` is told so. All CPUs
    /// are for a guest in real time that is to be alone. One CPU is room enough for any other: counted instructions are
    /// those of one thread and take the same time however long they take, and what nobody measures may be slow.
    ///
    /// A command that fails is no error here, see [`Outcome::ok`]. Errors are a QEMU that cannot be started, a guest
    /// that dies, and a run longer than `timeout`; they name the console's log, which is kept then.
    pub fn run(&self, image: &Image, timeout: Duration, on_line: &mut dyn FnMut(&str)) -> Result<Outcome> {
        let cpus = std::thread::available_parallelism()?.get();
        let wanted = if self.clock == Clock::Real && self.alone { cpus } else { 1 };
        let mut waits_since = None;
        let mut on_wait = || {
            waits_since = Some(Instant::now());
            on_line("lab: waits for other guests on this machine to end");
        };
        let _seats = Seats::take(&lab_folder().join("seats"), wanted, cpus, &mut on_wait)?;
        if let Some(since) = waits_since {
            on_line(&format!("{WAITED}{:.1}s", since.elapsed().as_secs_f64()));
        }
        let accel = match self.clock {
            Clock::Real => accel::best(self)?,
            Clock::Instructions => Accel::Tcg,
        };
        let folder = RunFolder::create()?;
        let outcome = self.run_with(accel, image, &folder, timeout, on_line)?;
        if outcome.status == 0 {
            folder.remove();
        }
        Ok(outcome)
    }

    /// The same with a given executor, leaving the files in `folder`.
    pub(crate) fn run_with(
        &self,
        accel: Accel,
        image: &Image,
        folder: &RunFolder,
        timeout: Duration,
        on_line: &mut dyn FnMut(&str),
    ) -> Result<Outcome> {
        let mut out = BufWriter::new(File::create(folder.path("image"))?);
        image.write(&mut out)?;
        out.into_inner()?;
        let arguments = self.arguments(accel, folder)?;
        let start = Instant::now();
        let mut console = Console::new(folder.path("console.log"));
        let mut guest = Guest(start_qemu(&arguments, File::create(folder.path("qemu.log"))?)?);
        let exit = loop {
            let exit = guest.0.try_wait()?;
            console.follow(on_line)?;
            match exit {
                Some(exit) => break exit,
                None if start.elapsed() > timeout => {
                    return Err(
                        console.blame(&format!("the guest was still running after {} s", timeout.as_secs()))
                    );
                }
                None => std::thread::sleep(POLL),
            }
        };
        let wall = start.elapsed();
        if !exit.success() {
            let complaint = fs::read_to_string(folder.path("qemu.log")).unwrap_or_default();
            return Err(console.blame(&format!("{QEMU} failed ({exit}): {}", complaint.trim())));
        }
        let Ok((status, results)) = read_results(&folder.path("results.tar")) else {
            return Err(console.blame("the guest ended before its command did"));
        };
        let log = folder.path("console.log");
        Ok(Outcome { status, results, console: console.text().to_owned(), log, wall })
    }

    /// QEMU's command line.
    fn arguments(&self, accel: Accel, folder: &RunFolder) -> Result<Vec<String>> {
        ensure!(self.cpus > 0, "a virtual machine needs at least one CPU");
        let file = |name: &str| folder.path(name).display().to_string();
        let mut arguments: Vec<String> =
            ["-nodefaults", "-no-user-config", "-no-reboot"].map(str::to_owned).to_vec();
        let mut option = |name: &str, value: String| arguments.extend([name.to_owned(), value]);
        match (self.clock, accel) {
            (Clock::Real, Accel::Kvm) => option("-accel", "kvm".to_owned()),
            (Clock::Real, Accel::Tcg) => {
                option("-accel", "tcg,thread=multi".to_owned());
                if let Some(plugin) = resync::option(self, folder)? {
                    option("-plugin", plugin);
                }
            }
            (Clock::Instructions, _) => {
                option("-accel", "tcg,thread=single".to_owned());
                option("-icount", format!("shift={},sleep=off", self.halvings));
                option("-seed", "1".to_owned());
                option("-rtc", "base=2026-01-01T00:00:00,clock=vm".to_owned());
                self.short_turns().into_iter().for_each(|(name, value)| option(name, value));
            }
        }
        option("-M", "q35".to_owned());
        option("-cpu", self.processor(accel));
        option("-smp", self.cpus.to_string());
        option("-m", format!("{}M", self.memory_mib));
        option("-display", "none".to_owned());
        option("-kernel", self.kernel.vmlinux.display().to_string());
        option("-initrd", file("image"));
        option("-append", self.command_line(accel));
        // Files never make QEMU wait for a reader, which instruction-counted time would notice.
        option("-serial", format!("file:{}", file("console.log")));
        option("-chardev", format!("file,id=results,path={}", file("results.tar")));
        // Without ioeventfd the device is served by the CPU that asks, and not by a thread some time later.
        option("-device", "virtio-serial-pci,ioeventfd=off".to_owned());
        option("-device", "virtserialport,chardev=results,nr=1".to_owned());
        Ok(arguments)
    }

    /// Where a guest's CPUs take turns: a timer that has nobody to wake.
    ///
    /// QEMU divides the time up to the next timer of any of them (`icount_percpu_budget`), which may be a tick of 4 ms:
    /// what a CPU sends to another one, and its own late timer, then wait for the end of the other one's turn. Packets
    /// of a network without members are released each [`TURNS_US`], in the guest's time.
    fn short_turns(&self) -> Vec<(&'static str, String)> {
        if self.cpus == 1 {
            return vec![];
        }
        let timer = format!("filter-buffer,id=turn,netdev=turns,queue=rx,interval={TURNS_US}");
        vec![("-netdev", "hubport,id=turns,hubid=0".to_owned()), ("-object", timer)]
    }

    /// The processor that the guest sees.
    fn processor(&self, accel: Accel) -> String {
        let nested = if self.nested { ",+svm" } else { "" };
        match accel {
            Accel::Kvm => "host".to_owned(),
            Accel::Tcg => format!("max,{LEFT_OUT}{nested}"),
        }
    }

    /// The kernel's command line.
    fn command_line(&self, accel: Accel) -> String {
        let mut words: Vec<&str> = COMMAND_LINE.to_vec();
        match (self.clock, accel) {
            (Clock::Real, Accel::Kvm) => {}
            // The emulated time-stamp counter is one for all CPUs. Its reading costs a tenth of another clock's.
            (Clock::Real, Accel::Tcg) => words.extend(["tsc=reliable", "clocksource=tsc"]),
            // What the kernel would measure is known: measuring costs several seconds of emulation.
            (Clock::Instructions, _) => {
                words.extend(["tsc_early_khz=1000000", "lpj=4000000", "no_timer_check", "tsc=reliable"]);
            }
        }
        words.extend(self.append.iter().map(String::as_str));
        words.join(" ")
    }
}

/// Starts QEMU, which ends with the calling thread at the latest.
fn start_qemu(arguments: &[String], errors: File) -> Result<Child> {
    let mut command = Command::new(QEMU);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(errors);
    // QEMU's first thread rings the guest's timers: on a machine whose CPUs the guest's CPUs keep busy it would be late
    // by milliseconds. Its other threads, the guest's CPUs, do not inherit the priority. Without the right to it, the
    // guest runs all the same.
    let first_thread = || {
        let _ = realtime::try_fifo(PRIORITY);
        Ok(prctl::set_pdeathsig(Signal::SIGKILL)?)
    };
    // SAFETY: the closure runs between fork and exec and only makes system calls.
    unsafe { command.pre_exec(first_thread) };
    command.spawn().with_context(|| format!("cannot run {QEMU}: run scripts/setup.sh as root"))
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
struct Guest(Child);

impl Drop for Guest {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
