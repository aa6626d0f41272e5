//! EEVDF and CFS.

use std::cell::RefCell;
use std::rc::Rc;

use rota_model::{CpuPlace, Topology};
use rota_peers::{Cfs, Eevdf, Fair};
use rota_sim::observe::{Metrics, Sanity};
use rota_sim::programs::{Hog, Periodic};
use rota_sim::{CgroupId, Costs, Policy, Simulation, TaskId, TaskSpec, Thread, UnitId};

use crate::machines::{MS, Machines, Run, US, assert_share, machine};

/// The same test for both rules.
macro_rules! both {
    ($($test:ident)*) => {
        mod eevdf {
            $(#[test] fn $test() { super::$test::<super::Fair<super::Eevdf>>(); })*
        }
        mod cfs {
            $(#[test] fn $test() { super::$test::<super::Fair<super::Cfs>>(); })*
        }
    };
}

both! {
    weights_of_tasks_are_shares
    weights_of_groups_are_shares_whatever_is_in_them
    groups_in_groups_share_what_their_parent_has
    a_groups_weight_counts_over_all_cpus
    a_sleeper_is_not_in_debt_for_ever
    idle_cpus_take_what_waits
    crowds_are_spread_over_the_machine
    yielding_lets_others_go_first
    blocking_programs_get_less_than_their_share
}

/// Two tasks of one CPU, one with three times the weight.
fn weights_of_tasks_are_shares<P: Policy + Default>() {
    let mut run = machine(1, P::default());
    for (unit, weight) in [(0, 100), (1, 300)] {
        let spec = TaskSpec::new(100, UnitId(unit), CgroupId::ROOT, Hog);
        run.spawn(TaskSpec { weight, ..spec });
    }
    run.run_until(10_000 * MS);
    let units = run.units();
    assert_share(units[0].received_ns, 10_000 * MS, 25, 1);
    assert_share(units[1].received_ns, 10_000 * MS, 75, 1);
}

/// One task against five.
fn weights_of_groups_are_shares_whatever_is_in_them<P: Policy + Default>() {
    let mut run = machine(1, P::default());
    let (one, many) = (run.cgroup(100, None), run.cgroup(200, None));
    run.task(0, one, Hog);
    (0..5).for_each(|_| _ = run.task(1, many, Hog));
    run.run_until(10_000 * MS);
    let units = run.units();
    assert_share(units[0].received_ns, 10_000 * MS, 33, 1);
    assert_share(units[1].received_ns, 10_000 * MS, 67, 1);
}

fn groups_in_groups_share_what_their_parent_has<P: Policy + Default>() {
    let mut run = machine(1, P::default());
    let (alone, parent) = (run.cgroup(100, None), run.cgroup(100, None));
    let child = |run: &mut Run<P>, weight| {
        run.machine.cgroup_new(rota_sim::Cgroup { parent: Some(parent), weight, max: None })
    };
    let (small, large) = (child(&mut run, 100), child(&mut run, 300));
    for (unit, cgroup) in [(0, alone), (1, small), (2, large)] {
        (0..2).for_each(|_| _ = run.task(unit, cgroup, Hog));
    }
    run.run_until(10_000 * MS);
    let units = run.units();
    assert_share(units[0].received_ns, 10_000 * MS, 50, 1);
    assert_share(units[1].received_ns, 10_000 * MS, 12, 1);
    assert_share(units[2].received_ns, 10_000 * MS, 38, 1);
}

/// Four threads on four CPUs against four hogs of a group with the same weight, and against eight.
fn a_groups_weight_counts_over_all_cpus<P: Policy + Default>() {
    for hogs in [4, 8] {
        let mut run = machine(4, P::default());
        let groups = [run.cgroup(100, None), run.cgroup(100, None)];
        (0..4).for_each(|_| _ = run.task(0, groups[0], Hog));
        (0..hogs).for_each(|_| _ = run.task(1, groups[1], Hog));
        run.run_until(1_000 * MS);
        run.measure_from_now();
        run.run_until(11_000 * MS);
        let units = run.units();
        assert_share(units[0].received_ns, 40_000 * MS, 50, 6);
        assert_eq!(units[0].received_ns + units[1].received_ns, 40_000 * MS, "no CPU idles");
    }
}

/// Who runs half of the time by its own will has its half beside a hog: sleeping costs nothing.
fn a_sleeper_is_not_in_debt_for_ever<P: Policy + Default>() {
    let mut run = machine(1, P::default());
    run.task(0, CgroupId::ROOT, Hog);
    run.script(1, CgroupId::ROOT, async move |thread: Thread| {
        thread.compute(500 * MS).await;
        loop {
            thread.sleep(9 * MS).await;
            thread.compute(MS).await;
        }
    });
    run.run_until(5_000 * MS);
    run.measure_from_now();
    run.run_until(10_000 * MS);
    let units = run.units();
    assert!(units[1].received_ns > 5_000 * MS / 10 * 7 / 10, "{:?}", units[1].received_ns);
    assert!(units[1].wakeups.quantile(0.99) < Some(8 * MS), "{:?}", units[1].wakeups);
}

fn idle_cpus_take_what_waits<P: Policy + Default>() {
    let mut run = machine(4, P::default());
    // All begin where they must be, and may then leave.
    let tasks: Vec<TaskId> = (0..4).map(|unit| run.pinned(unit, CgroupId::ROOT, &[0], Hog)).collect();
    run.run_until(100 * MS);
    let everywhere = run.cpus(&[0, 1, 2, 3]);
    for task in tasks {
        run.set_affinity(task, everywhere.clone());
    }
    run.measure_from_now();
    run.run_until(1_100 * MS);
    for unit in run.units() {
        assert_share(unit.received_ns, 1_000 * MS, 100, 2);
    }
}

/// Sixteen hogs on sixteen CPUs of two sockets with siblings, begun by one: each soon has a CPU.
fn crowds_are_spread_over_the_machine<P: Policy + Default>() {
    let place = |cpu: u32| CpuPlace {
        cpu,
        core: cpu % 8,
        cache: cpu % 8 / 4,
        node: cpu % 8 / 4,
        socket: cpu % 8 / 4,
    };
    let topology = Topology { places: (0..16).map(place).collect() };
    let observer = (Metrics::default(), Sanity::new(1_000 * MS));
    let mut run = Simulation::new(topology, Costs::default(), 1, 0, P::default(), observer);
    run.script(16, CgroupId::ROOT, async move |thread: Thread| thread.compute(MS).await);
    for unit in 0..16 {
        run.task(unit, CgroupId::ROOT, Hog);
    }
    run.run_until(500 * MS);
    run.measure_from_now();
    run.run_until(1_500 * MS);
    for unit in &run.units()[..16] {
        assert_share(unit.received_ns, 1_000 * MS, 100, 1);
    }
}

/// Two tasks that yield after each 10 us take turns, although a slice is much longer.
fn yielding_lets_others_go_first<P: Policy + Default>() {
    let mut run = machine(1, P::default());
    for unit in 0..2 {
        run.script(unit, CgroupId::ROOT, async move |thread: Thread| {
            loop {
                thread.compute(10 * US).await;
                thread.step(rota_sim::Step::Yield).await;
            }
        });
    }
    run.run_until(1_000 * MS);
    for unit in run.units() {
        assert!(unit.dispatches > 40_000, "{} turns in a second", unit.dispatches);
    }
}

/// A program of so many threads that meet at a barrier after computing for up to `compute_ns` each.
pub fn barrier_program<P: Policy>(
    run: &mut Run<P>,
    unit: u32,
    cgroup: CgroupId,
    threads: usize,
    compute_ns: u64,
) {
    let waiting: Rc<RefCell<Vec<TaskId>>> = Rc::default();
    for _ in 0..threads {
        let waiting = waiting.clone();
        run.script(unit, cgroup, async move |thread: Thread| {
            loop {
                let ns = thread.draw(|rng| rng.between(1, compute_ns));
                thread.compute(ns).await;
                if waiting.borrow().len() + 1 < threads {
                    waiting.borrow_mut().push(thread.task());
                    thread.wait().await;
                } else {
                    thread.work(1);
                    let others = std::mem::take(&mut *waiting.borrow_mut());
                    others.into_iter().for_each(|task| thread.wake(task));
                }
            }
        });
    }
}

/// Deceptive idleness (Zhao et al., HPDC 2019): a program whose threads wait for each other gets less than its share
/// beside hogs, although it would use it: alone it has much more.
fn blocking_programs_get_less_than_their_share<P: Policy + Default>() {
    const CPUS: usize = 8;
    let received = |hogs: usize| {
        let mut run = machine(CPUS as u32, P::default());
        let groups = [run.cgroup(100, None), run.cgroup(100, None)];
        barrier_program(&mut run, 0, groups[0], CPUS, 4 * MS);
        (0..hogs).for_each(|_| _ = run.task(1, groups[1], Hog));
        run.run_until(1_000 * MS);
        run.measure_from_now();
        run.run_until(11_000 * MS);
        run.units()[0].received_ns
    };
    let whole = CPUS as u64 * 10_000 * MS;
    let (alone, beside) = (received(0), received(CPUS));
    assert!(alone > whole * 53 / 100, "it would use its half: {} %", alone * 100 / whole);
    assert!(beside < whole * 40 / 100, "it gets {} %, which is fair", beside * 100 / whole);
}

/// A wake-up beside a hog: CFS puts who has slept before the others, EEVDF lets the hog end its slice at most.
#[test]
fn who_sleeps_much_wakes_soon() {
    fn worst<P: Policy + Default>() -> u64 {
        let mut run = machine(1, P::default());
        run.task(0, CgroupId::ROOT, Hog);
        run.task(1, CgroupId::ROOT, Periodic::new(100 * US, 20 * MS));
        run.run_until(10_000 * MS);
        run.units()[1].wakeups.quantile(1.0).expect("it woke")
    }
    assert!(worst::<Fair<Cfs>>() < 10 * US);
    assert!(worst::<Fair<Eevdf>>() <= 5 * MS);
}

/// EEVDF's slice of one CPU is 0.7 ms, and ends at a tick of 4 ms; CFS has everybody run in 6 ms.
#[test]
fn slices_end_at_ticks() {
    fn dispatches<P: Policy + Default>(tasks: u32) -> u64 {
        let mut run = machine(1, P::default());
        (0..tasks).for_each(|unit| _ = run.task(unit, CgroupId::ROOT, Hog));
        run.run_until(1_200 * MS);
        run.units().iter().map(|unit| unit.dispatches).sum()
    }
    let turns = [dispatches::<Fair<Eevdf>>(3), dispatches::<Fair<Cfs>>(3), dispatches::<Fair<Cfs>>(2)];
    assert!(turns.iter().all(|turns| turns.abs_diff(300) <= 2), "{turns:?}");
}
