//! What threads fetch from memory, as resctrl counts it: in a monitoring group for each vCPU thread of a VM, and for
//! the threads of a container. The kernel's documentation of resctrl describes the files; bandwidth is in bytes there.
//!
//! A thread that somebody else has put into a group stays there, and then nothing is counted. Threads that a
//! container's threads start later are in its group; those that come to its cgroup from elsewhere are not counted.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use nix::libc;
use rota_host::find::threads::threads_of;
use rota_model::Cgroup;
use rota_rules::interference::{Counted, ThreadCount};

use crate::misses::{Key, keys};

/// A line of the cache, in bytes.
const LINE: u64 = 64;
/// The groups that are ours begin so.
const OURS: &str = "rota-";

/// A group, and the cgroup whose threads are in it.
struct Group {
    folder: PathBuf,
    cgroup: PathBuf,
}

/// The groups of those that are to be counted. Nothing is made before anybody is, and all go with this.
pub struct Resctrl {
    root: PathBuf,
    proc: PathBuf,
    groups: BTreeMap<Key, Group>,
    is_swept: bool,
}

impl Resctrl {
    /// `root` is where resctrl is mounted, if it is; `proc` is where processes are.
    pub fn new(root: PathBuf, proc: PathBuf) -> Resctrl {
        Resctrl { root, proc, groups: BTreeMap::new(), is_swept: false }
    }

    /// What was counted of each: threads of VMs, and cgroups without any. Those that have ended say nothing.
    ///
    /// # Errors
    /// Why nothing can be counted, and what to do about it.
    pub fn read(
        &mut self,
        wanted: &[(&Cgroup, Vec<i32>)],
        cgroup_root: &Path,
    ) -> Result<Vec<ThreadCount>, String> {
        let features = fs::read_to_string(self.root.join("info/L3_MON/mon_features")).unwrap_or_default();
        if !features.lines().any(|feature| feature == "mbm_total_bytes") {
            return Err(NOT_THERE.to_owned());
        }
        self.sweep();
        let all = keys(wanted);
        self.groups.retain(|key, group| {
            let stays = all.contains_key(key);
            if !stays {
                group.remove();
            }
            stays
        });
        for (&key, cgroup) in &all {
            if !self.groups.contains_key(&key) {
                let cgroup = cgroup_root.join(&cgroup.path);
                let threads = if key.1 == 0 { threads_of(&cgroup) } else { BTreeSet::from([key.1]) };
                let group = Group { folder: self.folder(key), cgroup };
                self.gather(&group, &threads)?;
                self.groups.insert(key, group);
            }
        }
        let lines: Vec<Option<u64>> = self.groups.values().map(Group::lines).collect();
        if !lines.is_empty() && lines.iter().all(Option::is_none) {
            return Err(NO_FIGURES.to_owned());
        }
        let counts = self.groups.iter().zip(lines).filter_map(|((&(cgroup, tid), group), misses)| {
            let counted = Counted { ran_ns: self.ran_ns(tid, group)?, references: 0, misses: misses? };
            Some(ThreadCount { cgroup, tid, counted })
        });
        Ok(counts.collect())
    }

    fn folder(&self, (cgroup, tid): Key) -> PathBuf {
        self.root.join(format!("mon_groups/{OURS}{cgroup}-{tid}"))
    }

    /// Removes the groups of a daemon that is gone, once.
    fn sweep(&mut self) {
        if std::mem::replace(&mut self.is_swept, true) {
            return;
        }
        let entries = fs::read_dir(self.root.join("mon_groups")).into_iter().flatten().flatten();
        for entry in entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(OURS)) {
            // One that cannot be removed is used again, or counts nobody.
            let _ = fs::remove_dir(entry.path());
        }
    }

    /// Makes a group of these threads.
    fn gather(&self, group: &Group, threads: &BTreeSet<i32>) -> Result<(), String> {
        let others = threads.iter().find(|tid| !self.is_free(**tid));
        if let Some(tid) = others {
            return Err(format!(
                "thread {tid} is in a group of resctrl's that is not Rota's; remove that group"
            ));
        }
        let made = match fs::create_dir(&group.folder) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
            _ => threads.iter().try_for_each(|tid| enter(&group.folder, *tid)),
        };
        made.map_err(|error| {
            group.remove();
            match error.raw_os_error() {
                Some(libc::ENOSPC) => "resctrl has no room for more groups; remove others' groups".to_owned(),
                _ => format!("resctrl, {}: {error}", group.folder.display()),
            }
        })
    }

    /// Whether nobody has put a thread into a group, or we have. One that has ended is.
    fn is_free(&self, tid: i32) -> bool {
        let file = self.proc.join(tid.to_string()).join("cpu_resctrl_groups");
        let groups = fs::read_to_string(file).unwrap_or_default();
        let of = |name: &str| {
            let line = groups.lines().find_map(|line| line.strip_prefix(name));
            line.unwrap_or_default().trim_matches(['/', ' ']).to_owned()
        };
        let monitored = of("mon:");
        of("res:").is_empty() && (monitored.is_empty() || monitored.starts_with(OURS))
    }

    /// How long a thread, or a cgroup's threads, have run so far; nothing if they have ended.
    fn ran_ns(&self, tid: i32, group: &Group) -> Option<u64> {
        if tid != 0 {
            let text = fs::read_to_string(self.proc.join(tid.to_string()).join("schedstat")).ok()?;
            return text.split_whitespace().next()?.parse().ok();
        }
        let text = fs::read_to_string(group.cgroup.join("cpu.stat")).ok()?;
        let us: u64 = text.lines().find_map(|line| line.strip_prefix("usage_usec "))?.trim().parse().ok()?;
        us.checked_mul(1_000)
    }
}

/// What to say where there is nothing to read.
const NOT_THERE: &str = "resctrl counts no memory bandwidth either; if /proc/cpuinfo has cqm_mbm_total, mount it: \
    mount -t resctrl resctrl /sys/fs/resctrl";

/// As of a processor that counts only groups to which counters are assigned.
const NO_FIGURES: &str = "resctrl has no figure for any group of Rota's; write default to info/L3_MON/mbm_assign_mode, \
    if it is there";

/// A thread that has ended is no error.
fn enter(folder: &Path, tid: i32) -> io::Result<()> {
    let mut tasks = fs::OpenOptions::new().append(true).open(folder.join("tasks"))?;
    match tasks.write_all(format!("{tid}\n").as_bytes()) {
        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Ok(()),
        outcome => outcome,
    }
}

impl Group {
    /// Its threads are in the group of all others then.
    fn remove(&self) {
        // It may be gone already; what stays is removed by the next daemon.
        let _ = fs::remove_dir(&self.folder);
    }

    /// Lines fetched so far, from the memory of each cache; nothing if one of the counters cannot be read now.
    fn lines(&self) -> Option<u64> {
        let mut bytes = 0_u64;
        let caches = fs::read_dir(self.folder.join("mon_data")).ok()?.flatten();
        for cache in caches.filter(|cache| cache.file_name().to_string_lossy().starts_with("mon_L3_")) {
            let text = fs::read_to_string(cache.path().join("mbm_total_bytes")).ok()?;
            bytes = bytes.checked_add(text.trim().parse().ok()?)?;
        }
        Some(bytes / LINE)
    }
}

impl Drop for Resctrl {
    fn drop(&mut self) {
        self.groups.values().for_each(Group::remove);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Files as resctrl has them, with a VM of two vCPU threads and a container.
    struct Machine(tempfile::TempDir);

    const GROUPS: [&str; 3] = ["rota-7-41", "rota-7-42", "rota-8-0"];

    impl Machine {
        fn new() -> Machine {
            let machine = Machine(tempfile::tempdir().unwrap());
            machine.write(
                "resctrl/info/L3_MON/mon_features",
                "llc_occupancy\nmbm_total_bytes\nmbm_local_bytes\n",
            );
            for group in GROUPS {
                machine.write(&format!("resctrl/mon_groups/{group}/tasks"), "");
                machine.bytes(group, ["64000", "0"]);
            }
            for (tid, ran) in [(41, "5000000 17 3"), (42, "0 0 0")] {
                machine.write(&format!("proc/{tid}/schedstat"), ran);
                machine.write(&format!("proc/{tid}/cpu_resctrl_groups"), "res:/\nmon:\n");
            }
            machine.write("cgroup/web/cpu.stat", "usage_usec 2000\nuser_usec 1500\n");
            machine.write("cgroup/web/cgroup.threads", "");
            machine.write("cgroup/web/inner/cgroup.threads", "50\n51\n");
            machine
        }

        fn write(&self, path: &str, text: &str) {
            let path = self.0.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }

        /// What each of two caches has counted of a group.
        fn bytes(&self, group: &str, bytes: [&str; 2]) {
            for (cache, bytes) in ["mon_L3_00", "mon_L3_01"].iter().zip(bytes) {
                self.write(&format!("resctrl/mon_groups/{group}/mon_data/{cache}/mbm_total_bytes"), bytes);
            }
        }

        fn tasks(&self, group: &str) -> String {
            fs::read_to_string(self.0.path().join(format!("resctrl/mon_groups/{group}/tasks"))).unwrap()
        }

        fn resctrl(&self) -> Resctrl {
            Resctrl::new(self.0.path().join("resctrl"), self.0.path().join("proc"))
        }

        fn read(&self, resctrl: &mut Resctrl) -> Result<Vec<ThreadCount>, String> {
            let cgroup = |path: &str, id| Cgroup { path: path.into(), id };
            let (vm, web) = (cgroup("vm", 7), cgroup("web", 8));
            resctrl.read(&[(&vm, vec![41, 42]), (&web, vec![])], &self.0.path().join("cgroup"))
        }
    }

    fn count(cgroup: u64, tid: i32, ran_ns: u64, misses: u64) -> ThreadCount {
        ThreadCount { cgroup, tid, counted: Counted { ran_ns, references: 0, misses } }
    }

    #[test]
    fn threads_are_put_into_groups_whose_bytes_are_lines() {
        let machine = Machine::new();
        let mut resctrl = machine.resctrl();
        let found = machine.read(&mut resctrl).unwrap();
        let rest = [count(7, 42, 0, 1_000), count(8, 0, 2_000_000, 1_000)];
        assert_eq!(found, [&[count(7, 41, 5_000_000, 1_000)], &rest[..]].concat());
        assert_eq!(GROUPS.map(|group| machine.tasks(group)), ["41\n", "42\n", "50\n51\n"]);

        machine.bytes("rota-7-41", ["128000", "6400"]);
        let found = machine.read(&mut resctrl).unwrap();
        assert_eq!(found[0], count(7, 41, 5_000_000, 2_100), "of both caches together");
        machine.bytes("rota-7-41", ["Unavailable", "6400"]);
        assert_eq!(machine.read(&mut resctrl), Ok(rest.to_vec()), "no figure is better than a wrong one");
        GROUPS.iter().for_each(|group| machine.bytes(group, ["Unassigned", "0"]));
        let reason = machine.read(&mut resctrl).unwrap_err();
        assert!(reason.contains("mbm_assign_mode"), "{reason}");
    }

    #[test]
    fn who_is_in_anothers_group_stays_there() {
        for groups in ["res:/\nmon:libvirt\n", "res:gold\nmon:\n"] {
            let machine = Machine::new();
            machine.write("proc/42/cpu_resctrl_groups", groups);
            let reason = machine.read(&mut machine.resctrl()).unwrap_err();
            assert!(reason.starts_with("thread 42 is in a group"), "{reason}");
            assert_eq!(machine.tasks("rota-7-42"), "");
        }
        let machine = Machine::new();
        machine.write("proc/42/cpu_resctrl_groups", "res:/\nmon:rota-7-42\n");
        assert!(machine.read(&mut machine.resctrl()).is_ok());
    }

    #[test]
    fn without_bandwidth_the_mend_is_told() {
        let machine = Machine::new();
        machine.write("resctrl/info/L3_MON/mon_features", "llc_occupancy\n");
        let reason = machine.read(&mut machine.resctrl()).unwrap_err();
        assert!(reason.contains("mount -t resctrl"), "{reason}");
        assert_eq!(machine.tasks("rota-7-41"), "");
    }

    #[test]
    fn groups_that_are_of_no_use_are_removed() {
        let machine = Machine::new();
        let left = machine.0.path().join("resctrl/mon_groups/rota-9-90");
        let others = machine.0.path().join("resctrl/mon_groups/libvirt");
        [&left, &others].iter().for_each(|folder| fs::create_dir(folder).unwrap());
        machine.read(&mut machine.resctrl()).unwrap();
        assert!(!left.exists() && others.exists());
    }
}
