//! The tree of each CPU: groups in groups, and tasks in these. What is done to one entity, and to all above it.

use rota_sim::{CgroupId, CpuId, Machine, TaskId};

use super::Fair;
use super::queue::{Entity, EntityId, Queue, QueueId, UNIT, What};
use super::rule::{Comes, Rule};

/// The least weight that a group may have on a CPU.
const WEIGHT_MIN: u64 = 2;

/// A cgroup, over all CPUs.
#[derive(Clone, Debug, Default)]
pub struct Group {
    /// Its weight against its siblings.
    pub shares: u64,
    /// What its queues add up to.
    pub load: u64,
    /// On each CPU; absent until it had a task there.
    pub queues: Vec<Option<QueueId>>,
}

/// As `cpu.weight`, in the kernel's unit.
pub fn weight(of_100: u32) -> u64 {
    (u64::from(of_100) * UNIT / 100).max(WEIGHT_MIN)
}

impl<R: Rule> Fair<R> {
    pub(super) fn entity(&mut self, id: EntityId) -> &mut Entity {
        &mut self.entities[id.0 as usize]
    }

    pub(super) fn queue(&mut self, id: QueueId) -> &mut Queue {
        &mut self.queues[id.0 as usize]
    }

    /// The queue of a CPU that has all others of it.
    pub(super) fn root(&self, cpu: CpuId) -> QueueId {
        self.groups[CgroupId::ROOT.index()].queues[cpu.index()].expect("it was made at the start")
    }

    /// The queue of a cgroup on a CPU, made if it is absent, with all above it.
    pub(super) fn queue_of(&mut self, machine: &Machine, cgroup: CgroupId, cpu: CpuId) -> QueueId {
        if self.groups.len() <= cgroup.index() {
            self.groups.resize(cgroup.index() + 1, Group::default());
        }
        let cpus = machine.nr_cpus() as usize;
        self.groups[cgroup.index()].queues.resize(cpus, None);
        if let Some(queue) = self.groups[cgroup.index()].queues[cpu.index()] {
            return queue;
        }
        let of = *machine.cgroup(cgroup);
        self.groups[cgroup.index()].shares = weight(of.weight);
        let above = of.parent.map(|parent| self.queue_of(machine, parent, cpu));
        let id = QueueId(self.queues.len() as u32);
        let own = above.map(|above| {
            let entity = Entity::new(What::Group(id), above, weight(of.weight), machine.now_ns());
            self.entities.push(entity);
            EntityId(self.entities.len() as u32 - 1)
        });
        self.queues.push(Queue::new(cpu, cgroup, own));
        self.groups[cgroup.index()].queues[cpu.index()] = Some(id);
        id
    }

    /// The entity and all that stand for it above, from below.
    pub(super) fn upwards(&self, from: EntityId) -> impl Iterator<Item = EntityId> + use<R> {
        let mut path = [from; DEPTH_MAX];
        let mut depth = 1;
        let mut queue = self.entities[from.0 as usize].queue;
        while let Some(own) = self.queues[queue.0 as usize].own {
            assert!(depth < DEPTH_MAX, "cgroups are nested in at most {DEPTH_MAX} levels");
            path[depth] = own;
            depth += 1;
            queue = self.entities[own.0 as usize].queue;
        }
        path.into_iter().take(depth)
    }

    /// Puts an entity onto its queue.
    fn add(&mut self, id: EntityId, other: Option<QueueId>, comes: Comes) {
        let entity = &mut self.entities[id.0 as usize];
        let other = other.map(|other| &self.queues[other.0 as usize]);
        self.rule.place(&self.queues[entity.queue.0 as usize], other, entity, comes);
        entity.queued = true;
        entity.new = false;
        let queue = &mut self.queues[entity.queue.0 as usize];
        queue.add(entity);
        if queue.current != Some(id) {
            queue.waiting.insert((self.rule.key(entity), id));
        }
    }

    /// Takes an entity off its queue; false if it stays for a while, although it sleeps.
    fn remove(&mut self, id: EntityId, sleeps: bool) -> bool {
        let entity = &mut self.entities[id.0 as usize];
        let queue = &mut self.queues[entity.queue.0 as usize];
        if sleeps && !entity.delayed && self.rule.stays(queue, entity) {
            entity.delayed = true;
            return false;
        }
        if queue.current != Some(id) {
            queue.waiting.remove(&(self.rule.key(entity), id));
        }
        self.rule.leave(queue, entity, sleeps);
        entity.queued = false;
        entity.delayed = false;
        queue.subtract(entity);
        if queue.skip == Some(id) {
            queue.skip = None;
        }
        if queue.count == 0 {
            queue.floor = queue.floor.max(entity.vruntime);
        }
        let queue = entity.queue;
        self.raise_floor(queue);
        true
    }

    /// Has the place where newcomers are put follow those who have received least.
    pub(super) fn raise_floor(&mut self, id: QueueId) {
        let queue = &self.queues[id.0 as usize];
        let of = |id: EntityId| &self.entities[id.0 as usize];
        let current = queue.current.map(of).filter(|current| current.queued).map(|current| current.vruntime);
        let first = queue.waiting.first().map(|&(_, id)| of(id).vruntime);
        let least = match (current, first) {
            (Some(current), Some(first)) => Some(current.min(first)),
            (current, first) => current.or(first),
        };
        let queue = self.queue(id);
        queue.floor = queue.floor.max(least.unwrap_or(queue.floor));
    }

    /// Queues an entity, and what stands for it above as far as that was not queued.
    pub(super) fn add_upwards(&mut self, from: EntityId, other: Option<QueueId>, comes: Comes) {
        for id in self.upwards(from) {
            if self.entity(id).queued {
                self.resume(id);
                break;
            }
            match id == from {
                true => self.add(id, other, comes),
                false => self.add(id, None, Comes::Wakes),
            }
            let queue = self.entity(id).queue;
            if self.queue(queue).throttled {
                break;
            }
        }
        self.refresh(from);
    }

    /// An entity that stayed although it slept is awake again. It keeps what it had too much, not what it had too
    /// little.
    pub(super) fn resume(&mut self, id: EntityId) {
        let entity = &mut self.entities[id.0 as usize];
        if !entity.delayed {
            return;
        }
        if self.rule.stays(&self.queues[entity.queue.0 as usize], entity) {
            entity.delayed = false;
            return;
        }
        self.remove(id, true);
        self.add(id, None, Comes::Wakes);
    }

    /// Takes an entity off its queue, and what stands for it above as far as nothing else is left there.
    pub(super) fn remove_upwards(&mut self, from: EntityId, sleeps: bool) {
        for id in self.upwards(from) {
            if !self.entity(id).queued || !self.remove(id, sleeps) {
                break;
            }
            let queue = self.entity(id).queue;
            if self.queue(queue).count > 0 {
                break;
            }
        }
        self.refresh(from);
    }

    /// So many more or fewer runnable tasks in a queue and those above it, up to one that is throttled.
    pub(super) fn count_tasks(&mut self, mut id: QueueId, more: i64) {
        loop {
            let queue = &mut self.queues[id.0 as usize];
            queue.tasks = queue.tasks.checked_add_signed(more as i32).expect("as many come as go");
            let own = queue.own.filter(|_| !queue.throttled);
            let Some(own) = own else { return };
            id = self.entities[own.0 as usize].queue;
        }
    }

    /// Counts the time of what runs on a CPU up to now. It may ask the CPU to decide anew.
    pub(super) fn charge(&mut self, machine: &mut Machine, cpu: CpuId) {
        let Some(task) = self.cpus[cpu.index()].current else { return };
        machine.settle(cpu);
        let used_ns = machine.task(task).used_ns;
        let from = self.tasks[task.index()].expect("a task that runs has come");
        let ran_ns = used_ns - std::mem::replace(&mut self.entity(from).charged_ns, used_ns);
        if ran_ns == 0 {
            return;
        }
        for id in self.upwards(from) {
            let entity = &mut self.entities[id.0 as usize];
            let queue = &mut self.queues[entity.queue.0 as usize];
            let virtually = entity.virtually(ran_ns);
            entity.ran_ns += ran_ns;
            entity.vruntime += virtually;
            if entity.queued {
                queue.weighted += i128::from(virtually) * i128::from(entity.weight);
                if self.rule.ran(queue, entity) {
                    machine.resched(cpu);
                }
            }
            let queue = entity.queue;
            self.raise_floor(queue);
            self.use_up(machine, queue, ran_ns);
        }
    }

    /// Weights and loads above an entity, after something there has changed.
    pub(super) fn refresh(&mut self, from: EntityId) {
        for id in self.upwards(from) {
            if let What::Group(of) = self.entities[id.0 as usize].what {
                let (weight, adds) = self.share(of);
                if self.queue(of).weight > 0 {
                    self.reweigh(id, weight); // an empty one keeps what it had
                }
                self.set_adds(id, adds);
            }
        }
    }

    /// What of a group's weight falls to one of its queues, and what that adds to the load one level up
    /// (`calc_group_shares`).
    fn share(&self, id: QueueId) -> (u64, u64) {
        let queue = &self.queues[id.0 as usize];
        let group = &self.groups[queue.cgroup.index()];
        let here = queue.load.max(queue.weight);
        let everywhere = (group.load - queue.load + here).max(1);
        let of =
            |part: u64, whole: u64| (u128::from(group.shares) * u128::from(part) / u128::from(whole)) as u64;
        let weight = of(here, everywhere).clamp(WEIGHT_MIN, group.shares);
        (weight, of(queue.load, group.load.max(1)))
    }

    fn reweigh(&mut self, id: EntityId, weight: u64) {
        let entity = &mut self.entities[id.0 as usize];
        if entity.weight == weight {
            return;
        }
        if !entity.queued {
            entity.weight = weight;
            return;
        }
        let queue = &mut self.queues[entity.queue.0 as usize];
        let waits = queue.current != Some(id);
        if waits {
            queue.waiting.remove(&(self.rule.key(entity), id));
        }
        let before = entity.clone();
        self.rule.reweigh(queue, entity, weight);
        queue.subtract(&before);
        entity.weight = weight;
        queue.add(entity);
        if waits {
            queue.waiting.insert((self.rule.key(entity), id));
        }
    }

    /// What an entity adds to its queue's load from now on.
    pub(super) fn set_adds(&mut self, id: EntityId, adds: u64) {
        let entity = &mut self.entities[id.0 as usize];
        let before = std::mem::replace(&mut entity.adds, adds);
        let queue = &mut self.queues[entity.queue.0 as usize];
        queue.load = queue.load + adds - before;
        let group = &mut self.groups[queue.cgroup.index()];
        group.load = group.load + adds - before;
    }

    /// Counts a task's load up to now: it was runnable since the last time, or was not.
    pub(super) fn track(&mut self, machine: &Machine, id: EntityId, runnable: bool) {
        let entity = self.entity(id);
        entity.load.count(machine.now_ns(), runnable);
        let adds = (u128::from(entity.weight) * u128::from(entity.load.part()))
            / u128::from(super::load::Load::WHOLE);
        self.set_adds(id, adds as u64);
    }

    /// What a task adds to its CPU's load (`task_h_load`).
    pub(super) fn load_of(&self, task: TaskId) -> u64 {
        let Some(from) = self.tasks.get(task.index()).copied().flatten() else { return 0 };
        let mut load = u128::from(self.entities[from.0 as usize].adds);
        for id in self.upwards(from) {
            if let What::Group(of) = self.entities[id.0 as usize].what {
                let within = self.queues[of.0 as usize].load.max(1);
                load = load * u128::from(self.entities[id.0 as usize].adds) / u128::from(within);
            }
        }
        load as u64
    }
}

/// Levels of cgroups, tasks and the root included.
const DEPTH_MAX: usize = 8;
