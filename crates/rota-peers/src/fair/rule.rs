//! What differs between EEVDF and CFS: who of a queue goes first, and where one who comes is put.

use super::queue::{Entity, EntityId, Queue};

/// How an entity comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comes {
    /// It is new.
    New,
    /// It was asleep.
    Wakes,
    /// It was queued elsewhere.
    Moves,
}

/// The rules for one queue. Entities are those of all queues, by [`EntityId`].
pub trait Rule {
    /// With the kernel's parameters for so many CPUs.
    fn with_cpus(cpus: u32) -> Self;

    /// What waiting entities are sorted by.
    fn key(&self, entity: &Entity) -> i64;

    /// Sets the entity's virtual times as it comes onto the queue. `other` is its queue before, if that was another.
    fn place(&self, queue: &Queue, other: Option<&Queue>, entity: &mut Entity, comes: Comes);

    /// The entity leaves the queue, whose sums still have it.
    fn leave(&self, queue: &Queue, entity: &mut Entity, sleeps: bool);

    /// Whether an entity that sleeps stays on the queue for a while.
    fn stays(&self, queue: &Queue, entity: &Entity) -> bool;

    /// The entity's weight changes; the queue's sums still have it.
    fn reweigh(&self, queue: &Queue, entity: &mut Entity, weight: u64);

    /// The entity runs from now on.
    fn starts(&self, entity: &mut Entity);

    /// The running entity's time was counted. Whether others should be asked.
    fn ran(&self, queue: &Queue, entity: &mut Entity) -> bool;

    /// A tick while the entity runs, which is due `slice_ns` at a time. Whether others should be asked.
    fn tick(&self, queue: &Queue, entities: &[Entity], running: EntityId, slice_ns: u64) -> bool;

    /// How long a queue with so many goes round, in ns, for [`Rule::tick`].
    fn round_ns(&self, count: u32) -> u64;

    /// Who goes first, the running one included.
    fn pick(&self, queue: &Queue, entities: &[Entity]) -> Option<EntityId>;

    /// Whether `woken` goes before `running` at once.
    fn preempts(&self, queue: &Queue, entities: &[Entity], running: EntityId, woken: EntityId) -> bool;

    /// The running entity asks for others to go first. Whether those above it do so too.
    fn yields(&self, queue: &mut Queue, entity: &mut Entity, id: EntityId) -> bool;
}

/// The running entity of a queue, if it is queued still.
pub fn running(queue: &Queue, entities: &[Entity]) -> Option<EntityId> {
    queue.current.filter(|current| entities[current.0 as usize].queued)
}
