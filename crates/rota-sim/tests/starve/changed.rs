//! Threads of shared tenants are changed, or others come, as they run or wait: nobody waits for ever for that.

use rota_sim::programs::Hog;
use rota_sim::{CpuId, State, TaskSpec, UnitId, apart};

use super::{FAIR, MS, S, WEB, appears, longest_ns, start};

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
