//! Mistakes that the farm has found in which a CPU idled while a thread waited, each on the smallest host that shows
//! it.

use std::rc::Rc;

use rota_rules::life::Event;
use rota_sim::programs::Hog;
use rota_sim::programs::sync::Semaphore;
use rota_sim::{CpuId, Script, State, TaskId, TaskSpec, UnitId};
use rota_twin::apart;

use crate::host::{Run, after, model, settle, start};

const US: u64 = 1_000;
const MS: u64 = 1_000_000;

/// Wakes one thread for each of these every 10 ms.
fn wakes(signs: Vec<Rc<Semaphore>>) -> Script {
    Script::new(async move |thread| {
        loop {
            thread.sleep(10 * MS).await;
            signs.iter().for_each(|sign| sign.give(&thread));
        }
    })
}

/// Computes for so long each time that it is woken.
fn works(sign: Rc<Semaphore>, ns: u64) -> Script {
    Script::new(async move |thread| {
        loop {
            sign.take(&thread).await;
            thread.compute(ns).await;
        }
    })
}

/// Slots begin on three CPUs at once. A shared tenant's thread that leaves one of them may be sent to another one,
/// which serves its owner: then a fourth CPU is told, which is in the slot of somebody who has nothing to do.
#[test]
fn who_is_sent_to_a_cpu_as_a_slot_begins_is_passed_on() {
    apart(|| {
        let tenant = |name: &str, cpu: u32, latency: &str| {
            format!(
                r#"
                [[tenant]]
                name = "{name}"
                class = "reserved"
                share = 0.3
                latency = "{latency}"
                capped = true
                affinity = "{cpu}"
                match = {{ cgroup = "{name}" }}
                "#
            )
        };
        let mut text = r#"
            [host]
            cpus = "0-4"
            housekeeping = "0"
            [[tenant]]
            name = "light"
            class = "shared"
            match = { cgroup = "light" }
            "#
        .to_owned();
        // Their periods are a ninth and an eighteenth of the longest table: all slots begin and end together.
        for (name, cpu, latency) in
            [("a", 1, "16ms"), ("b", 2, "16ms"), ("c", 3, "8400us"), ("nobody", 4, "16ms"), ("d", 4, "16ms")]
        {
            text += &tenant(name, cpu, latency);
        }
        let (mut run, mut tenants) = start(&text);
        for name in ["a", "b", "c", "d", "light"] {
            run.spawn(tenants.thread(name, Hog));
        }
        settle(&mut run, &tenants);
        run.run_until(run.machine.now_ns() + 200 * MS);
        run.observer.begin(&mut run.machine);
        let received = after(&mut run, 1_000 * MS);
        let longest_ns = received[tenants.home("light").first_unit.index()].blackout_max_ns;
        // As long as all CPUs have an owner that has not had its budget.
        assert!(longest_ns < 1_800 * US, "it waited for {longest_ns} ns beside a CPU that idles");
    });
}

/// A tenant loses its reservation and has a weight while its only thread runs: the thread goes on.
#[test]
fn who_has_a_weight_while_it_runs_does_not_wait_beside_its_idle_cpu() {
    apart(|| {
        let text = |class: &str| {
            format!(
                r#"
                [host]
                cpus = "0-1"
                housekeeping = "0"
                [[tenant]]
                name = "web"
                {class}
                match = {{ cgroup = "web" }}
                "#
            )
        };
        let (mut run, mut tenants) = start(&text("class = \"reserved\"\nshare = 0.3\nlatency = \"20ms\""));
        run.spawn(tenants.thread("web", Hog));
        settle(&mut run, &tenants);
        run.run_until(run.machine.now_ns() + 50 * MS);
        run.observer.begin(&mut run.machine);
        let shared = model(&text("class = \"shared\""));
        run.act(|run| run.policy.tell(&mut run.machine, Event::Configured(shared)));
        let received = after(&mut run, 500 * MS);
        let longest_ns = received[tenants.home("web").first_unit.index()].blackout_max_ns;
        assert!(longest_ns < 100 * US, "it waited for {longest_ns} ns beside a CPU that idles");
    });
}

/// Two threads of a tenant wait, one behind the other, and the first is moved to another tenant's cgroup: the other one
/// is behind nobody then.
#[test]
fn who_waits_behind_one_that_is_moved_away_is_not_forgotten() {
    apart(|| {
        let mut text = "[host]\ncpus = \"0-1\"\nhousekeeping = \"0\"\n".to_owned();
        for name in ["busy", "left", "other"] {
            text += &format!(
                "[[tenant]]\nname = \"{name}\"\nclass = \"shared\"\nmatch = {{ cgroup = \"{name}\" }}\n"
            );
        }
        let (mut run, mut tenants) = start(&text);
        run.spawn(tenants.thread("busy", Hog));
        settle(&mut run, &tenants);
        run.run_until(run.machine.now_ns() + 50 * MS);
        run.observer.begin(&mut run.machine);
        let first = run.spawn(tenants.thread("left", Hog));
        let second = UnitId(9);
        run.spawn(TaskSpec { unit: second, ..tenants.thread("left", Hog) });
        let other = tenants.home("other").cgroup;
        run.act(|run| run.set_cgroup(first, other));
        let received = after(&mut run, 300 * MS);
        let longest_ns = received[second.index()].blackout_max_ns;
        assert!(longest_ns < 50 * MS, "it waited for {longest_ns} ns");
    });
}

/// A hungry slot was told of a thread, and serves another one that woke together with it and may run nowhere else: the
/// first one has another hungry slot.
#[test]
fn who_is_displaced_by_one_that_is_bound_has_another_slot() {
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
            share = 0.9
            latency = "20ms"
            capped = true
            match = { cgroup = "web" }
            [[tenant]]
            name = "batch"
            class = "background"
            match = { cgroup = "batch" }
            "#,
        );
        for _ in 0..2 {
            run.spawn(tenants.thread("batch", Hog));
        }
        let signs = [0, 0].map(|count| Rc::new(Semaphore::new(count)));
        run.spawn(tenants.system(wakes(signs.to_vec())));
        let [free, bound] = signs;
        run.spawn(TaskSpec { unit: UnitId(9), ..tenants.thread("web", works(free, 4 * MS)) });
        let first = Some(run.machine.mask([CpuId(1)]));
        run.spawn(TaskSpec { affinity: first, ..tenants.thread("web", works(bound, 3 * MS)) });
        settle(&mut run, &tenants);
        run.observer.begin(&mut run.machine);
        let received = after(&mut run, 1_000 * MS);
        let wanted_ns = received[9].wanted_ns;
        assert!(wanted_ns < 500 * MS, "it has had to do for {wanted_ns} ns of 1 s, instead of 400 ms");
    });
}

/// An idle CPU was told of a thread of the system, and takes another one that woke together with it and may run on no
/// other of the system's CPUs: the first one has another CPU that idles.
#[test]
fn who_is_displaced_by_one_that_is_bound_has_another_cpu() {
    apart(|| {
        let (mut run, mut tenants) = start(
            r#"
            [host]
            cpus = "0-2"
            housekeeping = "0-1"
            [[tenant]]
            name = "batch"
            class = "shared"
            match = { cgroup = "batch" }
            "#,
        );
        let signs = [0, 0].map(|count| Rc::new(Semaphore::new(count)));
        run.spawn(tenants.thread("batch", wakes(signs.to_vec())));
        let [free, bound] = signs;
        run.spawn(TaskSpec { unit: UnitId(9), ..tenants.system(works(free, 4 * MS)) });
        let cpus = Some(run.machine.mask([CpuId(0), CpuId(2)]));
        run.spawn(TaskSpec { affinity: cpus, ..tenants.system(works(bound, 3 * MS)) });
        settle(&mut run, &tenants);
        run.observer.begin(&mut run.machine);
        let received = after(&mut run, 1_000 * MS);
        let wanted_ns = received[9].wanted_ns;
        assert!(wanted_ns < 500 * MS, "it has had to do for {wanted_ns} ns of 1 s, instead of 400 ms");
    });
}

/// Threads that wait among the system's become a shared tenant's all at once: each idle CPU has one.
#[test]
fn who_becomes_a_tenants_while_it_waits_leaves_no_cpu_idle() {
    apart(|| {
        let (mut run, mut tenants) = start(
            r#"
            [host]
            cpus = "0-2"
            housekeeping = "0"
            [[tenant]]
            name = "web"
            class = "shared"
            match = { cgroup = "web" }
            "#,
        );
        let threads = [0, 1, 2].map(|_| run.spawn(tenants.thread("web", Hog)));
        run.run_until(run.machine.now_ns() + 20 * MS);
        run.act(|run| run.policy.appears(&mut run.machine, "web", tenants.home("web").cgroup));
        let is_there = |run: &Run, cpu| {
            let runs = |id: &&TaskId| run.machine.task(**id).state == State::Running;
            threads.iter().filter(runs).any(|id| run.machine.task(*id).cpu == CpuId(cpu))
        };
        while !is_there(&run, 1) && !is_there(&run, 2) {
            run.run_until(run.machine.now_ns() + 100 * US);
        }
        run.run_until(run.machine.now_ns() + 100 * US);
        assert!(is_there(&run, 1) && is_there(&run, 2), "one of both CPUs idles");
    });
}

/// A tenant's threads may run on one of its CPUs only, and on another one each of its vCPUs asks in vain for what slots
/// leave: then it is the turn of whoever is ahead of it.
#[test]
fn who_asks_in_vain_for_what_slots_leave_keeps_nobody_from_it() {
    apart(|| {
        let (mut run, mut tenants) = start(
            r#"
            [host]
            cpus = "0-2"
            housekeeping = "0"
            [[tenant]]
            name = "alone"
            class = "reserved"
            share = 0.1
            latency = "20ms"
            affinity = "1"
            match = { cgroup = "alone" }
            [[tenant]]
            name = "web"
            class = "reserved"
            vcpus = 14
            share = 0.1
            latency = "20ms"
            match = { cgroup = "web" }
            "#,
        );
        run.spawn(tenants.thread("alone", Hog));
        for _ in 0..2 {
            let second = Some(run.machine.mask([CpuId(2)]));
            run.spawn(TaskSpec { affinity: second, ..tenants.thread("web", Hog) });
        }
        settle(&mut run, &tenants);
        run.run_until(run.machine.now_ns() + 50 * MS);
        run.observer.begin(&mut run.machine);
        let received = after(&mut run, 200 * MS);
        let longest_ns = received[tenants.home("alone").first_unit.index()].blackout_max_ns;
        assert!(longest_ns < 100 * US, "it waited for {longest_ns} ns beside a CPU that idles");
    });
}

/// A tenant has other queues, for more vCPUs, while a thread waits in the one before, and another tenant comes: it gets
/// no queue in which somebody is still counted.
#[test]
fn who_comes_where_somebody_has_waited_is_seen_to_wait() {
    apart(|| {
        let text = |vcpus: u32| {
            let tenant = |name: &str, vcpus: u32, capped: bool| {
                format!(
                    r#"
                    [[tenant]]
                    name = "{name}"
                    class = "reserved"
                    vcpus = {vcpus}
                    share = 0.2
                    latency = "20ms"
                    capped = {capped}
                    match = {{ cgroup = "{name}" }}
                    "#
                )
            };
            let tenants = [tenant("web", vcpus, true), tenant("next", 1, true), tenant("busy", 1, false)];
            format!("[host]\ncpus = \"0\"\n{}", tenants.concat())
        };
        let (mut run, mut tenants) = start(&text(1));
        for name in ["web", "web", "next", "busy"] {
            run.spawn(tenants.thread(name, Hog));
        }
        settle(&mut run, &tenants);
        run.act(|run| run.policy.vanishes(&mut run.machine, "next"));
        run.run_until(run.machine.now_ns() + 500 * MS);
        let (more, next) = (model(&text(2)), tenants.home("next").cgroup);
        run.act(|run| run.policy.tell(&mut run.machine, Event::Configured(more)));
        while !run.policy.is_settled() {
            run.run_until(run.machine.now_ns() + US);
        }
        run.act(|run| run.policy.appears(&mut run.machine, "next", next));
        run.run_until(run.machine.now_ns() + 500 * MS);
        run.observer.begin(&mut run.machine);
        let received = after(&mut run, 500 * MS);
        let longest_ns = received[tenants.home("next").first_unit.index()].blackout_max_ns;
        assert!(longest_ns < 21 * MS, "it waited for {longest_ns} ns");
    });
}

/// A thread may run on some CPUs only, a housekeeping one among them, which idles, too.
#[test]
fn who_may_run_on_a_housekeeping_cpu_too_finds_another_that_idles() {
    apart(|| {
        let text = r#"
            [host]
            cpus = "0-3"
            housekeeping = "0"
            [[tenant]]
            name = "web"
            class = "reserved"
            share = 0.9
            latency = "20ms"
            affinity = "1"
            match = { cgroup = "web" }
            [[tenant]]
            name = "batch"
            class = "shared"
            match = { cgroup = "batch" }
            "#;
        let (mut run, mut tenants) = start(text);
        run.spawn(tenants.thread("web", Hog));
        let on = |run: &Run, cpus: &[u32]| run.machine.mask(cpus.iter().copied().map(CpuId));
        let bound = TaskSpec { affinity: Some(on(&run, &[1])), ..tenants.thread("batch", Hog) };
        let bound = run.spawn(bound);
        settle(&mut run, &tenants);
        run.run_until(run.machine.now_ns() + 200 * MS);
        for _ in 0..20 {
            let cpus = on(&run, &[0, 1, 2]);
            run.act(|run| run.set_affinity(bound, cpus));
            run.run_until(run.machine.now_ns() + MS);
            let state = run.machine.task(bound).state;
            assert_eq!(state, State::Running, "it waits beside a CPU that idles");
            let cpus = on(&run, &[1]);
            run.act(|run| run.set_affinity(bound, cpus));
            run.run_until(run.machine.now_ns() + 7 * MS);
        }
    });
}

/// Threads wait in the queue of a reserved tenant, which becomes a shared one: one of them waits in line from then on,
/// and the others behind it.
#[test]
fn who_waits_behind_another_when_a_tenant_becomes_shared_takes_an_idle_cpu() {
    let host = r#"
        [host]
        cpus = "0-16"
        housekeeping = "0"
        [[tenant]]
        name = "web"
        class = "reserved"
        capped = true
        share = 0.1
        latency = "64ms"
        match = { cgroup = "web" }
        "#;
    apart(|| {
        let (mut run, mut tenants) = start(host);
        for _ in 0..16 {
            run.spawn(tenants.thread("web", Hog));
        }
        settle(&mut run, &tenants);
        let class = rota_model::Class::Shared { weight: 100 };
        let spec = rota_sched::TenantSpec {
            id: 1,
            class,
            vcpus: 1,
            kind: rota_sched::TenantKind::Container,
            oversubscribe: true,
            monitor: None,
        };
        run.act(|run| run.policy.ask(&mut run.machine, |scheduler| scheduler.tenant_set(&spec).unwrap()));
        run.observer.begin(&mut run.machine);
        let received = after(&mut run, 50 * MS);
        let received_ns = received[tenants.home("web").first_unit.index()].received_ns;
        assert!(received_ns > 799 * MS, "{received_ns} ns of 16 CPUs");
    });
}
