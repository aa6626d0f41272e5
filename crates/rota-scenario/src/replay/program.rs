//! A thread of a recording, again.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use rota_sim::{Program, Reason, Resumed, Step, TaskId, World};

use super::load::Op;

/// What the threads of one replay have in common.
#[derive(Debug, Default)]
pub struct Shared {
    threads: Vec<Meeting>,
}

/// Where a thread and those who wake it meet.
#[derive(Debug, Default)]
struct Meeting {
    task: Cell<Option<TaskId>>,
    /// Of each wait whether it is ended.
    ended: RefCell<Vec<bool>>,
    /// The wait in which it is.
    waits: Cell<Option<u32>>,
}

impl Shared {
    /// For so many threads.
    pub fn new(threads: usize) -> Shared {
        Shared { threads: (0..threads).map(|_| Meeting::default()).collect() }
    }

    fn has_ended(&self, thread: usize, wait: u32) -> bool {
        self.threads[thread].ended.borrow().get(wait as usize) == Some(&true)
    }

    /// Ends a wait. Returns who is to be woken for it.
    fn end(&self, thread: usize, wait: u32) -> Option<TaskId> {
        let meeting = &self.threads[thread];
        let mut ended = meeting.ended.borrow_mut();
        let count = ended.len().max(wait as usize + 1);
        ended.resize(count, false);
        ended[wait as usize] = true;
        meeting.task.get().filter(|_| meeting.waits.get() == Some(wait))
    }
}

/// Does what one thread did, as fast as it is let. Each time that it comes to a block is a piece of work.
pub struct Replayed {
    thread: usize,
    ops: Arc<[Op]>,
    next: usize,
    begins_ns: u64,
    /// How much before that it begins to run.
    early_ns: u64,
    shared: Rc<Shared>,
}

impl Replayed {
    /// A thread whose recording begins at `begins_ns`. If it ran then, it goes on `early_ns` before.
    pub fn new(thread: usize, ops: Arc<[Op]>, begins_ns: u64, early_ns: u64, shared: Rc<Shared>) -> Replayed {
        Replayed { thread, ops, next: 0, begins_ns, early_ns, shared }
    }
}

impl Program for Replayed {
    fn next(&mut self, _: Resumed, world: &mut World<'_>) -> Step {
        let (shared, begins_ns) = (self.shared.clone(), self.begins_ns);
        let meeting = &shared.threads[self.thread];
        meeting.task.set(Some(world.task));
        meeting.waits.set(None);
        let now_ns = world.now_ns.max(begins_ns);
        while let Some(&op) = self.ops.get(self.next) {
            if self.next == 0 && world.now_ns < begins_ns - self.early_ns && !op.blocks() {
                return Step::SleepUntil(begins_ns - self.early_ns);
            }
            if let Op::Wait(wait) = op
                && !shared.has_ended(self.thread, wait)
            {
                meeting.waits.set(Some(wait));
                return Step::WaitFor(Reason::Unknown, None);
            }
            self.next += 1;
            if op.blocks() {
                world.work(1);
            }
            match op {
                Op::Compute(ns) => return Step::Compute(ns),
                Op::Wake { thread, wait } => {
                    if let Some(task) = shared.end(thread as usize, wait) {
                        world.wake(task);
                    }
                }
                Op::Wait(_) => {}
                Op::Sleep(ns) => return Step::SleepUntil(now_ns.saturating_add(ns)),
                Op::Until(ns) if begins_ns.saturating_add(ns) <= now_ns => {}
                Op::Until(ns) => return Step::SleepUntil(begins_ns.saturating_add(ns)),
                Op::Exit => return Step::Exit,
            }
        }
        Step::WaitFor(Reason::Unknown, None)
    }
}
