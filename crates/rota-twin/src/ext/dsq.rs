//! Dispatch queues: first in, first out, or by virtual time.

use std::collections::VecDeque;

use rota_sim::TaskId;

/// A task in a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    pub task: TaskId,
    pub vtime: u64,
    /// The order in which tasks came into this queue.
    pub sequence: u64,
}

/// A queue.
#[derive(Debug, Default)]
pub struct Dsq {
    waiting: VecDeque<Waiting>,
    sequence: u64,
    by_vtime: bool,
}

/// Wrapping, as the kernel's `time_before64`.
fn before(a: u64, b: u64) -> bool {
    (a.wrapping_sub(b) as i64) < 0
}

impl Dsq {
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    pub fn get(&self, place: usize) -> Option<Waiting> {
        self.waiting.get(place).copied()
    }

    /// Whether the task waits in one of so many first places.
    pub fn is_before(&self, task: TaskId, place: usize) -> bool {
        self.waiting.iter().take(place).any(|waiting| waiting.task == task)
    }

    pub fn first(&self) -> Option<TaskId> {
        self.waiting.front().map(|waiting| waiting.task)
    }

    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Adds a task at the end, or at the head. False if the queue is one by virtual time.
    pub fn push(&mut self, task: TaskId, first: bool) -> bool {
        self.sequence += 1;
        let waiting = Waiting { task, vtime: 0, sequence: self.sequence };
        let fits = self.waiting.is_empty() || !self.by_vtime;
        self.by_vtime = false;
        if first {
            self.waiting.push_front(waiting)
        } else {
            self.waiting.push_back(waiting)
        }
        fits
    }

    /// Adds a task after those of the same virtual time. False if the queue is one by order of arrival.
    pub fn push_by_vtime(&mut self, task: TaskId, vtime: u64) -> bool {
        self.sequence += 1;
        let fits = self.waiting.is_empty() || self.by_vtime;
        self.by_vtime = true;
        let waiting = Waiting { task, vtime, sequence: self.sequence };
        match self.waiting.back() {
            Some(last) if before(vtime, last.vtime) => {
                let place = self.waiting.partition_point(|other| !before(vtime, other.vtime));
                self.waiting.insert(place, waiting);
            }
            _ => self.waiting.push_back(waiting),
        }
        fits
    }

    /// Takes the task at `place` out.
    pub fn take(&mut self, place: usize) -> Option<TaskId> {
        let waiting = if place == 0 { self.waiting.pop_front() } else { self.waiting.remove(place) };
        waiting.map(|waiting| waiting.task)
    }

    /// Takes a task out, wherever it is.
    pub fn remove(&mut self, task: TaskId) -> bool {
        let place = self.waiting.iter().position(|waiting| waiting.task == task);
        place.and_then(|place| self.take(place)).is_some()
    }
}

/// Where each queue is, by its number: the upper half says of which kind it is and the lower which one, both small, so
/// that those of neighbours lie side by side.
#[derive(Debug, Default)]
pub struct Places {
    kinds: Vec<Vec<Option<u32>>>,
}

impl Places {
    /// The place of the queue with that number.
    pub fn get(&self, id: u64) -> Option<u32> {
        self.kinds.get((id >> 32) as usize)?.get(id as u32 as usize).copied().flatten()
    }

    /// Gives a queue a place.
    pub fn set(&mut self, id: u64, place: u32) {
        let (kind, which) = ((id >> 32) as usize, id as u32 as usize);
        assert!(
            kind < 1 << 8 && which < 1 << 24,
            "the model has no room for a queue with the number {id:#x}"
        );
        self.kinds.resize(self.kinds.len().max(kind + 1), Vec::new());
        let places = &mut self.kinds[kind];
        places.resize(places.len().max(which + 1), None);
        places[which] = Some(place);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tasks(dsq: &Dsq) -> Vec<u32> {
        (0..dsq.len()).filter_map(|place| dsq.get(place)).map(|waiting| waiting.task.0).collect()
    }

    #[test]
    fn fifo_keeps_order_but_for_the_head() {
        let mut dsq = Dsq::default();
        assert!(dsq.push(TaskId(1), false) && dsq.push(TaskId(2), false) && dsq.push(TaskId(3), true));
        assert_eq!(tasks(&dsq), [3, 1, 2]);
        assert!(dsq.remove(TaskId(1)) && !dsq.remove(TaskId(1)));
        assert_eq!(tasks(&dsq), [3, 2]);
    }

    #[test]
    fn virtual_time_orders_across_its_wrap() {
        let mut dsq = Dsq::default();
        for (task, vtime) in [(1, 5), (2, u64::MAX), (3, 5), (4, 0)] {
            assert!(dsq.push_by_vtime(TaskId(task), vtime));
        }
        assert_eq!(tasks(&dsq), [2, 4, 1, 3]);
    }

    #[test]
    fn a_queue_is_of_one_kind() {
        let mut dsq = Dsq::default();
        assert!(dsq.push(TaskId(1), false) && !dsq.push_by_vtime(TaskId(2), 0));
        let mut dsq = Dsq::default();
        assert!(dsq.push_by_vtime(TaskId(1), 0) && !dsq.push(TaskId(2), false));
        dsq.take(0);
        dsq.take(0);
        assert!(dsq.push(TaskId(1), false), "an empty queue may become one of the other kind");
    }
}
