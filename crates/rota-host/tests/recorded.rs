//! Trees of cgroups as real hosts have them, and what an operator writes to have a tenant found in them.
//!
//! Each file in `hosts/` is one host, put together from the sources that it names: the tree with each cgroup's
//! threads, the processes, and tenants. Of each tenant it says where it is found, which processes are there, and which
//! threads are its vCPUs.

#![allow(clippy::unwrap_used)] // a failed helper is a failed test

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use rota_host::{Discovery, Sighting, Trust};
use rota_model::config::{Source, parse};
use rota_model::{Model, Topology};
use serde::Deserialize;

/// One file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Host {
    /// Where the layout is described.
    #[serde(rename = "source")]
    _source: String,
    /// What `rota up --vm-users` is given.
    vm_users: Option<u32>,
    /// One cgroup a line, two spaces further in than the one that it is in; `- TID NAME` is a thread in it.
    cgroups: String,
    #[serde(default)]
    process: Vec<Process>,
    tenant: Vec<Tenant>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Process {
    id: i32,
    #[serde(default)]
    user: u32,
    /// In how many namespaces of process ids it has a number.
    #[serde(default = "one")]
    namespaces: usize,
    program: String,
    command: String,
    /// It has a virtual machine of KVM's.
    #[serde(default)]
    kvm: bool,
    /// All that it has, if it has more than one.
    #[serde(default)]
    threads: Vec<i32>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Tenant {
    /// The `match` as it stands in the configuration.
    written: String,
    #[serde(default = "one")]
    vcpus: usize,
    /// The end of the path of the cgroup that is found; none is if absent.
    found: Option<PathBuf>,
    #[serde(default)]
    processes: Vec<i32>,
    #[serde(default)]
    vcpu_threads: Vec<i32>,
    /// A part of what the log says; it says nothing if absent.
    said: Option<String>,
}

fn one() -> usize {
    1
}

/// A host's files in a folder.
struct Fake {
    folder: tempfile::TempDir,
    /// The cgroup of each thread.
    threads: BTreeMap<i32, PathBuf>,
}

impl Fake {
    fn new(host: &Host) -> Fake {
        let mut fake = Fake { folder: tempfile::tempdir().unwrap(), threads: BTreeMap::new() };
        fs::create_dir_all(fake.proc()).unwrap();
        fake.make_cgroups(&host.cgroups);
        host.process.iter().for_each(|process| fake.make_process(process));
        fake
    }

    fn root(&self) -> PathBuf {
        self.folder.path().join("cgroup")
    }

    fn proc(&self) -> PathBuf {
        self.folder.path().join("proc")
    }

    fn make_cgroups(&mut self, tree: &str) {
        let mut path = PathBuf::new();
        for line in tree.lines() {
            let text = line.trim_start();
            let level = (line.len() - text.len()) / 2;
            path = path.iter().take(level).collect();
            if let Some(thread) = text.strip_prefix("- ") {
                let (tid, name) = thread.split_once(' ').unwrap();
                self.threads.insert(tid.parse().unwrap(), path.clone());
                append(&self.root().join(&path).join("cgroup.threads"), tid);
                write(&self.proc().join(tid).join("comm"), &format!("{name}\n"));
                continue;
            }
            let (name, kind) = text.split_once(" (").map_or((text, "domain"), |(name, _)| (name, "threaded"));
            path.push(name);
            write(&self.root().join(&path).join("cgroup.type"), kind);
        }
    }

    fn make_process(&self, process: &Process) {
        let folder = self.proc().join(process.id.to_string());
        let cgroup = &self.threads[&process.id];
        append(&self.root().join(cgroup).join("cgroup.procs"), &process.id.to_string());
        write(&folder.join("cmdline"), &process.command.replace(' ', "\0"));
        write(&folder.join("cgroup"), &format!("0::/{}\n", cgroup.display()));
        let Process { user, namespaces, .. } = process;
        let numbers = "\t7".repeat(*namespaces);
        write(&folder.join("status"), &format!("Uid:{}\nNSpid:{numbers}\n", format!("\t{user}").repeat(4)));
        symlink(&process.program, folder.join("exe")).unwrap();
        fs::create_dir(folder.join("fd")).unwrap();
        if process.kvm {
            symlink("anon_inode:kvm-vm", folder.join("fd/12")).unwrap();
        }
    }

    /// Those that have a thread in `cgroup` or below it.
    fn processes_in(&self, cgroup: &Path, host: &Host) -> Vec<i32> {
        let is_in = |tid: &i32| self.threads[tid].starts_with(cgroup);
        let of = |process: &&Process| is_in(&process.id) || process.threads.iter().any(is_in);
        host.process.iter().filter(of).map(|process| process.id).collect()
    }
}

fn write(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

fn append(path: &Path, line: &str) {
    let before = fs::read_to_string(path).unwrap_or_default();
    write(path, &format!("{before}{line}\n"));
}

/// The configuration with this one tenant.
fn model(tenant: &Tenant) -> Model {
    let text = format!(
        "[host]\ncpus = \"0-7\"\n[[tenant]]\nname = \"t\"\nclass = \"shared\"\nvcpus = {}\nmatch = {}\n",
        tenant.vcpus, tenant.written
    );
    let source = Source { path: "rota.toml".to_owned(), text };
    parse(&[source], &Topology::default()).unwrap_or_else(|errors| panic!("{}: {errors}", tenant.written))
}

/// What is wrong with a tenant as it is found.
fn wrong(host: &Host, fake: &Fake, tenant: &Tenant) -> Option<String> {
    let model = model(tenant);
    let trust = Trust::new(host.vm_users.iter().map(|user| *user..=*user).collect());
    let mut discovery = Discovery::open(fake.root(), fake.proc(), trust).unwrap();
    discovery.scan_vms(&model);
    let (sightings, said) = discovery.look(&model);
    let found = sightings.into_iter().find_map(|sighting| match sighting {
        Sighting::Appeared(_, cgroup) => Some(cgroup.path),
        _ => None,
    });
    let is_said = match &tenant.said {
        Some(part) => said.iter().any(|line| line.contains(part)),
        None => said.is_empty(),
    };
    if !is_said {
        return Some(format!("the log says {said:?}"));
    }
    let found = match (found, &tenant.found) {
        (None, None) => return None,
        (Some(found), Some(end)) if found.ends_with(end) => found,
        (found, _) => return Some(format!("found in {found:?}")),
    };
    let processes = fake.processes_in(&found, host);
    if processes != tenant.processes {
        return Some(format!("has processes {processes:?}"));
    }
    let threads = discovery.scan_threads(&model).into_iter().find_map(|sighting| match sighting {
        Sighting::Threads(_, threads) => Some(threads.into_values().collect::<Vec<_>>()),
        _ => None,
    });
    let threads = threads.unwrap_or_default();
    (threads != tenant.vcpu_threads).then(|| format!("has vCPU threads {threads:?}"))
}

#[test]
fn tenants_are_found_where_real_hosts_have_them() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/hosts");
    let mut files: Vec<PathBuf> = folder.read_dir().unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let (mut tenants, mut errors) = (0, String::new());
    for path in files {
        let file = path.file_name().unwrap().to_str().unwrap();
        let text = fs::read_to_string(&path).unwrap();
        let host: Host = toml::from_str(&text).unwrap_or_else(|error| panic!("{file}: {error}"));
        let fake = Fake::new(&host);
        for tenant in &host.tenant {
            tenants += 1;
            if let Some(wrong) = wrong(&host, &fake, tenant) {
                errors += &format!("{file}: {}: {wrong}\n", tenant.written);
            }
        }
    }
    assert!(errors.is_empty() && tenants > 0, "of {tenants} tenants:\n{errors}");
}
