//! What `rota status` shows.

use std::collections::BTreeMap;

use rota_model::{Host, Spare};
use serde::{Deserialize, Serialize};

use crate::profile::{QueueStatus, Spending};

/// The daemon at one moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// The daemon's process.
    pub pid: u32,
    /// Since the scheduler was loaded, in seconds.
    pub up_s: f64,
    /// The table in force; 0 before the first.
    pub generation: u64,
    /// Its length in ns; 0 before the first.
    pub table_length_ns: u64,
    /// How long the window is over which `received` and the like are measured, in seconds.
    pub window_s: f64,
    /// Why the configuration as it is now is not the one in use; nothing if it is.
    pub edit_refused: Option<String>,
    /// Which of the configured CPUs are offline, as a CPU list: nothing is planned there. Empty if none is.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub offline: String,
    /// Present tenants in the order of their numbers, then those that are configured and not there.
    pub tenants: Vec<TenantStatus>,
    /// The CPUs that the scheduler knows.
    pub cpus: Vec<CpuStatus>,
    /// What is prepared for who comes next, as far as the table in force has room for it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub spares: Vec<SpareStatus>,
    /// How the scheduler has fared since the daemon was started.
    #[serde(default)]
    pub scheduler: SchedulerStatus,
    /// The pods of this node; nothing if they are no tenants.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubernetes: Option<KubernetesStatus>,
    /// What is done about cache interference; nothing with `interference = "off"`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interference: Option<InterferenceStatus>,
}

/// How the scheduler has fared.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SchedulerStatus {
    /// How often the kernel has ended it because something was wrong; it was started again each time.
    pub lost: u64,
    /// Why, the last time.
    pub lost_why: Option<String>,
    /// Why branches are not recorded although the configuration asks for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch_records_off: Option<String>,
}

/// What the container runtime tells of its pods.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KubernetesStatus {
    /// Its name and version, as long as it is connected.
    pub runtime: Option<String>,
    /// Why it is not. The pods that were there last are tenants still.
    pub lost: Option<String>,
    /// How many pods it has told of.
    pub pods: u32,
    /// How many tenants are pods whose cgroup was found.
    #[serde(default)]
    pub matched: u32,
    /// By pod (`namespace/name`) why it is not served as its annotations ask.
    pub refused: BTreeMap<String, String>,
    /// How many pods are not served as they ask, by kind of reason: those of `refused`, and as `room` those without
    /// room for their reservation.
    #[serde(default)]
    pub refused_by: BTreeMap<String, u32>,
}

/// What is done about cache interference, and why.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct InterferenceStatus {
    /// `random` or `measured`: what is done, which is `random` without counters.
    pub strategy: String,
    /// Why there are no counters, if some are wanted.
    pub no_counters: Option<String>,
    /// What counts, in words, if anything does.
    #[serde(default)]
    pub counted_by: Option<String>,
    /// Tables that differed from the one before in who is where, and in nothing else.
    pub exchanges: u64,
    /// vCPUs that changed places by that.
    pub moves: u64,
    /// How often a vCPU was found to have begun to fill caches.
    pub alarms: u64,
    /// How many vCPUs fill caches now.
    pub hungry: u32,
    /// What was moved last, and why.
    pub last: Option<String>,
    /// How long ago that was, in seconds.
    pub last_s: Option<f64>,
    /// What the vCPUs that fill caches fetch on each CPU with reservations.
    pub cpus: Vec<PlacePressure>,
}

/// A CPU, and what is fetched from memory there.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlacePressure {
    /// Its number.
    pub cpu: u32,
    /// Its last-level cache.
    pub domain: u32,
    /// Its socket.
    pub socket: u32,
    /// Lines of a cache, in a millisecond.
    pub lines_per_ms: u64,
}

/// One kind of `[host] spares`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SpareStatus {
    /// Of one CPU.
    pub share: f64,
    /// The longest wait, in ns.
    pub latency_ns: u64,
    /// How many there are to be.
    pub count: u32,
    /// How many of these are ready.
    pub ready: u32,
}

impl SpareStatus {
    /// Each kind that a host is to have, of which so many are `ready`.
    pub fn all(host: &Host, ready: &[u32]) -> Vec<SpareStatus> {
        let one = |(spare, &ready): (&Spare, &u32)| SpareStatus {
            share: spare.share.fraction(),
            latency_ns: spare.latency_ns,
            count: spare.count,
            ready,
        };
        host.spares.iter().zip(ready).map(one).collect()
    }
}

/// What a tenant is to the daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Configured, and not on this host now.
    Absent,
    /// Served as its class says: a reserved tenant has its slots.
    Served,
    /// Reserved, and served as background until the next table; a pod is shared until then.
    Waiting,
    /// Reserved, and served as background, or as shared if it is a pod, because there is no room for it; see `refused`.
    Refused,
    /// Gone; its slots end with the next table.
    Leaving,
}

/// One tenant. Shares are in CPUs: 0.5 is half a CPU's time, summed over the tenant's vCPUs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TenantStatus {
    /// Its name.
    pub name: String,
    /// Its number in the scheduler; nothing for an absent one.
    pub id: Option<u32>,
    /// `reserved`, `shared` or `background`.
    pub class: String,
    /// Whether it is here and served.
    pub state: State,
    /// Why there is no room for it.
    pub refused: Option<String>,
    /// Its cgroup, relative to the root of cgroups.
    pub cgroup: Option<String>,
    /// `vm` or `container`.
    pub kind: String,
    /// How many vCPUs.
    pub vcpus: u32,
    /// The guaranteed share; nothing unless it is reserved.
    pub promised: Option<f64>,
    /// Its vCPUs' slots come together.
    #[serde(default)]
    pub together: bool,
    /// Its total share goes to its vCPUs by their load.
    #[serde(default)]
    pub matching: bool,
    /// Of a VM: the tenant that has its monitor's threads, if that is another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub monitor: Option<String>,
    /// What each vCPU is promised, if that differs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<f64>,
    /// The share received in the window.
    pub received: f64,
    /// CPU time since it came, in ns.
    pub used_ns: u64,
    /// The share received since it came.
    pub received_total: f64,
    /// The part of the window in which it had something to run; of a VM, the busiest vCPU's.
    pub wanted: f64,
    /// How much CPU time it is behind what is fair now, in ns; negative if it is ahead, nothing unless it is shared.
    pub lag_ns: Option<i64>,
    /// The longest blackout seen, in ns.
    pub blackout_max_ns: u64,
    /// The promised bound of it; nothing unless it is reserved.
    pub bound_ns: Option<u64>,
    /// Blackouts beyond the bound.
    pub missed: u64,
    /// Those by what took most of the time.
    pub missed_by_cause: ByCause,
    /// Time lost in its slots while it wanted them, in ns, by cause.
    pub lost_ns: ByCause,
    /// Times that one of its threads was put on a CPU, and on another one than before.
    pub dispatches: u64,
    /// See `dispatches`.
    pub migrations: u64,
    /// Times that one of its threads stopped running and would have gone on.
    #[serde(default)]
    pub preempted: u64,
    /// Times that one of them said that others may run: `sched_yield(2)`.
    #[serde(default)]
    pub yields: u64,
    /// Times that a thread of it was seen to wait busily, and gave way to others of its own.
    #[serde(default)]
    pub spins: u64,
    /// CPU time in which that was seen, in ns.
    #[serde(default)]
    pub spins_ns: u64,
    /// Threads runnable or running now.
    pub runnable: u32,
    /// The part of the window in which its threads waited for a CPU, of that in which they would have run.
    #[serde(default)]
    pub waits: f64,
    /// For whom they waited longest in the window.
    #[serde(default)]
    pub waits_for: Option<String>,
    /// Where its threads' time went since it came.
    #[serde(flatten)]
    pub spending: Spending,
    /// The same of each of its queues.
    #[serde(default)]
    pub queues: Vec<QueueStatus>,
}

/// One number for each of [`rota_sched::Cause`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ByCause {
    /// Kernel threads that had to run on this CPU.
    pub kernel_thread: u64,
    /// Tasks of a higher scheduling class.
    pub higher_class: u64,
    /// Interrupts.
    pub interrupt: u64,
    /// The hypervisor below.
    pub steal: u64,
    /// The floor of service.
    pub floor: u64,
    /// Rota itself.
    pub rota: u64,
}

impl ByCause {
    /// Names for people, in the order of [`rota_sched::Cause::ALL`].
    pub const NAMES: [&'static str; 6] = [
        "kernel threads",
        "higher scheduling classes",
        "interrupts",
        "host steal",
        "the floor",
        "rota itself",
    ];

    /// The numbers in the order of [`rota_sched::Cause::ALL`].
    pub fn values(&self) -> [u64; 6] {
        [self.kernel_thread, self.higher_class, self.interrupt, self.steal, self.floor, self.rota]
    }

    /// All together.
    pub fn total(&self) -> u64 {
        self.values().iter().sum()
    }
}

impl From<[u64; 6]> for ByCause {
    fn from([kernel_thread, higher_class, interrupt, steal, floor, rota]: [u64; 6]) -> ByCause {
        ByCause { kernel_thread, higher_class, interrupt, steal, floor, rota }
    }
}

/// One CPU. Parts are of the window.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CpuStatus {
    /// Its number.
    pub cpu: u32,
    /// The table that it enacts.
    pub generation: u64,
    /// Rounds in which it saw two tables: always 0.
    pub mixed: u64,
    /// The part with nothing to run.
    pub idle: f64,
    /// The part given to background tenants.
    pub background: f64,
    /// The part given to the second level and to shared tenants.
    pub second_level: f64,
    /// Time taken from tenants since the scheduler was loaded, in ns.
    pub lost_ns: ByCause,
}
