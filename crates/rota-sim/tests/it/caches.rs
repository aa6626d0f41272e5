//! Working sets in caches: what they hold, what they take from each other, and what that costs.

use std::rc::Rc;

use rota_model::{CpuPlace, Topology};
use rota_sim::observe::Metrics;
use rota_sim::programs::Hog;
use rota_sim::{
    CacheCounters, CgroupId, Costs, CpuId, Memory, PRIVATE_KIB, SHARED_KIB, Script, Simulation, TaskId,
    TaskSpec, UnitId,
};

use crate::round_robin::RoundRobin;

const MS: u64 = 1_000_000;
const PIECE_NS: u64 = 10_000;

type Host = Simulation<RoundRobin, Metrics>;

/// Four CPUs in two domains; nothing costs anything but memory.
fn host() -> Host {
    let place = |cpu| CpuPlace { cpu, core: cpu, cache: cpu / 2, node: cpu / 2, socket: cpu / 2 };
    let topology = Topology { places: (0..4).map(place).collect() };
    Simulation::new(topology, Costs::FREE, 1, 0, RoundRobin::default(), Metrics::default())
}

fn memory(working_set_kib: u64, references_per_us: u32) -> Memory {
    Memory { working_set_kib: working_set_kib as u32, references_per_us, overlap: 1 }
}

/// A thread of a unit on a CPU that counts each 10 us of computing.
fn worker(host: &mut Host, unit: u32, cpu: u32, memory: Option<Memory>) -> TaskId {
    let program = Script::new(|thread| async move {
        loop {
            thread.compute(PIECE_NS).await;
            thread.work(1);
        }
    });
    let affinity = Some(host.machine.mask([CpuId(cpu)]));
    host.spawn(TaskSpec { affinity, memory, ..TaskSpec::new(100, UnitId(unit), CgroupId::ROOT, program) })
}

fn kib(host: &Host, task: TaskId, cpu: u32) -> u64 {
    host.machine.cached_bytes(task, CpuId(cpu)) / 1024
}

fn counters(host: &Host, task: TaskId) -> CacheCounters {
    host.machine.cache_counters(task).expect("its working set is simulated")
}

/// Work of each unit from now on for so long.
fn work(host: &mut Host, time_ns: u64) -> Vec<u64> {
    host.observer.begin(&mut host.machine);
    let until_ns = host.machine.now_ns() + time_ns;
    host.run_until(until_ns);
    host.observer.finish(&mut host.machine).iter().map(|unit| unit.work).collect()
}

#[test]
fn a_working_set_that_fits_is_fetched_once() {
    let mut host = host();
    let task = worker(&mut host, 0, 0, Some(memory(4 * 1024, 10)));
    host.run_until(200 * MS);
    assert!(kib(&host, task, 0) > 4 * 1024 - 64 && kib(&host, task, 2) == 0);
    let before = counters(&host, task);
    assert!(before.misses.abs_diff(4 * 1024 * 1024 / 64) < 1_500, "each line once: {before:?}");
    host.run_until(400 * MS);
    let after = counters(&host, task);
    assert!(after.misses - before.misses < 1_000, "{after:?}");
    assert!(after.references - before.references > 1_000_000, "more than the private cache holds: {after:?}");
}

#[test]
fn what_fits_the_private_cache_costs_nothing() {
    let mut host = host();
    worker(&mut host, 0, 0, Some(memory(PRIVATE_KIB / 2, 20)));
    worker(&mut host, 1, 1, None);
    host.run_until(50 * MS);
    let work = work(&mut host, 200 * MS);
    assert_eq!(work[1], 20_000);
    assert!(work[0] >= 19_990, "{work:?}");
}

/// What has the cache to itself, beside one neighbour in its domain, or in the other one.
#[test]
fn a_neighbour_of_the_same_domain_takes_lines_and_one_elsewhere_does_not() {
    let target = memory(SHARED_KIB / 2, 10);
    let beside = |cpu: Option<u32>| {
        let mut host = host();
        let task = worker(&mut host, 0, 0, Some(target));
        cpu.map(|cpu| worker(&mut host, 1, cpu, Some(memory(4 * SHARED_KIB, 100))));
        host.run_until(500 * MS);
        (kib(&host, task, 0), work(&mut host, 500 * MS)[0])
    };
    let (alone, near, far) = (beside(None), beside(Some(1)), beside(Some(2)));
    assert_eq!(alone, far);
    assert!(near.0 * 5 < alone.0 * 3, "{near:?} {alone:?}");
    assert!(near.1 * 10 < alone.1 * 8, "{near:?} {alone:?}");
}

#[test]
fn a_thread_that_moves_leaves_its_lines_behind() {
    let mut host = host();
    let task = worker(&mut host, 0, 0, Some(memory(2 * 1024, 10)));
    host.run_until(200 * MS);
    let mask = host.machine.mask([CpuId(3)]);
    host.set_affinity(task, mask);
    let before = counters(&host, task).misses;
    host.run_until(400 * MS);
    let again = counters(&host, task).misses - before;
    assert!(again.abs_diff(2 * 1024 * 1024 / 64) < 1_000, "all of it comes anew: {again}");
    assert!(kib(&host, task, 3) > 2 * 1024 - 64 && kib(&host, task, 0) > 2 * 1024 - 64);
}

#[test]
fn a_thread_whose_work_changes_has_nothing_in_caches() {
    let mut host = host();
    let task = worker(&mut host, 0, 0, Some(memory(2 * 1024, 10)));
    host.run_until(200 * MS);
    host.machine.set_memory(task, memory(PRIVATE_KIB, 1));
    assert_eq!(kib(&host, task, 0), 0);
    host.run_until(400 * MS);
    assert!(kib(&host, task, 0).abs_diff(PRIVATE_KIB) <= 4);
    let idle = worker(&mut host, 1, 1, None);
    assert_eq!(host.machine.cache_counters(idle), None);
}

/// Huang et al., HPDC 2021, figure 4: two threads that share a CPU lose nothing to each other until their sets exceed
/// the private cache; from then on a change of threads costs more the larger they are, and never 6 % of the time.
#[test]
fn the_indirect_cost_of_a_switch_is_as_in_the_paper() {
    // In a row: the prefetcher has ten lines under way.
    let memory = |set_kib| Memory { overlap: 10, ..memory(set_kib, 20) };
    let lost = |set_kib: u64| {
        let run = |threads: u32| {
            let mut host = host();
            (0..threads).for_each(|unit| {
                worker(&mut host, unit, 0, Some(memory(set_kib)));
            });
            host.run_until(500 * MS);
            work(&mut host, 1_000 * MS).iter().sum::<u64>()
        };
        let (alone, both) = (run(1), run(2));
        alone.saturating_sub(both) * 10_000 / alone
    };
    let sets = [PRIVATE_KIB / 4, PRIVATE_KIB / 2, PRIVATE_KIB, 4 * PRIVATE_KIB];
    let losses = sets.map(lost);
    assert!(losses[0] < 10 && losses[1] < 10, "of 10,000: {losses:?}");
    assert!(losses[2] > losses[1] && losses[2] > 20, "{losses:?}");
    assert!(losses.iter().all(|loss| *loss < 600), "{losses:?}");
}

#[test]
fn a_computation_takes_what_its_misses_take_and_not_more() {
    let mut host = host();
    let affinity: Rc<_> = host.machine.mask([CpuId(0)]);
    let memory = Some(memory(64 * SHARED_KIB, 10));
    host.spawn(TaskSpec {
        affinity: Some(affinity),
        memory,
        ..TaskSpec::new(100, UnitId(0), CgroupId::ROOT, Hog)
    });
    let task = worker(&mut host, 1, 2, memory);
    host.run_until(300 * MS);
    let before = counters(&host, task);
    let done = work(&mut host, 100 * MS)[1] * PIECE_NS / 1000;
    let after = counters(&host, task);
    let references = after.references - before.references;
    // Nearly all of ten references a microsecond miss, and each takes about 96 ns.
    assert!((done * 9..=done * 10).contains(&references), "{references} in {done} us");
    let expected_us = 100_000 * 1_000 / (1_000 + 10 * 96);
    assert!(done.abs_diff(expected_us) < expected_us / 20, "{done} us of {expected_us} us");
}
