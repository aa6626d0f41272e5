//! Traces whose tags are worked out by hand. Tags are given in us of a tenant of weight 100; a slice is 1,000 of them.

use rota_model::{CpuSet, Topology};
use rota_sim::observe::{Bound, Fairness, Metrics};
use rota_sim::programs::Hog;
use rota_sim::{
    Cgroup, CgroupId, Costs, CpuId, Program, Script, Simulation, TaskId, TaskSpec, Thread, UnitId,
};

use super::{HORIZON_NS, MIN_SLICE_NS, Mqfq, tags::virtual_time};

const US: u64 = 1_000;
const MS: u64 = 1_000_000;

type Run = Simulation<Mqfq, Metrics>;

/// Nothing costs anything, so that times and tags are round.
fn machine(cpus: u32) -> Run {
    let topology = Topology::flat(&(0..cpus).collect::<CpuSet>());
    Simulation::new(topology, Costs::FREE, 1, 0, Mqfq::default(), Metrics::default())
}

fn tenant(run: &mut Run, weight: u32) -> CgroupId {
    run.machine.cgroup_new(Cgroup { parent: Some(CgroupId::ROOT), weight, max: None })
}

fn thread(run: &mut Run, tenant: CgroupId, program: impl Program + 'static) -> TaskId {
    run.spawn(TaskSpec::new(1, UnitId(tenant.0), tenant, program))
}

/// Computes for a while, and waits for ever.
fn once(ns: u64) -> Script {
    Script::new(move |thread: Thread| async move {
        thread.compute(ns).await;
        thread.wait().await;
    })
}

/// The tenants' last finish tags, and what each CPU runs, at a time.
#[track_caller]
fn expect<const D: usize, const N: usize>(
    run: &mut Run,
    us: u64,
    tags: [(CgroupId, u64); N],
    runs: [TaskId; D],
) {
    run.run_until(us * US);
    for (tenant, tag) in tags {
        let finish = run.policy.tags.flows[tenant.index()].finish;
        let half = virtual_time(US / 2, 100); // a kick takes a ns
        assert_eq!((finish + half) / virtual_time(US, 100), tag.into(), "tenant {} at {us} us", tenant.0);
    }
    let current: Vec<_> = (0..D as u32).map(|cpu| run.machine.cpu(CpuId(cpu)).current).collect();
    assert_eq!(current, runs.map(Some), "at {us} us");
}

/// Both begin at 0. Of equal tags, who runs goes on.
#[test]
fn two_take_turns_on_a_cpu() {
    let mut run = machine(1);
    let (a, b) = (tenant(&mut run, 100), tenant(&mut run, 100));
    let (a1, b1) = (thread(&mut run, a, Hog), thread(&mut run, b, Hog));
    expect(&mut run, 500, [(a, 1_000), (b, 0)], [a1]);
    expect(&mut run, 1_500, [(a, 1_000), (b, 1_000)], [b1]);
    expect(&mut run, 2_500, [(a, 1_000), (b, 2_000)], [b1]);
    expect(&mut run, 3_500, [(a, 2_000), (b, 2_000)], [a1]);
    expect(&mut run, 4_500, [(a, 3_000), (b, 2_000)], [a1]);
    expect(&mut run, 5_500, [(a, 3_000), (b, 3_000)], [b1]);
}

/// A slice of weight 200 is half as long in virtual time.
#[test]
fn twice_the_weight_has_twice_the_turns() {
    let mut run = machine(1);
    let (a, b) = (tenant(&mut run, 100), tenant(&mut run, 200));
    let (a1, b1) = (thread(&mut run, a, Hog), thread(&mut run, b, Hog));
    expect(&mut run, 500, [(a, 1_000), (b, 0)], [a1]);
    expect(&mut run, 1_500, [(a, 1_000), (b, 500)], [b1]);
    expect(&mut run, 2_500, [(a, 1_000), (b, 1_000)], [b1]);
    expect(&mut run, 3_500, [(a, 1_000), (b, 1_500)], [b1]);
    expect(&mut run, 4_500, [(a, 2_000), (b, 1_500)], [a1]);
    expect(&mut run, 5_500, [(a, 2_000), (b, 2_000)], [b1]);
    expect(&mut run, 6_500, [(a, 2_000), (b, 2_500)], [b1]);
    expect(&mut run, 7_500, [(a, 3_000), (b, 2_500)], [a1]);
}

/// The first tenant has had both CPUs to itself: 22,000 after the slices that began at 10 ms. Who comes then begins at
/// the largest start tag in service, 21,000, owes nothing and is owed nothing, and has a CPU from the next slice on.
#[test]
fn who_was_idle_begins_at_the_systems_virtual_time() {
    let mut run = machine(2);
    let (f, g) = (tenant(&mut run, 100), tenant(&mut run, 100));
    let (f1, f2) = (thread(&mut run, f, Hog), thread(&mut run, f, Hog));
    expect(&mut run, 10_500, [(f, 22_000)], [f1, f2]);
    let g1 = thread(&mut run, g, Hog);
    expect(&mut run, 10_600, [(f, 22_000), (g, 21_000)], [f1, f2]);
    expect(&mut run, 11_500, [(f, 23_000), (g, 22_000)], [g1, f2]);
    // The quantum of the one that runs is over, and its sibling's turn comes.
    expect(&mut run, 12_500, [(f, 24_000), (g, 23_000)], [g1, f1]);
}

/// A tenant of weight 300 with one thread on two CPUs falls behind. Its second thread's request has the tag 4,333, less
/// than the 11,000 in service: it preempts at once, and the slice of the one that it preempts counts half.
#[test]
fn a_smaller_tag_preempts_the_largest_one() {
    let mut run = machine(2);
    let (f, g) = (tenant(&mut run, 100), tenant(&mut run, 300));
    let (f1, f2) = (thread(&mut run, f, Hog), thread(&mut run, f, Hog));
    let g1 = thread(&mut run, g, Hog);
    expect(&mut run, 500, [(f, 2_000), (g, 1_000)], [f1, f2]);
    expect(&mut run, 1_500, [(f, 3_000), (g, 1_333)], [g1, f2]);
    expect(&mut run, 10_500, [(f, 12_000), (g, 4_333)], [g1, f2]);
    let g2 = thread(&mut run, g, Hog);
    expect(&mut run, 10_501, [(f, 11_500), (g, 4_667)], [g1, g2]);
}

/// On one CPU nobody who was due is preempted within a slice, but who runs on borrowed time is.
#[test]
fn a_slice_is_sure_for_who_was_due() {
    let mut run = machine(1);
    let (f, g) = (tenant(&mut run, 100), tenant(&mut run, 100));
    let sleeper = Script::new(|thread: Thread| async move {
        thread.compute(100 * US).await;
        thread.sleep(100 * US).await; // its sibling has the CPU from 100 us on: the tenant stays backlogged
        thread.compute(MS).await;
    });
    let g1 = thread(&mut run, g, sleeper);
    let f1 = thread(&mut run, f, Hog);
    // Nothing of g would run from 100 us on; f begins at g's 0, as that was its own virtual time too.
    expect(&mut run, 150, [(g, 100), (f, 1_000)], [f1]);
    // g was idle and is back at 200 us with the tag 100, that of f is 0: f's slice is over at 1,100 us.
    expect(&mut run, 1_050, [(g, 100), (f, 1_000)], [f1]);
    expect(&mut run, 1_150, [(g, 1_100), (f, 1_000)], [g1]);
}

/// The sibling of who blocks has the rest of the slice with its tag, although another tenant's is smaller than its
/// next.
#[test]
fn a_sibling_has_the_rest_of_the_slice() {
    let mut run = machine(1);
    let (a, b) = (tenant(&mut run, 100), tenant(&mut run, 100));
    let (a1, a2) = (thread(&mut run, a, once(300 * US)), thread(&mut run, a, Hog));
    let b1 = thread(&mut run, b, Hog);
    expect(&mut run, 200, [(a, 1_000), (b, 0)], [a1]);
    expect(&mut run, 900, [(a, 1_000), (b, 0)], [a2]);
    expect(&mut run, 1_100, [(a, 1_000), (b, 1_000)], [b1]);
}

/// Without a sibling the request ends early, and counts what it used.
#[test]
fn who_blocks_early_has_used_less() {
    let mut run = machine(1);
    let (a, b) = (tenant(&mut run, 100), tenant(&mut run, 100));
    let a1 = thread(&mut run, a, once(300 * US));
    let b1 = thread(&mut run, b, Hog);
    expect(&mut run, 200, [(a, 1_000), (b, 0)], [a1]);
    expect(&mut run, 400, [(a, 300), (b, 1_000)], [b1]);
}

/// One thread among as many as there are CPUs cannot use half of them. It is owed no more than its half of the horizon,
/// so once it has the threads it has all CPUs for that long and no longer.
#[test]
fn nobody_is_owed_more_than_the_horizon() {
    let mut run = machine(4);
    let (f, g) = (tenant(&mut run, 100), tenant(&mut run, 100));
    (0..4).for_each(|_| _ = thread(&mut run, f, Hog));
    thread(&mut run, g, Hog);
    run.run_until(10_000 * MS);
    let [behind, ahead] = [g, f].map(|tenant| run.policy.tags.flows[tenant.index()].finish);
    let most = virtual_time(4 * HORIZON_NS, 200);
    let slices = virtual_time(4 * MIN_SLICE_NS, 100);
    assert!(ahead - behind <= most + slices && ahead - behind >= most - slices);
    run.observer.begin(&mut run.machine);
    (0..4).for_each(|_| _ = thread(&mut run, g, Hog));
    run.run_until(20_000 * MS);
    let waited_ns = run.observer.finish(&mut run.machine)[f.index()].blackout_max_ns;
    assert!(waited_ns.abs_diff(HORIZON_NS / 2) <= 4 * MIN_SLICE_NS, "{waited_ns}");
}

/// Threads that may run on one CPU only are served there, whoever else is behind.
#[test]
fn affinities_hold() {
    let mut run = machine(2);
    let (f, g) = (tenant(&mut run, 100), tenant(&mut run, 100));
    let affinity = Some(run.machine.mask([CpuId(1)]));
    for _ in 0..2 {
        let affinity = affinity.clone();
        run.spawn(TaskSpec { affinity, ..TaskSpec::new(1, UnitId(f.0), f, Hog) });
    }
    let g1 = thread(&mut run, g, Hog);
    run.run_until(1_000 * MS);
    let units = run.observer.finish(&mut run.machine);
    assert_eq!(run.machine.cpu(CpuId(0)).current, Some(g1), "nobody else may be there");
    assert!([f, g].iter().all(|tenant| units[tenant.index()].received_ns.abs_diff(1_000 * MS) <= MS));
}

/// The bound is kept, and is not once the tenants' tags are wrong: one that is charged for a tenth more than it uses.
#[test]
fn a_wrong_tag_breaks_the_bound() {
    for (extra_ns, fair) in [(0, true), (MS / 10, false)] {
        let topology = Topology::flat(&(0..4).collect::<CpuSet>());
        let observer = Fairness::new(4, Bound::of_definition(4, MIN_SLICE_NS + 1), HORIZON_NS);
        let mut run = Simulation::new(topology, Costs::FREE, 1, 0, Mqfq::default(), observer);
        let tenants = [100, 100]
            .map(|weight| run.machine.cgroup_new(Cgroup { parent: Some(CgroupId::ROOT), weight, max: None }));
        for tenant in tenants {
            run.observer.tenant(UnitId(tenant.0), 100);
            (0..4).for_each(|_| _ = run.spawn(TaskSpec::new(1, UnitId(tenant.0), tenant, Hog)));
        }
        for ms in 1..=1_000 {
            run.run_until(ms * MS);
            run.policy.tags.corrects(tenants[0].index(), 0, 2 * extra_ns);
        }
        let machine = &run.machine;
        let unfair = run.observer.finish(machine);
        assert_eq!(unfair.is_empty(), fair, "{unfair:?}");
        assert!(unfair.iter().all(|unfair| unfair.behind == UnitId(tenants[0].0)));
    }
}
