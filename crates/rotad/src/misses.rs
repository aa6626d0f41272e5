//! What threads fetch from memory, as the processor counts it: `perf_event_open(2)`, for each vCPU thread of a VM, and
//! for the cgroup of a container on each CPU. The kernel starts and stops the counters with the threads. Where there
//! are none, [`Resctrl`] is asked.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::Path;

use nix::libc;
use rota_model::Cgroup;
use rota_rules::interference::{Counted, ThreadCount};

use crate::perf::{Counts, Event, Group, reason, stands_in};
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

/// References to the last-level cache, and misses there.
const EVENTS: [Event; 2] = [Event::REFERENCES, Event::MISSES];
/// What [stands in](stands_in) for them.
const SOFTWARE: [Event; 2] = [Event::FAULTS, Event::RUN_TIME];
/// Who counts, as an operator is told.
const PERF: &str = "the processor's counters";
const KERNEL: &str = "the kernel, which counts how long each runs instead of what it fetches";
const RESCTRL: &str = "resctrl";
/// So many counters are open at most: each has a file, and some memory of the kernel's.
const COUNTERS_MAX: usize = 16_384;

/// The counters of those that are to be counted. Nothing is open before anybody is.
pub struct Misses {
    events: [Event; 2],
    open: BTreeMap<Key, Vec<Group<2>>>,
    resctrl: Resctrl,
    /// Whose the last counts were: one of [`PERF`], [`KERNEL`] and [`RESCTRL`], or nobody's.
    source: Option<&'static str>,
}

impl Misses {
    /// Nothing is counted yet.
    pub fn new(resctrl: Resctrl) -> Misses {
        let events = if stands_in() { SOFTWARE } else { EVENTS };
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
                    Err(error) => return Err(reason(&error, "cache misses")),
                }
            }
        }
        let count = |(&(cgroup, tid), groups): (&Key, &Vec<Group<2>>)| {
            let sums = groups.iter().filter_map(|group| group.read().ok());
            let counted =
                sums.fold(Counted::default(), |sum, Counts { there_ns, events: [references, misses] }| {
                    Counted {
                        ran_ns: sum.ran_ns + there_ns,
                        references: sum.references + references,
                        misses: sum.misses + misses,
                    }
                });
            ThreadCount { cgroup, tid, counted }
        };
        Ok(self.open.iter().map(count).collect())
    }

    fn open_one(&self, tid: i32, cgroup: &Path, cpus: &[u32]) -> io::Result<Vec<Group<2>>> {
        let needed = 2 * if tid == 0 { cpus.len() } else { 1 };
        let in_use: usize = self.open.values().map(|groups| 2 * groups.len()).sum();
        if in_use + needed > COUNTERS_MAX {
            let message = format!("more than {COUNTERS_MAX} counters would be open");
            return Err(io::Error::other(message));
        }
        if tid != 0 {
            return Ok(vec![Group::of_thread(self.events, tid)?]);
        }
        let Ok(directory) = File::open(cgroup) else { return Err(io::Error::from_raw_os_error(libc::ESRCH)) };
        cpus.iter().map(|cpu| Group::of_cgroup(self.events, &directory, *cpu)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// On a machine without resctrl.
    fn counting(events: [Event; 2]) -> Misses {
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
        let mut misses = counting([Event(0, 99), Event(0, 99)]);
        let (cgroup, tid) = (cgroup(), nix::unistd::gettid().as_raw());
        let reason = misses.count(&[(&cgroup, vec![tid])], &[0], Path::new("/")).unwrap_err();
        assert!(reason.contains("counts no cache misses") || reason.contains("perf_event"), "{reason}");
        assert!(reason.contains("; resctrl counts no memory bandwidth either"), "{reason}");
        assert_eq!(misses.source(), None);
    }
}
