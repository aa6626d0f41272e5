//! A tenant: one VM or container, its class, and how its cgroup is found.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::{CpuSet, Share, Team};

/// A tenant's number: its place in [`crate::Model::tenants`] in a plan, and its entry in the scheduler's maps in a
/// running daemon, where it stays the same from one generation of tables to the next.
pub type TenantId = u32;

/// A twentieth of a CPU.
const SYSTEM_SHARE: Share = Share::from_ppb(50_000_000).expect("a share");
/// A thousandth of a CPU, in the unit of shares.
const PPB_OF_MILLI: u64 = 1_000_000;

/// What one vCPU of a reserved tenant is promised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Reservation {
    /// Guaranteed share of one CPU.
    pub share: Share,
    /// Longest time in ns that the vCPU may be runnable without running. At least 1.
    pub latency_ns: u64,
    /// Never more than `share`, even when CPUs idle.
    pub capped: bool,
}

impl Reservation {
    /// What the system's own tenant has on each CPU of a host without housekeeping CPUs, unless configured: enough
    /// for a shell and the usual daemons to answer.
    pub const SYSTEM: Reservation =
        Reservation { share: SYSTEM_SHARE, latency_ns: 50_000_000, capped: false };
}

/// How a tenant is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// Tier 1: every vCPU has a reservation.
    Reserved(Reservation),
    /// No promise; a weight (1 ..= 10,000, 100 by default) of what reservations leave.
    Shared {
        /// As cgroup v2's `cpu.weight`.
        weight: u32,
    },
    /// Tier 2: what everyone else leaves.
    Background,
}

impl Class {
    /// The weight of a shared tenant that requests so many thousandths of a CPU: 100, the default, for each CPU.
    /// Newer versions of runc map 1,024 shares to the same.
    pub fn weight_of_millis(millis: u64) -> u32 {
        (millis / 10).clamp(1, 10_000) as u32
    }
}

/// How the tenant's cgroup is found on the host.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Match {
    /// A cgroup v2 path below the root, without the leading slash.
    Cgroup(String),
    /// A VM by its monitor (`qemu`, `firecracker`, `cloud-hypervisor`) and name.
    Vm {
        /// The monitor.
        vmm: String,
        /// The VM's name, as its monitor was told it.
        name: String,
    },
    /// A systemd unit, e.g. `redis.service`.
    Unit(String),
    /// A container by its id, or a prefix of it of 12 characters at least.
    Container(String),
    /// A pod by its uid, of Kubernetes' or, for a static pod, the kubelet's hash.
    Pod(String),
}

impl Match {
    /// The name of Cloud Hypervisor's VM, which itself has none: that of its API socket, without the extension. Kata
    /// gives all of its sandboxes the same one, each in a folder that has the sandbox's id.
    pub fn cloud_hypervisor_name(socket: &Path) -> Option<&str> {
        let name = socket.file_stem()?.to_str()?;
        let folder = || socket.parent()?.file_name()?.to_str();
        if ["clh-api", "ch-api"].contains(&name) { folder().or(Some(name)) } else { Some(name) }
    }
}

/// A tenant's cgroup, as it was found on the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cgroup {
    /// Relative to the cgroup root.
    pub path: PathBuf,
    /// The kernel's id of it.
    pub id: u64,
}

impl fmt::Display for Match {
    /// As the configuration writes it: `cgroup = "machine.slice/web"`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Match::Cgroup(path) => write!(f, "cgroup = {path:?}"),
            Match::Vm { vmm, name } => write!(f, "vm = {:?}", format!("{vmm}:{name}")),
            Match::Unit(unit) => write!(f, "unit = {unit:?}"),
            Match::Container(id) => write!(f, "container = {id:?}"),
            Match::Pod(uid) => write!(f, "pod = {uid:?}"),
        }
    }
}

/// One VM or one container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tenant {
    /// Unique on the host.
    pub name: String,
    /// How it is served.
    pub class: Class,
    /// How many vCPUs (a VM's vCPU threads, or a container's servers), 1 at least.
    pub vcpus: u32,
    /// CPUs that it may be planned on, none of them for housekeeping; all but the housekeeping CPUs if absent.
    pub affinity: Option<CpuSet>,
    /// vCPU k may be planned on the k-th CPU of the affinity (ascending) only; there are as many vCPUs as CPUs. So it
    /// is with the system's own tenant; no other can ask for it.
    pub pinned: bool,
    /// Nobody else runs on the siblings of the CPUs on which it has slots: it gets cores whole. A core of one CPU has
    /// no siblings and is shared with others as ever.
    pub exclusive_cores: bool,
    /// Its threads may be more than its CPUs: those that wait busily give way to their siblings.
    pub oversubscribe: bool,
    /// How its vCPUs are served beside each other.
    pub team: Team,
    /// Where it is found; `None` for a tenant that is only planned for, and for the system's own, which is every task
    /// outside of the other tenants' cgroups.
    pub matcher: Option<Match>,
}

impl Tenant {
    /// The name of the system's own tenant; no other may have it.
    pub const SYSTEM: &str = "system";

    /// The system's own tenant on a host with these CPUs.
    pub fn system(reservation: Reservation, cpus: &CpuSet) -> Tenant {
        Tenant {
            name: Tenant::SYSTEM.to_owned(),
            class: Class::Reserved(reservation),
            vcpus: cpus.len() as u32, // CpuSet::LIMIT at most
            affinity: Some(cpus.clone()),
            pinned: true,
            exclusive_cores: false,
            oversubscribe: false,
            team: Team::default(),
            matcher: None,
        }
    }

    /// CPUs that vCPU `index` may be planned on, of those that the host has for a tenant like this:
    /// [`crate::Host::tenant_cpus`], or [`crate::Host::exclusive_cpus`] if it wants cores to itself.
    pub fn vcpu_cpus(&self, index: u32, host_cpus: &CpuSet) -> CpuSet {
        let cpus =
            self.affinity.as_ref().map_or_else(|| host_cpus.clone(), |cpus| cpus.intersection(host_cpus));
        if self.pinned { cpus.iter().skip(index as usize).take(1).collect() } else { cpus }
    }

    /// What one of its vCPUs is promised, if the tenant has a reservation: as the others, unless parts are by load.
    pub fn vcpu_reservation(&self, index: u32) -> Option<Reservation> {
        let reservation = self.reservation()?;
        let share = self.team.parts.get(index as usize).copied().unwrap_or(reservation.share);
        Some(Reservation { share, ..reservation })
    }

    /// How it is served while no table has slots for it. What is to be reserved is background then; a pod is shared, as
    /// it has been admitted to its node, by the weight that what it asks for would have.
    pub fn class_without_slots(&self) -> Class {
        match (self.class, &self.matcher) {
            (Class::Reserved(own), Some(Match::Pod(_))) => {
                let total_ppb = u64::from(own.share.ppb()) * u64::from(self.vcpus);
                Class::Shared { weight: Class::weight_of_millis(total_ppb / PPB_OF_MILLI) }
            }
            (Class::Reserved(_), _) => Class::Background,
            (class, _) => class,
        }
    }

    /// The reservation of each of its vCPUs, if it has one; what they have on average, if parts are by load.
    pub fn reservation(&self) -> Option<Reservation> {
        match self.class {
            Class::Reserved(reservation) => Some(reservation),
            Class::Shared { .. } | Class::Background => None,
        }
    }
}
