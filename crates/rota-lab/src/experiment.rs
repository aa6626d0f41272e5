//! A scenario in a guest: the guest is made, booted, and its results are brought back.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::image::installed_scheduler;
use crate::scenario::result::PolicyResult;
use crate::scenario::{Policy, Scenario};
use crate::{Clock, Image, Kernel, Vm};

/// What runs in every guest, beside the scenario's own programs: built with the command line.
const OWN: [&str; 5] = ["rota", "rota-guest", "rota-probe", "rota-load", "rota-parallel"];
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
        let mut results = self.run_all(std::slice::from_ref(scenario), on_step)?;
        results.pop().context("there is no scenario")
    }

    /// The same with several scenarios for equal machines, all in one guest; the results of each.
    ///
    /// # Errors
    ///
    /// See [`Experiment::run`], and if they are for different numbers of CPUs.
    pub fn run_all(
        &self,
        scenarios: &[Scenario],
        on_step: &mut dyn FnMut(&str),
    ) -> Result<Vec<Vec<PolicyResult>>> {
        let cpus = scenarios.first().context("there is no scenario")?.cpus;
        ensure!(
            scenarios.iter().all(|scenario| scenario.cpus == cpus),
            "the scenarios are for different machines"
        );
        let image = self.image(scenarios)?;
        let mut vm = Vm::new(self.kernel.clone(), cpus);
        vm.memory_mib = self.memory_mib;
        vm.clock = self.clock;
        on_step(&format!("booting {} with {cpus} CPUs", self.kernel.version));
        let mut listen = |line: &str| {
            let policies = scenarios.iter().flat_map(|scenario| &scenario.policies);
            let mut tellers = policies.map(|policy| policy.name()).chain(["lab"]);
            if tellers.any(|teller| line.strip_prefix(teller).is_some_and(|rest| rest.starts_with(": "))) {
                on_step(line);
            }
        };
        let limit = OVERHEAD + scenarios.iter().map(|scenario| self.limit(scenario)).sum::<Duration>();
        let outcome = vm.run(&image, limit, &mut listen)?.ok()?;
        let results = |(index, scenario): (usize, &Scenario)| {
            let policies = scenario.policies.iter();
            policies.map(|policy| read_result(&outcome.results, &format!("{index}/{policy}.json"))).collect()
        };
        scenarios.iter().enumerate().map(results).collect()
    }

    fn image(&self, scenarios: &[Scenario]) -> Result<Image> {
        let mut image = Image::new(&self.kernel)?;
        for name in OWN {
            let program = self.programs.join(name);
            let missing =
                || format!("{name} is not in {}: build the package rota-lab too", self.programs.display());
            image.own_program(&program, &format!("/usr/bin/{name}")).with_context(missing)?;
        }
        let clock = self.clock.name();
        let mut script = "set -e\n".to_owned();
        for (index, scenario) in scenarios.iter().enumerate() {
            for name in scenario.installed_programs() {
                image
                    .program_on_path(name)
                    .with_context(|| format!("{name} is needed by {}", scenario.name))?;
            }
            for policy in &scenario.policies {
                if let Some(program) = policy.program() {
                    image.scheduler(&program).with_context(|| format!("the policy {policy}"))?;
                }
            }
            let file = format!("/lab/{index}.toml");
            image.bytes(&file, 0o644, scenario.to_toml()?);
            for policy in &scenario.policies {
                let from = format!("rota-guest --scenario {file} --policy {policy} --clock {clock}");
                script += &format!("{from} --out /results/{index}\n");
            }
        }
        image.command(&script);
        Ok(image)
    }

    /// How long its runs may take.
    fn limit(&self, scenario: &Scenario) -> Duration {
        let measured = Duration::from_nanos(scenario.control + scenario.warm_up + scenario.window);
        let slower = if self.clock == Clock::Instructions { SLOWEST } else { 1 };
        (measured * slower + OVERHEAD) * scenario.policies.len() as u32
    }
}

fn read_result(results: &BTreeMap<String, Vec<u8>>, name: &str) -> Result<PolicyResult> {
    let bytes = results.get(name).with_context(|| format!("the guest left no {name}"))?;
    serde_json::from_slice(bytes).with_context(|| format!("reading {name}"))
}

/// Looks for the schedulers of `policies` that are neither the kernel nor Rota, before anything long begins.
///
/// # Errors
///
/// The first that is not on PATH, and how it gets there.
pub fn check_schedulers(policies: &[Policy]) -> Result<()> {
    for policy in policies {
        if let Some(program) = policy.program() {
            installed_scheduler(&program).with_context(|| format!("the policy {policy}"))?;
        }
    }
    Ok(())
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
