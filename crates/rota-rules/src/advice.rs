//! What would help a tenant's program to get more of what the tenant is promised: `rota advise`.
//!
//! The model is that of Shan, Jia and Ding, *Rethinking multicore application scalability on big virtual machines*
//! (there: the paper), sections II.B and III.

use serde::{Deserialize, Serialize};

use crate::matching::{self, PART_MAX};

/// A program keeps its vCPUs busy if so many of them would run on average (the paper, section III.B).
const PARALLEL: f64 = 0.75;
/// Longer waits than this part of the time in which vCPUs would run are worth a word.
const WAITS: f64 = 0.10;
/// What is worth a word in a speedup.
const GAIN: f64 = 1.10;
/// Changes of task that take more than this part of what a tenant is promised are many.
const SWITCHING: f64 = 0.05;

/// The speedup that N vCPUs allow over one, of which each may run for the same part of the time: N - N * (what changes
/// of task take + what of the budgets is not used), both as parts of what is allotted (the paper, section II.B,
/// Speedup_VM). At least 0.
pub fn speedup_vm(vcpus: u32, switching: f64, unused: f64) -> f64 {
    let vcpus = f64::from(vcpus);
    (vcpus - vcpus * (switching + unused)).max(0.0)
}

/// The speedup on N CPUs of one's own: N less the time on idling and busy waiting over the time of execution (the
/// paper, section II.B, Speedup_PM).
pub fn speedup_pm(cpus: u32, idle_and_busy_waiting: f64) -> f64 {
    (f64::from(cpus) - idle_and_busy_waiting).max(0.0)
}

/// The longest period in ns in which a vCPU can have its share such that it waits for `latency_ns` at most:
/// 2 (T - UT) is the longest wait. It is no longer than a table.
pub fn longest_period_ns(share: f64, latency_ns: u64) -> f64 {
    let longest_ns = rota_plan::HYPERPERIOD_NS as f64;
    if share >= 1.0 { longest_ns } else { (latency_ns as f64 / (2.0 * (1.0 - share))).min(longest_ns) }
}

/// The paper's types (table I).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Type 1: busy vCPUs that block seldom.
    ParallelAndSeldom,
    /// Type 2: few busy vCPUs, and they block often.
    NarrowAndOften,
    /// Type 3: busy vCPUs that block often.
    ParallelAndOften,
    /// Type 4: few busy vCPUs, and they block seldom.
    NarrowAndSeldom,
}

impl Kind {
    /// By the part of the vCPUs that would run on average, and by the time between two blocks of one in ns beside the
    /// time for which it may run in a period.
    pub fn new(parallelism: f64, between_ns: f64, slice_ns: f64) -> Kind {
        match (parallelism >= PARALLEL, between_ns < slice_ns) {
            (true, false) => Kind::ParallelAndSeldom,
            (false, true) => Kind::NarrowAndOften,
            (true, true) => Kind::ParallelAndOften,
            (false, false) => Kind::NarrowAndSeldom,
        }
    }

    /// The paper's number.
    pub fn number(self) -> u32 {
        match self {
            Kind::ParallelAndSeldom => 1,
            Kind::NarrowAndOften => 2,
            Kind::ParallelAndOften => 3,
            Kind::NarrowAndSeldom => 4,
        }
    }
}

/// What was seen of a reserved tenant for some time.
#[derive(Clone, Debug, PartialEq)]
pub struct Seen {
    /// How many vCPUs.
    pub vcpus: u32,
    /// What they are promised together, in CPUs.
    pub promised: f64,
    /// What each is promised, if that differs.
    pub parts: Vec<f64>,
    /// The longest wait that each is promised, in ns.
    pub latency_ns: u64,
    /// Their slots come together.
    pub together: bool,
    /// Their parts follow their load.
    pub matching: bool,
    /// For so long, in ns.
    pub for_ns: f64,
    /// Each vCPU's; of a container all of its threads' together.
    pub loads: Vec<matching::Load>,
    /// How often one of them was put on a CPU.
    pub dispatches: u64,
    /// What a change of task takes, in ns.
    pub switch_ns: u64,
}

/// One thing that would help.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "what")]
pub enum Help {
    /// `matching = true`: parts of the total by load.
    Matching {
        /// The speedup that would be possible.
        speedup: f64,
        /// The part of a CPU for each vCPU.
        parts: Vec<f64>,
    },
    /// `together = true`.
    Together,
    /// A longer latency: periods are longer, and tasks change less often.
    LongerLatency {
        /// The longest period that the bound allows now, in ns.
        period_ns: f64,
    },
    /// So many vCPUs are enough.
    FewerVcpus(u32),
    /// A larger share, or more vCPUs: all that is promised is used.
    More,
}

/// What `rota advise` says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Advice {
    /// How many vCPUs would run on average.
    pub active: f64,
    /// How often in a second a vCPU was put on a CPU. So often it may have blocked at most.
    pub blocks_per_s: f64,
    /// Which of the four types.
    pub kind: Kind,
    /// What changes of task take of what is promised.
    pub switching: f64,
    /// What of the promised time the vCPUs left.
    pub unused: f64,
    /// The speedup over one vCPU that this allows.
    pub speedup: f64,
    /// What it would be with a CPU of their own for each vCPU, as far as idling tells.
    pub speedup_alone: f64,
    /// The part of the time in which they would have run that they waited for a CPU.
    pub waiting: f64,
    /// What would help, the most promising first.
    pub help: Vec<Help>,
}

impl Seen {
    fn running_ns(&self) -> f64 {
        self.loads.iter().map(|load| load.running_ns as f64).sum()
    }

    fn waiting_ns(&self) -> f64 {
        self.loads.iter().map(|load| load.waiting_ns as f64).sum()
    }

    fn allotted_ns(&self) -> f64 {
        self.promised * self.for_ns
    }

    /// One vCPU's, in CPUs.
    fn share(&self) -> f64 {
        self.promised / f64::from(self.vcpus)
    }

    /// Whether each vCPU is seen by itself.
    fn is_by_vcpu(&self) -> bool {
        self.loads.len() == self.vcpus as usize
    }

    /// What vCPUs left of their budgets, as a part of all. What one has beyond its own is nothing that another would
    /// have had.
    fn unused(&self) -> f64 {
        let equal = vec![self.share(); self.loads.len()];
        let parts = if self.parts.is_empty() { &equal } else { &self.parts };
        let left =
            |(load, part): (&matching::Load, &f64)| (part * self.for_ns - load.running_ns as f64).max(0.0);
        let left_ns: f64 = if self.is_by_vcpu() {
            self.loads.iter().zip(parts).map(left).sum()
        } else {
            (self.allotted_ns() - self.running_ns()).max(0.0)
        };
        left_ns / self.allotted_ns()
    }

    /// What holds the program back, and what would help. None if it did not run, or is promised nothing.
    pub fn advice(&self) -> Option<Advice> {
        let (running_ns, waiting_ns) = (self.running_ns(), self.waiting_ns());
        if running_ns <= 0.0 || self.allotted_ns() <= 0.0 {
            return None;
        }
        let vcpus = f64::from(self.vcpus);
        let active = ((running_ns + waiting_ns) / self.for_ns).min(vcpus);
        // Who is not preempted within its budget is put on a CPU once for it; who is, perhaps twice.
        let between_ns = running_ns / self.dispatches.max(1) as f64;
        let slice_ns = self.share() * longest_period_ns(self.share(), self.latency_ns) / 2.0;
        let switching = self.dispatches as f64 * self.switch_ns as f64 / self.allotted_ns();
        let unused = self.unused();
        let mut advice = Advice {
            active,
            blocks_per_s: self.dispatches as f64 * 1e9 / self.for_ns / vcpus,
            kind: Kind::new(active / vcpus, between_ns, slice_ns),
            switching,
            unused,
            speedup: speedup_vm(self.vcpus, switching, unused),
            speedup_alone: speedup_pm(self.vcpus, vcpus - active),
            waiting: waiting_ns / (running_ns + waiting_ns),
            help: Vec::new(),
        };
        advice.help = self.help(&advice);
        Some(advice)
    }

    fn help(&self, advice: &Advice) -> Vec<Help> {
        let mut help = Vec::new();
        let often = matches!(advice.kind, Kind::NarrowAndOften | Kind::ParallelAndOften);
        help.extend(self.by_matching(advice));
        let may_be_together = self.vcpus > 1 && !self.together && !self.matching;
        if help.is_empty() && may_be_together && often && advice.waiting > WAITS {
            help.push(Help::Together);
        }
        if advice.switching > SWITCHING {
            let period_ns = longest_period_ns(self.share(), self.latency_ns);
            help.push(Help::LongerLatency { period_ns });
        }
        let enough = (advice.active.ceil() as u32).max(1);
        if enough < self.vcpus && help.is_empty() && advice.unused > WAITS && advice.waiting < WAITS {
            help.push(Help::FewerVcpus(enough));
        }
        if advice.unused < 1.0 - USED_ALL && advice.waiting > WAITS {
            help.push(Help::More);
        }
        help
    }

    /// Whether one vCPU used its part up while others left some of theirs, and what the total would allow.
    fn by_matching(&self, advice: &Advice) -> Option<Help> {
        let (total, most) = (self.promised * 1e9, f64::from(PART_MAX.ppb()) / 1e9);
        if self.matching || self.together || !self.is_by_vcpu() || self.share() >= most {
            return None;
        }
        let running: Vec<u64> = self.loads.iter().map(|load| load.running_ns).collect();
        let (busiest, all) = (*running.iter().max()? as f64, self.running_ns());
        if busiest < USED_ALL * self.share() * self.for_ns {
            return None;
        }
        let parts = matching::parts(total as u64, &running);
        let parts: Vec<f64> = parts.iter().map(|part| f64::from(part.ppb()) / 1e9).collect();
        // All loads grow alike until one vCPU has used its part up.
        let grows = |(&part, &ns): (&f64, &u64)| part * self.for_ns / ns.max(1) as f64;
        let growth = parts.iter().zip(&running).map(grows).fold(f64::INFINITY, f64::min);
        let unused = 1.0 - (all * growth / self.allotted_ns()).min(1.0);
        let speedup = speedup_vm(self.vcpus, advice.switching * growth, unused);
        (speedup > GAIN * advice.speedup).then_some(Help::Matching { speedup, parts })
    }
}

/// Who uses this part of what it is promised uses all of it.
const USED_ALL: f64 = 0.9;

#[cfg(test)]
mod tests {
    use super::*;
    use matching::Load;

    const UNIT_NS: u64 = 1_000_000;

    fn is(found: f64, expected: f64) -> bool {
        (found - expected).abs() < 1e-9
    }

    /// Units of running and waiting in 12, where each vCPU may run for 6.
    fn figure_6(loads: [(u64, u64); 4]) -> Seen {
        Seen {
            vcpus: 4,
            promised: 2.0,
            parts: Vec::new(),
            latency_ns: 12 * UNIT_NS,
            together: false,
            matching: false,
            for_ns: 12.0 * UNIT_NS as f64,
            loads: loads
                .map(|(running, waiting)| Load {
                    running_ns: running * UNIT_NS,
                    waiting_ns: waiting * UNIT_NS,
                })
                .to_vec(),
            dispatches: 8,
            switch_ns: 0,
        }
    }

    /// The paper's example: 2 units in a row and 4 in parallel make 2.5 on four CPUs for a fifth in a row, and 2 for a
    /// third.
    #[test]
    fn speedups_of_the_paper() {
        assert!(is(speedup_pm(4, 1.5), 2.5));
        assert!(is(speedup_vm(4, 0.0, 0.5), 2.0));
        assert!(is(speedup_vm(4, 0.0, 0.0), 4.0));
        assert!(is(speedup_vm(16, 0.0, 0.125), 14.0));
        assert!(is(speedup_vm(2, 0.7, 0.7), 0.0));
    }

    /// Figure 6: (B) uses 12 of 24 units and reaches 2; (C), balanced, uses all and reaches 4. (B) with matching does
    /// too, but for what no vCPU may have of a CPU.
    #[test]
    fn figure_6_is_seen_and_matching_is_advised() {
        let uneven = figure_6([(6, 6), (2, 0), (2, 0), (2, 0)]).advice().unwrap();
        assert!(is(uneven.unused, 0.5) && is(uneven.speedup, 2.0), "{uneven:?}");
        let [Help::Matching { speedup, parts }] = &uneven.help[..] else { panic!("{:?}", uneven.help) };
        assert!((3.79..=4.0).contains(speedup), "{speedup}");
        assert!(is(parts[0], 0.95) && is(parts[1], 0.35), "{parts:?}");
        let balanced = figure_6([(6, 0); 4]).advice().unwrap();
        assert!(is(balanced.speedup, 4.0));
        assert_eq!(balanced.help, []);
        // With 1.8 CPUs nobody's part is cut, and it is 4.0.
        let mut seen = figure_6([(6, 6), (2, 0), (2, 0), (2, 0)]);
        (seen.promised, seen.for_ns) = (1.8, 12.0 * UNIT_NS as f64 / 0.9);
        let advice = seen.advice().unwrap();
        let [Help::Matching { speedup, .. }] = &advice.help[..] else { panic!("{:?}", advice.help) };
        assert!(is(advice.speedup, 2.0) && (speedup - 4.0).abs() < 1e-6, "{speedup}");
    }

    #[test]
    fn the_four_types() {
        let number = |parallelism, between_ns| Kind::new(parallelism, between_ns, 100.0).number();
        assert_eq!(
            [number(0.75, 100.0), number(0.74, 99.0), number(1.0, 99.0), number(0.1, 200.0)],
            [1, 2, 3, 4]
        );
    }

    #[test]
    fn the_longest_period_keeps_the_bound() {
        assert!(is(longest_period_ns(0.5, 20_000_000), 20_000_000.0));
        assert!(is(longest_period_ns(0.25, 30_000_000), 20_000_000.0));
        assert!(is(longest_period_ns(1.0, 1), rota_plan::HYPERPERIOD_NS as f64));
        assert!(is(longest_period_ns(0.9, 900_000_000), rota_plan::HYPERPERIOD_NS as f64));
    }

    #[test]
    fn what_else_may_help() {
        let help = |change: &dyn Fn(&mut Seen)| {
            let mut seen = figure_6([(6, 6); 4]);
            change(&mut seen);
            seen.advice().unwrap().help
        };
        assert_eq!(help(&|_| ()), [Help::More]);
        let often = |seen: &mut Seen| seen.dispatches = 100;
        assert_eq!(help(&often), [Help::Together, Help::More]);
        let often_together = |seen: &mut Seen| (seen.dispatches, seen.together) = (100, true);
        assert_eq!(help(&often_together), [Help::More]);
        let costly = |seen: &mut Seen| (seen.dispatches, seen.switch_ns, seen.together) = (480, 5_000, true);
        assert!(matches!(help(&costly)[0], Help::LongerLatency { period_ns } if is(period_ns, 12e6)));
        let narrow = |seen: &mut Seen| seen.loads = figure_6([(5, 0), (1, 0), (1, 0), (1, 0)]).loads;
        assert_eq!(help(&narrow), [Help::FewerVcpus(1)]);
        // A container's threads are seen together, and need no matching.
        let container = |seen: &mut Seen| {
            seen.loads = vec![Load { running_ns: 24 * UNIT_NS, waiting_ns: 24 * UNIT_NS }];
        };
        assert_eq!(help(&container), [Help::More]);
        assert_eq!(figure_6([(0, 0); 4]).advice(), None);
    }
}
