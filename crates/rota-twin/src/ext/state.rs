//! What the model of sched_ext remembers: run queues, dispatch queues, tasks, and how it ended.

use rota_sim::{CpuId, TaskId};

use crate::ext::dsq::{Dsq, Places};
use crate::ext::idle::IdleMasks;

/// Constants of the kernel's interface (`kernel/sched/ext_internal.h`).
pub mod flags {
    /// The task was blocked.
    pub const ENQ_WAKEUP: u64 = 1;
    /// Before all others.
    pub const ENQ_HEAD: u64 = 1 << 4;
    /// Before all others, and instead of what runs.
    pub const ENQ_PREEMPT: u64 = 1 << 32;
    /// Into a CPU's own queue only to run there at once.
    pub const ENQ_IMMED: u64 = 1 << 33;
    /// The task was in its CPU's own queue.
    pub const ENQ_REENQ: u64 = 1 << 40;
    /// Nothing else is there for the CPU to run.
    pub const ENQ_LAST: u64 = 1 << 41;
    /// Only if the CPU idles.
    pub const KICK_IDLE: u64 = 1;
    /// What runs there ends its slice.
    pub const KICK_PREEMPT: u64 = 2;
    /// Only a CPU of a core that idles.
    pub const PICK_IDLE_CORE: u64 = 1;
    /// A task that has used its slice up is queued even if nothing else is there.
    pub const OPS_ENQ_LAST: u64 = 2;
    /// Tasks that are held on their CPU are queued as others are.
    pub const OPS_ENQ_MIGRATION_DISABLED: u64 = 16;
    /// Queues that the scheduler does not make.
    pub const DSQ_BUILTIN: u64 = 1 << 63;
    /// Of all CPUs.
    pub const DSQ_GLOBAL: u64 = DSQ_BUILTIN | 1;
    /// The CPU's own.
    pub const DSQ_LOCAL: u64 = DSQ_BUILTIN | 2;
    /// The own queue of the CPU whose number is added.
    pub const DSQ_LOCAL_ON: u64 = DSQ_BUILTIN | 1 << 62;
    /// What a task gets whose scheduler has not said how long it may run, in ns.
    pub const SLICE_DEFAULT: u64 = 20_000_000;
}

/// Where a task waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In no queue: it runs, or sleeps.
    Nowhere,
    /// In its CPU's own queue.
    Local,
    /// In a queue that every CPU serves, or one that the scheduler made.
    Dsq(u32),
    /// The scheduler has it and has not said where it goes.
    Custody,
}

/// A task, as sched_ext knows it.
#[derive(Clone, Debug)]
pub struct ExtTask {
    pub slice_ns: u64,
    /// On a run queue, running or not.
    pub queued: bool,
    pub place: Place,
    /// It was put into its CPU's own queue to run at once, and not queued anew since: `SCX_TASK_IMMED`.
    pub immediate: bool,
    /// Waits to run, for the watchdog.
    pub waits: bool,
    pub runnable_at_ns: u64,
    /// It has run since.
    pub runnable_at_is_old: bool,
    /// Its CPU time when its slice was charged last.
    pub charged_ns: u64,
    pub vtime: u64,
    /// Where the scheduler has sent it while it was being woken or queued, and how.
    pub sent_to: Option<(u64, u64)>,
}

impl ExtTask {
    pub fn new(now_ns: u64) -> ExtTask {
        ExtTask {
            slice_ns: flags::SLICE_DEFAULT,
            queued: false,
            place: Place::Nowhere,
            immediate: false,
            waits: false,
            runnable_at_ns: now_ns,
            runnable_at_is_old: true,
            charged_ns: 0,
            vtime: 0,
            sent_to: None,
        }
    }
}

/// What one CPU was asked to be kicked for, by one other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Kick {
    pub cpu: CpuId,
    pub if_idle: bool,
    pub preempt: bool,
}

/// A CPU's part.
#[derive(Debug, Default)]
pub struct Rq {
    pub local: Dsq,
    /// Tasks without a scheduler wait here once it has ended.
    pub bypass: Dsq,
    /// It looks for a task.
    pub in_balance: bool,
    /// Kicks that wait for the end of what this CPU is doing.
    pub kicks: Vec<Kick>,
    /// Tasks to be put into other CPUs' own queues at that end, and how.
    pub deferred: Vec<(TaskId, CpuId, u64)>,
    /// What waits in this CPU's own queue is to be queued anew at that end.
    pub queues_anew: bool,
}

impl Rq {
    /// Whether something was put off until the end of what this CPU is doing.
    pub fn is_behind(&self) -> bool {
        self.queues_anew || !self.kicks.is_empty() || !self.deferred.is_empty()
    }
}

/// Why the scheduler is no longer in charge: `struct scx_exit_info`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exit {
    /// `enum scx_exit_kind`.
    pub kind: u32,
    /// The exit code.
    pub code: i64,
    /// In short.
    pub reason: &'static str,
    /// At length.
    pub message: String,
}

impl std::fmt::Display for Exit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.reason, self.message)
    }
}

impl Exit {
    /// It has ended by itself: `SCX_EXIT_UNREG_BPF`.
    pub const UNREGISTERED_BY_BPF: u32 = 65;
    /// Unregistered by the kernel, on hotplug: `SCX_EXIT_UNREG_KERN`.
    pub const UNREGISTERED_BY_KERNEL: u32 = 66;
    /// A mistake of the scheduler: `SCX_EXIT_ERROR`.
    pub const ERROR: u32 = 1024;
    /// It said so itself: `SCX_EXIT_ERROR_BPF`.
    pub const ERROR_BPF: u32 = 1025;
    /// The watchdog: `SCX_EXIT_ERROR_STALL`.
    pub const STALL: u32 = 1026;
}

/// Everything but the scheduler itself.
pub struct ExtState {
    pub rqs: Vec<Rq>,
    pub tasks: Vec<ExtTask>,
    /// The global queue first.
    pub dsqs: Vec<Dsq>,
    pub dsq_ids: Vec<u64>,
    pub by_id: Places,
    pub idle: IdleMasks,
    pub ops_flags: u64,
    /// Once it is no longer in charge.
    pub exit: Option<Exit>,
    /// The kernel runs the tasks itself.
    pub bypassing: bool,
    /// The task that is being woken or queued, which may be sent to a queue at once.
    pub sending: Option<TaskId>,
    /// Inserts of this run of dispatch: task, queue, flags.
    pub buffer: Vec<(TaskId, u64, u64)>,
    /// Tasks that this run of dispatch has moved.
    pub dispatched: u32,
}

/// The global queue's place among [`ExtState::dsqs`].
pub const GLOBAL: u32 = 0;

impl ExtState {
    pub fn fail(&mut self, kind: u32, message: impl Into<String>) {
        self.end(kind, 0, message);
    }

    /// The same with a code of the scheduler's.
    pub fn end(&mut self, kind: u32, code: i64, message: impl Into<String>) {
        let reason = match kind {
            Exit::UNREGISTERED_BY_BPF => "unregistered from BPF",
            Exit::UNREGISTERED_BY_KERNEL => "unregistered from the main kernel",
            Exit::ERROR_BPF => "scx_bpf_error",
            Exit::STALL => "runnable task stall",
            _ => "runtime error",
        };
        self.exit.get_or_insert(Exit { kind, code, reason, message: message.into() });
    }

    pub fn rq(&mut self, cpu: CpuId) -> &mut Rq {
        &mut self.rqs[cpu.index()]
    }

    pub fn task(&mut self, task: TaskId) -> &mut ExtTask {
        &mut self.tasks[task.index()]
    }
}
