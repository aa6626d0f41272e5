//! `/proc` and cgroups as tenants and users make them.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Component, Path, PathBuf};

use arbitrary::Arbitrary;
use rota_host::{Discovery, Sighting, Trust};
use rota_model::Model;

/// Tenants of each kind that a configuration can name.
const TENANTS: [&str; 6] = [
    "cgroup = \"machine.slice/web\"",
    "cgroup = \"user.slice/a/b\"",
    "vm = \"qemu:web\"",
    "vm = \"firecracker:db\"",
    "unit = \"redis.service\"",
    "container = \"0123456789ab\"",
];

/// Where things are looked for.
const NAMES: [&str; 12] = [
    "machine.slice",
    "web",
    "user.slice",
    "a",
    "b",
    "system.slice",
    "redis.service",
    "docker",
    "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
    "machine-qemu\\x2d1\\x2dweb.scope",
    "kubepods.slice",
    "cgroup.threads",
];

/// Command lines of monitors.
const COMMANDS: [&[u8]; 4] = [
    b"/usr/bin/qemu-system-x86_64\0-name\0guest=web,debug-threads=on\0-device\0vhost-vsock-pci,guest-cid=3\0",
    b"qemu-kvm\0-name\0web\0",
    b"/firecracker\0--id\0db\0",
    b"cloud-hypervisor\0--api-socket\0/run/db.sock\0",
];

/// What is there.
#[derive(Arbitrary, Debug)]
pub struct Machine {
    cgroups: Vec<Cgroup>,
    processes: Vec<Process>,
}

/// A cgroup, and what is in its files. Names beyond those above are the input's.
#[derive(Arbitrary, Debug)]
struct Cgroup {
    path: Vec<Name>,
    threads: Vec<u8>,
    kind: Option<Vec<u8>>,
    is_file: bool,
}

#[derive(Arbitrary, Debug)]
enum Name {
    Known(u8),
    Other(String),
}

#[derive(Arbitrary, Debug)]
struct Process {
    pid: u16,
    command: Result<u8, Vec<u8>>,
    cgroup: Vec<Name>,
    status: Option<Vec<u8>>,
    program: String,
    threads: Vec<(u16, String)>,
}

/// A path of the names; none if it leads out.
fn path(names: &[Name]) -> Option<PathBuf> {
    let name = |name: &Name| match name {
        Name::Known(number) => NAMES[usize::from(*number) % NAMES.len()].to_owned(),
        Name::Other(name) => name.clone(),
    };
    let path: PathBuf = names.iter().take(8).map(name).collect();
    let is_inside = path.components().all(|part| matches!(part, Component::Normal(_)));
    (is_inside && !path.as_os_str().as_encoded_bytes().contains(&0)).then_some(path)
}

impl Machine {
    /// Has tenants discovered on it, twice. What cannot be made here, as too long a name, is left out.
    ///
    /// # Panics
    ///
    /// If a tenant's cgroup is not on the machine, or two tenants have the same one.
    pub fn discover(&self) {
        let folder = tempfile::tempdir_in("/dev/shm").expect("a folder");
        let (root, proc) = (folder.path().join("cgroup"), folder.path().join("proc"));
        for path in [&root, &proc] {
            fs::create_dir(path).expect("a folder");
        }
        self.cgroups.iter().for_each(|cgroup| _ = cgroup.make(&root));
        self.processes.iter().for_each(|process| _ = process.make(&proc));
        let model = model();
        let trust = Trust::new(vec![500..=599]);
        let mut discovery = Discovery::open(root.clone(), proc, trust).expect("the root is there");
        for _ in 0..2 {
            discovery.scan_vms(&model);
            check(&root, &discovery.look(&model).0);
            discovery.scan_threads(&model);
            discovery.contexts();
            discovery.rescan();
        }
    }
}

fn model() -> Model {
    let tenant = |(number, matcher): (usize, &&str)| {
        format!("[[tenant]]\nname = \"t{number}\"\nclass = \"shared\"\nmatch = {{ {matcher} }}\n")
    };
    let text: String = TENANTS.iter().enumerate().map(tenant).collect();
    crate::read(&format!("[host]\ncpus = \"0-3\"\n{text}")).expect("a configuration")
}

fn check(root: &Path, sightings: &[Sighting]) {
    let mut found = BTreeSet::new();
    for sighting in sightings {
        if let Sighting::Appeared(name, cgroup) = sighting {
            assert!(root.join(&cgroup.path).is_dir(), "{name}: {cgroup:?}");
            assert!(found.insert(cgroup.id), "{sightings:?}");
        }
    }
}

impl Cgroup {
    fn make(&self, root: &Path) -> Option<()> {
        let path = root.join(path(&self.path)?);
        if self.is_file {
            return fs::write(path, &self.threads).ok();
        }
        fs::create_dir_all(&path).ok()?;
        for list in ["cgroup.threads", "cgroup.procs"] {
            fs::write(path.join(list), &self.threads).ok()?;
        }
        fs::write(path.join("cgroup.type"), self.kind.as_deref()?).ok()
    }
}

impl Process {
    fn make(&self, proc: &Path) -> Option<()> {
        let folder = proc.join(self.pid.to_string());
        fs::create_dir(&folder).ok()?;
        let command = match &self.command {
            Ok(number) => COMMANDS[usize::from(*number) % COMMANDS.len()],
            Err(other) => other,
        };
        fs::write(folder.join("cmdline"), command).ok()?;
        fs::write(folder.join("cgroup"), format!("0::/{}\n", path(&self.cgroup)?.display())).ok()?;
        let status = self.status.as_deref().unwrap_or(b"Uid:\t0\t0\t0\t0\nNSpid:\t7\n");
        fs::write(folder.join("status"), status).ok()?;
        symlink(&self.program, folder.join("exe")).ok()?;
        for (tid, name) in self.threads.iter().take(16) {
            let thread = folder.join("task").join(tid.to_string());
            fs::create_dir_all(&thread).ok()?;
            fs::write(thread.join("comm"), name).ok()?;
        }
        Some(())
    }
}
