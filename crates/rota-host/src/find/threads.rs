//! The vCPU threads of virtual machines, by the names that their monitors give them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// A vCPU thread's number, from the name its monitor gives it; nothing for any other thread.
///
/// QEMU names them `CPU 0/KVM` or `CPU 0/TCG` (with `-name ...,debug-threads=on`), Firecracker `fc_vcpu 0`, Cloud
/// Hypervisor `vcpu0`.
pub fn vcpu_index(comm: &str) -> Option<u32> {
    let digits = if let Some(rest) = comm.strip_prefix("CPU ") {
        rest.strip_suffix("/KVM").or_else(|| rest.strip_suffix("/TCG"))?
    } else {
        comm.strip_prefix("fc_vcpu ").or_else(|| comm.strip_prefix("vcpu"))?
    };
    // `parse` alone would take "+1".
    if digits.starts_with(|first: char| first.is_ascii_digit()) { digits.parse().ok() } else { None }
}

/// Looks through the threads of cgroups for vCPU threads, again and again, reading the name of a long-lived thread no
/// more than [`ThreadScan::LOOKS`] times. What is inside of a cgroup is its tenant's, so each look has bounds.
#[derive(Debug)]
pub struct ThreadScan {
    proc: PathBuf,
    cgroups: BTreeMap<PathBuf, Seen>,
}

/// What was seen of a cgroup.
#[derive(Debug, Default)]
struct Seen {
    /// How often each thread's name was read and was no vCPU's.
    others: BTreeMap<i32, u32>,
    vcpus: BTreeMap<u32, i32>,
    /// How many vCPUs its tenant had.
    count: usize,
    /// So many looks in a row have found nothing.
    in_vain: u32,
    /// So many more are left out.
    skip: u32,
    /// The kernel has said that this is a virtual machine.
    has_kvm: bool,
}

impl ThreadScan {
    /// A thread gets its name shortly after its birth, so a name is looked at more than once.
    const LOOKS: u32 = 3;
    /// A look that finds nothing has as many left out after it as there were in vain, and no more than these.
    const SKIP_MAX: u32 = 15;
    /// The same for what is a virtual machine, and may name its threads late.
    const SKIP_MAX_VM: u32 = 3;
    /// A cgroup and so many below it are looked at, and two more for each vCPU: libvirt has one for each.
    const CGROUPS_MAX: usize = 64;
    /// So many threads are looked at, and sixteen more for each vCPU.
    const THREADS_MAX: usize = 1024;
    /// Threads named as vCPUs that a tenant does not have: so many are told.
    const SPARE_MAX: usize = 16;

    /// Reads thread names below `proc`, which is `/proc` but in tests.
    pub fn new(proc: impl Into<PathBuf>) -> ThreadScan {
        ThreadScan { proc: proc.into(), cgroups: BTreeMap::new() }
    }

    /// As [`ThreadScan::vcpus`], but nothing in most calls if there were none for some time, and nothing for a tenant
    /// that `is_vm` does not say to be a virtual machine, unless one of its processes is KVM's.
    pub fn look(&mut self, cgroup: &Path, count: u32, is_vm: bool) -> Option<BTreeMap<u32, i32>> {
        let seen = self.cgroups.entry(cgroup.to_owned()).or_default();
        if seen.skip > 0 {
            seen.skip -= 1;
            return None;
        }
        seen.has_kvm = is_vm || seen.has_kvm || has_kvm(&self.proc, cgroup);
        let found = if seen.has_kvm { self.vcpus(cgroup, count) } else { BTreeMap::new() };
        let seen = self.cgroups.entry(cgroup.to_owned()).or_default();
        seen.in_vain = if found.is_empty() { seen.in_vain.saturating_add(1) } else { 0 };
        seen.skip = seen.in_vain.min(if seen.has_kvm { Self::SKIP_MAX_VM } else { Self::SKIP_MAX });
        seen.has_kvm.then_some(found)
    }

    /// The vCPU threads in `cgroup` and everything below it, of a tenant with `count` vCPUs: vCPU number to thread id.
    ///
    /// Threads and cgroups that go away while they are looked at are passed over: they will not be missed.
    pub fn vcpus(&mut self, cgroup: &Path, count: u32) -> BTreeMap<u32, i32> {
        let count = count as usize;
        let threads = threads(cgroup, Self::CGROUPS_MAX + 2 * count, Self::THREADS_MAX + 16 * count);
        let seen = self.cgroups.entry(cgroup.to_owned()).or_default();
        seen.others.retain(|tid, _| threads.contains(tid));
        if std::mem::replace(&mut seen.count, count) != count {
            seen.others.clear();
        }

        let mut vcpus = BTreeMap::new();
        // Who was a vCPU stays it, whoever else calls itself so.
        let before: BTreeSet<i32> =
            seen.vcpus.values().copied().filter(|tid| threads.contains(tid)).collect();
        for tid in before.iter().chain(threads.difference(&before)).copied() {
            let looks = seen.others.get(&tid).copied().unwrap_or(0);
            if looks >= Self::LOOKS {
                continue;
            }
            let Ok(comm) = std::fs::read_to_string(self.proc.join(tid.to_string()).join("comm")) else {
                continue;
            };
            match vcpu_index(comm.trim_end_matches('\n')) {
                // Two monitors in one cgroup: the first vCPU 0 is it; the second VM needs a cgroup of its own.
                Some(index) if (index as usize) < count + Self::SPARE_MAX => {
                    vcpus.entry(index).or_insert(tid);
                }
                _ => {
                    seen.others.insert(tid, looks + 1);
                }
            }
        }
        seen.vcpus.clone_from(&vcpus);
        vcpus
    }

    /// Forgets a cgroup that is gone.
    pub fn forget(&mut self, cgroup: &Path) {
        self.cgroups.remove(cgroup);
    }
}

/// The threads in `cgroup` and below it, up to the bounds of a [`ThreadScan`].
pub fn threads_of(cgroup: &Path) -> BTreeSet<i32> {
    threads(cgroup, ThreadScan::CGROUPS_MAX, ThreadScan::THREADS_MAX)
}

/// The threads in `cgroup` and below it, up to the bounds.
fn threads(cgroup: &Path, cgroups_max: usize, threads_max: usize) -> BTreeSet<i32> {
    let mut threads = BTreeSet::new();
    for folder in folders(cgroup, cgroups_max) {
        let left = threads_max.saturating_sub(threads.len());
        threads.extend(ids(&folder.join("cgroup.threads"), left));
    }
    threads
}

/// `cgroup` and what is below it, those nearest to it first, up to `max`.
fn folders(cgroup: &Path, max: usize) -> Vec<PathBuf> {
    let mut found = vec![cgroup.to_owned()];
    let mut next = 0;
    while next < found.len() && found.len() < max {
        let entries = found[next].read_dir().into_iter().flatten().flatten();
        let folders = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        let more: Vec<PathBuf> = folders.take(max - found.len()).map(|entry| entry.path()).collect();
        found.extend(more);
        next += 1;
    }
    found
}

/// Up to `max` ids, one a line.
fn ids(file: &Path, max: usize) -> impl Iterator<Item = i32> + use<> {
    use std::io::BufRead;
    let lines = std::fs::File::open(file).into_iter().flat_map(|file| std::io::BufReader::new(file).lines());
    lines.map_while(Result::ok).filter_map(|line| line.parse().ok()).take(max)
}

/// So many processes, and so many open files of each, are looked at for KVM's.
const PROCESSES_MAX: usize = 64;
const FILES_MAX: usize = 128;
/// What the kernel calls the file of a virtual machine.
const KVM_FILE: &str = "anon_inode:kvm-vm";

/// Whether a process in `cgroup` has a virtual machine of KVM's: the kernel says so, whatever the process is called.
fn has_kvm(proc: &Path, cgroup: &Path) -> bool {
    let folders = folders(cgroup, ThreadScan::CGROUPS_MAX);
    let processes = folders.iter().flat_map(|folder| ids(&folder.join("cgroup.procs"), PROCESSES_MAX));
    processes.take(PROCESSES_MAX).any(|pid| {
        let files = proc.join(pid.to_string()).join("fd").read_dir();
        let mut files = files.into_iter().flatten().flatten().take(FILES_MAX);
        files.any(|file| file.path().read_link().is_ok_and(|target| target == Path::new(KVM_FILE)))
    })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn vcpu_threads_are_told_by_name() {
        let cases = [
            ("CPU 0/KVM", Some(0)),
            ("CPU 12/TCG", Some(12)),
            ("fc_vcpu 3", Some(3)),
            ("vcpu7", Some(7)),
            ("CPU 0/XYZ", None),
            ("CPU /KVM", None),
            ("CPU +1/KVM", None),
            ("vcpu", None),
            ("vcpu_handler", None),
            ("fc_api", None),
            ("IO mon_iothread", None),
            ("vcpu99999999999", None),
        ];
        for (comm, index) in cases {
            assert_eq!(vcpu_index(comm), index, "{comm}");
        }
    }

    fn name(proc: &Path, tid: i32, comm: &str) {
        let folder = proc.join(tid.to_string());
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("comm"), format!("{comm}\n")).unwrap();
    }

    #[test]
    fn vcpus_are_found_in_nested_cgroups_and_after_a_late_naming() {
        let folder = tempfile::tempdir().unwrap();
        let (proc, cgroup) = (folder.path().join("proc"), folder.path().join("vm"));
        fs::create_dir_all(cgroup.join("inner")).unwrap();
        fs::write(cgroup.join("cgroup.threads"), "10\n11\n99\n").unwrap();
        fs::write(cgroup.join("inner/cgroup.threads"), "12\n").unwrap();
        name(&proc, 10, "qemu-system-x86");
        name(&proc, 11, "qemu-system-x86");
        name(&proc, 12, "CPU 1/KVM");

        let mut scan = ThreadScan::new(&proc);
        assert_eq!(scan.vcpus(&cgroup, 2), BTreeMap::from([(1, 12)]));
        name(&proc, 11, "CPU 0/KVM");
        assert_eq!(scan.vcpus(&cgroup, 2), BTreeMap::from([(0, 11), (1, 12)]));
        // Thread 10 has been looked at often enough: what it calls itself now changes nothing.
        scan.vcpus(&cgroup, 2);
        name(&proc, 10, "CPU 2/KVM");
        assert_eq!(scan.vcpus(&cgroup, 2), BTreeMap::from([(0, 11), (1, 12)]));
    }

    /// A thread with a lower id that takes a vCPU's name does not take its place.
    #[test]
    fn who_was_a_vcpu_stays_it() {
        let folder = tempfile::tempdir().unwrap();
        let (proc, cgroup) = (folder.path().join("proc"), folder.path().join("vm"));
        fs::create_dir_all(&cgroup).unwrap();
        fs::write(cgroup.join("cgroup.threads"), "7\n9\n").unwrap();
        name(&proc, 7, "worker");
        name(&proc, 9, "CPU 0/KVM");
        let mut scan = ThreadScan::new(&proc);
        scan.vcpus(&cgroup, 1);
        name(&proc, 7, "CPU 0/KVM");
        assert_eq!(scan.vcpus(&cgroup, 1), BTreeMap::from([(0, 9)]));
    }

    #[test]
    fn only_kvm_makes_a_container_a_virtual_machine() {
        let folder = tempfile::tempdir().unwrap();
        let (proc, cgroup) = (folder.path().join("proc"), folder.path().join("web"));
        fs::create_dir_all(&cgroup).unwrap();
        for list in ["cgroup.threads", "cgroup.procs"] {
            fs::write(cgroup.join(list), "9\n").unwrap();
        }
        name(&proc, 9, "vcpu0");
        let mut scan = ThreadScan::new(&proc);
        let looks = |scan: &mut ThreadScan| (0..100).filter_map(|_| scan.look(&cgroup, 1, false)).next();
        assert_eq!(looks(&mut scan), None, "a name is no proof");
        fs::create_dir(proc.join("9/fd")).unwrap();
        symlink("anon_inode:kvm-vm", proc.join("9/fd/3")).unwrap();
        assert_eq!(looks(&mut scan), Some(BTreeMap::from([(0, 9)])));
    }

    /// What a tenant makes in its cgroup once had the daemon look at all of it, four times a second.
    #[test]
    fn a_look_has_bounds_and_a_vain_one_is_seldom() {
        let folder = tempfile::tempdir().unwrap();
        let (proc, cgroup) = (folder.path().join("proc"), folder.path().join("vm"));
        for number in 0..200 {
            let inner = cgroup.join(number.to_string());
            fs::create_dir_all(&inner).unwrap();
            let ids: String = (0..50).map(|id| format!("{}\n", 1_000 + number * 50 + id)).collect();
            fs::write(inner.join("cgroup.threads"), ids).unwrap();
        }
        assert_eq!(folders(&cgroup, 64).len(), 64);
        assert_eq!(threads(&cgroup, 300, 1_024).len(), 1_024);
        for tid in 1_000..1_100 {
            name(&proc, tid, &format!("vcpu{}", tid - 1_000));
        }
        fs::write(
            cgroup.join("cgroup.threads"),
            (1_000..1_100).map(|id| format!("{id}\n")).collect::<String>(),
        )
        .unwrap();
        let mut scan = ThreadScan::new(&proc);
        assert_eq!(scan.vcpus(&cgroup, 2).len(), 2 + ThreadScan::SPARE_MAX);

        let empty = folder.path().join("empty");
        fs::create_dir(&empty).unwrap();
        let looks = (0..1_600).filter(|_| scan.look(&empty, 2, true).is_some()).count();
        assert!((400..=410).contains(&looks), "{looks}");
    }
}
