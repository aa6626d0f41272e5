//! `rota sim --replay --interference`: what it would gain on the recorded host to move vCPUs for their caches.

use std::path::Path;

use anyhow::{Context, anyhow};
use rota_model::config::Source;
use rota_record::Recording;
use rota_scenario::policies::{self, Entry};
use rota_scenario::replay::Memories;
use rota_scenario::{Outcome, Scenario};
use serde::Serialize;

use super::replay::{self, Facts};
use super::{Arguments, Job, options, planned, run_all, tell_faults};
use crate::commands::{Failure, print_json, print_text};
use crate::report;
use crate::sim;
use crate::sim::gain::{Gain, STRATEGIES, listed};

/// The answer for programs.
#[derive(Debug, Serialize)]
struct Answer {
    /// What was recorded.
    recording: Facts,
    #[serde(flatten)]
    gain: Gain,
    /// One entry a run: all seeds of a strategy, then those of the next.
    runs: Vec<Run>,
}

#[derive(Debug, Serialize)]
struct Run {
    /// The strategy.
    interference: &'static str,
    #[serde(flatten)]
    run: sim::Result,
}

pub fn run(arguments: &Arguments, file: Option<&Path>) -> Result<(), Failure> {
    let path = arguments.replay.as_deref().context("clap wants a recording")?;
    let (scenario, recording) = replay::read(path, arguments.cpus)?;
    let Some(file) = file else { return Err(Failure::Usage(unknown(path, &recording))) };
    let name = file.display().to_string();
    let text =
        std::fs::read_to_string(file).with_context(|| format!("reading {name}")).map_err(Failure::Usage)?;
    let source = Source { path: name, text };
    planned(&scenario)?;
    let scenarios = STRATEGIES.iter().map(|(interference, _)| {
        let mut scenario = replay::scenario(&recording, path, arguments.cpus)?;
        scenario.model.host.interference = *interference;
        let memories = scenario.remember(&source).map_err(|errors| Failure::Usage(errors.into()))?;
        Ok((scenario, memories))
    });
    let scenarios = scenarios.collect::<Result<Vec<(Scenario, Memories)>, Failure>>()?;
    compare(arguments, path, file, &recording, &scenarios)
}

/// Makes the runs, and says what came out.
fn compare(
    arguments: &Arguments,
    path: &Path,
    file: &Path,
    recording: &Recording,
    scenarios: &[(Scenario, Memories)],
) -> Result<(), Failure> {
    let rota = policies::find("rota").context("Rota is a policy")?;
    let entries = STRATEGIES.map(|(_, label)| Entry { label, ..*rota });
    let options = options(arguments);
    let ways = scenarios.iter().zip(&entries);
    let jobs = ways.flat_map(|((scenario, _), policy)| {
        options.iter().map(move |options| Job { scenario, policy, name: policy.label, options: *options })
    });
    let jobs: Vec<Job> = jobs.collect();
    let outcomes = run_all(&jobs)?;
    let per_strategy = [0, 1, 2].map(|place| &outcomes[place * options.len()..][..options.len()]);
    let (scenario, memories) = &scenarios[0];
    let gain = Gain::new(&scenario.model, memories, per_strategy);
    if arguments.json {
        let run = |(job, outcome): (&Job, &Outcome)| Run {
            interference: job.policy.label,
            run: sim::Result::new(job.policy, outcome),
        };
        let runs = jobs.iter().zip(&outcomes).map(run).collect();
        print_json(&Answer { recording: recording.into(), gain, runs })?;
    } else {
        let by_strategy: Vec<(&Entry, Vec<&Outcome>)> =
            entries.iter().zip(per_strategy).map(|(entry, runs)| (entry, runs.iter().collect())).collect();
        let runs = sim::report("", scenario, &by_strategy, None).runs;
        let recorded = path.display().to_string();
        let mut text = report::compared(&gain.comparison(&recorded));
        gain.notes(file).iter().for_each(|note| text += &format!("{note}\n"));
        runs.iter().for_each(|run| text += &format!("{}: {}.\n", run.policy.label, report::verdict(run)));
        print_text(&text)?;
    }
    tell_faults(&jobs, &outcomes)
}

/// Without a file nothing can be said.
fn unknown(path: &Path, recording: &Recording) -> anyhow::Error {
    let names: Vec<String> = recording.tenants.iter().map(|tenant| tenant.name.clone()).collect();
    anyhow!(
        "{} has no cache data, as no recording has: what threads work on cannot be seen from outside.\n\
         Write a file with a [[memory]] for each tenant that you know, and name it: --interference FILE. Its keys are \
         tenant, working_set (KiB of each thread), references (lines in a microsecond) and overlap.\n\
         The tenants are {}. docs/INTERFERENCE.md says how to find the values out.",
        path.display(),
        listed(&names)
    )
}
