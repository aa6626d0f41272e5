//! Experiments: which programs run in which tenants, for how long and under which policies; and what came out of them.

mod policy;
mod program;
pub mod result;

use anyhow::{Context, Result, anyhow, bail, ensure};
use rota_model::config::{self, Source};
use rota_model::{CpuSet, Match, Model, Tenant, Topology};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

pub use policy::Policy;
pub use program::{Program, Protocol, Shape};
pub use rota_model::histogram::{BUCKETS, Histogram};

/// An experiment. In TOML the durations are strings with a unit, as in a configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// Names it in results.
    pub name: String,
    /// CPUs of the guest that it is meant for.
    pub cpus: u32,
    /// How long the control looks at each CPU before the programs start, in ns; 0: not then, nor while they run.
    #[serde(with = "duration")]
    pub control: u64,
    /// From the start of the last program to the window, in ns.
    #[serde(with = "duration")]
    pub warm_up: u64,
    /// The time that is measured, in ns.
    #[serde(with = "duration")]
    pub window: u64,
    /// The period of `cpu.max`, in ns: the kernel takes 1 ms to 1 s.
    #[serde(with = "duration")]
    pub quota_period: u64,
    /// What is compared, in this order.
    pub policies: Vec<Policy>,
    /// What another scheduler than Rota is started with, if it is compared. None by default.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub scheduler_arguments: BTreeMap<Policy, Vec<String>>,
    /// The tenants: the text of a `rota.toml`, each of whose tenants has a `match` by cgroup.
    #[serde(default)]
    pub config: String,
    /// Instead of `config`: the file that holds it, beside the scenario's.
    #[serde(default, skip_serializing)]
    config_file: Option<String>,
    /// Files that programs need, written before they start.
    #[serde(default, rename = "file")]
    pub files: Vec<ExtraFile>,
    /// What runs.
    #[serde(rename = "program")]
    pub programs: Vec<Program>,
}

/// A file that a program needs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExtraFile {
    /// Where it is put: absolute.
    pub path: String,
    /// What is in it.
    pub text: String,
}

impl Scenario {
    /// Reads and checks a scenario's file, and the configuration that it names.
    ///
    /// # Errors
    ///
    /// If a file cannot be read or says what makes no sense; the error names it.
    pub fn load(path: &Path) -> Result<Scenario> {
        let read =
            |path: &Path| fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()));
        let text = read(path)?;
        let mut scenario: Scenario =
            toml::from_str(&text).map_err(|error| anyhow!("{}: {error}", path.display()))?;
        if let Some(file) = scenario.config_file.take() {
            ensure!(
                scenario.config.is_empty(),
                "{}: give either config or config_file, not both",
                path.display()
            );
            scenario.config = read(&path.with_file_name(file))?;
        }
        scenario.check().with_context(|| format!("{} makes no sense", path.display()))?;
        Ok(scenario)
    }

    /// The demo: real programs in the eight tenants of `examples/demo.toml` and one in the background, on two CPUs.
    ///
    /// # Errors
    ///
    /// None: its text is part of the program.
    pub fn demo() -> Result<Scenario> {
        let mut scenario: Scenario = toml::from_str(include_str!("../../scenarios/demo.toml"))?;
        scenario.config_file = None;
        scenario.config = include_str!("../../../../examples/demo.toml").to_owned();
        scenario.check()?;
        Ok(scenario)
    }

    /// The same scenario in one text, the configuration within it.
    ///
    /// # Errors
    ///
    /// None that is known.
    pub fn to_toml(&self) -> Result<String> {
        toml::to_string(self).context("cannot write the scenario as TOML")
    }

    /// What its configuration says of a machine with its CPUs.
    ///
    /// # Errors
    ///
    /// Every mistake in the configuration.
    pub fn model(&self) -> Result<Model> {
        let source =
            Source { path: format!("the configuration of {}", self.name), text: self.config.clone() };
        let machine = Topology::flat(&CpuSet::from_iter(0..self.cpus));
        config::parse(&[source], &machine).map_err(|errors| anyhow!("{errors}"))
    }

    /// The programs that have to be installed, by name, beside this crate's own.
    pub fn installed_programs(&self) -> BTreeSet<&str> {
        self.programs.iter().filter_map(|program| Some(program.command()?.first()?.as_str())).collect()
    }

    fn check(&self) -> Result<()> {
        ensure!(
            (1..=CpuSet::LIMIT).contains(&self.cpus),
            "cpus = {} is not between 1 and {}",
            self.cpus,
            CpuSet::LIMIT
        );
        ensure!(self.window > 0, "the window is empty; give it some seconds");
        ensure!(
            (1_000_000..=1_000_000_000).contains(&self.quota_period),
            "quota_period must be 1ms to 1s: the kernel takes no other"
        );
        ensure!(!self.policies.is_empty(), "policies is empty; name some of weight, max, rota, scx:NAME");
        if let Some(policy) = self.scheduler_arguments.keys().find(|policy| policy.program().is_none()) {
            bail!(
                "scheduler_arguments are for {policy}, which takes none; name a policy such as scx:layered"
            );
        }
        let model = self.model()?;
        let tenants: Vec<&Tenant> = observed(&model).collect();
        for tenant in &tenants {
            ensure!(
                cgroup_of(tenant).is_some(),
                "tenant {} needs match = {{ cgroup = \"...\" }}",
                tenant.name
            );
        }
        for (index, program) in self.programs.iter().enumerate() {
            let tenant = program.tenant();
            let known = tenants.iter().any(|known| known.name == tenant);
            ensure!(known, "program {index} is for tenant {tenant}, which the configuration does not have");
            program.check().with_context(|| format!("program {index}, of tenant {tenant}"))?;
            for other in &self.programs[..index] {
                if other.reports()
                    && program.reports()
                    && other.tenant() == tenant
                    && other.kind() == program.kind()
                {
                    bail!("tenant {tenant} has more than one {}; one has its results shown", program.kind());
                }
            }
        }
        Ok(())
    }
}

/// A model's tenants but the system's own, which has no cgroup.
pub fn observed(model: &Model) -> impl Iterator<Item = &Tenant> {
    model.tenants.iter().filter(|tenant| tenant.name != Tenant::SYSTEM)
}

/// The cgroup by which a tenant is found, if it is by one.
pub fn cgroup_of(tenant: &Tenant) -> Option<&str> {
    match &tenant.matcher {
        Some(Match::Cgroup(path)) => Some(path),
        _ => None,
    }
}

/// Durations as a configuration writes them.
mod duration {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
        rota_model::config::duration_ns(&String::deserialize(from)?).map_err(D::Error::custom)
    }

    pub fn serialize<S: Serializer>(ns: &u64, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&format!("{ns}ns"))
    }
}

#[cfg(test)]
mod tests;
