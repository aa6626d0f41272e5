//! Rota's own scheduler in the model.

use std::rc::Rc;

use rota_model::config::{Source, parse};
use rota_model::{CpuSet, Model, Topology};
use rota_sim::observe::{Event, Metrics, Observer, Promise, Promises, Sanity, Trace, UnitMetrics};
use rota_sim::programs::sync::Semaphore;
use rota_sim::programs::{Hog, Intermittent, Periodic, Probe};
use rota_sim::{Costs, Script, Simulation, TaskSpec, Tenants};
use rota_twin::{Rota, apart};

const US: u64 = 1_000;
const MS: u64 = 1_000_000;
const WATCHDOG_NS: u64 = 30_000 * MS;
/// What a bound may be passed by: the costs of a late timer, a kick and a switch, some times over.
const SLACK_NS: u64 = 20 * US;

type Seen = (Metrics, Promises, Sanity);
type Run = Simulation<Rota, Seen>;

fn model(text: &str, cpus: u32) -> Model {
    let source = Source { path: "rota.toml".into(), text: text.to_owned() };
    let topology = Topology::flat(&(0..cpus).collect::<CpuSet>());
    parse(&[source], &topology).unwrap_or_else(|errors| panic!("{errors:?}"))
}

fn demo() -> Model {
    model(include_str!("../../../../examples/demo.toml"), 2)
}

fn start(model: &Model, seed: u64) -> (Run, Tenants) {
    let policy = Rota::new(model).expect("a host");
    let observers = (Metrics::default(), Promises::new(SLACK_NS), Sanity::new(WATCHDOG_NS));
    let topology = model.host.topology.clone();
    let mut run = Simulation::new(topology, Costs::default(), seed, 1_000 * MS, policy, observers);
    let tenants = Tenants::new(&mut run.machine, model);
    (run, tenants)
}

/// Everybody is here from the start, and served by a table.
fn settle(run: &mut Run, tenants: &Tenants) {
    for home in tenants.homes() {
        run.act(|run| run.policy.appears(&mut run.machine, &home.tenant.name, home.cgroup));
    }
    let mut until_ns = run.machine.now_ns();
    while !run.policy.is_settled() {
        until_ns += 10 * MS;
        run.run_until(until_ns);
        assert!(until_ns < 3_000 * MS, "{:?}", run.policy.said());
    }
    for home in tenants.homes() {
        let Some(reservation) = home.tenant.reservation() else { continue };
        for (unit, vcpus) in home.units() {
            let promise = Promise { reservation, vcpus, from_ns: until_ns };
            run.observer.1.promise(&run.machine, unit, Some(promise));
        }
    }
    run.observer.0.begin(&mut run.machine);
}

fn demo_loads<O: Observer>(run: &mut Simulation<Rota, O>, tenants: &mut Tenants) {
    let specs: Vec<TaskSpec> = vec![
        tenants.thread("redis", Intermittent::new(20 * US, 400 * US)),
        tenants.thread("nginx", Intermittent::new(10 * US, 3 * MS)),
        tenants.thread("cpu-0", Hog),
        tenants.thread("cpu-1", Hog),
        tenants.thread("io-0", Periodic::new(200 * US, 100 * US)),
        tenants.thread("io-1", Periodic::new(200 * US, 100 * US)),
        tenants.thread("pipe", Periodic::new(5 * US, 5 * US)),
        tenants.thread("probe", Probe::new(US)),
        tenants.thread("batch", Hog),
        tenants.thread("batch", Hog),
    ];
    for spec in specs {
        run.spawn(spec);
    }
}

fn check(run: &mut Run) -> Vec<UnitMetrics> {
    assert_eq!(run.policy.exited().cloned(), None, "{:?}", run.policy.said());
    assert_eq!(run.observer.1.finish(&run.machine), []);
    assert_eq!(run.observer.2.finish(&run.machine), []);
    let mixed: u64 = run.policy.cpus(&mut run.machine).iter().map(|cpu| cpu.mixed).sum();
    assert_eq!(mixed, 0, "CPUs saw two tables in a round");
    run.observer.0.finish(&mut run.machine)
}

#[test]
fn the_demo_keeps_its_promises() {
    apart(|| {
        let model = demo();
        let (mut run, mut tenants) = start(&model, 1);
        demo_loads(&mut run, &mut tenants);
        settle(&mut run, &tenants);
        let began_ns = run.machine.now_ns();
        run.run_until(began_ns + 10_000 * MS);
        let metrics = check(&mut run);
        let received = |name: &str| metrics[tenants.home(name).first_unit.index()].received_ns;
        for name in ["cpu-0", "cpu-1", "probe"] {
            assert!(received(name) > 1_990 * MS, "{name} received {} ns of 10 s", received(name));
        }
        for home in tenants.homes() {
            let unit = &metrics[home.first_unit.index()];
            assert!(
                unit.dispatches > 0 && unit.wanted_ns >= unit.received_ns,
                "{}: {unit:?}",
                home.tenant.name
            );
        }
        for queue in run.policy.queues(&mut run.machine) {
            assert_eq!(queue.missed, 0, "the scheduler's own account: {queue:?}");
        }
    });
}

/// One CPU, half of it promised to a tenant that takes more.
const BUSY: &str = r#"
[host]
cpus = "0"

[[tenant]]
name = "busy"
class = "reserved"
share = 0.5
latency = "20ms"
match = { cgroup = "busy" }
"#;

const OUTSIDERS: &str = r#"
[[tenant]]
name = "batch"
class = "background"
match = { cgroup = "batch" }
"#;

/// A task that waits among the system's, and turns out to be a background tenant's, is not waited for there any more.
#[test]
fn a_waiting_task_that_becomes_anothers_leaves_no_wait_behind() {
    apart(|| {
        let model = model(&format!("{BUSY}{OUTSIDERS}"), 1);
        let (mut run, mut tenants) = start(&model, 1);
        run.spawn(tenants.thread("busy", Hog));
        run.spawn(tenants.thread("batch", Hog));
        run.spawn(tenants.system(Periodic::new(MS, 150 * MS)));
        settle(&mut run, &tenants);
        for turn in 0..16 {
            run.act(|run| run.policy.vanishes(&mut run.machine, "batch"));
            let until_ns = run.machine.now_ns() + 20 * MS + turn * MS;
            run.run_until(until_ns);
            let cgroup = tenants.home("batch").cgroup;
            run.act(|run| run.policy.appears(&mut run.machine, "batch", cgroup));
            run.run_until(until_ns + 400 * MS);
        }
        for queue in run.policy.queues(&mut run.machine) {
            assert_eq!(queue.missed, 0, "{queue:?}");
        }
    });
}

/// The same of many that wait in a CPU's background line before and after.
#[test]
fn waiting_tasks_that_become_anothers_and_stay_leave_no_wait_behind() {
    apart(|| {
        let model = model(&format!("{BUSY}{OUTSIDERS}"), 1);
        let (mut run, mut tenants) = start(&model, 1);
        run.spawn(tenants.thread("busy", Hog));
        run.spawn(tenants.system(Periodic::new(MS, 150 * MS)));
        for _ in 0..100 {
            run.spawn(tenants.thread("batch", Hog));
        }
        settle(&mut run, &tenants);
        run.run_until(run.machine.now_ns() + 700 * MS);
        for queue in run.policy.queues(&mut run.machine) {
            assert_eq!(queue.missed, 0, "{queue:?}");
        }
    });
}

const MONITORED: &str = r#"
[[tenant]]
name = "vm"
class = "reserved"
share = 0.3
latency = "20ms"
capped = true
match = { vm = "qemu:vm" }
"#;

/// Has a vCPU and its monitor compute, and another thread, and observes two seconds of that.
fn beside_a_busy_monitor(run: &mut Run, tenants: &mut Tenants, other: TaskSpec) {
    let vcpu = tenants.vcpu("vm", 0, Hog);
    let threads = [(0, vcpu.pid)].into();
    for spec in [vcpu, tenants.thread("vm", Hog), other] {
        run.spawn(spec);
    }
    settle(run, tenants);
    run.act(|run| run.policy.vcpu_threads(&mut run.machine, "vm", threads));
    run.run_until(run.machine.now_ns() + 500 * MS);
    run.observer.0.begin(&mut run.machine);
    run.run_until(run.machine.now_ns() + 2_000 * MS);
}

/// Both are in each of the VM's slots, so that its vCPU never waits longer than promised but for its own monitor.
#[test]
fn a_busy_monitor_takes_half_of_each_slot_of_its_vcpu() {
    apart(|| {
        let model = model(&format!("{BUSY}{MONITORED}"), 1);
        let (mut run, mut tenants) = start(&model, 1);
        let other = tenants.thread("busy", Hog);
        beside_a_busy_monitor(&mut run, &mut tenants, other);
        for queue in run.policy.queues(&mut run.machine) {
            let lost_ns: u64 = queue.lost_ns.iter().sum();
            assert!(queue.missed == 0 && lost_ns < MS, "{queue:?}");
        }
        let metrics = run.observer.0.finish(&mut run.machine);
        let home = tenants.home("vm");
        for unit in [home.unit(0), home.unit(1)] {
            let received_ns = metrics[unit.index()].received_ns;
            assert!((290 * MS..320 * MS).contains(&received_ns), "{received_ns} of 2 s");
            let longest_ns = metrics[unit.index()].blackout_max_ns;
            assert!(longest_ns < 25 * MS, "it waited for {longest_ns} ns");
        }
    });
}

/// What of 2 s a vCPU and its monitor receive, in ms, that both compute all the time, and how long each waits at most.
/// `monitor` has the monitor's threads.
fn with_a_busy_monitor(host: &str, monitor: &'static str) -> [(u64, u64); 2] {
    const IO: &str =
        "[[tenant]]\nname = \"io\"\nclass = \"reserved\"\nshare = 0.1\nlatency = \"20ms\"\ncapped = true\n";
    let text = format!("{host}{MONITORED}monitor = \"{monitor}\"\n{IO}");
    apart(move || {
        let model = model(&text, 2);
        let (mut run, mut tenants) = start(&model, 1);
        let other = tenants.system(Hog);
        beside_a_busy_monitor(&mut run, &mut tenants, other);
        let metrics = run.observer.0.finish(&mut run.machine);
        let home = tenants.home("vm");
        [home.unit(0), home.unit(1)].map(|unit| {
            let metrics = &metrics[unit.index()];
            (metrics.received_ns / MS, metrics.blackout_max_ns / MS)
        })
    })
}

/// A vCPU has its slots whole, and its bound, if its monitor's threads are another tenant's.
#[test]
fn a_busy_monitor_elsewhere_takes_nothing_of_its_vcpu() {
    const KEPT: &str = "[host]\ncpus = \"0-1\"\nhousekeeping = \"0\"\n";
    for (host, monitor, of_vcpu, of_monitor) in [
        (KEPT, "own", 270..340, 270..340),
        (KEPT, "system", 595..640, 900..1_010), // of CPU 0, beside a task of the system's
        (KEPT, "io", 595..640, 195..220),
        ("", "io", 595..640, 195..220),
    ] {
        let [vcpu, other] = with_a_busy_monitor(host, monitor);
        println!("{monitor}: vCPU {vcpu:?} ms, monitor {other:?} ms");
        assert!(of_vcpu.contains(&vcpu.0), "{monitor}: the vCPU received {} ms", vcpu.0);
        assert!(of_monitor.contains(&other.0), "{monitor}: the monitor received {} ms", other.0);
        assert!(monitor == "own" || vcpu.1 <= 20, "{monitor}: the vCPU waited for {} ms", vcpu.1);
    }
}

/// A thread of the monitor is sent to an idle slot whose vCPU wakes in the same moment: it is served in another idle
/// slot of the VM, and does not wait for its turn in that one.
#[test]
fn a_thread_of_the_monitor_does_not_wait_beside_an_idle_slot() {
    apart(|| {
        let whole = MONITORED.replace("0.3", "1\nvcpus = 2");
        let model = model(&format!("[host]\ncpus = \"0-2\"\nhousekeeping = \"0\"\n{whole}"), 3);
        let (mut run, mut tenants) = start(&model, 1);
        let signs = [0, 0].map(|count| Rc::new(Semaphore::new(count)));
        let works = |sign: &Rc<Semaphore>| {
            let sign = sign.clone();
            Script::new(async move |thread| {
                loop {
                    sign.take(&thread).await;
                    thread.compute(MS).await;
                }
            })
        };
        let (monitor, vcpu) =
            (tenants.thread("vm", works(&signs[0])), tenants.vcpu("vm", 0, works(&signs[1])));
        let (unit, threads) = (monitor.unit, [(0, vcpu.pid)].into());
        let gives = tenants.system(Script::new(async move |thread| {
            loop {
                thread.sleep(5 * MS).await;
                signs.iter().for_each(|sign| sign.give(&thread));
            }
        }));
        [monitor, vcpu, gives].into_iter().for_each(|spec| _ = run.spawn(spec));
        settle(&mut run, &tenants);
        run.act(|run| run.policy.vcpu_threads(&mut run.machine, "vm", threads));
        run.run_until(run.machine.now_ns() + 50 * MS);
        run.observer.0.begin(&mut run.machine);
        run.run_until(run.machine.now_ns() + 200 * MS);
        let longest_ns = run.observer.0.finish(&mut run.machine)[unit.index()].blackout_max_ns;
        assert!(longest_ns < 100 * US, "it waited for {longest_ns} ns");
    });
}

/// Every event of a run of the demo.
fn trace(seed: u64) -> Vec<(u64, Event)> {
    apart(|| {
        let model = demo();
        let policy = Rota::new(&model).expect("a host");
        let topology = model.host.topology.clone();
        let mut run = Simulation::new(topology, Costs::default(), seed, 0, policy, Trace::default());
        let mut tenants = Tenants::new(&mut run.machine, &model);
        for home in tenants.homes() {
            run.act(|run| run.policy.appears(&mut run.machine, &home.tenant.name, home.cgroup));
        }
        demo_loads(&mut run, &mut tenants);
        run.run_until(1_000 * MS);
        run.observer.events().to_vec()
    })
}

/// Two at once, to see that threads do not share a scheduler.
#[test]
fn the_same_seed_gives_the_same_events() {
    let (first, second) = std::thread::scope(|scope| {
        let other = scope.spawn(|| trace(7));
        (trace(7), other.join().expect("it ran"))
    });
    assert!(first.len() > 10_000);
    assert_eq!(first, second);
    assert_ne!(first, trace(8));
}
