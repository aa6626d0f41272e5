//! The kernel's own classes for ordinary tasks, EEVDF and CFS: the same tree of cgroups on each CPU, the same placing
//! and balancing between CPUs, the same `cpu.max`; and a [`Rule`] for one queue.
//!
//! After `kernel/sched/fair.c` of Linux 6.12, and of 6.5 for CFS. Left out: capacities and energy, NUMA balancing,
//! core scheduling, idle cgroups, and autogroups. Balancing compares CPUs, not groups of them.

mod balance;
mod bandwidth;
mod cfs;
mod eevdf;
mod load;
mod place;
mod queue;
mod rule;
mod tree;

use std::collections::{BTreeMap, BTreeSet};

use rota_sim::{Arrival, CgroupId, CpuId, Departure, Idle, Machine, Next, Policy, TaskId};

use balance::Level;
use bandwidth::Limit;
pub use cfs::Cfs;
pub use eevdf::Eevdf;
use queue::{Entity, EntityId, Queue, What};
use rule::Comes;
pub use rule::Rule;
use tree::{Group, weight};

/// What the class knows of a CPU.
#[derive(Debug, Default)]
struct Cpu {
    current: Option<TaskId>,
    /// Tasks that are queued here or were last, and count into its load.
    attached: BTreeSet<TaskId>,
    /// The CPUs to balance with, from near to far.
    levels: Vec<Level>,
}

/// The class, with a rule.
pub struct Fair<R> {
    rule: R,
    entities: Vec<Entity>,
    queues: Vec<Queue>,
    groups: Vec<Group>,
    tasks: Vec<Option<EntityId>>,
    cpus: Vec<Cpu>,
    limits: BTreeMap<CgroupId, Limit>,
    quotas: bool,
}

impl<R: Rule> Default for Fair<R> {
    fn default() -> Fair<R> {
        Fair {
            rule: R::with_cpus(1),
            entities: Vec::new(),
            queues: Vec::new(),
            groups: Vec::new(),
            tasks: Vec::new(),
            cpus: Vec::new(),
            limits: BTreeMap::new(),
            quotas: false,
        }
    }
}

impl<R: Rule> Fair<R> {
    /// Gives a reserved tenant its share as its quota, besides a weight.
    pub fn with_quotas() -> Fair<R> {
        Fair { quotas: true, ..Fair::default() }
    }

    /// Whether a task waits for its group's quota.
    pub(super) fn waits_for_quota(&self, task: TaskId) -> bool {
        self.is_throttled(self.task(task))
    }

    pub(super) fn has_quotas(&self) -> bool {
        self.quotas
    }

    fn task(&self, task: TaskId) -> EntityId {
        self.tasks[task.index()].expect("the task has come and is not over")
    }

    /// Puts a task under another queue: its load goes with it.
    fn attach(&mut self, machine: &Machine, task: TaskId) {
        let id = self.task(task);
        let to = self.queue_of(machine, machine.task(task).cgroup, machine.task(task).cpu);
        let from = self.entity(id).queue;
        if from == to {
            return;
        }
        self.set_adds(id, 0);
        self.refresh(id);
        let (before, after) = (self.queue(from).cpu, self.queue(to).cpu);
        self.cpus[before.index()].attached.remove(&task);
        self.cpus[after.index()].attached.insert(task);
        self.entity(id).queue = to;
    }

    /// Takes an entity off its queue for good, and has queues without anything give their runtime back.
    fn leave(&mut self, machine: &mut Machine, id: EntityId, sleeps: bool) {
        self.remove_upwards(id, sleeps);
        for id in self.upwards(id) {
            let queue = self.entity(id).queue;
            self.give_back(machine, queue);
        }
    }

    /// Has the CPU decide anew if what has come goes before what runs.
    fn preempt(&mut self, machine: &mut Machine, cpu: CpuId, id: EntityId) {
        if self.is_throttled(id) {
            return;
        }
        if machine.cpu(cpu).current.is_none() {
            machine.resched(cpu);
        }
        for woken in self.upwards(id) {
            let queue = &self.queues[self.entities[woken.0 as usize].queue.0 as usize];
            if let Some(running) = queue.current {
                if running != woken && self.rule.preempts(queue, &self.entities, running, woken) {
                    machine.resched(cpu);
                }
                return;
            }
        }
    }

    /// Who goes first on a CPU. Throttles groups whose runtime is over on the way, and lets go who only stayed.
    fn first(&mut self, machine: &mut Machine, cpu: CpuId) -> Option<TaskId> {
        let root = self.root(cpu);
        let mut id = root;
        loop {
            let queue = &self.queues[id.0 as usize];
            let Some(first) = self.rule.pick(queue, &self.entities) else {
                debug_assert!(id == root, "a group that is queued has something");
                return None;
            };
            if self.entity(first).delayed {
                self.leave(machine, first, true);
                id = root;
                continue;
            }
            match self.entity(first).what {
                What::Task(task) => return Some(task),
                What::Group(below) => id = if self.admits(machine, below) { below } else { root },
            }
        }
    }

    /// How long an entity is due at a time (`sched_slice`).
    fn slice_ns(&self, cpu: CpuId, id: EntityId) -> u64 {
        let tasks = self.queues[self.root(cpu).0 as usize].tasks;
        let mut slice_ns = self.rule.round_ns(tasks);
        for id in self.upwards(id) {
            let entity = &self.entities[id.0 as usize];
            let whole = self.queues[entity.queue.0 as usize].weight.max(entity.weight);
            slice_ns = (u128::from(slice_ns) * u128::from(entity.weight) / u128::from(whole)) as u64;
        }
        slice_ns
    }
}

impl<R: Rule> Policy for Fair<R> {
    fn start(&mut self, machine: &mut Machine) {
        self.rule = R::with_cpus(machine.topology().places.len() as u32);
        self.cpus = (0..machine.nr_cpus()).map(|_| Cpu::default()).collect();
        for cpu in (0..machine.nr_cpus()).map(CpuId) {
            self.cpus[cpu.index()].levels = balance::levels(machine, cpu);
            self.queue_of(machine, CgroupId::ROOT, cpu);
        }
    }

    fn task_new(&mut self, machine: &mut Machine, task: TaskId) {
        let of = machine.task(task);
        let (cgroup, cpu, weight) = (of.cgroup, of.cpu, weight(of.weight));
        let queue = self.queue_of(machine, cgroup, cpu);
        self.entities.push(Entity::new(What::Task(task), queue, weight, machine.now_ns()));
        self.tasks.resize(task.index() + 1, None);
        self.tasks[task.index()] = Some(EntityId(self.entities.len() as u32 - 1));
        self.cpus[cpu.index()].attached.insert(task);
    }

    fn task_dead(&mut self, machine: &mut Machine, task: TaskId) {
        let id = self.task(task);
        if self.entity(id).delayed {
            self.leave(machine, id, true);
        }
        self.set_adds(id, 0);
        self.refresh(id);
        let queue = self.entity(id).queue;
        let cpu = self.queue(queue).cpu;
        self.cpus[cpu.index()].attached.remove(&task);
        self.tasks[task.index()] = None;
    }

    fn select_cpu(&mut self, machine: &mut Machine, task: TaskId, arrival: Arrival) -> CpuId {
        self.place(machine, task, arrival)
    }

    fn enqueue(&mut self, machine: &mut Machine, task: TaskId, arrival: Arrival) {
        let (id, cpu) = (self.task(task), machine.task(task).cpu);
        self.charge(machine, cpu);
        let before = self.entity(id).queue;
        let to = self.queue_of(machine, machine.task(task).cgroup, cpu);
        self.track(machine, id, arrival != Arrival::Woken);
        if self.entity(id).delayed && before == to {
            self.resume(id);
            self.refresh(id);
        } else {
            if self.entity(id).delayed {
                self.leave(machine, id, true);
            }
            self.attach(machine, task);
            self.track(machine, id, true);
            let comes = match arrival {
                _ if self.entity(id).new => Comes::New,
                Arrival::Woken | Arrival::New => Comes::Wakes,
                Arrival::Changed | Arrival::Moved => Comes::Moves,
            };
            self.add_upwards(id, Some(before).filter(|&before| before != to), comes);
        }
        self.count_tasks(to, 1);
        self.preempt(machine, cpu, id);
    }

    fn dequeue(&mut self, machine: &mut Machine, task: TaskId, departure: Departure) {
        let id = self.task(task);
        let queue = self.entity(id).queue;
        let cpu = self.queue(queue).cpu;
        self.charge(machine, cpu);
        self.track(machine, id, true);
        self.count_tasks(queue, -1);
        self.leave(machine, id, departure == Departure::Blocked);
    }

    fn pick(&mut self, machine: &mut Machine, cpu: CpuId) -> Option<TaskId> {
        self.charge(machine, cpu);
        self.first(machine, cpu).or_else(|| {
            self.pull_idle(machine, cpu);
            self.first(machine, cpu)
        })
    }

    fn put_prev(&mut self, machine: &mut Machine, cpu: CpuId, task: TaskId, next: Next) {
        self.charge(machine, cpu);
        for id in self.upwards(self.task(task)) {
            let entity = &self.entities[id.0 as usize];
            let queue = &mut self.queues[entity.queue.0 as usize];
            queue.current = None;
            queue.last = matches!(next, Next::Ordinary(_)).then_some(id);
            if entity.queued {
                queue.waiting.insert((self.rule.key(entity), id));
            }
        }
        self.cpus[cpu.index()].current = None;
    }

    fn set_next(&mut self, machine: &mut Machine, cpu: CpuId, task: TaskId) {
        let from = self.task(task);
        self.entity(from).charged_ns = machine.task(task).used_ns;
        for id in self.upwards(from) {
            let entity = &mut self.entities[id.0 as usize];
            let queue = &mut self.queues[entity.queue.0 as usize];
            queue.waiting.remove(&(self.rule.key(entity), id));
            queue.current = Some(id);
            if queue.skip == Some(id) {
                queue.skip = None;
            }
            if queue.last.take() != Some(id) {
                entity.ran_before_ns = entity.ran_ns;
                self.rule.starts(entity);
            }
        }
        self.cpus[cpu.index()].current = Some(task);
    }

    fn yielded(&mut self, machine: &mut Machine, cpu: CpuId, task: TaskId) {
        self.charge(machine, cpu);
        let root = self.root(cpu);
        if self.queue(root).tasks == 1 {
            return;
        }
        for id in self.upwards(self.task(task)) {
            let entity = &mut self.entities[id.0 as usize];
            if !self.rule.yields(&mut self.queues[entity.queue.0 as usize], entity, id) {
                return;
            }
        }
    }

    fn tick(&mut self, machine: &mut Machine, cpu: CpuId, task: TaskId) {
        self.charge(machine, cpu);
        let from = self.task(task);
        self.track(machine, from, true);
        self.refresh(from);
        for id in self.upwards(from) {
            let slice_ns = self.slice_ns(cpu, id);
            let queue = &self.queues[self.entities[id.0 as usize].queue.0 as usize];
            if self.rule.tick(queue, &self.entities, id, slice_ns) {
                machine.resched(cpu);
            }
        }
        self.balance(machine, cpu);
    }

    fn idle(&mut self, _: &mut Machine, _: CpuId, _: Idle) {}

    fn timer(&mut self, machine: &mut Machine, _: CpuId, key: u64) {
        self.limit_timer(machine, key);
    }

    fn deferred(&mut self, _: &mut Machine, _: CpuId) {}

    fn hotplug(&mut self, machine: &mut Machine, cpu: CpuId, online: bool) {
        if !online {
            self.unthrottle_all(machine, cpu);
        }
    }
}
