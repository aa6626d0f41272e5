//! What the processor counts of a tenant's threads while they run.

use serde::Serialize;

/// What was counted while a tenant's threads ran.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counted {
    /// Cycles of the processor.
    pub cycles: u64,
    /// Instructions that were completed.
    pub instructions: u64,
    /// Misses of the last-level cache; nothing if the processor does not count them.
    pub misses: Option<u64>,
    /// Cycles in which nothing was executed for want of memory, of so many; nothing if the processor does not count
    /// them.
    pub stalled: Option<(u64, u64)>,
}

impl Counted {
    /// What came after `before`.
    #[must_use]
    pub fn since(&self, before: &Counted) -> Counted {
        let grown = |now: u64, then: u64| now.saturating_sub(then);
        Counted {
            cycles: grown(self.cycles, before.cycles),
            instructions: grown(self.instructions, before.instructions),
            misses: self.misses.zip(before.misses).map(|(now, then)| grown(now, then)),
            stalled: self
                .stalled
                .zip(before.stalled)
                .map(|(now, then)| (grown(now.0, then.0), grown(now.1, then.1))),
        }
    }

    /// The part of the time in which threads ran that they waited for memory.
    pub fn stalled_part(&self) -> Option<f64> {
        let (stalled, cycles) = self.stalled?;
        Some(stalled as f64 / cycles.max(1) as f64).map(|part| part.min(1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_came_between_is_what_has_grown() {
        let then = Counted { cycles: 10, instructions: 5, misses: Some(1), stalled: Some((2, 10)) };
        let now = Counted { cycles: 110, instructions: 55, misses: Some(4), stalled: Some((52, 110)) };
        let grown = now.since(&then);
        assert_eq!((grown.cycles, grown.instructions, grown.misses), (100, 50, Some(3)));
        assert_eq!(grown.stalled_part(), Some(0.5));
        assert_eq!(now.since(&Counted { stalled: None, ..then }).stalled_part(), None);
    }
}
