//! What the observer of service has seen of one CPU.

use rota_sim::TaskId;

/// A CPU.
#[derive(Clone, Debug)]
pub struct Watch {
    /// Up to when all is counted.
    pub at_ns: u64,
    pub current: Option<TaskId>,
    /// Which one stopped last, would it go on, and when.
    pub stopped: Option<TaskId>,
    pub stopped_ns: u64,
    /// What runs is none of the scheduler's, or may take anyone's time.
    pub overtaken: bool,
    /// When that was so last.
    pub overtaken_ns: u64,
    /// Interrupts or the hypervisor have it until then.
    pub excused_until_ns: u64,
    /// Since when and until when interrupts or the hypervisor have had it, with no pause for a decision.
    pub away_since_ns: u64,
    pub away_until_ns: u64,
    /// The slot in force: whose it is, and until when.
    pub slot: Option<u32>,
    pub until_ns: u64,
    /// For how long something has gone on that may not go on for long.
    pub unserved_ns: u64,
    pub overdrawn_ns: u64,
    pub intrudes_ns: u64,
    pub idle_ns: u64,
}

impl Watch {
    /// Nothing has been seen of it yet.
    pub fn new(now_ns: u64) -> Watch {
        Watch {
            at_ns: now_ns,
            current: None,
            stopped: None,
            stopped_ns: now_ns,
            overtaken: false,
            overtaken_ns: 0,
            excused_until_ns: 0,
            away_since_ns: 0,
            away_until_ns: 0,
            slot: None,
            until_ns: u64::MAX,
            unserved_ns: 0,
            overdrawn_ns: 0,
            intrudes_ns: 0,
            idle_ns: 0,
        }
    }

    /// When it was, or will be, the scheduler's again; long ago if it always was.
    pub fn free_ns(&self) -> u64 {
        self.excused_until_ns.max(self.overtaken_ns)
    }
}
