//! The running scheduler: tenants, bindings and tables go in, accounts come out.

mod accounts;
mod adopt;
mod branches;
mod growth;
mod outlive;
mod rehome;
mod sample;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::mem::offset_of;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use bytemuck::Zeroable;
use rota_model::{Class, CpuSet, TenantId, Topology};
use rota_table::Certified;

use crate::kernel::{Kernel, Memory};
use crate::object::Loaded;
use crate::placement::{Placement, boundary_ns};
use crate::queues::QueueNumbers;
use crate::shared::{self, Exit, Live, NEVER, NONE, Open, Publish, Reweigh, Settings, TableRef};

/// What the scheduler is loaded for.
#[derive(Clone, Debug)]
pub struct Options {
    /// The host's highest CPU number + 1.
    pub nr_cpus: u32,
    /// Which of them are near each other; one that has no place is with the first.
    pub topology: Topology,
    /// CPUs kept for the system. If there are none, tenant 0 is the system's own and has to be given a reservation.
    pub housekeeping: CpuSet,
    /// How many queues there may be: one a vCPU, and one more for each VM; the system's tenant has one a CPU.
    pub queues: u32,
    /// The size of the largest table, in bytes.
    pub table_bytes: u32,
}

impl Options {
    /// Room for tables of most hosts: 4 MiB.
    pub const TABLE_BYTES: u32 = 4 << 20;
}

/// What a tenant's vCPUs are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TenantKind {
    /// Servers, in each of which any of the tenant's threads may run.
    Container,
    /// Threads, each bound to its own reservation.
    Vm,
}

/// What the scheduler is told about a tenant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TenantSpec {
    /// Its number; 0 is the system's own.
    pub id: TenantId,
    /// How it is served. A reserved tenant runs as background until a table with its slots is in force.
    pub class: Class,
    /// How many vCPUs it has.
    pub vcpus: u32,
    /// What they are.
    pub kind: TenantKind,
    /// Its threads that wait busily give way to their siblings.
    pub oversubscribe: bool,
    /// Of a VM: the tenant that has its threads that are no vCPUs, as long as it is here and no VM. Itself, if none.
    pub monitor: Option<TenantId>,
}

/// A table in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Installed {
    /// Its number.
    pub generation: u64,
    /// When all CPUs adopted it, on CLOCK_MONOTONIC, in ns.
    pub adopted_at_ns: u64,
}

pub use adopt::{Found, FoundTenant};
pub use branches::MissEvents;
pub use outlive::Start;

/// How the kernel has let a scheduler go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LetGo {
    /// What it said.
    pub reason: String,
    /// Something was wrong: a task waited for longer than its watchdog allows, the scheduler gave up, or the daemon was
    /// held up for longer than the grace time. Otherwise somebody has asked for it, by SysRq-S or by changing the CPUs.
    pub is_error: bool,
}

/// The first of the kernel's kinds of exit that are errors: `SCX_EXIT_ERROR`.
const EXIT_ERROR: i32 = 1024;

/// The kind of an exit for which the scheduler has asked in good order: `SCX_EXIT_UNREG_BPF`.
const EXIT_BY_ITSELF: i32 = 65;

/// The tenant number of the system's own tasks.
pub const SYSTEM: TenantId = 0;

struct Known {
    spec: TenantSpec,
    /// It has so many queues, from its first on.
    queues: u32,
    /// The first of those from before it grew, and how many, as long as a CPU may serve it by them.
    former: Option<(u32, u32)>,
    record: shared::Tenant,
}

/// The table in one of the two buffers.
#[derive(Clone, Copy)]
struct InBuffer {
    generation: u64,
    length_ns: u64,
    from_ns: u64,
}

/// A table that is published and not yet in force.
#[derive(Clone, Copy, Debug)]
#[must_use = "its promises begin when it is settled"]
pub struct Published {
    /// When all CPUs adopt it, on CLOCK_MONOTONIC, in ns.
    pub from_ns: u64,
    installed: Installed,
}

/// The scheduler in a kernel. Dropping it hands the CPUs back to the kernel's own.
pub struct Scheduler<K = Loaded> {
    kernel: K,
    settings: Settings,
    tenants: RefCell<BTreeMap<TenantId, Known>>,
    numbers: RefCell<QueueNumbers>,
    /// When it changed last where threads wait, if those have not been looked at again since.
    rehomed_ns: Cell<Option<u64>>,
    buffers: [Option<InBuffer>; shared::NR_BUFFERS],
    /// In each buffer's table, the CPUs of cores that one tenant has to itself.
    exclusive: [CpuSet; shared::NR_BUFFERS],
    /// Those that the kernel side was told last, if that is known.
    closed: Option<CpuSet>,
    /// What the caller wants the ring of background threads to be.
    ring: RefCell<Vec<u32>>,
    generation: u64,
}

impl Scheduler {
    /// Loads and attaches the scheduler. From here on it runs every task of the machine; until tenants come, they are
    /// all the system's.
    ///
    /// # Errors
    ///
    /// No sched_ext in this kernel, no privilege, or another scheduler is attached.
    pub fn start(options: &Options) -> Result<Scheduler> {
        Scheduler::attach(Loaded::load(&Settings::new(options)?)?, options)
    }

    /// Installs a table and waits until every CPU enacts it: two and a half rounds at the most.
    ///
    /// # Errors
    ///
    /// The table is too large, or not for this host; nothing has changed then.
    pub fn install(&mut self, table: Certified) -> Result<Installed> {
        self.sleep_until(self.ready_ns());
        let published = self.publish(table)?;
        self.sleep_until(published.from_ns);
        self.settle(published)
    }

    fn sleep_until(&self, time_ns: u64) {
        while let Some(left) = time_ns.checked_sub(self.kernel.now_ns()).filter(|&left| left > 0) {
            thread::sleep(Duration::from_nanos(left));
        }
    }
}

impl<K: Kernel> Scheduler<K> {
    /// Attaches the scheduler that `kernel` has loaded with the settings of `options`.
    ///
    /// # Errors
    ///
    /// The kernel refuses.
    pub fn attach(kernel: K, options: &Options) -> Result<Scheduler<K>> {
        let mut scheduler = Scheduler::with_settings(kernel, Settings::new(options)?);
        scheduler.prepare(options)?;
        scheduler.kernel.attach()?;
        Ok(scheduler)
    }

    /// One of which nothing is known yet.
    fn with_settings(kernel: K, settings: Settings) -> Scheduler<K> {
        Scheduler {
            kernel,
            settings,
            tenants: RefCell::default(),
            numbers: RefCell::new(QueueNumbers::new(settings.nr_queues)),
            rehomed_ns: Cell::default(),
            buffers: [None; shared::NR_BUFFERS],
            exclusive: Default::default(),
            closed: Some(CpuSet::default()),
            ring: RefCell::default(),
            generation: 0,
        }
    }

    /// Fills the maps with what the scheduler needs before its first task.
    fn prepare(&mut self, options: &Options) -> Result<()> {
        for buffer in 0..shared::NR_BUFFERS {
            self.write_from_ns(buffer, NEVER);
        }
        self.spread_background(&self.tenant_cpus()?)?;
        let system_class =
            if options.housekeeping.is_empty() { shared::class::BACKGROUND } else { shared::class::SYSTEM };
        // Its first queue is number 0 for good: room for a vCPU on each CPU.
        let vcpus = if options.housekeeping.is_empty() { self.settings.nr_cpus } else { 1 };
        let (class, kind) = (Class::Background, TenantKind::Container);
        let spec = TenantSpec { id: SYSTEM, class, vcpus, kind, oversubscribe: false, monitor: None };
        self.enter(spec, vcpus)?;
        let mut tenants = self.tenants.borrow_mut();
        let system = tenants.get_mut(&SYSTEM).context("the system was entered")?;
        system.record.class = system_class;
        self.kernel.put("tenants", SYSTEM, &system.record)
    }

    /// Adds a tenant or changes it, its class included.
    ///
    /// # Errors
    ///
    /// No queues are left: the scheduler was loaded for fewer tenants.
    pub fn tenant_set(&self, spec: &TenantSpec) -> Result<()> {
        self.set(spec.clone(), spec.vcpus)
    }

    /// The same with queues for so many vCPUs.
    fn set(&self, spec: TenantSpec, vcpus: u32) -> Result<()> {
        self.enter(spec, vcpus)?;
        self.memberships_changed()?;
        self.begin_promises(0)
    }

    /// Writes the tenant's record.
    fn enter(&self, spec: TenantSpec, vcpus: u32) -> Result<()> {
        ensure!(spec.id < self.settings.nr_tenants, "no room for tenant {}: raise the capacity", spec.id);
        let mut tenants = self.tenants.borrow_mut();
        let needs = queues_needed(spec.kind, vcpus);
        let known = tenants.get(&spec.id);
        let new = shared::Tenant { first_vcpu: [NONE; shared::NR_BUFFERS], ..Zeroable::zeroed() };
        let mut record = known.map_or(new, |known| known.record);
        let (mut queues, mut former) = known.map_or((0, None), |known| (known.queues, known.former));
        let mut outdated = None;
        if queues < needs {
            outdated = former.take();
            let first_queue = self.new_queues(needs, &spec)?;
            if let Some(known) = known {
                record = self.keep_former(spec.id, known)?;
                former = Some((record.first_queue, queues));
            }
            (record.first_queue, queues) = (first_queue, needs);
        }
        record.nr_queues = queues;
        record.class = match spec.class {
            Class::Reserved(_) => shared::class::RESERVED,
            Class::Shared { .. } => shared::class::SHARED,
            Class::Background => shared::class::BACKGROUND,
        };
        record.kind = u32::from(spec.kind == TenantKind::Vm);
        record.weight = spec.weight();
        record.nr_vcpus = spec.vcpus;
        record.oversubscribe = u32::from(spec.oversubscribe);
        record.monitor = spec.monitor.unwrap_or(NONE);
        record.latency_ns = spec.class_latency_ns();
        if let Some(known) = known.filter(|known| known.record.promised_from != 0) {
            // A tighter bound holds from the next table on: see `promise`.
            record.latency_ns = record.latency_ns.max(known.record.latency_ns);
        }
        if !self.is_promised(&record) {
            record.promised_from = 0;
        }
        self.kernel.put("tenants", spec.id, &record)?;
        let is_shared = |known: &&Known| known.record.class == shared::class::SHARED;
        let weight_before = known.filter(is_shared).map_or(0, |known| known.record.weight);
        let tenant = spec.id;
        tenants.insert(tenant, Known { spec, queues, former, record });
        if let Some((first, count)) = outdated {
            self.numbers.borrow_mut().free(first, count);
        }
        self.kernel.call("reweigh", &mut Reweigh { tenant, weight_before })
    }

    fn new_queues(&self, count: u32, spec: &TenantSpec) -> Result<u32> {
        let first =
            self.numbers.borrow_mut().take(count, |queue| self.is_busy(queue)).with_context(|| {
                format!(
                    "no room for {count} more queues of {}; start again with more",
                    self.settings.nr_queues
                )
            })?;
        for queue in first..first + count {
            let vm = if spec.kind == TenantKind::Vm { spec.id } else { 0 };
            self.kernel.put("queues", queue, &shared::QueueHead { vm, ..Zeroable::zeroed() })?;
            let born = self.kernel.now_ns();
            self.kernel.put("profiles", queue, &shared::Profile { born, ..Zeroable::zeroed() })?;
        }
        Ok(first)
    }

    /// Whether a queue that was given back has not been left by all. A thread that was sent elsewhere while it waited
    /// is counted where it did until it runs: a count begun anew would go below zero then, and hide the first thread
    /// of the queue's next tenant.
    fn is_busy(&self, queue: u32) -> bool {
        let is_used =
            |head: shared::QueueHead| head.nr_runnable > 0 || head.waiting > 0 || head.claimed_by != 0;
        self.queue_head(queue).is_ok_and(is_used)
    }

    /// Whether it is a reserved tenant with slots in the table in force.
    fn is_promised(&self, record: &shared::Tenant) -> bool {
        let has_slots = |buffer: usize| record.first_vcpu[buffer] != NONE;
        record.class == shared::class::RESERVED && self.in_force(self.kernel.now_ns()).is_some_and(has_slots)
    }

    /// Forgets a tenant. Its tasks become the system's, or its outer tenant's.
    pub fn tenant_remove(&self, id: TenantId) -> Result<()> {
        ensure!(id != SYSTEM, "the system stays");
        let known = self.tenants.borrow_mut().remove(&id);
        let Some(known) = known else { return Ok(()) };
        self.kernel.put("tenants", id, &shared::Tenant { class: shared::class::NONE, ..known.record })?;
        self.memberships_changed()?;
        for (first, count) in known.former.into_iter().chain([(known.record.first_queue, known.queues)]) {
            self.numbers.borrow_mut().free(first, count);
        }
        Ok(())
    }

    /// The tasks of a cgroup, and of those below it, become the tenant's.
    pub fn cgroup_bind(&self, cgroup: u64, id: TenantId) -> Result<()> {
        self.kernel.put("cgroups", cgroup, &id)?;
        self.memberships_changed()
    }

    /// They become what the cgroup above makes them.
    pub fn cgroup_unbind(&self, cgroup: u64) -> Result<()> {
        self.kernel.remove("cgroups", cgroup)?;
        self.memberships_changed()
    }

    /// A thread of a VM tenant becomes its vCPU `index`.
    pub fn vcpu_thread_bind(&self, tid: i32, id: TenantId, index: u32) -> Result<()> {
        self.kernel.put("vcpu_threads", tid, &shared::VcpuThread { tenant: id, index })?;
        self.memberships_changed()
    }

    /// It becomes one of the monitor's other threads.
    pub fn vcpu_thread_unbind(&self, tid: i32) -> Result<()> {
        self.kernel.remove("vcpu_threads", tid)?;
        self.memberships_changed()
    }

    fn write_from_ns(&self, buffer: usize, from_ns: u64) {
        let offset =
            offset_of!(Live, tables) + buffer * size_of::<TableRef>() + offset_of!(TableRef, from_ns);
        self.kernel.write(Memory::Live, offset, bytemuck::bytes_of(&from_ns));
    }

    /// The buffer of the table in force.
    fn in_force(&self, now_ns: u64) -> Option<usize> {
        let published = |&buffer: &usize| self.buffers[buffer].is_some_and(|table| table.from_ns <= now_ns);
        (0..shared::NR_BUFFERS)
            .filter(published)
            .max_by_key(|&buffer| self.buffers[buffer].map(|table| table.from_ns))
    }

    /// The time before which no other table can be published: the last one has to come into force, and then no CPU may
    /// still be reading the buffer of the one before it.
    pub fn ready_ns(&self) -> u64 {
        let mut tables: Vec<InBuffer> = self.buffers.iter().flatten().copied().collect();
        tables.sort_by_key(|table| table.from_ns);
        match tables[..] {
            [] => 0,
            [last] => last.from_ns,
            [retired, .., last] => last.from_ns + 2 * retired.length_ns,
        }
    }

    /// Publishes a table, with the time from which it holds: all CPUs change over at one instant at which both tables
    /// begin a round. It is to be [settled](Scheduler::settle) then.
    ///
    /// # Errors
    ///
    /// It is too early, or the table is too large, or not for this host; nothing has changed then.
    pub fn publish(&mut self, table: Certified) -> Result<Published> {
        let placement = Placement::new(&table, self.settings.nr_cpus)?;
        ensure!(
            table.bytes().len() <= self.settings.table_bytes as usize,
            "the table has {} bytes, the scheduler was loaded for {}",
            table.bytes().len(),
            self.settings.table_bytes
        );
        let now_ns = self.kernel.now_ns();
        ensure!(
            now_ns >= self.ready_ns(),
            "the buffer for the table may still be read; wait until ready_ns()"
        );
        self.make_room(&placement)?;
        let old = self.in_force(now_ns);
        let buffer = old.map_or(0, |old| 1 - old);
        self.write_from_ns(buffer, NEVER);
        let generation = self.generation + 1;
        self.fill(buffer, table.with_generation(generation), &placement)?;
        let old_length_ns =
            old.and_then(|old| self.buffers[old]).map_or(placement.length_ns, |old| old.length_ns);
        let mut publish = Publish { buffer: buffer as u32, generation, ..Zeroable::zeroed() };
        publish.boundary_ns = boundary_ns(old_length_ns, placement.length_ns);
        self.kernel.call("publish_table", &mut publish)?;
        self.generation = generation;
        let from_ns = publish.from_ns;
        self.buffers[buffer] = Some(InBuffer { generation, length_ns: placement.length_ns, from_ns });
        self.exclusive[buffer] = placement.exclusive;
        let adopted_at_ns = from_ns.max(publish.stored_ns);
        Ok(Published { from_ns, installed: Installed { generation, adopted_at_ns } })
    }

    /// The table is in force: its promises begin.
    ///
    /// # Errors
    ///
    /// It is too early.
    pub fn settle(&mut self, published: Published) -> Result<Installed> {
        ensure!(self.kernel.now_ns() >= published.from_ns, "the table is not in force yet");
        self.promise(published.from_ns)?;
        self.free_former()?;
        Ok(published.installed)
    }

    /// Writes a table to a buffer that is not in force, and where its tenants' vCPUs are.
    fn fill(&self, buffer: usize, table: Certified, placement: &Placement) -> Result<()> {
        self.kernel.write(Memory::Tables, buffer * self.settings.table_bytes as usize, table.bytes());
        for (cpu, view) in (0..).zip(&placement.views) {
            self.kernel.put("views", buffer as u32 * self.settings.nr_cpus + cpu, view)?;
        }
        for (&id, known) in self.tenants.borrow_mut().iter_mut() {
            let first = placement.first_vcpu.get(&id);
            known.record.first_vcpu[buffer] =
                first.filter(|&&(_, count)| count >= known.spec.vcpus).map_or(NONE, |&(first, _)| first);
            known.record.migrates &= !(1 << buffer);
            known.record.migrates |= u32::from(placement.migrating.contains(&id)) << buffer;
            self.kernel.put("tenants", id, &known.record)?;
        }
        Ok(())
    }

    /// A table is in force: the promises to tenants that have slots in it hold from now on, for others no more. Whoever
    /// waits is looked at, as slots may be on other CPUs now, with nothing else changed.
    fn promise(&mut self, from_ns: u64) -> Result<()> {
        self.close_cores()?;
        for (&id, known) in self.tenants.borrow_mut().iter_mut() {
            let latency_ns = known.spec.class_latency_ns();
            let holds = known.record.promised_from != 0;
            if self.is_promised(&known.record) == holds && latency_ns >= known.record.latency_ns {
                continue;
            }
            known.record.latency_ns = latency_ns;
            known.record.promised_from = 0;
            self.kernel.put("tenants", id, &known.record)?;
        }
        self.rehome_all()?;
        self.begin_promises(from_ns)
    }

    /// Keeps everybody else away from the cores that one tenant has to itself in the table in force.
    fn close_cores(&mut self) -> Result<()> {
        let Some(buffer) = self.in_force(self.kernel.now_ns()) else { return Ok(()) };
        if self.closed.as_ref() != Some(&self.exclusive[buffer]) {
            self.closed = Some(self.exclusive[buffer].clone());
            self.kernel.call("open_cpus", &mut Open { buffer: buffer as u32, reserved: 0 })?;
            self.write_ring();
        }
        Ok(())
    }

    /// Has the promises hold that do not yet, from `from_ns` on or from now if that is past. Only once all waiting
    /// threads are where they belong: this program may itself be held up before it has sent them there.
    fn begin_promises(&self, from_ns: u64) -> Result<()> {
        for (&id, known) in self.tenants.borrow_mut().iter_mut() {
            if known.record.promised_from == 0 && self.is_promised(&known.record) {
                known.record.promised_from = self.kernel.now_ns().max(from_ns);
                self.kernel.put("tenants", id, &known.record)?;
            }
        }
        Ok(())
    }

    /// The CPUs over which background threads are spread, each as often as its part of the idle time: [`crate::RING`]
    /// of them, or few that are repeated.
    pub fn spread_background(&self, cpus: &[u32]) -> Result<()> {
        ensure!(!cpus.is_empty(), "background threads need a CPU");
        *self.ring.borrow_mut() = cpus.to_vec();
        self.write_ring();
        Ok(())
    }

    /// The CPUs that are not the system's, and where something can run: what is sent to an offline CPU's queue waits
    /// there for ever.
    fn tenant_cpus(&self) -> Result<Vec<u32>> {
        Ok(self.kernel.online()?.iter().filter(|cpu| !self.is_housekeeping(*cpu)).collect())
    }

    fn is_housekeeping(&self, cpu: u32) -> bool {
        self.settings.housekeeping[cpu as usize / 64] >> (cpu % 64) & 1 == 1
    }

    /// The ring without the CPUs that one tenant has to itself; the housekeeping CPUs, if that leaves none.
    fn write_ring(&self) {
        let wanted = self.ring.borrow();
        let is_closed = |cpu| self.closed.as_ref().is_some_and(|closed| closed.contains(cpu));
        let mut cpus: Vec<u32> = wanted.iter().copied().filter(|&cpu| !is_closed(cpu)).collect();
        if cpus.is_empty() {
            cpus = (0..self.settings.nr_cpus).filter(|cpu| self.is_housekeeping(*cpu)).collect();
        }
        let cpus = if cpus.is_empty() { &*wanted } else { &cpus };
        let ring: [u32; shared::RING] = std::array::from_fn(|place| cpus[place % cpus.len()]);
        self.kernel.write(Memory::Live, offset_of!(Live, background_ring), bytemuck::bytes_of(&ring));
    }

    /// The table in force, 0 if there is none.
    pub fn generation(&self) -> u64 {
        self.in_force(self.kernel.now_ns())
            .and_then(|buffer| self.buffers[buffer])
            .map_or(0, |table| table.generation)
    }

    /// How the kernel has let the scheduler go, once it has.
    pub fn exited(&self) -> Option<LetGo> {
        let exit: Exit = self.kernel.get(Memory::Exit, 0);
        let text = |bytes: &[u8]| {
            let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
            String::from_utf8_lossy(&bytes[..end]).trim().to_owned()
        };
        let reason = || match text(&exit.msg) {
            message if message.is_empty() => text(&exit.reason),
            message => format!("{}: {message}", text(&exit.reason)),
        };
        let is_abandoned = exit.kind == EXIT_BY_ITSELF && exit.code == shared::EXIT_ABANDONED;
        let is_error = exit.kind >= EXIT_ERROR || is_abandoned;
        (exit.kind != 0).then(|| LetGo { reason: reason(), is_error })
    }
}

impl TenantSpec {
    fn class_latency_ns(&self) -> u64 {
        if let Class::Reserved(reservation) = self.class { reservation.latency_ns } else { 0 }
    }

    /// By which it shares with its class: what a reserved tenant has beyond its slots goes by what it reserved, in
    /// hundredths of a CPU.
    fn weight(&self) -> u32 {
        match self.class {
            Class::Reserved(reservation) => {
                let hundredths = u64::from(reservation.share.ppb()) * u64::from(self.vcpus) / 10_000_000;
                u32::try_from(hundredths).unwrap_or(u32::MAX).max(1)
            }
            Class::Shared { weight } => weight,
            Class::Background => 100,
        }
    }
}

/// Those that threads wait in and that have accounts: a container has one queue; a VM one for its monitor's threads and
/// one a vCPU.
fn queues_counted(spec: &TenantSpec) -> u32 {
    match spec.kind {
        TenantKind::Container => 1,
        TenantKind::Vm => 1 + spec.vcpus,
    }
}

/// A container has as many entries as vCPUs: each is claimed in one of its own (`handover.bpf.h`).
fn queues_needed(kind: TenantKind, vcpus: u32) -> u32 {
    match kind {
        TenantKind::Container => vcpus.max(1),
        TenantKind::Vm => 1 + vcpus,
    }
}
