//! What a recording says.

use rota_model::{Cause, CpuPlace, CpuSet, Match, Reservation};
use serde::{Deserialize, Serialize};

use crate::format::cpus;

/// What happened on a host for a while.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recording {
    /// The kernel's release, as `uname -r`; `simulated` if it was none.
    pub kernel: String,
    /// Who scheduled.
    pub policy: Policy,
    /// When it began: CLOCK_MONOTONIC, in ns. All other times count from here.
    pub began_ns: u64,
    /// How long it is.
    pub duration_ns: u64,
    /// Events that happened and are not here, because the reader was too slow.
    pub lost: u64,
    /// Where.
    pub host: Host,
    /// Whose threads were seen, or could have been.
    pub tenants: Vec<Tenant>,
    /// Threads that were seen. Their places here are what events call them by.
    pub threads: Vec<Thread>,
    /// What happened, ascending by time. In the file they follow what is above, which is checked before they are read.
    #[serde(skip)]
    pub events: Vec<Event>,
}

/// Who schedules ordinary threads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Policy {
    /// Rota.
    Rota,
    /// The kernel's own since 6.6, with each cgroup's weight and quota.
    Eevdf,
    /// The kernel's own before, likewise.
    Cfs,
    /// Another one, by its name.
    Other(String),
}

/// The machine, and what a configuration says of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Host {
    /// The CPUs that were online, ascending.
    pub cpus: Vec<Place>,
    /// Those kept for the system.
    #[serde(with = "cpus")]
    pub housekeeping: CpuSet,
    /// The part of each CPU that stays unreserved, in parts per billion.
    pub floor_ppb: u32,
    /// The shortest slot.
    pub slot_min_ns: u64,
    /// What promises are net of: a change of task, and of CPU.
    pub switch_ns: u64,
    /// See [`Host::switch_ns`].
    pub migration_ns: u64,
}

/// A CPU, and what it shares with others that have the same numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// Its number.
    pub cpu: u32,
    /// Its physical core.
    pub core: u32,
    /// Its last-level cache.
    pub cache: u32,
    /// Its NUMA node.
    pub node: u32,
    /// Its socket.
    pub socket: u32,
}

/// A tenant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tenant {
    /// Its name in the configuration; without one, its cgroup.
    pub name: String,
    /// Its cgroup, below the root.
    pub cgroup: String,
    /// What it is promised.
    pub class: Class,
    /// How many vCPUs it has.
    pub vcpus: u32,
    /// Whether it is a VM.
    pub is_vm: bool,
    /// CPUs that it is planned on; all if absent.
    #[serde(with = "cpus")]
    pub affinity: Option<CpuSet>,
    /// Whether nobody else may be on its cores.
    pub exclusive_cores: bool,
    /// What its cgroup said.
    pub limits: Limits,
}

/// As [`rota_model::Class`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Class {
    /// Every vCPU has a reservation.
    Reserved {
        /// Its share of a CPU, in parts per billion.
        share_ppb: u32,
        /// The longest wait.
        latency_ns: u64,
        /// Never more than its share.
        capped: bool,
    },
    /// No promise, but a weight.
    Shared {
        /// As the configuration says; without one, its cgroup's.
        weight: u32,
    },
    /// What all others leave.
    Background,
}

/// What a cgroup tells the kernel's own scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// `cpu.weight`: 1 ..= 10,000.
    pub weight: u32,
    /// `cpu.max`, if it limits.
    pub quota: Option<Quota>,
}

/// So much in each period.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quota {
    /// CPU time, 1 ms at least.
    pub quota_ns: u64,
    /// Of each so many ns, 1 ms to 1 s.
    pub period_ns: u64,
}

/// A thread.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Thread {
    /// Its id while it lived. Ids are used again.
    pub tid: i32,
    /// What it called itself.
    pub name: String,
    /// Whose it is, by its place; nobody's if it is the system's.
    pub tenant: Option<u32>,
    /// Which of a VM's vCPUs it is.
    pub vcpu: Option<u32>,
    /// A thread of the kernel.
    pub is_kernel: bool,
    /// How it is ranked.
    pub rank: Rank,
    /// Where it may run; everywhere if absent.
    #[serde(with = "cpus")]
    pub cpus: Option<CpuSet>,
}

/// How a thread ranks beside others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Rank {
    /// An ordinary thread of this niceness: -20 ..= 19.
    Ordinary(i8),
    /// An ordinary thread below all niceness: `SCHED_IDLE`.
    Idle,
    /// Above all ordinary ones, with a priority: 1 ..= 99.
    Realtime(u8),
}

/// Something that happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// When.
    pub at_ns: u64,
    /// What.
    pub what: What,
}

/// What happens to a thread. A thread that ran, was runnable or was blocked when the recording began is known by its
/// first event: [`What::Stops`], [`What::Runs`] or [`What::Waking`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum What {
    /// It is being woken. If it is not about to block, nothing comes of it.
    Waking {
        /// Which.
        thread: u32,
        /// By what.
        cause: Cause,
    },
    /// It is runnable from now on, unless it was.
    Woken {
        /// Which.
        thread: u32,
    },
    /// It is new, and runnable from now on.
    Starts {
        /// Which.
        thread: u32,
        /// By what.
        cause: Cause,
    },
    /// It runs on a CPU from now on; or has all the time, if this is at 0.
    Runs {
        /// Where.
        cpu: u32,
        /// Which.
        thread: u32,
    },
    /// It no longer runs.
    Stops {
        /// Which.
        thread: u32,
        /// Why.
        how: How,
    },
}

impl What {
    /// The thread that it happens to.
    pub fn thread(self) -> u32 {
        match self {
            What::Waking { thread, .. }
            | What::Woken { thread }
            | What::Starts { thread, .. }
            | What::Runs { thread, .. }
            | What::Stops { thread, .. } => thread,
        }
    }
}

/// Why a thread no longer runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum How {
    /// It would go on.
    Preempted,
    /// It waits.
    Waits,
    /// It waits for something that it has set going itself, such as a disk; nothing else can wake it.
    WaitsForDevice,
    /// It is over.
    Exits,
}

impl From<&rota_model::Host> for Host {
    fn from(host: &rota_model::Host) -> Host {
        let places = host.topology.places.iter().filter(|place| host.cpus.contains(place.cpu));
        let place = |&CpuPlace { cpu, core, cache, node, socket }: &CpuPlace| Place {
            cpu,
            core,
            cache,
            node,
            socket,
        };
        Host {
            cpus: places.map(place).collect(),
            housekeeping: host.housekeeping.clone(),
            floor_ppb: host.floor_ppb,
            slot_min_ns: host.slot_min_ns,
            switch_ns: host.costs.switch_ns,
            migration_ns: host.costs.migration_ns,
        }
    }
}

impl Tenant {
    /// A configured tenant whose cgroup is `cgroup` and says `limits`.
    pub fn new(tenant: &rota_model::Tenant, cgroup: String, limits: Limits) -> Tenant {
        Tenant {
            name: tenant.name.clone(),
            cgroup,
            class: match tenant.class {
                rota_model::Class::Reserved(Reservation { share, latency_ns, capped }) => {
                    Class::Reserved { share_ppb: share.ppb(), latency_ns, capped }
                }
                rota_model::Class::Shared { weight } => Class::Shared { weight },
                rota_model::Class::Background => Class::Background,
            },
            vcpus: tenant.vcpus,
            is_vm: matches!(tenant.matcher, Some(Match::Vm { .. })),
            affinity: tenant.affinity.clone(),
            exclusive_cores: tenant.exclusive_cores,
            limits,
        }
    }
}
