//! How often a tenant's vCPU threads may become others.
//!
//! A tenant names its threads as it likes, and each that becomes a vCPU has the scheduler look at all threads anew. A
//! monitor does so as it starts, and when vCPUs are added. Whoever goes on and on waits.

use std::collections::BTreeMap;

/// So many times at once.
const BURST: u64 = 32;
/// Once more after each.
const PERIOD_NS: u64 = 5_000_000_000;

/// What a tenant has left of it.
#[derive(Clone, Debug)]
pub struct Changes {
    left: u64,
    since_ns: u64,
}

impl Changes {
    pub fn new(now_ns: u64) -> Changes {
        Changes { left: BURST, since_ns: now_ns }
    }

    /// The vCPU threads that a tenant has from now on, which had `before` and shows `found`, and whether some have to
    /// wait. Who is none any more is none at once.
    pub fn take(
        &mut self,
        now_ns: u64,
        before: &BTreeMap<u32, i32>,
        mut found: BTreeMap<u32, i32>,
    ) -> (BTreeMap<u32, i32>, bool) {
        let periods = (now_ns - self.since_ns) / PERIOD_NS;
        (self.left, self.since_ns) = ((self.left + periods).min(BURST), self.since_ns + periods * PERIOD_NS);
        let is_known = |index: &u32, tid: &i32| before.get(index) == Some(tid);
        if found.iter().all(|(index, tid)| is_known(index, tid)) {
            return (found, false);
        }
        let waits = self.left == 0;
        self.left = self.left.saturating_sub(1);
        if waits {
            found.retain(|index, tid| is_known(index, tid));
        }
        (found, waits)
    }
}
