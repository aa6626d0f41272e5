//! QEMU's command line: the machine that a guest runs on, and what it starts from.

use crate::accel::Accel;
use crate::folder::RunFolder;
use crate::resync;
use crate::scenario::result::Clock;
use crate::snapshot;
use crate::vm::Vm;
use anyhow::{Result, ensure};

/// How long a CPU has at a time, in nanoseconds of the guest's, where CPUs take turns. One turn of each CPU divides no
/// period of a table. If it did, a CPU could stand still at the begin of each slot.
const TURN_NS: u32 = 48_500;

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

/// What a machine has that is to be saved, and one that was: what a guest stops it with. A restored one runs at once.
const SAVED: [&str; 4] = ["-device", "ib700", "-global", "migration.store-global-state=off"];

/// What a guest starts from. Files are in the run's folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// The kernel, with the file `image` as its first file system.
    Boot,
    /// The same, to be saved: whoever reads QEMU's standard output hears of the machine's stop, and may then tell QEMU
    /// by its standard input where to save it.
    Save,
    /// A saved machine that comes by standard input; the file `image` has what the guest still lacks.
    Restore,
}

impl Vm {
    /// QEMU's arguments.
    ///
    /// # Errors
    ///
    /// There are no CPUs, or the plugin that the machine needs cannot be had.
    pub(crate) fn arguments(&self, accel: Accel, folder: &RunFolder, start: Start) -> Result<Vec<String>> {
        ensure!(self.cpus > 0, "a virtual machine needs at least one CPU");
        let file = |name: &str| folder.path(name).display().to_string();
        let mut arguments = vec!["-no-reboot".to_owned()];
        let mut option = |name: &str, value: String| arguments.extend([name.to_owned(), value]);
        if (self.clock, accel) == (Clock::Real, Accel::Tcg)
            && let Some(plugin) = resync::option(self, folder)?
        {
            option("-plugin", plugin);
        }
        option("-kernel", self.kernel.vmlinux.display().to_string());
        if start != Start::Restore {
            option("-initrd", file("image"));
        }
        match start {
            Start::Boot => {}
            Start::Save => {
                option("-action", "watchdog=pause".to_owned());
                option("-qmp", "stdio".to_owned());
            }
            Start::Restore => {
                option("-incoming", "fd:0".to_owned());
                option("-fw_cfg", format!("name=opt/rota/files,file={}", file("image")));
            }
        }
        // Files never make QEMU wait for a reader, which instruction-counted time would notice.
        option("-serial", format!("file:{}", file("console.log")));
        option("-chardev", format!("file,id=results,path={}", file("results.tar")));
        arguments.extend(self.machine(accel));
        if start != Start::Boot {
            arguments.extend(SAVED.map(str::to_owned));
        }
        Ok(arguments)
    }

    /// What the guest sees of the machine, in QEMU's arguments.
    pub(crate) fn machine(&self, accel: Accel) -> Vec<String> {
        let mut arguments = ["-nodefaults", "-no-user-config"].map(str::to_owned).to_vec();
        let mut option = |name: &str, value: String| arguments.extend([name.to_owned(), value]);
        match (self.clock, accel) {
            (Clock::Real, Accel::Kvm) => option("-accel", "kvm".to_owned()),
            (Clock::Real, Accel::Tcg) => option("-accel", "tcg,thread=multi".to_owned()),
            (Clock::Instructions, _) => {
                option("-accel", "tcg,thread=single".to_owned());
                option("-icount", format!("shift={},sleep=off", self.halvings));
                option("-seed", "1".to_owned());
                option("-rtc", "base=2026-01-01T00:00:00,clock=vm".to_owned());
                self.short_turns().into_iter().for_each(|(name, value)| option(name, value));
            }
        }
        // Its driver measures what an HPET does, which takes an emulator most of a second, and nothing uses one. With
        // one the CPUs that take turns have their timers at other times: without, turns fall into their interrupts.
        let hpet = if snapshot::serves(self, accel) { "off" } else { "on" };
        option("-M", format!("q35,hpet={hpet}"));
        option("-cpu", self.processor(accel));
        option("-smp", self.cpus.to_string());
        option("-m", format!("{}M", self.memory_mib));
        option("-display", "none".to_owned());
        option("-append", self.command_line(accel));
        // Without ioeventfd the device is served by the CPU that asks, and not by a thread some time later.
        option("-device", "virtio-serial-pci,ioeventfd=off".to_owned());
        option("-device", "virtserialport,chardev=results,nr=1".to_owned());
        arguments
    }

    /// Where a guest's CPUs take turns: a timer that has nobody to wake.
    ///
    /// QEMU divides the time up to the next timer of any of them (`icount_percpu_budget`), which may be a tick of 4 ms:
    /// what a CPU sends to another one, and its own late timer, then wait for the end of the other one's turn. Packets
    /// of a network without members are released as often as all have had [`TURN_NS`], in the guest's time.
    fn short_turns(&self) -> Vec<(&'static str, String)> {
        if self.cpus == 1 {
            return vec![];
        }
        let turns_us = self.cpus * TURN_NS / 1000;
        let timer = format!("filter-buffer,id=turn,netdev=turns,queue=rx,interval={turns_us}");
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
