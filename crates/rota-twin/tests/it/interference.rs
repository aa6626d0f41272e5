//! Cache interference on the model: those that fill caches are found and spread, and every promise is kept meanwhile.

use rota_model::Interference;
use rota_rules::status::InterferenceStatus;
use rota_sim::observe::{Metrics, Promise, Promises};
use rota_sim::programs::{Hog, Periodic};
use rota_sim::{Costs, Memory, Simulation, TaskId, TaskSpec, Tenants};
use rota_twin::Rota;

use crate::host::model;

const MS: u64 = 1_000_000;
const VMS: u32 = 16;

type Run = Simulation<Rota, (Metrics, Promises)>;

/// Four VMs on each of four CPUs of two domains; each computes, or idles half of the time.
fn start(strategy: &str) -> (Run, Vec<TaskId>) {
    let text = format!(
        "[host]\ncpus = \"0-4\"\nhousekeeping = \"4\"\ncaches = [\"0-1\", \"2-3\"]\ninterference = \"{strategy}\"\n\
         [[tenant]]\nname = \"vm-{{i}}\"\ncount = {VMS}\nclass = \"reserved\"\nshare = 0.24\nlatency = \"20ms\"\n\
         match = {{ vm = \"qemu:vm-{{i}}\" }}\n"
    );
    let model = model(&text);
    let policy = Rota::new(&model).expect("a host");
    assert_ne!(model.host.interference, Interference::Off);
    let observers = (Metrics::default(), Promises::new(50_000));
    let mut run = Run::new(model.host.topology.clone(), Costs::default(), 1, 1_000 * MS, policy, observers);
    let mut tenants = Tenants::new(&mut run.machine, &model);
    for home in tenants.homes() {
        run.act(|run| run.policy.appears(&mut run.machine, &home.tenant.name, home.cgroup));
    }
    let quiet = Some(Memory { working_set_kib: 64, references_per_us: 1, overlap: 1 });
    let (mut tasks, mut units) = (Vec::new(), Vec::new());
    for vm in 0..VMS {
        let name = format!("vm-{vm}");
        let spec = match vm % 4 {
            3 => tenants.vcpu(&name, 0, Periodic::new(3 * MS, 9 * MS)),
            _ => tenants.vcpu(&name, 0, Hog),
        };
        let (unit, pid) = (spec.unit, spec.pid);
        tasks.push(run.spawn(TaskSpec { memory: quiet, ..spec }));
        run.act(|run| run.policy.vcpu_threads(&mut run.machine, &name, [(0, pid)].into()));
        units.push(unit);
    }
    run.run_until(2_000 * MS);
    assert!(run.policy.status(&run.machine).tenants.iter().all(|tenant| tenant.promised.is_some()));
    for (unit, tenant) in units.into_iter().zip(&model.tenants) {
        let reservation = tenant.reservation().expect("all have one");
        let promise = Promise { reservation, vcpus: 1, from_ns: run.machine.now_ns() };
        run.observer.1.promise(&run.machine, unit, Some(promise));
    }
    (run, tasks)
}

fn status(run: &mut Run) -> InterferenceStatus {
    run.policy.status(&run.machine).interference.expect("something is done")
}

/// Which domain's CPU a thread is on, or was last.
fn domain(run: &Run, task: TaskId) -> u32 {
    run.machine.task(task).cpu.0 / 2
}

#[test]
fn who_thrashes_is_spread_over_the_domains_and_nobody_else_is_found() {
    let (mut run, tasks) = start("measured");
    run.run_until(62_000 * MS);
    let quiet = status(&mut run);
    assert_eq!((quiet.alarms, quiet.moves), (0, 0), "in a minute of computing: {quiet:?}");
    let thrash = Memory { working_set_kib: 8 * 1024, references_per_us: 60, overlap: 6 };
    let hungry: Vec<TaskId> = tasks.iter().copied().filter(|task| domain(&run, *task) == 0).take(6).collect();
    hungry.iter().for_each(|task| run.machine.set_memory(*task, thrash));
    run.run_until(63_000 * MS);
    let on_first = |run: &Run| hungry.iter().filter(|task| domain(run, **task) == 0).count();
    let now = status(&mut run);
    assert!(now.hungry == 6 && (2..=4).contains(&on_first(&run)), "{} of {now:?}", on_first(&run));
    let moves = now.moves;
    run.run_until(73_000 * MS);
    assert!(status(&mut run).moves <= moves + 4, "{:?}", status(&mut run));
    assert_eq!(on_first(&run), 3);
    assert_eq!(run.observer.1.finish(&run.machine), []);
}

/// Four a second for a minute, under load: no wait is longer than promised.
#[test]
fn no_promise_is_missed_while_all_change_places() {
    let (mut run, _) = start("random");
    run.run_until(62_000 * MS);
    let status = status(&mut run);
    assert!(status.exchanges > 220 && status.moves > 10 * status.exchanges, "{status:?}");
    assert_eq!(run.observer.1.finish(&run.machine), []);
}
