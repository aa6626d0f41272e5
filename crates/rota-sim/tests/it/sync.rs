//! What threads synchronise on, each against its rules, and the programs built of it, on machines where nothing costs
//! anything.

use std::cell::RefCell;
use std::rc::Rc;

use rota_model::Topology;
use rota_sim::observe::Metrics;
use rota_sim::programs::sync::{Barrier, Condition, Lock, Patience, Semaphore, TicketLock};
use rota_sim::programs::{BENCHMARKS, ForkJoin, Led, Limited, Locking, Pipeline, Rounds, Waiting};
use rota_sim::{CgroupId, Costs, Distribution, Script, Simulation, TaskId, TaskSpec, Thread, UnitId};

use crate::round_robin::RoundRobin;

const MS: u64 = 1_000_000;

type Plain = Simulation<RoundRobin, Metrics>;

fn simulation(cpus: u32) -> Plain {
    let topology = Topology::flat(&(0..cpus).collect());
    Simulation::new(topology, Costs::FREE, 1, 0, RoundRobin::default(), Metrics::default())
}

fn spawn(simulation: &mut Plain, unit: u32, script: Script) -> TaskId {
    simulation.spawn(TaskSpec::new(100, UnitId(unit), CgroupId::ROOT, script))
}

/// Which thread did something in which ms: kicks take nanoseconds.
#[derive(Clone, Default)]
struct Log(Rc<RefCell<Vec<(u64, u32)>>>);

impl Log {
    fn note(&self, thread: &Thread, number: u32) {
        self.0.borrow_mut().push(((thread.now_ns() + MS / 2) / MS, number));
    }

    fn entries(&self) -> Vec<(u64, u32)> {
        self.0.borrow().clone()
    }
}

/// So many threads of the same kind, thread k as unit k, on so many CPUs, for 100 ms.
fn run<T: 'static, F: Future<Output = ()> + 'static>(
    (cpus, threads): (u32, u32),
    shared: T,
    body: impl Fn(u32, Rc<T>, Thread, Log) -> F + Clone + 'static,
) -> (Plain, Vec<(u64, u32)>) {
    let (mut simulation, log, shared) = (simulation(cpus), Log::default(), Rc::new(shared));
    for number in 0..threads {
        let (body, shared, log) = (body.clone(), shared.clone(), log.clone());
        spawn(&mut simulation, number, Script::new(move |thread| body(number, shared, thread, log)));
    }
    simulation.run_until(100 * MS);
    (simulation, log.entries())
}

fn used_ms(simulation: &Plain) -> Vec<u64> {
    simulation.machine.tasks().map(|(_, task)| (task.used_ns + MS / 2) / MS).collect()
}

/// Thread k asks at k ms and has it for 5 ms.
async fn has_it_in_turn(number: u32, lock: Rc<Lock>, thread: Thread, log: Log) {
    thread.sleep(u64::from(number) * MS).await;
    lock.take(&thread).await;
    log.note(&thread, number);
    thread.compute(5 * MS).await;
    lock.give(&thread);
}

#[test]
fn one_has_a_lock_and_the_others_sleep() {
    let (simulation, log) = run((3, 3), Lock::new(Patience::NONE), has_it_in_turn);
    assert_eq!(log, [(0, 0), (5, 1), (10, 2)]);
    assert_eq!(used_ms(&simulation), [5, 5, 5]);
}

#[test]
fn a_spinlock_is_waited_for_busily() {
    let (simulation, log) = run((3, 3), Lock::new(Patience::ENDLESS), has_it_in_turn);
    assert_eq!(log.iter().map(|(time, _)| *time).collect::<Vec<_>>(), [0, 5, 10]);
    assert_eq!(used_ms(&simulation).iter().sum::<u64>(), 15 + 4 + 8);
}

#[test]
fn patience_ends_in_sleep_and_who_looks_comes_first() {
    let (simulation, log) = run((3, 3), Lock::new(Patience(3 * MS)), has_it_in_turn);
    assert_eq!(log, [(0, 0), (5, 2), (10, 1)], "at 5 ms the second one sleeps already");
    assert_eq!(used_ms(&simulation), [5, 8, 8], "each looks for 3 ms and then sleeps");
}

/// On one CPU the one that has it is preempted by one that only looks: lock-holder preemption.
#[test]
fn who_spins_takes_the_time_of_who_has_it() {
    let (simulation, log) = run((1, 2), Lock::new(Patience::ENDLESS), has_it_in_turn);
    assert_eq!(log[0], (0, 0));
    assert!(log[1].0 > 5, "{log:?}");
    assert!(used_ms(&simulation)[1] > 5, "it has spun");
}

#[test]
fn a_ticket_lock_goes_round_in_order() {
    let (simulation, log) = run((3, 3), TicketLock::default(), async |number, lock, thread, log| {
        thread.sleep(u64::from(number) * MS).await;
        for _ in 0..2 {
            lock.take(&thread).await;
            log.note(&thread, number);
            thread.compute(5 * MS).await;
            lock.give(&thread);
        }
    });
    assert_eq!(log, [(0, 0), (5, 1), (10, 2), (15, 0), (20, 1), (25, 2)]);
    assert_eq!(used_ms(&simulation), [20, 24, 28]);
}

#[test]
fn a_condition_wakes_in_the_order_of_waiting() {
    let shared = (Lock::default(), Condition::default());
    let (_, log) = run((4, 4), shared, async |number, shared, thread, log| {
        let (lock, condition) = &*shared;
        thread.sleep(u64::from(number) * MS).await;
        if number < 3 {
            lock.take(&thread).await;
            condition.wait(&thread, lock).await;
            log.note(&thread, number);
            return lock.give(&thread);
        }
        thread.compute(7 * MS).await;
        condition.tell_one(&thread);
        thread.compute(10 * MS).await;
        condition.tell_all(&thread);
        condition.tell_one(&thread);
    });
    assert_eq!(log, [(10, 0), (20, 1), (20, 2)]);
}

#[test]
fn a_semaphore_lets_so_many_in() {
    let (simulation, log) = run((4, 4), Semaphore::new(2), async |number, semaphore, thread, log| {
        thread.sleep(u64::from(number) * MS).await;
        semaphore.take(&thread).await;
        log.note(&thread, number);
        thread.compute(10 * MS).await;
        semaphore.give(&thread);
    });
    assert_eq!(log, [(0, 0), (1, 1), (10, 2), (11, 3)]);
    assert_eq!(used_ms(&simulation), [10; 4]);
}

#[test]
fn nobody_passes_a_barrier_before_the_last() {
    let come = |patience| {
        run((3, 3), Barrier::new(3, patience), async |number, barrier, thread, log| {
            for _ in 0..2 {
                thread.compute(u64::from(number + 1) * MS).await;
                let was_last = barrier.come(&thread).await;
                assert_eq!(was_last, number == 2);
                log.note(&thread, number);
            }
        })
    };
    let times = |log: Vec<(u64, u32)>| log.into_iter().map(|(time, _)| time).collect::<Vec<_>>();
    let (sleeps, log) = come(Patience::NONE);
    assert_eq!((times(log), used_ms(&sleeps)), (vec![3, 3, 3, 6, 6, 6], vec![2, 4, 6]));
    let (spins, log) = come(Patience::ENDLESS);
    assert_eq!((times(log), used_ms(&spins)), (vec![3, 3, 3, 6, 6, 6], vec![6, 6, 6]));
}

/// What one unit's scripts did in 100 ms: pieces of work, the longest latency, CPU time; times in ms.
fn measure(cpus: u32, scripts: Vec<Script>) -> (u64, u64, u64) {
    let mut simulation = simulation(cpus);
    scripts.into_iter().for_each(|script| _ = spawn(&mut simulation, 0, script));
    simulation.run_until(100 * MS + MS / 2);
    let metrics = &simulation.observer.finish(&mut simulation.machine)[0];
    let longest_ns = metrics.latencies.quantile(1.0).unwrap_or(0);
    (metrics.work, (longest_ns + MS / 4) / MS, (metrics.received_ns + MS / 2) / MS)
}

fn ms(count: u64) -> Distribution {
    Distribution::Constant(count * MS)
}

/// Three threads, 1 ms outside and 4 inside: one after the other for ever.
#[test]
fn a_lock_lets_one_work_at_a_time() {
    let locking = |waiting| Locking { threads: 3, outside: ms(1), inside: ms(4), waiting }.programs();
    let (work, _, used) = measure(3, locking(Waiting::Unordered(Patience::NONE)));
    assert_eq!(work, 24, "from 1 ms on, every 4 ms");
    assert!((100..140).contains(&used), "{used}");
    let (work, waited, used) = measure(3, locking(Waiting::Ordered));
    assert_eq!((work, waited), (24, 8));
    assert!(used > 290, "all spin: {used}");
}

#[test]
fn a_limit_lets_so_many_work() {
    let limited = |permits| Limited { threads: 4, permits, outside: ms(1), inside: ms(4) }.programs();
    assert_eq!(measure(4, limited(1)).0, 24);
    assert!((47..=49).contains(&measure(4, limited(2)).0));
    assert_eq!(measure(4, limited(4)).0, 80);
}

#[test]
fn rounds_are_as_long_as_the_slowest_thread() {
    let rounds = |patience| Rounds { threads: 4, compute: ms(10), patience }.programs();
    assert_eq!(measure(4, rounds(Patience::NONE)), (40, 0, 402));
    let (work, waited, _) = measure(2, rounds(Patience::NONE));
    assert!((13..=20).contains(&work), "two CPUs for four threads: {work}");
    assert!(waited >= 8, "{waited}");
}

/// Nine units of 1 ms a time round, eight of them divisible: 8 / n + 1 ms with n threads.
#[test]
fn fork_and_join_is_amdahls() {
    for (threads, rounds) in [(1, 11), (2, 20), (4, 33), (8, 50)] {
        for balanced in [false, true] {
            let patience = Patience::NONE;
            let (parallel, sequential) = (ms(8), ms(1));
            let program = ForkJoin { threads, parallel, sequential, balanced, patience };
            let (work, _, used) = measure(threads, program.programs());
            assert_eq!(work, rounds, "{threads} threads");
            assert!(used.abs_diff(rounds * 9) <= 8, "{used} ms for {rounds} rounds");
        }
    }
}

#[test]
fn a_leader_waits_for_all() {
    let led = |threads| Led { threads, compute: ms(3), between: ms(1) }.programs();
    assert_eq!(measure(4, led(4)), (25, 3, 25 + 3 * 75));
    assert_eq!(measure(2, led(2)).0, 25);
}

#[test]
fn a_pipeline_is_as_fast_as_its_stages() {
    let pipeline = |stages, threads, room| Pipeline { stages, threads, compute: ms(2), room }.programs();
    assert_eq!(measure(3, pipeline(3, 1, 4)).0, 48, "one each 2 ms after the first 4");
    assert_eq!(measure(1, pipeline(2, 1, 1)).0, 24, "two stages on one CPU");
    assert_eq!(measure(4, pipeline(2, 2, 4)).0, 98, "two threads for each stage");
}

/// Each is as parallel as it is said to be, and its threads synchronise as often, whatever their number.
#[test]
fn benchmarks_are_as_their_sources_say() {
    for benchmark in BENCHMARKS {
        for threads in [1, 2, 8, 16, 48] {
            let mut simulation = simulation(threads);
            for script in benchmark.with_threads(threads).programs() {
                spawn(&mut simulation, 0, script);
            }
            let time_ns = 100 * 2 * benchmark.interval_ns;
            simulation.run_until(time_ns + 100 * MS / 1000);
            let metrics = &simulation.observer.finish(&mut simulation.machine)[0];
            let name = format!("{} with {threads}", benchmark.name);
            assert!(metrics.work.abs_diff(100) <= 1, "{name}: {} rounds", metrics.work);
            // Of those that spin, the CPU time says nothing.
            if !benchmark.spins {
                let parallelism = metrics.received_ns * 1000 / (time_ns * u64::from(threads));
                let expected = u64::from(benchmark.parallelism).max(1000 / u64::from(threads));
                assert!(parallelism.abs_diff(expected) <= 3, "{name}: {parallelism}, not {expected}");
            }
        }
    }
}
