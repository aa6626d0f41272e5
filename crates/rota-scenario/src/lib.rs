//! Scenarios: a host with its tenants, and what their threads do; the text that describes both.
//!
//! A scenario's text is a configuration as in `rota.toml` ([`rota_model::config`]: `[host]`, which must name its CPUs,
//! and `[[tenant]]`), and has more in it:
//!
//! | key | value |
//! | --- | --- |
//! | `duration` | how long is simulated after the warm-up; `"10s"` by default |
//! | `warm_up` | how long before anything is measured; `"1s"` by default |
//! | `seed` | of all chance; 1 by default |
//!
//! `[costs]` changes what things cost: each key is a field of [`Costs`] without its `_ns`, a duration; but
//! `refill_per_kib` is one for each KiB.
//!
//! `[[workload]]`, any number, says what runs in a tenant:
//!
//! | key | value |
//! | --- | --- |
//! | `tenant` | its name; with `{i}`, as in a template's `name`, all tenants that are called so, each with a workload of its own |
//! | `program` | what the threads do: see [`programs`] |
//! | `threads` | how many there are, 1 by default; only where the program's number of threads is not given otherwise |
//! | `working_set` | how much memory each thread works on, in KiB; 0 by default |
//! | `references` | so many lines of it a thread refers to in each microsecond of computing; 0 by default: caches are not simulated, and a change of threads costs the same for each KiB |
//! | `overlap` | so many of its misses are under way at a time; 1 by default: each address is known from the one before |
//! | `bound` | whether a guest's threads stay on the vCPUs that they begin on, one after the other; `false` by default |
//! | `cpus_in_turn` | how many of its CPUs the tenant's threads may use, in turn, each for the same part of the measured time; all by default |
//!
//! and the keys of that program. In a tenant that is a VM (`match = { vm = ... }`) the threads are the guest's: its
//! vCPUs run them, under a scheduler of the guest's own ([`Guest`]).
//!
//! `[[guest]]`, any number, says what helps the guest of a VM whose vCPUs are stopped ([`Within`]):
//!
//! | key | value |
//! | --- | --- |
//! | `tenant` | its name, as for a workload |
//! | `help` | `"none"`, as without this; `"pause-exits"`; `"upcalls"`, which only the policy `irs` makes; or `"timetable"`: it runs `rota guest`, and under the policy `rota` knows its slots if its tenant has `timetable = true` |
//!
//! `[interference]` has other tenants than one thrash caches for a while ([`Interference`]):
//!
//! | key | value |
//! | --- | --- |
//! | `pattern` | `"random"` (CI-1 of Vanga's thesis) or `"targeted"` (CI-2) |
//! | `tenants` | how many do at a time |
//! | `target` | the tenant that never does |
//! | `every` | how often they are chosen anew; `"10s"` by default if at random, else `"1s"` |
//! | `working_set`, `references`, `overlap` | what they ask of memory meanwhile, as for a workload |
//!
//! ```
//! use rota_model::config::Source;
//! use rota_scenario::Scenario;
//!
//! let text = r#"
//!     duration = "5s"
//!
//!     [host]
//!     cpus = "0-3"
//!
//!     [[tenant]]
//!     name = "web-{i}"
//!     count = 12
//!     class = "reserved"
//!     share = 0.25
//!     latency = "20ms"
//!
//!     [[workload]]
//!     tenant = "web-{i}"
//!     program = "phases"
//!     compute = { exponential = "2ms" }
//!     sleep = { uniform = ["1ms", "9ms"] }
//! "#;
//! let source = Source { path: "web.toml".to_owned(), text: text.to_owned() };
//! let scenario = Scenario::parse(&source).unwrap();
//! assert_eq!(scenario.workloads[0].tenants.len(), 12);
//! ```
//!
//! [`Scenario::run`] runs it under a policy.

mod elastic;
mod interference;
pub mod policies;
pub mod programs;
mod read;
mod record;
mod recorder;
pub mod replay;
mod run;
mod sampling;
mod spent;

use std::collections::BTreeMap;

use rota_model::config::{ConfigErrors, Source};
use rota_model::{Match, Model, TenantId};
use rota_sim::observe::Observer;
use rota_sim::{
    Costs, CpuId, CpuMask, Device, DeviceId, Guest, Help, Memory, Policy, Program, Rng, Simulation, Site,
};

use rota_twin::{Code, GuestAgent};

pub use interference::{Interference, Pattern};
pub use programs::Work;
use replay::Load;
pub use run::{Deviation, INTERVALS, Options, Outcome, Service, Session, TenantOutcome, WATCHDOG_NS};
pub use sampling::{PARTS, Plan, STEP_NS, Sampled};
pub use spent::TimeSpent;

/// What is in a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Within {
    /// A plain kernel, and what helps that.
    Plain(Help),
    /// `rota guest`, which knows when the vCPUs have their slots.
    Agent,
}

impl Default for Within {
    fn default() -> Within {
        Within::Plain(Help::None)
    }
}

/// What is simulated.
#[derive(Debug)]
pub struct Scenario {
    /// The host and its tenants.
    pub model: Model,
    /// What things cost.
    pub costs: Costs,
    /// How long is simulated after the warm-up.
    pub duration_ns: u64,
    /// How long before anything is measured.
    pub warm_up_ns: u64,
    /// Of all chance.
    pub seed: u64,
    /// What runs.
    pub workloads: Vec<Workload>,
    /// What is in guests; in those that are not here, a plain kernel without help.
    pub helps: BTreeMap<TenantId, Within>,
    /// Who thrashes caches beside that.
    pub interference: Option<Interference>,
    /// What runs because it was recorded: see [`replay`].
    pub replay: Option<Load>,
}

/// What runs in some tenants.
#[derive(Debug)]
pub struct Workload {
    /// Each of these has its own.
    pub tenants: Vec<TenantId>,
    /// What the threads do.
    pub work: Box<dyn Work>,
    /// How much memory each thread works on, in KiB.
    pub working_set_kib: u64,
    /// How it refers to it, if caches are simulated for it.
    pub memory: Option<Memory>,
    /// Whether a guest's threads stay on their vCPUs.
    pub bound: bool,
    /// How many of their CPUs the tenants may use, in turn; none: all of them.
    pub cpus_in_turn: Vec<u32>,
}

/// A thread of a tenant.
pub struct Member {
    /// The tenant; none if it is the system's, and that has none.
    pub tenant: Option<TenantId>,
    /// Which of its vCPUs it is, if the tenant is a VM.
    pub vcpu: Option<u32>,
    /// The guest whose vCPU it is, if that is simulated.
    pub guest: Option<Guest>,
    /// How much memory it works on, in KiB.
    pub working_set_kib: u64,
    /// How it refers to it, if caches are simulated for it.
    pub memory: Option<Memory>,
    /// How the kernel ranks it.
    pub standing: Standing,
    /// What it does.
    pub program: Box<dyn Program>,
}

/// What the kernel knows of a thread beside whose it is.
#[derive(Clone, Debug)]
pub struct Standing {
    /// A thread of the kernel.
    pub kernel_thread: bool,
    /// A real-time task of this priority, 1 ..= 99.
    pub realtime: Option<u8>,
    /// Among its siblings, 100 by default.
    pub weight: u32,
    /// Where it may run by itself; what a tenant may use counts on top, but not in a replay.
    pub affinity: Option<CpuMask>,
}

impl Default for Standing {
    fn default() -> Standing {
        Standing { kernel_thread: false, realtime: None, weight: 100, affinity: None }
    }
}

impl Scenario {
    /// Reads a scenario's text.
    ///
    /// # Errors
    ///
    /// Every mistake in it, each with its place and mend.
    pub fn parse(source: &Source) -> Result<Scenario, ConfigErrors> {
        read::scenario(source)
    }

    /// The threads of all tenants, in an order that depends on nothing but the scenario; and in the simulation whatever
    /// else belongs to them. Of a VM these are its vCPUs, in which the guest runs its workloads' threads.
    pub fn members<P: Policy, O: Observer>(&self, simulation: &mut Simulation<P, O>) -> Vec<Member> {
        let mut site = Around { cpus: self.interrupt_cpus(), attached: 0, simulation };
        let mut members =
            self.replay.as_ref().map_or_else(Vec::new, |replay| replay.members(self.warm_up_ns));
        let mut guests: BTreeMap<TenantId, (Guest, u64, Option<Memory>)> = BTreeMap::new();
        for Workload { tenants, work, working_set_kib, memory, bound, .. } in &self.workloads {
            for &tenant in tenants {
                let Some(guest) = self.guest(tenant, site.simulation.machine.seed()) else {
                    members.extend(work.programs(&mut site).into_iter().map(|program| Member {
                        tenant: Some(tenant),
                        vcpu: None,
                        guest: None,
                        working_set_kib: *working_set_kib,
                        memory: *memory,
                        standing: Standing::default(),
                        program,
                    }));
                    continue;
                };
                let (guest, largest_kib, busiest) = guests.entry(tenant).or_insert((guest, 0, None));
                *largest_kib = (*largest_kib).max(*working_set_kib);
                let both = [*busiest, *memory].into_iter().flatten();
                *busiest = both.max_by_key(|memory| memory.references_per_us);
                for program in work.programs(&mut guest.site(&mut site)) {
                    if *bound { guest.bound_thread(program) } else { guest.thread(program) }
                }
            }
        }
        for (tenant, (guest, working_set_kib, memory)) in guests {
            let vcpus = (0..).zip(guest.vcpus());
            members.extend(vcpus.map(|(number, program)| Member {
                tenant: Some(tenant),
                vcpu: Some(number),
                guest: Some(guest.clone()),
                working_set_kib,
                memory,
                standing: Standing::default(),
                program,
            }));
        }
        members
    }

    /// The guest of a tenant that is a VM.
    fn guest(&self, id: TenantId, seed: u64) -> Option<Guest> {
        let tenant = &self.model.tenants[id as usize];
        let is_vm = matches!(tenant.matcher, Some(Match::Vm { .. }));
        let rng = || Rng::new(seed, GUEST_STREAM + u64::from(id));
        is_vm.then(|| match self.helps.get(&id).copied().unwrap_or_default() {
            Within::Plain(help) => Guest::with_help(tenant.vcpus, rng(), help),
            Within::Agent => GuestAgent::guest(&Code::GUEST, tenant.vcpus, rng()).0,
        })
    }

    /// Where devices interrupt: the housekeeping CPUs, or all if there are none.
    fn interrupt_cpus(&self) -> Vec<CpuId> {
        let host = &self.model.host;
        let cpus = if host.housekeeping.is_empty() { &host.cpus } else { &host.housekeeping };
        cpus.iter().map(CpuId).collect()
    }
}

/// Streams of chance from here on are guests'; below are tasks' and devices'.
const GUEST_STREAM: u64 = 1 << 33;

/// A simulation, whose CPUs take devices in turn.
struct Around<'s, P, O> {
    cpus: Vec<CpuId>,
    attached: usize,
    simulation: &'s mut Simulation<P, O>,
}

impl<P: Policy, O: Observer> Site for Around<'_, P, O> {
    fn attach(&mut self, device: Box<dyn Device>) -> DeviceId {
        let cpu = self.cpus[self.attached % self.cpus.len()];
        self.attached += 1;
        let now_ns = self.simulation.machine.now_ns();
        self.simulation.attach(device, cpu, Some(now_ns))
    }
}
