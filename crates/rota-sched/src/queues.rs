//! Which queue numbers are in use: a tenant's queues are consecutive.

use std::collections::BTreeSet;

/// The numbers below a limit, taken and free.
pub struct QueueNumbers {
    limit: u32,
    taken: BTreeSet<u32>,
    /// Given back, and a thread may still come there.
    left: BTreeSet<u32>,
}

impl QueueNumbers {
    /// All of `0..limit` free.
    pub fn new(limit: u32) -> QueueNumbers {
        QueueNumbers { limit, taken: BTreeSet::new(), left: BTreeSet::new() }
    }

    /// Takes the first `count` consecutive free numbers of which none is `busy`, and returns the first of them.
    pub fn take(&mut self, count: u32, busy: impl Fn(u32) -> bool) -> Option<u32> {
        let mut first: u32 = 0;
        while first.checked_add(count)? <= self.limit {
            match (first..first + count).rev().find(|number| self.taken.contains(number) || busy(*number)) {
                Some(obstacle) => first = obstacle + 1,
                None => {
                    self.taken.extend(first..first + count);
                    return Some(first);
                }
            }
        }
        None
    }

    /// Takes these numbers; false, and nothing is taken, if one is taken or beyond the limit.
    pub fn take_these(&mut self, first: u32, count: u32) -> bool {
        let Some(end) = first.checked_add(count).filter(|end| *end <= self.limit) else { return false };
        let are_free = (first..end).all(|number| !self.taken.contains(&number));
        if are_free {
            self.taken.extend(first..end);
        }
        are_free
    }

    /// Those that nobody has and that are `busy` were given back, and a thread may still come there.
    pub fn remember_left(&mut self, busy: impl Fn(u32) -> bool) {
        let left = (0..self.limit).filter(|number| !self.taken.contains(number) && busy(*number));
        self.left = left.collect();
    }

    /// Gives numbers back.
    pub fn free(&mut self, first: u32, count: u32) {
        for number in first..first + count {
            assert!(self.taken.remove(&number), "queue {number} was not in use");
            self.left.insert(number);
        }
    }

    /// No thread comes any more to those that were given back, but for those that are `busy`. Whether that is all.
    pub fn forget_left(&mut self, busy: impl Fn(u32) -> bool) -> bool {
        self.left.retain(|number| !self.taken.contains(number) && busy(*number));
        self.left.is_empty()
    }

    /// The numbers in which threads may wait, ascending: those in use, and those given back and not forgotten.
    pub fn waited_in(&self) -> Vec<u32> {
        self.taken.union(&self.left).copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_consecutive_and_reused() {
        let mut numbers = QueueNumbers::new(6);
        assert_eq!(numbers.take(2, |_| false), Some(0));
        assert_eq!(numbers.take(3, |_| false), Some(2));
        assert_eq!(numbers.take(2, |_| false), None);
        numbers.free(0, 2);
        assert_eq!(numbers.waited_in(), [0, 1, 2, 3, 4]);
        assert!(!numbers.forget_left(|number| number == 1));
        assert_eq!(numbers.waited_in(), [1, 2, 3, 4]);
        assert!(numbers.forget_left(|_| false));
        assert_eq!(numbers.waited_in(), [2, 3, 4]);
        assert_eq!(numbers.take(1, |number| number == 0), Some(1));
        assert_eq!(numbers.take(1, |_| false), Some(0));
        assert_eq!(numbers.waited_in(), [0, 1, 2, 3, 4]);
    }

    #[test]
    fn numbers_are_found_as_they_were_left() {
        let mut numbers = QueueNumbers::new(6);
        assert!(numbers.take_these(0, 2));
        assert!(!numbers.take_these(1, 2) && !numbers.take_these(5, 2) && !numbers.take_these(u32::MAX, 2));
        numbers.remember_left(|number| number % 2 == 1);
        assert_eq!(numbers.waited_in(), [0, 1, 3, 5]);
        assert_eq!(numbers.take(4, |_| false), Some(2));
    }
}
