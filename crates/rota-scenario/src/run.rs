//! A scenario under a policy: everybody is there, the policy settles, and then it is measured.

use std::collections::BTreeMap;
use std::rc::Rc;

use anyhow::{Result, bail, ensure};
use rota_model::{Class, Tenant, TenantId};
use rota_sim::observe::{Digest, Insane, Lags, Metrics, Sanity, Spending, Trace, UnitMetrics};
use rota_sim::{
    CacheCounters, Contender, CpuId, CpuMask, Guest, Home, Memory, Simulation, TaskId, TaskSpec, Tenants,
};
use rota_twin::apart;

use super::{Member, Scenario};
use crate::policies::Entry;
use crate::recorder::Recorder;
use crate::replay::EARLY_NS;
use crate::sampling::Held;
use crate::spent::TimeSpent;

/// How a scenario is run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Of all chance, if not the scenario's own.
    pub seed: Option<u64>,
    /// Whether every event is kept.
    pub trace: bool,
}

/// What came out.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The seed it had.
    pub seed: u64,
    /// When the measurement began, in ns.
    pub began_ns: u64,
    /// For how long it went on.
    pub window_ns: u64,
    /// How many CPUs the host has.
    pub cpus: u32,
    /// Each tenant, in the configuration's order, but for the system's own.
    pub tenants: Vec<TenantOutcome>,
    /// CPU time that threads received while it was measured, of all tenants and of none.
    pub received_ns: u64,
    /// How often a CPU decided what it runs, while it was measured.
    pub decisions: u64,
    /// How many vCPUs changed places for their caches, while it was measured.
    pub moved: u64,
    /// How many events the simulator went through, warm-up included.
    pub events: u64,
    /// Of all that was observed, warm-up included: the same if and only if it went the same way.
    pub digest: u64,
    /// What no scheduler may do and this one did, with the time.
    pub insane: Vec<(u64, Insane)>,
    /// Every event, if it was wanted.
    pub trace: Option<Trace>,
    /// What each thread is called: its tenant, and its number there.
    pub names: Vec<String>,
}

/// What a tenant got.
#[derive(Clone, Debug)]
pub struct TenantOutcome {
    /// What the configuration says of it.
    pub tenant: Tenant,
    /// In how many parts it was measured: one for a container, one for each vCPU of a VM. Times add up over them.
    pub units: u32,
    /// What it got while it was measured.
    pub metrics: UnitMetrics,
    /// The same window in [`INTERVALS`] parts of the same length.
    pub service: Vec<Service>,
    /// How far it was from what is fair, if it is one of several that share by weight.
    pub deviation: Option<Deviation>,
    /// What its threads spent the measured time on.
    pub spent: TimeSpent,
    /// What counters said of its threads while it was measured, if caches are simulated for one of them.
    pub caches: Option<CacheCounters>,
}

/// How far a tenant is behind what is fair, or ahead: see [`Lags`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Deviation {
    /// At the end of each of [`INTERVALS`] parts of the window, in ns of CPU time; negative if it is ahead.
    pub lag_ns: Vec<i64>,
    /// The most that it was behind at any time.
    pub behind_max_ns: u64,
    /// The most that it was ahead.
    pub ahead_max_ns: u64,
}

/// What a tenant got in a part of the window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Service {
    /// CPU time, in ns.
    pub received_ns: u64,
    /// Time in which it would have run, or ran; of a VM the sum over its vCPUs.
    pub wanted_ns: u64,
}

/// In so many parts a run is looked at.
pub const INTERVALS: u64 = 100;

/// A policy that has not settled so long after the warm-up never will.
const SETTLE_MAX_NS: u64 = 60_000_000_000;

/// Who waits for longer starves: the kernel's watchdog for sched_ext gives a thread that long at most.
pub const WATCHDOG_NS: u64 = 30_000_000_000;

/// A tenant's threads, and what they ask of memory.
type Threads = (TenantId, Vec<TaskId>, Option<Memory>);

type Seen = ((Metrics, Option<Lags>, Spending), Sanity, (Digest, Option<Trace>, Option<Recorder>));
pub(super) type Run = Simulation<Box<dyn Contender>, Seen>;

/// A scenario under a policy that has settled: what is simulated from here on is measured.
///
/// A thread has one, once, as it has one scheduler of Rota's: see [`apart`].
pub struct Session<'s> {
    pub(super) scenario: &'s Scenario,
    policy: &'static str,
    pub(super) run: Run,
    pub(super) tenants: Tenants,
    pub(super) names: Vec<String>,
    /// What can be told when its vCPUs have their slots.
    guests: BTreeMap<TenantId, Guest>,
    /// Decisions before the measurement, and vCPUs moved.
    decisions: u64,
    moved: u64,
    /// Each tenant's threads, and what counters said of them before the measurement.
    pub(super) threads: Vec<Counted>,
}

/// A tenant, its threads, and what counters say of them.
type Counted = (String, Vec<TaskId>, Option<CacheCounters>);

impl Scenario {
    /// Runs it under a policy, in a thread of its own. `progress` is told from time to time how many of [`INTERVALS`]
    /// parts are done.
    ///
    /// # Errors
    ///
    /// The policy cannot be made for this host, it does not come to rest with these tenants, or it gives up.
    pub fn run(&self, policy: &Entry, options: Options, progress: &(dyn Fn(u64) + Sync)) -> Result<Outcome> {
        apart(|| self.start(policy, options)?.measure(progress))
    }

    /// Has everybody appear and the policy settle.
    ///
    /// # Errors
    ///
    /// The policy cannot be made for this host, or does not come to rest with these tenants.
    pub fn start(&self, policy: &Entry, options: Options) -> Result<Session<'_>> {
        self.start_held(policy, options, None)
    }

    /// The same with some threads that can be held off.
    pub(crate) fn start_held(
        &self,
        policy: &Entry,
        options: Options,
        held: Option<&Held>,
    ) -> Result<Session<'_>> {
        let seed = options.seed.unwrap_or(self.seed);
        let trace = options.trace.then(Trace::default);
        let observers = (
            (Metrics::default(), None, Spending::default()),
            Sanity::new(WATCHDOG_NS),
            (Digest::default(), trace, None),
        );
        let (topology, made) = (self.model.host.topology.clone(), (policy.make)(&self.model)?);
        let mut run = Run::new(topology, self.costs.clone(), seed, 0, made, observers);
        if let Some(kib) = self.replay.as_ref().and_then(|replay| replay.shared_kib) {
            run.machine.set_shared_cache(kib);
        }
        let mut tenants = self.homes(&mut run);
        run.observer.0.1 = self.lags(&tenants);
        for home in tenants.homes() {
            run.act(|run| run.policy.appears(&mut run.machine, home));
        }
        let (names, threads, guests) = self.populate(&mut run, &mut tenants, held);
        let name = |id: TenantId| self.model.tenants[id as usize].name.clone();
        let counted = threads.iter().map(|(id, tasks, _)| (name(*id), tasks.clone(), None));
        let mut counted: Vec<Counted> = counted.collect();
        if let Some(interference) = &self.interference {
            interference.begin(&mut run, threads, self.warm_up_ns);
        }
        self.settle(&mut run)?;
        run.observer.0.0.begin(&mut run.machine);
        run.observer.0.2.begin(&mut run.machine);
        if let Some(lags) = &mut run.observer.0.1 {
            lags.begin(&run.machine);
        }
        counted.iter_mut().for_each(|(_, tasks, before)| *before = counters(&run, tasks));
        let (decisions, moved) = (run.decisions(), run.policy.moved(&run.machine));
        let session = Session {
            scenario: self,
            policy: policy.name,
            run,
            tenants,
            names,
            guests,
            decisions,
            moved,
            threads: counted,
        };
        session.publish();
        Ok(session)
    }

    fn homes(&self, run: &mut Run) -> Tenants {
        let mut tenants = Tenants::new(&mut run.machine, &self.model);
        for (id, tenant) in (0..).zip(&self.model.tenants) {
            if let Some(limits) = self.replay.as_ref().and_then(|replay| replay.limits(id)) {
                tenants.limit(&tenant.name, limits);
            }
        }
        tenants
    }

    /// Watches the tenants that share by weight, if there are two.
    fn lags(&self, tenants: &Tenants) -> Option<Lags> {
        let cpus = self.model.host.tenant_cpus();
        let mut lags = Lags::default();
        for (home, weight) in sharers(tenants) {
            let units = (0..=home.last_unit()).map(|index| home.unit(index));
            lags.tenant(units, weight, home.tenant.vcpu_cpus(0, &cpus).len() as u32);
        }
        (sharers(tenants).count() > 1).then_some(lags)
    }

    /// Starts every thread, and returns their names, and whose they are.
    fn populate(
        &self,
        run: &mut Run,
        tenants: &mut Tenants,
        held: Option<&Held>,
    ) -> (Vec<String>, Vec<Threads>, BTreeMap<TenantId, Guest>) {
        let mut guests = BTreeMap::new();
        let mut counts: BTreeMap<&str, u32> = BTreeMap::new();
        let mut threads: BTreeMap<TenantId, BTreeMap<u32, i32>> = BTreeMap::new();
        let (mut names, mut all) = (Vec::new(), BTreeMap::<TenantId, Threads>::new());
        for Member { tenant: id, vcpu, guest, working_set_kib, memory, standing, program } in
            self.members(run)
        {
            guests.extend(id.zip(guest));
            let tenant = id.map(|id| &self.model.tenants[id as usize]);
            let name = tenant.map_or(Tenant::SYSTEM, |tenant| &tenant.name);
            let whose = id.zip(tenant.map(|tenant| tenant.class));
            let program = match held {
                Some(held) => held.thread(whose, program),
                None => program,
            };
            let spec = match (name, vcpu) {
                (Tenant::SYSTEM, _) => tenants.system(program),
                (name, Some(index)) => tenants.vcpu(name, index, program),
                (name, None) => tenants.thread(name, program),
            };
            if let (Some(id), Some(index)) = (id, vcpu) {
                threads.entry(id).or_default().insert(index, spec.pid);
            }
            let own = standing.affinity.map(Rc::new);
            let confines = run.policy.confines() || self.replay.is_some();
            let affinity = own.or_else(|| Some(self.confined(tenant?, vcpu)).filter(|_| !confines));
            let task = run.spawn(TaskSpec {
                working_set_kib,
                memory,
                affinity,
                kernel_thread: standing.kernel_thread,
                realtime: standing.realtime,
                weight: standing.weight,
                ..spec
            });
            if let Some(id) = id {
                all.entry(id).or_insert((id, Vec::new(), memory)).1.push(task);
            }
            let number = counts.entry(name).or_default();
            let program = self.replay.as_ref().map_or("", |replay| replay.name(names.len()));
            names.push([name, "/", &number.to_string(), " ", program].concat().trim_end().to_owned());
            *number += 1;
        }
        for (id, threads) in threads {
            let home = tenants.home(&self.model.tenants[id as usize].name);
            run.act(|run| run.policy.vcpu_threads(&mut run.machine, home, threads));
        }
        (names, all.into_values().collect(), guests)
    }

    /// The CPUs of a thread, where only its affinity keeps it there.
    fn confined(&self, tenant: &Tenant, vcpu: Option<u32>) -> Rc<CpuMask> {
        let host = &self.model.host;
        let cpus = match tenant.name.as_str() {
            Tenant::SYSTEM => host.cpus.clone(),
            _ => tenant.vcpu_cpus(vcpu.unwrap_or(0), &host.tenant_cpus()),
        };
        let nr_cpus = host.topology.places.last().map_or(0, |place| place.cpu + 1);
        Rc::new(CpuMask::of(nr_cpus, cpus.iter().map(CpuId)))
    }

    fn settle(&self, run: &mut Run) -> Result<()> {
        if let Some(replay) = &self.replay {
            run.run_until(self.warm_up_ns - EARLY_NS);
            if !run.policy.confines() {
                replay.place(&mut run.machine);
            }
        }
        let mut until_ns = self.warm_up_ns;
        run.run_until(until_ns);
        while !run.policy.is_settled() {
            ensure!(
                until_ns < self.warm_up_ns + SETTLE_MAX_NS,
                "the policy does not settle with these tenants"
            );
            until_ns += SETTLE_MAX_NS / 600;
            run.run_until(until_ns);
        }
        Ok(())
    }
}

impl Session<'_> {
    /// Simulates so many ns more.
    pub fn advance(&mut self, ns: u64) {
        let until_ns = self.run.machine.now_ns() + ns;
        self.run.run_until(until_ns);
    }

    /// Tells guests when their vCPUs have their slots, by the table in force: it may have changed.
    fn publish(&self) {
        for (&id, guest) in &self.guests {
            let home = self.tenants.home(&self.scenario.model.tenants[id as usize].name);
            guest.publish(self.run.policy.timetable(home));
        }
    }

    /// How many events there were so far.
    pub fn events(&self) -> u64 {
        self.run.events()
    }

    /// Simulates the scenario's duration, and says what came out.
    fn measure(mut self, progress: &(dyn Fn(u64) + Sync)) -> Result<Outcome> {
        let (began_ns, window_ns) = (self.run.observer.0.0.began_ns(), u128::from(self.scenario.duration_ns));
        let mut readings = vec![vec![Service::default(); self.tenants.homes().len()]];
        let mut lags = BTreeMap::new();
        for part in 1..=INTERVALS {
            self.resize(part - 1);
            let done_ns = window_ns * u128::from(part) / u128::from(INTERVALS);
            self.run.run_until(began_ns + done_ns as u64);
            self.publish();
            readings.push(read(&mut self.run, &self.tenants));
            self.read_lags(&mut lags);
            progress(part);
        }
        self.is_fit()?;
        Ok(self.outcome(&readings, lags))
    }

    /// Adds where each tenant that shares by weight is now, by its name.
    fn read_lags(&mut self, found: &mut BTreeMap<String, Deviation>) {
        let Some(lags) = &mut self.run.observer.0.1 else { return };
        for ((home, _), lag) in sharers(&self.tenants).zip(lags.so_far(&self.run.machine)) {
            let of_tenant = found.entry(home.tenant.name.clone()).or_default();
            of_tenant.lag_ns.push(lag.now_ns);
            of_tenant.behind_max_ns = lag.behind_ns as u64;
            of_tenant.ahead_max_ns = lag.ahead_ns as u64;
        }
    }

    /// Whether the policy is still in charge.
    pub(super) fn is_fit(&self) -> Result<()> {
        match self.run.policy.failed() {
            Some(reason) => bail!("{} gave up: {reason}", self.policy),
            None => Ok(()),
        }
    }

    fn outcome(self, readings: &[Vec<Service>], mut lags: BTreeMap<String, Deviation>) -> Outcome {
        let Session { scenario, mut run, tenants, names, decisions, moved, threads, .. } = self;
        let caches = |name: &str, run: &Run| {
            let (_, tasks, before) = threads.iter().find(|(tenant, ..)| tenant == name)?;
            let (before, now) = (before.unwrap_or_default(), counters(run, tasks)?);
            Some(now.since(before))
        };
        let metrics = run.observer.0.0.finish(&mut run.machine);
        let spent = run.observer.0.2.so_far(&mut run.machine).to_vec();
        let homes = tenants.homes().iter().enumerate();
        let outcomes = homes.map(|(place, home)| TenantOutcome {
            tenant: home.tenant.clone(),
            units: home.units().len() as u32,
            metrics: joined(home, &metrics),
            service: readings.windows(2).map(|pair| pair[1][place].since(pair[0][place])).collect(),
            deviation: lags.remove(&home.tenant.name),
            spent: TimeSpent::of(home, &spent, &tenants),
            caches: caches(&home.tenant.name, &run),
        });
        let outcomes = outcomes.collect();
        Outcome {
            seed: run.machine.seed(),
            began_ns: run.observer.0.0.began_ns(),
            window_ns: scenario.duration_ns,
            cpus: scenario.model.host.cpus.len() as u32,
            tenants: outcomes,
            received_ns: metrics.iter().map(|unit| unit.received_ns).sum(),
            decisions: run.decisions() - decisions,
            moved: run.policy.moved(&run.machine) - moved,
            events: run.events(),
            digest: run.observer.2.0.value(),
            insane: run.observer.1.finish(&run.machine).to_vec(),
            trace: run.observer.2.1.take(),
            names,
        }
    }
}

impl Outcome {
    /// What a thread is called.
    pub fn name(&self, task: TaskId) -> &str {
        self.names.get(task.index()).map_or("?", String::as_str)
    }
}

impl Service {
    fn since(self, before: Service) -> Service {
        Service {
            received_ns: self.received_ns - before.received_ns,
            wanted_ns: self.wanted_ns - before.wanted_ns,
        }
    }
}

/// Those that share by weight, with their weights.
fn sharers(tenants: &Tenants) -> impl Iterator<Item = (&Home, u32)> {
    tenants.homes().iter().filter_map(|home| match home.tenant.class {
        Class::Shared { weight } => Some((home, weight)),
        Class::Reserved(_) | Class::Background => None,
    })
}

/// What counters say of threads together; none if caches are simulated for none of them.
pub(super) fn counters(run: &Run, tasks: &[TaskId]) -> Option<CacheCounters> {
    let all = tasks.iter().filter_map(|&task| run.machine.cache_counters(task));
    all.reduce(CacheCounters::plus)
}

/// What each tenant has got so far.
fn read(run: &mut Run, tenants: &Tenants) -> Vec<Service> {
    let units = run.observer.0.0.so_far(&mut run.machine);
    let of_home = |home: &Home| {
        let read = home.units().into_iter().filter_map(|(unit, _)| units.get(unit.index()));
        read.fold(Service::default(), |sum, (received_ns, wanted_ns)| Service {
            received_ns: sum.received_ns + received_ns,
            wanted_ns: sum.wanted_ns + wanted_ns,
        })
    };
    tenants.homes().iter().map(of_home).collect()
}

fn joined(home: &Home, metrics: &[UnitMetrics]) -> UnitMetrics {
    let mut joined = UnitMetrics::default();
    for metrics in home.units().into_iter().filter_map(|(unit, _)| metrics.get(unit.index())) {
        joined.join(metrics);
    }
    joined
}
