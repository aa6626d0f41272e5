//! What lies over another policy: pinning, relaxed co-scheduling, Gleaner, upcalls.

use rota_peers::{Cfs, Credit, Eevdf, Fair, Gleaner, Irs, Pinned, RelaxedCo};
use rota_sim::programs::sync::Patience;
use rota_sim::programs::{Hog, Periodic, Rounds};
use rota_sim::{CgroupId, Costs, Distribution, Guest, Help, Policy, Rng, TaskSpec, UnitId};

use crate::fair::barrier_program;
use crate::machines::{MS, Machines, Run, assert_share, machine, machine_with};

/// What a program of eight threads with a barrier gets of eight CPUs beside as many hogs, in tenths of a percent, and
/// how often it has come to its barrier.
fn barriers<P: Policy + Default>(compute_ns: u64, hogs: usize) -> (u64, u64) {
    let mut run = machine(8, P::default());
    let groups = [run.cgroup(100, None), run.cgroup(100, None)];
    barrier_program(&mut run, 0, groups[0], 8, compute_ns);
    (0..hogs).for_each(|_| _ = run.task(1, groups[1], Hog));
    run.run_until(1_000 * MS);
    run.measure_from_now();
    run.run_until(11_000 * MS);
    let unit = &run.units()[0];
    (unit.received_ns * 1_000 / (80_000 * MS), unit.work)
}

fn pinned_threads_stay_where_they_are<P: Policy + Default>() {
    let mut run: Run<Pinned<P>> = machine(2, Pinned::default());
    let groups = [run.cgroup(100, None), run.cgroup(100, None)];
    (0..2).for_each(|unit| _ = run.task(unit, groups[0], Hog));
    run.task(2, groups[1], Hog);
    run.run_until(100 * MS);
    run.task(3, groups[1], Periodic::new(MS, 50 * MS));
    run.measure_from_now();
    run.run_until(10_100 * MS);
    let units = run.units();
    assert!(units.iter().all(|unit| unit.migrations == 0));
    // Three hogs on two CPUs: two share one for ever, and the third has the other but for 2 %.
    let mut received: Vec<u64> =
        units[..3].iter().map(|unit| unit.received_ns * 100 / (10_000 * MS)).collect();
    received.sort_unstable();
    assert!((97..=100).contains(&(received[0] + received[1])) && received[2] >= 97, "{received:?}");
}

#[test]
fn pinned_threads_stay_where_they_are_under_cfs() {
    pinned_threads_stay_where_they_are::<Fair<Cfs>>();
}

#[test]
fn pinned_threads_stay_where_they_are_under_credit() {
    pinned_threads_stay_where_they_are::<Credit>();
}

/// What a program of four threads with a barrier gets of four CPUs beside three hogs, in tenths of a percent.
fn beside_three<P: Policy + Default>() -> u64 {
    let mut run = machine(4, P::default());
    let groups = [run.cgroup(100, None), run.cgroup(100, None)];
    (0..3).for_each(|_| _ = run.task(1, groups[1], Hog));
    barrier_program(&mut run, 0, groups[0], 4, 2 * MS);
    run.run_until(1_000 * MS);
    run.measure_from_now();
    run.run_until(11_000 * MS);
    run.units()[0].received_ns * 1_000 / (40_000 * MS)
}

/// The kernel stacks the threads of a blocking program on the one CPU that the hogs leave. Pinned they have more, and
/// still less than their half, since they wait for each other's hogs (Zhao, dissertation, section 4.5.6).
#[test]
fn pinning_prevents_stacking_but_not_unfairness() {
    let unpinned = [beside_three::<Fair<Cfs>>(), beside_three::<Fair<Eevdf>>()];
    assert!(
        unpinned.iter().all(|share| (245..285).contains(share)),
        "{unpinned:?} per mille: one of four CPUs"
    );
    let pinned = beside_three::<Pinned<Fair<Cfs>>>();
    assert!((320..450).contains(&pinned), "{pinned} per mille");
}

/// Four computing threads, one of which shares its CPU with a hog: how far apart they are after some seconds, in ms.
fn apart<P: Policy + Default>() -> u64 {
    let mut run = machine(4, P::default());
    let groups = [run.cgroup(100, None), run.cgroup(100, None)];
    let threads = [0, 1, 2, 3].map(|_| run.task(0, groups[0], Hog));
    (0..2).for_each(|_| _ = run.pinned(1, groups[1], &[3], Hog));
    run.run_until(6_000 * MS);
    run.units();
    let used = threads.map(|task| run.machine.task(task).used_ns / MS);
    used.iter().max().expect("there are four") - used.iter().min().expect("there are four")
}

/// Threads that compute come forward together.
#[test]
fn relaxed_co_scheduling_keeps_threads_together() {
    let (cfs, relaxed) = (apart::<Fair<Cfs>>(), apart::<RelaxedCo<Fair<Cfs>>>());
    assert!(relaxed < 100 && cfs > 1_000, "{relaxed} ms apart, {cfs} ms under CFS");
}

/// Sleep counts as progress, so that there is no skew to see in a program that blocks: nothing is mended (Zhao,
/// dissertation, section 4.5.2).
#[test]
fn relaxed_co_scheduling_does_not_help_who_blocks() {
    let (cfs, relaxed) = (barriers::<Fair<Cfs>>(5 * MS, 8).0, barriers::<RelaxedCo<Fair<Cfs>>>(5 * MS, 8).0);
    assert!(relaxed < cfs && cfs < 400, "{relaxed} per mille, {cfs} under CFS");
}

/// A program that uses little of many CPUs is gathered on a few, where nobody else is.
#[test]
fn gleaner_gathers_fragments() {
    let mut run = machine(8, Gleaner::default());
    let groups = [run.cgroup(100, None), run.cgroup(100, None)];
    (0..8).for_each(|_| _ = run.task(0, groups[0], Periodic::new(MS, 7 * MS)));
    (0..8).for_each(|_| _ = run.task(1, groups[1], Hog));
    run.run_until(2_000 * MS);
    assert!(run.policy.cpus_of(groups[0]).is_some_and(|cpus| (1..=2).contains(&cpus)));
    assert!(run.policy.cpus_of(groups[1]).is_some_and(|cpus| cpus >= 4));
    run.measure_from_now();
    run.run_until(4_000 * MS);
    let units = run.units();
    assert_share(units[0].received_ns, 2_000 * MS, 100, 30);
    assert!(units[1].received_ns >= 4 * 1_900 * MS);
}

/// Gathered threads cannot run at once: a parallel program without hogs is slower than under CFS.
#[test]
fn gleaner_takes_parallelism_away() {
    let (cfs, gleaner) = (barriers::<Fair<Cfs>>(2 * MS, 0).1, barriers::<Gleaner>(2 * MS, 0).1);
    assert!(gleaner < cfs * 9 / 10, "{gleaner} barriers, {cfs} under CFS");
}

/// Nobody is stuck in a policy that has taken it out, and quotas hold over all of it.
#[test]
fn quotas_hold_below() {
    fn share<P: Policy + Default>() -> u64 {
        let mut run = machine(2, P::default());
        let limited = run.cgroup(100, Some((20 * MS, 100 * MS)));
        (0..4).for_each(|_| _ = run.task(0, limited, Hog));
        (0..2).for_each(|_| _ = run.task(1, CgroupId::ROOT, Hog));
        run.run_until(10_000 * MS);
        run.units()[0].received_ns
    }
    assert_share(share::<RelaxedCo<Fair<Cfs>>>(), 10_000 * MS, 20, 1);
    assert_share(share::<Gleaner>(), 10_000 * MS, 20, 1);
    assert_share(share::<Pinned<Fair<Cfs>>>(), 10_000 * MS, 20, 1);
}

/// A guest of two vCPUs and two threads that wait for each other, whose first vCPU shares its CPU with a hog: what its
/// threads do in 10 s, and what the hog gets, in tenths of a percent of its half.
fn guest_beside_hog<P: Policy + Default>(help: Help) -> (u64, u64) {
    let mut run = machine_with(2, Costs::default(), P::default());
    let groups = [run.cgroup(100, None), run.cgroup(50, None)];
    let guest = Guest::with_help(2, Rng::new(1, 1), help);
    let (compute, patience) = (Distribution::Constant(MS), Patience::ENDLESS);
    Rounds { threads: 2, compute, patience }.programs().into_iter().for_each(|script| guest.thread(script));
    for (cpu, program) in (0..).zip(guest.vcpus()) {
        let affinity = Some(run.cpus(&[cpu]));
        run.spawn(TaskSpec { affinity, ..TaskSpec::new(100, UnitId(0), groups[0], program) });
    }
    run.pinned(1, groups[1], &[0], Hog);
    run.run_until(10_000 * MS);
    let units = run.units();
    (units[0].work, units[1].received_ns * 1_000 / (5_000 * MS))
}

/// Zhao, section 4.3: a thread goes on elsewhere while its vCPU is stopped. Guests that do not answer are stopped as
/// ever.
#[test]
fn an_upcall_has_threads_go_on_elsewhere() {
    let (without, fair) = guest_beside_hog::<Pinned<Fair<Cfs>>>(Help::None);
    let (unanswered, same) = guest_beside_hog::<Irs<Pinned<Fair<Cfs>>>>(Help::None);
    assert_eq!((unanswered, same), (without, fair));
    let (with, left) = guest_beside_hog::<Irs<Pinned<Fair<Cfs>>>>(Help::Upcalls);
    assert!(with * 10 > without * 12, "{with} rounds instead of {without}");
    assert!(left + 20 > fair, "the hog has {left} per mille of its half, {fair} without");
}

/// A guest whose only vCPU has one thread has nowhere to move it: it gives its CPU up all the same, and has its half.
#[test]
fn a_guest_with_one_vcpu_answers_too() {
    let mut run = machine(1, Irs::<Pinned<Fair<Cfs>>>::default());
    let guest = Guest::with_help(1, Rng::new(1, 1), Help::Upcalls);
    guest.thread(Hog);
    for program in guest.vcpus() {
        run.spawn(TaskSpec::new(100, UnitId(0), CgroupId::ROOT, program));
    }
    run.task(1, CgroupId::ROOT, Hog);
    run.run_until(1_000 * MS);
    let units = run.units();
    assert_share(units[0].received_ns, 1_000 * MS, 50, 2);
    assert_share(units[1].received_ns, 1_000 * MS, 50, 2);
}
