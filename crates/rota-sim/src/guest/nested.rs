//! A guest whose kernel is a simulation of its own: its CPUs are the vCPUs, and a policy schedules its threads.
//!
//! What happens on a vCPU happens while that has a CPU of the host's, and at no other time. A timer that is due
//! meanwhile is late, and so is an interrupt from another vCPU.
//!
//! The guest has the host's clock. Interrupts cost it nothing but the exits that they take: timers cost the host, which
//! has them, too.

use rota_model::{CpuSet, Topology};

use super::resident::Home;
use super::{GuestScheduler, Kernel, Timetable};
use crate::costs::Costs;
use crate::engine::Simulation;
use crate::event::Slot;
use crate::ids::{CpuId, TaskId};
use crate::machine::{Due, Machine};
use crate::observe::Observer;
use crate::policy::Policy;
use crate::program::{Effect, Program, Reason, Resumed, Step, World};
use crate::rng::Rng;
use crate::task::TaskSpec;

/// So many events of a vCPU without any time passing are a mistake of the scheduler.
const EVENTS_MAX: u32 = 10_000;
/// How often the agent looks at what was stolen.
const STEAL_NS: u64 = 1_000_000_000;
/// The time of a vCPU that is stopped is counted from then on: never.
const FROZEN: u64 = u64::MAX / 2;

/// A vCPU, as its host has it.
#[derive(Default)]
struct Vcpu {
    /// The host's thread; none before it has run.
    task: Option<TaskId>,
    /// It has a CPU of the host's.
    runs: bool,
    /// It has halted, and nobody has told it to go on.
    halted: bool,
    /// It is told to go on by a timer then, or has been since.
    enters_ns: u64,
    /// What ran as it was left has ended its step.
    is_cut: bool,
    /// Up to when its thread's time was counted as it last got its CPU.
    from_ns: u64,
    /// What of the present step was counted before that.
    counted_ns: u64,
    /// An interrupt is on its way.
    interrupted: bool,
    /// What devices did.
    inbox: Vec<Effect>,
    waits_since_ns: Option<u64>,
    stolen_ns: u64,
}

/// The guest.
pub struct Nested<P> {
    stage: Stage<P>,
    vcpus: Vec<Vcpu>,
    home: Home,
    /// What the host publishes, if the guest has not been told yet.
    news: Option<Option<Timetable>>,
    published: Option<Timetable>,
    looks_ns: u64,
}

/// Before and after its first vCPU has begun.
enum Stage<P> {
    Off { policy: P, threads: Vec<(Box<dyn Program>, bool)> },
    Booting,
    On(Box<Simulation<P, ()>>),
}

impl<P: GuestScheduler> Nested<P> {
    pub fn new(vcpus: u32, rng: Rng, policy: P) -> Nested<P> {
        Nested {
            stage: Stage::Off { policy, threads: Vec::new() },
            vcpus: (0..vcpus).map(|_| Vcpu::default()).collect(),
            home: Home::new(rng),
            news: None,
            published: None,
            looks_ns: 0,
        }
    }

    fn kernel(&mut self) -> &mut Simulation<P, ()> {
        match &mut self.stage {
            Stage::On(kernel) => kernel,
            Stage::Off { .. } | Stage::Booting => panic!("a guest has begun before anything happens in it"),
        }
    }

    /// The first vCPU runs.
    fn boot(&mut self, world: &World<'_>) {
        if let Stage::On(_) = self.stage {
            return;
        }
        let Stage::Off { policy, threads } = std::mem::replace(&mut self.stage, Stage::Booting) else {
            panic!("a guest boots once");
        };
        let cpus: CpuSet = (0..self.vcpus.len() as u32).collect();
        let Costs { switch_ns, tick_ns, vm_exit_ns, .. } = *world.costs;
        let costs = Costs { switch_ns, tick_ns, vm_exit_ns, kick_ns: 0, ..Costs::FREE };
        let mut kernel = Simulation::new(Topology::flat(&cpus), costs, 0, world.now_ns, policy, ());
        for (number, (program, bound)) in threads.into_iter().enumerate() {
            let on = CpuId((number % self.vcpus.len()) as u32);
            let affinity = bound.then(|| kernel.machine.mask([on]));
            kernel.spawn(TaskSpec { affinity, ..self.home.spec(program) });
        }
        self.stage = Stage::On(Box::new(kernel));
        self.looks_ns = world.now_ns + STEAL_NS;
    }

    /// The agent has what the host publishes, and looks at what was stolen from time to time.
    fn look(&mut self, now_ns: u64) {
        if let Some(timetable) = self.news.take() {
            let kernel = self.kernel();
            kernel.policy.publish(now_ns, timetable.as_ref());
        }
        if now_ns >= self.looks_ns {
            self.looks_ns = now_ns + STEAL_NS;
            let stolen: Vec<u64> = self.vcpus.iter().map(|vcpu| vcpu.stolen_ns).collect();
            let policy = &mut self.kernel().policy;
            policy.stolen(now_ns, &stolen);
            if let Some(why) = policy.failed() {
                panic!("a guest's kernel has ended its scheduler before {now_ns} ns: {why}");
            }
        }
    }

    /// Counts what a vCPU's thread has done of the present step.
    fn count(&mut self, vcpu: usize, done_ns: u64) {
        let Vcpu { from_ns, counted_ns, .. } = self.vcpus[vcpu];
        let machine = &mut self.kernel().machine;
        let cpu = &mut machine.cpus[vcpu];
        let counted_ns = counted_ns + (cpu.settled_ns - from_ns);
        cpu.settled_ns = machine.now_ns - done_ns.saturating_sub(counted_ns);
        machine.settle(CpuId(vcpu as u32));
        machine.arm_end(CpuId(vcpu as u32));
        let now_ns = machine.now_ns;
        let of = &mut self.vcpus[vcpu];
        (of.from_ns, of.counted_ns) = (now_ns, 0);
    }

    /// An exit's time is taken from what runs on a vCPU.
    fn pay_exit(&mut self, vcpu: usize) {
        let machine = &mut self.kernel().machine;
        if let Some(current) = machine.cpus[vcpu].current {
            machine.tasks[current.index()].overhead_ns += machine.costs.vm_exit_ns;
            machine.arm_end(CpuId(vcpu as u32));
        }
    }

    /// Has the other vCPUs know what was done to them: by an interrupt, or in memory that they look at.
    fn tell_others(&mut self, from: usize, outside: &mut Vec<Effect>) {
        for other in (0..self.vcpus.len()).filter(|other| *other != from) {
            let is_asked = self.kernel().machine.cpus[other].need_resched;
            if is_asked && !std::mem::replace(&mut self.vcpus[other].interrupted, true) {
                self.pay_exit(from);
            }
            self.tell(other, outside);
        }
    }

    /// Has the host's thread go on if its vCPU has anything to do before it would by itself.
    fn tell(&mut self, vcpu: usize, outside: &mut Vec<Effect>) {
        let machine = &self.kernel().machine;
        let (now_ns, next_ns) = (machine.now_ns, machine.next_on(CpuId(vcpu as u32)));
        let is_cut = is_cut(machine, vcpu);
        let of = &mut self.vcpus[vcpu];
        let is_news = next_ns.is_some_and(|next_ns| next_ns < of.enters_ns) || (is_cut && !of.is_cut);
        if let (Some(task), true) = (of.task, is_news || !of.inbox.is_empty()) {
            of.enters_ns = now_ns;
            of.is_cut = is_cut;
            if of.halted {
                of.waits_since_ns.get_or_insert(now_ns);
            }
            outside.push(if of.halted { Effect::Wake(task) } else { Effect::Poke(task) });
        }
    }

    /// What a vCPU does until something happens on it.
    fn step(&mut self, vcpu: usize) -> Step {
        let machine = &self.kernel().machine;
        let next_ns = machine.next_on(CpuId(vcpu as u32));
        let is_cut = is_cut(machine, vcpu);
        let current = machine.cpus[vcpu].current.map(|current| &machine.tasks[current.index()]);
        let step = match (current, next_ns) {
            (None, next_ns) => Step::WaitFor(Reason::Interrupt, next_ns),
            (Some(task), next_ns) => {
                let ns = task.remaining_ns.saturating_add(task.overhead_ns).max(1);
                next_ns.map_or(Step::Compute(ns), |until_ns| Step::ComputeUntil { ns, until_ns })
            }
        };
        let of = &mut self.vcpus[vcpu];
        of.halted = matches!(step, Step::WaitFor(..));
        of.runs = !of.halted;
        (of.enters_ns, of.is_cut) = (next_ns.unwrap_or(u64::MAX), is_cut);
        step
    }
}

/// Whether what runs on a vCPU has ended its step.
fn is_cut(machine: &Machine, vcpu: usize) -> bool {
    machine.cpus[vcpu].current.is_some_and(|current| machine.tasks[current.index()].ended.is_some())
}

impl<P: GuestScheduler> Kernel for Nested<P> {
    fn add(&mut self, program: Box<dyn Program>, bound: bool) {
        match &mut self.stage {
            Stage::Off { threads, .. } => threads.push((program, bound)),
            Stage::Booting | Stage::On(_) => panic!("a guest's first threads are there before it runs"),
        }
    }

    fn nr_vcpus(&self) -> usize {
        self.vcpus.len()
    }

    fn publish(&mut self, timetable: Option<Timetable>) {
        if timetable != self.published {
            self.published.clone_from(&timetable);
            self.news = Some(timetable);
        }
    }

    fn enter(&mut self, vcpu: usize, resumed: Resumed, world: &mut World<'_>) -> Step {
        self.boot(world);
        let cpu = CpuId(vcpu as u32);
        self.vcpus[vcpu].task = Some(world.task);
        let machine = &mut self.kernel().machine;
        (machine.now_ns, machine.this_cpu) = (world.now_ns, cpu);
        self.count(vcpu, resumed.done_ns);
        self.look(world.now_ns);
        let received = std::mem::take(&mut self.vcpus[vcpu].inbox);
        if !received.is_empty() {
            self.kernel().receive(cpu, received);
        }
        self.kernel().happen_on(cpu);
        if std::mem::take(&mut self.vcpus[vcpu].interrupted) {
            self.pay_exit(vcpu);
        }
        self.tell_others(vcpu, world.effects);
        self.home.lead_out(world.task, world.effects);
        self.step(vcpu)
    }

    fn runs(&mut self, vcpu: usize, now_ns: u64) {
        let of = &mut self.vcpus[vcpu];
        let rang_ns = Some(of.enters_ns).filter(|enters_ns| of.halted && *enters_ns < now_ns);
        let since_ns = of.waits_since_ns.take().or(rang_ns);
        of.stolen_ns += since_ns.map_or(0, |since_ns| now_ns - since_ns);
        of.runs = true;
        if let Stage::On(kernel) = &mut self.stage {
            kernel.machine.cpus[vcpu].settled_ns = now_ns;
            of.from_ns = now_ns;
        }
    }

    fn stops(&mut self, vcpu: usize, now_ns: u64) {
        let of = &mut self.vcpus[vcpu];
        (of.runs, of.waits_since_ns) = (false, Some(now_ns));
        if let Stage::On(kernel) = &mut self.stage {
            let settled_ns = std::mem::replace(&mut kernel.machine.cpus[vcpu].settled_ns, FROZEN);
            of.counted_ns += settled_ns - of.from_ns;
        }
    }

    fn upcall(&mut self, _: usize) -> bool {
        false
    }

    /// A vCPU that has a CPU takes the interrupt, or else the one on which the thread was.
    fn interrupt(&mut self, now_ns: u64, effects: &mut Vec<Effect>, outside: &mut Vec<Effect>) {
        let Stage::On(kernel) = &mut self.stage else { return effects.clear() };
        kernel.machine.now_ns = now_ns;
        for effect in effects.drain(..) {
            let (Effect::Wake(id) | Effect::Poke(id)) = effect else { continue };
            let there = self.vcpus.iter().position(|vcpu| vcpu.runs);
            let to = there.unwrap_or(self.kernel().machine.task(id).cpu.index());
            self.vcpus[to].inbox.push(effect);
            self.vcpus[to].interrupted = true;
            self.tell(to, outside);
        }
    }
}

impl Machine {
    /// On which CPU a thing happens.
    fn place_of(&self, due: Due) -> Option<CpuId> {
        match due {
            Due::End(cpu) | Due::Tick(cpu) | Due::Resched(cpu) | Due::Timer(cpu, _) => Some(cpu),
            Due::Alarm(task) => Some(self.tasks[task.index()].cpu),
            Due::Device(..) | Due::Call(_) => None,
        }
    }

    /// What happens on a CPU, each with its time.
    fn due_on(&self, cpu: CpuId) -> impl Iterator<Item = (u64, Slot, Due)> {
        let slots = self.events.slots().zip(&self.due);
        let here = slots.filter(move |(_, due)| self.place_of(**due) == Some(cpu));
        here.filter_map(|(slot, due)| Some((self.events.time_of(slot)?, slot, *due)))
    }

    /// When something happens on a CPU next, but for the end of a thread's step.
    fn next_on(&self, cpu: CpuId) -> Option<u64> {
        let timed = self.due_on(cpu).filter(|(_, _, due)| !matches!(due, Due::End(_)));
        timed.map(|(time_ns, ..)| time_ns).min()
    }
}

impl<P: Policy, O: Observer> Simulation<P, O> {
    /// All that is due on one CPU happens, and what follows of it at once.
    fn happen_on(&mut self, cpu: CpuId) {
        for _ in 0..EVENTS_MAX {
            let due = self.machine.due_on(cpu).filter(|(time_ns, ..)| *time_ns <= self.machine.now_ns);
            let first = due.min_by_key(|(time_ns, slot, _)| (*time_ns, slot.index()));
            let Some((_, slot, due)) = first else { return };
            self.machine.events.cancel(slot);
            self.happen(cpu, due);
        }
        panic!("a guest's vCPU does not go on: {EVENTS_MAX} events at {} ns", self.machine.now_ns);
    }

    /// What devices did reaches a CPU.
    fn receive(&mut self, cpu: CpuId, mut effects: Vec<Effect>) {
        self.machine.cause = rota_model::Cause::Outside;
        self.effects.append(&mut effects);
        self.affect();
        self.leave(cpu);
    }
}
