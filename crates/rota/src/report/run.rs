//! What a report shows: runs of one scenario, each under a policy, wherever they were made.

use rota_lab::scenario::Policy;
use rota_lab::scenario::result::{Clock, Control, PolicyResult, TenantResult};
use rota_model::histogram::Histogram;
use rota_rules::profile::Spending;
use serde::Serialize;

use super::format;

/// A scenario's runs, in the order in which they are to be shown.
pub struct Report {
    /// The scenario's name.
    pub scenario: String,
    /// Under what conditions: names and values.
    pub conditions: Vec<(&'static str, String)>,
    /// One a policy.
    pub runs: Vec<Run>,
    /// The timetable's picture, an SVG document.
    pub timetable: Option<String>,
    /// The runs' load beside where it comes from.
    pub comparison: Option<Comparison>,
    /// What is said on a terminal beside tables and finding.
    pub notes: Vec<String>,
    /// How it was measured, for the end of the page.
    pub method: Vec<String>,
}

/// Figures of one thing beside those of another, as people read them.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// What is compared.
    pub title: String,
    /// Of the columns: two of names, three of figures.
    pub heads: [&'static str; 5],
    /// A line each.
    pub rows: Vec<[String; 5]>,
}

/// A scenario under one policy.
pub struct Run {
    /// Which policy.
    pub policy: Contestant,
    /// How many CPUs there were.
    pub cpus: u32,
    /// For how long it was measured, in all if it ran several times.
    pub window_ns: u64,
    /// For how long each time.
    pub length_ns: u64,
    /// The longest that something below the scheduler, which no scheduler can give back, took at a time.
    pub taken_ns: u64,
    /// Time in the window in which CPUs were not idle, summed over CPUs.
    pub busy_ns: u64,
    /// The part of it that went to no tenant.
    pub system_ns: u64,
    /// In the configuration's order.
    pub tenants: Vec<Tenant>,
    /// Whether something has happened that no scheduler may do, so that all the rest shows nothing.
    pub is_void: bool,
}

/// A policy: what it is called, and what it looks like in charts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Contestant {
    /// Its name for people.
    pub label: &'static str,
    /// Its place in [`super::chart`]'s looks; 0 is Rota's.
    pub look: usize,
}

impl Contestant {
    /// The one that the others are compared with.
    pub fn is_rota(self) -> bool {
        self.look == 0
    }
}

/// The look of the first scheduler that is neither Rota nor the kernel's own; the next ones have those after it.
const OTHERS: usize = 3;

impl From<Policy> for Contestant {
    fn from(policy: Policy) -> Contestant {
        match policy {
            Policy::Rota => Contestant { label: "Rota", look: 0 },
            Policy::Max => Contestant { label: "cpu.max", look: 1 },
            Policy::Weight => Contestant { label: "cpu.weight", look: 2 },
            Policy::Scx(label) => Contestant { label, look: OTHERS },
        }
    }
}

/// A tenant under one policy.
#[derive(Clone, Debug, Serialize)]
pub struct Tenant {
    /// What can be seen of it on a real machine, too.
    #[serde(flatten)]
    pub seen: TenantResult,
    /// What only a simulation sees.
    #[serde(flatten)]
    pub inside: Option<Inside>,
}

/// What a simulation sees of a tenant beside its share and its blackouts.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Inside {
    /// From waking up to running, of each thread.
    pub wakeups: Times,
    /// Latencies as its programs see them: of an answer, of getting a lock, of a round.
    pub latencies: Times,
    /// Pieces of work done, as its programs count them.
    pub work: u64,
    /// How often a thread was put on a CPU.
    pub dispatches: u64,
    /// How often a thread was taken from a CPU that would have gone on.
    pub preemptions: u64,
    /// How often a thread was put on another CPU than before.
    pub migrations: u64,
    /// What it would get if all was fair, to be compared with others of its class: shares or weights of all vCPUs.
    pub entitlement: f64,
    /// In how many parts it was measured, each of which can want all the time.
    pub units: u32,
    /// The window in parts of one length: CPU time received, and time in which it would have run or ran, in ns.
    pub service: Vec<(u64, u64)>,
    /// What its threads spent their time on, and for whom they waited.
    #[serde(flatten)]
    pub spending: Spending,
    /// The part of their running in which they waited busily.
    pub spinning_ns: u64,
    /// References of its threads to the last-level cache, and those that went on to memory, if caches are simulated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub caches: Option<Caches>,
    /// How far it was from what is fair, if it is one of several that share by weight.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lag: Option<Lag>,
}

/// What a processor's counters would say.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Caches {
    /// References to the last-level cache.
    pub references: u64,
    /// Those that went on to memory.
    pub misses: u64,
}

/// CPU time by which a tenant is behind what is fair, in ns.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Lag {
    /// At the end of each part of the window; negative if it is ahead.
    pub over_time_ns: Vec<i64>,
    /// The most that it was behind.
    pub behind_max_ns: u64,
    /// The most that it was ahead.
    pub ahead_max_ns: u64,
}

/// Times of one kind.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Times {
    /// Half of them were no longer.
    pub p50_ns: u64,
    /// 99 % of them were no longer.
    pub p99_ns: u64,
    /// None was longer; to 1/16.
    pub longest_ns: u64,
    /// All of them.
    pub histogram: Histogram,
}

impl From<Histogram> for Times {
    fn from(histogram: Histogram) -> Times {
        let at = |quantile| histogram.quantile(quantile).unwrap_or(0);
        Times { p50_ns: at(0.5), p99_ns: at(0.99), longest_ns: at(1.0), histogram }
    }
}

impl Times {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.histogram.total() == 0
    }
}

impl Report {
    /// The report of the lab's runs.
    pub fn of_lab(results: &[PolicyResult], timetable: Option<String>) -> Report {
        let mut runs: Vec<Run> = results.iter().map(Run::from).collect();
        let others = runs.iter_mut().filter(|run| run.policy.look == OTHERS);
        others.enumerate().for_each(|(index, run)| run.policy.look += index);
        let taken: Vec<String> = runs
            .iter()
            .map(|run| format!("{} with {}", format::time(run.taken_ns), run.policy.label))
            .collect();
        Report {
            scenario: results.first().map_or(String::new(), |first| first.scenario.clone()),
            conditions: results.first().map_or(vec![], |first| conditions(first, results)),
            runs,
            timetable,
            comparison: None,
            notes: vec![format!(
                "By its controls, the machine itself took up to {} at a time.",
                taken.join(", ")
            )],
            method: [
                "The same programs ran in the same tenants on one kernel, once under each policy: the kernel's own \
                 scheduler with equal cpu.weight, the same with each tenant's share as its cpu.max, Rota, and other \
                 schedulers of sched_ext's (scx) with equal cpu.weight and their own defaults.",
                "A blackout is an interval in which at least one thread of a tenant was runnable and none ran, seen \
                 from outside by a program at the kernel's scheduling events, which is the same under every policy.",
                "The control is the longest time that the machine below the kernel took by itself, which no scheduler \
                 can give back: from a real-time probe alone on each CPU before the run, kept from reading the clock, \
                 and from alarms for a real-time task on each CPU during it, rung late.",
            ]
            .map(str::to_owned)
            .to_vec(),
        }
    }
}

fn conditions(first: &PolicyResult, results: &[PolicyResult]) -> Vec<(&'static str, String)> {
    let clock = match first.clock {
        Clock::Real => "real time",
        Clock::Instructions => "instructions counted",
    };
    let control = results.iter().flat_map(|result| &result.control).map(Control::longest_ns).max();
    let control = control.map(|longest_ns| format!("{} taken by the machine", format::time(longest_ns)));
    vec![
        ("Kernel", first.kernel.clone()),
        ("CPUs", first.cpus.to_string()),
        ("Clock", clock.to_owned()),
        ("Measured", format!("{} each", format::round_time(first.window_ns))),
        ("After", format!("{} of warm-up", format::round_time(first.warm_up_ns))),
        ("Control", control.unwrap_or_else(|| "not measured".to_owned())),
    ]
}

impl From<&PolicyResult> for Run {
    fn from(result: &PolicyResult) -> Run {
        Run {
            policy: result.policy.into(),
            cpus: result.cpus,
            window_ns: result.window_ns,
            length_ns: result.window_ns,
            taken_ns: result.control.iter().map(Control::longest_ns).max().unwrap_or(0),
            busy_ns: result.busy_ns,
            system_ns: result.system_ns,
            tenants: result.tenants.iter().map(|seen| Tenant { seen: seen.clone(), inside: None }).collect(),
            is_void: false,
        }
    }
}
