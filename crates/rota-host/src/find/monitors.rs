//! Which virtual machines run, by the processes of their monitors.
//!
//! A command line says whatever its process likes. So a process is a monitor only if what the kernel says of it agrees:
//! whose it is, which program it executes, in which namespace it is, and whose its cgroup is.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::RangeInclusive;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::unistd::User;
use rota_model::Cgroup;

use super::context::{CommandLine, Context, shares_ids};
use super::vm::{monitor, vm_of_command};

/// A monitor (`qemu`, `firecracker`, `cloud-hypervisor`) and a VM's name.
pub type Key = (String, String);

/// Whose processes may be monitors.
#[derive(Clone, Debug, Default)]
pub struct Trust {
    known: BTreeSet<u32>,
    named: Vec<RangeInclusive<u32>>,
}

/// Under which libvirt runs QEMU.
const KNOWN_USERS: [&str; 2] = ["libvirt-qemu", "qemu"];

impl Trust {
    /// Root, the users under which libvirt runs QEMU, and the users that the operator names. The latter's processes
    /// may be in a container.
    pub fn new(named: Vec<RangeInclusive<u32>>) -> Trust {
        let ids = KNOWN_USERS.iter().filter_map(|name| Some(User::from_name(name).ok()??.uid.as_raw()));
        Trust { known: ids.chain([0]).collect(), named }
    }

    fn has(&self, user: u32, is_inside: bool) -> bool {
        (self.known.contains(&user) && !is_inside) || self.named.iter().any(|users| users.contains(&user))
    }

    fn may_have(&self, user: u32) -> bool {
        self.has(user, false)
    }
}

/// Why a process that says that it is a VM is not believed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stranger {
    /// It is this user's.
    User(u32),
    /// It is in a container.
    Inside,
    /// It executes another program.
    Program(PathBuf),
    /// Its cgroup is not the host's own.
    Cgroup(PathBuf),
}

impl fmt::Display for Stranger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Stranger::User(user) => {
                write!(f, "it is user {user}'s; if it is meant, start Rota with --vm-users {user}")
            }
            Stranger::Inside => {
                write!(f, "it is in a container, as root; if it is meant, match the container")
            }
            Stranger::Program(program) => write!(f, "it executes {}", program.display()),
            Stranger::Cgroup(path) => {
                write!(f, "its cgroup {} is a user's; if it is meant, match that cgroup", path.display())
            }
        }
    }
}

/// The virtual machines that run, and what only says so.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Vms {
    /// In which cgroups each one's monitors are. The path of one in the root cgroup is empty.
    pub found: BTreeMap<Key, Vec<Cgroup>>,
    /// The vsock context id of the VM in each cgroup, by the cgroup's id; none where two monitors have one each.
    pub contexts: BTreeMap<u64, Option<Context>>,
    /// One for each name.
    pub strangers: BTreeMap<Key, Stranger>,
}

impl Vms {
    fn add(&mut self, key: Key, cgroup: Cgroup, context: Option<Context>) {
        match (context, self.contexts.entry(cgroup.id)) {
            (Some(context), Entry::Vacant(free)) => _ = free.insert(Some(context)),
            (Some(_), Entry::Occupied(mut taken)) => _ = taken.insert(None),
            (None, _) => {}
        }
        let cgroups = self.found.entry(key).or_default();
        if !cgroups.contains(&cgroup) {
            cgroups.push(cgroup);
        }
    }
}

/// So many processes of users that cannot be monitors are looked at.
const STRANGERS_MAX: u32 = 4096;

/// Every running VM that `is_wanted`, in the order of their monitors' process ids.
///
/// libvirt spreads a VM's threads over *threaded* cgroups below one domain; the domain is the tenant. `owner` is whose
/// the root of cgroups is. Processes of users that cannot be monitors are passed over but for `with_strangers`.
pub fn running_vms(
    proc: &Path,
    root: &Path,
    owner: u32,
    trust: &Trust,
    with_strangers: bool,
    is_wanted: impl Fn(&Key) -> bool,
) -> Vms {
    let mut vms = Vms::default();
    let mut pids: Vec<i32> = proc
        .read_dir()
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().to_str().and_then(|name| name.parse().ok()))
        .collect();
    pids.sort_unstable();
    let mut strangers = if with_strangers { STRANGERS_MAX } else { 0 };
    for pid in pids {
        let process = proc.join(pid.to_string());
        // One system call each for most of what runs. Whoever hides from debuggers seems to be root's, and is read.
        let Ok(status) = process.metadata() else { continue };
        if status.uid() != 0 && !trust.may_have(status.uid()) {
            if strangers == 0 {
                continue;
            }
            strangers -= 1;
        }
        let Some((key, context)) = command_of(&process).filter(|(key, _)| is_wanted(key)) else { continue };
        let Some(cgroup) = domain_of(&process, root) else { continue };
        match stranger(&process, &key.0, &root.join(&cgroup.path), owner, trust) {
            None => vms.add(key, cgroup, context.filter(|_| shares_ids(proc, &process))),
            Some(reason) => _ = vms.strangers.entry(key).or_insert(reason),
        }
    }
    vms
}

/// Why a process is not believed; nothing if it is.
fn stranger(process: &Path, vmm: &str, cgroup: &Path, owner: u32, trust: &Trust) -> Option<Stranger> {
    let status = std::fs::read_to_string(process.join("status")).unwrap_or_default();
    let words = |key: &str| status.lines().find_map(|line| line.strip_prefix(key)).unwrap_or_default();
    let ids: Vec<u32> = words("Uid:").split_whitespace().filter_map(|id| id.parse().ok()).collect();
    // One number in each namespace of process ids: a process of the host itself has one.
    let is_inside = words("NSpid:").split_whitespace().count() > 1;
    let untrusted = ids.iter().find(|id| !trust.has(**id, is_inside));
    if let Some(&user) = untrusted.or(ids.is_empty().then_some(&u32::MAX)) {
        return Some(if trust.may_have(user) { Stranger::Inside } else { Stranger::User(user) });
    }
    let program = process.join("exe").read_link().unwrap_or_default();
    let name = program.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    if monitor(name.trim_end_matches(" (deleted)")) != Some(vmm) {
        return Some(Stranger::Program(program));
    }
    let is_hosts = cgroup.metadata().is_ok_and(|status| status.uid() == owner);
    (!is_hosts).then(|| Stranger::Cgroup(cgroup.to_owned()))
}

/// The domain cgroup that a process belongs to.
fn domain_of(process: &Path, root: &Path) -> Option<Cgroup> {
    let cgroups = std::fs::read_to_string(process.join("cgroup")).ok()?;
    let path = cgroups.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let mut path = PathBuf::from(path);
    let threaded = |path: &Path| {
        std::fs::read_to_string(root.join(path).join("cgroup.type"))
            .is_ok_and(|kind| kind.trim() == "threaded")
    };
    while threaded(&path) && path.pop() {}
    let id = root.join(&path).metadata().ok()?.ino();
    Some(Cgroup { path, id })
}

fn command_of(process: &Path) -> Option<(Key, Option<Context>)> {
    let process = CommandLine::open(process)?;
    let (vmm, name) = vm_of_command(&process.arguments())?;
    Some(((vmm.to_owned(), name), Context::of(process)))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{chown, symlink};

    use super::*;

    struct Fake {
        folder: tempfile::TempDir,
        trust: Trust,
    }

    impl Fake {
        fn new() -> Fake {
            let folder = tempfile::tempdir().unwrap();
            fs::create_dir(folder.path().join("cgroup")).unwrap();
            Fake { folder, trust: Trust { known: BTreeSet::from([0]), named: vec![500..=599] } }
        }

        fn process(&self, pid: i32, line: &str, cgroup: &str, status: &str, program: &str) {
            let folder = self.folder.path().join("proc").join(pid.to_string());
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("cmdline"), line.replace(' ', "\0")).unwrap();
            fs::write(folder.join("cgroup"), format!("1:name=systemd:/x\n0::/{cgroup}\n")).unwrap();
            fs::write(folder.join("status"), status).unwrap();
            symlink(program, folder.join("exe")).unwrap();
            fs::create_dir_all(self.root().join(cgroup)).unwrap();
        }

        fn root(&self) -> PathBuf {
            self.folder.path().join("cgroup")
        }

        fn vms(&self) -> Vms {
            let owner = self.root().metadata().unwrap().uid();
            running_vms(&self.folder.path().join("proc"), &self.root(), owner, &self.trust, true, |_| true)
        }

        fn paths(&self, name: &str) -> Vec<PathBuf> {
            let found = self.vms().found.remove(&key(name));
            found.into_iter().flatten().map(|cgroup| cgroup.path).collect()
        }
    }

    fn key(name: &str) -> Key {
        ("qemu".to_owned(), name.to_owned())
    }

    const ROOT: &str = "Uid:\t0\t0\t0\t0\nNSpid:\t7\n";
    const QEMU: &str = "/usr/bin/qemu-system-x86_64";

    #[test]
    fn a_vm_is_the_domain_above_its_threaded_cgroups() {
        let fake = Fake::new();
        let emulator = "machine.slice/vm/emulator";
        fake.process(1, "/sbin/init", "init", ROOT, "/sbin/init");
        fake.process(20, "qemu-kvm -name web-0", emulator, ROOT, "/usr/bin/qemu-kvm (deleted)");
        fake.process(21, "qemu-kvm -name rootless", "", ROOT, QEMU);
        fs::write(fake.root().join(emulator).join("cgroup.type"), "threaded\n").unwrap();
        fs::write(fake.root().join("machine.slice/vm/cgroup.type"), "domain threaded\n").unwrap();
        assert_eq!(fake.paths("web-0"), [Path::new("machine.slice/vm")]);
        assert_eq!(fake.paths("rootless"), [Path::new("")]);
        assert_eq!(fake.vms().found.len(), 2);
    }

    /// A process of any user's that was called like a monitor once had the VM's reservation.
    #[test]
    fn who_only_says_that_it_is_a_vm_is_not_believed() {
        let fake = Fake::new();
        let line = |name: &str| format!("qemu-system-x86_64 -name guest={name}");
        let user = |id: u32| format!("Uid:\t{id}\t{id}\t{id}\t{id}\nNSpid:\t7\n");
        let cases = [
            ("user", user(1_000), QEMU, Some(Stranger::User(1_000))),
            ("setuid", "Uid:\t1000\t0\t0\t0\nNSpid:\t7\n".into(), QEMU, Some(Stranger::User(1_000))),
            ("python", ROOT.into(), "/usr/bin/python3", Some(Stranger::Program("/usr/bin/python3".into()))),
            (
                "kin",
                ROOT.into(),
                "/usr/bin/firecracker",
                Some(Stranger::Program("/usr/bin/firecracker".into())),
            ),
            ("container", "Uid:\t0\t0\t0\t0\nNSpid:\t7\t1\n".into(), QEMU, Some(Stranger::Inside)),
            ("unknown", String::new(), QEMU, Some(Stranger::User(u32::MAX))),
            ("named", "Uid:\t500\t500\t500\t500\nNSpid:\t7\t1\n".into(), QEMU, None),
            ("root", ROOT.into(), QEMU, None),
        ];
        for (pid, (name, status, program, _)) in (30..).zip(&cases) {
            fake.process(pid, &line(name), &format!("machine.slice/{name}"), status, program);
        }
        let vms = fake.vms();
        for (name, _, _, stranger) in cases {
            assert_eq!(vms.strangers.get(&key(name)), stranger.as_ref(), "{name}");
            assert_eq!(vms.found.contains_key(&key(name)), stranger.is_none(), "{name}");
        }
    }

    #[test]
    fn a_vm_in_a_users_cgroup_is_not_believed() {
        let fake = Fake::new();
        fake.process(20, "qemu-kvm -name web", "user", ROOT, QEMU);
        if chown(fake.root().join("user"), Some(1_000), None).is_err() {
            println!("SKIPPED: a_vm_in_a_users_cgroup_is_not_believed: only root gives a directory away");
            return;
        }
        assert_eq!(fake.vms().strangers[&key("web")], Stranger::Cgroup(fake.root().join("user")));
    }

    #[test]
    fn all_monitors_of_one_name_are_told() {
        let fake = Fake::new();
        fake.process(20, "qemu-kvm -name web", "b", ROOT, QEMU);
        fake.process(21, "qemu-kvm -name web", "a", ROOT, QEMU);
        fake.process(22, "qemu-kvm -name web", "a", ROOT, QEMU);
        assert_eq!(fake.paths("web"), [Path::new("b"), Path::new("a")]);
    }

    #[test]
    fn a_context_id_is_known_while_its_monitor_runs() {
        let fake = Fake::new();
        let line =
            |name: &str, id: u32| format!("qemu-kvm -name {name} -device vhost-vsock-pci,guest-cid={id}");
        fake.process(20, &line("web", 3), "web", ROOT, QEMU);
        fake.process(21, &line("db", 4), "db", ROOT, QEMU);
        fake.process(22, &line("db-2", 5), "db", ROOT, QEMU);
        fake.process(23, &line("liar", 6), "liar", ROOT, "/usr/bin/python3");
        let id = |name: &str| fake.root().join(name).metadata().unwrap().ino();
        let contexts = fake.vms().contexts;
        assert_eq!(contexts.keys().copied().collect::<BTreeSet<_>>(), BTreeSet::from([id("web"), id("db")]));
        assert_eq!(contexts[&id("db")], None, "two monitors, and nobody can say which is the tenant");
        let web = contexts[&id("web")].as_ref().unwrap();
        assert!(web.id() == 3 && web.is_there());
        fs::write(fake.folder.path().join("proc/20/cmdline"), "").unwrap();
        assert!(!web.is_there(), "it has ended");
    }

    /// Two VMs may have one id, each in a network namespace of its own.
    #[test]
    fn a_context_id_of_another_namespace_is_not_this_ones() {
        let fake = Fake::new();
        let proc = fake.folder.path().join("proc");
        for (pid, name, namespace) in [(20, "web", "net:[1]"), (21, "db", "net:[2]")] {
            fake.process(
                pid,
                &format!("qemu-kvm -name {name} -device vhost-vsock-pci,guest-cid={pid}"),
                name,
                ROOT,
                QEMU,
            );
            fs::create_dir(proc.join(format!("{pid}/ns"))).unwrap();
            symlink(namespace, proc.join(format!("{pid}/ns/net"))).unwrap();
        }
        fs::create_dir_all(proc.join("self/ns")).unwrap();
        symlink("net:[1]", proc.join("self/ns/net")).unwrap();
        let ids = || fake.vms().contexts.values().flatten().map(Context::id).collect::<BTreeSet<_>>();
        assert_eq!(ids(), BTreeSet::from([20, 21]), "this kernel has one space of ids");
        fs::create_dir_all(proc.join("sys/net/vsock")).unwrap();
        fs::write(proc.join("sys/net/vsock/ns_mode"), "global\n").unwrap();
        assert_eq!(ids(), BTreeSet::from([20]));
    }
}
