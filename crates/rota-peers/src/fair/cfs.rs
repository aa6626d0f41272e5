//! The completely fair scheduler: the kernel's rule up to 6.5 (`kernel/sched/fair.c`, `Documentation/scheduler/
//! sched-design-CFS.rst`). Who has received least goes first; who has slept is put a little before the others.
//!
//! Left out: the buddies that are preferred for their caches (`next`, `last`).

use super::eevdf::scale;
use super::queue::{Entity, EntityId, Queue};
use super::rule::{Comes, Rule, running};

/// In which everybody runs once: `sysctl_sched_latency` of one CPU.
const LATENCY_NS: u64 = 6_000_000;
/// What each runs at least: `sysctl_sched_min_granularity` of one CPU.
const MIN_GRANULARITY_NS: u64 = 750_000;
/// How much less one must have received to preempt: `sysctl_sched_wakeup_granularity` of one CPU.
const WAKEUP_GRANULARITY_NS: u64 = 1_000_000;
/// More than this do not fit into the latency.
const COUNT_MAX: u32 = 8;

/// The rule.
pub struct Cfs {
    latency_ns: u64,
    min_granularity_ns: u64,
    wakeup_granularity_ns: u64,
}

impl Cfs {
    /// How much `entity` is ahead of `other`: above 0 it goes later, above 1 much so.
    fn behind(&self, entity: &Entity, other: &Entity) -> i32 {
        let ahead = entity.vruntime - other.vruntime;
        match ahead {
            ..=0 => -1,
            _ if ahead > other.virtually(self.wakeup_granularity_ns) => 1,
            _ => 0,
        }
    }
}

impl Rule for Cfs {
    fn with_cpus(cpus: u32) -> Cfs {
        let scale = scale(cpus);
        Cfs {
            latency_ns: LATENCY_NS * scale,
            min_granularity_ns: MIN_GRANULARITY_NS * scale,
            wakeup_granularity_ns: WAKEUP_GRANULARITY_NS * scale,
        }
    }

    fn key(&self, entity: &Entity) -> i64 {
        entity.vruntime
    }

    fn place(&self, queue: &Queue, other: Option<&Queue>, entity: &mut Entity, comes: Comes) {
        if let Some(other) = other.filter(|_| comes != Comes::New) {
            entity.vruntime += queue.floor - other.floor;
        }
        let slice = entity.virtually(self.round_ns(queue.count + 1) / u64::from(queue.count + 1));
        match comes {
            Comes::New => entity.vruntime = queue.floor + slice,
            Comes::Wakes => entity.vruntime = entity.vruntime.max(queue.floor - (self.latency_ns / 2) as i64),
            Comes::Moves => {}
        }
    }

    fn leave(&self, _: &Queue, _: &mut Entity, _: bool) {}

    fn stays(&self, _: &Queue, _: &Entity) -> bool {
        false
    }

    fn reweigh(&self, _: &Queue, _: &mut Entity, _: u64) {}

    fn starts(&self, _: &mut Entity) {}

    fn ran(&self, _: &Queue, _: &mut Entity) -> bool {
        false
    }

    fn tick(&self, queue: &Queue, entities: &[Entity], id: EntityId, slice_ns: u64) -> bool {
        let (entity, slice_ns) = (&entities[id.0 as usize], slice_ns.max(self.min_granularity_ns));
        let ran_ns = entity.ran_ns - entity.ran_before_ns;
        let Some(&(first, _)) = queue.waiting.first() else { return false };
        ran_ns > slice_ns
            || ran_ns >= self.min_granularity_ns && entity.vruntime.saturating_sub(first) > slice_ns as i64
    }

    fn round_ns(&self, count: u32) -> u64 {
        self.latency_ns.max(u64::from(count) * self.min_granularity_ns * u64::from(count > COUNT_MAX))
    }

    fn pick(&self, queue: &Queue, entities: &[Entity]) -> Option<EntityId> {
        let of = |id: EntityId| &entities[id.0 as usize];
        let current = running(queue, entities);
        let mut waiting = queue.waiting.iter().map(|&(_, id)| id).take(2);
        let (mut first, mut second) = (waiting.next(), waiting.next());
        if let Some(current) = current {
            if first.is_none_or(|first| of(current).vruntime < of(first).vruntime) {
                (first, second) = (Some(current), first);
            } else if second.is_none_or(|second| of(current).vruntime < of(second).vruntime) {
                second = Some(current);
            }
        }
        match (first, second) {
            (Some(left), Some(second))
                if queue.skip == Some(left) && self.behind(of(second), of(left)) < 1 =>
            {
                Some(second)
            }
            (first, _) => first,
        }
    }

    fn preempts(&self, _: &Queue, entities: &[Entity], running: EntityId, woken: EntityId) -> bool {
        self.behind(&entities[running.0 as usize], &entities[woken.0 as usize]) == 1
    }

    fn yields(&self, queue: &mut Queue, _: &mut Entity, id: EntityId) -> bool {
        queue.skip = Some(id);
        true
    }
}
