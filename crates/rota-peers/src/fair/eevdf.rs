//! Earliest eligible virtual deadline first: the kernel's rule since 6.6, as of 6.12 (`kernel/sched/fair.c`; Stoica and
//! Abdel-Wahab, *Earliest eligible virtual deadline first*, Old Dominion University, 1995).
//!
//! Who has received at most as much as the average is eligible; among these the earliest virtual deadline goes first. A
//! deadline lies a slice, over its weight, behind the start of a request. All slices are of one length, so that there
//! is no preemption by shorter ones.

use super::queue::{Entity, EntityId, Queue};
use super::rule::{Comes, Rule, running};

/// The slice of a machine with one CPU: `sysctl_sched_base_slice`, as of 6.15.
const BASE_SLICE_NS: u64 = 700_000;
/// How far behind or ahead one may be when it leaves, at least: a tick.
const LAG_TICK_NS: u64 = 4_000_000;

/// The rule.
pub struct Eevdf {
    slice_ns: u64,
}

/// What parameters are multiplied by on a machine with so many CPUs: `SCHED_TUNABLESCALING_LOG`.
pub fn scale(cpus: u32) -> u64 {
    1 + u64::from(cpus.clamp(1, 8).ilog2())
}

/// Whether the entity has received at most as much as the average; exactly, without a division.
fn eligible(queue: &Queue, entity: &Entity) -> bool {
    queue.weighted >= i128::from(entity.vruntime) * i128::from(queue.weight)
}

impl Eevdf {
    fn lag(&self, queue: &Queue, entity: &Entity) -> i64 {
        let most = entity.virtually(LAG_TICK_NS.max(2 * self.slice_ns));
        (queue.average() - entity.vruntime).clamp(-most, most)
    }
}

impl Rule for Eevdf {
    fn with_cpus(cpus: u32) -> Eevdf {
        Eevdf { slice_ns: BASE_SLICE_NS * scale(cpus) }
    }

    fn key(&self, entity: &Entity) -> i64 {
        entity.deadline
    }

    fn place(&self, queue: &Queue, _: Option<&Queue>, entity: &mut Entity, comes: Comes) {
        // Its weight moves the average towards it: the lag is scaled so that it is the same afterwards.
        let lag = match queue.weight {
            0 => 0,
            weight => i128::from(entity.lag) * i128::from(weight + entity.weight) / i128::from(weight),
        };
        entity.vruntime = queue.average() - lag as i64;
        if std::mem::take(&mut entity.relative) {
            entity.deadline += entity.vruntime;
            return;
        }
        let slice = entity.virtually(self.slice_ns);
        entity.deadline = entity.vruntime + if comes == Comes::New { slice / 2 } else { slice };
    }

    fn leave(&self, queue: &Queue, entity: &mut Entity, sleeps: bool) {
        entity.lag = self.lag(queue, entity);
        entity.until = None;
        if entity.delayed {
            entity.lag = entity.lag.min(0);
        }
        if !sleeps && !entity.delayed {
            entity.deadline -= entity.vruntime;
            entity.relative = true;
        }
    }

    fn stays(&self, queue: &Queue, entity: &Entity) -> bool {
        !eligible(queue, entity)
    }

    fn reweigh(&self, queue: &Queue, entity: &mut Entity, weight: u64) {
        let average = queue.average();
        let scaled = |from: i64| {
            let scaled = i128::from(from - average) * i128::from(entity.weight) / i128::from(weight);
            average + scaled as i64
        };
        let deadline = scaled(entity.deadline);
        if entity.until == Some(entity.deadline) {
            entity.until = Some(deadline);
        }
        entity.vruntime = scaled(entity.vruntime);
        entity.deadline = deadline;
    }

    fn starts(&self, entity: &mut Entity) {
        entity.until = Some(entity.deadline);
    }

    fn ran(&self, queue: &Queue, entity: &mut Entity) -> bool {
        if entity.vruntime < entity.deadline {
            return false;
        }
        entity.deadline = entity.vruntime + entity.virtually(self.slice_ns);
        queue.count > 1
    }

    fn tick(&self, _: &Queue, _: &[Entity], _: EntityId, _: u64) -> bool {
        false // it is asked for when a request is served: see `ran`
    }

    fn round_ns(&self, _: u32) -> u64 {
        self.slice_ns
    }

    fn pick(&self, queue: &Queue, entities: &[Entity]) -> Option<EntityId> {
        let of = |id: EntityId| &entities[id.0 as usize];
        let current = running(queue, entities).filter(|&id| queue.count == 1 || eligible(queue, of(id)));
        if let Some(current) = current.filter(|&id| of(id).until == Some(of(id).deadline)) {
            return Some(current);
        }
        let first = queue.waiting.iter().map(|&(_, id)| id).find(|&id| eligible(queue, of(id)));
        match (current, first) {
            (Some(current), Some(first)) if of(current).deadline < of(first).deadline => Some(current),
            (_, Some(first)) => Some(first),
            (Some(current), None) => Some(current),
            // Rounding can leave nobody eligible.
            (None, None) => queue.waiting.first().map(|&(_, id)| id).or(running(queue, entities)),
        }
    }

    fn preempts(&self, queue: &Queue, entities: &[Entity], _: EntityId, woken: EntityId) -> bool {
        self.pick(queue, entities) == Some(woken)
    }

    fn yields(&self, _: &mut Queue, entity: &mut Entity, _: EntityId) -> bool {
        entity.deadline += entity.virtually(self.slice_ns);
        entity.until = None;
        false
    }
}
