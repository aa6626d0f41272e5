//! What threads and devices do: their steps, and what these do to others.

use rota_model::Cause;

use crate::caches::Memory;
use crate::engine::{Attached, Simulation};
use crate::ids::{CpuId, DeviceId, TaskId};
use crate::machine::Due;
use crate::observe::{Event, Observer};
use crate::policy::{Arrival, Departure, Policy};
use crate::program::{Device, Effect, Interrupt, Reason, Resumed, Step, Why, World};
use crate::rng::Rng;
use crate::task::{State, Task, TaskSpec};

/// So many steps of one program without any time passing are a mistake in the program.
const STEPS_MAX: u32 = 10_000;

/// Streams of chance below this are tasks', those from here on devices'.
const DEVICE_STREAM: u64 = 1 << 32;

impl<P: Policy, O: Observer> Simulation<P, O> {
    /// Attaches a device, all of whose interrupts come to `cpu`: the first one at `first_ns`, or once it is asked.
    pub fn attach(&mut self, device: impl Device + 'static, cpu: CpuId, first_ns: Option<u64>) -> DeviceId {
        let id = DeviceId(self.devices.len() as u32);
        let rng = Rng::new(self.machine.seed, DEVICE_STREAM + u64::from(id.0));
        let slot = self.machine.slot(Due::Device(cpu, id));
        self.devices.push(Attached { device: Box::new(device), rng, slot });
        if let Some(first_ns) = first_ns {
            self.ask(id, first_ns);
        }
        id
    }

    /// A new task, queued from now on.
    pub fn spawn(&mut self, spec: TaskSpec) -> TaskId {
        self.machine.cause = Cause::Outside;
        self.act(|simulation| simulation.fork(spec))
    }

    fn fork(&mut self, mut spec: TaskSpec) -> TaskId {
        let id = TaskId(self.machine.tasks.len() as u32);
        let affinity = spec.affinity.unwrap_or_else(|| self.machine.everywhere.clone());
        let alarm = self.machine.slot(Due::Alarm(id));
        let this_cpu = self.machine.this_cpu;
        let cpu = if affinity.has(this_cpu) { Some(this_cpu) } else { affinity.first() };
        self.machine.tasks.push(Task {
            unit: spec.unit,
            cgroup: spec.cgroup,
            pid: spec.pid,
            nr_cpus_allowed: affinity.count(),
            affinity,
            held: false,
            reads_rcu: false,
            kept_to: None,
            kernel_thread: spec.kernel_thread,
            realtime: spec.realtime,
            weight: spec.weight,
            changes: 0,
            state: State::Blocked,
            cpu: cpu.expect("a task may run somewhere"),
            queued_ns: 0,
            used_ns: 0,
            spun_ns: 0,
            working_set_kib: spec.working_set_kib,
            cached: None,
            is_vcpu: spec.program.vcpu().is_some(),
            program: Some(spec.program),
            rng: Rng::new(self.machine.seed, u64::from(id.0)),
            asked_ns: 0,
            remaining_ns: 0,
            overhead_ns: 0,
            ended: Some(Why::Started),
            spins: false,
            ran_on: None,
            alarm,
            waits: false,
            blocks_for: None,
        });
        if let Some(memory) = spec.memory {
            self.machine.set_memory(id, memory);
        }
        self.observer.observe(&self.machine, Event::Born(id));
        if spec.realtime.is_none() {
            self.policy.task_new(&mut self.machine, id);
        }
        self.activate(id, Arrival::New);
        id
    }

    /// Has a device interrupt at `at_ns`, unless it does so before.
    fn ask(&mut self, id: DeviceId, at_ns: u64) {
        let slot = self.devices[id.index()].slot;
        if self.machine.events.time_of(slot).is_none_or(|due_ns| at_ns < due_ns) {
            self.machine.events.set(slot, at_ns.max(self.machine.now_ns));
        }
    }

    pub(crate) fn device(&mut self, id: DeviceId) {
        let Attached { device, rng, .. } = &mut self.devices[id.index()];
        let now_ns = self.machine.now_ns;
        let next_ns = device.interrupt(&mut Interrupt { now_ns, rng, effects: &mut self.effects });
        if let Some(next_ns) = next_ns {
            self.ask(id, next_ns);
        }
        self.machine.cause = Cause::Outside;
        self.affect();
    }

    pub(crate) fn alarm(&mut self, id: TaskId) {
        let Task { state, waits, .. } = *self.machine.task(id);
        self.machine.cause = Cause::Timer;
        match (state, waits) {
            (State::Blocked, true) => self.wake(id, Why::TimedOut),
            (State::Blocked, false) => self.wake(id, Why::Slept),
            _ => self.cut(id, Why::TimedOut),
        }
    }

    /// Has the task's alarm come at `time_ns`, or a little later.
    fn set_alarm(&mut self, id: TaskId, time_ns: u64) {
        let late_ns = self.machine.slack_ns();
        let alarm = self.machine.tasks[id.index()].alarm;
        self.machine.events.set(alarm, time_ns.max(self.machine.now_ns).saturating_add(late_ns));
    }

    /// What runs on a CPU has ended its step: its program says what comes next.
    pub(crate) fn step(&mut self, cpu: CpuId) {
        self.machine.settle(cpu);
        let Some(id) = self.machine.cpus[cpu.index()].current else { return };
        let task = &self.machine.tasks[id.index()];
        if task.remaining_ns > 0 || task.overhead_ns > 0 {
            return;
        }
        for _ in 0..STEPS_MAX {
            let step = self.next_step(id);
            match step {
                Step::Compute(0) | Step::Spin(0) | Step::ComputeUntil { ns: 0, .. } => {
                    self.machine.tasks[id.index()].ended = Some(Why::Computed);
                }
                Step::Compute(ns) => return self.machine.tasks[id.index()].ask(ns, false),
                Step::Spin(ns) => return self.machine.tasks[id.index()].ask(ns, true),
                Step::ComputeUntil { ns, until_ns } => {
                    self.set_alarm(id, until_ns);
                    return self.machine.tasks[id.index()].ask(ns, false);
                }
                Step::SleepUntil(time_ns) => {
                    self.set_alarm(id, time_ns);
                    return self.block(cpu, id, Some(Reason::Time));
                }
                Step::Wait(until_ns) | Step::WaitFor(_, until_ns) => {
                    let reason = if let Step::WaitFor(reason, _) = step { reason } else { Reason::Others };
                    if let Some(until_ns) = until_ns {
                        self.set_alarm(id, until_ns);
                    }
                    self.machine.tasks[id.index()].waits = true;
                    return self.block(cpu, id, Some(reason));
                }
                Step::Yield => return self.yield_cpu(cpu, id),
                Step::Exit => return self.exit(cpu, id),
            }
        }
        panic!("the program of task {} takes no time: {STEPS_MAX} steps at {} ns", id.0, self.machine.now_ns);
    }

    fn next_step(&mut self, id: TaskId) -> Step {
        let task = &mut self.machine.tasks[id.index()];
        self.machine.events.cancel(task.alarm);
        let why = task.ended.take().unwrap_or(Why::Computed);
        let done_ns = task.asked_ns.saturating_sub(task.remaining_ns);
        (task.asked_ns, task.remaining_ns) = (0, 0);
        let mut program = task.program.take().expect("a task that runs has a program");
        let mut world = World {
            now_ns: self.machine.now_ns,
            task: id,
            rng: &mut task.rng,
            costs: &self.machine.costs,
            effects: &mut self.effects,
        };
        let step = program.next(Resumed { why, done_ns }, &mut world);
        self.machine.tasks[id.index()].program = Some(program);
        self.machine.cause = Cause::Thread(id.0);
        self.affect();
        step
    }

    /// What a program or a device has done to others.
    pub(crate) fn affect(&mut self) {
        if self.effects.is_empty() {
            return;
        }
        let mut effects = std::mem::take(&mut self.effects);
        for effect in effects.drain(..) {
            match effect {
                Effect::Wake(id) if self.machine.task(id).waits => self.wake(id, Why::Woken),
                Effect::Wake(_) => {}
                Effect::Poke(id) => self.cut(id, Why::Poked),
                Effect::Ask(id, at_ns) => self.ask(id, at_ns),
                Effect::Spawn(spec) => {
                    self.fork(*spec);
                }
                Effect::Hold(id, held) => self.machine.tasks[id.index()].held = held,
                Effect::ReadRcu(id, reads) => self.machine.tasks[id.index()].reads_rcu = reads,
                Effect::Work(id, amount) => self.observer.observe(&self.machine, Event::Work(id, amount)),
                Effect::WorkingSet(id, working_set_kib) => {
                    if let Some(memory) = self.machine.memory(id) {
                        self.machine.set_memory(id, Memory { working_set_kib, ..memory });
                    }
                }
                Effect::Latency(id, ns) => self.observer.observe(&self.machine, Event::Latency(id, ns)),
            }
        }
        self.effects = effects;
    }

    /// Ends the computation of a task that runs or is queued.
    fn cut(&mut self, id: TaskId, why: Why) {
        let Task { state, cpu, .. } = *self.machine.task(id);
        if !matches!(state, State::Queued | State::Running) {
            return;
        }
        if state == State::Running {
            self.machine.settle(cpu);
        }
        self.machine.cut(id, why);
    }

    /// It blocks for that reason, or ends.
    fn block(&mut self, cpu: CpuId, id: TaskId, reason: Option<Reason>) {
        self.machine.tasks[id.index()].blocks_for = reason;
        if self.machine.task(id).realtime.is_none() {
            self.policy.dequeue(&mut self.machine, id, Departure::Blocked);
        }
        self.machine.tasks[id.index()].state = State::Blocked;
        self.schedule(cpu);
    }

    fn exit(&mut self, cpu: CpuId, id: TaskId) {
        self.machine.tasks[id.index()].program = None;
        self.block(cpu, id, None);
        let task = &mut self.machine.tasks[id.index()];
        task.state = State::Dead;
        let (alarm, cached) = (task.alarm, task.cached);
        if let (Some(caches), Some(thread)) = (&mut self.machine.caches, cached) {
            caches.leave(thread);
        }
        self.machine.events.remove(alarm);
        if self.machine.task(id).realtime.is_none() {
            self.policy.task_dead(&mut self.machine, id);
        }
        self.observer.observe(&self.machine, Event::Died(id));
    }

    fn yield_cpu(&mut self, cpu: CpuId, id: TaskId) {
        self.machine.tasks[id.index()].ended = Some(Why::Yielded);
        if self.machine.task(id).realtime.is_none() {
            self.policy.yielded(&mut self.machine, cpu, id);
            self.schedule(cpu);
        }
    }
}
