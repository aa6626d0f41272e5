//! What threads fetch from memory, as the processor counts it: `perf_event_open(2)`, for each vCPU thread of a VM, and
//! for the cgroup of a container on each CPU. The kernel starts and stops the counters with the threads. Where there
//! are none, [`Resctrl`] is asked.

use std::collections::BTreeMap;
use std::env;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::path::Path;

use nix::libc;
use rota_model::Cgroup;
use rota_rules::interference::{Counted, ThreadCount};

use crate::resctrl::Resctrl;

/// What is counted by itself: a thread of a cgroup, by the kernel's id of that, or all of its threads as 0.
pub type Key = (u64, i32);

/// All that is to be counted.
pub fn keys<'c>(wanted: &[(&'c Cgroup, Vec<i32>)]) -> BTreeMap<Key, &'c Cgroup> {
    let keys = |(cgroup, tids): &(&'c Cgroup, Vec<i32>)| match &tids[..] {
        [] => vec![((cgroup.id, 0), *cgroup)],
        tids => tids.iter().map(|tid| ((cgroup.id, *tid), *cgroup)).collect(),
    };
    wanted.iter().flat_map(keys).collect()
}

/// A kind of event: `type` and `config` of `struct perf_event_attr`.
type Kind = (u32, u64);

/// `PERF_TYPE_HARDWARE`: references to the last-level cache, and misses there.
const EVENTS: [Kind; 2] = [(0, 2), (0, 3)];
/// `PERF_TYPE_SOFTWARE`: page faults, and the time that a thread runs. Every machine counts these.
const SOFTWARE: [Kind; 2] = [(1, 2), (1, 1)];
/// Has [`SOFTWARE`] stand in for [`EVENTS`]: for tests on machines whose processor counts nothing. No release heeds it.
const STAND_IN: &str = "ROTA_SOFTWARE_EVENTS";
/// Who counts, as an operator is told.
const PERF: &str = "the processor's counters";
const KERNEL: &str = "the kernel, which counts how long each runs instead of what it fetches";
const RESCTRL: &str = "resctrl";
/// So many counters are open at most: each has a file, and some memory of the kernel's.
const COUNTERS_MAX: usize = 16_384;
/// `PERF_FORMAT_TOTAL_TIME_ENABLED`, `..._RUNNING` and `PERF_FORMAT_GROUP`.
const FORMAT: u64 = 1 | 2 | 8;
const PERF_FLAG_PID_CGROUP: libc::c_ulong = 4;
const PERF_FLAG_FD_CLOEXEC: libc::c_ulong = 8;

/// `struct perf_event_attr`, as far as its first version goes.
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
}

/// `PERF_ATTR_SIZE_VER0`.
const _: () = assert!(size_of::<Attributes>() == 64);

/// Both events of a thread, or of a cgroup on one CPU.
struct Group {
    leader: File,
    /// It counts as long as it is open.
    _second: OwnedFd,
}

/// The counters of those that are to be counted. Nothing is open before anybody is.
pub struct Misses {
    events: [Kind; 2],
    open: BTreeMap<Key, Vec<Group>>,
    resctrl: Resctrl,
    /// Whose the last counts were: one of [`PERF`], [`KERNEL`] and [`RESCTRL`], or nobody's.
    source: Option<&'static str>,
}

impl Misses {
    /// Nothing is counted yet.
    pub fn new(resctrl: Resctrl) -> Misses {
        let stands_in = cfg!(debug_assertions) && env::var_os(STAND_IN).is_some();
        let events = if stands_in { SOFTWARE } else { EVENTS };
        Misses { events, open: BTreeMap::new(), resctrl, source: None }
    }

    /// What was counted of each, by the processor's own counters or else by resctrl; and what to tell the operator, if
    /// it is the latter from now on.
    ///
    /// # Errors
    /// Why neither counts, and what to do about it.
    pub fn count(
        &mut self,
        wanted: &[(&Cgroup, Vec<i32>)],
        cpus: &[u32],
        cgroup_root: &Path,
    ) -> Result<(Vec<ThreadCount>, Option<String>), String> {
        let was = self.source.take();
        let reason = match self.read(wanted, cpus, cgroup_root) {
            Ok(counts) => {
                self.source = Some(if self.events == SOFTWARE { KERNEL } else { PERF });
                return Ok((counts, None));
            }
            Err(reason) => reason,
        };
        let counts = self.resctrl.read(wanted, cgroup_root).map_err(|more| format!("{reason}; {more}"))?;
        self.source = Some(RESCTRL);
        let is_news = was != self.source;
        Ok((counts, is_news.then(|| format!("interference: resctrl counts what is fetched: {reason}"))))
    }

    /// Whose the last counts were, for an operator; nothing if there were none.
    pub fn source(&self) -> Option<&'static str> {
        self.source
    }

    /// What was counted of each: threads of VMs, and cgroups without any on these CPUs. Those that have ended say
    /// nothing.
    ///
    /// # Errors
    /// Why nothing can be counted, and what to do about it.
    fn read(
        &mut self,
        wanted: &[(&Cgroup, Vec<i32>)],
        cpus: &[u32],
        cgroup_root: &Path,
    ) -> Result<Vec<ThreadCount>, String> {
        let all = keys(wanted);
        self.open.retain(|key, _| all.contains_key(key));
        for (&key, cgroup) in &all {
            if !self.open.contains_key(&key) {
                let opened = self.open_one(key.1, &cgroup_root.join(&cgroup.path), cpus);
                match opened {
                    Ok(groups) => drop(self.open.insert(key, groups)),
                    // It has ended since it was named.
                    Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {}
                    Err(error) => return Err(reason(&error)),
                }
            }
        }
        let count = |(&(cgroup, tid), groups): (&Key, &Vec<Group>)| {
            let sums = groups.iter().filter_map(|group| group.read().ok());
            let counted = sums.fold(Counted::default(), |sum, one| Counted {
                ran_ns: sum.ran_ns + one.ran_ns,
                references: sum.references + one.references,
                misses: sum.misses + one.misses,
            });
            ThreadCount { cgroup, tid, counted }
        };
        Ok(self.open.iter().map(count).collect())
    }

    fn open_one(&self, tid: i32, cgroup: &Path, cpus: &[u32]) -> io::Result<Vec<Group>> {
        let needed = 2 * if tid == 0 { cpus.len() } else { 1 };
        let in_use: usize = self.open.values().map(|groups| 2 * groups.len()).sum();
        if in_use + needed > COUNTERS_MAX {
            let message = format!("more than {COUNTERS_MAX} counters would be open");
            return Err(io::Error::other(message));
        }
        if tid != 0 {
            return Ok(vec![Group::open(self.events, tid, -1, 0)?]);
        }
        let Ok(directory) = File::open(cgroup) else { return Err(io::Error::from_raw_os_error(libc::ESRCH)) };
        let one =
            |cpu: &u32| Group::open(self.events, directory.as_raw_fd(), *cpu as i32, PERF_FLAG_PID_CGROUP);
        cpus.iter().map(one).collect()
    }
}

/// What an operator can do about it.
fn reason(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::ENOENT | libc::EOPNOTSUPP | libc::ENODEV) => {
            "this machine's processor counts no cache misses, as in most VMs".to_owned()
        }
        Some(libc::EACCES | libc::EPERM) => {
            "the kernel lets nobody count; give rota CAP_PERFMON, or lower kernel.perf_event_paranoid"
                .to_owned()
        }
        _ => format!("perf_event_open: {error}"),
    }
}

impl Group {
    fn open(events: [Kind; 2], pid: i32, cpu: i32, flags: libc::c_ulong) -> io::Result<Group> {
        let leader = open(events[0], pid, cpu, -1, flags)?;
        let second = open(events[1], pid, cpu, leader.as_raw_fd(), flags)?;
        Ok(Group { leader: File::from(leader), _second: second })
    }

    /// How long it was there to be counted, and the two counts, as if both had been counted all the time.
    fn read(&self) -> io::Result<Counted> {
        let mut bytes = [0; 40];
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
        Ok(Counted { ran_ns: enabled_ns, references: whole(word(3)), misses: whole(word(4)) })
    }
}

fn open((kind, config): Kind, pid: i32, cpu: i32, group: RawFd, flags: libc::c_ulong) -> io::Result<OwnedFd> {
    let size = size_of::<Attributes>() as u32;
    let attributes = Attributes { kind, size, config, read_format: FORMAT, ..Attributes::default() };
    let flags = flags | PERF_FLAG_FD_CLOEXEC;
    // SAFETY: the kernel reads `size` bytes of the structure, which lives until the call returns.
    let fd =
        unsafe { libc::syscall(libc::SYS_perf_event_open, &raw const attributes, pid, cpu, group, flags) };
    let fd = RawFd::try_from(fd).map_err(io::Error::other)?;
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made it, for nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// On a machine without resctrl.
    fn counting(events: [Kind; 2]) -> Misses {
        Misses { events, ..Misses::new(Resctrl::new("nowhere".into(), "nowhere".into())) }
    }

    fn cgroup() -> Cgroup {
        Cgroup { path: "none".into(), id: 7 }
    }

    #[test]
    fn a_thread_is_counted_from_when_it_is_first_asked_for() {
        let mut misses = counting(SOFTWARE);
        let tid = nix::unistd::gettid().as_raw();
        let cgroup = cgroup();
        let wanted = [(&cgroup, vec![tid])];
        let mut read = || misses.read(&wanted, &[0], Path::new("/"));
        let first = match read() {
            Ok(first) => first,
            // A container may forbid it, and then says so.
            Err(reason) => return assert!(reason.contains("CAP_PERFMON"), "{reason}"),
        };
        let pages = vec![1_u8; 4 << 20];
        // The second of a group is counted up to when its thread last stopped.
        std::thread::sleep(std::time::Duration::from_millis(1));
        let second = read().unwrap();
        assert!(pages.iter().all(|byte| *byte == 1));
        assert_eq!((first.len(), second[0].cgroup, second[0].tid), (1, 7, tid));
        let (first, second) = (first[0].counted, second[0].counted);
        assert!(second.ran_ns > first.ran_ns && second.misses > first.misses, "{first:?} {second:?}");
        assert!(second.references >= first.references);
        assert!(misses.count(&wanted, &[0], Path::new("/")).is_ok());
        assert_eq!(misses.source(), Some(KERNEL));
    }

    #[test]
    fn who_has_ended_says_nothing_and_nobody_is_kept_open() {
        let mut misses = counting(SOFTWARE);
        let (cgroup, tid) = (cgroup(), nix::unistd::gettid().as_raw());
        if misses.read(&[(&cgroup, vec![tid])], &[0], Path::new("/")).is_err() {
            return;
        }
        assert_eq!(misses.open.len(), 1);
        assert_eq!(misses.read(&[(&cgroup, vec![i32::MAX])], &[0], Path::new("/")), Ok(vec![]));
        assert!(misses.open.is_empty());
    }

    #[test]
    fn without_a_counter_the_reason_is_told() {
        // No kernel has this hardware event.
        let mut misses = counting([(0, 99), (0, 99)]);
        let (cgroup, tid) = (cgroup(), nix::unistd::gettid().as_raw());
        let reason = misses.count(&[(&cgroup, vec![tid])], &[0], Path::new("/")).unwrap_err();
        assert!(reason.contains("counts no cache misses") || reason.contains("perf_event"), "{reason}");
        assert!(reason.contains("; resctrl counts no memory bandwidth either"), "{reason}");
        assert_eq!(misses.source(), None);
    }
}
