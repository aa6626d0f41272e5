//! A host with its tenants and threads, and what watches them.

use std::collections::{BTreeMap, BTreeSet};

use rota_model::config::Source;
use rota_model::{Model, Reservation, TenantId};
use rota_scenario::{Member, Scenario};
use rota_sched::Cause;
use rota_sim::observe::{Digest, Event, Promise, Promises, Sanity, Tail};
use rota_sim::programs::{Intermittent, Periodic};
use rota_sim::{CpuId, Home, Rng, Simulation, TaskId, Tenants, UnitId};
use rota_twin::{Code, Rota};

use super::finding::{Fault, Finding};
use super::late;
use super::lines::Lines;
use super::service::Service;
use super::swarm::{BOUND_STREAM, Deal, MS, S, Swarm, US, spread};
use super::threads::Owner;
use super::timetable::Timetable;
use super::weights::Weights;

/// Who watches.
pub type Watch = ((Service, Promises), Sanity, (Digest, Tail));
pub type Run = Simulation<Rota, Watch>;

/// When it begins.
pub const START_NS: u64 = S;
/// As the kernel's watchdog.
const WATCHDOG_NS: u64 = 30 * S;
/// What a promise's bound may be passed by: kicks and changes of tasks beyond what the host keeps back.
const SLACK_NS: u64 = 20 * US;
/// Everything is looked at so often.
const LOOK_NS: u64 = MS;
/// Every thread there ever was, and the scheduler's own accounts, so often.
const AUDIT_NS: u64 = 100 * MS;
/// So many events are shown before something that must not be.
const TAIL: usize = 200;
/// More events than this within [`LOOK_NS`] are no progress.
const EVENTS_MAX: u64 = 1_000_000;

/// A tenant of the scene.
#[derive(Clone, Debug, Default)]
pub struct Guest {
    /// The daemon knows that it is here.
    pub present: bool,
    /// The threads that are its vCPUs, if it is a VM.
    pub vcpus: BTreeMap<u32, i32>,
    /// It is a VM, and its monitor has threads of its own.
    pub monitored: bool,
    /// Some of its threads are bound to some CPUs.
    pub bound: bool,
}

/// A host, and who watches it.
pub struct Scene {
    pub swarm: Swarm,
    pub model: Model,
    pub run: Run,
    pub tenants: Tenants,
    /// In the order of the tenants' homes.
    pub guests: Vec<Guest>,
    pub rng: Rng,
    lines: Lines,
    weights: Weights,
    promised: BTreeMap<UnitId, Promise>,
    /// Tenants that have had bound threads.
    bound: BTreeSet<TenantId>,
    /// Whether promises are to be kept to the letter now.
    calm: bool,
    audit_ns: u64,
}

impl Scene {
    /// The last events, for people.
    pub fn last(&self) -> Vec<String> {
        let ((service, _), _, (_, tail)) = &self.run.observer;
        let name = |task: TaskId| {
            let Owner { tenant, vcpu } = service.threads().thread(task).owner;
            let vcpu = vcpu.map_or(String::new(), |vcpu| format!(", its vCPU {vcpu}"));
            format!("thread {} of tenant {tenant}{vcpu}", task.0)
        };
        let line = |&(at_ns, event): &(u64, Event)| {
            let what = match event {
                Event::Born(task) => format!("new: {}", name(task)),
                Event::Woken(task) => format!("woken: {}", name(task)),
                Event::Runs(cpu, task) => format!("CPU {} runs {}", cpu.0, name(task)),
                Event::Stops(cpu, task, true) => format!("CPU {} takes itself from {}", cpu.0, name(task)),
                Event::Stops(cpu, task, false) => format!("CPU {} is left by {}", cpu.0, name(task)),
                Event::Died(task) => format!("over: {}", name(task)),
                other => format!("{other:?}"),
            };
            format!("{at_ns} {what}")
        };
        tail.events().map(line).collect()
    }

    pub fn new(swarm: Swarm, text: &str, rng: Rng, code: &Code) -> Scene {
        let source = Source { path: "farm.toml".to_owned(), text: text.to_owned() };
        let scenario = Scenario::parse(&source).unwrap_or_else(|errors| panic!("{errors}"));
        let mut policy = Rota::of(code, &scenario.model).expect("the scheduler can have such a host");
        let journal = policy.journal();
        let (topology, costs) = (scenario.model.host.topology.clone(), scenario.costs.clone());
        let late_ns = late::most_ns(&swarm, &costs);
        let service = Service::new(&scenario.model, START_NS, journal, late_ns);
        let observers = (
            (service, Promises::new(SLACK_NS)),
            Sanity::new(WATCHDOG_NS),
            (Digest::default(), Tail::new(TAIL)),
        );
        let mut run = Run::new(topology, costs, swarm.seed, START_NS, policy, observers);
        let tenants = Tenants::new(&mut run.machine, &scenario.model);
        let mut scene = Scene {
            lines: Lines::new(late_ns),
            weights: Weights::new(&scenario.model, late_ns),
            guests: vec![Guest::default(); tenants.homes().len()],
            promised: BTreeMap::new(),
            bound: BTreeSet::new(),
            calm: swarm.is_calm(),
            audit_ns: START_NS,
            model: scenario.model.clone(),
            swarm,
            run,
            tenants,
            rng,
        };
        scene.populate(&scenario);
        scene
    }

    /// Starts every thread.
    fn populate(&mut self, scenario: &Scenario) {
        let mut binds = Rng::new(self.swarm.seed, BOUND_STREAM + 1);
        for Member { tenant, vcpu, working_set_kib, program, .. } in scenario.members(&mut self.run) {
            let tenant = tenant.expect("a workload is a tenant's");
            let name = &scenario.model.tenants[tenant as usize].name;
            let mut spec = match vcpu {
                Some(index) => self.tenants.vcpu(name, index, program),
                None => self.tenants.thread(name, program),
            };
            spec.working_set_kib = working_set_kib;
            let place = self.tenants.homes().iter().position(|home| home.tenant.name == *name);
            let guest = &mut self.guests[place.expect("a tenant has a home")];
            if let Some(index) = vcpu {
                guest.vcpus.insert(index, spec.pid);
            }
            if self.swarm.bound && binds.chance(1, 4) {
                guest.bound = true;
                let cpus = (0..spread(&mut binds, 1, 4)).map(|_| binds.below(self.swarm.cpus.into()));
                spec.affinity = Some(self.run.machine.mask(cpus.map(|cpu| CpuId(cpu as u32))));
            }
            self.run.spawn(spec);
        }
        for place in 0..self.guests.len() {
            if self.swarm.monitors && self.tenants.homes()[place].is_vm && self.rng.chance(1, 2) {
                let name = self.tenants.homes()[place].tenant.name.clone();
                let program = Intermittent::new(20 * US, self.rng.between(50, 20_000) * US);
                let spec = self.tenants.thread(&name, program);
                self.guests[place].monitored = true;
                self.run.spawn(spec);
            }
        }
        for _ in 0..self.rng.below(3) {
            let program = Periodic::new(self.rng.between(10, 2_000) * US, self.rng.between(1, 50) * MS);
            let spec = self.tenants.system(program);
            self.run.spawn(spec);
        }
    }

    pub fn now_ns(&self) -> u64 {
        self.run.machine.now_ns()
    }

    pub fn home(&self, place: usize) -> &Home {
        &self.tenants.homes()[place]
    }

    /// The daemon finds a tenant.
    pub fn appears(&mut self, place: usize) {
        let Home { tenant, cgroup, is_vm, .. } = self.home(place).clone();
        self.guests[place].present = true;
        let vcpus = self.guests[place].vcpus.clone();
        self.run.act(|run| {
            run.policy.appears(&mut run.machine, &tenant.name, cgroup);
            if is_vm {
                run.policy.vcpu_threads(&mut run.machine, &tenant.name, vcpus);
            }
        });
    }

    /// The daemon finds that a tenant is gone.
    pub fn vanishes(&mut self, place: usize) {
        let name = self.home(place).tenant.name.clone();
        self.guests[place].present = false;
        self.run.act(|run| run.policy.vanishes(&mut run.machine, &name));
    }

    /// Whether Rota is no longer in charge, for a good reason.
    pub fn is_over(&self) -> bool {
        self.run.policy.exited().is_some() && self.swarm.has(Deal::Hotplug)
    }

    pub fn fail<T>(&self, fault: Fault) -> Result<T, Finding> {
        Err(Finding { at_ns: self.now_ns(), fault })
    }

    /// Simulates up to this time, and looks at everything meanwhile.
    pub fn advance(&mut self, to_ns: u64) -> Result<(), Finding> {
        while self.now_ns() < to_ns {
            let next_ns = to_ns.min(self.now_ns() + LOOK_NS);
            if !self.run.run_within(next_ns, EVENTS_MAX) {
                return self.fail(Fault::Endless);
            }
            self.look()?;
        }
        Ok(())
    }

    /// Whatever went on must not be, from here on; decisions take effect within `late_ns`.
    pub fn begin_liveness(&mut self, late_ns: u64) {
        let Run { machine, observer, .. } = &mut self.run;
        observer.0.0.bound(machine, late_ns);
        self.lines.bound(late_ns);
        self.calm = true;
        self.audit_ns = machine.now_ns() + AUDIT_NS;
    }

    /// Looks at everything.
    pub fn look(&mut self) -> Result<(), Finding> {
        let Run { machine, observer: ((service, promises), sanity, _), .. } = &mut self.run;
        service.look(machine);
        if let Some(finding) = service.found() {
            return Err(finding.clone());
        }
        if let Some((at_ns, insane)) = sanity.found().first() {
            return Err(Finding { at_ns: *at_ns, fault: Fault::Insane(*insane) });
        }
        if let Some(broken) = promises.broken().first() {
            return Err(Finding { at_ns: broken.at_ns, fault: Fault::Broken(*broken) });
        }
        if let Some(exit) = self.run.policy.exited().filter(|_| !self.is_over()) {
            return self.fail(Fault::Exited(format!("{exit:?}")));
        }
        if !self.is_over() {
            self.note_bound();
            self.promise();
            self.lines.look(&self.run.machine, &self.run.observer.0.0)?;
            self.weights.look(&self.run.machine, &self.run.observer.0.0)?;
        }
        if self.now_ns() >= self.audit_ns {
            self.audit_ns = self.now_ns() + AUDIT_NS;
            self.audit()?;
        }
        Ok(())
    }

    /// Tells the observer what is promised now.
    fn promise(&mut self) {
        let now_ns = self.now_ns();
        let service = &self.run.observer.0.0;
        let mut wanted: BTreeMap<UnitId, Promise> = BTreeMap::new();
        if let Some(table) = service.table(now_ns).filter(|_| self.calm) {
            let homes = self.tenants.homes().iter().zip(&self.guests);
            for (home, _) in homes.filter(|(_, guest)| guest.present && !guest.monitored && !guest.bound) {
                let Some(tenant) = service.threads().tenant_of(home.cgroup) else { continue };
                let alike = |next: &Timetable| next.promises(tenant) == table.promises(tenant);
                if service.coming(now_ns).is_none_or(|next| alike(next)) {
                    let mut vcpus = table.promises(tenant);
                    // Of vCPUs that the daemon has taken back nothing is promised, whatever this table has for them.
                    vcpus.retain(|(index, _)| *index < service.threads().vcpus(tenant));
                    wanted.extend(promises(home, &vcpus, now_ns));
                }
            }
        }
        let same =
            |one: Promise, other: Promise| (one.reservation, one.vcpus) == (other.reservation, other.vcpus);
        // What a table is the first to promise begins when the daemon has seen it in force.
        if service.is_daemon_held(now_ns) {
            wanted.retain(|unit, _| self.promised.contains_key(unit));
        }
        let Run { machine, observer: ((_, promises), ..), .. } = &mut self.run;
        self.promised.retain(|unit, promise| {
            let holds = wanted.get(unit).is_some_and(|wanted| same(*wanted, *promise));
            if !holds {
                promises.promise(machine, *unit, None);
            }
            holds
        });
        for (unit, promise) in wanted {
            self.promised.entry(unit).or_insert_with(|| {
                promises.promise(machine, unit, Some(promise));
                promise
            });
        }
    }

    /// What takes long to look at: whether a thread is lost, and what the scheduler says itself.
    fn audit(&mut self) -> Result<(), Finding> {
        if let Some(task) = self.run.policy.lost(&self.run.machine) {
            return self.fail(Fault::Lost(task));
        }
        if self.is_over() || self.run.policy.is_left() {
            return Ok(());
        }
        let mixed: u64 = self.run.policy.cpus(&mut self.run.machine).iter().map(|cpu| cpu.mixed).sum();
        if mixed > 0 {
            return self.fail(Fault::Mixed(mixed));
        }
        for queue in self.run.policy.queues(&mut self.run.machine) {
            // A tenant may want slots that none of its threads can use.
            let wants_in_vain =
                |cause| self.bound.contains(&queue.tenant) && matches!(cause, Cause::Floor | Cause::Rota);
            let is_explained = |cause| self.swarm.explains(cause) || wants_in_vain(cause);
            let mut causes = Cause::ALL.iter().zip(queue.missed_by_cause);
            let blamed = causes.find(|(cause, times)| *times > 0 && !is_explained(**cause));
            if let Some((cause, times)) = blamed {
                let cause = format!("{cause:?}");
                return self.fail(Fault::Missed { tenant: queue.tenant, times, cause });
            }
        }
        Ok(())
    }

    /// Notes of which tenants threads are bound: their accounts are there still when they are gone.
    fn note_bound(&mut self) {
        let threads = self.run.observer.0.0.threads();
        let homes = self.tenants.homes().iter().zip(&self.guests);
        let bound = homes.filter(|(_, guest)| guest.bound);
        self.bound.extend(bound.filter_map(|(home, _)| threads.tenant_of(home.cgroup)));
    }
}

/// What a table promises to each unit of a tenant.
fn promises(home: &Home, vcpus: &[(u32, Reservation)], from_ns: u64) -> Vec<(UnitId, Promise)> {
    let [(_, first), ..] = vcpus else { return Vec::new() };
    match home.is_vm {
        false => vec![(home.unit(0), Promise { reservation: *first, vcpus: vcpus.len() as u32, from_ns })],
        true => vcpus
            .iter()
            .map(|&(index, reservation)| (home.unit(index), Promise { reservation, vcpus: 1, from_ns }))
            .collect(),
    }
}
