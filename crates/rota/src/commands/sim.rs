//! `rota sim`: a scenario on the simulator, under one policy after the other.

mod interference;
mod replay;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser};
use indicatif::{ProgressBar, ProgressStyle};
use rota_model::config::Source;
use rota_record::Recording;
use rota_scenario::policies::{self, Entry, POLICIES};
use rota_scenario::{INTERVALS, Options, Outcome, Scenario};
use rota_sim::observe::perfetto;

use super::{Failure, files, note, print, print_json, print_text};
use crate::papers::{self, FIGURES, Study};
use crate::{parallel, plan, report, sim};

/// Simulate a host with its tenants and what they run, under Rota and under other schedulers
///
/// Nothing of this machine is touched. The same scenario and seed give the same results everywhere. Exits with 3 if
/// Rota cannot keep all promises, and with 1 if a run is void: something happened that no scheduler may do, as a thread
/// that waits under Rota until the kernel's watchdog comes.
#[derive(Debug, Args)]
pub struct Arguments {
    /// What is simulated: a configuration with workloads, see examples/sim.toml; or a scenario of the lab's
    #[arg(required_unless_present_any = ["replay", "paper"])]
    scenario: Option<PathBuf>,
    /// Instead of a scenario, the load in a recording that `rota record` has made
    ///
    /// The same threads compute, sleep, wait and wake each other as they did. Says also how far a replay under the
    /// recorded scheduler is from the recording.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["scenario", "paper"])]
    replay: Option<PathBuf>,
    /// Replay on so many CPUs; by default on those that were recorded
    #[arg(long, value_name = "N")]
    cpus: Option<u32>,
    /// With a recording: what it would gain on its host to move vCPUs for their caches
    ///
    /// The load is replayed under Rota with each value of `interference` in `[host]`. A recording says nothing of
    /// caches, so FILE says what threads work on; docs/INTERFERENCE.md says how to find that out.
    #[arg(
        long,
        value_name = "FILE",
        requires = "replay",
        conflicts_with_all = ["policy", "report", "trace"]
    )]
    interference: Option<Option<PathBuf>>,
    /// A paper's figure or table again, what was published beside what comes out
    #[arg(
        long,
        value_name = "FIGURE",
        conflicts_with_all = ["scenario", "policy", "trace"],
        value_parser = PossibleValuesParser::new(
            FIGURES.iter().map(|figure| PossibleValue::new(figure.name).help(figure.title))
        )
    )]
    paper: Option<String>,
    /// Under these policies only; all by default
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "POLICY,...",
        value_parser = PossibleValuesParser::new(POLICIES.iter().map(known))
    )]
    policy: Vec<String>,
    /// With these seeds, one run each; by default the scenario's own
    #[arg(long, value_delimiter = ',', value_name = "N,...")]
    seed: Vec<u64>,
    /// Print the results as JSON: one entry a run
    #[arg(long)]
    json: bool,
    /// Write the results as one HTML file
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Write every event as JSON that ui.perfetto.dev opens: one process a run
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
}

fn known(policy: &Entry) -> PossibleValue {
    PossibleValue::new(policy.name).help(policy.about)
}

/// One run to be made.
#[derive(Clone, Copy)]
struct Job<'s> {
    scenario: &'s Scenario,
    policy: &'s Entry,
    /// What it is called while it is made.
    name: &'s str,
    options: Options,
}

pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    if let Some(figure) = arguments.paper.as_deref().and_then(papers::find) {
        return paper(figure, arguments);
    }
    if let Some(file) = &arguments.interference {
        return interference::run(arguments, file.as_deref());
    }
    let (path, scenario, recording) = load(arguments)?;
    let policies = policies(&arguments.policy);
    let timetable =
        if policies.iter().any(|policy| policy.name == "rota") { Some(planned(&scenario)?) } else { None };
    let options = options(arguments);
    let job =
        |policy: &'static Entry, options| Job { scenario: &scenario, policy, name: policy.name, options };
    let jobs: Vec<Job> =
        policies.iter().flat_map(|policy| options.iter().map(move |options| job(policy, *options))).collect();
    let outcomes = run_all(&jobs)?;
    if let Some(path) = &arguments.trace {
        write(path, &traced(&jobs, &outcomes))?;
    }
    let by_policy: Vec<(&Entry, Vec<&Outcome>)> = policies
        .iter()
        .copied()
        .zip(outcomes.chunks(options.len()).map(|same| same.iter().collect()))
        .collect();
    let name = path.file_stem().unwrap_or_default().to_string_lossy();
    let mut shown = sim::report(&name, &scenario, &by_policy, timetable);
    let distance = recording.as_ref().map(replay::distance).transpose()?.flatten();
    let lost = recording.as_ref().map_or(0, |recording| recording.lost);
    shown.comparison = distance.as_ref().map(|distance| distance.comparison(lost));
    if let Some(path) = &arguments.report {
        write(path, &report::render(&shown))?;
    }
    if arguments.json {
        let runs = jobs.iter().zip(&outcomes).map(|(job, outcome)| sim::Result::new(job.policy, outcome));
        let runs = runs.collect();
        match recording {
            Some(recording) => {
                print_json(&replay::Replayed { recording: replay::Facts::from(&recording), distance, runs })
            }
            None => print_json(&runs),
        }?;
    } else {
        print_text(&report::text(&shown))?;
    }
    tell_faults(&jobs, &outcomes)
}

/// How each run of a policy is made: one a seed.
fn options(arguments: &Arguments) -> Vec<Options> {
    let trace = arguments.trace.is_some();
    match &arguments.seed[..] {
        [] => vec![Options { seed: None, trace }],
        seeds => seeds.iter().map(|seed| Options { seed: Some(*seed), trace }).collect(),
    }
}

/// Says what no scheduler may do and one did. The command has failed if that makes a run void.
fn tell_faults(jobs: &[Job], outcomes: &[Outcome]) -> Result<(), Failure> {
    let found = jobs.iter().zip(outcomes).map(|(job, outcome)| sim::Faults::of(job.policy, outcome));
    let (void, told): (Vec<sim::Faults>, Vec<sim::Faults>) = found.partition(|faults| faults.is_void);
    told.iter().flat_map(|faults| &faults.lines).for_each(|line| note(&format!("rota: {line}")));
    let lines: Vec<&str> = void.iter().flat_map(|faults| &faults.lines).map(String::as_str).collect();
    if lines.is_empty() { Ok(()) } else { Err(Failure::Failed(anyhow!(lines.join("\n")))) }
}

/// A paper's figure, with the first seed that is given.
fn paper(figure: &papers::Figure, arguments: &Arguments) -> Result<(), Failure> {
    let progress = |label: &str| note(&format!("{}, {label}: simulated", figure.name));
    let study = Study { seed: arguments.seed.first().copied(), hurry: 1, progress: &progress };
    let tables = (figure.study)(&study)?;
    if let Some(path) = &arguments.report {
        write(path, &papers::render(figure, &tables))?;
    }
    if arguments.json {
        return print_json(&(figure, &tables));
    }
    print(papers::text(figure, &tables).as_bytes())
}

/// What is simulated: the file, what it says, and the recording if it is one.
fn load(arguments: &Arguments) -> Result<(&Path, Scenario, Option<Recording>), Failure> {
    match (&arguments.replay, &arguments.scenario) {
        (Some(path), _) => {
            let (scenario, recording) = replay::read(path, arguments.cpus)?;
            Ok((path, scenario, Some(recording)))
        }
        (None, _) if arguments.cpus.is_some() => {
            Err(Failure::Usage(anyhow!("--cpus is for --replay; a scenario says its CPUs in [host]")))
        }
        (None, Some(path)) => Ok((path, read(path)?, None)),
        (None, None) => Err(Failure::Usage(anyhow!("name a scenario, or a recording with --replay"))),
    }
}

fn read(path: &Path) -> Result<Scenario, Failure> {
    let name = path.display().to_string();
    let mut text =
        std::fs::read_to_string(path).with_context(|| format!("reading {name}")).map_err(Failure::Usage)?;
    if sim::lab::is_lab(&text) {
        let translated = rota_lab::scenario::Scenario::load(path).and_then(|lab| sim::lab::translated(&lab));
        text = translated.map_err(Failure::Usage)?;
    }
    Scenario::parse(&Source { path: name, text }).map_err(|errors| Failure::Usage(errors.into()))
}

/// The policies of these names, each once, in the order in which they are asked for.
fn policies(names: &[String]) -> Vec<&'static Entry> {
    if names.is_empty() {
        return POLICIES.iter().collect();
    }
    let mut chosen: Vec<&Entry> = Vec::new();
    for entry in names.iter().filter_map(|name| policies::find(name)) {
        if !chosen.iter().any(|other| other.name == entry.name) {
            chosen.push(entry);
        }
    }
    chosen
}

/// The picture of the timetable that Rota begins with.
fn planned(scenario: &Scenario) -> Result<String, Failure> {
    let options = rota_plan::Options { placement: scenario.model.host.placement };
    let planned = rota_plan::plan(&scenario.model, &options)
        .map_err(|infeasible| Failure::Infeasible(infeasible.into()))?;
    Ok(plan::render_svg(&planned, &scenario.model))
}

/// Makes all runs. Returns their outcomes in the order of the jobs.
fn run_all(jobs: &[Job]) -> Result<Vec<Outcome>> {
    let progress = Progress::new(jobs.len());
    let outcomes = parallel::map(jobs, |job| {
        let outcome = job.scenario.run(job.policy, job.options, &|_| progress.step());
        progress.done(job);
        outcome.with_context(|| format!("under the policy {}", job.policy.name))
    });
    outcomes.into_iter().collect()
}

fn traced(jobs: &[Job], outcomes: &[Outcome]) -> String {
    let runs = (1..).zip(jobs.iter().zip(outcomes));
    let parts = runs.filter_map(|(process, (job, outcome))| {
        let label = format!("{}, seed {}", job.policy.label, outcome.seed);
        Some(outcome.trace.as_ref()?.to_perfetto(process, &label, |task| outcome.name(task)))
    });
    perfetto(&parts.collect::<Vec<_>>())
}

fn write(path: &Path, text: &str) -> Result<()> {
    files::write(path, text.as_bytes())
}

/// How far all runs together are, on standard error: a bar on a terminal, a line a run elsewhere.
struct Progress(ProgressBar);

impl Progress {
    fn new(runs: usize) -> Progress {
        let bar = ProgressBar::new(runs as u64 * INTERVALS);
        let style = ProgressStyle::with_template("{bar:40} {percent:>3} %  {elapsed} of {duration}  {msg}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        bar.enable_steady_tick(Duration::from_millis(100));
        Progress(bar)
    }

    fn step(&self) {
        self.0.inc(1);
    }

    fn done(&self, job: &Job) {
        let seed = job.options.seed.map_or(String::new(), |seed| format!(", seed {seed}"));
        let line = format!("{}{seed}: simulated", job.name);
        if self.0.is_hidden() {
            note(&line);
        } else {
            self.0.set_message(line);
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
