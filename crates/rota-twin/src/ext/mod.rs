//! sched_ext, as a model: the class whose decisions a scheduler written for the kernel makes.
//!
//! After `kernel/sched/ext.c` of Linux 7.1. What is done here at one time, the kernel does under a run queue's lock;
//! the order of the scheduler's operations is the kernel's. Left out: core scheduling, cgroup and sub-schedulers'
//! operations, and what races of locks can do.

mod dsq;
mod idle;
mod kernel;
mod order;
mod state;
#[cfg(test)]
mod tests;

use rota_sim::fetch::fetch;
use rota_sim::{Arrival, CpuId, CpuMask, Departure, Idle, Machine, Next, Policy, State, TaskId, Timer};

use idle::IdleMasks;
pub use kernel::{DsqIter, Kernel};
pub use order::{Order, PAIRS, PAIRS_ON_CPUS, Pair};
pub use state::{Exit, flags};
use state::{ExtState, ExtTask, GLOBAL, Place, Rq};

/// A scheduler: the operations of the kernel's `struct sched_ext_ops` that are used.
pub trait Ops {
    /// `SCX_OPS_*`.
    fn flags(&self) -> u64;
    /// Who waits longer than this ends the scheduler.
    fn timeout_ns(&self) -> u64;
    /// Before the first task. An error ends the scheduler.
    fn init(&mut self, kernel: &mut Kernel<'_>) -> Result<(), i32>;
    /// A new task. An error ends the scheduler.
    fn init_task(&mut self, kernel: &mut Kernel<'_>, task: TaskId) -> Result<(), i32>;
    /// A task that is over, or is no longer the scheduler's.
    fn exit_task(&mut self, kernel: &mut Kernel<'_>, task: TaskId);
    /// It has left the class, as it has ended.
    fn disable(&mut self, kernel: &mut Kernel<'_>, task: TaskId);
    /// Where a waking task shall be queued.
    fn select_cpu(&mut self, kernel: &mut Kernel<'_>, task: TaskId, prev: CpuId, wake_flags: u64) -> CpuId;
    /// A task shall wait.
    fn enqueue(&mut self, kernel: &mut Kernel<'_>, task: TaskId, enq_flags: u64);
    /// A CPU needs a task.
    fn dispatch(&mut self, kernel: &mut Kernel<'_>, cpu: CpuId, prev: Option<TaskId>);
    /// It runs.
    fn running(&mut self, kernel: &mut Kernel<'_>, task: TaskId);
    /// It no longer runs; whether it would.
    fn stopping(&mut self, kernel: &mut Kernel<'_>, task: TaskId, runnable: bool);
    /// A CPU begins or ends to idle.
    fn update_idle(&mut self, kernel: &mut Kernel<'_>, cpu: CpuId, idle: bool);
    /// It lets others run first. Without the operation its slice is over.
    fn yields(&mut self, kernel: &mut Kernel<'_>, task: TaskId) {
        kernel.set_slice(task, 0);
    }
    /// One of the scheduler's timers.
    fn timer(&mut self, kernel: &mut Kernel<'_>, key: u64);
    /// As [`Policy::foresee`].
    fn foresee(&self, _cpu: CpuId, _task: Option<TaskId>) {}
    /// It is over.
    fn exit(&mut self, kernel: &mut Kernel<'_>, exit: &Exit);
}

/// The class.
pub struct Ext<S> {
    /// The scheduler.
    pub ops: S,
    state: ExtState,
    watchdog: Option<Timer>,
}

/// The watchdog's timer; the scheduler's have other numbers.
const WATCHDOG: u64 = u64::MAX;
/// So many rounds of dispatch at once: `SCX_DSP_MAX_LOOPS`.
const DISPATCH_ROUNDS: u32 = 32;

/// The kernel, for an operation.
macro_rules! kernel {
    ($self:ident, $machine:expr) => {
        &mut Kernel { machine: $machine, ext: &mut $self.state }
    };
}

impl<S: Ops> Ext<S> {
    /// The class with a scheduler that is not enabled yet.
    pub fn new(ops: S) -> Ext<S> {
        let state = ExtState {
            rqs: Vec::new(),
            tasks: Vec::new(),
            dsqs: Vec::new(),
            dsq_ids: Vec::new(),
            by_id: Default::default(),
            idle: IdleMasks::new(&rota_model::Topology { places: vec![] }, 0, &CpuMask::none(0)),
            ops_flags: ops.flags(),
            exit: None,
            bypassing: false,
            sending: None,
            buffer: Vec::new(),
            dispatched: 0,
        };
        Ext { ops, state, watchdog: None }
    }

    /// Why the scheduler is no longer in charge.
    pub fn exited(&self) -> Option<&Exit> {
        self.state.exit.as_ref()
    }

    /// Runs `call` as a program that user space has the kernel run.
    pub fn call<T>(&mut self, machine: &mut Machine, call: impl FnOnce(&mut S, &mut Kernel<'_>) -> T) -> T {
        call(&mut self.ops, kernel!(self, machine))
    }

    /// How long the task that waits longest has waited, in ns.
    pub fn longest_wait_ns(&self, now_ns: u64) -> u64 {
        let waiting = self.state.tasks.iter().filter(|task| task.waits);
        waiting.map(|task| now_ns - task.runnable_at_ns).max().unwrap_or(0)
    }

    /// A task that would run and is in no queue.
    pub fn lost(&self, machine: &Machine) -> Option<TaskId> {
        let is_lost = |place: Place| matches!(place, Place::Nowhere | Place::Custody);
        let queued =
            machine.tasks().filter(|(_, task)| task.state == State::Queued && task.realtime.is_none());
        let mut queued = queued.map(|(id, _)| id);
        queued.find(|id| is_lost(self.state.tasks[id.index()].place))
    }

    /// `update_curr_scx`: what ran on `cpu` until now uses its slice up.
    fn charge(&mut self, machine: &mut Machine, cpu: CpuId, task: TaskId) {
        machine.settle(cpu);
        let used_ns = machine.task(task).used_ns;
        let task = self.state.task(task);
        let ran_ns = used_ns - std::mem::replace(&mut task.charged_ns, used_ns);
        if task.slice_ns != u64::MAX {
            task.slice_ns = task.slice_ns.saturating_sub(ran_ns);
        }
    }

    /// `set_task_runnable`.
    fn begins_to_wait(&mut self, machine: &Machine, task: TaskId) {
        let task = self.state.task(task);
        task.waits = true;
        if std::mem::take(&mut task.runnable_at_is_old) {
            task.runnable_at_ns = machine.now_ns();
        }
    }

    /// `do_enqueue_task`: hands a task to the scheduler, or to whoever stands for it.
    fn hand_over(&mut self, machine: &mut Machine, task: TaskId, enq_flags: u64) {
        let cpu = machine.task(task).cpu;
        self.state.task(task).immediate = false;
        if self.state.bypassing || !machine.cpu(cpu).online {
            self.state.task(task).slice_ns = flags::SLICE_DEFAULT;
            self.state.task(task).sent_to = None;
            self.state.task(task).place = Place::Local;
            self.state.rq(cpu).bypass.push(task, false);
            return;
        }
        let held = machine.task(task).held;
        if self.state.task(task).sent_to.is_none()
            && held
            && self.state.ops_flags & flags::OPS_ENQ_MIGRATION_DISABLED == 0
        {
            self.state.task(task).slice_ns = flags::SLICE_DEFAULT;
            return (kernel!(self, machine)).put_local(task, enq_flags);
        }
        if self.state.task(task).sent_to.is_none() {
            self.state.sending = Some(task);
            self.ops.enqueue(kernel!(self, machine), task, enq_flags);
            self.state.sending = None;
        }
        match self.state.task(task).sent_to.take() {
            Some((dsq, sent_flags)) => self.send_now(machine, task, dsq, sent_flags | enq_flags),
            None => self.state.task(task).place = Place::Custody,
        }
    }

    /// `direct_dispatch`: another CPU's own queue has to wait for the end of what this CPU does.
    fn send_now(&mut self, machine: &mut Machine, task: TaskId, dsq: u64, enq_flags: u64) {
        let own = machine.task(task).cpu;
        let on = CpuId(dsq as u32);
        if dsq & flags::DSQ_LOCAL_ON == flags::DSQ_LOCAL_ON && on != own && on.index() < self.state.rqs.len()
        {
            self.state.rq(machine.this_cpu()).deferred.push((task, on, enq_flags));
        } else {
            (kernel!(self, machine)).send(task, dsq, enq_flags);
        }
    }

    /// `balance_one`: sees to it that the CPU has a task to run, if there is one. True if it is to go on with `prev`.
    fn balance(&mut self, machine: &mut Machine, cpu: CpuId, prev: Option<TaskId>) -> bool {
        if let Some(prev) = prev {
            self.charge(machine, cpu, prev);
            let bypassing = self.state.bypassing;
            let prev = self.state.task(prev);
            if prev.queued && prev.slice_ns > 0 && !bypassing {
                return true;
            }
        }
        if self.state.rq(cpu).local.len() > 0 {
            return false;
        }
        self.state.rq(cpu).in_balance = true;
        let keep = self.dispatch(machine, cpu, prev);
        self.state.rq(cpu).in_balance = false;
        if keep || self.state.rq(cpu).local.len() > 0 {
            return keep;
        }
        let ends = self.state.ops_flags & flags::OPS_ENQ_LAST != 0 && !self.state.bypassing;
        prev.is_some_and(|prev| self.state.task(prev).queued) && !ends
    }

    /// `scx_dispatch_sched`.
    fn dispatch(&mut self, machine: &mut Machine, cpu: CpuId, prev: Option<TaskId>) -> bool {
        if (kernel!(self, machine)).consume(cpu, GLOBAL) {
            return false;
        }
        if self.state.bypassing {
            if let Some(task) = self.state.rq(cpu).bypass.take(0) {
                self.state.rq(cpu).local.push(task, false);
            }
            return false;
        }
        for round in 0..DISPATCH_ROUNDS {
            self.state.dispatched = 0;
            self.ops.dispatch(kernel!(self, machine), cpu, prev);
            (kernel!(self, machine)).flush();
            if prev.map(|prev| self.state.task(prev)).is_some_and(|prev| prev.queued && prev.slice_ns > 0) {
                return true;
            }
            let found = self.state.rq(cpu).local.len() > 0 || (kernel!(self, machine)).consume(cpu, GLOBAL);
            if found || self.state.dispatched == 0 {
                return false;
            }
            if round + 1 == DISPATCH_ROUNDS {
                (kernel!(self, machine)).kick_cpu(cpu, 0);
            }
        }
        false
    }

    /// `scx_bypass`: from here on every task runs on its own CPU, in turn, and the scheduler is asked no more.
    fn bypass(&mut self, machine: &mut Machine) {
        self.state.bypassing = true;
        let queued: Vec<TaskId> = machine
            .tasks()
            .filter(|(_, task)| task.state == State::Queued && task.realtime.is_none())
            .map(|(id, _)| id)
            .collect();
        for task in queued {
            (kernel!(self, machine)).unqueue(task);
            self.hand_over(machine, task, 0);
        }
        for cpu in (0..machine.nr_cpus()).map(CpuId) {
            self.state.rq(cpu).kicks.clear();
            self.state.rq(cpu).deferred.clear();
            machine.resched(cpu);
        }
        let exit = self.state.exit.clone().expect("there is a reason to bypass the scheduler");
        self.ops.exit(kernel!(self, machine), &exit);
    }

    /// `scx_watchdog_workfn`.
    fn watch(&mut self, machine: &mut Machine) {
        let (now_ns, timeout_ns) = (machine.now_ns(), self.ops.timeout_ns());
        let stalled = |task: &ExtTask| task.waits && now_ns > task.runnable_at_ns + timeout_ns;
        if let Some(place) = self.state.tasks.iter().position(stalled) {
            let waited_ms = (now_ns - self.state.tasks[place].runnable_at_ns) / 1_000_000;
            let message =
                format!("task {place} failed to run for {}.{:03}s", waited_ms / 1000, waited_ms % 1000);
            self.state.fail(Exit::STALL, message);
        }
        let this_cpu = machine.this_cpu();
        if let Some(watchdog) = self.watchdog.filter(|_| self.state.exit.is_none()) {
            machine.timer_set(watchdog, this_cpu, now_ns + timeout_ns / 2);
        }
    }

    /// Whether a task of this class would run on the CPU at once (`rq_is_open`): it idles, and no higher one waits.
    fn is_open(machine: &Machine, cpu: CpuId) -> bool {
        machine.cpu(cpu).current.is_none() && machine.cpu(cpu).realtime.is_empty()
    }

    /// `reenq_local`: hands the scheduler what waits in a CPU's own queue, or only what was to run there at once.
    fn reenqueue(&mut self, machine: &mut Machine, cpu: CpuId, immediate: bool) {
        let mut place = 0;
        let mut waiting = Vec::new();
        while let Some(task) = self.state.rq(cpu).local.get(place).map(|waiting| waiting.task) {
            if immediate && !self.state.task(task).immediate {
                place += 1;
                continue;
            }
            self.state.rq(cpu).local.take(place);
            self.state.task(task).place = Place::Nowhere;
            waiting.push(task);
        }
        for task in waiting {
            self.hand_over(machine, task, flags::ENQ_REENQ);
        }
    }

    fn kick(&mut self, machine: &mut Machine, kick: state::Kick) {
        let target = machine.cpu(kick.cpu);
        let current = target.current;
        let higher = current.is_some_and(|current| machine.task(current).realtime.is_some());
        if !target.online || higher || (kick.if_idle && current.is_some()) {
            return;
        }
        if let Some(current) = current.filter(|_| kick.preempt) {
            self.state.task(current).slice_ns = 0;
        }
        machine.resched(kick.cpu);
    }

    /// What was put off until the end of what a CPU does.
    #[inline(never)]
    fn carry_out(&mut self, machine: &mut Machine, cpu: CpuId) {
        if self.state.exit.is_some() && !self.state.bypassing {
            self.bypass(machine);
        }
        if std::mem::take(&mut self.state.rq(cpu).queues_anew) && !self.state.bypassing {
            self.reenqueue(machine, cpu, false);
        }
        let rq = self.state.rq(cpu);
        if rq.deferred.is_empty() && rq.kicks.is_empty() {
            return;
        }
        for (task, on, enq_flags) in std::mem::take(&mut self.state.rq(cpu).deferred) {
            (kernel!(self, machine)).send(task, flags::DSQ_LOCAL_ON | u64::from(on.0), enq_flags);
        }
        let mut kicks = std::mem::take(&mut self.state.rq(cpu).kicks);
        kicks.sort_unstable_by_key(|kick| (kick.if_idle, kick.cpu));
        for kick in kicks.drain(..) {
            self.kick(machine, kick);
        }
        self.state.rq(cpu).kicks = kicks;
    }
}

impl<S: Ops> Policy for Ext<S> {
    fn start(&mut self, machine: &mut Machine) {
        let online = CpuMask::of(
            machine.nr_cpus(),
            (0..machine.nr_cpus()).map(CpuId).filter(|&cpu| machine.cpu(cpu).online),
        );
        self.state.rqs = (0..machine.nr_cpus()).map(|_| Rq::default()).collect();
        self.state.dsqs = vec![Default::default()];
        self.state.dsq_ids = vec![flags::DSQ_GLOBAL];
        self.state.idle = IdleMasks::new(machine.topology(), machine.nr_cpus(), &online);
        if let Err(error) = self.ops.init(kernel!(self, machine)) {
            self.state.fail(Exit::ERROR, format!("ops.init() failed ({error})"));
        }
        let this_cpu = machine.this_cpu();
        let watchdog = machine.timer_new(this_cpu, WATCHDOG);
        let first_ns = machine.now_ns() + self.ops.timeout_ns() / 2;
        machine.timer_set(watchdog, this_cpu, first_ns);
        self.watchdog = Some(watchdog);
    }

    fn task_new(&mut self, machine: &mut Machine, task: TaskId) {
        self.state.tasks.resize(task.index() + 1, ExtTask::new(machine.now_ns()));
        if self.state.bypassing {
            return;
        }
        if let Err(error) = self.ops.init_task(kernel!(self, machine), task) {
            self.state.fail(Exit::ERROR, format!("ops.init_task() failed ({error})"));
        }
    }

    fn task_dead(&mut self, machine: &mut Machine, task: TaskId) {
        if !self.state.bypassing {
            self.ops.disable(kernel!(self, machine), task);
            self.ops.exit_task(kernel!(self, machine), task);
        }
    }

    fn select_cpu(&mut self, machine: &mut Machine, task: TaskId, arrival: Arrival) -> CpuId {
        let prev = machine.task(task).cpu;
        if self.state.bypassing {
            return prev;
        }
        // Wake-up, fork: WF_TTWU and WF_FORK of kernel/sched/sched.h.
        let wake_flags = if arrival == Arrival::New { 4 } else { 8 };
        self.state.sending = Some(task);
        let cpu = self.ops.select_cpu(kernel!(self, machine), task, prev, wake_flags);
        self.state.sending = None;
        if cpu.index() < self.state.rqs.len() {
            return cpu;
        }
        self.state.fail(Exit::ERROR, format!("invalid CPU {} from ops.select_cpu()", cpu.0));
        prev
    }

    fn enqueue(&mut self, machine: &mut Machine, task: TaskId, arrival: Arrival) {
        let enq_flags = if arrival == Arrival::Woken { flags::ENQ_WAKEUP } else { 0 };
        self.begins_to_wait(machine, task);
        self.state.task(task).queued = true;
        let cpu = machine.task(task).cpu;
        if arrival == Arrival::Changed && machine.cpu(cpu).current == Some(task) {
            // It runs on: `set_next` takes it from there.
            return (kernel!(self, machine)).put_local(task, enq_flags);
        }
        self.hand_over(machine, task, enq_flags);
        if self.state.task(task).immediate && !Self::is_open(machine, cpu) {
            self.reenqueue(machine, cpu, true);
        }
    }

    fn overtaken(&mut self, machine: &mut Machine, cpu: CpuId) {
        if !self.state.bypassing {
            self.reenqueue(machine, cpu, true);
        }
    }

    fn dequeue(&mut self, machine: &mut Machine, task: TaskId, _: Departure) {
        let cpu = machine.task(task).cpu;
        let runs = machine.cpu(cpu).current == Some(task);
        self.state.task(task).waits = false;
        if runs {
            self.charge(machine, cpu, task);
        }
        if runs && !self.state.bypassing {
            self.ops.stopping(kernel!(self, machine), task, false);
        }
        self.state.task(task).queued = false;
        (kernel!(self, machine)).unqueue(task);
        self.state.task(task).sent_to = None;
    }

    fn pick(&mut self, machine: &mut Machine, cpu: CpuId) -> Option<TaskId> {
        let current = machine.cpu(cpu).current;
        let prev = current.filter(|&prev| machine.task(prev).realtime.is_none());
        let keep = self.balance(machine, cpu, prev);
        let next = if keep { prev } else { self.state.rq(cpu).local.first() }?;
        let entry = self.state.task(next);
        if entry.slice_ns == 0 {
            entry.slice_ns = flags::SLICE_DEFAULT;
        }
        Some(next)
    }

    fn put_prev(&mut self, machine: &mut Machine, cpu: CpuId, task: TaskId, next: Next) {
        self.charge(machine, cpu, task);
        if !self.state.task(task).queued {
            return;
        }
        if !self.state.bypassing {
            self.ops.stopping(kernel!(self, machine), task, true);
        }
        self.begins_to_wait(machine, task);
        if self.state.task(task).slice_ns > 0 && !self.state.bypassing {
            if self.state.task(task).immediate {
                return self.hand_over(machine, task, flags::ENQ_REENQ);
            }
            return (kernel!(self, machine)).put_local(task, flags::ENQ_HEAD);
        }
        self.hand_over(machine, task, if next == Next::Idle { flags::ENQ_LAST } else { 0 });
    }

    fn set_next(&mut self, machine: &mut Machine, cpu: CpuId, task: TaskId) {
        (kernel!(self, machine)).unqueue(task);
        self.state.task(task).charged_ns = machine.task(task).used_ns;
        if !self.state.bypassing {
            self.ops.running(kernel!(self, machine), task);
        }
        let entry = self.state.task(task);
        entry.waits = false;
        entry.runnable_at_is_old = true;
        debug_assert_eq!(machine.task(task).cpu, cpu);
    }

    fn yielded(&mut self, machine: &mut Machine, _: CpuId, task: TaskId) {
        if self.state.bypassing {
            self.state.task(task).slice_ns = 0;
        } else {
            self.ops.yields(kernel!(self, machine), task);
        }
    }

    fn tick(&mut self, machine: &mut Machine, cpu: CpuId, task: TaskId) {
        self.charge(machine, cpu, task);
        if self.state.bypassing {
            self.state.task(task).slice_ns = 0;
        }
        if self.state.task(task).slice_ns == 0 {
            machine.resched(cpu);
        }
    }

    fn idle(&mut self, machine: &mut Machine, cpu: CpuId, idle: Idle) {
        self.state.idle.update(cpu, idle != Idle::Leaves);
        if idle != Idle::Stays && !self.state.bypassing {
            self.ops.update_idle(kernel!(self, machine), cpu, idle == Idle::Enters);
        }
    }

    fn timer(&mut self, machine: &mut Machine, _: CpuId, key: u64) {
        match key {
            WATCHDOG => self.watch(machine),
            _ if self.state.bypassing => {}
            key => self.ops.timer(kernel!(self, machine), key),
        }
    }

    fn deferred(&mut self, machine: &mut Machine, cpu: CpuId) {
        // Mostly there is nothing to do, at each event.
        if self.state.exit.is_some() || self.state.rq(cpu).is_behind() {
            self.carry_out(machine, cpu);
        }
    }

    fn foresee(&self, cpu: CpuId, task: Option<TaskId>) {
        fetch(&self.state.rqs[cpu.index()]);
        if let Some(task) = task.and_then(|task| self.state.tasks.get(task.index())) {
            fetch(task);
        }
        self.ops.foresee(cpu, task);
    }

    fn hotplug(&mut self, _: &mut Machine, cpu: CpuId, online: bool) {
        let word = if online { "online" } else { "offline" };
        let message = format!("cpu {} going {word}, exiting scheduler", cpu.0);
        self.state.fail(Exit::UNREGISTERED_BY_KERNEL, message);
        self.state.idle.update(cpu, online);
    }
}
