//! Where the scheduler says that threads' time went, beside where it went.

use rota_model::Topology;
use rota_sched::{Profile, Spent};
use rota_sim::observe::{self, Metrics, Spending};
use rota_sim::programs::sync::Patience;
use rota_sim::programs::{Benchmark, Hog, Intermittent, Load, Locking, Periodic, Rounds, Server, Waiting};
use rota_sim::{
    Costs, CpuId, Device, DeviceId, Distribution, Program, Script, Simulation, Site, TaskSpec, Tenants,
    UnitId,
};
use rota_twin::{Rota, apart};

use crate::host::model;

const US: u64 = 1_000;
const MS: u64 = 1_000_000;

type Run = Simulation<Rota, (Spending, Metrics)>;

const HOST: &str = r#"
[host]
cpus = "0-2"
housekeeping = "0"
[[tenant]]
name = "web"
class = "reserved"
share = 0.5
latency = "20ms"
match = { cgroup = "web" }
[[tenant]]
name = "lock"
class = "shared"
match = { cgroup = "lock" }
[[tenant]]
name = "rounds"
class = "shared"
match = { cgroup = "rounds" }
[[tenant]]
name = "server"
class = "shared"
match = { cgroup = "server" }
[[tenant]]
name = "hog"
class = "shared"
match = { cgroup = "hog" }
[[tenant]]
name = "batch"
class = "background"
match = { cgroup = "batch" }
"#;

const NAMES: [&str; 6] = ["web", "lock", "rounds", "server", "hog", "batch"];

struct Here<'r>(&'r mut Run);

impl Site for Here<'_> {
    fn attach(&mut self, device: Box<dyn Device>) -> DeviceId {
        self.0.attach(device, CpuId(0), Some(0))
    }
}

fn start(text: &str) -> (Run, Tenants) {
    let model = model(text);
    let policy = Rota::new(&model).expect("a host");
    let topology: Topology = model.host.topology.clone();
    let mut run =
        Run::new(topology, Costs::default(), 1, 1_000 * MS, policy, <(Spending, Metrics)>::default());
    let tenants = Tenants::new(&mut run.machine, &model);
    for home in tenants.homes() {
        run.act(|run| run.policy.appears(&mut run.machine, &home.tenant.name, home.cgroup));
    }
    while !run.policy.is_settled() {
        run.run_until(run.machine.now_ns() + 10 * MS);
    }
    (run, tenants)
}

/// The profile of a tenant's only queue; tenants and units have the same numbers here.
fn told(run: &mut Run, tenants: &Tenants, name: &str) -> Profile {
    let id = tenants.home(name).unit(0).0;
    let queues = run.policy.queues(&mut run.machine);
    queues.into_iter().find(|queue| queue.tenant == id).expect("its queue").profile
}

fn truth(run: &mut Run, unit: UnitId) -> observe::Spent {
    run.observer.0.of(&mut run.machine, unit)
}

/// In the order of [`Spent::ALL`].
fn spent(truth: &observe::Spent) -> [u64; 7] {
    let [others, devices, time, interrupt, unknown] = truth.blocked_ns;
    [truth.running_ns, truth.waiting_ns, others, devices, time, interrupt, unknown]
}

/// Within 1 % of all.
fn is_near(told: u64, truth: u64, of_all: u64) -> bool {
    told.abs_diff(truth) <= of_all / 100
}

fn spawn(run: &mut Run, tenants: &mut Tenants) {
    let uniform = |from, to| Distribution::Uniform(from, to);
    let lock = Locking {
        threads: 3,
        outside: uniform(500 * US, 2 * MS),
        inside: uniform(300 * US, MS),
        waiting: Waiting::Unordered(Patience::NONE),
    };
    let rounds = Rounds { threads: 3, compute: uniform(MS, 3 * MS), patience: Patience::NONE };
    let load = Load::Open(Distribution::Constant(2 * MS));
    let server = Server { threads: 2, service: uniform(100 * US, 400 * US), load };
    let mut specs: Vec<TaskSpec> = Vec::new();
    let mut add = |name: &str, programs: Vec<Script>| {
        specs.extend(programs.into_iter().map(|program| tenants.thread(name, program)));
    };
    add("lock", lock.programs());
    add("rounds", rounds.programs());
    add("server", server.programs(&mut Here(run)));
    let others = [
        tenants.thread("web", Hog),
        tenants.thread("web", Periodic::new(3 * MS, 9 * MS)),
        tenants.thread("hog", Hog),
        tenants.thread("batch", Hog),
        tenants.thread("batch", Periodic::new(MS, 20 * MS)),
    ];
    for spec in specs.into_iter().chain(others) {
        run.spawn(spec);
    }
}

#[test]
fn what_is_told_is_what_was() {
    apart(|| {
        let (mut run, mut tenants) = start(HOST);
        spawn(&mut run, &mut tenants);
        run.run_until(run.machine.now_ns() + 3_000 * MS);
        for name in NAMES {
            let unit = tenants.home(name).unit(0);
            let (told, truth) = (told(&mut run, &tenants, name), truth(&mut run, unit));
            let all = truth.total_ns();
            for (kind, (told, truth)) in Spent::ALL.iter().zip(told.spent_ns.iter().zip(spent(&truth))) {
                assert!(is_near(*told, truth, all), "{name}: {kind:?}: {told} and not {truth} of {all}");
            }
            let preemptions = run.observer.1.counted(unit).expect("it has run").preemptions;
            assert_eq!((told.preempted, told.yields), (preemptions, 0), "{name}");
            if name == "batch" {
                continue; // it waits for a second at a time, for longer than a CPU remembers
            }
            assert!(told.waited_unseen_ns < all / 100, "{name}: {told:?}");
            for &(other, ns) in &told.waited_for {
                let truth = truth.waited_for.get(&UnitId(other)).copied().unwrap_or_default();
                assert!(is_near(ns, truth, all), "{name} for {other}: {ns} and not {truth} of {all}");
            }
        }
        // What each is about: synchronisation, devices, time, and waits for others.
        let part = |run: &mut Run, name, kind| {
            let profile = told(run, &tenants, name);
            profile.spent_ns[kind as usize] as f64 / profile.spent_ns.iter().sum::<u64>() as f64
        };
        assert!(part(&mut run, "rounds", Spent::Others) > 0.05);
        assert!(part(&mut run, "server", Spent::Devices) > 0.3);
        assert!(part(&mut run, "batch", Spent::Waiting) > 0.3);
    });
}

/// A host whose tenants are a program of four threads, as many that interfere, and a reserved one.
const BESIDE: &str = r#"
[host]
cpus = "0-4"
housekeeping = "0"
[[tenant]]
name = "program"
class = "shared"
vcpus = 4
match = { cgroup = "program" }
[[tenant]]
name = "interference"
class = "shared"
vcpus = 4
match = { cgroup = "interference" }
[[tenant]]
name = "web"
class = "reserved"
share = 0.2
latency = "20ms"
match = { cgroup = "web" }
"#;

type Interference = (&'static str, fn() -> Box<dyn Program>);

/// After Zhao's dissertation, section 3.2.4.
const INTERFERENCE: [Interference; 3] = [
    ("persistent", || Box::new(Hog)),
    ("periodic", || Box::new(Periodic::default())),
    ("intermittent", || Box::new(Intermittent::default())),
];

/// Each a program of PARSEC or the NAS benchmarks; whether it waits in a loop.
const PROGRAMS: [(&str, bool); 8] = [
    ("parsec.streamcluster", false),
    ("parsec.facesim", false),
    ("parsec.canneal", false),
    ("parsec.raytrace", false),
    ("npb.cg", true),
    ("npb.sp", true),
    ("npb.ua", true),
    ("npb.is", false),
];

/// Beside each interference, where the scheduler says that the time of parallel programs went is where it went.
#[test]
fn what_is_told_of_parallel_programs_is_what_was() {
    for ((name, spins), (kind, interference)) in
        PROGRAMS.into_iter().flat_map(|program| INTERFERENCE.map(|kind| (program, kind)))
    {
        apart(|| {
            let (mut run, mut tenants) = start(BESIDE);
            let patience = if spins { Patience::ENDLESS } else { Patience::NONE };
            let mut program = Benchmark::find(name).expect("a stand-in").with_threads(4);
            program.patience = patience;
            let mut specs: Vec<TaskSpec> =
                program.programs().into_iter().map(|program| tenants.thread("program", program)).collect();
            specs.extend((0..4).map(|_| tenants.thread("interference", interference())));
            specs.push(tenants.thread("web", Periodic::new(3 * MS, 9 * MS)));
            for spec in specs {
                run.spawn(spec);
            }
            run.run_until(run.machine.now_ns() + 2_000 * MS);
            for tenant in ["program", "interference", "web"] {
                let unit = tenants.home(tenant).unit(0);
                let (told, truth) = (told(&mut run, &tenants, tenant), truth(&mut run, unit));
                let (all, what) = (truth.total_ns(), format!("{tenant} of {name} beside {kind}"));
                for (spent, (told, truth)) in Spent::ALL.iter().zip(told.spent_ns.iter().zip(spent(&truth))) {
                    assert!(is_near(*told, truth, all), "{what}: {spent:?}: {told}, not {truth} of {all}");
                }
                for &(other, ns) in &told.waited_for {
                    let truth = truth.waited_for.get(&UnitId(other)).copied().unwrap_or_default();
                    assert!(is_near(ns, truth, all), "{what} for {other}: {ns}, not {truth} of {all}");
                }
            }
            let waiting = told(&mut run, &tenants, "program").spent_ns[Spent::Waiting as usize];
            assert!(waiting > 50 * MS, "{name} beside {kind} has waited: {waiting}");
        });
    }
}
