//! Threads that are kept from running for a while, as the kernel's cgroup freezer keeps them: whoever computes goes on
//! afterwards where it was.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use crate::ids::TaskId;
use crate::program::{Device, Interrupt, Program, Reason, Resumed, Step, Why, World};

#[derive(Debug, Default)]
struct Shared {
    frozen: Cell<bool>,
    /// All that can be frozen and have begun.
    threads: RefCell<Vec<TaskId>>,
    /// Those of them that wait for the end of it.
    waiting: RefCell<Vec<TaskId>>,
}

/// Freezes threads at given times.
#[derive(Debug, Default)]
pub struct Freezer(Rc<Shared>);

impl Freezer {
    /// A thread that can be frozen.
    pub fn thread(&self, program: Box<dyn Program>) -> impl Program + use<> {
        Freezable {
            program,
            shared: self.0.clone(),
            known: false,
            step: Step::Yield,
            done_ns: 0,
            stopped: None,
        }
    }

    /// What freezes them for all of these times, which come one after the other: from, to, in ns.
    pub fn device(&self, times: &[(u64, u64)]) -> impl Device + use<> {
        let mut changes: Vec<(u64, bool)> =
            times.iter().flat_map(|&(from_ns, to_ns)| [(from_ns, true), (to_ns, false)]).collect();
        changes.reverse();
        Cold { shared: self.0.clone(), changes }
    }
}

struct Cold {
    shared: Rc<Shared>,
    /// The next one last.
    changes: Vec<(u64, bool)>,
}

impl Device for Cold {
    fn interrupt(&mut self, interrupt: &mut Interrupt<'_>) -> Option<u64> {
        while let Some((_, frozen)) = self.changes.pop_if(|(at_ns, _)| *at_ns <= interrupt.now_ns) {
            self.shared.frozen.set(frozen);
            match frozen {
                true => self.shared.threads.borrow().iter().for_each(|&task| interrupt.poke(task)),
                false => self.shared.waiting.take().into_iter().for_each(|task| interrupt.wake(task)),
            }
        }
        self.changes.last().map(|(at_ns, _)| *at_ns)
    }
}

/// A program that stands still while it is frozen.
struct Freezable {
    program: Box<dyn Program>,
    shared: Rc<Shared>,
    known: bool,
    /// What the program asked for last, and how much of that was done before it was frozen.
    step: Step,
    done_ns: u64,
    /// How that step ended, if the program has not been told since it is frozen.
    stopped: Option<Resumed>,
}

impl Freezable {
    /// What is left of the computation that was cut short; nothing if the step was another, or is done.
    fn rest(&mut self, resumed: Resumed) -> Option<Step> {
        let Step::Compute(asked_ns) = self.step else { return None };
        if resumed.why != Why::Poked || resumed.done_ns >= asked_ns {
            return None;
        }
        let left_ns = if asked_ns == u64::MAX { asked_ns } else { asked_ns - resumed.done_ns };
        self.done_ns += resumed.done_ns;
        self.step = Step::Compute(left_ns);
        Some(self.step)
    }
}

impl Program for Freezable {
    fn next(&mut self, resumed: Resumed, world: &mut World<'_>) -> Step {
        if !std::mem::replace(&mut self.known, true) {
            self.shared.threads.borrow_mut().push(world.task);
        }
        if self.shared.frozen.get() {
            self.stopped.get_or_insert(resumed);
            self.shared.waiting.borrow_mut().push(world.task);
            return Step::WaitFor(Reason::Unknown, None);
        }
        let resumed = match self.stopped.take() {
            None => resumed,
            Some(stopped) => match self.rest(stopped) {
                Some(step) => return step,
                None => stopped,
            },
        };
        let done_ns = resumed.done_ns + std::mem::take(&mut self.done_ns);
        self.step = self.program.next(Resumed { done_ns, ..resumed }, world);
        self.step
    }
}
