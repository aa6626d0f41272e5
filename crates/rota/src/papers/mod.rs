//! Results that papers have published, again in the simulator: each figure or table is some scenarios under some
//! policies, and what was published beside what comes out.

mod fairness;
mod interference;
mod oversubscription;
mod page;
mod scalability;
mod slowdown;
mod table;
#[cfg(test)]
mod tests;
mod text;
mod thesis;

use anyhow::{Context, Result, anyhow};
use rota_model::config::Source;
use rota_scenario::policies::{self, Entry};
use rota_scenario::{Options, Outcome, Scenario};
use serde::Serialize;

use crate::parallel;
pub use page::render;
pub use table::{Published, Row, Table, Unit};
pub use text::text;

/// A figure or table of a paper.
#[derive(Debug, Serialize)]
pub struct Figure {
    /// As on a command line.
    pub name: &'static str,
    /// What it is about.
    pub title: &'static str,
    /// Which paper, and where in it.
    pub source: &'static str,
    /// What was run there, and what is run here for it.
    pub setting: &'static [&'static str],
    /// Where ours differ, and why.
    pub differs: &'static [&'static str],
    /// Simulates it.
    #[serde(skip)]
    pub study: fn(&Study) -> Result<Vec<Table>>,
}

/// All of them.
pub const FIGURES: &[&Figure] = &[
    &slowdown::INTERFERED,
    &slowdown::PREDICTED,
    &slowdown::DELAYED,
    &slowdown::DIFFERENT,
    &interference::GUESTS,
    &interference::LARGER_GUESTS,
    &scalability::WORKED_EXAMPLE,
    &scalability::FORK_JOIN,
    &oversubscription::SWITCHED,
    &oversubscription::BLOCKED,
    &oversubscription::ELASTIC,
    &oversubscription::SERVED,
    &oversubscription::LOCKED,
    &oversubscription::LOOKED,
    &thesis::OVERHEADS,
    &thesis::INTRINSIC_LATENCY,
    &thesis::PING,
    &thesis::NGINX,
    &thesis::NGINX_THRASHED,
    &thesis::TIER_2,
    &thesis::TARGETED,
    &thesis::MITIGATED,
    &thesis::SOCKETS,
    &fairness::BLOCKING,
    &fairness::STRATEGIES,
];

/// The figure of that name.
pub fn find(name: &str) -> Option<&'static Figure> {
    FIGURES.iter().find(|figure| figure.name == name).copied()
}

/// How figures are simulated.
pub struct Study<'p> {
    /// Of all chance, if not the scenarios' own.
    pub seed: Option<u64>,
    /// Each window is so many times shorter than the figure has it, and a warm-up is no longer than its window.
    pub hurry: u64,
    /// Told of each run that is done.
    pub progress: &'p (dyn Fn(&str) + Sync),
}

/// A scenario's text under a policy.
#[derive(Clone)]
pub struct Case {
    /// The policy; its label is shown.
    pub policy: Entry,
    /// The scenario.
    pub scenario: String,
}

impl Study<'_> {
    /// Runs all cases.
    ///
    /// # Errors
    ///
    /// A policy cannot carry a scenario.
    pub fn run(&self, cases: &[Case]) -> Result<Vec<Outcome>> {
        let each = |case: &Case| {
            let source = Source { path: "the figure's scenario".to_owned(), text: case.scenario.clone() };
            let mut scenario = Scenario::parse(&source).map_err(|errors| anyhow!("{errors}"))?;
            scenario.duration_ns /= self.hurry;
            scenario.warm_up_ns = scenario.warm_up_ns.min(scenario.duration_ns);
            let options = Options { seed: self.seed, trace: false };
            let outcome = scenario.run(&case.policy, options, &|_| ());
            (self.progress)(case.policy.label);
            outcome.with_context(|| format!("under {}", case.policy.label))
        };
        parallel::map(cases, each).into_iter().collect()
    }
}

/// A policy by its name, called something else where it is shown.
fn called(name: &str, label: &'static str) -> Entry {
    Entry { label, ..*policies::find(name).expect("the simulator has it") }
}
