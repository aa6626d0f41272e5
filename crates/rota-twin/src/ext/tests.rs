//! Rules of sched_ext, each in the small: which operation comes when, and what a call does.

use std::collections::BTreeSet;
use std::rc::Rc;

use rota_model::{CpuSet, Topology};
use rota_sim::programs::Hog;
use rota_sim::{CgroupId, Costs, Program, Resumed, Simulation, Step, TaskSpec, Theft, UnitId, World};

use super::*;

const MS: u64 = 1_000_000;
/// The one queue that the tests' scheduler has.
const QUEUE: u64 = 5;
const SLICE: u64 = 10 * MS;

type Enqueue = fn(&mut Kernel<'_>, TaskId, u64);
type Dispatch = fn(&mut Kernel<'_>, CpuId, Option<TaskId>);
type SelectCpu = fn(&mut Kernel<'_>, TaskId, CpuId) -> CpuId;

/// A scheduler that writes down what it is asked. First in, first out, unless told otherwise.
struct Recorder {
    log: Vec<String>,
    flags: u64,
    enqueue: Enqueue,
    dispatch: Dispatch,
    select_cpu: SelectCpu,
    /// Has the CPU's own queue queued anew when a task stops.
    queues_anew: bool,
}

impl Recorder {
    fn new() -> Recorder {
        Recorder {
            log: Vec::new(),
            flags: flags::OPS_ENQ_LAST,
            enqueue: |kernel, task, enq_flags| kernel.dsq_insert(task, QUEUE, SLICE, enq_flags),
            dispatch: |kernel, _, _| _ = kernel.move_to_local(QUEUE),
            select_cpu: |_, _, prev| prev,
            queues_anew: false,
        }
    }

    fn note(&mut self, line: String) {
        self.log.push(line);
    }
}

impl Ops for Recorder {
    fn flags(&self) -> u64 {
        self.flags
    }
    fn timeout_ns(&self) -> u64 {
        30_000 * MS
    }
    fn init(&mut self, kernel: &mut Kernel<'_>) -> Result<(), i32> {
        assert!(
            kernel.create_dsq(QUEUE) && !kernel.create_dsq(QUEUE) && !kernel.create_dsq(flags::DSQ_GLOBAL)
        );
        Ok(())
    }
    fn init_task(&mut self, _: &mut Kernel<'_>, _: TaskId) -> Result<(), i32> {
        Ok(())
    }
    fn disable(&mut self, _: &mut Kernel<'_>, task: TaskId) {
        self.note(format!("disable {}", task.0));
    }
    fn exit_task(&mut self, _: &mut Kernel<'_>, task: TaskId) {
        self.note(format!("exit_task {}", task.0));
    }
    fn select_cpu(&mut self, kernel: &mut Kernel<'_>, task: TaskId, prev: CpuId, _: u64) -> CpuId {
        self.note(format!("select_cpu {}", task.0));
        (self.select_cpu)(kernel, task, prev)
    }
    fn enqueue(&mut self, kernel: &mut Kernel<'_>, task: TaskId, enq_flags: u64) {
        let how = match enq_flags {
            flags::ENQ_WAKEUP => " wakeup",
            flags::ENQ_LAST => " last",
            _ => "",
        };
        self.note(format!("enqueue {}{how}", task.0));
        (self.enqueue)(kernel, task, enq_flags);
    }
    fn dispatch(&mut self, kernel: &mut Kernel<'_>, cpu: CpuId, prev: Option<TaskId>) {
        let prev_is = prev.map_or("nobody".to_owned(), |prev| {
            format!("{}{}", prev.0, if kernel.standing(prev).0 { "" } else { " blocked" })
        });
        self.note(format!("dispatch {} after {prev_is}", cpu.0));
        (self.dispatch)(kernel, cpu, prev);
    }
    fn running(&mut self, kernel: &mut Kernel<'_>, task: TaskId) {
        self.note(format!("running {} on {}", task.0, kernel.machine.task(task).cpu.0));
    }
    fn stopping(&mut self, kernel: &mut Kernel<'_>, task: TaskId, runnable: bool) {
        if self.queues_anew {
            kernel.reenqueue_local();
        }
        self.note(format!("stopping {}{}", task.0, if runnable { "" } else { " blocked" }));
    }
    fn update_idle(&mut self, _: &mut Kernel<'_>, cpu: CpuId, idle: bool) {
        self.note(format!("update_idle {} {idle}", cpu.0));
    }
    fn timer(&mut self, _: &mut Kernel<'_>, _: u64) {}
    fn exit(&mut self, _: &mut Kernel<'_>, exit: &Exit) {
        self.note(format!("exit: {}", exit.message));
    }
}

/// Computes so long, then sleeps for ever; or the other way round.
struct Once(Vec<Step>);

impl Program for Once {
    fn next(&mut self, _: Resumed, _: &mut World<'_>) -> Step {
        if self.0.is_empty() { Step::Wait(None) } else { self.0.remove(0) }
    }
}

type Run = Simulation<Ext<Recorder>, ()>;

fn run_with(cpus: u32, recorder: Recorder) -> Run {
    let topology = Topology::flat(&(0..cpus).collect::<CpuSet>());
    Simulation::new(topology, Costs::FREE, 1, 0, Ext::new(recorder), ())
}

fn spec(program: impl Program + 'static) -> TaskSpec {
    TaskSpec::new(1, UnitId(0), CgroupId::ROOT, program)
}

/// What was written down since the last time.
fn log(run: &mut Run) -> Vec<String> {
    std::mem::take(&mut run.policy.ops.log)
}

fn on(run: &Run, cpus: &[u32]) -> Rc<CpuMask> {
    run.machine.mask(cpus.iter().map(|&cpu| CpuId(cpu)))
}

#[test]
fn a_task_wakes_runs_and_sleeps() {
    let mut run = run_with(1, Recorder::new());
    run.spawn(spec(Once(vec![Step::SleepUntil(MS), Step::Compute(MS), Step::Exit])));
    run.run_until(MS - 1);
    log(&mut run);
    run.run_until(10 * MS);
    let expected = [
        "enqueue 0 wakeup",
        "dispatch 0 after nobody",
        "update_idle 0 false",
        "running 0 on 0",
        "stopping 0 blocked",
        "dispatch 0 after 0 blocked",
        "update_idle 0 true",
        "disable 0",
        "exit_task 0",
    ];
    assert_eq!(log(&mut run), expected);
}

#[test]
fn only_who_may_move_is_asked_where_to() {
    let mut run = run_with(2, Recorder::new());
    let pinned = on(&run, &[1]);
    run.spawn(TaskSpec { affinity: Some(pinned), ..spec(Hog) });
    run.spawn(spec(Hog));
    let lines = log(&mut run);
    assert!(
        lines.contains(&"select_cpu 1".to_owned()) && !lines.contains(&"select_cpu 0".to_owned()),
        "{lines:?}"
    );
}

/// With `SCX_OPS_ENQ_LAST`, the scheduler gets the last task too, and its CPU idles unless it does something.
#[test]
fn an_exhausted_slice_ends_at_a_tick() {
    let mut run = run_with(1, Recorder::new());
    run.spawn(spec(Hog));
    run.run_until(11 * MS);
    log(&mut run);
    run.run_until(13 * MS);
    let expected = ["dispatch 0 after 0", "stopping 0", "enqueue 0 last", "update_idle 0 true"];
    assert_eq!(log(&mut run)[..], expected);

    let mut run = run_with(1, Recorder { flags: 0, ..Recorder::new() });
    run.spawn(spec(Hog));
    run.run_until(11 * MS);
    log(&mut run);
    run.run_until(13 * MS);
    assert_eq!(log(&mut run)[..], ["dispatch 0 after 0"], "without it, the task goes on");
}

#[test]
fn the_next_is_chosen_before_the_present_one_is_queued() {
    let mut run = run_with(1, Recorder::new());
    run.spawn(spec(Hog));
    run.spawn(spec(Hog));
    run.run_until(11 * MS);
    log(&mut run);
    run.run_until(13 * MS);
    assert_eq!(log(&mut run)[..], ["dispatch 0 after 0", "stopping 0", "enqueue 0", "running 1 on 0"]);
}

#[test]
fn a_slice_given_in_dispatch_keeps_the_task_without_a_word() {
    let dispatch: Dispatch = |kernel, _, prev| match prev {
        Some(prev) => kernel.set_slice(prev, SLICE),
        None => _ = kernel.move_to_local(QUEUE),
    };
    let mut run = run_with(1, Recorder { dispatch, ..Recorder::new() });
    run.spawn(spec(Hog));
    run.run_until(11 * MS);
    log(&mut run);
    run.run_until(13 * MS);
    assert_eq!(log(&mut run)[..], ["dispatch 0 after 0"]);
}

/// The higher class leaves the task its slice: it waits at the head of its CPU's own queue, unknown to the scheduler.
#[test]
fn a_higher_class_takes_the_cpu_and_gives_it_back() {
    let mut run = run_with(1, Recorder::new());
    run.spawn(spec(Hog));
    run.run_until(MS);
    log(&mut run);
    run.spawn(TaskSpec { realtime: Some(50), ..spec(Once(vec![Step::Compute(MS)])) });
    run.run_until(3 * MS);
    assert_eq!(log(&mut run)[..], ["stopping 0", "running 0 on 0"]);
}

/// What is queued anew is so when the switch is over, and is the scheduler's until it is dispatched again.
#[test]
fn a_cpus_own_queue_is_queued_anew_once_the_higher_class_has_the_cpu() {
    let mut run = run_with(1, Recorder { queues_anew: true, ..Recorder::new() });
    run.spawn(spec(Hog));
    run.run_until(MS);
    log(&mut run);
    run.spawn(TaskSpec { realtime: Some(50), ..spec(Once(vec![Step::Compute(MS)])) });
    assert_eq!(log(&mut run)[..], ["stopping 0", "enqueue 0"]);
    run.run_until(3 * MS);
    assert_eq!(log(&mut run)[..], ["dispatch 0 after nobody", "running 0 on 0"]);
}

#[test]
fn a_local_insert_preempts_if_it_says_so() {
    let enqueue: Enqueue = |kernel, task, enq_flags| match task {
        TaskId(0) => kernel.dsq_insert(task, QUEUE, SLICE, enq_flags),
        _ => kernel.dsq_insert(task, flags::DSQ_LOCAL, SLICE, enq_flags | flags::ENQ_PREEMPT),
    };
    let mut run = run_with(1, Recorder { enqueue, ..Recorder::new() });
    run.spawn(spec(Hog));
    run.run_until(MS);
    log(&mut run);
    run.spawn(spec(Hog));
    let expected = ["enqueue 1", "stopping 0", "enqueue 0", "running 1 on 0"];
    assert_eq!(log(&mut run)[..], expected, "no dispatch: there is a task in the CPU's own queue");
}

#[test]
fn a_task_sent_somewhere_while_its_cpu_is_selected_is_not_enqueued() {
    let select_cpu: SelectCpu = |kernel, task, prev| {
        kernel.dsq_insert(task, flags::DSQ_LOCAL, SLICE, 0);
        prev
    };
    let mut run = run_with(1, Recorder { select_cpu, ..Recorder::new() });
    run.spawn(spec(Hog));
    assert_eq!(
        log(&mut run)[..],
        ["enqueue 0", "dispatch 0 after nobody", "update_idle 0 false", "running 0 on 0"]
    );

    let mut run = run_with(2, Recorder { select_cpu, ..Recorder::new() });
    run.spawn(spec(Hog));
    assert_eq!(log(&mut run)[..], ["select_cpu 0", "update_idle 0 false", "running 0 on 0"]);
}

#[test]
fn kicks_reach_whom_they_mean() {
    let mut run = run_with(2, Recorder::new());
    let second = on(&run, &[1]);
    run.spawn(TaskSpec { affinity: Some(second), ..spec(Hog) });
    run.run_until(MS);
    log(&mut run);
    let kick = |run: &mut Run, how: u64| {
        run.act(|run| run.policy.call(&mut run.machine, |_, kernel| kernel.kick_cpu(CpuId(1), how)));
        run.run_until(run.machine.now_ns() + 10);
        log(run)
    };
    assert!(kick(&mut run, flags::KICK_IDLE).is_empty(), "it does not idle");
    assert!(kick(&mut run, 0).is_empty(), "its task has a slice left");
    assert_eq!(kick(&mut run, flags::KICK_PREEMPT)[0], "dispatch 1 after 0");
}

#[test]
fn a_cpu_takes_the_first_task_that_may_run_there() {
    let mut run = run_with(2, Recorder { dispatch: |_, _, _| {}, ..Recorder::new() });
    let (first, second) = (on(&run, &[0]), on(&run, &[1]));
    run.spawn(TaskSpec { affinity: Some(second), ..spec(Hog) });
    run.spawn(TaskSpec { affinity: Some(first), ..spec(Hog) });
    run.spawn(spec(Hog));
    run.run_until(MS);
    log(&mut run);
    run.policy.ops.dispatch = |kernel, _, _| _ = kernel.move_to_local(QUEUE);
    run.act(|run| run.policy.call(&mut run.machine, |_, kernel| kernel.kick_cpu(CpuId(1), 0)));
    run.run_until(2 * MS);
    assert_eq!(log(&mut run)[1..], ["update_idle 1 false", "running 0 on 1"]);
    run.act(|run| {
        run.policy.call(&mut run.machine, |_, kernel| kernel.kick_cpu(CpuId(1), flags::KICK_PREEMPT))
    });
    run.run_until(3 * MS);
    let expected = ["dispatch 1 after 0", "stopping 0", "enqueue 0", "running 2 on 1"];
    assert_eq!(
        log(&mut run),
        expected,
        "it is moved from CPU 0 without a word, and before the present one is queued"
    );
}

#[test]
fn a_queue_by_virtual_time_is_gone_through_as_it_was() {
    let enqueue: Enqueue = |kernel, task, enq_flags| {
        kernel.dsq_insert_vtime(task, QUEUE, SLICE, 100 - u64::from(task.0), enq_flags);
    };
    let mut run = run_with(1, Recorder { enqueue, dispatch: |_, _, _| {}, ..Recorder::new() });
    (0..3).for_each(|_| _ = run.spawn(spec(Hog)));
    let seen = run.act(|run| {
        run.policy.call(&mut run.machine, |_, kernel| {
            assert!(kernel.create_dsq(6) && kernel.iterate(7).is_none());
            let mut iter = kernel.iterate(QUEUE).expect("it is there");
            let first = kernel.iter_next(&mut iter).expect("there are three");
            kernel.iter_set_vtime(&mut iter, 1000);
            assert!(kernel.iter_move_vtime(&mut iter, first, 6, 0));
            assert!(!kernel.iter_move_vtime(&mut iter, first, 6, 0), "it has left");
            let second = kernel.iter_next(&mut iter).expect("there were three");
            let third = kernel.iter_next(&mut iter).expect("there were three");
            (
                first.0,
                second.0,
                third.0,
                kernel.iter_next(&mut iter),
                kernel.dsq_nr_queued(QUEUE),
                kernel.dsq_nr_queued(6),
            )
        })
    });
    assert_eq!(seen, (2, 1, 0, None, Some(2), Some(1)));
}

#[test]
fn a_running_task_is_changed_and_runs_on_or_moves() {
    let mut run = run_with(2, Recorder::new());
    let task = run.spawn(spec(Hog));
    run.run_until(MS);
    log(&mut run);
    let first = on(&run, &[0]);
    run.set_affinity(task, first);
    assert_eq!(log(&mut run)[..], ["stopping 0 blocked", "running 0 on 0"]);
    let second = on(&run, &[1]);
    run.set_affinity(task, second);
    run.run_until(2 * MS);
    let expected = [
        "stopping 0 blocked",
        "running 0 on 0",
        "stopping 0",
        "enqueue 0",
        "dispatch 0 after nobody",
        "update_idle 0 true",
        "dispatch 1 after nobody",
        "update_idle 1 false",
        "running 0 on 1",
    ];
    assert_eq!(log(&mut run)[..], expected, "the last one moves it");
}

/// A task comes from outside while an interrupt has the CPU of the last event: it does not wait for the end of that.
#[test]
fn nothing_is_done_from_outside_on_a_cpu_that_is_away() {
    let mut run = run_with(2, Recorder::new());
    run.run_until(MS);
    assert_eq!(run.machine.this_cpu(), CpuId(0));
    run.steal(CpuId(0), 20 * MS, Theft::Interrupt);
    run.spawn(spec(Hog));
    assert!(log(&mut run).contains(&"running 0 on 1".to_owned()));
    run.steal(CpuId(1), 30 * MS, Theft::Steal);
    run.act(|run| assert_eq!(run.machine.this_cpu(), CpuId(0), "it comes back first"));
}

#[test]
fn a_held_task_stays() {
    struct Held;
    impl Program for Held {
        fn next(&mut self, _: Resumed, world: &mut World<'_>) -> Step {
            world.hold(true);
            Step::Compute(u64::MAX)
        }
    }
    let mut run = run_with(
        2,
        Recorder { flags: flags::OPS_ENQ_LAST | flags::OPS_ENQ_MIGRATION_DISABLED, ..Recorder::new() },
    );
    let held = run.spawn(spec(Held));
    run.run_until(MS);
    log(&mut run);
    run.policy.ops.dispatch = |kernel, cpu, _| {
        if cpu == CpuId(1) {
            kernel.move_to_local(QUEUE);
        }
    };
    for cpu in [0, 1] {
        run.act(|run| {
            run.policy.call(&mut run.machine, |_, kernel| kernel.kick_cpu(CpuId(cpu), flags::KICK_PREEMPT))
        });
    }
    run.run_until(3 * MS);
    let lines = log(&mut run);
    assert!(lines.contains(&"enqueue 0 last".to_owned()), "{lines:?}");
    assert_eq!(run.machine.task(held).cpu, CpuId(0));
    assert_eq!(run.machine.cpu(CpuId(1)).current, None);
}

#[test]
fn the_watchdog_ends_a_scheduler_that_leaves_a_task_waiting() {
    let mut run = run_with(1, Recorder { dispatch: |_, _, _| {}, ..Recorder::new() });
    let task = run.spawn(spec(Hog));
    run.run_until(44_000 * MS);
    assert_eq!(run.policy.exited(), None);
    run.run_until(46_000 * MS);
    assert_eq!(run.policy.exited().map(|exit| exit.kind), Some(Exit::STALL));
    assert_eq!(log(&mut run).last().map(String::as_str), Some("exit: task 0 failed to run for 45.000s"));
    assert_eq!(run.machine.cpu(CpuId(0)).current, Some(task), "the kernel runs it itself");
}

#[test]
fn hotplug_ends_the_scheduler_and_tasks_run_on() {
    let mut run = run_with(2, Recorder::new());
    let second = on(&run, &[1]);
    let tasks = [
        run.spawn(TaskSpec { affinity: Some(second), ..spec(Hog) }),
        run.spawn(spec(Hog)),
        run.spawn(spec(Hog)),
    ];
    run.run_until(5 * MS);
    run.offline(CpuId(1));
    assert_eq!(run.policy.exited().map(|exit| exit.kind), Some(Exit::UNREGISTERED_BY_KERNEL));
    assert_eq!(
        log(&mut run).last().map(String::as_str),
        Some("exit: cpu 1 going offline, exiting scheduler")
    );
    run.run_until(100 * MS);
    run.machine.settle(CpuId(0));
    assert!(log(&mut run).is_empty(), "it is asked no more");
    for task in tasks {
        assert!(run.machine.task(task).used_ns > 25 * MS, "{}", run.machine.task(task).used_ns);
    }
}

/// More tasks than have a turn before their CPU goes: whoever has waited longest is the next, wherever all go.
#[test]
fn a_cpu_that_goes_takes_nobodys_place_in_the_line() {
    let mut run = run_with(2, Recorder::new());
    let tasks = [(); 12].map(|()| run.spawn(spec(Hog)));
    for round in 0..40 {
        run.run_until((round + 1) * 10 * MS);
        run.offline(CpuId((round % 2) as u32));
        run.online(CpuId((round % 2) as u32));
    }
    (0..2).for_each(|cpu| run.machine.settle(CpuId(cpu)));
    let used = tasks.map(|task| run.machine.task(task).used_ns);
    assert!(used.iter().all(|&used_ns| used_ns > 15 * MS), "{used:?}");
}

#[test]
fn mistakes_end_the_scheduler() {
    let mistakes: [(Enqueue, &str); 5] = [
        (|kernel, task, _| kernel.dsq_insert(task, 77, SLICE, 0), "non-existent DSQ 0x4d"),
        (
            |kernel, task, _| kernel.dsq_insert_vtime(task, flags::DSQ_LOCAL, SLICE, 0, 0),
            "cannot use vtime ordering for built-in DSQs",
        ),
        (
            |kernel, task, _| (0..2).for_each(|_| kernel.dsq_insert(task, QUEUE, SLICE, 0)),
            "task 0 already direct-dispatched",
        ),
        (
            |kernel, _, _| kernel.dsq_insert(TaskId(0), QUEUE, SLICE, 0),
            "scheduling for task 1 but trying to direct-dispatch 0",
        ),
        (|kernel, _, _| kernel.error("it says so".to_owned()), "it says so"),
    ];
    for (enqueue, message) in mistakes {
        let mut run = run_with(1, Recorder { enqueue, ..Recorder::new() });
        run.act(|run| {
            run.spawn(spec(Hog));
            run.spawn(spec(Hog));
        });
        assert_eq!(run.policy.exited().map(|exit| exit.message.as_str()), Some(message));
    }
}

/// Everything that can happen to tasks, at random: operations come in an order that the kernel has, and each pair of
/// them that the model makes is one that is known.
#[test]
fn operations_come_in_the_kernel_s_order() {
    let (mut seen, mut on_cpus) = (BTreeSet::new(), BTreeSet::new());
    for seed in 0..20 {
        let mut order = Order::default();
        let enqueue: Enqueue = |kernel, task, enq_flags| {
            kernel.dsq_insert(task, QUEUE, SLICE, enq_flags);
            if enq_flags & flags::ENQ_LAST != 0 {
                kernel.kick_cpu(kernel.machine.task(task).cpu, 0);
            }
        };
        let ops_flags = [0, flags::OPS_ENQ_LAST][seed as usize % 2];
        let mut run = run_with(2, Recorder { flags: ops_flags, enqueue, ..Recorder::new() });
        let mut rng = rota_sim::Rng::new(seed, 0);
        let mut step = || match rng.below(4) {
            0 => Step::SleepUntil(rng.below(200 * MS)),
            1 => Step::Yield,
            _ => Step::Compute(rng.between(1, 10 * MS)),
        };
        let lives: Vec<Vec<Step>> =
            (0..5).map(|_| (0..20).map(|_| step()).chain([Step::Exit]).collect()).collect();
        let tasks: Vec<TaskId> = lives.into_iter().map(|life| run.spawn(spec(Once(life)))).collect();
        let higher = Once(vec![Step::SleepUntil(20 * MS), Step::Compute(MS)]);
        run.spawn(TaskSpec { realtime: Some(50), ..spec(higher) });
        for round in 1..20 {
            run.run_until(round * 10 * MS);
            let task = tasks[rng.below(5) as usize];
            let cpus = on(&run, [&[0][..], &[1], &[0, 1]][rng.below(3) as usize]);
            if run.machine.task(task).state != State::Dead {
                run.set_affinity(task, cpus);
            }
        }
        log(&mut run).iter().for_each(|line| order.see(line).unwrap());
        seen.extend(order.pairs());
        on_cpus.extend(order.pairs_on_cpus());
    }
    assert_eq!(seen.into_iter().collect::<Vec<_>>(), PAIRS);
    assert_eq!(on_cpus.into_iter().collect::<Vec<_>>(), PAIRS_ON_CPUS);
}
