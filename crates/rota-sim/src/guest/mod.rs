//! What is inside a virtual machine: a guest kernel that schedules threads on vCPUs, each of which is a thread of the
//! host. The guest does not know when a vCPU runs: what holds a lock may be on one that does not, and so may the next
//! in line (lock-holder and lock-waiter preemption).
//!
//! The guest's scheduler is a plain one, in `inside`: each vCPU runs the threads on its queue in turn, a slice each.
//! A thread that wakes up goes to its own vCPU if that idles, else to another that does, else to its own. A vCPU that
//! would idle takes a thread from another's queue. What costs an exit to the monitor, to sender and receiver, is an
//! interrupt from another vCPU that has woken a thread up, or from a device.
//!
//! What [helps](Help) such a guest when its vCPUs are stopped is in `upcall`. A guest may have a [scheduler of its
//! own](GuestScheduler) instead: then its kernel is a simulation within the host's, in `nested`.

mod host;
mod inside;
mod nested;
mod resident;
mod slots;
mod upcall;

use std::cell::RefCell;
use std::rc::Rc;

use crate::ids::DeviceId;
use crate::policy::Policy;
use crate::program::{Device, Effect, Interrupt, Program, Resumed, Site, Step, Virtual, World};
use crate::rng::Rng;
use inside::Inside;
use nested::Nested;
pub use slots::{Slots, Timetable};

/// For how long a thread of a guest runs if others wait: as CFS' minimum (Huang et al., HPDC 2021, section 2.2: 3 ms
/// regularly).
pub const SLICE_NS: u64 = 3_000_000;

/// A pause loop ends with an exit after so long: 4,096 cycles, Xen's and KVM's default, at 2 GHz.
const PAUSES_NS: u64 = 2_048;

/// What helps a guest whose vCPUs are stopped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Help {
    /// Nothing.
    #[default]
    None,
    /// The processor: a vCPU whose thread waits busily exits and lets others go first (pause-loop exits).
    PauseExits,
    /// The host: it tells a vCPU before it stops it ([`crate::Machine::upcall`]), and the guest moves the thread.
    Upcalls,
}

/// The scheduler of a guest's kernel, with the agent that tells it what the host publishes.
pub trait GuestScheduler: Policy {
    /// The slots of the guest's vCPUs from now on; none if no table is in force.
    fn publish(&mut self, now_ns: u64, timetable: Option<&Timetable>);

    /// How much of each vCPU's time the host has given to others so far, in ns. Told once a second.
    fn stolen(&mut self, now_ns: u64, stolen_ns: &[u64]);

    /// Why the guest's kernel has ended it, if it has.
    fn failed(&self) -> Option<String>;
}

/// A guest's kernel.
trait Kernel {
    fn add(&mut self, program: Box<dyn Program>, bound: bool);
    fn nr_vcpus(&self) -> usize;
    fn publish(&mut self, timetable: Option<Timetable>);
    /// A vCPU has the CPU: it goes on, and says for how long at most.
    fn enter(&mut self, vcpu: usize, resumed: Resumed, world: &mut World<'_>) -> Step;
    /// As [`Virtual`] has them.
    fn runs(&mut self, vcpu: usize, now_ns: u64);
    fn stops(&mut self, vcpu: usize, now_ns: u64);
    fn upcall(&mut self, vcpu: usize) -> bool;
    /// A device interrupts the guest, and has these effects.
    fn interrupt(&mut self, now_ns: u64, effects: &mut Vec<Effect>, outside: &mut Vec<Effect>);
}

/// A guest.
#[derive(Clone)]
pub struct Guest(Rc<RefCell<dyn Kernel>>);

impl Guest {
    /// One that has so many vCPUs and no thread yet; its threads' chance comes of `rng`.
    pub fn new(vcpus: u32, rng: Rng) -> Guest {
        Guest::with_help(vcpus, rng, Help::None)
    }

    /// The same with something that helps it.
    pub fn with_help(vcpus: u32, rng: Rng, help: Help) -> Guest {
        Guest(Rc::new(RefCell::new(Inside::new(vcpus, rng, help))))
    }

    /// One with a scheduler of its own. The simulation panics if the guest's kernel ends that.
    pub fn with_scheduler(vcpus: u32, rng: Rng, scheduler: impl GuestScheduler + 'static) -> Guest {
        Guest(Rc::new(RefCell::new(Nested::new(vcpus, rng, scheduler))))
    }

    /// Tells it when its vCPUs have their slots from now on; nothing to a guest that has no use for it.
    pub fn publish(&self, timetable: Option<Timetable>) {
        self.0.borrow_mut().publish(timetable);
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
        let count = self.0.borrow().nr_vcpus();
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

    fn vcpu(&mut self) -> Option<&mut dyn Virtual> {
        Some(self)
    }
}

impl Virtual for Vcpu {
    fn runs(&mut self, now_ns: u64) {
        self.guest.0.borrow_mut().runs(self.number, now_ns);
    }

    fn stops(&mut self, now_ns: u64) {
        self.guest.0.borrow_mut().stops(self.number, now_ns);
    }

    fn upcall(&mut self) -> bool {
        self.guest.0.borrow_mut().upcall(self.number)
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
        self.guest.0.borrow_mut().interrupt(now_ns, &mut self.effects, interrupt.effects);
        next_ns
    }
}
