//! What is due when: a heap in which each thing that can happen has one place, so that setting it anew or calling it
//! off leaves nothing behind.

/// A thing that can happen, once at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot(u32);

impl Slot {
    /// Its number.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// How many bits of an entry's rank are the slot; the others are the order of setting.
const SLOT_BITS: u32 = 24;
/// Children of a node.
const WIDTH: usize = 4;
/// The place of a slot that is not set.
const NOWHERE: u32 = u32::MAX;

/// A time in ns, then a rank: order of setting, then slot. What is set first for the same time happens first. As one
/// number, which is compared without a branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Entry(u128);

impl Entry {
    /// Before all others: what was here has been taken.
    const TAKEN: Entry = Entry(0);
    /// After all others: nothing is here.
    const NONE: Entry = Entry(u128::MAX);

    fn new(time_ns: u64, order: u64, slot: Slot) -> Entry {
        Entry(u128::from(time_ns) << 64 | u128::from(order << SLOT_BITS | u64::from(slot.0)))
    }

    fn time_ns(self) -> u64 {
        (self.0 >> 64) as u64
    }

    fn slot(self) -> usize {
        self.0 as usize & ((1 << SLOT_BITS) - 1)
    }
}

/// Nodes with one parent, in a cache line of their own. Those beyond the end of the heap are [`Entry::NONE`].
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Siblings([Entry; WIDTH]);

/// The place of the root: the last one of its line, so that its children begin the next one.
const ROOT: usize = WIDTH - 1;

/// The heap.
#[derive(Debug)]
pub struct EventQueue {
    heap: Vec<Siblings>,
    /// The place after the last one.
    end: usize,
    /// What was first has been taken, and its place holds [`Entry::TAKEN`]: what is set next may have it. Mostly
    /// something is set when something has happened, which saves filling the place from the end of the heap.
    hole: bool,
    places: Vec<u32>,
    free: Vec<Slot>,
    order: u64,
}

impl Default for EventQueue {
    fn default() -> EventQueue {
        let heap = vec![Siblings([Entry::NONE; WIDTH])];
        EventQueue { heap, end: ROOT, hole: false, places: Vec::new(), free: Vec::new(), order: 0 }
    }
}

impl EventQueue {
    /// A slot, not set.
    pub fn add(&mut self) -> Slot {
        self.free.pop().unwrap_or_else(|| {
            assert!(self.places.len() < 1 << SLOT_BITS, "more than {} events at once", 1 << SLOT_BITS);
            self.places.push(NOWHERE);
            Slot(self.places.len() as u32 - 1)
        })
    }

    /// Gives a slot back.
    pub fn remove(&mut self, slot: Slot) {
        self.cancel(slot);
        self.free.push(slot);
    }

    /// Has `slot` happen at `time_ns`, and no more when it was to happen before.
    pub fn set(&mut self, slot: Slot, time_ns: u64) {
        self.order += 1;
        assert!(self.order < 1 << (64 - SLOT_BITS), "more events in one run than can be numbered");
        let entry = Entry::new(time_ns, self.order, slot);
        match self.places[slot.0 as usize] {
            NOWHERE if std::mem::take(&mut self.hole) => self.sink(ROOT, entry),
            NOWHERE => {
                self.end += 1;
                if self.end > self.heap.len() * WIDTH {
                    self.heap.push(Siblings([Entry::NONE; WIDTH]));
                }
                self.rise(self.end - 1, entry);
            }
            place => self.settle(place as usize, entry),
        }
    }

    /// Calls `slot` off.
    pub fn cancel(&mut self, slot: Slot) {
        let place = self.places[slot.0 as usize];
        if place != NOWHERE {
            self.places[slot.0 as usize] = NOWHERE;
            self.fill(place as usize);
        }
    }

    /// All slots.
    pub fn slots(&self) -> impl Iterator<Item = Slot> + use<> {
        (0..self.places.len() as u32).map(Slot)
    }

    /// When `slot` happens; `None` if it is not set.
    pub fn time_of(&self, slot: Slot) -> Option<u64> {
        let place = self.places[slot.0 as usize];
        (place != NOWHERE).then(|| self.at(place as usize).time_ns())
    }

    /// Takes what happens next, if it does so by `until_ns`.
    pub fn pop(&mut self, until_ns: u64) -> Option<(u64, Slot)> {
        if std::mem::take(&mut self.hole) {
            self.fill(ROOT);
        }
        let first = self.at(ROOT);
        if self.end == ROOT || first.time_ns() > until_ns {
            return None;
        }
        self.places[first.slot()] = NOWHERE;
        self.hole = true;
        *self.at_mut(ROOT) = Entry::TAKEN;
        Some((first.time_ns(), Slot(first.slot() as u32)))
    }

    /// What happens next after what was popped last, unless something is set meanwhile; cheap, and perhaps wrong.
    pub fn foreseen(&self) -> Option<Slot> {
        let (_, first) = self.least_child(ROOT)?;
        (first != Entry::NONE).then(|| Slot(first.slot() as u32))
    }

    /// What is at `place` no longer is: the last one gets it, or wherever below or above it belongs.
    fn fill(&mut self, place: usize) {
        self.end -= 1;
        let last = std::mem::replace(self.at_mut(self.end), Entry::NONE);
        if place < self.end {
            self.settle(place, last);
        }
    }

    fn at(&self, place: usize) -> Entry {
        self.heap[place / WIDTH].0[place % WIDTH]
    }

    fn at_mut(&mut self, place: usize) -> &mut Entry {
        &mut self.heap[place / WIDTH].0[place % WIDTH]
    }

    /// Puts `entry` at `place` or wherever below or above it belongs.
    fn settle(&mut self, place: usize, entry: Entry) {
        if place > ROOT && entry < self.at(parent(place)) {
            self.rise(place, entry);
        } else {
            self.sink(place, entry);
        }
    }

    fn put(&mut self, place: usize, entry: Entry) {
        *self.at_mut(place) = entry;
        self.places[entry.slot()] = place as u32;
    }

    fn rise(&mut self, mut place: usize, entry: Entry) {
        while place > ROOT {
            let above = self.at(parent(place));
            if above < entry {
                break;
            }
            self.put(place, above);
            place = parent(place);
        }
        self.put(place, entry);
    }

    fn sink(&mut self, mut place: usize, entry: Entry) {
        while let Some((least, child)) = self.least_child(place)
            && child < entry
        {
            self.put(place, child);
            place = least;
        }
        self.put(place, entry);
    }

    /// The child of a node that happens first, and its place; [`Entry::NONE`] if it has none in its line. Which one
    /// that is nobody can foretell, a processor neither: so it is found without a branch.
    fn least_child(&self, place: usize) -> Option<(usize, Entry)> {
        let line = place + 1 - ROOT;
        let Siblings([a, b, c, d]) = *self.heap.get(line)?;
        let (left, right) = (a.min(b), c.min(d));
        let (of_left, of_right, is_right) =
            (usize::from(b < a), usize::from(d < c), usize::from(right < left));
        let within = of_left ^ ((of_left ^ of_right) & is_right.wrapping_neg());
        Some((line * WIDTH + 2 * is_right + within, left.min(right)))
    }
}

fn parent(place: usize) -> usize {
    place / WIDTH - 1 + ROOT
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    #[test]
    fn first_set_is_first_among_equals() {
        let mut queue = EventQueue::default();
        let slots: Vec<Slot> = (0..3).map(|_| queue.add()).collect();
        for &slot in &slots {
            queue.set(slot, 5);
        }
        queue.set(slots[0], 5);
        let order: Vec<Slot> = std::iter::from_fn(|| queue.pop(5)).map(|(_, slot)| slot).collect();
        assert_eq!(order, [slots[1], slots[2], slots[0]]);
    }

    #[test]
    fn nothing_is_taken_before_its_time() {
        let mut queue = EventQueue::default();
        let slot = queue.add();
        queue.set(slot, 10);
        assert_eq!(queue.pop(9), None);
        assert_eq!(queue.time_of(slot), Some(10));
        assert_eq!(queue.pop(10), Some((10, slot)));
        assert_eq!(queue.time_of(slot), None);
    }

    proptest! {
        /// Against an ordered map of (time, order of setting).
        #[test]
        fn is_a_sorted_list(commands in prop::collection::vec((0..20usize, 0..4u8, 0..50u64), 1..400)) {
            let mut queue = EventQueue::default();
            let slots: Vec<Slot> = (0..20).map(|_| queue.add()).collect();
            let mut model: BTreeMap<(u64, usize), usize> = BTreeMap::new();
            for (order, (slot, command, time)) in commands.into_iter().enumerate() {
                match command {
                    0 => {
                        let first = model.first_key_value().map(|(key, slot)| (*key, *slot));
                        let first = first.filter(|((due, _), _)| *due <= time);
                        prop_assert_eq!(queue.pop(time), first.map(|((due, _), slot)| (due, slots[slot])));
                        first.map(|(key, _)| model.remove(&key));
                    }
                    1 => {
                        queue.cancel(slots[slot]);
                        model.retain(|_, other| *other != slot);
                    }
                    _ => {
                        queue.set(slots[slot], time);
                        model.retain(|_, other| *other != slot);
                        model.insert((time, order), slot);
                    }
                }
            }
        }
    }
}
