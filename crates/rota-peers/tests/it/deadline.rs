//! `SCHED_DEADLINE`.

use rota_peers::{Deadline, Server};
use rota_sim::programs::{Hog, Periodic};
use rota_sim::{CgroupId, Thread};

use crate::machines::{MS, Machines, Run, US, assert_share, machine};

/// A cgroup some of whose threads have this server.
fn reserved(run: &mut Run<Deadline>, budget_ns: u64, period_ns: u64, threads: u32) -> CgroupId {
    let cgroup = run.cgroup(100, None);
    run.policy.reserve(cgroup, Server { budget_ns, period_ns }, threads);
    cgroup
}

/// A reservation holds beside any number of ordinary threads, which have the rest.
#[test]
fn reservations_come_first_and_no_more() {
    let mut run = machine(1, Deadline::default());
    let reserved = reserved(&mut run, 2 * MS, 10 * MS, 1);
    let task = run.task(0, reserved, Hog);
    assert!(run.policy.is_reserved(task));
    (0..5).for_each(|_| _ = run.task(1, CgroupId::ROOT, Hog));
    run.run_until(10_000 * MS);
    let units = run.units();
    assert_share(units[0].received_ns, 10_000 * MS, 20, 0);
    assert_share(units[1].received_ns, 10_000 * MS, 80, 0);
    assert!(units[0].blackout_max_ns <= 16 * MS, "2(T - C): {}", units[0].blackout_max_ns);
}

/// 95 % of the CPUs may be reserved; who comes after that is ordinary, until somebody leaves.
#[test]
fn more_than_there_is_is_not_admitted() {
    let mut run = machine(2, Deadline::default());
    let reserved = reserved(&mut run, 6 * MS, 10 * MS, 5);
    let ends = run.script(0, reserved, async move |thread: Thread| thread.compute(60 * MS).await);
    let tasks = [1, 2, 3].map(|unit| run.task(unit, reserved, Hog));
    assert_eq!(
        tasks.map(|task| run.policy.is_reserved(task)),
        [true, true, false],
        "0.6 x 3 <= 1.9 < 0.6 x 4"
    );
    assert!(run.policy.is_reserved(ends));
    run.run_until(500 * MS);
    let late = run.task(4, reserved, Hog);
    assert!(run.policy.is_reserved(late), "there is room again");
}

/// A server that wakes late has no more than its share of the time that is left: it cannot starve others by sleeping.
#[test]
fn sleeping_saves_nothing_up() {
    let mut run = machine(1, Deadline::default());
    let sleeper = reserved(&mut run, 5 * MS, 10 * MS, 1);
    let other = reserved(&mut run, 4 * MS, 10 * MS, 1);
    run.script(0, sleeper, async move |thread: Thread| {
        loop {
            // A little at the begin of a period, and as much as it can get near its end.
            thread.compute(100 * US).await;
            thread.sleep(9 * MS).await;
            thread.compute(12 * MS).await;
        }
    });
    run.task(1, other, Hog);
    run.run_until(10_000 * MS);
    let units = run.units();
    assert_share(units[1].received_ns, 10_000 * MS, 40, 0);
    assert!(units[1].blackout_max_ns <= 12 * MS, "2(T - C): {}", units[1].blackout_max_ns);
    assert!(units[0].received_ns <= 5_000 * MS);
}

/// A periodic thread within its budget runs whenever it wakes, before ordinary ones on all CPUs.
#[test]
fn who_keeps_within_its_budget_never_waits() {
    let mut run = machine(2, Deadline::default());
    let reserved = reserved(&mut run, 2 * MS, 10 * MS, 2);
    (0..2).for_each(|unit| _ = run.task(unit, reserved, Periodic::new(1_500 * US, 8_500 * US)));
    (0..4).for_each(|_| _ = run.task(2, CgroupId::ROOT, Hog));
    run.run_until(5_000 * MS);
    let units = run.units();
    for unit in &units[..2] {
        assert!(unit.wakeups.quantile(1.0).is_some_and(|ns| ns < 10 * US));
        assert_eq!(unit.preemptions, 0);
    }
    let received_ns: u64 = units.iter().map(|unit| unit.received_ns).sum();
    assert_share(received_ns, 10_000 * MS, 100, 1);
}
