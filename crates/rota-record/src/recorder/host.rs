//! What a host says of itself and of its cgroups.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow};
use nix::sys::utsname::uname;
use rota_host::find::monitors::{Trust, running_vms};
use rota_host::find::threads::ThreadScan;
use rota_host::find::{Here, discover};
use rota_host::topology;
use rota_host::tree::{self, Place, Reach, Tree};
use rota_model::config::{Source, parse};
use rota_model::{CpuSet, Model};

use super::gather::{Gathered, Seen};
use crate::recording::{Class, Host, Limits, Policy, Quota, Recording, Tenant, Thread};

/// What Rota calls itself in the kernel.
const ROTA: &str = "rota";
const SCHED_EXT: &str = "/sys/kernel/sched_ext";
/// The first release with EEVDF.
const EEVDF_SINCE: (u32, u32) = (6, 6);
const PROC: &str = "/proc";

/// The model of this machine without a configuration: no tenants, all by default.
///
/// # Errors
///
/// If the machine does not say what it is like.
pub fn unconfigured() -> Result<Model> {
    let machine = topology::read(Path::new(topology::SYSFS))?;
    parse(&[Source { path: "rota.toml".to_owned(), text: String::new() }], &machine)
        .map_err(|errors| anyhow!(errors))
}

/// Whether Rota schedules this host now.
pub fn is_rota_in_force() -> bool {
    in_force().as_deref() == Some(ROTA)
}

/// The sched_ext scheduler that is in force, by its name, if one is.
fn in_force() -> Option<String> {
    let line = |name: &str| Some(fs::read_to_string(Path::new(SCHED_EXT).join(name)).ok()?.trim().to_owned());
    (line("state")? == "enabled").then(|| line("root/ops").unwrap_or_else(|| "sched_ext".to_owned()))
}

/// Who schedules a host with a kernel of that release, and that sched_ext scheduler if it has one.
fn policy(release: &str, in_force: Option<String>) -> Policy {
    match in_force {
        Some(name) if name == ROTA => return Policy::Rota,
        Some(name) => return Policy::Other(name),
        None => {}
    }
    let mut numbers = release.split(['.', '-']).map_while(|part| part.parse().ok());
    match (numbers.next(), numbers.next()) {
        (Some(major), Some(minor)) if (major, minor) < EEVDF_SINCE => Policy::Cfs,
        _ => Policy::Eevdf,
    }
}

/// The host's tenants, and the cgroups there were while it was recorded.
pub struct Tenants {
    model: Model,
    configured: bool,
    host: Host,
    tree: Tree,
    /// What each cgroup said when it was seen first, by id; without the leading slash.
    cgroups: HashMap<u64, (PathBuf, Place, Limits)>,
}

impl Tenants {
    /// Looks at the host.
    pub fn find(model: &Model, configured: bool) -> Result<Tenants> {
        let tree = Tree::open(tree::mount_point()?, Reach::All)?;
        let (host, model) = (Host::from(&model.host), model.clone());
        let mut tenants = Tenants { model, configured, host, tree, cgroups: HashMap::new() };
        tenants.remember();
        Ok(tenants)
    }

    pub fn host(&self) -> &Host {
        &self.host
    }

    /// Takes note of cgroups that have come.
    pub fn refresh(&mut self) {
        if self.tree.refresh() {
            self.remember();
        }
    }

    fn remember(&mut self) {
        let root = self.tree.root();
        for (path, place) in self.tree.cgroups() {
            let seen = self.cgroups.entry(place.id);
            seen.or_insert_with(|| (path.clone(), *place, limits(&root.join(path))));
        }
    }

    /// Puts all together.
    pub fn recording(
        mut self,
        gathered: Gathered,
        began_ns: u64,
        duration_ns: u64,
        lost: u64,
    ) -> Result<Recording> {
        // Also those that could not be watched.
        self.tree.rescan();
        self.remember();
        let kernel =
            uname().context("asking the kernel for its release")?.release().to_string_lossy().into_owned();
        let (seen, events) = gathered.finish(began_ns, duration_ns);
        let (tenants, paths) =
            if self.configured { self.configured_tenants() } else { self.found_tenants(&seen) };
        let vcpus = self.vcpus(&tenants, &paths);
        let all: CpuSet = self.host.cpus.iter().map(|place| place.cpu).collect();
        let thread = |seen: Seen| {
            let tenant = Some(seen.cgroup).filter(|_| !seen.is_kernel).and_then(|id| {
                let path = &self.cgroups.get(&id)?.0;
                // The one that is nearest to it, should one tenant be inside of another.
                let inside = paths.iter().filter(|(tenant, _)| path.starts_with(tenant));
                inside.max_by_key(|(tenant, _)| tenant.components().count()).map(|(_, place)| *place)
            });
            let cpus = seen.cpus.map(|cpus| cpus.intersection(&all));
            Thread {
                tid: seen.tid,
                name: seen.name,
                tenant,
                vcpu: tenant.and_then(|_| vcpus.get(&seen.tid).copied()),
                is_kernel: seen.is_kernel,
                rank: seen.rank,
                cpus: cpus.filter(|cpus| !cpus.is_empty() && *cpus != all),
            }
        };
        Ok(Recording {
            policy: policy(&kernel, in_force()),
            kernel,
            began_ns,
            duration_ns,
            lost,
            threads: seen.into_iter().map(thread).collect(),
            host: self.host,
            tenants,
            events,
        })
    }

    /// The configuration's tenants, and whose cgroup is where.
    fn configured_tenants(&self) -> (Vec<Tenant>, BTreeMap<PathBuf, u32>) {
        let (root, owner, trust) = (self.tree.root(), self.tree.owner(), Trust::new(Vec::new()));
        let vms = running_vms(Path::new(PROC), root, owner, &trust, false, |_| true);
        let cgroups = self.cgroups.values().map(|(path, place, _)| (path.clone(), *place)).collect();
        let here = Here { cgroups: &cgroups, users_units: self.tree.users_units(), vms: &vms };
        let ours = self.model.tenants.iter().filter(|tenant| tenant.name != rota_model::Tenant::SYSTEM);
        let matchers =
            ours.clone().filter_map(|tenant| Some((tenant.name.as_str(), tenant.matcher.as_ref()?)));
        let found = discover(here, &BTreeMap::new(), matchers).found;
        let (mut tenants, mut paths) = (Vec::new(), BTreeMap::new());
        for tenant in ours {
            let place = found.get(&tenant.name);
            let limits = place
                .and_then(|place| self.cgroups.get(&place.id))
                .map_or(UNLIMITED, |(_, _, limits)| *limits);
            let path = place.map_or_else(PathBuf::new, |place| place.path.clone());
            if place.is_some() {
                paths.insert(path.clone(), tenants.len() as u32);
            }
            tenants.push(Tenant::new(tenant, path.display().to_string(), limits));
        }
        (tenants, paths)
    }

    /// Each cgroup with a thread of user space is a tenant.
    fn found_tenants(&self, seen: &[Seen]) -> (Vec<Tenant>, BTreeMap<PathBuf, u32>) {
        let used = seen.iter().filter(|thread| !thread.is_kernel);
        let used: BTreeMap<&Path, Limits> = used
            .filter_map(|thread| self.cgroups.get(&thread.cgroup))
            .map(|(path, _, limits)| (path.as_path(), *limits))
            .collect();
        let tenant = |(path, limits): (&&Path, &Limits)| Tenant {
            name: path.display().to_string(),
            cgroup: path.display().to_string(),
            class: Class::Shared { weight: limits.weight },
            vcpus: self.host.cpus.len() as u32,
            is_vm: false,
            affinity: None,
            exclusive_cores: false,
            limits: *limits,
        };
        let paths = used.keys().zip(0..).map(|(path, place)| (path.to_path_buf(), place)).collect();
        (used.iter().map(tenant).collect(), paths)
    }

    /// By thread id, which of its VM's vCPUs it is.
    fn vcpus(&self, tenants: &[Tenant], paths: &BTreeMap<PathBuf, u32>) -> HashMap<i32, u32> {
        let mut scan = ThreadScan::new(PROC);
        let mut vcpus = HashMap::new();
        for (path, tenant) in paths {
            let Tenant { is_vm, vcpus: count, .. } = tenants[*tenant as usize];
            if is_vm {
                let found = scan.vcpus(&self.tree.root().join(path), count);
                vcpus.extend(
                    found.into_iter().filter(|(vcpu, _)| *vcpu < count).map(|(vcpu, tid)| (tid, vcpu)),
                );
            }
        }
        vcpus
    }
}

const UNLIMITED: Limits = Limits { weight: 100, quota: None };

/// What a cgroup's files say; where the cpu controller is off, what the kernel does then.
fn limits(path: &Path) -> Limits {
    let line = |name: &str| fs::read_to_string(path.join(name)).ok();
    let weight = line("cpu.weight").and_then(|text| text.trim().parse().ok());
    let quota = line("cpu.max").and_then(|text| quota(&text));
    Limits { weight: weight.unwrap_or(UNLIMITED.weight), quota }
}

/// `cpu.max`: quota and period in us, or `max` and the period.
fn quota(text: &str) -> Option<Quota> {
    let (quota, period) = text.trim().split_once(' ')?;
    let ns = |us: &str| us.parse::<u64>().ok()?.checked_mul(1_000);
    Some(Quota { quota_ns: ns(quota)?, period_ns: ns(period)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotas_are_read_as_the_kernel_writes_them() {
        assert_eq!(quota("max 100000\n"), None);
        assert_eq!(quota("20000 100000\n"), Some(Quota { quota_ns: 20_000_000, period_ns: 100_000_000 }));
        assert_eq!(quota(""), None);
    }

    #[test]
    fn kernels_before_eevdf_had_cfs_and_sched_ext_goes_before_both() {
        let kernel = |release| policy(release, None);
        assert_eq!(kernel("6.5.13-cloud"), Policy::Cfs);
        assert_eq!(kernel("6.6.1"), Policy::Eevdf);
        assert_eq!(kernel("7.3.4+deb14-cloud-amd64"), Policy::Eevdf);
        assert_eq!(policy("7.3.4", Some("rota".to_owned())), Policy::Rota);
        assert_eq!(policy("7.3.4", Some("lavd".to_owned())), Policy::Other("lavd".to_owned()));
    }
}
