//! The definition of fair shares. Its tags are worked out beside it; here is what follows from them.

use rota_peers::{Cfs, Fair, Mqfq};
use rota_sim::programs::sync::Patience;
use rota_sim::programs::{Hog, Rounds};
use rota_sim::{Costs, Distribution, Policy};

use crate::machines::{MS, Machines, US, machine_with};

/// What a program of as many threads as CPUs with a barrier gets beside as many hogs, in parts per mille of its share.
fn of_fair<P: Policy + Default>(cpus: u32, compute_ns: u64, weights: [u32; 2]) -> u64 {
    let mut run = machine_with(cpus, Costs::default(), P::default());
    let groups = weights.map(|weight| run.cgroup(weight, None));
    let compute = Distribution::Uniform(compute_ns * 4 / 5, compute_ns * 6 / 5);
    for program in (Rounds { threads: cpus, compute, patience: Patience::NONE }).programs() {
        run.task(0, groups[0], program);
    }
    (0..cpus).for_each(|_| _ = run.task(1, groups[1], Hog));
    run.run_until(100 * MS);
    run.measure_from_now();
    run.run_until(600 * MS);
    let fair_ns = u64::from(cpus) * 500 * MS * u64::from(weights[0]) / u64::from(weights[0] + weights[1]);
    run.units()[0].received_ns * 1_000 / fair_ns
}

/// However often it synchronises, on however many CPUs, a program that could use its share has it, and no more.
#[test]
fn who_synchronises_has_its_share() {
    for (cpus, compute_ns, weights) in [
        (4, 50 * US, [100, 100]),
        (12, 50 * US, [100, 200]),
        (12, 5 * MS, [400, 100]),
        (48, 500 * US, [100, 100]),
    ] {
        let share = of_fair::<Mqfq>(cpus, compute_ns, weights);
        let about = format!("{cpus} CPUs, {compute_ns} ns, {weights:?}");
        assert!((980..=1_002).contains(&share), "{about}: {share} per mille of its share");
    }
    let cfs = of_fair::<Fair<Cfs>>(12, 500 * US, [100, 100]);
    assert!(cfs < 700, "{cfs} per mille under CFS");
}
