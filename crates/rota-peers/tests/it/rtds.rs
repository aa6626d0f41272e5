//! Xen's RTDS.

use std::cell::RefCell;
use std::rc::Rc;

use proptest::prelude::*;
use rota_peers::{Rtds, Server};
use rota_sim::programs::{Hog, Periodic};
use rota_sim::{CgroupId, Thread};

use crate::machines::{MS, Machines, Run, US, assert_share, machine};

/// A domain whose vCPUs have this server.
pub fn domain(run: &mut Run<Rtds>, budget_ns: u64, period_ns: u64) -> CgroupId {
    let domain = run.cgroup(100, None);
    run.policy.reserve(domain, Server { budget_ns, period_ns });
    domain
}

/// Four ms in ten, and nothing beyond, although the CPU idles.
#[test]
fn a_budget_is_all_there_is() {
    let mut run = machine(1, Rtds::default());
    run.task(0, CgroupId::ROOT, Hog);
    run.run_until(10_000 * MS);
    let units = run.units();
    assert_share(units[0].received_ns, 10_000 * MS, 40, 0);
    assert_eq!(units[0].blackout_max_ns, 6 * MS);
}

/// The budget waits for whoever comes late in the period, and is lost at its end.
#[test]
fn a_budget_is_kept_until_its_period_ends() {
    let mut run = machine(1, Rtds::default());
    let ends: Rc<RefCell<Vec<u64>>> = Rc::default();
    let told = ends.clone();
    run.script(0, CgroupId::ROOT, async move |thread: Thread| {
        thread.compute(MS).await;
        thread.sleep(5 * MS).await;
        thread.compute(2_900 * US).await; // what is left of the first period, from 6 ms on
        told.borrow_mut().push(thread.now_ns() / MS);
        thread.compute(2 * MS).await; // of the second period
        thread.sleep(9 * MS).await; // until almost 21 ms; 2 ms were lost at 20
        thread.compute(6 * MS).await; // 4 of the third period, 2 of the next
        told.borrow_mut().push(thread.now_ns() / MS);
    });
    run.run_until(100 * MS);
    assert_eq!(*ends.borrow(), [8, 32]);
}

/// The earlier deadline preempts, also across CPUs: one long job gives way to whoever is due sooner.
#[test]
fn the_earliest_deadline_goes_first() {
    let mut run = machine(1, Rtds::default());
    let (long, short) = (domain(&mut run, 30 * MS, 100 * MS), domain(&mut run, MS, 5 * MS));
    run.task(0, long, Hog);
    run.task(1, short, Periodic::new(500 * US, 4_700 * US));
    run.run_until(5_000 * MS);
    let units = run.units();
    assert!(units[1].wakeups.quantile(1.0).is_some_and(|ns| ns < 10 * US), "it never waits");
    assert_share(units[0].received_ns, 5_000 * MS, 30, 1);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Servers that fit onto one CPU each get their budget in every period, so nobody waits for longer than 2(T - C).
    #[test]
    fn nobody_waits_longer_than_two_periods_without_two_budgets(
        seed in any::<u64>(),
        servers in prop::collection::vec((1..20u64, 2..60u64), 1..6),
    ) {
        let mut run = machine(1, Rtds::default());
        let mut left_ppm = 1_000_000u64;
        let mut kept = Vec::new();
        for (parts, period_ms) in servers {
            let period_ns = period_ms * MS;
            let budget_ns = (parts * period_ns / 20).min(left_ppm * period_ns / 1_000_000);
            if budget_ns < 10 * US {
                continue;
            }
            left_ppm -= (budget_ns * 1_000_000).div_ceil(period_ns);
            let domain = domain(&mut run, budget_ns, period_ns);
            run.task(kept.len() as u32, domain, Hog);
            kept.push((budget_ns, period_ns));
        }
        run.run_until(2_000 * MS + seed % MS);
        for (unit, (budget_ns, period_ns)) in run.units().iter().zip(kept) {
            let bound_ns = 2 * (period_ns - budget_ns);
            let blackout_ns = unit.blackout_max_ns;
            prop_assert!(blackout_ns <= bound_ns, "{blackout_ns} of {budget_ns}/{period_ns}");
            prop_assert!(unit.received_ns + budget_ns >= 2_000 * MS / period_ns * budget_ns);
            prop_assert!(unit.received_ns <= (2_001 * MS / period_ns + 1) * budget_ns);
        }
    }
}

/// On several CPUs, with little enough reserved, the same holds: Goossens, Funk and Baruah's bound for global EDF.
#[test]
fn all_cpus_serve_one_queue() {
    let mut run = machine(4, Rtds::default());
    // 10 of 0.28: 2.8 <= 4 - 3 x 0.28.
    for unit in 0..10 {
        let period_ns = (7 + 3 * u64::from(unit)) * MS;
        let domain = domain(&mut run, period_ns * 28 / 100, period_ns);
        run.task(unit, domain, Hog);
    }
    run.run_until(5_000 * MS);
    for (unit, metrics) in (0..).zip(run.units()) {
        let period_ns = (7 + 3 * unit) * MS;
        assert_share(metrics.received_ns, 5_000 * MS, 28, 1);
        assert!(
            metrics.blackout_max_ns <= 2 * (period_ns - period_ns * 28 / 100),
            "{unit}: {}",
            metrics.blackout_max_ns
        );
    }
}
