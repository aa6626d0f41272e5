//! `rota sim --replay`: what a recording says, run again.

use std::path::Path;

use anyhow::Context;
use rota_record::{Policy, Recording};
use rota_scenario::{Scenario, policies, replay};
use serde::Serialize;

use crate::commands::{Failure, files, note};
use crate::sim::{Distance, Result};

/// All runs of a replay, for programs.
#[derive(Debug, Serialize)]
pub struct Replayed {
    /// What was recorded.
    pub recording: Facts,
    /// How far the replay under the recorded policy is from it, if the simulator has that policy.
    pub distance: Option<Distance>,
    /// One entry a run, as without a recording.
    pub runs: Vec<Result>,
}

/// A recording without its events.
#[derive(Debug, Serialize)]
pub struct Facts {
    /// Of which kernel.
    pub kernel: String,
    /// Under which scheduler.
    pub policy: String,
    /// On how many CPUs.
    pub cpus: usize,
    /// For how long.
    pub duration_ns: u64,
    /// How many threads were seen.
    pub threads: usize,
    /// How many events it has.
    pub events: usize,
    /// How many more there were.
    pub lost: u64,
}

impl From<&Recording> for Facts {
    fn from(recording: &Recording) -> Facts {
        Facts {
            kernel: recording.kernel.clone(),
            policy: match &recording.policy {
                Policy::Rota => "rota".to_owned(),
                Policy::Eevdf => "eevdf".to_owned(),
                Policy::Cfs => "cfs".to_owned(),
                Policy::Other(name) => name.clone(),
            },
            cpus: recording.host.cpus.len(),
            duration_ns: recording.duration_ns,
            threads: recording.threads.len(),
            events: recording.events.len(),
            lost: recording.lost,
        }
    }
}

/// Reads a recording, and makes a scenario of it for `cpus` CPUs.
pub fn read(path: &Path, cpus: Option<u32>) -> std::result::Result<(Scenario, Recording), Failure> {
    let name = path.display().to_string();
    let bytes = files::read(path).map_err(Failure::Usage)?;
    let recording = Recording::from_bytes(&bytes).context(name).map_err(Failure::Usage)?;
    let scenario = scenario(&recording, path, cpus)?;
    Ok((scenario, recording))
}

/// The load of the recording in a file as a scenario for `cpus` CPUs.
pub fn scenario(
    recording: &Recording,
    path: &Path,
    cpus: Option<u32>,
) -> std::result::Result<Scenario, Failure> {
    replay::scenario(recording, cpus).with_context(|| path.display().to_string()).map_err(Failure::Usage)
}

/// Runs a recording once more as it was recorded: under that policy, if there is one like it, and on those CPUs.
pub fn distance(recording: &Recording) -> anyhow::Result<Option<Distance>> {
    let Some(policy) = replay::policy_of(recording).and_then(policies::find) else {
        let Facts { policy, .. } = recording.into();
        note(&format!(
            "rota: recorded under {policy}, which is not simulated: how far the replay is off is not known"
        ));
        return Ok(None);
    };
    let scenario = replay::scenario(recording, None)?;
    // Twice as long, so that who is late is seen to end.
    let again = scenario.record(policy, None, recording.duration_ns.saturating_mul(2), &|_| {});
    let again = again.with_context(|| format!("replaying under the policy {}", policy.name))?;
    note(&format!("{}: compared with the recording", policy.name));
    Ok(Some(Distance::new(policy, recording, &again)))
}
