//! A tenant that shares no core, beside everybody else there is, all of them wanting every CPU.

use std::rc::Rc;

use rota_model::config::{Source, parse};
use rota_model::{Model, Topology};
use rota_sim::observe::{Event, Observer, Sanity};
use rota_sim::programs::{Hog, Intermittent, Periodic};
use rota_sim::{Costs, CpuId, CpuMask, Machine, Simulation, TaskSpec, Tenants, UnitId};
use rota_twin::{Rota, apart};

use crate::host;

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

/// Where the bank has every CPU to itself that is not kept for the system.
const ALL_BANKS: &str = r#"
[host]
cpus = "0-3"
housekeeping = "0-1"
siblings = ["0-1", "2-3"]

[[tenant]]
name = "bank"
class = "reserved"
share = 0.5
latency = "20ms"
exclusive_cores = true
match = { cgroup = "bank" }

[[tenant]]
name = "batch"
class = "shared"
match = { cgroup = "batch" }

[[tenant]]
name = "spare"
class = "background"
match = { cgroup = "spare" }
"#;

/// CPU 1 is not there. A thread may run there all the same, were it to come; it is not waited for.
#[test]
fn nobody_waits_for_a_cpu_that_is_not_there() {
    apart(|| {
        let config = ALL_BANKS.replace("cpus = \"0-3\"", "cpus = \"0,2-3\"").replace("\"0-1\"", "\"0\"");
        let (mut run, mut tenants) = host::start(&config);
        for tenant in ["batch", "spare"] {
            let thread = tenants.thread(tenant, Hog);
            run.spawn(TaskSpec { affinity: Some(run.machine.mask((0..4).map(CpuId))), ..thread });
        }
        host::settle(&mut run, &tenants);
        let received = host::after(&mut run, 2_000 * MS);
        let of = |name: &str| received[tenants.home(name).first_unit.index()].received_ns;
        assert!(of("batch") > 900 * MS && of("spare") > 0, "{} and {} ns", of("batch"), of("spare"));
    });
}

#[test]
fn threads_that_only_housekeeping_cpus_serve_are_spread_over_them() {
    apart(|| {
        let (mut run, mut tenants) = host::start(ALL_BANKS);
        let threads = [tenants.thread("batch", Hog), tenants.thread("batch", Hog)];
        let threads =
            threads.map(|thread| TaskSpec { affinity: Some(run.machine.mask([CpuId(0)])), ..thread });
        let threads = threads.map(|thread| run.spawn(thread));
        host::settle(&mut run, &tenants);
        let everywhere = run.machine.mask((0..4).map(CpuId));
        for thread in threads {
            run.set_affinity(thread, everywhere.clone());
        }
        let received = host::after(&mut run, 1_000 * MS);
        let received_ns = received[tenants.home("batch").first_unit.index()].received_ns;
        assert!(received_ns > 1_950 * MS, "{received_ns} ns");
    });
}

/// Threads of a shared tenant run and wait on all CPUs that are not kept, which then are the bank's alone.
fn crowd_before_the_bank(threads: u32) -> (host::Run, Tenants) {
    let (mut run, mut tenants) = host::start(ALL_BANKS);
    appears(&mut run, &tenants, "batch");
    for _ in 0..threads {
        let thread = tenants.thread("batch", Hog);
        let thread = run.spawn(TaskSpec { affinity: Some(run.machine.mask([CpuId(2)])), ..thread });
        run.set_affinity(thread, run.machine.mask((0..4).map(CpuId)));
    }
    run.run_until(run.machine.now_ns() + MS);
    appears(&mut run, &tenants, "bank");
    (run, tenants)
}

fn appears(run: &mut host::Run, tenants: &Tenants, name: &str) {
    let cgroup = tenants.home(name).cgroup;
    run.act(|run| run.policy.appears(&mut run.machine, name, cgroup));
    while !run.policy.is_settled() {
        run.run_until(run.machine.now_ns() + MS);
    }
}

#[test]
fn who_waits_in_line_goes_on_where_only_housekeeping_cpus_are_left() {
    apart(|| {
        let (mut run, tenants) = crowd_before_the_bank(4);
        run.observer.begin(&mut run.machine);
        let received = host::after(&mut run, 1_000 * MS);
        let received_ns = received[tenants.home("batch").first_unit.index()].received_ns;
        assert!(received_ns > 1_950 * MS, "{received_ns} ns");
    });
}

/// They are looked at again and again as tenants come and go.
#[test]
fn who_waits_at_a_housekeeping_cpu_keeps_its_place() {
    apart(|| {
        let (mut run, _) = crowd_before_the_bank(4_000);
        let mut looks = 0;
        for _ in 0..20 {
            run.run_until(run.machine.now_ns() + 10 * MS);
            let waits = run.machine.tasks().filter(|(_, task)| task.cpu == CpuId(2)).count();
            let moved = run.act(|run| run.policy.ask(&mut run.machine, |scheduler| scheduler.look_again()));
            assert_eq!(moved.expect("the model's programs run"), 0);
            looks += usize::from(waits > 0);
        }
        assert!(looks > 10, "they have all had a turn before anybody looked");
    });
}

/// However long shared threads wait in a line, the system has its CPU to itself.
#[test]
fn a_housekeeping_cpu_gives_no_turns_of_the_floor_to_shared_tenants() {
    apart(|| {
        let (mut run, mut tenants) = host::start(
            "[host]\ncpus = \"0-1\"\nhousekeeping = \"0\"\n\
             [[tenant]]\nname = \"batch\"\nclass = \"shared\"\nmatch = { cgroup = \"batch\" }\n",
        );
        host::settle(&mut run, &tenants);
        run.spawn(tenants.system(Periodic::new(MS, 1_500 * MS)));
        for _ in 0..4 {
            run.spawn(tenants.thread("batch", Hog));
        }
        let received = host::after(&mut run, 10_000 * MS);
        let received_ns = received[tenants.home("batch").first_unit.index()].received_ns;
        assert!(received_ns <= 10_000 * MS, "{received_ns} ns of one CPU's 10 s");
    });
}
