//! A scheduling class for ordinary tasks: what a policy is asked, in the order in which the kernel's core asks.

use crate::ids::{CpuId, TaskId};
use crate::machine::Machine;

/// How a task comes onto a run queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// It was blocked.
    Woken,
    /// It is new.
    New,
    /// Something about it was changed while it was queued: its affinity, its group.
    Changed,
    /// The kernel has moved it here from another CPU, where it may not be any more.
    Moved,
}

/// How a task leaves a run queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Departure {
    /// It blocks, or is over.
    Blocked,
    /// Something about it is about to be changed; it comes back at once.
    Changed,
    /// The kernel is about to move it to another CPU.
    Moved,
}

/// What a CPU does after the present task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Another ordinary task, or the same one again.
    Ordinary(TaskId),
    /// A task of a higher class.
    Higher,
    /// Nothing.
    Idle,
}

/// What happens to a CPU without a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Idle {
    /// It had a task until now.
    Enters,
    /// It looked for one and found none.
    Stays,
    /// It has one from now on.
    Leaves,
}

/// Decides which ordinary task runs where and when. Each call stands for one of the kernel's `struct sched_class`, made
/// where and when the kernel's core makes it. A call is made on [`Machine::this_cpu`], at [`Machine::now_ns`], and
/// takes no time; what it costs is a parameter of the model.
///
/// A policy keeps its own run queues. It may [ask](Machine::resched) a CPU to decide anew, set timers, and
/// [move](Machine::set_task_cpu) tasks that are queued.
pub trait Policy {
    /// Before the first task.
    fn start(&mut self, machine: &mut Machine);

    /// A task is about to be queued for the first time.
    fn task_new(&mut self, machine: &mut Machine, task: TaskId);

    /// A task is over, and runs no more.
    fn task_dead(&mut self, machine: &mut Machine, task: TaskId);

    /// The CPU on whose run queue a task shall be queued. Only asked if it may move.
    fn select_cpu(&mut self, machine: &mut Machine, task: TaskId, arrival: Arrival) -> CpuId;

    /// The task is on its CPU's run queue from now on.
    fn enqueue(&mut self, machine: &mut Machine, task: TaskId, arrival: Arrival);

    /// A task of a higher class would run on `cpu` from now on.
    fn overtaken(&mut self, _: &mut Machine, _: CpuId) {}

    /// The task is on no run queue from now on. It may be running; then `put_prev` follows. If it was only changed, it
    /// is queued again, and where it was running, `set_next` has it run on.
    fn dequeue(&mut self, machine: &mut Machine, task: TaskId, departure: Departure);

    /// The task that `cpu` shall run next, which may be the present one. It is taken by `set_next`.
    fn pick(&mut self, machine: &mut Machine, cpu: CpuId) -> Option<TaskId>;

    /// The task that ran on `cpu` does not go on there; it is queued still, unless it was dequeued.
    fn put_prev(&mut self, machine: &mut Machine, cpu: CpuId, task: TaskId, next: Next);

    /// The task runs on `cpu` from now on.
    fn set_next(&mut self, machine: &mut Machine, cpu: CpuId, task: TaskId);

    /// The task that runs on `cpu` asks for others to go first.
    fn yielded(&mut self, machine: &mut Machine, cpu: CpuId, task: TaskId);

    /// A tick of a CPU that runs the task.
    fn tick(&mut self, machine: &mut Machine, cpu: CpuId, task: TaskId);

    /// A CPU without a task.
    fn idle(&mut self, machine: &mut Machine, cpu: CpuId, idle: Idle);

    /// A timer of the policy's own, [set](Machine::timer_set) for `cpu`.
    fn timer(&mut self, machine: &mut Machine, cpu: CpuId, key: u64);

    /// Something is about to happen on `cpu`, perhaps to `task`: what the policy will look at may be
    /// [fetched](crate::fetch). Nothing changes.
    fn foresee(&self, _cpu: CpuId, _task: Option<TaskId>) {}

    /// The last thing on a CPU before it returns to its task: what could not be done in the middle of something else.
    fn deferred(&mut self, machine: &mut Machine, cpu: CpuId);

    /// A CPU is about to go, or has come. What was queued there is queued anew elsewhere afterwards.
    fn hotplug(&mut self, machine: &mut Machine, cpu: CpuId, online: bool);
}
