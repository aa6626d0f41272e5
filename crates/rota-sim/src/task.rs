//! Tasks: who they are, where they are, and how far they have come.

use std::rc::Rc;

use crate::caches::Memory;
use crate::event::Slot;
use crate::ids::{CpuId, UnitId};
use crate::mask::CpuMask;
use crate::program::{Program, Reason, Virtual, Why};
use crate::rng::Rng;

/// A cgroup's place in [`crate::Machine::cgroups`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CgroupId(pub u32);

impl CgroupId {
    /// The root of all.
    pub const ROOT: CgroupId = CgroupId(0);

    /// The number as an index.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// A cgroup. Rota looks at which one a task is in; the kernel's own scheduler at the rest too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cgroup {
    /// None above the root.
    pub parent: Option<CgroupId>,
    /// As `cpu.weight`: 1 ..= 10,000.
    pub weight: u32,
    /// As `cpu.max`: quota and period in ns.
    pub max: Option<(u64, u64)>,
}

/// What is known of a task from the start.
pub struct TaskSpec {
    /// Whose it is, for the observer.
    pub unit: UnitId,
    /// Whose it is, for the scheduler.
    pub cgroup: CgroupId,
    /// Its thread id.
    pub pid: i32,
    /// Where it may run; everywhere if absent.
    pub affinity: Option<Rc<CpuMask>>,
    /// A thread of the kernel.
    pub kernel_thread: bool,
    /// A real-time task of this priority, 1 ..= 99; above every ordinary task.
    pub realtime: Option<u8>,
    /// Among its siblings, 100 by default.
    pub weight: u32,
    /// How much memory it works on, in KiB: see [`crate::Costs::refill_ns_per_kib`].
    pub working_set_kib: u64,
    /// How it refers to what it works on, if caches are to be simulated for it; nothing is refilled at once then.
    pub memory: Option<Memory>,
    /// What it does.
    pub program: Box<dyn Program>,
}

impl TaskSpec {
    /// An ordinary thread that may run everywhere.
    pub fn new(pid: i32, unit: UnitId, cgroup: CgroupId, program: impl Into<Box<dyn Program>>) -> TaskSpec {
        TaskSpec {
            unit,
            cgroup,
            pid,
            affinity: None,
            kernel_thread: false,
            realtime: None,
            weight: 100,
            working_set_kib: 0,
            memory: None,
            program: program.into(),
        }
    }
}

/// What a task is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It sleeps or waits.
    Blocked,
    /// It would run.
    Queued,
    /// It runs on its CPU.
    Running,
    /// It is over.
    Dead,
}

/// A task.
pub struct Task {
    /// Whose it is, for the observer.
    pub unit: UnitId,
    /// Whose it is, for the scheduler.
    pub cgroup: CgroupId,
    /// Its thread id.
    pub pid: i32,
    /// Where it may run.
    pub affinity: Rc<CpuMask>,
    /// How many CPUs that is.
    pub nr_cpus_allowed: u32,
    /// It may not leave its CPU for a moment.
    pub held: bool,
    /// It is inside of a read section of RCU, which all of the kernel waits for.
    pub reads_rcu: bool,
    /// Where the policy itself keeps it, if it does, as far as it may run there at all.
    pub(crate) kept_to: Option<Rc<CpuMask>>,
    /// A thread of the kernel.
    pub kernel_thread: bool,
    /// Its priority, if it is a real-time task.
    pub realtime: Option<u8>,
    /// Among its siblings.
    pub weight: u32,
    /// How often something of all this was changed.
    pub changes: u32,
    /// What it is doing.
    pub state: State,
    /// Whose run queue it is on, or was on last.
    pub cpu: CpuId,
    /// When it was last to wait there: as it woke, or stopped.
    pub(crate) queued_ns: u64,
    /// CPU time received, costs included, in ns; up to date when its CPU was settled last.
    pub used_ns: u64,
    /// The part of it in which it waited busily.
    pub spun_ns: u64,
    pub(crate) working_set_kib: u64,
    /// Its number in the machine's caches.
    pub(crate) cached: Option<u32>,
    pub(crate) program: Option<Box<dyn Program>>,
    /// It is a vCPU whose guest is told what its host does.
    pub(crate) is_vcpu: bool,
    pub(crate) rng: Rng,
    /// What the present step asked for, and what is left of it.
    pub(crate) asked_ns: u64,
    pub(crate) remaining_ns: u64,
    /// What is to be paid before anything of the step is done.
    pub(crate) overhead_ns: u64,
    /// How the step ended, if the next one is not known yet.
    pub(crate) ended: Option<Why>,
    /// The present step waits.
    pub(crate) spins: bool,
    pub(crate) ran_on: Option<CpuId>,
    pub(crate) alarm: Slot,
    /// It waits to be woken; else, if blocked, it sleeps.
    pub(crate) waits: bool,
    /// What it blocks for: from when it begins to block until it is woken.
    pub blocks_for: Option<Reason>,
}

impl Task {
    /// Whether it waits busily: it runs, and does nothing useful.
    pub fn spins(&self) -> bool {
        self.spins && self.overhead_ns == 0
    }

    /// The vCPU that it is, if its guest is to be told.
    pub(crate) fn vcpu(&mut self) -> Option<&mut dyn Virtual> {
        if self.is_vcpu { self.program.as_mut()?.vcpu() } else { None }
    }

    /// Whether it may run on `cpu` now.
    pub fn may_run_on(&self, cpu: CpuId) -> bool {
        if self.held { cpu == self.cpu } else { self.affinity.has(cpu) }
    }

    /// Whether it runs no more.
    pub fn is_over(&self) -> bool {
        self.program.is_none()
    }

    /// Asks for so much computing, or waiting.
    pub(crate) fn ask(&mut self, ns: u64, spins: bool) {
        (self.asked_ns, self.remaining_ns, self.spins) = (ns, ns, spins);
    }

    /// Whether it may be moved to `cpu`, should that not be its own, and the policy does not keep it elsewhere.
    pub fn may_move_to(&self, cpu: CpuId) -> bool {
        !self.held && self.affinity.has(cpu) && self.kept_to.as_ref().is_none_or(|kept| kept.has(cpu))
    }
}
