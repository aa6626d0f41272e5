//! A tenant that shares no core, beside everybody else there is, all of them wanting every CPU.

use std::rc::Rc;

use rota_model::config::{Source, parse};
use rota_model::{Model, Topology};
use rota_sim::observe::{Event, Observer, Sanity};
use rota_sim::programs::{Hog, Intermittent};
use rota_sim::rota::Rota;
use rota_sim::{Costs, CpuId, CpuMask, Machine, Simulation, TaskSpec, Tenants, UnitId, apart};

const US: u64 = 1_000;
const MS: u64 = 1_000_000;

/// Cores 2, 3 and 4 are for tenants; the bank needs one CPU's half, and gets the second core with both CPUs.
const CONFIG: &str = r#"
[host]
cpus = "0-7"
housekeeping = "0-1"
siblings = ["0-1", "2-3", "4-5", "6-7"]

[[tenant]]
name = "bank"
class = "reserved"
share = 0.5
latency = "20ms"
exclusive_cores = true
match = { cgroup = "bank" }

[[tenant]]
name = "web"
class = "reserved"
vcpus = 4
share = 0.5
latency = "20ms"
match = { cgroup = "web" }

[[tenant]]
name = "batch"
class = "shared"
match = { cgroup = "batch" }

[[tenant]]
name = "spare"
class = "background"
match = { cgroup = "spare" }
"#;

const CPUS: u32 = 8;
const BANKS: [CpuId; 2] = [CpuId(2), CpuId(3)];

/// Who runs where.
struct Neighbours {
    bank: UnitId,
    /// Watches from then on.
    from_ns: u64,
    bank_ran: u32,
    /// Strangers that may run on the bank's CPUs only.
    bound_ran: u32,
    found: Vec<(u64, CpuId, UnitId)>,
}

impl Observer for Neighbours {
    fn observe(&mut self, machine: &Machine, event: Event) {
        let Event::Runs(cpu, task) = event else { return };
        if machine.now_ns() < self.from_ns {
            return;
        }
        let task = machine.task(task);
        let elsewhere = (0..CPUS).map(CpuId).any(|cpu| !BANKS.contains(&cpu) && task.may_run_on(cpu));
        match (task.unit == self.bank, BANKS.contains(&cpu)) {
            (true, true) => self.bank_ran += 1,
            (false, true) if !elsewhere => self.bound_ran += 1,
            (false, false) => {}
            _ => self.found.push((machine.now_ns(), cpu, task.unit)),
        }
    }
}

fn model(config: &str) -> Model {
    let source = Source { path: "rota.toml".into(), text: config.to_owned() };
    parse(&[source], &Topology::default()).unwrap_or_else(|errors| panic!("{errors}"))
}

fn on(cpus: &[u32], spec: TaskSpec) -> TaskSpec {
    TaskSpec { affinity: Some(Rc::new(CpuMask::of(CPUS, cpus.iter().copied().map(CpuId)))), ..spec }
}

fn loads(tenants: &mut Tenants) -> Vec<TaskSpec> {
    let mut specs: Vec<TaskSpec> = Vec::new();
    for number in 0..6 {
        specs.push(tenants.thread("batch", Hog));
        specs.push(tenants.thread("spare", Hog));
        specs.push(tenants.thread("spare", Intermittent::new(50 * US, 2 * MS)));
        specs.push(tenants.thread("batch", Intermittent::new(50 * US, 2 * MS)));
        specs.push(tenants.thread("web", Intermittent::new(100 * US, 3 * MS)));
        specs.push(on(&[2, 4 + number % 4], tenants.thread("batch", Hog)));
        specs.push(on(&[3, 4 + number % 4], tenants.thread("spare", Intermittent::new(50 * US, MS))));
        specs.push(on(&[2, 3, 6], tenants.system(Intermittent::new(50 * US, MS))));
    }
    specs.push(tenants.thread("bank", Hog));
    specs.push(tenants.thread("bank", Intermittent::new(50 * US, 2 * MS)));
    specs.push(on(&[3], tenants.thread("batch", Hog)));
    specs.push(on(&[2], tenants.thread("spare", Hog)));
    specs
}

type Run = Simulation<Rota, (Neighbours, Sanity)>;

/// Everybody is here, and the table in force.
fn start(config: &str) -> (Run, Tenants) {
    let model = model(config);
    let policy = Rota::new(&model).expect("a host");
    let watch =
        Neighbours { bank: UnitId(1), from_ns: u64::MAX, bank_ran: 0, bound_ran: 0, found: Vec::new() };
    let observers = (watch, Sanity::new(30_000 * MS));
    let topology = model.host.topology.clone();
    let mut run = Simulation::new(topology, Costs::default(), 3, 1_000 * MS, policy, observers);
    let mut tenants = Tenants::new(&mut run.machine, &model);
    assert_eq!(tenants.home("bank").first_unit, run.observer.0.bank);
    for home in tenants.homes() {
        run.act(|run| run.policy.appears(&mut run.machine, &home.tenant.name, home.cgroup));
    }
    for spec in loads(&mut tenants) {
        run.spawn(spec);
    }
    watch_for(&mut run, 2_000 * MS);
    (run, tenants)
}

/// Lets changes settle, then sees who is where.
fn watch_for(run: &mut Run, time_ns: u64) {
    let now_ns = run.machine.now_ns();
    run.run_until(now_ns + 2_000 * MS);
    assert!(run.policy.is_settled(), "{:?}", run.policy.said());
    let watch = &mut run.observer.0;
    (watch.bank_ran, watch.bound_ran, watch.from_ns) = (0, 0, run.machine.now_ns());
    watch.found.clear();
    run.run_until(now_ns + 2_000 * MS + time_ns);
    assert_eq!(run.policy.exited().cloned(), None, "{:?}", run.policy.said());
    assert_eq!(run.observer.1.finish(&run.machine), []);
}

fn is_kept_apart(run: &Run) -> bool {
    let Neighbours { bank_ran, bound_ran, found, .. } = &run.observer.0;
    assert!(*bank_ran > 100 && *bound_ran > 10, "{bank_ran} and {bound_ran}");
    found.is_empty()
}

#[test]
fn nobody_else_is_on_the_core_who_can_be_elsewhere() {
    apart(|| {
        let (mut run, tenants) = start(CONFIG);
        assert!(is_kept_apart(&run), "{:?}", run.observer.0.found);
        // Gone, and back again.
        let cgroup = tenants.home("bank").cgroup;
        run.act(|run| run.policy.vanishes(&mut run.machine, "bank"));
        watch_for(&mut run, 500 * MS);
        let found = run.observer.0.found.len();
        // Only those who have no slots: the others keep the CPUs that they have.
        assert!(found > 200, "the core is everybody's again: {found}");
        run.act(|run| run.policy.appears(&mut run.machine, "bank", cgroup));
        watch_for(&mut run, 2_000 * MS);
        assert!(is_kept_apart(&run), "{:?}", run.observer.0.found);
    });
}

#[test]
fn without_the_key_everybody_is_on_it() {
    apart(|| {
        let (run, _) = start(&CONFIG.replace("exclusive_cores = true", ""));
        assert!(!is_kept_apart(&run));
    });
}
