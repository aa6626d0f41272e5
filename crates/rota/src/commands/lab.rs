//! `rota lab` and `rota demo`: a scenario in a guest with a real kernel, under each of its policies.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use rota_lab::scenario::result::PolicyResult;
use rota_lab::scenario::{Policy, Scenario};
use rota_lab::{Clock, Experiment, Kernel, experiment};

use super::{Failure, files, note, print, print_json};
use crate::report::Report;
use crate::{plan, report};

/// Run a scenario in a guest with a real kernel, under Rota and under the kernel's own scheduler
#[derive(Debug, Args)]
pub struct Arguments {
    /// The scenario: see crates/rota-lab/scenarios
    scenario: PathBuf,
    #[command(flatten)]
    guest: Guest,
    /// Run under these policies only: rota, weight, max, or scx:NAME for the scheduler scx_NAME that is installed
    #[arg(long, value_delimiter = ',', value_name = "POLICY,...")]
    policies: Vec<Policy>,
    /// Write the results as one HTML file
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Print the results as JSON
    #[arg(long)]
    json: bool,
}

/// Show Rota keeping its promises: real programs under cpu.weight, under cpu.max, and under Rota
#[derive(Debug, Args)]
pub struct Demo {
    #[command(flatten)]
    guest: Guest,
    /// Where to write the results as one HTML file, and beside it as JSON
    #[arg(long, value_name = "FILE", default_value = "demo.html")]
    html: PathBuf,
}

#[derive(Debug, Args)]
struct Guest {
    /// The kernel's release, or the beginning of one: 7, 6.18. The newest that is known to work by default
    #[arg(long, default_value = "", hide_default_value = true)]
    kernel: String,
    /// What the guest's time follows. By default the machine's clock, and for the demo instructions counted
    #[arg(long, value_enum)]
    clock: Option<Clock>,
    /// The guest's memory, MiB
    #[arg(long, default_value_t = 2048, value_name = "MIB")]
    memory: u32,
}

pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let mut scenario = Scenario::load(&arguments.scenario).map_err(Failure::Usage)?;
    if !arguments.policies.is_empty() {
        scenario.policies.clone_from(&arguments.policies);
    }
    experiment::check_schedulers(&scenario.policies).map_err(Failure::Usage)?;
    let results = arguments.guest.run(&scenario, Clock::Real)?;
    if let Some(path) = &arguments.html {
        write_html(path, &scenario, &results)?;
    }
    if arguments.json { print_json(&results) } else { print(text(&results).as_bytes()) }
}

pub fn demo(arguments: &Demo) -> Result<(), Failure> {
    let scenario = Scenario::demo()?;
    // An emulator's own delays, which on a busy machine are longer than a slot, would be all that real time shows.
    let results = arguments.guest.run(&scenario, Clock::Instructions)?;
    write_html(&arguments.html, &scenario, &results)?;
    let json = arguments.html.with_extension("json");
    write(&json, &serde_json::to_string(&results).context("writing JSON")?)?;
    print(text(&results).as_bytes())?;
    let (html, json) = (arguments.html.display(), json.display());
    print(format!("\nThe same with charts: {html}. As JSON: {json}.\n").as_bytes())
}

impl Guest {
    fn run(&self, scenario: &Scenario, clock: Clock) -> Result<Vec<PolicyResult>> {
        let progress = Progress::new();
        let kernel = Kernel::fetch(&self.kernel, &mut |step| progress.step(step))?;
        let experiment = Experiment {
            kernel,
            clock: self.clock.unwrap_or(clock),
            memory_mib: self.memory,
            programs: experiment::own_folder()?,
        };
        experiment.run(scenario, &mut |step| progress.step(step))
    }
}

/// The page, with the timetable that Rota enacted.
fn write_html(path: &Path, scenario: &Scenario, results: &[PolicyResult]) -> Result<()> {
    let model = scenario.model()?;
    let timetable = rota_plan::plan(&model, &rota_plan::Options::default())
        .ok()
        .map(|planned| plan::render_svg(&planned, &model));
    write(path, &report::render(&Report::of_lab(results, timetable)))
}

fn text(results: &[PolicyResult]) -> String {
    report::text(&Report::of_lab(results, None))
}

fn write(path: &Path, text: &str) -> Result<()> {
    files::write(path, text.as_bytes())
}

/// What goes on, on standard error: a spinner with the present step on a terminal, a line a step elsewhere.
struct Progress(ProgressBar);

impl Progress {
    fn new() -> Progress {
        let bar = ProgressBar::new_spinner();
        let style = ProgressStyle::with_template("{spinner} {elapsed:>4}  {msg}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
        bar.enable_steady_tick(Duration::from_millis(100));
        Progress(bar)
    }

    fn step(&self, step: &str) {
        let step = step.trim_end();
        if self.0.is_hidden() {
            note(step);
        } else {
            self.0.set_message(step.to_owned());
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
