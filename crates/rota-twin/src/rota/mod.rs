//! Rota in the model: its scheduler's C as a sched_ext scheduler, and its loader.

mod calls;
mod daemon;
mod guest;
mod instance;
mod journal;
mod maps;
mod memory;
mod native;
mod ops;
mod restart;
mod side;

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::Result;
use rota_model::{Cgroup, Interference, Model};
use rota_rules::interference::{Counted, ThreadCount};
use rota_rules::life::Event;
use rota_rules::status::Status;
use rota_sched::{CpuAccount, Options, QueueAccount, Scheduler, Settings};
use rota_sim::{
    Arrival, CacheCounters, CgroupId, Contender, CpuId, Departure, Home, Idle, Machine, Next, Policy, TaskId,
    Timer, Timetable,
};

use crate::ext::{Exit, Ext};
use daemon::Daemon;
pub use guest::GuestAgent;
pub use journal::{Deed, Journal};
pub use native::{Code, Parts};
use ops::NativeOps;
pub use side::Side;

/// The policy: the scheduler in the kernel, and the daemon that tells it what to do.
///
/// A thread has one, once: see [`crate::apart`].
pub struct Rota {
    ext: Ext<NativeOps>,
    options: Options,
    model: Model,
    journal: Option<Journal>,
    is_knowing: bool,
    /// What each daemon has of the scheduler.
    side: Side,
    stage: Stage,
}

/// Before and after the machine has started.
enum Stage {
    Loaded(Side),
    Starting,
    Runs(Box<Running>),
    /// The scheduler, without a daemon.
    Left(Timer),
}

struct Running {
    scheduler: Scheduler<Side>,
    daemon: Daemon,
    timer: Timer,
}

/// The daemon's timer, beside those of the scheduler.
const DAEMON: u64 = 1 << 32;

impl Rota {
    /// The scheduler, loaded for a host and what may come to it.
    ///
    /// # Errors
    ///
    /// The host has more CPUs than the scheduler can have.
    ///
    /// # Panics
    ///
    /// In a thread that has had one before.
    pub fn new(model: &Model) -> Result<Rota> {
        Rota::of(&Code::REAL, model)
    }

    /// The same of a copy of the scheduler.
    ///
    /// # Errors
    ///
    /// As [`Rota::new`].
    ///
    /// # Panics
    ///
    /// As [`Rota::new`].
    pub fn of(code: &Code, model: &Model) -> Result<Rota> {
        let ops = native::take(code);
        let nr_cpus = model.host.topology.places.last().map_or(0, |place| place.cpu + 1);
        let options = rota_rules::capacity(model, nr_cpus);
        let (side, maps) = side::load(code, &Settings::new(&options)?);
        let mut ops = NativeOps::new(ops, native::moment(code), maps, ());
        ops.model.misses = model.host.branch_records.then(Vec::new);
        let ext = Ext::new(ops);
        Ok(Rota {
            ext,
            options,
            model: model.clone(),
            journal: None,
            is_knowing: false,
            side: side.clone(),
            stage: Stage::Loaded(side),
        })
    }

    /// What the daemon will have the scheduler do, as it does it. Before the machine starts.
    pub fn journal(&mut self) -> Journal {
        self.journal.get_or_insert_default().clone()
    }

    /// Its daemon knows each thread's working set, in place of counters, and takes that for what it fetches.
    #[must_use]
    pub fn knowing(mut self) -> Rota {
        self.is_knowing = true;
        self
    }

    /// Programs that wait busily count as they do, so that their registers are never the same.
    #[must_use]
    pub fn counting(mut self) -> Rota {
        self.ext.ops.model.shown.loops_count = true;
        self
    }

    /// What the daemon would show its operator.
    pub fn status(&mut self, machine: &Machine) -> Status {
        self.running().daemon.status(machine.now_ns())
    }

    /// What a processor's counters, or one who knows, would say of each thread.
    fn counts(&self, machine: &mut Machine) -> Vec<ThreadCount> {
        (0..machine.nr_cpus()).for_each(|cpu| machine.settle(CpuId(cpu)));
        let of = |(id, task): (TaskId, &rota_sim::Task)| {
            let CacheCounters { references, misses, .. } = machine.cache_counters(id)?;
            let lines =
                || machine.memory(id).map_or(0, |memory| u64::from(memory.working_set_kib) * 1024 / 64);
            let misses = if self.is_knowing { lines() } else { misses };
            let counted = Counted { ran_ns: task.used_ns, references, misses };
            Some(ThreadCount { cgroup: native::cgroup_id(task.cgroup.0), tid: task.pid, counted })
        };
        machine.tasks().filter(|(_, task)| !task.is_over()).filter_map(of).collect()
    }

    fn running(&mut self) -> &mut Running {
        let Stage::Runs(running) = &mut self.stage else { panic!("the scheduler has not started") };
        running
    }

    /// Tells the daemon, if there is one, what has happened, and has it do what is due, on [`Machine::this_cpu`].
    pub fn tell(&mut self, machine: &mut Machine, event: Event) {
        if self.is_left() {
            return;
        }
        self.running().daemon.tell(event);
        self.run_daemon(machine);
    }

    /// A tenant of the configuration is here, in this cgroup.
    pub fn appears(&mut self, machine: &mut Machine, tenant: &str, cgroup: CgroupId) {
        let found = Cgroup { path: PathBuf::from(tenant), id: native::cgroup_id(cgroup.0) };
        self.tell(machine, Event::Appeared { tenant: tenant.to_owned(), cgroup: found });
    }

    /// It is gone.
    pub fn vanishes(&mut self, machine: &mut Machine, tenant: &str) {
        self.tell(machine, Event::Vanished { tenant: tenant.to_owned() });
    }

    /// The threads that are a VM's vCPUs.
    pub fn vcpu_threads(&mut self, machine: &mut Machine, tenant: &str, threads: BTreeMap<u32, i32>) {
        self.tell(machine, Event::Threads { tenant: tenant.to_owned(), threads });
    }

    fn run_daemon(&mut self, machine: &mut Machine) {
        if self.ext.exited().is_some() {
            return;
        }
        let now_ns = machine.now_ns();
        let is_counted = self.model.host.interference == Interference::Measured;
        let counts = if is_counted { self.counts(machine) } else { Vec::new() };
        let is_knowing = self.is_knowing;
        let Stage::Runs(running) = &mut self.stage else { return };
        let Running { scheduler, daemon, timer } = &mut **running;
        daemon.count(counts, is_knowing);
        let next_ns = self.ext.call(machine, |ops, kernel| {
            calls::enter(kernel, &mut ops.model, || restart::lives(|| daemon.run(scheduler, now_ns)))
        });
        let Some(next_ns) = next_ns else {
            self.stage = Stage::Left(*timer);
            return;
        };
        let this_cpu = machine.this_cpu();
        machine.timer_set(*timer, this_cpu, next_ns);
    }

    /// Asks the loader something.
    pub fn ask<T>(&mut self, machine: &mut Machine, call: impl FnOnce(&Scheduler<Side>) -> T) -> T {
        let Stage::Runs(running) = &mut self.stage else { panic!("the scheduler has not started") };
        self.ext
            .call(machine, |ops, kernel| calls::enter(kernel, &mut ops.model, || call(&running.scheduler)))
    }

    /// What each queue has counted.
    pub fn queues(&mut self, machine: &mut Machine) -> Vec<QueueAccount> {
        self.ask(machine, Scheduler::queues).expect("the model's maps can be read")
    }

    /// What each CPU has counted.
    pub fn cpus(&mut self, machine: &mut Machine) -> Vec<CpuAccount> {
        self.ask(machine, Scheduler::cpus).expect("the model's maps can be read")
    }

    /// Whether every change is in a table that holds.
    pub fn is_settled(&mut self) -> bool {
        !self.is_left() && self.running().daemon.is_settled()
    }

    /// What the daemon has told its operator.
    pub fn said(&mut self) -> Vec<String> {
        if self.is_left() { Vec::new() } else { self.running().daemon.said().to_vec() }
    }

    /// Why the scheduler is no longer in charge.
    pub fn exited(&self) -> Option<&Exit> {
        self.ext.exited()
    }

    /// A task that would run and is in no queue.
    pub fn lost(&self, machine: &Machine) -> Option<TaskId> {
        self.ext.lost(machine)
    }

    /// How long the task that waits longest has waited, in ns: what the kernel's watchdog looks at.
    pub fn longest_wait_ns(&self, machine: &Machine) -> u64 {
        self.ext.longest_wait_ns(machine.now_ns())
    }
}

impl Contender for Rota {
    fn timetable(&self, home: &Home) -> Option<Timetable> {
        let Stage::Runs(running) = &self.stage else { return None };
        let own = running.daemon.own_slots(&home.tenant.name).filter(|_| home.tenant.team.timetable)?;
        let mut timetable = Timetable::new(home.tenant.vcpus);
        own.into_iter().for_each(|own| timetable.set(own.index, own.length_ns, own.slots));
        Some(timetable)
    }

    fn appears(&mut self, machine: &mut Machine, home: &Home) {
        Rota::appears(self, machine, &home.tenant.name, home.cgroup);
    }

    fn vcpu_threads(&mut self, machine: &mut Machine, home: &Home, threads: BTreeMap<u32, i32>) {
        Rota::vcpu_threads(self, machine, &home.tenant.name, threads);
    }

    fn is_settled(&mut self) -> bool {
        Rota::is_settled(self)
    }

    fn confines(&self) -> bool {
        true
    }

    fn moved(&mut self, machine: &Machine) -> u64 {
        let status = (!self.is_left()).then(|| self.status(machine));
        status.and_then(|status| status.interference).map_or(0, |done| done.moves)
    }

    fn failed(&self) -> Option<String> {
        self.exited().map(|exit| format!("the kernel has ended it: {exit}"))
    }
}

/// Passes on to sched_ext.
impl Policy for Rota {
    fn start(&mut self, machine: &mut Machine) {
        let Stage::Loaded(side) = std::mem::replace(&mut self.stage, Stage::Starting) else {
            panic!("the scheduler starts once");
        };
        let attach = || Scheduler::attach(side, &self.options).expect("the model refuses nothing");
        let scheduler = self.ext.call(machine, |ops, kernel| calls::enter(kernel, &mut ops.model, attach));
        self.ext.start(machine);
        let this_cpu = machine.this_cpu();
        let timer = machine.timer_new(this_cpu, DAEMON);
        let daemon = Daemon::new(machine.now_ns(), self.model.clone(), self.journal.clone());
        self.stage = Stage::Runs(Box::new(Running { scheduler, daemon, timer }));
        self.run_daemon(machine);
    }

    fn task_new(&mut self, machine: &mut Machine, task: TaskId) {
        self.ext.task_new(machine, task);
    }

    fn task_dead(&mut self, machine: &mut Machine, task: TaskId) {
        self.ext.task_dead(machine, task);
    }

    fn select_cpu(&mut self, machine: &mut Machine, task: TaskId, arrival: Arrival) -> CpuId {
        self.ext.select_cpu(machine, task, arrival)
    }

    fn enqueue(&mut self, machine: &mut Machine, task: TaskId, arrival: Arrival) {
        self.ext.enqueue(machine, task, arrival);
    }

    fn dequeue(&mut self, machine: &mut Machine, task: TaskId, departure: Departure) {
        self.ext.dequeue(machine, task, departure);
    }

    fn pick(&mut self, machine: &mut Machine, cpu: CpuId) -> Option<TaskId> {
        self.ext.pick(machine, cpu)
    }

    fn put_prev(&mut self, machine: &mut Machine, cpu: CpuId, task: TaskId, next: Next) {
        self.ext.put_prev(machine, cpu, task, next);
    }

    fn set_next(&mut self, machine: &mut Machine, cpu: CpuId, task: TaskId) {
        self.ext.set_next(machine, cpu, task);
    }

    fn yielded(&mut self, machine: &mut Machine, cpu: CpuId, task: TaskId) {
        self.ext.yielded(machine, cpu, task);
    }

    fn tick(&mut self, machine: &mut Machine, cpu: CpuId, task: TaskId) {
        self.ext.tick(machine, cpu, task);
    }

    fn idle(&mut self, machine: &mut Machine, cpu: CpuId, idle: Idle) {
        self.ext.idle(machine, cpu, idle);
    }

    fn timer(&mut self, machine: &mut Machine, cpu: CpuId, key: u64) {
        match key {
            DAEMON => self.run_daemon(machine),
            key => self.ext.timer(machine, cpu, key),
        }
    }

    fn overtaken(&mut self, machine: &mut Machine, cpu: CpuId) {
        self.ext.overtaken(machine, cpu);
    }

    fn deferred(&mut self, machine: &mut Machine, cpu: CpuId) {
        self.ext.deferred(machine, cpu);
    }

    fn foresee(&self, cpu: CpuId, task: Option<TaskId>) {
        self.ext.foresee(cpu, task);
    }

    fn hotplug(&mut self, machine: &mut Machine, cpu: CpuId, online: bool) {
        self.ext.hotplug(machine, cpu, online);
    }
}
