//! How far a replay is from its recording.

use rota_record::{Recording, Summary, summaries};
use rota_scenario::policies::Entry;
use serde::Serialize;

use crate::report::{Comparison, format};

/// A recording and its replay, both under the recorded policy and on the recorded CPUs.
#[derive(Debug, Serialize)]
pub struct Distance {
    /// Under which policy.
    pub policy: &'static str,
    #[serde(skip)]
    label: &'static str,
    /// In the recording's order, then the system; those that had no CPU time in either are left out.
    pub tenants: Vec<TenantDistance>,
}

/// A tenant in both.
#[derive(Debug, Serialize)]
pub struct TenantDistance {
    /// Its name.
    pub tenant: String,
    /// CPU time over that of one CPU.
    pub cpu_share: Pair,
    /// Time in which a thread was runnable and did not run, summed over threads.
    pub waiting_ns: Pair,
    /// From being woken to running: half were no longer.
    pub wakeup_p50_ns: Pair,
    /// 99 % were no longer.
    pub wakeup_p99_ns: Pair,
    /// How often a thread was put on a CPU.
    pub switches: Pair,
    /// How often a thread was taken from a CPU that would have gone on.
    pub preemptions: Pair,
    /// When the last thread had done all that was recorded; none if some never end.
    pub done_ns: Pair,
}

/// A figure in both.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Pair {
    /// In the recording.
    pub recorded: Option<f64>,
    /// In the replay.
    pub replayed: Option<f64>,
    /// The second over the first.
    pub ratio: Option<f64>,
}

impl Pair {
    fn new(recorded: Option<f64>, replayed: Option<f64>) -> Pair {
        let ratio = match (recorded, replayed) {
            (Some(recorded), Some(replayed)) if recorded > 0.0 => Some(replayed / recorded),
            _ => None,
        };
        Pair { recorded, replayed, ratio }
    }
}

/// A figure's name, what it is, and how it is written.
type Measure = (&'static str, fn(&TenantDistance) -> Pair, fn(f64) -> String);

const MEASURES: &[Measure] = &[
    ("CPU time, in CPUs", |tenant| tenant.cpu_share, format::share),
    ("Runnable and waiting", |tenant| tenant.waiting_ns, time),
    ("Wake-up, median", |tenant| tenant.wakeup_p50_ns, time),
    ("Wake-up, 99th percentile", |tenant| tenant.wakeup_p99_ns, time),
    ("Put on a CPU", |tenant| tenant.switches, whole),
    ("Preempted", |tenant| tenant.preemptions, whole),
    ("All done after", |tenant| tenant.done_ns, time),
];

fn time(ns: f64) -> String {
    format::time(ns as u64)
}

fn whole(count: f64) -> String {
    format!("{count:.0}")
}

impl Distance {
    /// Of a replay that went on beyond the recording's length, so that what is late is seen too.
    pub fn new(policy: &'static Entry, recording: &Recording, replay: &Recording) -> Distance {
        let (recorded, replayed) = (summaries(recording, u64::MAX), summaries(replay, recording.duration_ns));
        let names = recording.tenants.iter().map(|tenant| tenant.name.as_str());
        let names = names.chain([rota_model::Tenant::SYSTEM]);
        let both = names.zip(recorded.iter().zip(&replayed));
        let seen = both.filter(|(_, (recorded, replayed))| recorded.cpu_ns + replayed.cpu_ns > 0);
        let tenants =
            seen.map(|(name, (recorded, replayed))| tenant(name, recorded, replayed, recording.duration_ns));
        Distance { policy: policy.name, label: policy.label, tenants: tenants.collect() }
    }

    /// For people.
    pub fn comparison(&self, lost: u64) -> Comparison {
        let mut rows = Vec::new();
        for tenant in &self.tenants {
            for (measure, of, text) in MEASURES {
                let Pair { recorded, replayed, ratio } = of(tenant);
                let cell = |value: Option<f64>| value.map_or("\u{2013}".to_owned(), text);
                let ratio = ratio.map_or("\u{2013}".to_owned(), format::ratio);
                let name =
                    if rows.len() % MEASURES.len() == 0 { tenant.tenant.clone() } else { String::new() };
                rows.push([name, (*measure).to_owned(), cell(recorded), cell(replayed), ratio]);
            }
        }
        let lost = if lost > 0 { format!("; {lost} events are lost from it") } else { String::new() };
        let title = format!("The recording, and its replay under the recorded policy, {}{lost}", self.label);
        Comparison { title, heads: ["tenant", "", "recorded", "replayed", "ratio"], rows }
    }
}

fn tenant(name: &str, recorded: &Summary, replayed: &Summary, duration_ns: u64) -> TenantDistance {
    let pair = |of: &dyn Fn(&Summary) -> Option<f64>| Pair::new(of(recorded), of(replayed));
    let quantile = |quantile: f64| pair(&|found| found.wakeups.quantile(quantile).map(|ns| ns as f64));
    TenantDistance {
        tenant: name.to_owned(),
        cpu_share: pair(&|found| Some(found.cpu_ns as f64 / duration_ns as f64)),
        waiting_ns: pair(&|found| Some(found.waiting_ns as f64)),
        wakeup_p50_ns: quantile(0.5),
        wakeup_p99_ns: quantile(0.99),
        switches: pair(&|found| Some(found.dispatches as f64)),
        preemptions: pair(&|found| Some(found.preemptions as f64)),
        done_ns: pair(&|found| found.done_ns.map(|ns| ns as f64)),
    }
}
