//! What a thread does: a small state machine, asked for its next step whenever the last one is over.

use crate::costs::Costs;
use crate::ids::{DeviceId, TaskId};
use crate::rng::Rng;
use crate::task::TaskSpec;

/// A thread's program.
///
/// It is asked when its thread runs, so what it does here (waking others, say) happens at that time on that CPU.
/// Several programs share what they synchronise on by `Rc<RefCell<_>>`; nothing runs between the look at it and the
/// step that is returned, so a wake-up cannot be lost in between.
pub trait Program {
    /// The next step. `resumed` says how the last one ended.
    fn next(&mut self, resumed: Resumed, world: &mut World<'_>) -> Step;

    /// The vCPU that the thread is, if it is one whose guest is told of what its host does.
    fn vcpu(&mut self) -> Option<&mut dyn Virtual> {
        None
    }
}

/// A vCPU as its host sees it. What a guest is told here is what hypervisors write into memory that they share with it:
/// Xen's run state area, KVM's steal time with its flag for who is preempted.
pub trait Virtual {
    /// It has a CPU from now on.
    fn runs(&mut self, now_ns: u64);

    /// It has none from now on, and would run.
    fn stops(&mut self, now_ns: u64);

    /// It is about to be stopped. True if its guest answers by itself giving the CPU up, which takes it a while; its
    /// present step is over then.
    fn upcall(&mut self) -> bool;
}

impl<P: Program + 'static> From<P> for Box<dyn Program> {
    fn from(program: P) -> Box<dyn Program> {
        Box::new(program)
    }
}

/// What a thread does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Needs the CPU for so many ns, or until poked. `u64::MAX`: until poked.
    Compute(u64),
    /// The same, but its timer pokes it at `until_ns`, which takes an interrupt.
    ComputeUntil {
        /// How long, in ns.
        ns: u64,
        /// When its timer comes.
        until_ns: u64,
    },
    /// Waits busily: does nothing useful and refers to nothing beyond its own cache, but needs the CPU for so many ns,
    /// or until poked. `u64::MAX`: until poked.
    Spin(u64),
    /// Sleeps until then.
    SleepUntil(u64),
    /// Waits for another thread until woken, or until then if that comes first.
    Wait(Option<u64>),
    /// The same, for something else.
    WaitFor(Reason, Option<u64>),
    /// Lets others run first.
    Yield,
    /// Is over.
    Exit,
}

/// What a blocked thread waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Other threads of its program: it synchronises.
    Others,
    /// A device or the network.
    Devices,
    /// A time.
    Time,
    /// An interrupt: it is a vCPU whose guest idles.
    Interrupt,
    /// Nobody knows.
    Unknown,
}

/// How a step ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// There was none before.
    Started,
    /// It has computed, or spun, for as long as it asked for.
    Computed,
    /// It was poked while it computed or spun.
    Poked,
    /// It has slept for as long as it asked for.
    Slept,
    /// It was woken.
    Woken,
    /// Nobody woke it in time; or it computed when its timer came.
    TimedOut,
    /// It has yielded.
    Yielded,
}

/// Where a thread stands when it is asked for its next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resumed {
    /// How the last step ended.
    pub why: Why,
    /// How much of a computation was done, in ns.
    pub done_ns: u64,
}

/// Something that a program or a device does to the world.
pub(crate) enum Effect {
    Wake(TaskId),
    Poke(TaskId),
    Ask(DeviceId, u64),
    Spawn(Box<TaskSpec>),
    Hold(TaskId, bool),
    ReadRcu(TaskId, bool),
    Work(TaskId, u64),
    Latency(TaskId, u64),
    WorkingSet(TaskId, u32),
}

/// What a program sees of the world, and does to it.
pub struct World<'a> {
    /// CLOCK_MONOTONIC.
    pub now_ns: u64,
    /// The program's own thread.
    pub task: TaskId,
    /// The thread's own chance.
    pub rng: &'a mut Rng,
    /// What things cost, for programs that stand for what the model does not know itself.
    pub costs: &'a Costs,
    pub(crate) effects: &'a mut Vec<Effect>,
}

impl World<'_> {
    /// Wakes a thread that waits. Does nothing to any other.
    pub fn wake(&mut self, task: TaskId) {
        self.effects.push(Effect::Wake(task));
    }

    /// Ends the computation of another thread: at once if it runs, else as soon as it runs again. Does nothing to one
    /// that sleeps or waits.
    pub fn poke(&mut self, task: TaskId) {
        self.effects.push(Effect::Poke(task));
    }

    /// Has a device interrupt at `at_ns`, unless it does so before.
    pub fn ask(&mut self, device: DeviceId, at_ns: u64) {
        self.effects.push(Effect::Ask(device, at_ns));
    }

    /// Starts another thread.
    pub fn spawn(&mut self, spec: TaskSpec) {
        self.effects.push(Effect::Spawn(Box::new(spec)));
    }

    /// From here on the thread may not leave its CPU, as in the kernel's `migrate_disable`; or may again.
    pub fn hold(&mut self, held: bool) {
        self.effects.push(Effect::Hold(self.task, held));
    }

    /// So much useful work is done, in the program's own unit.
    pub fn work(&mut self, amount: u64) {
        self.effects.push(Effect::Work(self.task, amount));
    }

    /// Something took this long, by the program's own account: a request, a turn.
    pub fn latency(&mut self, ns: u64) {
        self.effects.push(Effect::Latency(self.task, ns));
    }
}

/// Something outside of the CPUs that interrupts them: a network card with all that is behind it, a disk.
pub trait Device {
    /// Its interrupt, on its CPU. Returns when the next one comes, should nobody [ask](World::ask) for an earlier one.
    fn interrupt(&mut self, interrupt: &mut Interrupt<'_>) -> Option<u64>;
}

impl Device for Box<dyn Device> {
    fn interrupt(&mut self, interrupt: &mut Interrupt<'_>) -> Option<u64> {
        (**self).interrupt(interrupt)
    }
}

/// What a device sees of the world, and does to it.
pub struct Interrupt<'a> {
    /// CLOCK_MONOTONIC.
    pub now_ns: u64,
    /// The device's own chance.
    pub rng: &'a mut Rng,
    pub(crate) effects: &'a mut Vec<Effect>,
}

impl Interrupt<'_> {
    /// As [`World::wake`].
    pub fn wake(&mut self, task: TaskId) {
        self.effects.push(Effect::Wake(task));
    }

    /// As [`World::poke`].
    pub fn poke(&mut self, task: TaskId) {
        self.effects.push(Effect::Poke(task));
    }
}

/// What workloads need beside threads.
pub trait Site {
    /// Attaches a device, whose first interrupt comes at once.
    fn attach(&mut self, device: Box<dyn Device>) -> DeviceId;
}
