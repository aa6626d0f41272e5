//! The machine: time, CPUs, tasks and cgroups, as a policy sees them.

use std::rc::Rc;

use rota_model::{Cause, Topology};

use crate::caches::{CacheCounters, Caches, Memory, SHARED_KIB};
use crate::costs::Costs;
use crate::event::{EventQueue, Slot};
use crate::ids::{CpuId, DeviceId, TaskId};
use crate::mask::CpuMask;
use crate::program::Why;
use crate::rng::Rng;
use crate::task::{Cgroup, CgroupId, State, Task};

/// What happens when a slot of the event queue is due.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Due {
    /// The running task has computed enough.
    End(CpuId),
    /// A busy CPU's tick.
    Tick(CpuId),
    /// A CPU was asked to decide anew.
    Resched(CpuId),
    /// A sleep, a wait or a computation with an end.
    Alarm(TaskId),
    /// A policy's timer.
    Timer(CpuId, u64),
    /// A device's interrupt.
    Device(CpuId, DeviceId),
    /// A call of the scenario's.
    Call(usize),
}

/// What takes a CPU's time away from tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Theft {
    /// Interrupts.
    Interrupt,
    /// Soft interrupts.
    SoftInterrupt,
    /// The hypervisor below.
    Steal,
}

/// A CPU.
pub struct Cpu {
    /// What it runs; `None` if it idles.
    pub current: Option<TaskId>,
    /// It decides anew as soon as it can.
    pub need_resched: bool,
    /// It is there.
    pub online: bool,
    /// Time that interrupts, soft interrupts and the hypervisor took: in the order of [`Theft`].
    pub stolen_ns: [u64; 3],
    /// Real-time tasks that wait here, the next one last.
    pub realtime: Vec<TaskId>,
    /// Up to when the present task's time is counted; later than now while something else has the CPU.
    pub(crate) settled_ns: u64,
    /// Nothing happens here before, since interrupts or the hypervisor have it.
    pub(crate) away_until_ns: u64,
    /// Its policy knows that it idles.
    pub(crate) idles: bool,
    pub(crate) last_task: Option<TaskId>,
    pub(crate) end: Slot,
    pub(crate) tick: Slot,
    pub(crate) resched: Slot,
}

/// A timer of a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timer(Slot);

/// The machine.
pub struct Machine {
    pub(crate) now_ns: u64,
    pub(crate) this_cpu: CpuId,
    pub(crate) events: EventQueue,
    /// Of each slot of the event queue.
    pub(crate) due: Vec<Due>,
    pub(crate) cpus: Vec<Cpu>,
    pub(crate) tasks: Vec<Task>,
    pub(crate) cgroups: Vec<Cgroup>,
    pub(crate) costs: Costs,
    pub(crate) seed: u64,
    /// What wakes tasks now.
    pub(crate) cause: Cause,
    pub(crate) everywhere: Rc<CpuMask>,
    /// Once a task has a working set that is simulated.
    pub(crate) caches: Option<Box<Caches>>,
    topology: Topology,
    rng: Rng,
}

impl Machine {
    /// A machine with these CPUs, all online, at time `now_ns`.
    pub fn new(topology: Topology, costs: Costs, seed: u64, now_ns: u64) -> Machine {
        let nr_cpus = topology.places.last().map_or(0, |place| place.cpu + 1);
        assert!(nr_cpus > 0, "a machine has a CPU");
        let present: Vec<CpuId> = topology.places.iter().map(|place| CpuId(place.cpu)).collect();
        let mut machine = Machine {
            now_ns,
            this_cpu: present[0],
            events: EventQueue::default(),
            due: Vec::new(),
            cpus: Vec::new(),
            tasks: Vec::new(),
            cgroups: vec![Cgroup { parent: None, weight: 100, max: None }],
            costs,
            seed,
            cause: Cause::Outside,
            everywhere: Rc::new(CpuMask::of(nr_cpus, present.iter().copied())),
            caches: None,
            topology,
            rng: Rng::new(seed, u64::MAX),
        };
        for cpu in (0..nr_cpus).map(CpuId) {
            let online = machine.everywhere.has(cpu);
            let (end, tick) = (machine.slot(Due::End(cpu)), machine.slot(Due::Tick(cpu)));
            let resched = machine.slot(Due::Resched(cpu));
            machine.cpus.push(Cpu {
                current: None,
                need_resched: false,
                online,
                stolen_ns: [0; 3],
                realtime: Vec::new(),
                settled_ns: now_ns,
                away_until_ns: 0,
                idles: true,
                last_task: None,
                end,
                tick,
                resched,
            });
        }
        machine
    }

    pub(crate) fn slot(&mut self, due: Due) -> Slot {
        let slot = self.events.add();
        if slot.index() == self.due.len() {
            self.due.push(due);
        }
        self.due[slot.index()] = due;
        slot
    }

    /// CLOCK_MONOTONIC.
    pub fn now_ns(&self) -> u64 {
        self.now_ns
    }

    /// The CPU on which things happen now.
    pub fn this_cpu(&self) -> CpuId {
        self.this_cpu
    }

    /// The CPU that runs programs before the others do, and from when on, in ns: now, if it is not away.
    pub fn first_there(&self) -> (CpuId, u64) {
        let online = self.cpus.iter().zip(0..).filter(|(cpu, _)| cpu.online);
        let there = online.map(|(cpu, number)| (cpu.away_until_ns.max(self.now_ns), number));
        let (from_ns, number) = there.min().expect("a CPU is online");
        (CpuId(number), from_ns)
    }

    /// The highest CPU number + 1.
    pub fn nr_cpus(&self) -> u32 {
        self.cpus.len() as u32
    }

    /// How near the CPUs are to each other.
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// What a task that is woken now is woken by.
    pub fn cause(&self) -> Cause {
        self.cause
    }

    /// What things cost.
    pub fn costs(&self) -> &Costs {
        &self.costs
    }

    /// The same, to have it cost something else from now on.
    pub fn costs_mut(&mut self) -> &mut Costs {
        &mut self.costs
    }

    /// Of all chance.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// All CPUs that the machine has.
    pub fn everywhere(&self) -> &Rc<CpuMask> {
        &self.everywhere
    }

    /// The policy's own chance.
    pub fn rng(&mut self) -> &mut Rng {
        &mut self.rng
    }

    /// A CPU.
    pub fn cpu(&self, cpu: CpuId) -> &Cpu {
        &self.cpus[cpu.index()]
    }

    /// A task, alive or dead.
    pub fn task(&self, task: TaskId) -> &Task {
        &self.tasks[task.index()]
    }

    /// All tasks there ever were.
    pub fn tasks(&self) -> impl Iterator<Item = (TaskId, &Task)> {
        (0..).map(TaskId).zip(&self.tasks)
    }

    /// A cgroup.
    pub fn cgroup(&self, cgroup: CgroupId) -> &Cgroup {
        &self.cgroups[cgroup.index()]
    }

    /// All cgroups, the root first.
    pub fn cgroups(&self) -> &[Cgroup] {
        &self.cgroups
    }

    /// A new cgroup below another.
    pub fn cgroup_new(&mut self, cgroup: Cgroup) -> CgroupId {
        assert!(cgroup.parent.is_some_and(|parent| parent.index() < self.cgroups.len()), "there is one root");
        self.cgroups.push(cgroup);
        CgroupId(self.cgroups.len() as u32 - 1)
    }

    /// Sets what a cgroup's `cpu.weight` and `cpu.max` say, before it has a task: a policy may have read them since.
    pub fn cgroup_limits(&mut self, cgroup: CgroupId, weight: u32, max: Option<(u64, u64)>) {
        let cgroup = &mut self.cgroups[cgroup.index()];
        (cgroup.weight, cgroup.max) = (weight, max);
    }

    /// A mask of CPUs of this machine.
    pub fn mask(&self, cpus: impl IntoIterator<Item = CpuId>) -> Rc<CpuMask> {
        Rc::new(CpuMask::of(self.nr_cpus(), cpus))
    }

    /// Asks a CPU to decide anew: on this CPU before it returns to its task, on another once it is interrupted.
    pub fn resched(&mut self, cpu: CpuId) {
        let target = &mut self.cpus[cpu.index()];
        if target.need_resched || !target.online {
            return;
        }
        target.need_resched = true;
        if cpu != self.this_cpu {
            self.interrupt_later(cpu);
        }
    }

    pub(crate) fn interrupt_later(&mut self, cpu: CpuId) {
        let target = &self.cpus[cpu.index()];
        let exit_ns = if target.current.is_none() { self.costs.idle_exit_ns } else { 0 };
        self.events.set(target.resched, self.now_ns + self.costs.kick_ns + exit_ns);
    }

    /// Moves a task that is queued, and not running, to another CPU's run queue.
    pub fn set_task_cpu(&mut self, task: TaskId, cpu: CpuId) {
        assert!(self.tasks[task.index()].state != State::Running, "a running task cannot be moved");
        self.tasks[task.index()].cpu = cpu;
    }

    /// The policy keeps a task to these CPUs from now on, or wherever it may run. It is not moved.
    pub fn keep_to(&mut self, task: TaskId, cpus: Option<Rc<CpuMask>>) {
        self.tasks[task.index()].kept_to = cpus;
    }

    /// A timer that tells the policy `key` on `cpu`. It is not set.
    pub fn timer_new(&mut self, cpu: CpuId, key: u64) -> Timer {
        Timer(self.slot(Due::Timer(cpu, key)))
    }

    /// Has a timer fire on `cpu` at `at_ns`, or a little later: see [`Costs::timer_slack_ns`].
    pub fn timer_set(&mut self, timer: Timer, cpu: CpuId, at_ns: u64) {
        if let Due::Timer(on, _) = &mut self.due[timer.0.index()] {
            *on = cpu;
        }
        let late_ns = self.slack_ns();
        self.events.set(timer.0, at_ns.max(self.now_ns).saturating_add(late_ns));
    }

    /// Calls a timer off.
    pub fn timer_cancel(&mut self, timer: Timer) {
        self.events.cancel(timer.0);
    }

    pub(crate) fn slack_ns(&mut self) -> u64 {
        match self.costs.timer_slack_ns {
            0 => 0,
            most => self.rng.between(0, most),
        }
    }

    /// Counts the time of the task that runs on `cpu` up to now: costs first, then its own progress.
    pub fn settle(&mut self, cpu: CpuId) {
        let number = cpu;
        let cpu = &mut self.cpus[cpu.index()];
        let Some(ran_ns) = self.now_ns.checked_sub(cpu.settled_ns).filter(|&ran_ns| ran_ns > 0) else {
            return;
        };
        cpu.settled_ns = self.now_ns;
        let Some(task) = cpu.current else { return };
        let task = &mut self.tasks[task.index()];
        task.used_ns += ran_ns;
        let paid_ns = ran_ns.min(task.overhead_ns);
        task.overhead_ns -= paid_ns;
        let mut done_ns = ran_ns - paid_ns;
        match (&mut self.caches, task.cached) {
            _ if task.spins => task.spun_ns += done_ns,
            (Some(caches), Some(thread)) => done_ns = caches.advance(thread, number, self.now_ns, done_ns),
            _ => {}
        }
        task.remaining_ns = task.remaining_ns.saturating_sub(done_ns);
    }

    /// Tells a vCPU that runs that it is about to be stopped: a scheduler activation (Zhao, dissertation, section
    /// 4.3.1).
    /// True if its guest will give the CPU up by itself.
    pub fn upcall(&mut self, task: TaskId) -> bool {
        let answers = self.tasks[task.index()].vcpu().is_some_and(|vcpu| vcpu.upcall());
        if answers {
            self.settle(self.tasks[task.index()].cpu);
            self.cut(task, Why::Poked);
        }
        answers
    }

    /// Ends the computation of a task, which is settled if it runs.
    pub(crate) fn cut(&mut self, id: TaskId, why: Why) {
        let task = &mut self.tasks[id.index()];
        if task.ended.is_none() && task.remaining_ns > 0 {
            // What was done is asked minus remaining: keep it.
            task.asked_ns -= task.remaining_ns;
            task.remaining_ns = 0;
            task.ended = Some(why);
            let cpu = task.cpu;
            self.arm_end(cpu);
        }
    }

    /// The size of each domain's last-level cache, in KiB; [`SHARED_KIB`](crate::SHARED_KIB) if it is not said before a
    /// task refers to memory.
    pub fn set_shared_cache(&mut self, kib: u64) {
        self.caches = Some(Box::new(Caches::new(&self.topology, kib)));
    }

    /// What a task's computing asks of memory from now on. What it had in caches is of no use to it then.
    pub fn set_memory(&mut self, task: TaskId, memory: Memory) {
        let Task { state, cpu, cached, .. } = self.tasks[task.index()];
        if state == State::Running {
            self.settle(cpu);
        }
        let topology = &self.topology;
        let caches = self.caches.get_or_insert_with(|| Box::new(Caches::new(topology, SHARED_KIB)));
        match cached {
            Some(thread) => caches.change(thread, memory),
            None => self.tasks[task.index()].cached = Some(caches.add(memory)),
        }
        if state == State::Running {
            self.arm_end(cpu);
        }
    }

    /// What a task's computing asks of memory, if its working set is simulated.
    pub fn memory(&self, task: TaskId) -> Option<Memory> {
        Some(self.caches.as_ref()?.memory(self.tasks[task.index()].cached?))
    }

    /// What counters say of a task; none if its working set is not simulated. As of when its CPU was settled last.
    pub fn cache_counters(&self, task: TaskId) -> Option<CacheCounters> {
        Some(self.caches.as_ref()?.counters(self.tasks[task.index()].cached?))
    }

    /// What a task has of the last-level cache of a CPU's domain, in bytes.
    pub fn cached_bytes(&self, task: TaskId, cpu: CpuId) -> u64 {
        let cached = self.caches.as_ref().zip(self.tasks[task.index()].cached);
        cached.map_or(0, |(caches, thread)| caches.shared_bytes(thread, cpu))
    }

    /// Something other than a task has `cpu` for a while from now on.
    pub(crate) fn steal(&mut self, cpu: CpuId, ns: u64, theft: Theft) {
        self.settle(cpu);
        let cpu = &mut self.cpus[cpu.index()];
        cpu.settled_ns = cpu.settled_ns.max(self.now_ns) + ns;
        cpu.stolen_ns[theft as usize] += ns;
    }

    /// Sets or calls off the end of what runs on `cpu`.
    pub(crate) fn arm_end(&mut self, cpu: CpuId) {
        let number = cpu;
        let cpu = &self.cpus[cpu.index()];
        let task = cpu.current.map(|task| &self.tasks[task.index()]);
        let mut remaining_ns = task.map_or(0, |task| task.remaining_ns);
        let cached = task.filter(|task| !task.spins).and_then(|task| task.cached);
        if let (Some(caches), Some(thread)) = (&mut self.caches, cached) {
            remaining_ns = caches.stretched(thread, number, self.now_ns, remaining_ns);
        }
        match task.map(|task| remaining_ns.checked_add(task.overhead_ns + cpu.settled_ns)) {
            Some(Some(end_ns)) => {
                if self.events.time_of(cpu.end) != Some(end_ns) {
                    self.events.set(cpu.end, end_ns);
                }
            }
            _ => self.events.cancel(cpu.end),
        }
    }
}
