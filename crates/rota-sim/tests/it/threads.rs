//! Threads and devices, each against what it is said to do, on machines where nothing costs anything.

use std::cell::RefCell;
use std::rc::Rc;

use rota_model::Topology;
use rota_sim::{
    CgroupId, Costs, CpuId, Device, Interrupt, Script, Simulation, Step, TaskId, TaskSpec, Thread, UnitId,
    Why,
};

use crate::round_robin::RoundRobin;

const MS: u64 = 1_000_000;

type Plain = Simulation<RoundRobin, ()>;

fn simulation(cpus: u32) -> Plain {
    let topology = Topology::flat(&(0..cpus).collect());
    Simulation::new(topology, Costs::FREE, 1, 0, RoundRobin::default(), ())
}

fn spawn<F: Future<Output = ()> + 'static>(simulation: &mut Plain, body: impl FnOnce(Thread) -> F) -> TaskId {
    simulation.spawn(TaskSpec::new(100, UnitId(0), CgroupId::ROOT, Script::new(body)))
}

/// What happened when.
#[derive(Clone, Default)]
struct Log(Rc<RefCell<Vec<(u64, &'static str)>>>);

impl Log {
    fn note(&self, thread: &Thread, what: &'static str) {
        self.0.borrow_mut().push((thread.now_ns(), what));
    }

    /// What happened in which ms: a kick takes a nanosecond.
    fn entries(&self) -> Vec<(u64, &'static str)> {
        self.0.borrow().iter().map(|&(time_ns, what)| (time_ns / MS, what)).collect()
    }
}

#[test]
fn a_script_computes_and_sleeps() {
    let (mut simulation, log) = (simulation(1), Log::default());
    let told = log.clone();
    let task = spawn(&mut simulation, async move |thread| {
        thread.compute(3 * MS).await;
        told.note(&thread, "computed");
        thread.sleep(2 * MS).await;
        told.note(&thread, "slept");
    });
    simulation.run_until(20 * MS);
    assert_eq!(log.entries(), [(3, "computed"), (5, "slept")]);
    assert_eq!(simulation.machine.task(task).used_ns, 3 * MS);
}

#[test]
fn a_poke_ends_spinning_and_delays_no_computation() {
    let (mut simulation, log) = (simulation(3), Log::default());
    let told = log.clone();
    let spins = spawn(&mut simulation, async move |thread| {
        assert_eq!(thread.spin(MS).await, MS);
        assert!(thread.spin(u64::MAX).await.abs_diff(MS) < 10);
        told.note(&thread, "poked");
    });
    let told = log.clone();
    let computes = spawn(&mut simulation, async move |thread| {
        thread.compute(5 * MS).await;
        told.note(&thread, "computed");
    });
    spawn(&mut simulation, async move |thread| {
        thread.compute(2 * MS).await;
        thread.poke(spins);
        thread.poke(computes);
    });
    simulation.run_until(20 * MS);
    assert_eq!(log.entries(), [(2, "poked"), (5, "computed")]);
}

#[test]
fn a_poke_reaches_who_is_not_running_once_it_runs() {
    let (mut simulation, log) = (simulation(1), Log::default());
    let told = log.clone();
    let spins = spawn(&mut simulation, async move |thread| {
        thread.spin(u64::MAX).await;
        told.note(&thread, "poked");
    });
    spawn(&mut simulation, async move |thread| {
        thread.compute(MS).await;
        thread.poke(spins);
        thread.compute(u64::MAX).await;
    });
    simulation.run_until(50 * MS);
    assert_eq!(log.entries(), [(8, "poked")], "it has the second tick, the other one the next");
}

#[test]
fn only_waiting_threads_are_woken() {
    let (mut simulation, log) = (simulation(2), Log::default());
    let told = log.clone();
    let sleeps = spawn(&mut simulation, async move |thread| {
        thread.sleep(5 * MS).await;
        told.note(&thread, "slept");
        thread.wait().await;
        told.note(&thread, "woken");
        let resumed = thread.step(Step::Wait(Some(thread.now_ns() + MS))).await;
        assert_eq!(resumed.why, Why::TimedOut);
        told.note(&thread, "timed out");
    });
    spawn(&mut simulation, async move |thread| {
        thread.compute(2 * MS).await;
        thread.wake(sleeps);
        thread.compute(8 * MS).await;
        thread.wake(sleeps);
        thread.wake(sleeps);
    });
    simulation.run_until(50 * MS);
    assert_eq!(log.entries(), [(5, "slept"), (10, "woken"), (11, "timed out")]);
}

#[test]
fn a_timer_comes_while_computing() {
    let (mut simulation, log) = (simulation(1), Log::default());
    let told = log.clone();
    spawn(&mut simulation, async move |thread| {
        let until_ns = thread.now_ns() + 3 * MS;
        let resumed = thread.step(Step::ComputeUntil { ns: u64::MAX, until_ns }).await;
        assert_eq!((resumed.why, resumed.done_ns), (Why::TimedOut, 3 * MS));
        told.note(&thread, "its time");
        let until_ns = thread.now_ns() + 3 * MS;
        let resumed = thread.step(Step::ComputeUntil { ns: MS, until_ns }).await;
        assert_eq!((resumed.why, resumed.done_ns), (Why::Computed, MS));
        thread.compute(5 * MS).await;
        told.note(&thread, "no late timer");
    });
    simulation.run_until(50 * MS);
    assert_eq!(log.entries(), [(3, "its time"), (9, "no late timer")]);
}

/// Interrupts every 2 ms, and wakes whoever has left a name.
struct Bell(Rc<RefCell<Vec<TaskId>>>);

impl Device for Bell {
    fn interrupt(&mut self, interrupt: &mut Interrupt<'_>) -> Option<u64> {
        self.0.borrow_mut().drain(..).for_each(|task| interrupt.wake(task));
        Some(interrupt.now_ns + 2 * MS)
    }
}

#[test]
fn a_device_interrupts_in_time_and_when_asked() {
    let (mut simulation, log) = (simulation(2), Log::default());
    let names = Rc::new(RefCell::new(Vec::new()));
    let bell = simulation.attach(Bell(names.clone()), CpuId(1), Some(3 * MS));
    let told = log.clone();
    spawn(&mut simulation, async move |thread| {
        for _ in 0..2 {
            names.borrow_mut().push(thread.task());
            thread.wait().await;
            told.note(&thread, "rung");
        }
        names.borrow_mut().push(thread.task());
        thread.ask(bell, thread.now_ns() + MS);
        thread.wait().await;
        told.note(&thread, "asked");
    });
    simulation.run_until(50 * MS);
    assert_eq!(log.entries(), [(3, "rung"), (5, "rung"), (6, "asked")]);
}

/// Whatever happens, a thread's own chance is its own: what it draws depends on nothing that others do.
#[test]
fn chance_is_the_threads_own() {
    let drawn = |cpus: u32| {
        let (mut simulation, drawn) = (simulation(cpus), Rc::new(RefCell::new(Vec::new())));
        for place in 0..3u32 {
            let drawn = drawn.clone();
            spawn(&mut simulation, async move |thread| {
                for _ in 0..5 {
                    let ns = thread.draw(|rng| rng.between(1, MS));
                    drawn.borrow_mut().push((place, ns));
                    thread.compute(ns).await;
                }
            });
        }
        simulation.run_until(100 * MS);
        let mut drawn = drawn.take();
        drawn.sort_by_key(|(place, _)| *place);
        drawn
    };
    assert_eq!(drawn(1), drawn(3));
    assert_eq!(drawn(1).len(), 15);
}
