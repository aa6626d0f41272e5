//! A scenario in a guest: the guest is made, booted, and its results are brought back.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::scenario::Scenario;
use crate::scenario::result::PolicyResult;
use crate::{Clock, Image, Kernel, Vm};

/// What runs in every guest, beside the scenario's own programs: built with the command line.
const OWN: [&str; 4] = ["rota", "rota-guest", "rota-probe", "rota-load"];
/// For a guest's start and end, and for each policy beside its control, warm-up and window.
const OVERHEAD: Duration = Duration::from_secs(180);
/// How much slower than its own clock a guest may run when it counts instructions.
const SLOWEST: u32 = 30;

/// Where to run a scenario.
#[derive(Clone, Debug)]
pub struct Experiment {
    /// What is booted.
    pub kernel: Kernel,
    /// What its time follows.
    pub clock: Clock,
    /// The guest's memory, MiB.
    pub memory_mib: u32,
    /// The folder with `rota` and the lab's own programs.
    pub programs: PathBuf,
}

impl Experiment {
    /// Runs `scenario` under each of its policies, one after the other in one guest.
    ///
    /// `on_step` hears of each step as it begins.
    ///
    /// # Errors
    ///
    /// A program is not installed, the guest does not boot, or a run in it fails; the console's log is named then.
    pub fn run(&self, scenario: &Scenario, on_step: &mut dyn FnMut(&str)) -> Result<Vec<PolicyResult>> {
        let image = self.image(scenario)?;
        let mut vm = Vm::new(self.kernel.clone(), scenario.cpus);
        vm.memory_mib = self.memory_mib;
        vm.clock = self.clock;
        on_step(&format!("booting {} with {} CPUs", self.kernel.version, scenario.cpus));
        let policies: Vec<String> = scenario.policies.iter().map(ToString::to_string).collect();
        let mut listen = |line: &str| {
            let mut tellers = policies.iter().map(String::as_str).chain(["lab"]);
            if tellers.any(|teller| line.strip_prefix(teller).is_some_and(|rest| rest.starts_with(": "))) {
                on_step(line);
            }
        };
        let outcome = vm.run(&image, self.limit(scenario), &mut listen)?.ok()?;
        policies.iter().map(|policy| read_result(&outcome.results, policy)).collect()
    }

    fn image(&self, scenario: &Scenario) -> Result<Image> {
        let mut image = Image::new(&self.kernel)?;
        for name in OWN {
            let program = self.programs.join(name);
            let missing =
                || format!("{name} is not in {}: build the package rota-lab too", self.programs.display());
            image.program(&program, &format!("/usr/bin/{name}")).with_context(missing)?;
        }
        for name in scenario.installed_programs() {
            image.program_on_path(name).with_context(|| format!("{name} is needed by {}", scenario.name))?;
        }
        image.bytes("/lab/scenario.toml", 0o644, scenario.to_toml()?);
        let clock = self.clock.name();
        let run = |policy: &_| {
            format!("rota-guest --scenario /lab/scenario.toml --policy {policy} --clock {clock}\n")
        };
        let script: String = scenario.policies.iter().map(run).collect();
        image.command(&format!("set -e\n{script}"));
        Ok(image)
    }

    /// How long the whole may take.
    fn limit(&self, scenario: &Scenario) -> Duration {
        let measured = Duration::from_nanos(scenario.control + scenario.warm_up + scenario.window);
        let slower = if self.clock == Clock::Instructions { SLOWEST } else { 1 };
        OVERHEAD + (measured * slower + OVERHEAD) * scenario.policies.len() as u32
    }
}

fn read_result(results: &std::collections::BTreeMap<String, Vec<u8>>, policy: &str) -> Result<PolicyResult> {
    let name = format!("{policy}.json");
    let Some(bytes) = results.get(&name) else { bail!("the guest left no {name}") };
    serde_json::from_slice(bytes).with_context(|| format!("reading {name}"))
}

/// The folder of the program that runs now: where a build puts the others too.
///
/// # Errors
///
/// None that is known.
pub fn own_folder() -> Result<PathBuf> {
    let program = std::env::current_exe().context("finding this program's own file")?;
    Ok(program.parent().unwrap_or(Path::new("/")).to_owned())
}
