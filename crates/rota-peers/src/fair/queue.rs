//! A CPU's queue of what competes there: tasks, and groups of tasks, each of which is a queue again.

use std::collections::BTreeSet;

use rota_sim::{CgroupId, CpuId, TaskId};

use super::load::Load;

/// The weight of a task or a cgroup of weight 100: the kernel's `NICE_0_LOAD`.
pub const UNIT: u64 = 1 << 20;

/// What competes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct EntityId(pub u32);

/// A queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct QueueId(pub u32);

/// What an entity stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// A task.
    Task(TaskId),
    /// What a group has on one CPU.
    Group(QueueId),
}

/// The kernel's `struct sched_entity`. Virtual times are in ns of an entity of weight [`UNIT`].
#[derive(Clone, Debug)]
pub struct Entity {
    pub what: What,
    /// Where it is queued, or was last.
    pub queue: QueueId,
    pub weight: u64,
    pub vruntime: i64,
    /// EEVDF: when its request has to be served. Relative to `vruntime` while `relative`.
    pub deadline: i64,
    pub relative: bool,
    /// EEVDF: how far it was behind when it left its queue.
    pub lag: i64,
    pub queued: bool,
    /// EEVDF: it sleeps, but stays on the queue until it has what was too much.
    pub delayed: bool,
    /// EEVDF: it runs until it is past this deadline.
    pub until: Option<i64>,
    /// It has never been queued before.
    pub new: bool,
    /// CPU time in all, in ns, and when it was picked last.
    pub ran_ns: u64,
    pub ran_before_ns: u64,
    /// A task's CPU time when it was counted last.
    pub charged_ns: u64,
    /// A task's.
    pub load: Load,
    /// What it adds to its queue's load.
    pub adds: u64,
}

impl Entity {
    /// One that was never queued.
    pub fn new(what: What, queue: QueueId, weight: u64, now_ns: u64) -> Entity {
        Entity {
            what,
            queue,
            weight,
            vruntime: 0,
            deadline: 0,
            relative: false,
            lag: 0,
            queued: false,
            delayed: false,
            until: None,
            new: true,
            ran_ns: 0,
            ran_before_ns: 0,
            charged_ns: 0,
            load: Load::new(now_ns),
            adds: 0,
        }
    }

    /// So much of the entity's time, in virtual time.
    pub fn virtually(&self, ns: u64) -> i64 {
        (u128::from(ns) * u128::from(UNIT) / u128::from(self.weight)) as i64
    }
}

/// The kernel's `struct cfs_rq`.
#[derive(Clone, Debug)]
pub struct Queue {
    pub cpu: CpuId,
    pub cgroup: CgroupId,
    /// What stands for it one level up; `None` for a CPU's first queue.
    pub own: Option<EntityId>,
    /// What runs; it is not in `waiting`.
    pub current: Option<EntityId>,
    /// What ran until now, if something else of the queue is about to.
    pub last: Option<EntityId>,
    /// By the rule's key.
    pub waiting: BTreeSet<(i64, EntityId)>,
    /// Of all that are queued, the running one included.
    pub weight: u64,
    pub count: u32,
    /// Their weights times their virtual times.
    pub weighted: i128,
    /// Only grows; where newcomers are put.
    pub floor: i64,
    /// Runnable tasks in it and in all queues below that are not throttled.
    pub tasks: u32,
    /// What its entities add, lately.
    pub load: u64,
    /// CFS: asked for others to go first.
    pub skip: Option<EntityId>,
    /// What it may run before it has to ask its group again, if that is limited.
    pub runtime_ns: i64,
    pub throttled: bool,
}

impl Queue {
    /// Without anything.
    pub fn new(cpu: CpuId, cgroup: CgroupId, own: Option<EntityId>) -> Queue {
        Queue {
            cpu,
            cgroup,
            own,
            current: None,
            last: None,
            waiting: BTreeSet::new(),
            weight: 0,
            count: 0,
            weighted: 0,
            floor: 0,
            tasks: 0,
            load: 0,
            skip: None,
            runtime_ns: 0,
            throttled: false,
        }
    }

    /// The virtual time at which all would have received the same: the kernel's `avg_vruntime`.
    pub fn average(&self) -> i64 {
        match self.weight {
            0 => self.floor,
            weight => self.weighted.div_euclid(i128::from(weight)) as i64,
        }
    }

    /// Adds `entity` to the sums.
    pub fn add(&mut self, entity: &Entity) {
        self.weight += entity.weight;
        self.count += 1;
        self.weighted += i128::from(entity.weight) * i128::from(entity.vruntime);
    }

    /// Takes `entity` out of the sums.
    pub fn subtract(&mut self, entity: &Entity) {
        self.weight -= entity.weight;
        self.count -= 1;
        self.weighted -= i128::from(entity.weight) * i128::from(entity.vruntime);
    }
}
