//! Threads are changed, or their tenants, or others come, as they run or wait: nobody waits for ever for that.

use rota_rules::life::Event;
use rota_sim::programs::Hog;
use rota_sim::{CpuId, State, TaskSpec, UnitId};
use rota_twin::apart;

use super::{FAIR, MS, Run, S, WEB, appears, bound, longest_ns, model, start};

/// A program sets the affinity of one of two siblings again and again as it runs.
#[test]
fn who_is_changed_as_it_runs_leaves_its_sibling_a_turn() {
    apart(|| {
        let (mut run, mut tenants) = start(&(WEB.to_owned() + FAIR));
        appears(&mut run, &tenants, "fair");
        let changed = run.spawn(tenants.thread("fair", Hog));
        run.spawn(TaskSpec { unit: UnitId(9), ..tenants.thread("fair", Hog) });
        run.observer.begin(&run.machine);
        for _ in 0..10_000 {
            run.run_until(run.machine.now_ns() + MS);
            if run.machine.task(changed).state == State::Running {
                let mask = run.machine.mask([CpuId(0)]);
                run.act(|run| run.set_affinity(changed, mask));
            }
        }
        let longest_ns = run.observer.of(&run.machine, UnitId(9)).wait_ns;
        assert!(longest_ns < 100 * MS, "{longest_ns} ns");
    });
}

/// Hundreds of a shared tenant's threads live on the floor, each by being called in time, and other tenants come.
#[test]
fn who_comes_leaves_those_who_are_overdue_their_turn() {
    apart(|| {
        let mut text = WEB.to_owned() + FAIR;
        let others: Vec<String> = (0..12).map(|other| format!("other-{other}")).collect();
        for name in &others {
            text += &format!(
                "[[tenant]]\nname = \"{name}\"\nclass = \"background\"\nmatch = {{ cgroup = \"{name}\" }}\n"
            );
        }
        let (mut run, mut tenants) = start(&text);
        for (name, threads) in [("web", 1), ("fair", 400)] {
            appears(&mut run, &tenants, name);
            for _ in 0..threads {
                run.spawn(tenants.thread(name, Hog));
            }
        }
        run.run_until(run.machine.now_ns() + 20 * S);
        for name in &others {
            appears(&mut run, &tenants, name);
            run.run_until(run.machine.now_ns() + 90 * MS);
        }
        let unit = tenants.home("fair").first_unit;
        let longest_ns = longest_ns(&mut run, unit, 40 * S);
        assert!(longest_ns < 25 * S, "{longest_ns} ns");
    });
}

/// A tenant gets another `affinity`, and has its slots elsewhere from the next table on, with the same promise. One of
/// its threads waits that has bound itself to the CPU that it had before.
#[test]
fn who_is_bound_to_where_the_slots_were_is_not_forgotten() {
    apart(|| {
        let text = |cpu| {
            WEB.replace("cpus = \"0\"", "cpus = \"0-2\"\nhousekeeping = \"0\"")
                .replace("class", &format!("affinity = \"{cpu}\"\nclass"))
        };
        let (mut run, mut tenants) = start(&text(1));
        appears(&mut run, &tenants, "web");
        let tasks = [0, 1].map(|_| {
            let hog = bound(&run, tenants.thread("web", Hog), 1);
            run.spawn(hog)
        });
        run.run_until(run.machine.now_ns() + S);
        let model = model(&text(2));
        run.act(|run| run.policy.tell(&mut run.machine, Event::Configured(model)));
        while !run.policy.is_settled() {
            run.run_until(run.machine.now_ns() + 10 * MS);
        }
        let used_ns = |run: &Run| tasks.map(|task| run.machine.task(task).used_ns);
        let before_ns = used_ns(&run);
        run.run_until(run.machine.now_ns() + S);
        let now_ns = used_ns(&run);
        let used_ns = [0, 1].map(|task| now_ns[task] - before_ns[task]);
        assert!(used_ns.iter().all(|ns| *ns > 400 * MS), "{used_ns:?} ns of a second on a CPU that idles");
    });
}
