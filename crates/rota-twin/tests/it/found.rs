//! Mistakes that the farm has found in the scheduler, each on the smallest host that shows it.

use std::rc::Rc;

use rota_sim::programs::sync::Semaphore;
use rota_sim::programs::{Hog, Periodic};
use rota_sim::{CpuId, Script, TaskSpec, Tenants, UnitId};
use rota_twin::apart;

use crate::host::{Run, after, settle, start};

const US: u64 = 1_000;
const MS: u64 = 1_000_000;

fn bound(run: &Run, spec: TaskSpec, cpus: impl IntoIterator<Item = u32>) -> TaskSpec {
    TaskSpec { affinity: Some(run.machine.mask(cpus.into_iter().map(CpuId))), ..spec }
}

/// What waits first in a CPU's second level may not run there: then who waits next has the CPU.
#[test]
fn a_thread_bound_elsewhere_leaves_no_cpu_idle() {
    apart(|| {
        let (mut run, mut tenants) = start(
            r#"
            [host]
            cpus = "0-2"
            housekeeping = "0"
            [[tenant]]
            name = "web"
            class = "reserved"
            vcpus = 2
            share = 0.2
            latency = "20ms"
            match = { cgroup = "web" }
            [[tenant]]
            name = "busy"
            class = "reserved"
            share = 0.7
            latency = "20ms"
            capped = true
            affinity = "1"
            match = { cgroup = "busy" }
            [[tenant]]
            name = "solo"
            class = "reserved"
            share = 0.7
            latency = "20ms"
            affinity = "2"
            match = { cgroup = "solo" }
            "#,
        );
        let web = tenants.thread("web", Hog);
        let web = bound(&run, web, [1]);
        run.spawn(web);
        for name in ["busy", "solo"] {
            run.spawn(tenants.thread(name, Hog));
        }
        settle(&mut run, &tenants);
        let received = after(&mut run, 1_000 * MS);
        let received_ns = received[tenants.home("solo").first_unit.index()].received_ns;
        assert!(received_ns > 990 * MS, "{received_ns} ns of 1 s, and nobody else could run there");
    });
}

/// An idle CPU is picked for a thread that may not run on it: it is found idle by the next thread all the same.
#[test]
fn an_idle_cpu_that_was_picked_in_vain_is_found_again() {
    apart(|| {
        let (mut run, mut tenants) = start(
            r#"
            [host]
            cpus = "0-3"
            housekeeping = "0-1"
            [[tenant]]
            name = "web"
            class = "reserved"
            share = 0.2
            latency = "20ms"
            match = { cgroup = "web" }
            "#,
        );
        settle(&mut run, &tenants);
        let stranger = tenants.system(Periodic::new(10 * US, 100 * US));
        let stranger = bound(&run, stranger, [2, 3]);
        run.spawn(stranger);
        run.run_until(run.machine.now_ns() + 10 * MS);
        let hogs = [tenants.system(Hog), tenants.system(Hog)];
        let units = hogs.map(|hog| {
            let unit: UnitId = hog.unit;
            run.spawn(hog);
            unit
        });
        run.observer.begin(&mut run.machine);
        let received = after(&mut run, 100 * MS);
        let received_ns = received[units[0].index()].received_ns;
        assert!(received_ns > 195 * MS, "two threads received {received_ns} ns of 200 ms on two CPUs");
    });
}

/// Two threads of a tenant that is not capped, bound to a CPU where it has no slots, take turns there.
#[test]
fn threads_bound_to_another_cpu_do_not_interrupt_each_other() {
    apart(|| {
        let (mut run, mut tenants) = start(
            r#"
            [host]
            cpus = "0-2"
            housekeeping = "0"
            [[tenant]]
            name = "web"
            class = "reserved"
            share = 0.2
            latency = "20ms"
            affinity = "1"
            match = { cgroup = "web" }
            "#,
        );
        for _ in 0..2 {
            let stray = tenants.thread("web", Hog);
            let stray = bound(&run, stray, [2]);
            run.spawn(stray);
        }
        settle(&mut run, &tenants);
        let received = after(&mut run, 1_000 * MS);
        let web = &received[tenants.home("web").first_unit.index()];
        assert!(web.received_ns > 900 * MS && web.preemptions < 1_000, "{web:?}");
    });
}

/// A kernel thread that has its CPU to itself goes on when the CPU is told to look around.
#[test]
fn a_kernel_thread_goes_on_when_its_cpu_is_kicked() {
    apart(|| {
        let (mut run, mut tenants) = start(
            r#"
            [host]
            cpus = "0-1"
            housekeeping = "0"
            [[tenant]]
            name = "web"
            class = "background"
            match = { cgroup = "web" }
            "#,
        );
        settle(&mut run, &tenants);
        let thread = tenants.system(Hog);
        let thread = TaskSpec { kernel_thread: true, ..bound(&run, thread, [1]) };
        let unit = thread.unit;
        run.spawn(thread);
        run.observer.begin(&mut run.machine);
        for _ in 0..10 {
            run.run_until(run.machine.now_ns() + 3 * MS + 300 * US);
            run.act(|run| run.policy.vanishes(&mut run.machine, "web"));
            run.run_until(run.machine.now_ns() + 3 * MS + 300 * US);
            let cgroup = tenants.home("web").cgroup;
            run.act(|run| run.policy.appears(&mut run.machine, "web", cgroup));
        }
        let received = after(&mut run, MS);
        let longest_ns = received[unit.index()].blackout_max_ns;
        assert!(longest_ns < 100 * US, "it waited for {longest_ns} ns");
    });
}

/// The same with somebody else there, who would have the CPU for a turn.
#[test]
fn a_kernel_thread_goes_on_when_somebody_waits_for_its_cpu() {
    apart(|| {
        let (mut run, mut tenants) = start(
            r#"
            [host]
            cpus = "0-1"
            housekeeping = "0"
            [[tenant]]
            name = "web"
            class = "reserved"
            share = 0.5
            latency = "20ms"
            match = { cgroup = "web" }
            "#,
        );
        run.spawn(tenants.thread("web", Hog));
        settle(&mut run, &tenants);
        let thread = tenants.system(Hog);
        let thread = TaskSpec { kernel_thread: true, ..bound(&run, thread, [1]) };
        let unit = thread.unit;
        run.spawn(thread);
        run.observer.begin(&mut run.machine);
        let received = after(&mut run, 100 * MS);
        let longest_ns = received[unit.index()].blackout_max_ns;
        assert!(longest_ns < 100 * US, "it waited for {longest_ns} ns");
    });
}

/// A vCPU goes from one CPU to another, and the first goes on with the same thread for another vCPU of the container:
/// a thread that wakes finds the vCPU free.
#[test]
fn who_goes_on_for_another_vcpu_lets_go_of_the_one_before() {
    apart(|| {
        let (mut run, mut tenants) = start(
            r#"
            [host]
            cpus = "0-2"
            housekeeping = "0"
            [[tenant]]
            name = "web"
            class = "reserved"
            vcpus = 3
            share = 0.6
            latency = "20ms"
            capped = true
            match = { cgroup = "web" }
            [[tenant]]
            name = "batch"
            class = "background"
            match = { cgroup = "batch" }
            "#,
        );
        for name in ["web", "batch", "batch"] {
            run.spawn(tenants.thread(name, Hog));
        }
        let sleeper = run.spawn(tenants.thread("web", Periodic::new(100 * US, 300 * US)));
        settle(&mut run, &tenants);
        let before_ns = run.machine.task(sleeper).used_ns;
        run.run_until(run.machine.now_ns() + 1_000 * MS);
        let used_ns = run.machine.task(sleeper).used_ns - before_ns;
        assert!(used_ns > 200 * MS, "{used_ns} ns of 1 s, a fourth of which it would have");
    });
}

/// New threads of a container with many vCPUs, one for each of its slots: each CPU is told of one.
#[test]
fn each_hungry_slot_is_told_of_a_new_thread() {
    apart(|| {
        let (mut run, mut tenants) = start(
            r#"
            [host]
            cpus = "0-24"
            housekeeping = "0"
            [[tenant]]
            name = "web"
            class = "reserved"
            vcpus = 24
            share = 0.9
            latency = "20ms"
            match = { cgroup = "web" }
            "#,
        );
        settle(&mut run, &tenants);
        for _ in 0..24 {
            run.spawn(tenants.thread("web", Hog));
        }
        run.observer.begin(&mut run.machine);
        let received = after(&mut run, MS);
        let received_ns = received[tenants.home("web").first_unit.index()].received_ns;
        assert!(received_ns > 24 * 900 * US, "{received_ns} ns on 24 CPUs in 1 ms");
    });
}

/// A thread for which a hungry slot was told is served by another slot: the first one is told of the next thread.
#[test]
fn a_hungry_slot_that_was_told_in_vain_is_told_again() {
    apart(|| {
        let (mut run, mut tenants) = start(
            r#"
            [host]
            cpus = "0-6"
            housekeeping = "0"
            [[tenant]]
            name = "web"
            class = "reserved"
            vcpus = 6
            share = 0.9
            latency = "20ms"
            capped = true
            match = { cgroup = "web" }
            [[tenant]]
            name = "batch"
            class = "shared"
            match = { cgroup = "batch" }
            "#,
        );
        for _ in 0..6 {
            run.spawn(tenants.thread("batch", Hog));
        }
        let [lead, work] = [0, 0].map(|count| Rc::new(Semaphore::new(count)));
        let (told, gives) = (lead.clone(), work.clone());
        run.spawn(tenants.thread(
            "web",
            Script::new(async move |thread| {
                loop {
                    thread.sleep(MS).await;
                    lead.give(&thread);
                }
            }),
        ));
        run.spawn(tenants.thread(
            "web",
            Script::new(async move |thread| {
                loop {
                    told.take(&thread).await;
                    thread.compute(10 * US).await;
                    (0..6).for_each(|_| gives.give(&thread));
                }
            }),
        ));
        for _ in 0..6 {
            let takes = work.clone();
            run.spawn(tenants.thread(
                "web",
                Script::new(async move |thread| {
                    loop {
                        takes.take(&thread).await;
                        thread.compute(300 * US).await;
                    }
                }),
            ));
        }
        settle(&mut run, &tenants);
        let web = &after(&mut run, 1_000 * MS)[tenants.home("web").first_unit.index()];
        assert!(web.wanted_ns < 400 * MS, "it has had to do for {} ns of 1 s", web.wanted_ns);
    });
}

/// A thread counts as waiting in its tenant's queue and is bound to another CPU: a CPU of the tenant looks for it no
/// more often for deciding often.
#[test]
fn looking_for_a_thread_that_does_not_come_has_an_end() {
    apart(|| {
        let (mut run, mut tenants) = start(
            r#"
            [host]
            cpus = "0-2"
            housekeeping = "0"
            [[tenant]]
            name = "web"
            class = "reserved"
            share = 0.5
            latency = "20ms"
            affinity = "1"
            match = { cgroup = "web" }
            [[tenant]]
            name = "batch"
            class = "background"
            match = { cgroup = "batch" }
            "#,
        );
        for _ in 0..2 {
            let stray = tenants.thread("web", Hog);
            let stray = bound(&run, stray, [2]);
            run.spawn(stray);
        }
        let busy = tenants.thread("batch", Periodic::new(10 * US, 20 * US));
        let busy = bound(&run, busy, [1]);
        run.spawn(busy);
        settle(&mut run, &tenants);
        let before = run.decisions();
        run.run_until(run.machine.now_ns() + 100 * MS);
        let decisions = run.decisions() - before;
        assert!(decisions < 10_000, "{decisions} decisions in 100 ms, for a thread that wakes 3,000 times");
    });
}

const LONE: &str = r#"
    [host]
    cpus = "0-3"
    housekeeping = "0"
    [[tenant]]
    name = "batch"
    class = "shared"
    match = { cgroup = "batch" }
"#;

/// A real-time thread that computes for 20 ms on a CPU, when it is given the sign.
fn real_time(run: &Run, tenants: &mut Tenants, cpu: u32, sign: Rc<Semaphore>) -> TaskSpec {
    let script = Script::new(async move |thread| {
        sign.take(&thread).await;
        thread.compute(20 * MS).await;
    });
    let spec = tenants.system(script);
    TaskSpec { realtime: Some(50), ..bound(run, spec, [cpu]) }
}

/// A real-time task takes the CPU of a shared tenant's thread, which goes on at once on one that idles.
#[test]
fn a_shared_thread_leaves_a_cpu_that_a_real_time_task_takes() {
    apart(|| {
        let (mut run, mut tenants) = start(LONE);
        settle(&mut run, &tenants);
        let thread = run.spawn(tenants.thread("batch", Hog));
        run.run_until(run.machine.now_ns() + 10 * MS);
        let sign = Rc::new(Semaphore::new(1));
        let cpu = run.machine.task(thread).cpu.0;
        let taker = real_time(&run, &mut tenants, cpu, sign);
        run.spawn(taker);
        run.observer.begin(&mut run.machine);
        let received = after(&mut run, 10 * MS);
        let longest_ns = received[tenants.home("batch").first_unit.index()].blackout_max_ns;
        assert!(longest_ns < 100 * US, "it waited for {longest_ns} ns beside CPUs that idle");
    });
}

/// A real-time task wakes on the idle CPU that a shared tenant's thread was sent to a moment before.
#[test]
fn a_shared_thread_that_was_sent_to_a_taken_cpu_starts_elsewhere() {
    apart(|| {
        let (mut run, mut tenants) = start(LONE);
        settle(&mut run, &tenants);
        let [go, sign] = [0, 0].map(|count| Rc::new(Semaphore::new(count)));
        let waits = go.clone();
        let thread = run.spawn(tenants.thread(
            "batch",
            Script::new(async move |thread| {
                thread.compute(MS).await;
                waits.take(&thread).await;
                thread.compute(10 * MS).await;
            }),
        ));
        run.run_until(run.machine.now_ns() + 10 * MS);
        let cpu = run.machine.task(thread).cpu.0;
        let taker = real_time(&run, &mut tenants, cpu, sign.clone());
        run.spawn(taker);
        let wakes = tenants.system(Script::new(async move |thread| {
            thread.compute(MS).await;
            go.give(&thread);
            sign.give(&thread);
        }));
        run.spawn(bound(&run, wakes, [0]));
        run.observer.begin(&mut run.machine);
        let received = after(&mut run, 10 * MS);
        let longest_ns = received[tenants.home("batch").first_unit.index()].blackout_max_ns;
        assert!(longest_ns < 100 * US, "it waited for {longest_ns} ns beside CPUs that idle");
    });
}

/// A CPU that idles is told of an owner, and in the same moment background work wakes that ran there last: it starts
/// on one that nobody was told of.
#[test]
fn nobody_else_is_sent_to_a_cpu_that_was_told_of_an_owner() {
    apart(|| {
        let (mut run, mut tenants) = start(
            r#"
            [host]
            cpus = "0-2"
            housekeeping = "0"
            [[tenant]]
            name = "owner-1"
            class = "reserved"
            share = 0.5
            latency = "20ms"
            affinity = "1"
            match = { cgroup = "owner-1" }
            [[tenant]]
            name = "owner-2"
            class = "reserved"
            share = 0.5
            latency = "20ms"
            affinity = "2"
            match = { cgroup = "owner-2" }
            [[tenant]]
            name = "batch"
            class = "background"
            match = { cgroup = "batch" }
            "#,
        );
        settle(&mut run, &tenants);
        let [go, sign] = [0, 0].map(|count| Rc::new(Semaphore::new(count)));
        let waits = |sign: &Rc<Semaphore>| {
            let sign = sign.clone();
            Script::new(async move |thread| {
                thread.compute(MS).await;
                sign.take(&thread).await;
                thread.compute(10 * MS).await;
            })
        };
        let thread = run.spawn(tenants.thread("batch", waits(&go)));
        run.run_until(run.machine.now_ns() + 40 * MS);
        let owner = format!("owner-{}", run.machine.task(thread).cpu.0);
        run.spawn(tenants.thread(&owner, waits(&sign)));
        run.run_until(run.machine.now_ns() + 40 * MS);
        let wakes = tenants.system(Script::new(async move |thread| {
            thread.compute(MS).await;
            sign.give(&thread);
            go.give(&thread);
        }));
        run.spawn(bound(&run, wakes, [0]));
        run.observer.begin(&mut run.machine);
        let received = after(&mut run, 10 * MS);
        let longest_ns = received[tenants.home("batch").first_unit.index()].blackout_max_ns;
        assert!(longest_ns < 100 * US, "it waited for {longest_ns} ns beside a CPU that idles");
    });
}

/// A thread starts by itself on an idle CPU in the moment in which a slot begins there, and before its timer has come:
/// the slot's owner, who may run in slots only, has the rest of it.
#[test]
fn who_starts_by_itself_as_a_slot_begins_does_not_take_the_slot() {
    apart(|| {
        let (mut run, mut tenants) = start(
            r#"
            [host]
            cpus = "0-1"
            housekeeping = "0"
            [[tenant]]
            name = "owner"
            class = "reserved"
            share = 0.2
            latency = "10ms"
            capped = true
            match = { cgroup = "owner" }
            [[tenant]]
            name = "light"
            class = "shared"
            match = { cgroup = "light" }
            "#,
        );
        let owner = run.spawn(tenants.thread("owner", Hog));
        settle(&mut run, &tenants);
        // Two slots show when the others begin.
        let mut begins = || {
            let runs = |run: &Run| run.machine.cpu(CpuId(1)).current == Some(owner);
            while runs(&run) {
                run.run_until(run.machine.now_ns() + US);
            }
            while !runs(&run) {
                run.run_until(run.machine.now_ns() + US);
            }
            run.machine.now_ns()
        };
        let (first, second) = (begins(), begins());
        let round_ns = second - first;
        let light = Script::new(async move |thread| {
            for slot in 1..200 {
                let wakes_ns = second + slot * round_ns - 6 * US + slot * 50;
                thread.sleep(wakes_ns.saturating_sub(thread.now_ns())).await;
                thread.compute(round_ns / 2).await;
            }
        });
        run.spawn(tenants.thread("light", light));
        run.observer.begin(&mut run.machine);
        let received = after(&mut run, 200 * round_ns);
        let owner = &received[tenants.home("owner").first_unit.index()];
        assert!(owner.blackout_max_ns < 10 * MS + 50 * US, "it waited for {} ns", owner.blackout_max_ns);
    });
}

/// A container of more vCPUs than an enquiry looks at, each with a thread bound to its CPU.
#[test]
fn a_thread_bound_to_any_of_many_cpus_has_its_slots_there() {
    apart(|| {
        let tenant = |name: &str, rest: &str| {
            format!(
                "[[tenant]]\nname = \"{name}\"\nclass = \"reserved\"\nvcpus = 65\nlatency = \"20ms\"\n{rest}\n\
                 match = {{ cgroup = \"{name}\" }}\n"
            )
        };
        let text = "[host]\ncpus = \"0-65\"\nhousekeeping = \"0\"\n".to_owned()
            + &tenant("big", "share = 0.8\ncapped = true")
            + &tenant("other", "share = 0.1");
        let (mut run, mut tenants) = start(&text);
        let mut threads = Vec::new();
        for cpu in 1..66 {
            let hog = tenants.thread("big", Hog);
            let hog = bound(&run, hog, [cpu]);
            threads.push(run.spawn(hog));
            run.spawn(tenants.thread("other", Hog));
        }
        settle(&mut run, &tenants);
        let used = |run: &Run| threads.iter().map(|id| run.machine.task(*id).used_ns).collect::<Vec<_>>();
        let before = used(&run);
        run.run_until(run.machine.now_ns() + 1_000 * MS);
        for (cpu, (before, after)) in (1..).zip(before.into_iter().zip(used(&run))) {
            assert!(after - before > 750 * MS, "CPU {cpu}: {} ns", after - before);
        }
    });
}
