//! Whether each CPU does what the table in force says, slot by slot, as far as the machine lets it: an owner that waits
//! is served in its slot, who is capped has nothing beyond its slots, no more threads of a tenant run at once than it
//! has vCPUs, and no CPU idles that could serve one of its own.
//!
//! It knows the tables and who belongs to whom, from the daemon, and what happens on the machine; nothing of how the
//! scheduler decides. Between two events nothing changes on a CPU but the slot that is in force, so all is counted from
//! event to event, slot by slot in between.

use std::collections::BTreeMap;
use std::rc::Rc;

use rota_model::{Model, TenantId};
use rota_sim::observe::{Event, Observer};
use rota_sim::{CpuId, Machine, TaskId};
use rota_twin::{Deed, Journal};

use super::finding::{Fault, Finding};
use super::spare::Spare;
use super::threads::{Thread, Threads};
use super::timetable::Timetable;
use super::watch::Watch;
use super::windows::Windows;

/// A thread that has waited for so long may have a turn of anyone's time: a little less than 5 s, as it is seen to wait
/// when it is queued, and by the scheduler when it is looked for.
const STARVING_NS: u64 = 4_900_000_000;

/// A turn ends with a tick after this quantum.
const TURN_MAX_NS: u64 = 4_000_000 + 4_000_000;

/// The observer.
pub struct Service {
    journal: Journal,
    read: usize,
    /// What the scheduler decides takes effect within this time: a late timer, a kick, a change of tasks.
    late_ns: u64,
    /// The one in force first, then those that will be.
    tables: Vec<Rc<Timetable>>,
    threads: Threads,
    spare: Spare,
    windows: Windows,
    cpus: Vec<Watch>,
    /// Each CPU: whether it is kept for the system.
    housekeeping: Vec<bool>,
    /// More threads of a tenant run than it has vCPUs, since when, and where that began.
    crowded_since_ns: BTreeMap<TenantId, (u64, CpuId)>,
    /// When tables or bindings changed last, or something about a thread from outside.
    changed_ns: u64,
    /// When a thread's affinity or cgroup changed last.
    moved_ns: u64,
    /// Since when a table holds of which the daemon has yet to see that; u64::MAX: there is none.
    unsettled_ns: u64,
    /// There is no daemon now.
    is_daemon_away: bool,
    /// When the daemon saw that last.
    settled_ns: u64,
    /// Until when interrupts or the hypervisor have a CPU, perhaps the daemon's.
    stolen_until_ns: u64,
    /// The kernel runs the threads itself from now on.
    over: bool,
    slots: u64,
    found: Option<Finding>,
}

impl Service {
    pub fn new(model: &Model, now_ns: u64, journal: Journal, late_ns: u64) -> Service {
        let cpus = model.host.topology.places.last().map_or(0, |place| place.cpu + 1);
        let watch = Watch::new(now_ns);
        Service {
            journal,
            read: 0,
            late_ns,
            tables: Vec::new(),
            threads: Threads::default(),
            spare: Spare::new(cpus, late_ns),
            windows: Windows::default(),
            cpus: vec![watch; cpus as usize],
            housekeeping: (0..cpus).map(|cpu| model.host.housekeeping.contains(cpu)).collect(),
            crowded_since_ns: BTreeMap::new(),
            changed_ns: now_ns,
            moved_ns: 0,
            unsettled_ns: u64::MAX,
            is_daemon_away: false,
            settled_ns: 0,
            stolen_until_ns: 0,
            over: false,
            slots: 0,
            found: None,
        }
    }

    /// The first that was found.
    pub fn found(&self) -> Option<&Finding> {
        self.found.as_ref()
    }

    /// How many slots have gone by.
    pub fn slots(&self) -> u64 {
        self.slots
    }

    pub fn threads(&self) -> &Threads {
        &self.threads
    }

    /// What a tenant has had in no slot of its own, in ns.
    pub fn had_ns(&self, tenant: TenantId) -> u64 {
        self.spare.had_ns(tenant)
    }

    /// So much of that no scheduler could give to others: the CPU was away, or is the system's or another tenant's own.
    pub fn kept_ns(&self, tenant: TenantId) -> u64 {
        self.spare.kept_ns(tenant)
    }

    /// Each CPU: whether it is kept for the system.
    pub fn housekeeping(&self) -> &[bool] {
        &self.housekeeping
    }

    /// The table in force.
    pub fn table(&self, now_ns: u64) -> Option<&Rc<Timetable>> {
        self.tables.iter().rev().find(|table| table.from_ns <= now_ns)
    }

    /// The table that will be in force next, if there is one.
    pub fn coming(&self, now_ns: u64) -> Option<&Rc<Timetable>> {
        self.tables.iter().find(|table| table.from_ns > now_ns)
    }

    /// Since when a CPU has nothing to run, nor is away.
    pub fn idle_since_ns(&self, cpu: CpuId) -> Option<u64> {
        let watch = &self.cpus[cpu.index()];
        watch.current.is_none().then(|| watch.stopped_ns.max(watch.excused_until_ns))
    }

    /// Whether something that no scheduler can stop has had the CPU after that time.
    pub fn is_taken_since(&self, cpu: CpuId, since_ns: u64) -> bool {
        let watch = &self.cpus[cpu.index()];
        watch.overtaken || watch.free_ns() > since_ns
    }

    /// Whether something that no scheduler can stop has a CPU.
    pub fn is_any_taken(&self, now_ns: u64) -> bool {
        self.cpus.iter().any(|watch| watch.overtaken || now_ns < watch.excused_until_ns)
    }

    /// Whether interrupts or the hypervisor have a CPU.
    pub fn is_stolen(&self, now_ns: u64) -> bool {
        now_ns < self.stolen_until_ns
    }

    /// From here on what the scheduler decides takes effect within so many ns.
    pub fn bound(&mut self, machine: &Machine, late_ns: u64) {
        self.look(machine);
        self.late_ns = late_ns;
        self.spare.bound(late_ns);
        self.forgive(machine.now_ns());
    }

    /// When tables or bindings changed last, or something about a thread.
    pub fn changed_ns(&self) -> u64 {
        self.changed_ns
    }

    /// Counts everything up to now.
    pub fn look(&mut self, machine: &Machine) {
        self.read_journal(machine);
        self.advance_all(machine.now_ns());
        if !self.over {
            self.look_at_crowds(machine.now_ns());
        }
    }

    /// A thread's affinity or cgroup was changed from outside.
    pub fn changed(&mut self, machine: &Machine, task: TaskId) {
        self.look(machine);
        self.threads.changed(machine, task);
        self.forgive(machine.now_ns());
        self.moved_ns = machine.now_ns();
    }

    /// What is not as it should be may be so for good reason until now.
    fn forgive(&mut self, now_ns: u64) {
        self.changed_ns = now_ns;
        self.spare.forget();
        self.windows.forget();
        for watch in &mut self.cpus {
            (watch.unserved_ns, watch.overdrawn_ns, watch.intrudes_ns, watch.idle_ns) = (0, 0, 0, 0);
        }
    }

    fn read_journal(&mut self, machine: &Machine) {
        if self.journal.borrow().len() == self.read {
            return;
        }
        let journal = self.journal.clone();
        let mut owners_change = false;
        for (at_ns, deed) in &journal.borrow()[self.read..] {
            self.advance_all(*at_ns);
            owners_change |= self.threads.told(deed);
            if matches!(deed, Deed::Settled) {
                (self.unsettled_ns, self.settled_ns) = (u64::MAX, *at_ns);
            }
            if let Deed::Away(away) = deed {
                self.is_daemon_away = *away;
            }
            if let Deed::Table(from_ns, table) = deed {
                self.unsettled_ns = *from_ns;
                let in_force = self.tables.iter().rposition(|table| table.from_ns <= *at_ns);
                self.tables.drain(..in_force.unwrap_or(0));
                self.tables.push(Rc::new(Timetable::new(*from_ns, table)));
                self.cpus.iter_mut().for_each(|watch| watch.until_ns = watch.until_ns.min(*from_ns));
            }
            self.forgive(*at_ns);
        }
        self.read = journal.borrow().len();
        if owners_change {
            self.threads.recount(machine);
        }
    }

    fn advance_all(&mut self, now_ns: u64) {
        (0..self.cpus.len()).for_each(|cpu| self.advance(cpu, now_ns));
    }

    /// Counts what a CPU has done since it was looked at last.
    fn advance(&mut self, cpu: usize, now_ns: u64) {
        while self.cpus[cpu].at_ns < now_ns {
            let watch = &self.cpus[cpu];
            let (at_ns, excused_until_ns) = (watch.at_ns, watch.excused_until_ns);
            if self.table(at_ns).is_some_and(|table| !table.residents(cpu).is_empty()) {
                self.enter_window(cpu, at_ns);
            } else if at_ns >= watch.until_ns || watch.until_ns == u64::MAX {
                self.enter_slot(cpu, at_ns);
            }
            let mut to_ns = self.cpus[cpu].until_ns.min(now_ns);
            let away = at_ns < excused_until_ns;
            if away {
                to_ns = to_ns.min(excused_until_ns);
            }
            self.judge(cpu, to_ns - at_ns, away);
            self.cpus[cpu].at_ns = to_ns;
        }
    }

    fn enter_slot(&mut self, cpu: usize, at_ns: u64) {
        let next_ns = self.tables.iter().map(|table| table.from_ns).find(|from_ns| *from_ns > at_ns);
        let (slot, until_ns) = self.table(at_ns).map_or((None, u64::MAX), |table| table.owner(cpu, at_ns));
        let watch = &mut self.cpus[cpu];
        if slot != watch.slot {
            watch.unserved_ns = 0;
            self.spare.blurs(cpu);
        }
        self.slots += u64::from(slot.is_some());
        (watch.slot, watch.until_ns) = (slot, until_ns.min(next_ns.unwrap_or(u64::MAX)));
    }

    /// The same where vCPUs are served in windows: the slot is that of whom the CPU serves within its budget.
    fn enter_window(&mut self, cpu: usize, at_ns: u64) {
        let next_ns = self.tables.iter().map(|table| table.from_ns).find(|from_ns| *from_ns > at_ns);
        let Some(table) = self.table(at_ns).cloned() else { return };
        let (mut until_ns, over, found) = self.windows.roll(&table, cpu, at_ns, self.turn_late_ns());
        self.slots += over;
        if let Some(fault) = found {
            self.find(at_ns, fault);
        }
        let runs = self.cpus[cpu].current.map(|task| self.threads.thread(task).owner);
        let owner = runs.and_then(|owner| self.windows.owner(&table, cpu, owner));
        if let Some((_, left_ns)) = owner {
            until_ns = until_ns.min(at_ns.saturating_add(left_ns));
        }
        let watch = &mut self.cpus[cpu];
        let slot = owner.map(|(vcpu, _)| vcpu);
        if slot != watch.slot {
            self.spare.blurs(cpu);
        }
        (watch.slot, watch.until_ns) = (slot, until_ns.min(next_ns.unwrap_or(u64::MAX)));
    }

    /// A turn may end so late.
    fn turn_late_ns(&self) -> u64 {
        self.late_ns / 3
    }

    /// A CPU has gone on for so long as it is.
    fn judge(&mut self, cpu: usize, ns: u64, away: bool) {
        let watch = &self.cpus[cpu];
        let (at_ns, late_ns) = (watch.at_ns, self.late_ns);
        let table = self.table(at_ns).cloned();
        let slot = table.as_ref().zip(watch.slot).map(|(table, vcpu)| &table.vcpus[vcpu as usize]);
        let runs = watch.current.map(|task| self.threads.thread(task));
        let serves = |thread: &Thread| slot.is_some_and(|slot| thread.owner.may_use(slot.tenant, slot.index));
        let beyond = runs.filter(|thread| !serves(thread));
        let overtaken = watch.overtaken;
        self.note_beyond(cpu, table.as_deref(), beyond, ns, away);
        let is_excused = away || overtaken || self.over || self.is_daemon_held(at_ns);
        if let Some(table) = &table {
            let runs = runs.filter(|_| !overtaken);
            self.windows.passes(&self.threads, table, (cpu, at_ns, ns), runs, is_excused);
        }
        let Some(table) = table.as_ref().filter(|_| !is_excused) else {
            self.spare.forget_cpu(cpu);
            let watch = &mut self.cpus[cpu];
            (watch.unserved_ns, watch.overdrawn_ns, watch.intrudes_ns, watch.idle_ns) = (0, 0, 0, 0);
            return;
        };
        let in_vain = self.windows.in_vain(&self.threads, table, cpu, self.turn_late_ns());
        let unserved = slot.or(in_vain).filter(|slot| {
            // While a tenant's promise changes it has the weaker of both.
            let is_promised = slot.index < self.threads.vcpus(slot.tenant);
            (runs.is_none() || beyond.is_some())
                && is_promised
                && self.threads.waits(slot.tenant, slot.index)
                && !self.is_kept_elsewhere(table, slot.tenant, at_ns)
                && !beyond.is_some_and(|thread| self.has_turn_of_starving(table, &thread, at_ns))
        });
        let overdrawn = beyond.filter(|thread| thread.free && is_capped(table, thread));
        let intruder = runs.filter(|thread| self.intrudes(table, cpu, thread, at_ns));
        let idle_for = if runs.is_none() { self.local_that_waits(table, cpu, at_ns) } else { None };
        let unfair = beyond
            .filter(|_| table.residents(cpu).iter().all(|vcpu| is_seen(table, *vcpu)))
            .and_then(|thread| self.spare.serves(&self.threads, table, cpu, &thread, ns));
        let watch = &mut self.cpus[cpu];
        let lasts = |lasted_ns: &mut u64, goes_on: bool| {
            *lasted_ns = if goes_on { *lasted_ns + ns } else { 0 };
            (*lasted_ns > late_ns).then_some(*lasted_ns)
        };
        let found = [
            lasts(&mut watch.unserved_ns, unserved.is_some()).zip(unserved).map(|(ns, slot)| {
                Fault::Unserved { cpu: CpuId(cpu as u32), tenant: slot.tenant, vcpu: slot.index, ns }
            }),
            lasts(&mut watch.overdrawn_ns, overdrawn.is_some()).zip(overdrawn).map(|(ns, thread)| {
                Fault::Overdrawn { cpu: CpuId(cpu as u32), tenant: thread.owner.tenant, ns }
            }),
            lasts(&mut watch.intrudes_ns, intruder.is_some()).zip(intruder).map(|(ns, thread)| {
                Fault::Intrudes { cpu: CpuId(cpu as u32), tenant: thread.owner.tenant, ns }
            }),
            lasts(&mut watch.idle_ns, idle_for.is_some()).zip(idle_for).map(|(ns, tenant)| Fault::Idle {
                cpu: CpuId(cpu as u32),
                tenant,
                ns,
            }),
            unfair,
        ];
        if let Some(fault) = found.into_iter().flatten().next() {
            self.find(at_ns + ns, fault);
        }
    }

    /// A thread has run for so long beyond its tenant's slots.
    fn note_beyond(
        &mut self,
        cpu: usize,
        table: Option<&Timetable>,
        beyond: Option<Thread>,
        ns: u64,
        away: bool,
    ) {
        // No line of those with a weight is served where the system, or another tenant, has its own CPUs.
        let is_closed = self.housekeeping[cpu] || table.is_some_and(|table| table.is_exclusive(cpu));
        if let Some(thread) = beyond {
            self.spare.had(thread.owner.tenant, ns, away || is_closed);
        }
    }

    fn find(&mut self, at_ns: u64, fault: Fault) {
        self.found.get_or_insert(Finding { at_ns, fault });
    }

    /// Whether the daemon may be held up, or away, before it has sent those who wait to where a new table has them:
    /// promises that this table is the first to make begin only then.
    pub fn is_daemon_held(&self, at_ns: u64) -> bool {
        self.unsettled_ns <= at_ns && (self.is_daemon_away || at_ns < self.stolen_until_ns)
    }

    /// Whether something that no scheduler can stop has another CPU of the tenant, which may have its vCPU still, or a
    /// thread of it.
    fn is_kept_elsewhere(&self, table: &Timetable, tenant: TenantId, at_ns: u64) -> bool {
        let is_kept = |watch: &Watch| watch.overtaken || at_ns < watch.free_ns() + self.late_ns;
        // It may have it since an older table.
        let has = |watch: &Watch| {
            watch.current.is_some_and(|task| self.threads.thread(task).owner.tenant == tenant)
        };
        table.homes(tenant).iter().any(|cpu| is_kept(&self.cpus[*cpu as usize]))
            || self.cpus.iter().any(|watch| has(watch) && is_kept(watch))
    }

    /// Whether the CPU is the system's or another tenant's alone, and has been since before the thread's turn, which is
    /// free to run elsewhere.
    fn intrudes(&self, table: &Timetable, cpu: usize, thread: &Thread, at_ns: u64) -> bool {
        let tenant = thread.owner.tenant;
        let has_slots = !table.vcpus_of(tenant).is_empty();
        let is_settled = at_ns > self.changed_ns.max(table.from_ns) + TURN_MAX_NS + self.late_ns;
        let is_open = |cpu: usize| !self.housekeeping[cpu] && !table.is_exclusive(cpu);
        let is_others = (table.is_exclusive(cpu) && !table.homes(tenant).contains(&(cpu as u32)))
            || (self.housekeeping[cpu] && (has_slots || self.threads.is_shared(tenant)));
        thread.free && is_settled && is_others && (has_slots || (0..self.cpus.len()).any(is_open))
    }

    /// Whether a thread without slots may have the turn of a line in which another one has starved: the first has it.
    fn has_turn_of_starving(&self, table: &Timetable, thread: &Thread, at_ns: u64) -> bool {
        let is_in_line = |thread: &Thread| table.vcpus_of(thread.owner.tenant).is_empty();
        let has_starved =
            |thread: &Thread| thread.waits_since_ns.is_some_and(|since_ns| since_ns + STARVING_NS <= at_ns);
        is_in_line(thread) && self.threads.all().any(|(_, other)| is_in_line(other) && has_starved(other))
    }

    /// A tenant that may have what is left on this CPU, has nothing on another, and waits. One with several vCPUs may
    /// wait for any of its CPUs, and is told of one.
    fn local_that_waits(&self, table: &Timetable, cpu: usize, at_ns: u64) -> Option<TenantId> {
        let waits = |vcpu: &&u32| {
            let vcpu = &table.vcpus[**vcpu as usize];
            self.threads.sole_waits(vcpu.tenant, vcpu.index)
                && !self.is_kept_elsewhere(table, vcpu.tenant, at_ns)
        };
        table.locals(cpu).iter().find(waits).map(|vcpu| table.vcpus[*vcpu as usize].tenant)
    }

    /// A thread is about to wait or not, or to run or not. Where that may matter is counted up to now before.
    fn set(&mut self, machine: &Machine, task: TaskId, waits: bool, runs_on: Option<CpuId>) {
        let now_ns = machine.now_ns();
        let Thread { owner, runs_on: before, .. } = self.threads.thread(task);
        // Where one waits already it does not matter how many do, unless one keeps a CPU of an older table.
        let matters = self.threads.waiting(owner) < 2 - u32::from(waits);
        for place in 0..self.tables.len() {
            let table = self.tables[place].clone();
            let homes = table.homes(owner.tenant);
            if matters || before.is_some_and(|cpu| !homes.contains(&cpu.0)) {
                for &cpu in homes {
                    self.advance(cpu as usize, now_ns);
                }
            }
        }
        self.threads.set(machine, task, waits.then_some(now_ns), runs_on);
        if !waits && runs_on.is_none() {
            self.spare.rests(&self.threads, self.threads.thread(task).owner, now_ns);
        }
    }

    fn runs(&mut self, machine: &Machine, cpu: CpuId, id: TaskId) {
        let now_ns = machine.now_ns();
        self.advance(cpu.index(), now_ns);
        let waited_ns = self.threads.thread(id).waits_since_ns.map_or(0, |since_ns| now_ns - since_ns);
        self.set(machine, id, false, Some(cpu));
        let task = machine.task(id);
        let is_bound = task.kernel_thread && task.nr_cpus_allowed == 1;
        let watch = &mut self.cpus[cpu.index()];
        watch.current = Some(id);
        if let Some(table) = self.table(now_ns).cloned() {
            self.windows.starts(&table, cpu.index(), self.threads.thread(id).owner);
        }
        let watch = &mut self.cpus[cpu.index()];
        if let Some(before) = watch.stopped.take_if(|_| task.realtime.is_some() && watch.stopped_ns == now_ns)
        {
            self.threads.falls_behind(machine, before);
        }
        watch.overtaken = is_bound || task.realtime.is_some() || waited_ns >= STARVING_NS;
        let tenant = self.threads.thread(id).owner.tenant;
        if self.is_crowded(tenant, now_ns) {
            self.crowded_since_ns.entry(tenant).or_insert((now_ns, cpu));
        }
    }

    /// Whether more threads of a tenant run than the table has vCPUs of it.
    fn is_crowded(&self, tenant: TenantId, now_ns: u64) -> bool {
        let vcpus = self.table(now_ns).map_or(0, |table| table.vcpus_of(tenant).len());
        vcpus > 0 && self.threads.running(tenant) > vcpus as u32
    }

    /// Looks at whose threads are too many at once, and for how long.
    fn look_at_crowds(&mut self, now_ns: u64) {
        let mut crowds = std::mem::take(&mut self.crowded_since_ns);
        crowds.retain(|tenant, _| self.is_crowded(*tenant, now_ns));
        let settled_ns = self.changed_ns.max(self.table(now_ns).map_or(0, |table| table.from_ns));
        let settled_ns = settled_ns.max(self.moved_ns + TURN_MAX_NS);
        for (&tenant, (since_ns, cpu)) in &mut crowds {
            // Those who waited in another line are sent on by the daemon, and may be served there before.
            if self.is_daemon_held(now_ns) || !self.is_crowded_but_for(tenant, now_ns) {
                *since_ns = now_ns;
            } else if now_ns > settled_ns.max(*since_ns) + self.late_ns {
                let running = self.threads.running(tenant);
                self.find(now_ns, Fault::Crowded { cpu: *cpu, tenant, running });
            }
        }
        self.crowded_since_ns = crowds;
    }

    /// Whether there are too many beside those left over from before: where interrupts or the hypervisor have had the
    /// CPU since the table holds and the daemon has seen that, so that nobody could take it from them. A thread that
    /// waited in a CPU's background line may have been served there until the daemon had sent it to its tenant's queue.
    fn is_crowded_but_for(&self, tenant: TenantId, now_ns: u64) -> bool {
        let Some(table) = self.table(now_ns) else { return false };
        let begins_ns = table.from_ns.max(self.settled_ns);
        let is_left = |watch: &&Watch| {
            let is_its = |task: TaskId| {
                self.threads.thread(task).free && self.threads.thread(task).owner.tenant == tenant
            };
            watch.current.is_some_and(is_its)
                && watch.away_since_ns <= begins_ns + self.late_ns
                && now_ns < watch.away_until_ns + self.late_ns
        };
        let left = self.cpus.iter().filter(is_left).count() as u32;
        self.threads.running(tenant) > table.vcpus_of(tenant).len() as u32 + left
    }

    fn stops(&mut self, machine: &Machine, cpu: CpuId, task: TaskId, runnable: bool) {
        self.advance(cpu.index(), machine.now_ns());
        self.set(machine, task, runnable, None);
        let watch = &mut self.cpus[cpu.index()];
        if std::mem::take(&mut watch.overtaken) {
            watch.overtaken_ns = machine.now_ns();
        }
        watch.current = None;
        (watch.stopped, watch.stopped_ns) = (runnable.then_some(task), machine.now_ns());
        let tenant = self.threads.thread(task).owner.tenant;
        if !self.crowded_since_ns.is_empty() && !self.is_crowded(tenant, machine.now_ns()) {
            self.crowded_since_ns.remove(&tenant);
        }
    }
}

/// Whether it is seen what the vCPU's tenant has beyond its budgets: not of several vCPUs on a CPU that serves them in
/// windows.
fn is_seen(table: &Timetable, vcpu: u32) -> bool {
    let tenant = table.vcpus[vcpu as usize].tenant;
    table.homes(tenant).iter().all(|cpu| table.is_alone(*cpu as usize, tenant))
}

/// Whether the thread's tenant has slots and is to have nothing beyond.
fn is_capped(table: &Timetable, thread: &Thread) -> bool {
    let first = table.vcpus_of(thread.owner.tenant).first();
    first.is_some_and(|vcpu| table.vcpus[*vcpu as usize].reservation.capped)
}

impl Observer for Service {
    fn observe(&mut self, machine: &Machine, event: Event) {
        if self.over {
            return;
        }
        self.read_journal(machine);
        match event {
            Event::Woken(task) if self.threads.thread(task).runs_on.is_none() => {
                self.set(machine, task, true, None);
                let owner = self.threads.thread(task).owner;
                if let Some(table) = self.table(machine.now_ns()).cloned() {
                    let homes = table.homes(owner.tenant).iter();
                    homes.for_each(|cpu| self.windows.wakes(&table, *cpu as usize, owner));
                }
            }
            Event::Runs(cpu, task) => self.runs(machine, cpu, task),
            Event::Stops(cpu, task, runnable) => self.stops(machine, cpu, task, runnable),
            Event::Stolen(cpu, _, ns) => {
                self.advance(cpu.index(), machine.now_ns());
                let watch = &mut self.cpus[cpu.index()];
                watch.excused_until_ns = watch.excused_until_ns.max(machine.now_ns()) + ns;
                if watch.away_until_ns + self.late_ns < machine.now_ns() {
                    watch.away_since_ns = machine.now_ns();
                }
                watch.away_until_ns = watch.away_until_ns.max(machine.now_ns()) + ns;
                self.stolen_until_ns = self.stolen_until_ns.max(watch.excused_until_ns);
            }
            Event::Hotplug(..) => {
                self.look(machine);
                self.over = true;
            }
            Event::Born(_) | Event::Died(_) | Event::Woken(_) | Event::Work(..) | Event::Latency(..) => {}
        }
    }
}
