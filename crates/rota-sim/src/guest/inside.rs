//! The guest kernel: its threads, its vCPUs, and what each does next.

use std::collections::{BTreeSet, VecDeque};

use super::host::Sight;
use super::upcall::{Leaving, TICK_NS};
use super::{Help, Kernel, PAUSES_NS, SLICE_NS, Timetable};
use crate::ids::TaskId;
use crate::program::{Effect, Program, Resumed, Step, Why, World};
use crate::rng::Rng;
use crate::task::State;

/// So many steps of threads without any time passing are a mistake in a program.
const STEPS_MAX: u32 = 10_000;

/// A thread of a guest.
pub struct Thread {
    program: Option<Box<dyn Program>>,
    rng: Rng,
    pub state: State,
    /// Where it is, or was last.
    pub vcpu: usize,
    /// The tag of one that an upcall has moved: which vCPU it has left. Until it is there again, or has slept.
    pub left: Option<usize>,
    /// It may not be moved.
    held: bool,
    /// It never is.
    bound: bool,
    /// What the present step asked for, and what is left of it.
    asked_ns: u64,
    remaining_ns: u64,
    /// To be paid before anything of the step is done.
    overhead_ns: u64,
    /// The present step waits busily, and has for so long.
    pub spins: bool,
    pub spun_ns: u64,
    /// How the step ended, if the next one is not known yet.
    pub ended: Option<Why>,
    /// It waits to be woken; else, if blocked, it sleeps.
    waits: bool,
    alarm_ns: Option<u64>,
}

impl Thread {
    /// Whether it is to be left on its vCPU.
    pub fn stays(&self) -> bool {
        self.held || self.bound
    }
}

/// One of its vCPUs.
#[derive(Default)]
pub struct Vcpu {
    /// The host's thread; none before it has run.
    pub task: Option<TaskId>,
    pub queue: VecDeque<usize>,
    pub current: Option<usize>,
    /// What ran before.
    last: Option<usize>,
    /// It has halted, and nobody has told it to go on.
    pub idle: bool,
    pub slice_left_ns: u64,
    /// What the host shows of it.
    pub sight: Sight,
    /// The host has told it that it is about to be stopped.
    pub upcalled: bool,
    pub leaving: Option<Leaving>,
    /// The number of the last tick that it has seen.
    pub tick: u64,
    /// Alarms of threads that were set here, with their times.
    alarms: BTreeSet<(u64, usize)>,
}

/// All of a guest.
pub struct Inside {
    pub help: Help,
    pub now_ns: u64,
    pub threads: Vec<Thread>,
    pub vcpus: Vec<Vcpu>,
    pub rng: Rng,
    /// Its vCPUs' ticks are so long after the host's.
    pub tick_phase_ns: u64,
    exit_ns: u64,
}

impl Inside {
    pub fn new(vcpus: u32, mut rng: Rng, help: Help) -> Inside {
        let vcpus = (0..vcpus).map(|_| Vcpu::default()).collect();
        let tick_phase_ns = if help == Help::Upcalls { rng.below(TICK_NS) } else { 0 };
        Inside { help, now_ns: 0, threads: Vec::new(), vcpus, rng, tick_phase_ns, exit_ns: 0 }
    }

    /// Threads go to the vCPUs in turn.
    fn add_thread(&mut self, program: Box<dyn Program>, bound: bool) {
        let number = self.threads.len();
        let vcpu = number % self.vcpus.len();
        self.threads.push(Thread {
            program: Some(program),
            rng: Rng::new(self.rng.draw(), number as u64),
            state: State::Queued,
            vcpu,
            left: None,
            held: false,
            bound,
            asked_ns: 0,
            remaining_ns: 0,
            overhead_ns: 0,
            spins: false,
            spun_ns: 0,
            ended: Some(Why::Started),
            waits: false,
            alarm_ns: None,
        });
        self.vcpus[vcpu].queue.push_back(number);
    }

    /// What a vCPU does now that it has the CPU.
    fn go_on(&mut self, vcpu: usize, resumed: Resumed, world: &mut World<'_>) -> Step {
        (self.exit_ns, self.now_ns) = (world.costs.vm_exit_ns, world.now_ns);
        self.vcpus[vcpu].task = Some(world.task);
        self.account(vcpu, resumed.done_ns);
        self.ring_alarms(vcpu, world);
        self.vcpus[vcpu].idle = false;
        match self.help {
            Help::None | Help::PauseExits => {}
            Help::Upcalls => {
                if let Some(step) = self.answer(vcpu, world) {
                    return step;
                }
            }
        }
        for _ in 0..STEPS_MAX {
            let Some(thread) = self.pick(vcpu, world) else {
                return self.halt(vcpu, self.next_alarm_ns(vcpu));
            };
            if self.threads[thread].ended.is_none() {
                return self.pauses(thread).unwrap_or_else(|| self.compute(vcpu, thread));
            }
            let step = self.ask(vcpu, thread, world);
            self.take(vcpu, thread, step, world.now_ns);
        }
        panic!("the programs of a guest take no time: {STEPS_MAX} steps at {} ns", world.now_ns);
    }

    /// Counts what the present thread has done.
    fn account(&mut self, vcpu: usize, done_ns: u64) {
        let vcpu = &mut self.vcpus[vcpu];
        if let Some(leaving) = &mut vcpu.leaving {
            leaving.left_ns = leaving.left_ns.saturating_sub(done_ns);
        }
        let Some(thread) = vcpu.current.map(|current| &mut self.threads[current]) else { return };
        vcpu.slice_left_ns = vcpu.slice_left_ns.saturating_sub(done_ns);
        let paid_ns = done_ns.min(thread.overhead_ns);
        thread.overhead_ns -= paid_ns;
        thread.spun_ns += done_ns - paid_ns;
        thread.remaining_ns = thread.remaining_ns.saturating_sub(done_ns - paid_ns);
        if thread.remaining_ns == 0 && thread.overhead_ns == 0 {
            thread.ended.get_or_insert(Why::Computed);
        }
    }

    /// A pause-loop exit, if a thread has waited busily for that long: the vCPU gives way.
    fn pauses(&mut self, thread: usize) -> Option<Step> {
        let thread = &mut self.threads[thread];
        if self.help != Help::PauseExits || !thread.spins || thread.spun_ns < PAUSES_NS {
            return None;
        }
        thread.spun_ns = 0;
        thread.overhead_ns += self.exit_ns;
        Some(Step::Yield)
    }

    /// Whether a vCPU has halted, with nothing on its queue.
    pub(super) fn idles(&self, vcpu: usize) -> bool {
        self.vcpus[vcpu].idle && self.vcpus[vcpu].queue.is_empty()
    }

    /// Whether a vCPU has run before, so that it can be told something.
    pub(super) fn has_begun(&self, vcpu: usize) -> bool {
        self.vcpus[vcpu].task.is_some()
    }

    pub(super) fn next_alarm_ns(&self, vcpu: usize) -> Option<u64> {
        self.vcpus[vcpu].alarms.first().map(|(time_ns, _)| *time_ns)
    }

    fn ring_alarms(&mut self, vcpu: usize, world: &mut World<'_>) {
        while let Some((time_ns, thread)) = self.vcpus[vcpu].alarms.first().copied() {
            if time_ns > world.now_ns {
                return;
            }
            self.vcpus[vcpu].alarms.pop_first();
            self.threads[thread].alarm_ns = None;
            match (self.threads[thread].state, self.threads[thread].waits) {
                (State::Blocked, true) => self.wake(thread, Why::TimedOut, Some(vcpu), world.effects),
                (State::Blocked, false) => self.wake(thread, Why::Slept, Some(vcpu), world.effects),
                _ => self.cut(thread, Why::TimedOut, Some(vcpu), world.effects),
            }
        }
    }

    fn set_alarm(&mut self, vcpu: usize, thread: usize, time_ns: u64) {
        self.threads[thread].alarm_ns = Some(time_ns);
        self.threads[thread].vcpu = vcpu;
        self.vcpus[vcpu].alarms.insert((time_ns, thread));
    }

    fn call_off(&mut self, thread: usize) {
        if let Some(time_ns) = self.threads[thread].alarm_ns.take() {
            // Threads with an alarm that compute may have been moved since.
            self.vcpus.iter_mut().for_each(|vcpu| _ = vcpu.alarms.remove(&(time_ns, thread)));
        }
    }

    /// The thread that runs on a vCPU from now on.
    fn pick(&mut self, vcpu: usize, world: &mut World<'_>) -> Option<usize> {
        let own = &mut self.vcpus[vcpu];
        if let Some(current) = own.current {
            let goes_on = own.slice_left_ns > 0 || own.queue.is_empty();
            if goes_on {
                return Some(current);
            }
            own.current = None;
            self.place(current, vcpu, false, Some(vcpu), world.effects);
        }
        let next = self.vcpus[vcpu].queue.pop_front();
        let next = next.or_else(|| self.steal(vcpu));
        let own = &mut self.vcpus[vcpu];
        own.current = next;
        let next = next?;
        own.slice_left_ns = SLICE_NS;
        let thread = &mut self.threads[next];
        thread.left = thread.left.filter(|left| *left != vcpu);
        (thread.state, thread.vcpu) = (State::Running, vcpu);
        if own.last != Some(next) {
            thread.overhead_ns += world.costs.switch_ns;
        }
        own.last = Some(next);
        Some(next)
    }

    /// A thread that waits on another vCPU, from the longest queue.
    fn steal(&mut self, vcpu: usize) -> Option<usize> {
        let movable =
            |queue: &VecDeque<usize>| queue.iter().position(|thread| !self.threads[*thread].stays());
        let others = self
            .vcpus
            .iter()
            .enumerate()
            .filter(|(number, other)| *number != vcpu && movable(&other.queue).is_some());
        let (from, place) = others
            .max_by_key(|(number, other)| (other.queue.len(), usize::MAX - number))
            .and_then(|(number, other)| Some((number, movable(&other.queue)?)))?;
        self.vcpus[from].queue.remove(place)
    }

    /// How long the present thread computes on, at most.
    fn compute(&self, vcpu: usize, thread: usize) -> Step {
        let (own, thread) = (&self.vcpus[vcpu], &self.threads[thread]);
        let ns = thread.remaining_ns.saturating_add(thread.overhead_ns);
        let ns = if own.queue.is_empty() { ns } else { ns.min(own.slice_left_ns) };
        let looked_at_ns = match self.help {
            Help::PauseExits if thread.spins => thread.overhead_ns + PAUSES_NS - thread.spun_ns,
            _ => u64::MAX,
        };
        let ns = ns.min(looked_at_ns);
        let looks_ns = match self.help {
            Help::None | Help::PauseExits => None,
            Help::Upcalls => self.balances_ns(vcpu),
        };
        match [self.next_alarm_ns(vcpu), looks_ns].into_iter().flatten().min() {
            Some(until_ns) => Step::ComputeUntil { ns, until_ns },
            None => Step::Compute(ns),
        }
    }

    /// Asks a thread's program for its next step.
    fn ask(&mut self, vcpu: usize, number: usize, world: &mut World<'_>) -> Step {
        self.call_off(number);
        let thread = &mut self.threads[number];
        let why = thread.ended.take().unwrap_or(Why::Computed);
        let done_ns = thread.asked_ns.saturating_sub(thread.remaining_ns);
        (thread.asked_ns, thread.remaining_ns) = (0, 0);
        let mut program = thread.program.take().expect("a thread that runs has a program");
        let mut effects = Vec::new();
        let mut inner = World {
            now_ns: world.now_ns,
            task: TaskId(number as u32),
            rng: &mut thread.rng,
            costs: world.costs,
            effects: &mut effects,
        };
        let step = program.next(Resumed { why, done_ns }, &mut inner);
        self.threads[number].program = Some(program);
        effects.into_iter().for_each(|effect| self.affect(effect, Some(vcpu), world.effects));
        step
    }

    /// Begins a step of the thread that runs on a vCPU.
    fn take(&mut self, vcpu: usize, number: usize, step: Step, now_ns: u64) {
        let thread = &mut self.threads[number];
        let own = &mut self.vcpus[vcpu];
        match step {
            Step::Compute(ns) | Step::Spin(ns) | Step::ComputeUntil { ns, .. } => {
                (thread.spins, thread.spun_ns) = (matches!(step, Step::Spin(_)), 0);
                (thread.asked_ns, thread.remaining_ns) = (ns, ns);
                if ns == 0 {
                    thread.ended = Some(Why::Computed);
                }
                if let Step::ComputeUntil { until_ns, .. } = step {
                    self.set_alarm(vcpu, number, until_ns.max(now_ns));
                }
            }
            Step::SleepUntil(_) | Step::Wait(_) | Step::WaitFor(..) => {
                thread.state = State::Blocked;
                thread.waits = !matches!(step, Step::SleepUntil(_));
                own.current = None;
                if let Step::SleepUntil(until_ns)
                | Step::Wait(Some(until_ns))
                | Step::WaitFor(_, Some(until_ns)) = step
                {
                    self.set_alarm(vcpu, number, until_ns.max(now_ns));
                }
            }
            Step::Yield => {
                thread.ended = Some(Why::Yielded);
                own.slice_left_ns = 0;
            }
            Step::Exit => {
                thread.state = State::Dead;
                thread.program = None;
                own.current = None;
            }
        }
    }

    /// What a thread on `from`, or a device, does to the guest and to what is outside of it.
    fn affect(&mut self, effect: Effect, from: Option<usize>, outside: &mut Vec<Effect>) {
        // What is counted is counted for the vCPU.
        let task = from.and_then(|vcpu| self.vcpus[vcpu].task);
        match effect {
            Effect::Wake(id) => {
                let thread = &self.threads[id.index()];
                if thread.state == State::Blocked && thread.waits {
                    self.wake(id.index(), Why::Woken, from, outside);
                }
            }
            Effect::Poke(id) => self.cut(id.index(), Why::Poked, from, outside),
            Effect::Ask(device, at_ns) => outside.push(Effect::Ask(device, at_ns)),
            Effect::Spawn(spec) => self.spawn(spec.program, from, outside),
            Effect::Hold(id, held) => self.threads[id.index()].held = held,
            Effect::ReadRcu(..) => {} // the guest's own, of which its host sees nothing
            Effect::Work(_, amount) => outside.extend(task.map(|task| Effect::Work(task, amount))),
            Effect::WorkingSet(_, kib) => outside.extend(task.map(|task| Effect::WorkingSet(task, kib))),
            Effect::Latency(_, ns) => outside.extend(task.map(|task| Effect::Latency(task, ns))),
        }
    }

    fn spawn(&mut self, program: Box<dyn Program>, from: Option<usize>, outside: &mut Vec<Effect>) {
        let number = self.threads.len();
        self.add_thread(program, false);
        let vcpu = self.threads[number].vcpu;
        self.vcpus[vcpu].queue.retain(|queued| *queued != number);
        self.wake(number, Why::Started, from, outside);
    }

    fn wake(&mut self, number: usize, why: Why, from: Option<usize>, outside: &mut Vec<Effect>) {
        self.call_off(number);
        let thread = &self.threads[number];
        let own = thread.vcpu;
        let (vcpu, first) = match self.help {
            _ if thread.stays() => (own, false),
            Help::Upcalls if self.preempts_guest(number).is_some() => (own, true),
            _ if self.idles(own) => (own, false),
            _ => ((0..self.vcpus.len()).find(|vcpu| self.idles(*vcpu)).unwrap_or(own), false),
        };
        let thread = &mut self.threads[number];
        (thread.waits, thread.ended, thread.left) = (false, Some(why), None);
        self.place(number, vcpu, first, from, outside);
    }

    /// Queues a thread on a vCPU, and tells it: behind all others, or before the one that runs.
    pub(super) fn place(
        &mut self,
        number: usize,
        vcpu: usize,
        first: bool,
        from: Option<usize>,
        outside: &mut Vec<Effect>,
    ) {
        let (thread, own) = (&mut self.threads[number], &mut self.vcpus[vcpu]);
        (thread.state, thread.vcpu) = (State::Queued, vcpu);
        if first {
            own.queue.push_front(number);
            own.slice_left_ns = 0;
        } else {
            own.queue.push_back(number);
        }
        self.tell(vcpu, from, outside);
    }

    /// Ends the computation of a thread that runs or is queued.
    fn cut(&mut self, number: usize, why: Why, from: Option<usize>, outside: &mut Vec<Effect>) {
        let thread = &mut self.threads[number];
        if !matches!(thread.state, State::Queued | State::Running) || thread.ended.is_some() {
            return;
        }
        thread.ended = Some(why);
        let (state, vcpu) = (thread.state, thread.vcpu);
        if state == State::Running && from != Some(vcpu) {
            // Who looks at memory sees a change without an interrupt: no exit.
            outside.extend(self.vcpus[vcpu].task.map(Effect::Poke));
        }
    }

    /// Has a vCPU look at its queue: an interrupt between processors, unless it is the one that runs this.
    pub(super) fn tell(&mut self, vcpu: usize, from: Option<usize>, outside: &mut Vec<Effect>) {
        if from == Some(vcpu) {
            return;
        }
        let exit_ns = self.exit_ns;
        if let Some(sender) = from.and_then(|from| self.vcpus[from].current) {
            self.threads[sender].overhead_ns += exit_ns;
        }
        let own = &mut self.vcpus[vcpu];
        let Some(task) = own.task else { return };
        if own.idle {
            own.sight.waits(self.now_ns);
        }
        let receiver = if own.idle { own.queue.front().copied() } else { own.current };
        if let Some(receiver) = receiver {
            self.threads[receiver].overhead_ns += exit_ns;
        }
        outside.push(if own.idle { Effect::Wake(task) } else { Effect::Poke(task) });
    }
}

impl Kernel for Inside {
    fn add(&mut self, program: Box<dyn Program>, bound: bool) {
        self.add_thread(program, bound);
    }

    fn nr_vcpus(&self) -> usize {
        self.vcpus.len()
    }

    /// It has no use for it.
    fn publish(&mut self, _: Option<Timetable>) {}

    fn enter(&mut self, vcpu: usize, resumed: Resumed, world: &mut World<'_>) -> Step {
        self.go_on(vcpu, resumed, world)
    }

    fn runs(&mut self, vcpu: usize, now_ns: u64) {
        self.vcpus[vcpu].sight.gets(now_ns);
    }

    fn stops(&mut self, vcpu: usize, now_ns: u64) {
        self.vcpus[vcpu].sight.loses(now_ns);
    }

    fn upcall(&mut self, vcpu: usize) -> bool {
        let answers = self.help == Help::Upcalls;
        self.vcpus[vcpu].upcalled |= answers;
        answers
    }

    fn interrupt(&mut self, now_ns: u64, effects: &mut Vec<Effect>, outside: &mut Vec<Effect>) {
        self.now_ns = now_ns;
        effects.drain(..).for_each(|effect| self.affect(effect, None, outside));
    }
}
