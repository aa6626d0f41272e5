//! What is counted of threads in a while, to tell how fast a program gets on.

/// What a program's threads did in a part of a sample.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// The threads' time, in ns.
    pub total_ns: u64,
    /// They would have run, and waited for a CPU.
    pub steal_ns: u64,
    /// They waited for each other, or for anything else: asleep, in a loop, or while a CPU changed to them.
    pub sync_ns: u64,
    /// They ran, and waited for the last-level cache or memory.
    pub memory_ns: u64,
    /// Instructions, in any unit.
    pub instructions: u64,
    /// Misses of the last-level cache.
    pub misses: u64,
}

impl Counts {
    /// Useful work, in ns.
    pub fn useful_ns(&self) -> u64 {
        self.total_ns.saturating_sub(self.steal_ns + self.sync_ns + self.memory_ns)
    }

    /// Of several parts together.
    pub fn sum(parts: &[Counts]) -> Counts {
        parts.iter().fold(Counts::default(), |sum, part| Counts {
            total_ns: sum.total_ns + part.total_ns,
            steal_ns: sum.steal_ns + part.steal_ns,
            sync_ns: sum.sync_ns + part.sync_ns,
            memory_ns: sum.memory_ns + part.memory_ns,
            instructions: sum.instructions + part.instructions,
            misses: sum.misses + part.misses,
        })
    }

    /// What came after `before`.
    #[must_use]
    pub fn since(&self, before: &Counts) -> Counts {
        Counts {
            total_ns: self.total_ns - before.total_ns,
            steal_ns: self.steal_ns - before.steal_ns,
            sync_ns: self.sync_ns - before.sync_ns,
            memory_ns: self.memory_ns - before.memory_ns,
            instructions: self.instructions - before.instructions,
            misses: self.misses - before.misses,
        }
    }
}
