//! What one run of a scenario under one policy has shown: the JSON that the guest writes, and tables and reports read.
//! Times are in ns; shares are fractions of one CPU for each vCPU.

use serde::{Deserialize, Serialize};

use super::{Histogram, Policy};

/// One scenario under one policy: `<policy>.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PolicyResult {
    /// The scenario's name.
    pub scenario: String,
    /// What shared the CPUs out.
    pub policy: Policy,
    /// The kernel's release, as `uname -r` prints it.
    pub kernel: String,
    /// CPUs online.
    pub cpus: u32,
    /// What the guest's clock follows.
    pub clock: Clock,
    /// Running, but not measured.
    pub warm_up_ns: u64,
    /// Measured.
    pub window_ns: u64,
    /// What the machine below takes, by CPU.
    pub control: Vec<Control>,
    /// Time in the window in which the CPUs were not idle, summed over CPUs.
    pub busy_ns: u64,
    /// The part of it that went to no tenant: kernel threads, clients, the daemon, the measuring itself.
    pub system_ns: u64,
    /// In the configuration's order.
    pub tenants: Vec<TenantResult>,
    /// What `rota status --json` said at the window's end; absent under the kernel's own policies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<serde_json::Value>,
}

/// What the guest's clock follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Clock {
    /// The machine's clock: what the emulator or the host takes is seen as gaps.
    Real,
    /// Instructions executed: one is one virtual nanosecond, and a whole run repeats byte for byte on any machine.
    ///
    /// A CPU computes while its neighbours idle, and N busy CPUs run at 1/N speed each: shares, order and bounds are
    /// exact, speed-ups are not to be measured.
    Instructions,
}

impl Clock {
    /// As on a command line.
    pub fn name(self) -> &'static str {
        match self {
            Clock::Real => "real",
            Clock::Instructions => "instructions",
        }
    }
}

/// The control of one CPU.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Control {
    /// Its number.
    pub cpu: u32,
    /// What a real-time probe saw there before the run, alone.
    pub gaps: Gaps,
    /// How late alarms for a real-time task rang there while the run was measured; a turn is an alarm.
    #[serde(default)]
    pub late: Gaps,
}

impl Control {
    /// The longest that the machine took by either.
    pub fn longest_ns(&self) -> u64 {
        self.gaps.longest_ns.max(self.late.longest_ns)
    }
}

/// A tight loop's turns, and a real-time task's way to its CPU, are below this, also in an emulator.
const GAP_NS: u64 = 100_000;

impl Gaps {
    /// Counts one more turn, with a gap of this length.
    pub fn note(&mut self, gap_ns: u64) {
        self.turns += 1;
        self.longest_ns = self.longest_ns.max(gap_ns);
        if gap_ns >= GAP_NS {
            self.count += 1;
            self.lost_ns += gap_ns;
            self.histogram.add(gap_ns);
        }
    }
}

/// What a tight loop that reads the clock has seen: the intrinsic-latency method of `redis-cli --intrinsic-latency`,
/// used for the same end in the Tableau thesis, section 6.3.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Gaps {
    /// How long the loop was looking.
    pub window_ns: u64,
    /// Turns of the loop.
    pub turns: u64,
    /// The longest time between two readings.
    pub longest_ns: u64,
    /// Gaps of 100 us and more: too long for the loop itself.
    pub count: u64,
    /// Their sum: time in which the loop did not run.
    pub lost_ns: u64,
    /// The same gaps by length.
    pub histogram: Histogram,
}

/// One tenant under one policy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TenantResult {
    /// Its name.
    pub name: String,
    /// `reserved`, `shared` or `background`.
    pub class: String,
    /// How many vCPUs.
    pub vcpus: u32,
    /// The guaranteed share of one CPU for each vCPU, if it has one.
    pub promised_share: Option<f64>,
    /// The bound on its scheduling latency, if it has one.
    pub latency_bound_ns: Option<u64>,
    /// Whether it may never have more than its share.
    pub capped: bool,
    /// CPU time of its cgroup between two readings: one shortly before the window, one at its end.
    pub cpu_ns: u64,
    /// `cpu_ns / (vcpus * time between the two readings)`.
    pub received_share: f64,
    /// Blackouts of its cgroup, seen from outside by the observer.
    pub blackouts: Blackouts,
    /// Time in which one of its threads would have run or ran, in which two would at a time, and so on up to its vCPUs;
    /// empty if no more is known than whether one would.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub wanted_ns: Vec<u64>,
    /// How its threads changed CPUs, seen in the same way.
    #[serde(default)]
    pub moves: Moves,
    /// What its quota did to it, under `max`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub throttled: Option<Throttled>,
    /// What its own probe saw from inside, if it runs one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub probe: Option<Gaps>,
    /// The answers of its server, if it has a client.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests: Option<Requests>,
    /// What its own parallel program has done, if it runs one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub work: Option<Work>,
}

impl TenantResult {
    /// Whether it waited beyond its bound.
    pub fn is_late(&self) -> bool {
        self.latency_bound_ns.is_some_and(|bound_ns| self.blackouts.longest_ns > bound_ns)
    }

    /// Whether it never had anything to run, so that no promise to it was put to the test.
    pub fn is_idle(&self) -> bool {
        self.blackouts.wanted_ns == 0
    }

    /// Whether it received less than what its threads were due in the window, which has parts of `length_ns` each.
    ///
    /// Each part may begin and end in its longest wait, so a vCPU's slots in a time W come to U (W - L) at least:
    /// the supply bound of a periodic resource (Shin and Lee, 2003). Those in which it wanted nothing are not due to
    /// it, and n threads at a time can use the slots of n vCPUs of v: n / v of all, or more.
    pub fn is_short(&self, window_ns: u64, length_ns: u64) -> bool {
        let (Some(share), Some(bound_ns)) = (self.promised_share, self.latency_bound_ns) else {
            return false;
        };
        let wait = bound_ns as f64 / length_ns.max(1) as f64;
        let due = |(threads, wanted_ns): (u32, u64)| {
            let unwanted = 1.0 - wanted_ns.min(window_ns) as f64 / window_ns.max(1) as f64;
            f64::from(threads) / f64::from(self.vcpus) * (share * (1.0 - wait) - unwanted)
        };
        let one = [self.blackouts.wanted_ns];
        let wanted = if self.wanted_ns.is_empty() { &one[..] } else { &self.wanted_ns };
        (1..).zip(wanted.iter().copied()).map(due).any(|due| self.received_share < due)
    }
}

/// The intervals in which at least one thread of a cgroup was runnable and none of them ran.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Blackouts {
    /// The longest.
    pub longest_ns: u64,
    /// How many there were.
    pub count: u64,
    /// Those longer than the tenant's bound; 0 for a tenant without one.
    pub beyond_bound: u64,
    /// Their sum.
    pub total_ns: u64,
    /// Time in which at least one thread was runnable or running.
    pub wanted_ns: u64,
    /// By length.
    pub histogram: Histogram,
}

/// How a cgroup's threads left CPUs and came to others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moves {
    /// Times that a thread had to leave its CPU and would have gone on.
    pub preempted: u64,
    /// Times that a thread came to another CPU.
    pub migrated: u64,
}

/// What a parallel program has done in the window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Work {
    /// Times that all of it was done once: rounds, loops, or what came out of the pipeline; of hogs, pieces.
    pub rounds: u64,
    /// The longest that a thread took to compute one piece, in which it waits for nobody: beyond the piece's length it
    /// waited for a CPU.
    pub longest_ns: u64,
}

/// A quota's work, from cgroup v2's `cpu.stat`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Throttled {
    /// Quota periods that had anything to run.
    pub periods: u64,
    /// Those in which the quota ran out.
    pub throttled: u64,
    /// How long the cgroup was held back, summed over CPUs.
    pub throttled_ns: u64,
}

/// An open loop of requests: sent at a fixed rate whether or not earlier ones are answered, each answer's latency
/// counted from the moment at which its request was *due*.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Requests {
    /// Requests in a second.
    pub rate_hz: u32,
    /// Requests due in the window.
    pub due: u64,
    /// Those answered well, in the window or within the second after it.
    pub answered: u64,
    /// Those answered with an error.
    pub errors: u64,
    /// Half of the answers took no longer.
    pub p50_ns: u64,
    /// 99 % of the answers took no longer.
    pub p99_ns: u64,
    /// The longest. A request never answered counts as long as it was waited for, here and above.
    pub longest_ns: u64,
    /// How far the counter went that Redis' requests count up, from the first answer in the window to the last: so much
    /// was asked in all, by whomever.
    #[serde(default)]
    pub counted: u64,
    /// The longest that the client itself sent too late: what of the latencies is not the server's.
    pub sent_late_ns: u64,
    /// All latencies.
    pub histogram: Histogram,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenant_that_did_not_want_its_share_did_not_miss_it() {
        let result: PolicyResult = serde_json::from_str(include_str!("../../scenarios/sample-result.json"))
            .expect("the sample is a result");
        let mut tenant = result.tenants[0].clone();
        (tenant.promised_share, tenant.latency_bound_ns) = (Some(0.2), Some(20_000_000));
        (tenant.received_share, tenant.blackouts.wanted_ns) = (0.1, 10_000_000_000);
        assert!(tenant.is_short(10_000_000_000, 10_000_000_000));
        tenant.blackouts.wanted_ns /= 2;
        assert!(!tenant.is_short(10_000_000_000, 10_000_000_000));
    }

    /// One thread of a tenant of four vCPUs ran all the time, and was said to have missed a share of half a CPU each.
    #[test]
    fn a_tenant_is_due_what_its_threads_can_use() {
        let second = 1_000_000_000;
        let mut tenant = TenantResult {
            name: "app".to_owned(),
            class: "reserved".to_owned(),
            vcpus: 4,
            promised_share: Some(0.5),
            latency_bound_ns: Some(10_000_000),
            capped: false,
            cpu_ns: second,
            received_share: 0.25,
            blackouts: Blackouts { wanted_ns: second, ..Blackouts::default() },
            wanted_ns: vec![second],
            moves: Moves::default(),
            throttled: None,
            probe: None,
            requests: None,
            work: None,
        };
        assert!(!tenant.is_short(second, second), "one thread");
        tenant.wanted_ns = vec![second; 2];
        assert!(!tenant.is_short(second, second), "two threads, which can use half of it");
        tenant.wanted_ns = vec![second; 3];
        assert!(tenant.is_short(second, second), "three threads");
        tenant.wanted_ns = vec![second, second, second / 2];
        assert!(!tenant.is_short(second, second), "a third one that seldom wanted to run");
        tenant.wanted_ns.clear();
        assert!(!tenant.is_short(second, second), "no more is known than that there was one");
        tenant.received_share = 0.12;
        assert!(tenant.is_short(second, second), "less than one thread's");
        assert!(!tenant.is_short(second, second / 10), "ten parts have ten ends");
    }
}
