//! The kernel's counters of events, `perf_event_open(2)`: of a thread, or of a cgroup's threads on one CPU. The kernel
//! starts and stops them with the threads. It also has the processor record branches, of all programs on one CPU.

use std::env;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use nix::libc;

/// Has [`Event`]s of the kernel's own stand in for the processor's: for tests on machines whose processor counts
/// nothing. No release heeds it.
const STAND_IN: &str = "ROTA_SOFTWARE_EVENTS";

/// Whether the kernel's own events stand in for the processor's.
pub fn stands_in() -> bool {
    cfg!(debug_assertions) && env::var_os(STAND_IN).is_some()
}

/// A kind of event: `type` and `config` of `struct perf_event_attr`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event(pub u32, pub u64);

impl Event {
    /// The processor's cycles: `PERF_TYPE_HARDWARE`, as the next ones.
    pub const CYCLES: Event = Event(0, 0);
    /// Instructions that it completed.
    pub const INSTRUCTIONS: Event = Event(0, 1);
    /// References to the last-level cache.
    pub const REFERENCES: Event = Event(0, 2);
    /// Those that missed it.
    pub const MISSES: Event = Event(0, 3);
    /// Cycles in which the execution units waited, for memory most often. Many processors have none.
    pub const STALLS: Event = Event(0, 8);
    /// Reads that missed the first-level data cache: `PERF_TYPE_HW_CACHE`, as the next one.
    pub const DATA_MISSES: Event = Event(3, 0x1_0000);
    /// Those whose address its TLB lacked.
    pub const TLB_MISSES: Event = Event(3, 0x1_0003);
    /// The time that a thread runs, in ns: `PERF_TYPE_SOFTWARE`, as the next ones. Every machine counts these.
    pub const RUN_TIME: Event = Event(1, 1);
    /// Its page faults.
    pub const FAULTS: Event = Event(1, 2);

    fn attributes(self) -> Attributes {
        let (Event(kind, config), size) = (self, size_of::<Attributes>() as u32);
        Attributes { kind, size, config, ..Attributes::default() }
    }
}

/// `PERF_FORMAT_TOTAL_TIME_ENABLED`, `..._RUNNING` and `PERF_FORMAT_GROUP`.
const FORMAT: u64 = 1 | 2 | 8;
const PERF_FLAG_PID_CGROUP: libc::c_ulong = 4;
const PERF_FLAG_FD_CLOEXEC: libc::c_ulong = 8;
/// Of `struct perf_event_attr`: the event has its counter all the time or is an error, and counts in programs only.
const PINNED: u64 = 1 << 2;
const IN_PROGRAMS: u64 = 1 << 5 | 1 << 6;
const PERF_SAMPLE_BRANCH_STACK: u64 = 1 << 11;
/// `PERF_SAMPLE_BRANCH_USER` and `..._ANY`.
const ANY_IN_PROGRAMS: u64 = 1 | 8;

/// `struct perf_event_attr`, as far as its third version goes.
#[repr(C)]
#[derive(Default)]
struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_events: u32,
    breakpoint_type: u32,
    config1: u64,
    config2: u64,
    branch_sample_type: u64,
}

/// `PERF_ATTR_SIZE_VER2`.
const _: () = assert!(size_of::<Attributes>() == 80);

/// Events that are counted together, of a thread or of a cgroup on one CPU.
pub struct Group<const N: usize> {
    leader: File,
    /// They count as long as they are open.
    _others: Vec<OwnedFd>,
}

/// What a [`Group`] has counted.
pub struct Counts<const N: usize> {
    /// For how long it was there to be counted, in ns.
    pub there_ns: u64,
    /// Each event, as if all had been counted all the time.
    pub events: [u64; N],
}

impl<const N: usize> Group<N> {
    /// Counts a thread from now on.
    ///
    /// # Errors
    /// The kernel's: `ESRCH` if there is no such thread, and those of [`reason`].
    pub fn of_thread(events: [Event; N], tid: i32) -> io::Result<Group<N>> {
        Group::open(events, tid, -1, 0)
    }

    /// Counts the threads of a cgroup and of those below it, while they run on this CPU.
    ///
    /// # Errors
    /// The kernel's: those of [`reason`].
    pub fn of_cgroup(events: [Event; N], directory: &File, cpu: u32) -> io::Result<Group<N>> {
        Group::open(events, directory.as_raw_fd(), cpu as i32, PERF_FLAG_PID_CGROUP)
    }

    fn open(events: [Event; N], pid: i32, cpu: i32, flags: libc::c_ulong) -> io::Result<Group<N>> {
        let open = |event: Event, group| {
            let attributes = Attributes { read_format: FORMAT, ..event.attributes() };
            open(&attributes, pid, cpu, group, flags)
        };
        let leader = open(events[0], -1)?;
        let others = events[1..].iter().map(|event| open(*event, leader.as_raw_fd()));
        let others = others.collect::<io::Result<_>>()?;
        Ok(Group { leader: File::from(leader), _others: others })
    }

    /// What was counted so far.
    ///
    /// # Errors
    /// The kernel's.
    pub fn read(&self) -> io::Result<Counts<N>> {
        let mut bytes = vec![0; 8 * (3 + N)];
        (&self.leader).read_exact(&mut bytes)?;
        let word = |place: usize| {
            let word = bytes[8 * place..8 * place + 8].try_into().expect("eight bytes");
            u64::from_ne_bytes(word)
        };
        let [enabled_ns, running_ns] = [word(1), word(2)];
        let whole = |count: u64| {
            let scaled = u128::from(count) * u128::from(enabled_ns);
            scaled.checked_div(running_ns.into()).unwrap_or(0) as u64
        };
        Ok(Counts { there_ns: enabled_ns, events: std::array::from_fn(|event| whole(word(3 + event))) })
    }
}

/// Counts an event of all programs on a CPU.
///
/// # Errors
/// The kernel's: those of [`reason`].
pub fn count_on(event: Event, cpu: u32) -> io::Result<OwnedFd> {
    let attributes = Attributes { flags: PINNED | IN_PROGRAMS, ..event.attributes() };
    open(&attributes, -1, cpu as i32, -1, 0)
}

/// Has the processor record the last branches of all programs on a CPU.
///
/// # Errors
/// The kernel's: those of [`reason`]; it [is missing](is_missing) where the processor cannot.
pub fn record_branches(cpu: u32) -> io::Result<OwnedFd> {
    let attributes = Attributes {
        sample_type: PERF_SAMPLE_BRANCH_STACK,
        branch_sample_type: ANY_IN_PROGRAMS,
        flags: PINNED | IN_PROGRAMS,
        ..Event::CYCLES.attributes()
    };
    open(&attributes, -1, cpu as i32, -1, 0)
}

fn open(
    attributes: &Attributes,
    pid: i32,
    cpu: i32,
    group: RawFd,
    flags: libc::c_ulong,
) -> io::Result<OwnedFd> {
    let flags = flags | PERF_FLAG_FD_CLOEXEC;
    // SAFETY: the kernel reads `size` bytes of the structure, which lives until the call returns.
    let fd =
        unsafe { libc::syscall(libc::SYS_perf_event_open, &raw const *attributes, pid, cpu, group, flags) };
    let fd = RawFd::try_from(fd).map_err(io::Error::other)?;
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made it, for nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Whether the processor counts no such event, as in most VMs.
pub fn is_missing(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::EOPNOTSUPP | libc::ENODEV))
}

/// What an operator can do about it; `what` is counted.
pub fn reason(error: &io::Error, what: &str) -> String {
    match error.raw_os_error() {
        _ if is_missing(error) => format!("this machine's processor counts no {what}, as in most VMs"),
        Some(libc::EACCES | libc::EPERM) => {
            "the kernel lets nobody count; give rota CAP_PERFMON, or lower kernel.perf_event_paranoid"
                .to_owned()
        }
        _ => format!("perf_event_open: {error}"),
    }
}
