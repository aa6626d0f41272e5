//! Xen's Credit.

use rota_peers::Credit;
use rota_sim::programs::{Hog, Periodic};
use rota_sim::{CgroupId, Thread};

use crate::fair::barrier_program;
use crate::machines::{MS, Machines, Run, US, assert_share, machine};

#[test]
fn vcpus_take_turns_of_30_ms() {
    let mut run = machine(1, Credit::default());
    (0..3).for_each(|unit| _ = run.task(unit, CgroupId::ROOT, Hog));
    run.run_until(9_000 * MS);
    let units = run.units();
    assert!(units.iter().all(|unit| unit.dispatches.abs_diff(100) <= 2));
    assert!(units.iter().all(|unit| unit.blackout_max_ns.abs_diff(60 * MS) < 31 * MS));
}

/// A shorter slice, shorter turns, and the same shares (thesis, section 6.2: 5 ms).
#[test]
fn a_time_slice_may_be_shorter() {
    let mut run = machine(1, Credit::with_slice(5 * MS));
    (0..4).for_each(|unit| _ = run.task(unit, CgroupId::ROOT, Hog));
    run.run_until(8_000 * MS);
    for unit in run.units() {
        assert_share(unit.received_ns, 8_000 * MS, 25, 1);
        assert!(unit.blackout_max_ns.abs_diff(15 * MS) < 6 * MS, "{}", unit.blackout_max_ns);
    }
}

/// Twice the weight, twice the time.
#[test]
fn weights_are_shares() {
    let received = |weight| {
        let mut run = machine(2, Credit::default());
        let domains = [run.cgroup(100, None), run.cgroup(weight, None)];
        (0..4).for_each(|task| _ = run.task(task % 2, domains[task as usize % 2], Hog));
        run.run_until(20_000 * MS);
        let units = run.units();
        assert!(units[0].received_ns + units[1].received_ns > 40_000 * MS - 1_000, "no CPU idles");
        units[1].received_ns
    };
    assert_share(received(100), 40_000 * MS, 50, 2);
    assert_share(received(200), 40_000 * MS, 67, 2);
}

/// A vCPU that computes a little after each wait, beside hogs: wherever it wakes, it runs before them.
#[test]
fn boost_lets_who_wakes_run_at_once() {
    let mut run = machine(1, Credit::default());
    run.task(0, CgroupId::ROOT, Periodic::new(100 * US, 7 * MS));
    (0..4).for_each(|_| _ = run.task(1, CgroupId::ROOT, Hog));
    run.run_until(10_000 * MS);
    let worst_ns = run.units()[0].wakeups.quantile(0.99).expect("it woke");
    assert!(worst_ns <= 2 * MS, "it may wait until a hog has run for 1 ms: {worst_ns}");
}

/// If everybody waits and wakes, everybody is boosted and nobody is (Vanga, thesis sections 3.2 and 6.4).
#[test]
fn boost_is_worth_nothing_when_all_are_boosted() {
    let tail_ns = |others: fn(&mut Run<Credit>)| {
        let mut run = machine(1, Credit::default());
        run.task(0, CgroupId::ROOT, Periodic::new(100 * US, 7 * MS));
        others(&mut run);
        run.run_until(10_000 * MS);
        run.units()[0].wakeups.quantile(0.95).expect("it woke")
    };
    let among_hogs_ns = tail_ns(|run| (0..4).for_each(|_| _ = run.task(1, CgroupId::ROOT, Hog)));
    let among_equals_ns = tail_ns(|run| {
        for place in 0..7 {
            run.script(1, CgroupId::ROOT, async move |thread: Thread| {
                thread.sleep(place * 700 * US).await;
                loop {
                    thread.compute(3 * MS).await;
                    thread.sleep(22 * MS).await;
                }
            });
        }
    });
    assert!(among_hogs_ns <= MS && among_equals_ns > 3 * MS, "{among_equals_ns} against {among_hogs_ns}");
}

/// A tick that finds a vCPU running takes its boost away: who computes for long after each wait is nobody special.
#[test]
fn boost_ends_at_a_tick() {
    let tail_ns = |compute_ns| {
        let mut run = machine(1, Credit::default());
        run.task(0, CgroupId::ROOT, Periodic::new(compute_ns, 5 * MS));
        (0..2).for_each(|_| _ = run.task(1, CgroupId::ROOT, Hog));
        run.run_until(10_000 * MS);
        run.units()[0].blackout_max_ns
    };
    assert!(tail_ns(MS) <= 2 * MS);
    assert!(tail_ns(25 * MS) > 25 * MS);
}

/// A capped vCPU has its cap and no more, and waits for tens of ms for it (thesis section 6.2.1: up to 44 ms here).
#[test]
fn caps_are_kept_in_long_waits() {
    let mut run = machine(1, Credit::default());
    let capped = run.cgroup(100, Some((25 * MS, 100 * MS)));
    run.task(0, capped, Hog);
    run.run_until(20_000 * MS);
    let units = run.units();
    assert_share(units[0].received_ns, 20_000 * MS, 25, 2);
    assert!(units[0].blackout_max_ns > 40 * MS, "{}", units[0].blackout_max_ns);
}

#[test]
fn idle_cpus_steal() {
    let mut run = machine(4, Credit::default());
    let tasks = [0, 1, 2, 3].map(|unit| run.pinned(unit, CgroupId::ROOT, &[0], Hog));
    run.run_until(100 * MS);
    run.measure_from_now();
    for task in tasks {
        let everywhere = run.cpus(&[0, 1, 2, 3]);
        run.set_affinity(task, everywhere);
    }
    run.run_until(1_100 * MS);
    let received_ns: u64 = run.units().iter().map(|unit| unit.received_ns).sum();
    assert_share(received_ns, 4_000 * MS, 100, 1);
}

/// Deceptive idleness: a program whose threads wait for each other every half ms has far less than its half beside
/// hogs. Boost makes up for it only where the threads compute for longer.
#[test]
fn blocking_programs_get_less_than_their_share() {
    let percent = |compute_ns| {
        let mut run = machine(8, Credit::default());
        let groups = [run.cgroup(100, None), run.cgroup(100, None)];
        barrier_program(&mut run, 0, groups[0], 8, compute_ns);
        (0..8).for_each(|_| _ = run.task(1, groups[1], Hog));
        run.run_until(1_000 * MS);
        run.measure_from_now();
        run.run_until(21_000 * MS);
        run.units()[0].received_ns * 100 / (8 * 20_000 * MS)
    };
    let (fine, coarse) = (percent(500 * US), percent(5 * MS));
    assert!(fine < 25 && coarse > 40, "{fine} % and {coarse} %");
}

/// Four vCPUs a CPU, nobody capped: one that computes waits for 90 ms beside three that do so too, and for longer
/// beside such as wake all the time, each of which is boosted (Vanga, thesis section 6.2.1: up to 220 ms on 44 cores).
#[test]
fn who_computes_waits_for_long() {
    let worst_ns = |io: bool| {
        let mut run = machine(4, Credit::default());
        let vantage = run.cgroup(100, None);
        run.task(0, vantage, Hog);
        for _ in 0..15 {
            let other = run.cgroup(100, None);
            run.script(1, other, async move |thread: Thread| {
                loop {
                    let on_ns = thread.draw(|rng| rng.between(10 * US, 2 * MS));
                    let off_ns = thread.draw(|rng| rng.between(10 * US, 500 * US));
                    thread.compute(on_ns).await;
                    if io {
                        thread.sleep(off_ns).await;
                    }
                }
            });
        }
        run.run_until(20_000 * MS);
        run.units()[0].blackout_max_ns
    };
    let (beside_io_ns, beside_hogs_ns) = (worst_ns(true), worst_ns(false));
    assert!(beside_hogs_ns.abs_diff(90 * MS) < MS, "{beside_hogs_ns}");
    assert!(beside_io_ns > 120 * MS, "{beside_io_ns}");
}
