//! Xen's Credit2.

use rota_model::{CpuPlace, Topology};
use rota_peers::Credit2;
use rota_sim::observe::{Metrics, Sanity};
use rota_sim::programs::{Hog, Periodic};
use rota_sim::{CgroupId, Costs, Simulation, Thread};

use crate::machines::{MS, Machines, Run, US, assert_share, machine};

#[test]
fn weights_are_shares() {
    let mut run = machine(1, Credit2::default());
    let domains = [run.cgroup(100, None), run.cgroup(300, None)];
    (0..2).for_each(|unit| _ = run.task(unit, domains[unit as usize], Hog));
    run.run_until(10_000 * MS);
    let units = run.units();
    assert_share(units[0].received_ns, 10_000 * MS, 25, 1);
    assert_share(units[1].received_ns, 10_000 * MS, 75, 1);
}

/// Nobody runs for more than 10 ms while another waits.
#[test]
fn turns_are_10_ms_at_most() {
    let mut run = machine(1, Credit2::default());
    (0..4).for_each(|unit| _ = run.task(unit, CgroupId::ROOT, Hog));
    run.run_until(10_000 * MS);
    for unit in run.units() {
        assert!(unit.blackout_max_ns <= 30 * MS + MS, "{}", unit.blackout_max_ns);
        assert_share(unit.received_ns, 10_000 * MS, 25, 1);
    }
}

/// Waits of a light I/O task are short beside hogs, which have burnt their credit. Beside many that wake all the time
/// and have credit too they are not (Vanga, thesis section 6.2.1, figure 6.3b).
#[test]
fn who_has_most_credit_runs_at_once() {
    fn tail_ns(others: fn(&mut Run<Credit2>)) -> u64 {
        let mut run = machine(1, Credit2::default());
        run.task(0, CgroupId::ROOT, Periodic::new(100 * US, 7 * MS));
        others(&mut run);
        run.run_until(10_000 * MS);
        run.units()[0].wakeups.quantile(0.99).expect("it woke")
    }
    fn hogs(run: &mut Run<Credit2>) {
        (0..4).for_each(|_| _ = run.task(1, CgroupId::ROOT, Hog));
    }
    fn wakers(run: &mut Run<Credit2>) {
        for place in 0..7 {
            run.script(1, CgroupId::ROOT, async move |thread: Thread| {
                thread.sleep(place * 700 * US).await;
                loop {
                    thread.compute(3 * MS).await;
                    thread.sleep(22 * MS).await;
                }
            });
        }
    }
    let (hogs_ns, wakers_ns) = (tail_ns(hogs), tail_ns(wakers));
    assert!(hogs_ns <= 2 * MS && wakers_ns > 3 * MS, "{hogs_ns} and {wakers_ns}");
}

#[test]
fn a_sockets_cpus_share_a_queue() {
    let mut run = machine(4, Credit2::default());
    (0..6).for_each(|unit| _ = run.task(unit, CgroupId::ROOT, Hog));
    run.run_until(6_000 * MS);
    for unit in run.units() {
        assert_share(unit.received_ns, 6_000 * MS, 67, 3);
    }
}

/// Eight hogs that began on one socket are spread over both within a few seconds.
#[test]
fn sockets_are_evened_out() {
    let place = |cpu: u32| CpuPlace { cpu, core: cpu, cache: cpu / 4, node: cpu / 4, socket: cpu / 4 };
    let topology = Topology { places: (0..8).map(place).collect() };
    let observer = (Metrics::default(), Sanity::new(10_000 * MS));
    let mut run = Simulation::new(topology, Costs::FREE, 1, 0, Credit2::default(), observer);
    let tasks: Vec<_> = (0..8).map(|unit| run.pinned(unit, CgroupId::ROOT, &[0, 1, 2, 3], Hog)).collect();
    run.run_until(100 * MS);
    let everywhere = run.cpus(&[0, 1, 2, 3, 4, 5, 6, 7]);
    for task in tasks {
        run.set_affinity(task, everywhere.clone());
    }
    run.run_until(3_000 * MS);
    run.measure_from_now();
    run.run_until(5_000 * MS);
    for unit in run.units() {
        assert_share(unit.received_ns, 2_000 * MS, 100, 2);
    }
}
