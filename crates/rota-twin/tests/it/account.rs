//! What the scheduler says of the time that slots lost, and to whom.

use std::rc::Rc;

use rota_sched::Cause;
use rota_sim::programs::Hog;
use rota_sim::programs::sync::Semaphore;
use rota_sim::{CpuId, Script, State, TaskSpec, Tenants, Theft};
use rota_twin::apart;

use crate::host::{Run, after, settle, start};

const US: u64 = 1_000;
const MS: u64 = 1_000_000;

const HOST: &str = r#"
[host]
cpus = "0-1"
housekeeping = "0"
[[tenant]]
name = "web"
class = "reserved"
share = 0.9
latency = "20ms"
match = { cgroup = "web" }
[[tenant]]
name = "fair"
class = "shared"
match = { cgroup = "fair" }
[[tenant]]
name = "batch"
class = "background"
match = { cgroup = "batch" }
"#;

/// A slot's owner does not want it, and it is the floor's turn. Then the hypervisor has the CPU, and the owner wakes.
#[test]
fn what_was_taken_during_a_turn_of_the_floor_is_not_put_down_to_that() {
    apart(|| {
        let (mut run, mut tenants) = start(HOST);
        settle(&mut run, &tenants);
        run.spawn(tenants.thread("fair", Hog));
        let batch = run.spawn(tenants.thread("batch", Hog));
        let on_cpu_1 = run.machine.mask([CpuId(1)]);
        run.act(|run| run.set_affinity(batch, on_cpu_1));
        let sign = Rc::new(Semaphore::new(0));
        let gives = sign.clone();
        run.spawn(tenants.thread(
            "web",
            Script::new(async move |thread| {
                loop {
                    sign.take(&thread).await;
                    thread.compute(10 * US).await;
                }
            }),
        ));
        run.spawn(tenants.system(Script::new(async move |thread| {
            loop {
                thread.sleep(2 * MS).await;
                gives.give(&thread);
            }
        })));
        let until_ns = run.machine.now_ns() + 3_000 * MS;
        while run.machine.task(batch).state != State::Running {
            run.run_until(run.machine.now_ns() + 100 * US);
            assert!(run.machine.now_ns() < until_ns, "no turn of the floor");
        }
        run.steal(CpuId(1), 30 * MS, Theft::Steal);
        after(&mut run, 60 * MS);
        let queues = run.policy.queues(&mut run.machine);
        let lost = |cause: Cause| queues.iter().map(|queue| queue.lost_ns[cause as usize]).sum::<u64>();
        assert!(lost(Cause::Floor) < MS && lost(Cause::Steal) > 2 * MS, "{:?}", Cause::ALL.map(lost));
    });
}

/// A thread of `web` has bound itself to a CPU where its tenant has no slot, beside one that wants all of it.
fn with_a_stray() -> (Run, Tenants) {
    let (mut run, mut tenants) =
        start(&HOST.replace("0-1", "0-2").replace("share = 0.9", "share = 0.5\naffinity = \"1\""));
    settle(&mut run, &tenants);
    for name in ["web", "fair"] {
        let on_cpu_2 = run.machine.mask([CpuId(2)]);
        let hog = TaskSpec { affinity: Some(on_cpu_2), ..tenants.thread(name, Hog) };
        run.spawn(hog);
    }
    (run, tenants)
}

fn missed(run: &mut Run) -> u64 {
    run.policy.queues(&mut run.machine).iter().map(|queue| queue.missed).sum()
}

#[test]
fn who_is_bound_where_its_tenant_has_no_slot_is_promised_nothing() {
    apart(|| {
        let (mut run, tenants) = with_a_stray();
        let received_ns = after(&mut run, 5_000 * MS)[tenants.home("web").first_unit.index()].received_ns;
        let missed = missed(&mut run);
        assert!(received_ns > 10 * MS && missed == 0, "{received_ns} ns, and {missed} promises missed");
    });
}

/// As such a thread has turns of the floor another one of the tenant waits, whose CPU a real-time task has.
#[test]
fn who_is_promised_nothing_hides_no_missed_promise() {
    apart(|| {
        let (mut run, mut tenants) = with_a_stray();
        run.spawn(tenants.thread("web", Hog));
        run.run_until(run.machine.now_ns() + 100 * MS);
        let once = Script::new(async move |thread| thread.compute(2_500 * MS).await);
        let on_cpu_1 = run.machine.mask([CpuId(1)]);
        run.spawn(TaskSpec { realtime: Some(50), affinity: Some(on_cpu_1), ..tenants.system(once) });
        after(&mut run, 3_000 * MS);
        let missed = missed(&mut run);
        assert!(missed > 1, "{missed} promises missed, before and after a turn of the floor");
    });
}

/// A thread cannot use its tenant's slots for a second, in which a kernel thread has taken a little of one of them.
#[test]
fn what_took_next_to_nothing_is_not_the_cause() {
    apart(|| {
        // One of three has slots on both CPUs, so that they go by their slots.
        let other = |name: &str| HOST[HOST.find("[[tenant]]").unwrap_or(0)..].replace("web", name);
        let others = ["b", "c"]
            .map(|name| other(name).split("[[tenant]]").take(2).collect::<Vec<_>>().join("[[tenant]]"));
        let host = HOST.replace("0-1", "0-2") + &others.concat();
        let (mut run, mut tenants) = start(&host.replace("share = 0.9", "share = 0.64"));
        settle(&mut run, &tenants);
        let (on_cpu_0, on_cpus) = (run.machine.mask([CpuId(0)]), run.machine.mask([CpuId(1), CpuId(2)]));
        run.spawn(tenants.system(Hog));
        let stray = run.spawn(TaskSpec { affinity: Some(on_cpu_0), ..tenants.thread("web", Hog) });
        run.run_until(run.machine.now_ns() + 100 * MS);
        for cpu in [1, 2] {
            let often = Script::new(async move |thread| {
                for _ in 0..20 {
                    thread.compute(5 * US).await;
                    thread.sleep(3_700 * US).await;
                }
            });
            let affinity = Some(run.machine.mask([CpuId(cpu)]));
            run.spawn(TaskSpec { kernel_thread: true, affinity, ..tenants.system(often) });
        }
        run.run_until(run.machine.now_ns() + 718 * MS);
        run.act(|run| run.set_affinity(stray, on_cpus));
        after(&mut run, 100 * MS);
        let queues = run.policy.queues(&mut run.machine);
        let missed =
            |cause: Cause| queues.iter().map(|queue| queue.missed_by_cause[cause as usize]).sum::<u64>();
        assert!(missed(Cause::Rota) == 1, "{:?}", Cause::ALL.map(missed));
    });
}
