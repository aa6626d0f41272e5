//! What a guest's kernel knows of its host: which of its vCPUs has a CPU, which waits for one, and how much of late.

/// Steal time counts half as much after so long: `sched_avg_period` of Linux 3.18.
const HALVES_NS: u64 = 500_000_000;

/// A vCPU, as the memory that it shares with its host shows it.
#[derive(Clone, Debug, Default)]
pub struct Sight {
    /// It has a CPU.
    pub runs: bool,
    /// It has waited for one since then.
    waits_since_ns: Option<u64>,
    /// It has halted until then: what it would wait for from that time on.
    pub alarm_ns: Option<u64>,
    /// How much it has waited of late, in ns, as of a time.
    stolen_ns: u64,
    stolen_at_ns: u64,
}

impl Sight {
    /// Since when it has waited for a CPU.
    fn waits_since_ns(&self, now_ns: u64) -> Option<u64> {
        let rang = self.alarm_ns.filter(|alarm_ns| !self.runs && *alarm_ns <= now_ns);
        self.waits_since_ns.or(rang)
    }

    /// It would have a CPU from now on.
    pub fn waits(&mut self, now_ns: u64) {
        if !self.runs {
            self.waits_since_ns.get_or_insert(now_ns);
        }
    }

    /// It has one.
    pub fn gets(&mut self, now_ns: u64) {
        let waited_ns = self.waits_since_ns(now_ns).map_or(0, |since_ns| now_ns - since_ns);
        (self.runs, self.waits_since_ns, self.alarm_ns) = (true, None, None);
        self.stolen_ns = self.stolen_ns(now_ns) + waited_ns;
        self.stolen_at_ns = now_ns;
    }

    /// It has none, and would have one.
    pub fn loses(&mut self, now_ns: u64) {
        self.runs = false;
        self.waits(now_ns);
    }

    /// It halts, until then if nobody wakes it before.
    pub fn halts(&mut self, alarm_ns: Option<u64>) {
        (self.runs, self.alarm_ns) = (false, alarm_ns);
    }

    /// How much it has waited of late, in ns.
    pub fn stolen_ns(&self, now_ns: u64) -> u64 {
        let halvings = (now_ns - self.stolen_at_ns) / HALVES_NS;
        self.stolen_ns.checked_shr(halvings as u32).unwrap_or(0)
    }
}
