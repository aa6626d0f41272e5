//! The tenants: some stay from first to last, others come and go.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use anyhow::{Context, Result};
use fastrand::Rng;
use rota_model::{
    Class, Costs, CpuSet, Host, Placement, Reservation, Share, Team, Tenant, TenantId, Topology,
};
use rota_plan::CANDIDATES;
use rota_rules::planning;
use rota_sched::{SYSTEM, Scheduler, TenantKind, TenantSpec};
use rota_table::Certified;

use crate::load::{Busy, now_ns};

/// Short, so that a switch takes few ms: a divisor of the planner's hyperperiod of 102,702,600 ns near 1 ms.
const PERIOD_NS: u64 = 102_702_600 / 104;
/// What a change of tasks takes in an emulated guest: some 10 us, at most.
const SWITCH_NS: u64 = 20_000;
/// Of each CPU: for the system, for the constant tenants, and the least and most for one that comes and goes.
const SYSTEM_PERCENT: u32 = 25;
const CONSTANT_PERCENT: [u32; 2] = [20, 15];
const GUEST_PERCENT_MIN: u32 = 5;
const GUEST_PERCENT_MAX: u32 = 8;
/// How many come and go for each CPU; all of them there fit.
const GUESTS_PER_CPU: u32 = 3;

/// A reserved tenant that is there.
pub struct Guest {
    tenant: Tenant,
    folder: PathBuf,
    cgroup: u64,
    load: Vec<Busy>,
    constant: bool,
    used_before_ns: u64,
}

impl Guest {
    pub fn name(&self) -> &str {
        &self.tenant.name
    }

    pub fn is_constant(&self) -> bool {
        self.constant
    }

    fn reservation(&self) -> Reservation {
        self.tenant.reservation().expect("guests are reserved tenants")
    }

    pub fn latency_ns(&self) -> u64 {
        self.reservation().latency_ns
    }

    pub fn share(&self) -> f64 {
        self.reservation().share.fraction()
    }

    pub fn probe(&self) -> Option<&Busy> {
        self.load.first()
    }

    /// What it had used when the first table came into force.
    pub fn used_before_ns(&self) -> u64 {
        self.used_before_ns
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.load.clear();
        // A cgroup whose last process has just ended may be busy for a moment; the guest is switched off anyway.
        let _ = fs::remove_dir(&self.folder);
    }
}

/// All of them, and how they change.
pub struct Tenants {
    host: Host,
    system: Tenant,
    guests: BTreeMap<TenantId, Guest>,
    constant: u32,
    coming: u32,
    folders: u64,
    /// Gone, but their threads may still be about to end.
    dying: Vec<Guest>,
    left: u64,
    since_ns: u64,
    rng: Rng,
}

impl Tenants {
    /// Starts the constant tenants.
    pub fn new(scheduler: &Scheduler, cpus: CpuSet, seed: u64) -> Result<Tenants> {
        let nr_cpus = cpus.len() as u32;
        let system = Tenant {
            name: Tenant::SYSTEM.to_owned(),
            class: reserved(SYSTEM_PERCENT, PERIOD_NS),
            vcpus: nr_cpus,
            affinity: None,
            pinned: true,
            exclusive_cores: false,
            oversubscribe: true,
            team: Team::default(),
            matcher: None,
        };
        let host = Host {
            topology: Topology::flat(&cpus),
            cpus,
            housekeeping: CpuSet::default(),
            floor_ppb: Host::FLOOR_PPB,
            slot_min_ns: Host::SLOT_MIN_NS,
            placement: Placement::WorstFit,
            costs: Costs { switch_ns: SWITCH_NS, migration_ns: 0 },
            spares: Vec::new(),
            interference: rota_model::Interference::Off,
            branch_records: false,
        };
        let mut tenants = Tenants {
            host,
            system,
            guests: BTreeMap::new(),
            constant: nr_cpus * CONSTANT_PERCENT.len() as u32,
            coming: nr_cpus * GUESTS_PER_CPU,
            folders: 0,
            dying: Vec::new(),
            left: 0,
            since_ns: 0,
            rng: Rng::with_seed(seed),
        };
        scheduler.tenant_set(&spec(SYSTEM, &tenants.system))?;
        for id in 1..=tenants.constant {
            let percent = CONSTANT_PERCENT[id as usize % CONSTANT_PERCENT.len()];
            tenants.comes(scheduler, id, reserved(percent, PERIOD_NS * 2), 1)?;
        }
        Ok(tenants)
    }

    /// The first table has come into force: from here on shares and pauses count.
    pub fn promises_begin(&mut self, scheduler: &Scheduler) -> Result<()> {
        let queues = scheduler.queues()?;
        self.since_ns = now_ns();
        for (id, guest) in &mut self.guests {
            guest.load.iter().for_each(|busy| busy.watch_from(self.since_ns));
            let used = queues.iter().filter(|queue| queue.tenant == *id).map(|queue| queue.used_ns);
            guest.used_before_ns = used.sum();
        }
        Ok(())
    }

    pub fn elapsed_ns(&self) -> u64 {
        now_ns() - self.since_ns
    }

    pub fn came(&self) -> u64 {
        self.folders - u64::from(self.constant)
    }

    pub fn left(&self) -> u64 {
        self.left
    }

    /// The tenant, if it is in the table.
    pub fn promised(&self, id: TenantId) -> Option<&Guest> {
        self.guests.get(&id)
    }

    /// Some come, some go, some want another share.
    pub fn change(&mut self, scheduler: &mut Scheduler) -> Result<()> {
        self.dying.clear();
        for id in self.constant + 1..=self.constant + self.coming {
            let class = reserved(
                self.rng.u32(GUEST_PERCENT_MIN..=GUEST_PERCENT_MAX),
                PERIOD_NS << self.rng.u32(0..=2),
            );
            match (self.guests.contains_key(&id), self.rng.u32(0..16)) {
                (false, 0..4) => {
                    let threads = self.rng.usize(1..=3);
                    self.comes(scheduler, id, class, threads)?;
                }
                (true, 0..2) => self.goes(scheduler, id)?,
                (true, 2..4) => self.wants(scheduler, id, class)?,
                _ => {}
            }
        }
        Ok(())
    }

    fn comes(&mut self, scheduler: &Scheduler, id: TenantId, class: Class, threads: usize) -> Result<()> {
        let folder = PathBuf::from(format!("/sys/fs/cgroup/t{id}-{}", self.folders));
        self.folders += 1;
        fs::create_dir(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        let cgroup = fs::metadata(&folder)?.ino();
        let name = format!("t{id}");
        let tenant = Tenant {
            name,
            class,
            vcpus: 1,
            affinity: None,
            pinned: false,
            exclusive_cores: false,
            oversubscribe: true,
            team: Team::default(),
            matcher: None,
        };
        // Its threads may be there before it is a tenant, or come later.
        let early = if self.rng.bool() { threads } else { 0 };
        let mut load: Vec<Busy> = (0..early).map(|_| Busy::start(&folder)).collect::<Result<_>>()?;
        scheduler.tenant_set(&spec(id, &tenant))?;
        scheduler.cgroup_bind(cgroup, id)?;
        for _ in early..threads {
            load.push(Busy::start(&folder)?);
        }
        let constant = id <= self.constant;
        self.guests.insert(id, Guest { tenant, folder, cgroup, load, constant, used_before_ns: 0 });
        Ok(())
    }

    fn goes(&mut self, scheduler: &Scheduler, id: TenantId) -> Result<()> {
        let Some(guest) = self.guests.remove(&id) else { return Ok(()) };
        self.left += 1;
        // Its threads are told to end before it is forgotten, or run on as the system's.
        if self.rng.bool() {
            guest.load.iter().for_each(Busy::kill);
        }
        scheduler.cgroup_unbind(guest.cgroup)?;
        scheduler.tenant_remove(id)?;
        guest.load.iter().for_each(Busy::kill);
        self.dying.push(guest);
        Ok(())
    }

    fn wants(&mut self, scheduler: &Scheduler, id: TenantId, class: Class) -> Result<()> {
        let guest = self.guests.get_mut(&id).context("it is there")?;
        guest.tenant.class = class;
        scheduler.tenant_set(&spec(id, &guest.tenant))
    }

    /// A certified table for whoever is there.
    pub fn plan(&self) -> Result<Certified> {
        let mut grants: planning::Grants =
            self.guests.iter().map(|(&id, guest)| (id, guest.tenant.clone())).collect();
        grants.insert(SYSTEM, self.system.clone());
        Ok(planning::propose(&self.host, &grants)?.table)
    }
}

/// The reservation whose periodic task has the period `period_ns`, with the longest latency that leads to it: a table
/// promises nothing about the few us of a context switch, so there has to be some room.
fn reserved(percent: u32, period_ns: u64) -> Class {
    let share = Share::from_ppb(percent * 10_000_000).expect("a share");
    let longer_ns =
        CANDIDATES.into_iter().rfind(|&candidate| candidate > period_ns).expect("a longer period");
    let latency_ns = 2 * (longer_ns - share.of(longer_ns)) - 1;
    Class::Reserved(Reservation { share, latency_ns, capped: false })
}

fn spec(id: TenantId, tenant: &Tenant) -> TenantSpec {
    let kind = TenantKind::Container;
    TenantSpec {
        id,
        class: tenant.class,
        vcpus: tenant.vcpus,
        kind,
        oversubscribe: tenant.oversubscribe,
        monitor: None,
    }
}
