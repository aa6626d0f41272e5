//! Who is whose, who waits and who runs: from what the daemon has told the scheduler and what happens on the machine.

use std::collections::BTreeMap;

use rota_model::{Class, Reservation, TenantId};
use rota_sched::TenantSpec;
use rota_sim::{CgroupId, CpuId, Machine, TaskId};
use rota_twin::Deed;

/// Whose a thread is: a tenant's, and of a VM perhaps one vCPU's. Tenant 0 is the system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Owner {
    pub tenant: TenantId,
    pub vcpu: Option<u32>,
}

impl Owner {
    /// Whether a slot of the vCPU is one for this.
    pub fn may_use(self, tenant: TenantId, vcpu: u32) -> bool {
        self.tenant == tenant && self.vcpu.is_none_or(|own| own == vcpu)
    }
}

/// A thread, as far as is seen of it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Thread {
    pub owner: Owner,
    /// An ordinary thread that may run on every CPU now.
    pub free: bool,
    /// Of an ordinary thread: the only CPU on which it may run.
    pub only: Option<CpuId>,
    /// A real-time task has taken the CPU from it, and it waits behind that.
    pub behind: bool,
    /// It was changed while it ran: it has the rest of its turn where it is.
    pub strays: bool,
    /// It was given to another tenant so: what it has until it stops is not of that one's budget.
    pub moved: bool,
    /// Since when it would run, if it does not.
    pub waits_since_ns: Option<u64>,
    pub runs_on: Option<CpuId>,
}

/// A tenant.
#[derive(Clone, Debug, Default)]
struct Counts {
    /// vCPUs with a reservation.
    reserved: u32,
    /// How many free threads wait: those of no vCPU first, then each vCPU's.
    waiting: Vec<u32>,
    /// How many free threads run.
    running: u32,
}

/// The place in a list that is as long as it has to be.
pub fn place_of<T: Clone + Default>(list: &mut Vec<T>, place: usize) -> &mut T {
    if list.len() <= place {
        list.resize(place + 1, T::default());
    }
    &mut list[place]
}

/// All of them.
#[derive(Debug, Default)]
pub struct Threads {
    specs: BTreeMap<TenantId, TenantSpec>,
    /// By cgroup.
    bound: Vec<Option<TenantId>>,
    vcpu_threads: BTreeMap<i32, Owner>,
    threads: Vec<Thread>,
    /// By tenant.
    counts: Vec<Counts>,
}

impl Threads {
    /// The daemon has told the scheduler something. Whether threads may be others' now.
    pub fn told(&mut self, deed: &Deed) -> bool {
        match deed {
            Deed::Set(spec) => {
                let is_reserved = matches!(spec.class, Class::Reserved { .. });
                place_of(&mut self.counts, spec.id as usize).reserved =
                    if is_reserved { spec.vcpus } else { 0 };
                self.specs.insert(spec.id, spec.clone());
            }
            Deed::Removed(id) => {
                place_of(&mut self.counts, *id as usize).reserved = 0;
                self.specs.remove(id);
            }
            Deed::Bound(cgroup, id) => *place_of(&mut self.bound, cgroup.index()) = Some(*id),
            Deed::Unbound(cgroup) => *place_of(&mut self.bound, cgroup.index()) = None,
            Deed::Thread(pid, tenant, index) => {
                self.vcpu_threads.insert(*pid, Owner { tenant: *tenant, vcpu: Some(*index) });
            }
            Deed::NoThread(pid) => _ = self.vcpu_threads.remove(pid),
            Deed::Table(..) | Deed::Settled | Deed::Away(_) => return false,
        }
        !matches!(deed, Deed::Set(_))
    }

    /// Counts every thread anew for whom it belongs to now.
    pub fn recount(&mut self, machine: &Machine) {
        for task in (0..self.threads.len() as u32).map(TaskId) {
            let Thread { waits_since_ns, runs_on, .. } = self.threads[task.index()];
            self.set(machine, task, waits_since_ns, runs_on);
        }
    }

    /// A thread waits, or runs, or does neither.
    pub fn set(
        &mut self,
        machine: &Machine,
        id: TaskId,
        waits_since_ns: Option<u64>,
        runs_on: Option<CpuId>,
    ) {
        if self.threads.len() <= id.index() {
            self.threads.resize(id.index() + 1, Thread::default());
        }
        let task = machine.task(id);
        let everywhere = task.nr_cpus_allowed >= machine.nr_cpus();
        let free = everywhere && !task.held && task.realtime.is_none();
        let before = self.threads[id.index()];
        let behind = before.behind && runs_on.is_none() && waits_since_ns == before.waits_since_ns;
        let owner = self.owner_of(machine, id);
        let goes_on = before.behind || before.runs_on.is_some() || runs_on.is_none();
        let changes = owner != before.owner && (before.runs_on.is_some() || before.behind);
        let strays = (before.strays && goes_on) || changes;
        let goes_on_running = before.runs_on.is_some() && runs_on.is_some();
        let moved = goes_on_running && (before.moved || owner != before.owner);
        let is_bound = task.nr_cpus_allowed == 1 && task.realtime.is_none() && !behind && !strays;
        let only = is_bound.then(|| task.affinity.iter().next()).flatten();
        let free = free && !behind && !strays;
        let thread = Thread { owner, free, only, behind, strays, moved, waits_since_ns, runs_on };
        self.threads[id.index()] = thread;
        self.count(before, -1);
        self.count(thread, 1);
    }

    /// A real-time task has taken the CPU from a thread, which stays in that CPU's own queue.
    pub fn falls_behind(&mut self, machine: &Machine, id: TaskId) {
        let Thread { waits_since_ns, runs_on, .. } = self.threads[id.index()];
        self.threads[id.index()].behind = true;
        self.set(machine, id, waits_since_ns, runs_on);
    }

    /// Something about a thread was changed from outside.
    pub fn changed(&mut self, machine: &Machine, id: TaskId) {
        let Thread { waits_since_ns, runs_on, .. } = self.thread(id);
        if runs_on.is_some() {
            self.threads[id.index()].strays = true;
        }
        self.set(machine, id, waits_since_ns, runs_on);
    }

    fn count(&mut self, thread: Thread, by: i32) {
        if !thread.free {
            return;
        }
        let Owner { tenant, vcpu } = thread.owner;
        let Counts { running, waiting, .. } = place_of(&mut self.counts, tenant as usize);
        if thread.runs_on.is_some() {
            *running = running.checked_add_signed(by).expect("who stops has run");
        }
        if thread.waits_since_ns.is_some() {
            let waiting = place_of(waiting, vcpu.map_or(0, |vcpu| 1 + vcpu as usize));
            *waiting = waiting.checked_add_signed(by).expect("who goes has waited");
        }
    }

    fn owner_of(&self, machine: &Machine, id: TaskId) -> Owner {
        let task = machine.task(id);
        let tenant = self.tenant_of(task.cgroup).unwrap_or(0);
        let vcpu = self.vcpu_threads.get(&task.pid).filter(|owner| owner.tenant == tenant);
        vcpu.copied().unwrap_or(Owner { tenant, vcpu: None })
    }

    /// What is seen of a thread.
    pub fn thread(&self, id: TaskId) -> Thread {
        self.threads.get(id.index()).copied().unwrap_or_default()
    }

    pub fn all(&self) -> impl Iterator<Item = (TaskId, &Thread)> {
        (0..).map(TaskId).zip(&self.threads)
    }

    /// How many free threads of a tenant wait, or of one of its vCPUs.
    pub fn waiting(&self, owner: Owner) -> u32 {
        self.waiting_at(owner.tenant, owner.vcpu.map_or(0, |vcpu| 1 + vcpu as usize))
    }

    /// Whether a free thread waits that may use the vCPU's slots.
    pub fn waits(&self, tenant: TenantId, vcpu: u32) -> bool {
        self.waiting_at(tenant, 0) > 0 || self.waiting_at(tenant, 1 + vcpu as usize) > 0
    }

    fn waiting_at(&self, tenant: TenantId, place: usize) -> u32 {
        let counts = self.counts.get(tenant as usize);
        counts.and_then(|counts| counts.waiting.get(place)).copied().unwrap_or(0)
    }

    /// Whether the one thread that a vCPU is waits, and is free; or any of a tenant with one vCPU.
    pub fn sole_waits(&self, tenant: TenantId, vcpu: u32) -> bool {
        let vcpus = self.vcpus(tenant);
        let is_alone = || vcpus == 1 && self.waiting_at(tenant, 0) > 0;
        vcpu < vcpus && (self.waiting_at(tenant, 1 + vcpu as usize) > 0 || is_alone())
    }

    /// How many vCPUs with a reservation the scheduler was told that a tenant has; a table may still have others.
    pub fn vcpus(&self, tenant: TenantId) -> u32 {
        self.counts.get(tenant as usize).map_or(0, |counts| counts.reserved)
    }

    /// The reservation of each vCPU that the scheduler was told that a tenant has; a table may still have others.
    pub fn reservation(&self, tenant: TenantId) -> Option<Reservation> {
        match self.specs.get(&tenant)?.class {
            Class::Reserved(reservation) => Some(reservation),
            _ => None,
        }
    }

    /// Whether the scheduler was told that a tenant has a weight, and no reservation.
    pub fn is_shared(&self, tenant: TenantId) -> bool {
        self.specs.get(&tenant).is_some_and(|spec| matches!(spec.class, Class::Shared { .. }))
    }

    /// The tenants with a weight, and no reservation, and what it is.
    pub fn weights(&self) -> impl Iterator<Item = (TenantId, u32)> {
        self.specs.values().filter_map(|spec| match spec.class {
            Class::Shared { weight } => Some((spec.id, weight)),
            _ => None,
        })
    }

    /// How many free threads of a tenant run.
    pub fn running(&self, tenant: TenantId) -> u32 {
        self.counts.get(tenant as usize).map_or(0, |counts| counts.running)
    }

    /// The tenant whose cgroup it is.
    pub fn tenant_of(&self, cgroup: CgroupId) -> Option<TenantId> {
        self.bound.get(cgroup.index()).copied().flatten()
    }
}
