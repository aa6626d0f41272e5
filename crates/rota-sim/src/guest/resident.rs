//! The threads of a guest whose kernel is a simulation: what they do to the guest stays there, and the rest is led out.

use std::cell::RefCell;
use std::rc::Rc;

use crate::ids::{TaskId, UnitId};
use crate::program::{Effect, Program, Resumed, Step, World};
use crate::rng::Rng;
use crate::task::{CgroupId, TaskSpec};

/// What the threads of a guest have in common.
#[derive(Clone)]
pub struct Home(Rc<RefCell<Common>>);

struct Common {
    /// Gives each thread its chance.
    rng: Rng,
    threads: u32,
    /// What threads did to what is outside.
    outbox: Vec<Effect>,
}

impl Home {
    pub fn new(rng: Rng) -> Home {
        Home(Rc::new(RefCell::new(Common { rng, threads: 0, outbox: Vec::new() })))
    }

    /// A thread of the guest.
    pub fn spec(&self, program: Box<dyn Program>) -> TaskSpec {
        let common = &mut *self.0.borrow_mut();
        let rng = Rng::new(common.rng.draw(), u64::from(common.threads));
        common.threads += 1;
        let resident = Resident { program, rng, home: self.clone(), effects: Vec::new() };
        TaskSpec::new(common.threads as i32, UnitId(0), CgroupId::ROOT, resident)
    }

    /// What the guest's threads did to what is outside, counted for the vCPU on which they did it.
    pub fn lead_out(&self, vcpu: TaskId, outside: &mut Vec<Effect>) {
        outside.extend(self.0.borrow_mut().outbox.drain(..).map(|effect| match effect {
            Effect::Work(_, amount) => Effect::Work(vcpu, amount),
            Effect::WorkingSet(_, kib) => Effect::WorkingSet(vcpu, kib),
            Effect::Latency(_, ns) => Effect::Latency(vcpu, ns),
            other => other,
        }));
    }
}

/// A thread's program.
struct Resident {
    program: Box<dyn Program>,
    rng: Rng,
    home: Home,
    effects: Vec<Effect>,
}

impl Program for Resident {
    fn next(&mut self, resumed: Resumed, world: &mut World<'_>) -> Step {
        let World { now_ns, task, costs, .. } = *world;
        let mut inner = World { now_ns, task, rng: &mut self.rng, costs, effects: &mut self.effects };
        let step = self.program.next(resumed, &mut inner);
        for effect in self.effects.drain(..) {
            match effect {
                Effect::Work(..) | Effect::WorkingSet(..) | Effect::Latency(..) | Effect::Ask(..) => {
                    self.home.0.borrow_mut().outbox.push(effect);
                }
                Effect::Spawn(spec) => {
                    world.effects.push(Effect::Spawn(Box::new(self.home.spec(spec.program))));
                }
                Effect::Wake(_) | Effect::Poke(_) | Effect::Hold(..) | Effect::ReadRcu(..) => {
                    world.effects.push(effect)
                }
            }
        }
        step
    }
}
