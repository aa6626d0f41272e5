//! What is inside a virtual machine: a guest kernel that schedules threads on vCPUs, each of which is a thread of the
//! host. The guest does not know when a vCPU runs: what holds a lock may be on one that does not, and so may the next
//! in line (lock-holder and lock-waiter preemption).
//!
//! The guest's scheduler is a plain one: each vCPU runs the threads on its queue in turn, for a slice each; a thread
//! that wakes up goes to its own vCPU if that idles, else to another that does, else to its own; a vCPU that would idle
//! takes a thread from another's queue. What costs an exit to the monitor, to sender and receiver, is an interrupt from
//! another vCPU that has woken a thread up, or from a device.

mod inside;

use std::cell::RefCell;
use std::rc::Rc;

use crate::ids::DeviceId;
use crate::program::{Device, Effect, Interrupt, Program, Resumed, Site, Step, World};
use crate::rng::Rng;
use inside::Inside;

/// For how long a thread of a guest runs if others wait: as CFS' minimum (Huang et al., HPDC 2021, section 2.2: 3 ms
/// regularly).
pub const SLICE_NS: u64 = 3_000_000;

/// A guest.
#[derive(Clone)]
pub struct Guest(Rc<RefCell<Inside>>);

impl Guest {
    /// One that has so many vCPUs and no thread yet; its threads' chance comes of `rng`.
    pub fn new(vcpus: u32, rng: Rng) -> Guest {
        Guest(Rc::new(RefCell::new(Inside::new(vcpus, rng))))
    }

    /// A thread of it from the start.
    pub fn thread(&self, program: impl Into<Box<dyn Program>>) {
        self.0.borrow_mut().add(program.into(), false);
    }

    /// One that is bound to the vCPU that it begins on: the next one in turn.
    pub fn bound_thread(&self, program: impl Into<Box<dyn Program>>) {
        self.0.borrow_mut().add(program.into(), true);
    }

    /// Its vCPUs, as programs of the host's threads.
    pub fn vcpus(&self) -> Vec<Box<dyn Program>> {
        let count = self.0.borrow().vcpus();
        (0..count).map(|number| Box::new(Vcpu { guest: self.clone(), number }) as Box<dyn Program>).collect()
    }

    /// Where its devices are attached: outside, but they interrupt the guest.
    pub fn site<'s>(&self, outside: &'s mut dyn Site) -> impl Site + use<'s> {
        Indoors { guest: self.clone(), outside }
    }
}

/// A vCPU.
struct Vcpu {
    guest: Guest,
    number: usize,
}

impl Program for Vcpu {
    fn next(&mut self, resumed: Resumed, world: &mut World<'_>) -> Step {
        self.guest.0.borrow_mut().enter(self.number, resumed, world)
    }
}

struct Indoors<'s> {
    guest: Guest,
    outside: &'s mut dyn Site,
}

impl Site for Indoors<'_> {
    fn attach(&mut self, device: Box<dyn Device>) -> DeviceId {
        self.outside.attach(Box::new(Passed { guest: self.guest.clone(), device, effects: Vec::new() }))
    }
}

/// A device whose interrupts go to a guest.
struct Passed {
    guest: Guest,
    device: Box<dyn Device>,
    effects: Vec<Effect>,
}

impl Device for Passed {
    fn interrupt(&mut self, interrupt: &mut Interrupt<'_>) -> Option<u64> {
        let Interrupt { now_ns, .. } = *interrupt;
        let mut inner = Interrupt { now_ns, rng: interrupt.rng, effects: &mut self.effects };
        let next_ns = self.device.interrupt(&mut inner);
        let mut inside = self.guest.0.borrow_mut();
        self.effects.drain(..).for_each(|effect| inside.affect(effect, None, interrupt.effects));
        next_ns
    }
}
