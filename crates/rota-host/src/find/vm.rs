//! Virtual machines as the host sees them: a monitor's process by its command line, and vCPU threads by their names.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use rota_model::Match;

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

/// The monitor (`qemu`, `firecracker`, `cloud-hypervisor`) and the VM's name, if this command line is a monitor's.
///
/// The name is QEMU's `-name` (its `guest=` part) and Firecracker's `--id`. Kata starts Firecracker without one, in a
/// folder as the jailer's, which has the id. Cloud Hypervisor knows no names: there it comes from its `--api-socket`,
/// see [`Match::cloud_hypervisor_name`].
pub fn vm_of_command(arguments: &[&str]) -> Option<(&'static str, String)> {
    let program = Path::new(arguments.first()?).file_name()?.to_str()?;
    if program.starts_with("qemu-system") || program == "qemu-kvm" || program == "kvm" {
        let value = option(arguments, &["-name", "--name"])?;
        Some(("qemu", qemu_guest(value)?))
    } else if program.starts_with("firecracker") {
        let id = option(arguments, &["--id"]).or_else(|| jailed_id(option(arguments, &["--api-sock"])?));
        Some(("firecracker", id?.to_owned()))
    } else if program.starts_with("cloud-hypervisor") {
        let value = option(arguments, &["--api-socket"])?;
        let socket = value.split(',').next()?;
        let socket = socket.strip_prefix("path=").unwrap_or(socket);
        Some(("cloud-hypervisor", Match::cloud_hypervisor_name(Path::new(socket))?.to_owned()))
    } else {
        None
    }
}

/// The id in a path of the jailer's: `/run/vc/firecracker/ID/root/run/firecracker.socket`.
fn jailed_id(socket: &str) -> Option<&str> {
    let (folder, _) = socket.split_once("/root/")?;
    let (base, id) = folder.rsplit_once('/')?;
    base.ends_with("/firecracker").then_some(id)
}

/// The value of an option written `--option value` or `--option=value`.
fn option<'a>(arguments: &[&'a str], names: &[&str]) -> Option<&'a str> {
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        if names.contains(argument) {
            return arguments.next().copied();
        }
        let (name, value) = argument.split_once('=').unwrap_or((argument, ""));
        if names.contains(&name) {
            return Some(value);
        }
    }
    None
}

/// QEMU's `-name` value is `NAME` or `guest=NAME`, then other settings, separated by commas; `,,` stands for a comma.
fn qemu_guest(value: &str) -> Option<String> {
    let value = value.replace(",,", "\0");
    let name = value.split(',').enumerate().find_map(|(place, part)| {
        part.strip_prefix("guest=").or_else(|| (place == 0 && !part.contains('=')).then_some(part))
    })?;
    Some(name.replace('\0', ","))
}

/// Looks through the threads of cgroups for vCPU threads, again and again, reading the name of a long-lived thread no
/// more than [`ThreadScan::LOOKS`] times.
#[derive(Debug)]
pub struct ThreadScan {
    proc: PathBuf,
    /// How often each thread's name was read and was no vCPU's, by cgroup path.
    others: BTreeMap<PathBuf, BTreeMap<i32, u32>>,
}

impl ThreadScan {
    /// A thread gets its name shortly after its birth, so a name is looked at more than once.
    const LOOKS: u32 = 3;

    /// Reads thread names below `proc`, which is `/proc` but in tests.
    pub fn new(proc: impl Into<PathBuf>) -> ThreadScan {
        ThreadScan { proc: proc.into(), others: BTreeMap::new() }
    }

    /// The vCPU threads in `cgroup` and everything below it: vCPU number to thread id.
    ///
    /// Threads and cgroups that go away while they are looked at are passed over: they will not be missed.
    pub fn vcpus(&mut self, cgroup: &Path) -> BTreeMap<u32, i32> {
        let mut threads = BTreeSet::new();
        collect_threads(cgroup, &mut threads);
        let others = self.others.entry(cgroup.to_owned()).or_default();
        others.retain(|tid, _| threads.contains(tid));

        let mut vcpus = BTreeMap::new();
        for tid in threads {
            let looks = others.get(&tid).copied().unwrap_or(0);
            if looks >= Self::LOOKS {
                continue;
            }
            let Ok(comm) = std::fs::read_to_string(self.proc.join(tid.to_string()).join("comm")) else {
                continue;
            };
            match vcpu_index(comm.trim_end_matches('\n')) {
                // Two monitors in one cgroup: the first vCPU 0 is it; the second VM needs a cgroup of its own.
                Some(index) => {
                    vcpus.entry(index).or_insert(tid);
                }
                None => {
                    others.insert(tid, looks + 1);
                }
            }
        }
        vcpus
    }

    /// Forgets a cgroup that is gone.
    pub fn forget(&mut self, cgroup: &Path) {
        self.others.remove(cgroup);
    }
}

fn collect_threads(cgroup: &Path, threads: &mut BTreeSet<i32>) {
    if let Ok(list) = std::fs::read_to_string(cgroup.join("cgroup.threads")) {
        threads.extend(list.lines().filter_map(|line| line.parse::<i32>().ok()));
    }
    for child in std::fs::read_dir(cgroup).into_iter().flatten().flatten() {
        if child.file_type().is_ok_and(|kind| kind.is_dir()) {
            collect_threads(&child.path(), threads);
        }
    }
}

/// Every running VM: monitor and name to its cgroup, relative to the cgroup root.
///
/// libvirt spreads a VM's threads over *threaded* cgroups below one domain; the domain is the tenant. That of a VM in
/// the root cgroup is empty. Of two VMs of one name, the one with the lower process id counts.
pub fn running_vms(proc: &Path, cgroup_root: &Path) -> BTreeMap<(String, String), PathBuf> {
    let entries = std::fs::read_dir(proc).into_iter().flatten().flatten();
    let mut pids: Vec<i32> =
        entries.filter_map(|entry| entry.file_name().to_str().and_then(|name| name.parse().ok())).collect();
    pids.sort_unstable_by(|a, b| b.cmp(a));
    let vm = |pid: i32| {
        let process = proc.join(pid.to_string());
        let (vmm, name) = command_of(&process)?;
        Some(((vmm.to_owned(), name), domain_of(&process, cgroup_root)?))
    };
    pids.into_iter().filter_map(vm).collect()
}

/// The domain cgroup that a process belongs to.
fn domain_of(process: &Path, cgroup_root: &Path) -> Option<PathBuf> {
    let cgroups = std::fs::read_to_string(process.join("cgroup")).ok()?;
    let path = cgroups.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let mut cgroup = PathBuf::from(path);
    let threaded = |cgroup: &Path| {
        std::fs::read_to_string(cgroup_root.join(cgroup).join("cgroup.type"))
            .is_ok_and(|kind| kind.trim() == "threaded")
    };
    while threaded(&cgroup) && cgroup.pop() {}
    Some(cgroup)
}

fn command_of(process: &Path) -> Option<(&'static str, String)> {
    let line = std::fs::read(process.join("cmdline")).ok()?;
    let arguments: Vec<&str> =
        line.split(|&byte| byte == 0).filter_map(|part| std::str::from_utf8(part).ok()).collect();
    vm_of_command(&arguments)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

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

    #[test]
    fn monitors_are_told_by_command_line() {
        let vm = |line: &str| vm_of_command(&line.split(' ').collect::<Vec<_>>());
        let qemu = |name: &str| Some(("qemu", name.to_owned()));
        assert_eq!(vm("/usr/bin/qemu-system-x86_64 -m 1G -name web-0"), qemu("web-0"));
        assert_eq!(vm("qemu-kvm -name guest=web-0,debug-threads=on"), qemu("web-0"));
        assert_eq!(vm("qemu-kvm -name debug-threads=on,guest=a,,b"), qemu("a,b"));
        assert_eq!(vm("qemu-system-x86_64 -name debug-threads=on"), None);
        assert_eq!(vm("qemu-system-x86_64 -m 1G"), None);
        assert_eq!(vm("/firecracker --id=f1 --api-sock /a"), Some(("firecracker", "f1".to_owned())));
        assert_eq!(vm("firecracker --no-api --id f1"), Some(("firecracker", "f1".to_owned())));
        let cloud = |name: &str| Some(("cloud-hypervisor", name.to_owned()));
        assert_eq!(vm("cloud-hypervisor --api-socket /run/vm1.sock"), cloud("vm1"));
        assert_eq!(vm("cloud-hypervisor --api-socket path=/run/vm1.sock,fd=3"), cloud("vm1"));
        // Kata's sandboxes were all one and the same VM, or none.
        assert_eq!(vm("cloud-hypervisor --api-socket /run/vc/vm/4f1c2a/clh-api.sock"), cloud("4f1c2a"));
        assert_eq!(vm("cloud-hypervisor --api-socket /run/kata/4f1c2b/ch-api.sock -v"), cloud("4f1c2b"));
        let kata =
            "firecracker --api-sock /run/vc/firecracker/4f1c2c/root/run/firecracker.socket --config-file /a";
        assert_eq!(vm(kata), Some(("firecracker", "4f1c2c".to_owned())));
        assert_eq!(vm("firecracker --api-sock /root/run/firecracker.socket"), None);
        assert_eq!(vm("qemu-system-x86_64 -name sandbox-4f1c2d,debug-threads=on"), qemu("sandbox-4f1c2d"));
        assert_eq!(vm("vim -name web-0"), None);
        assert_eq!(vm_of_command(&[]), None);
    }

    fn process(proc: &Path, tid: i32, comm: &str, cmdline: &str, cgroup: &str) {
        let folder = proc.join(tid.to_string());
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("comm"), format!("{comm}\n")).unwrap();
        fs::write(folder.join("cmdline"), cmdline.replace(' ', "\0")).unwrap();
        fs::write(folder.join("cgroup"), format!("1:name=systemd:/x\n0::/{cgroup}\n")).unwrap();
    }

    #[test]
    fn vcpus_are_found_in_nested_cgroups_and_after_a_late_naming() {
        let folder = tempfile::tempdir().unwrap();
        let (proc, cgroup) = (folder.path().join("proc"), folder.path().join("vm"));
        fs::create_dir_all(cgroup.join("inner")).unwrap();
        fs::write(cgroup.join("cgroup.threads"), "10\n11\n99\n").unwrap();
        fs::write(cgroup.join("inner/cgroup.threads"), "12\n").unwrap();
        process(&proc, 10, "qemu-system-x86", "", "");
        process(&proc, 11, "qemu-system-x86", "", "");
        process(&proc, 12, "CPU 1/KVM", "", "");

        let mut scan = ThreadScan::new(&proc);
        assert_eq!(scan.vcpus(&cgroup), BTreeMap::from([(1, 12)]));
        process(&proc, 11, "CPU 0/KVM", "", "");
        assert_eq!(scan.vcpus(&cgroup), BTreeMap::from([(0, 11), (1, 12)]));
        // Thread 10 has been looked at often enough: what it calls itself now changes nothing.
        scan.vcpus(&cgroup);
        process(&proc, 10, "CPU 2/KVM", "", "");
        assert_eq!(scan.vcpus(&cgroup), BTreeMap::from([(0, 11), (1, 12)]));
    }

    #[test]
    fn a_vm_is_the_domain_above_its_threaded_cgroups() {
        let folder = tempfile::tempdir().unwrap();
        let (proc, root) = (folder.path().join("proc"), folder.path().join("cgroup"));
        fs::create_dir_all(root.join("machine.slice/vm/emulator")).unwrap();
        fs::write(root.join("machine.slice/vm/emulator/cgroup.type"), "threaded\n").unwrap();
        fs::write(root.join("machine.slice/vm/cgroup.type"), "domain threaded\n").unwrap();
        process(&proc, 1, "systemd", "/sbin/init", "");
        process(&proc, 20, "qemu", "qemu-kvm -name web-0", "machine.slice/vm/emulator");
        process(&proc, 21, "qemu", "qemu-kvm -name rootless", "");

        let key = |name: &str| ("qemu".to_owned(), name.to_owned());
        let expected = [(key("web-0"), PathBuf::from("machine.slice/vm")), (key("rootless"), PathBuf::new())];
        assert_eq!(running_vms(&proc, &root), BTreeMap::from(expected));
    }
}
