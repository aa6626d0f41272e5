//! What holds for every policy, whatever tasks do and whatever is done to them: no task is lost, none is where it may
//! not be, no CPU has two; and no CPU idles while a task waits that it could run, where the policy promises that.

use proptest::prelude::*;
use rota_model::config::Source;
use rota_model::{Class, CpuPlace, Reservation, Share, Team, Tenant, Topology};
use rota_scenario::Scenario;
use rota_scenario::policies::{Entry, POLICIES};
use rota_sim::observe::{Event, Sanity, Trace};
use rota_sim::programs::Periodic;
use rota_sim::{
    Cgroup, CgroupId, Contender, Costs, CpuId, Home, Machine, Observer, Rng, Script, Simulation, State,
    TaskId, TaskSpec, Thread, UnitId,
};

const US: u64 = 1_000;
const MS: u64 = 1_000_000;

/// Nobody waits longer: not with so few others, weights from 80 to 125, groups in groups at most, and quotas of a
/// quarter of a CPU at least.
const WAIT_MAX: u64 = 5_000 * MS;
const UNTIL: u64 = 3_000 * MS;

/// How long a CPU may idle although a task waits for it: a tick for each CPU of the largest machine.
const IDLE_MAX: u64 = 4 * MS * 9;

/// Policies that leave CPUs idle on purpose: for lack of budget, or since they are not
/// for the task: another socket's, another tenant's, another thread's.
const NOT_CONSERVING: &[&str] = &[
    "rtds",
    "credit2",
    "pin-cfs",
    "pin-credit",
    "relaxed-co",
    "pin-relaxed-co",
    "irs",
    "irs-cfs",
    "gleaner",
];

/// Watches for CPUs that idle while a task waits that may run there.
#[derive(Default)]
struct Conserving {
    since_ns: Vec<Option<u64>>,
    longest_ns: u64,
}

impl Observer for Conserving {
    fn observe(&mut self, machine: &Machine, _: Event) {
        self.since_ns.resize(machine.nr_cpus() as usize, None);
        for cpu in (0..machine.nr_cpus()).map(CpuId) {
            let idles = machine.cpu(cpu).online && machine.cpu(cpu).current.is_none();
            let wasted =
                idles && machine.tasks().any(|(_, task)| task.state == State::Queued && task.may_run_on(cpu));
            let since_ns = &mut self.since_ns[cpu.index()];
            match wasted {
                true => _ = since_ns.get_or_insert(machine.now_ns()),
                false => *since_ns = None,
            }
            let lasted_ns = since_ns.map_or(0, |since_ns| machine.now_ns() - since_ns);
            self.longest_ns = self.longest_ns.max(lasted_ns);
        }
    }
}

type Run = Simulation<Box<dyn Contender>, (Sanity, Conserving)>;

/// What is drawn for a run.
#[derive(Clone, Debug)]
struct Options {
    seed: u64,
    cpus: u32,
    tasks: u32,
    /// Groups may have `cpu.max`, or be tenants with reservations.
    limits: bool,
    hotplug: bool,
    costs: bool,
}

fn options() -> impl Strategy<Value = Options> {
    (any::<u64>(), 1..9u32, 1..16u32, any::<bool>(), any::<bool>(), any::<bool>()).prop_map(
        |(seed, cpus, tasks, limits, hotplug, costs)| Options { seed, cpus, tasks, limits, hotplug, costs },
    )
}

/// Computes, sleeps, yields, stays where it is for a while, and wakes others or waits for them, by chance.
async fn anything(thread: Thread, tasks: u32) {
    loop {
        let short_ns = thread.draw(|rng| rng.between(1, 300 * US));
        let long_ns = thread.draw(|rng| rng.between(1, 20 * MS));
        match thread.draw(|rng| rng.below(10)) {
            0..3 => thread.compute(short_ns).await,
            3..5 => thread.compute(long_ns).await,
            5..7 => thread.sleep(short_ns).await,
            7 => thread.sleep(long_ns).await,
            8 => _ = thread.step(rota_sim::Step::Yield).await,
            _ => {
                let other = TaskId(thread.draw(|rng| rng.below(u64::from(tasks))) as u32);
                thread.wake(other);
                let until_ns = thread.now_ns() + long_ns;
                thread.step(rota_sim::Step::Wait(Some(until_ns))).await;
            }
        }
        if thread.draw(|rng| rng.chance(1, 2_000)) {
            return;
        }
    }
}

/// A reserved tenant; what it is promised, policies make of it what they can.
fn tenant(rng: &mut Rng) -> Tenant {
    let share = Share::from_ppb(rng.between(250_000_000, 500_000_000) as u32).expect("it is one");
    let capped = rng.chance(1, 2);
    Tenant {
        name: "tenant".to_owned(),
        class: Class::Reserved(Reservation { share, latency_ns: rng.between(10, 100) * MS, capped }),
        vcpus: rng.between(1, 3) as u32,
        affinity: None,
        pinned: false,
        exclusive_cores: false,
        oversubscribe: true,
        team: Team::default(),
        matcher: None,
    }
}

fn cgroups(run: &mut Run, rng: &mut Rng, limits: bool) -> Vec<CgroupId> {
    let mut cgroups = vec![CgroupId::ROOT];
    for _ in 0..rng.below(5) {
        let parent = cgroups[rng.below(cgroups.len().min(2) as u64) as usize];
        let max =
            limits.then(|| (rng.between(10, 50) * MS, rng.between(20, 40) * MS)).filter(|_| rng.chance(1, 2));
        let weight = rng.between(80, 125) as u32;
        let cgroup = run.machine.cgroup_new(Cgroup { parent: Some(parent), weight, max });
        cgroups.push(cgroup);
        if limits && rng.chance(1, 2) {
            let home =
                Home { tenant: tenant(rng), cgroup, first_unit: UnitId(0), is_vm: false, limits: None };
            run.act(|run| run.policy.appears(&mut run.machine, &home));
        }
    }
    cgroups
}

/// Some CPUs, at least one.
fn some_cpus(rng: &mut Rng, cpus: u32) -> Vec<CpuId> {
    let mut some: Vec<CpuId> = (0..cpus).map(CpuId).filter(|_| rng.chance(1, 2)).collect();
    some.push(CpuId(rng.below(u64::from(cpus)) as u32));
    some
}

fn spawn(run: &mut Run, rng: &mut Rng, options: &Options, cgroups: &[CgroupId]) {
    let tasks = options.tasks;
    let cgroup = cgroups[rng.below(cgroups.len() as u64) as usize];
    let mut spec = TaskSpec::new(100, UnitId(0), cgroup, Script::new(move |thread| anything(thread, tasks)));
    spec.weight = rng.between(80, 125) as u32;
    if rng.chance(1, 3) {
        spec.affinity = Some(run.machine.mask(some_cpus(rng, options.cpus)));
    }
    run.spawn(spec);
}

/// Something is done to the machine from outside.
fn disturb(run: &mut Run, rng: &mut Rng, options: &Options, cgroups: &[CgroupId]) {
    let alive: Vec<TaskId> = run
        .machine
        .tasks()
        .filter(|(_, task)| task.state != State::Dead && task.realtime.is_none())
        .map(|(id, _)| id)
        .collect();
    let task = alive.get(rng.below(alive.len().max(1) as u64) as usize).copied();
    match (rng.below(6), task) {
        (0 | 1, Some(task)) => {
            let mask = run.machine.mask(some_cpus(rng, options.cpus));
            run.set_affinity(task, mask);
        }
        (2, Some(task)) => run.set_cgroup(task, cgroups[rng.below(cgroups.len() as u64) as usize]),
        (3 | 4, _) if options.hotplug => {
            let cpu = CpuId(rng.below(u64::from(options.cpus)) as u32);
            let online = (0..options.cpus).filter(|&cpu| run.machine.cpu(CpuId(cpu)).online).count();
            match run.machine.cpu(cpu).online {
                true if online > 1 => run.offline(cpu),
                _ => run.online(cpu),
            }
        }
        _ if alive.len() < 16 => spawn(run, rng, options, cgroups),
        _ => {}
    }
}

/// Two sockets, siblings: CPU n and n + 4 are one core.
fn topology(cpus: u32) -> Topology {
    let place = |cpu: u32| {
        let core = cpu % 4;
        CpuPlace { cpu, core, cache: core / 2, node: core / 2, socket: core / 2 }
    };
    Topology { places: (0..cpus).map(place).collect() }
}

/// All but Rota, which is the scheduler of tenants and of nobody else.
fn peers() -> impl Iterator<Item = &'static Entry> {
    POLICIES.iter().filter(|entry| entry.name != "rota")
}

/// The tests' tasks belong to no tenant, and the host is the simulation's own: policies learn nothing from the model.
fn made(peer: &Entry) -> Box<dyn Contender> {
    let text = "[host]\ncpus = \"0\"\n".to_owned();
    let scenario = Scenario::parse(&Source { path: "none.toml".to_owned(), text }).expect("it is one");
    (peer.make)(&scenario.model).expect("it needs nothing of a host")
}

fn simulate(peer: &Entry, options: &Options) -> Run {
    let costs = if options.costs { Costs::default() } else { Costs::FREE };
    let observer = (Sanity::new(WAIT_MAX), Conserving::default());
    let mut run = Simulation::new(topology(options.cpus), costs, options.seed, 0, made(peer), observer);
    let mut rng = Rng::new(options.seed, 1 << 40);
    let cgroups = cgroups(&mut run, &mut rng, options.limits);
    (0..options.tasks).for_each(|_| spawn(&mut run, &mut rng, options, &cgroups));
    let realtime = TaskSpec::new(100, UnitId(1), CgroupId::ROOT, Periodic::new(MS, 30 * MS));
    run.spawn(TaskSpec { realtime: Some(50), ..realtime });
    while run.machine.now_ns() < UNTIL {
        let next_ns = run.machine.now_ns() + rng.between(1, 10 * MS);
        run.run_until(next_ns);
        disturb(&mut run, &mut rng, options, &cgroups);
    }
    run.run_until(UNTIL + WAIT_MAX);
    run
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn nobody_is_lost_or_out_of_place(options in options()) {
        for peer in peers() {
            let mut run = simulate(peer, &options);
            let insane = run.observer.0.finish(&run.machine).first();
            prop_assert_eq!(insane, None, "{}", peer.name);
            if !options.limits && !NOT_CONSERVING.contains(&peer.name) {
                let longest_ns = run.observer.1.longest_ns;
                prop_assert!(longest_ns <= IDLE_MAX, "{}: a CPU idled for {} ns too long", peer.name, longest_ns);
            }
        }
    }
}

/// The same seed gives the same events, another one gives others.
#[test]
fn runs_repeat() {
    for peer in peers() {
        let trace = |seed| {
            let topology = topology(4);
            let mut run = Simulation::new(topology, Costs::default(), seed, 0, made(peer), Trace::default());
            for unit in 0..9 {
                let program = Script::new(move |thread| anything(thread, 9));
                run.spawn(TaskSpec::new(100, UnitId(unit), CgroupId::ROOT, program));
            }
            run.run_until(500 * MS);
            run.observer.events().to_vec()
        };
        assert!(trace(1).len() > 1_000);
        assert_eq!(trace(1), trace(1), "{}", peer.name);
        assert_ne!(trace(1), trace(2), "{}", peer.name);
    }
}
