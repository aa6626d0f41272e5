//! `cpu.max`, the same for both rules.

use rota_peers::{Cfs, Eevdf, Fair};
use rota_sim::programs::Hog;
use rota_sim::{CgroupId, Policy, Thread};

use crate::machines::{MS, Machines, assert_share, machine};

/// A hog that may have 20 of 100 ms runs 20 ms at once and then waits for 80.
#[test]
fn a_group_is_throttled_until_its_period_ends() {
    let mut run = machine(1, Fair::<Eevdf>::default());
    let cgroup = run.cgroup(100, Some((20 * MS, 100 * MS)));
    run.task(0, cgroup, Hog);
    run.run_until(10_000 * MS);
    let units = run.units();
    assert_share(units[0].received_ns, 10_000 * MS, 20, 1);
    // It notices at a tick that its runtime is over, and owes what it had too much.
    assert!((76 * MS..=84 * MS).contains(&units[0].blackout_max_ns), "{}", units[0].blackout_max_ns);
    assert!(run.policy.throttled_periods(cgroup) >= 98);
}

/// The quota counts over all CPUs: ten threads on eight CPUs use 100 ms up in 12.5, and wait for 87.5.
#[test]
fn more_threads_use_the_quota_up_sooner() {
    let mut run = machine(8, Fair::<Cfs>::default());
    let cgroup = run.cgroup(100, Some((100 * MS, 100 * MS)));
    (0..10).for_each(|_| _ = run.task(0, cgroup, Hog));
    run.run_until(10_000 * MS);
    let units = run.units();
    assert_share(units[0].received_ns, 10_000 * MS, 100, 5);
    assert!(units[0].blackout_max_ns > 70 * MS, "{}", units[0].blackout_max_ns);
}

/// Latency caused by quota: a thread that wants a tenth of a CPU is throttled for its siblings' burst.
fn a_burst_delays_the_whole_group<P: Policy + Default>() {
    let worst = |burst: bool| {
        let mut run = machine(4, P::default());
        let cgroup = run.cgroup(100, Some((50 * MS, 100 * MS)));
        run.script(1, cgroup, async move |thread: Thread| {
            loop {
                thread.sleep(9 * MS).await;
                thread.compute(MS).await;
            }
        });
        if burst {
            for _ in 0..3 {
                run.script(2, cgroup, async move |thread: Thread| {
                    loop {
                        thread.sleep(500 * MS).await;
                        thread.compute(30 * MS).await;
                    }
                });
            }
        }
        run.run_until(10_000 * MS);
        run.units()[1].blackout_max_ns
    };
    assert!(worst(false) < MS);
    assert!(worst(true) > 40 * MS, "{}", worst(true));
}

#[test]
fn a_burst_delays_the_whole_group_eevdf() {
    a_burst_delays_the_whole_group::<Fair<Eevdf>>();
}

#[test]
fn a_burst_delays_the_whole_group_cfs() {
    a_burst_delays_the_whole_group::<Fair<Cfs>>();
}

/// What a group leaves is others': the limit is no share.
#[test]
fn others_have_what_is_left() {
    let mut run = machine(2, Fair::<Eevdf>::default());
    let (limited, free) = (run.cgroup(100, Some((30 * MS, 100 * MS))), run.cgroup(100, None));
    (0..2).for_each(|_| _ = run.task(0, limited, Hog));
    (0..2).for_each(|_| _ = run.task(1, free, Hog));
    run.run_until(10_000 * MS);
    let units = run.units();
    assert_share(units[0].received_ns, 20_000 * MS, 15, 1);
    assert_share(units[1].received_ns, 20_000 * MS, 85, 1);
}

/// A limit above others: children have at most what their parent may have.
#[test]
fn a_parents_limit_holds_for_all_below() {
    let mut run = machine(2, Fair::<Eevdf>::default());
    let parent = run.cgroup(100, Some((60 * MS, 100 * MS)));
    for (unit, max) in [(0, None), (1, Some((20 * MS, 100 * MS)))] {
        let child = rota_sim::Cgroup { parent: Some(parent), weight: 100, max };
        let child = run.machine.cgroup_new(child);
        (0..2).for_each(|_| _ = run.task(unit, child, Hog));
    }
    run.run_until(10_000 * MS);
    let units = run.units();
    assert_share(units[0].received_ns + units[1].received_ns, 10_000 * MS, 60, 2);
    assert_share(units[1].received_ns, 10_000 * MS, 20, 2);
}

/// A CPU that goes takes nothing that was throttled with it, and nobody escapes the limit by moving.
#[test]
fn throttled_tasks_survive_hotplug_and_moves() {
    let mut run = machine(2, Fair::<Eevdf>::default());
    let limited = run.cgroup(100, Some((10 * MS, 100 * MS)));
    let tasks = [run.task(0, limited, Hog), run.task(0, limited, Hog)];
    for round in 0..20u64 {
        run.run_until((round * 10 + 5) * 37 * MS);
        run.offline(rota_sim::CpuId((round % 2) as u32));
        run.set_cgroup(tasks[0], if round % 3 == 0 { CgroupId::ROOT } else { limited });
        run.set_cgroup(tasks[0], limited);
        run.run_until((round * 10 + 9) * 37 * MS);
        run.online(rota_sim::CpuId((round % 2) as u32));
    }
    run.run_until(20_000 * MS);
    let units = run.units();
    assert_share(units[0].received_ns, 20_000 * MS, 10, 1);
    let used = tasks.map(|task| run.machine.task(task).used_ns);
    assert!(used.iter().all(|&used_ns| used_ns > 500 * MS), "{used:?}");
}
