//! The configuration as the daemon has it: read for this machine, and with this node's pods.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Result;
use rota_host::topology;
use rota_model::config::{Here, Kubernetes, Source};
use rota_model::{CpuSet, Model, Pod, Tenant};
use rota_rules::pods::{Node, Refusal, parse_node};

use crate::daemon::Machine;
use crate::sources;

/// A configuration as it was read.
pub struct Loaded {
    pub sources: Vec<Source>,
    /// With the CPUs that are online, and the pods.
    pub model: Model,
    /// Those that the configuration has beside them.
    pub offline: CpuSet,
    pub kubernetes: Option<Kubernetes>,
    /// Why pods are not served as they ask.
    pub refused: BTreeMap<String, Refusal>,
}

pub fn load(machine: &Machine, config: &Path, pods: &[Pod]) -> Result<Loaded> {
    parse(machine, sources::read_trusted(config)?, pods)
}

pub fn parse(machine: &Machine, sources: Vec<Source>, pods: &[Pod]) -> Result<Loaded> {
    let Node { here, refused } = parse_node(&sources, &topology::machine(&machine.system)?, pods)?;
    let Here { model, offline, kubernetes } = here;
    Ok(Loaded { sources, model, offline, kubernetes, refused })
}

/// The configuration, or the `good` one that was in use, and why.
pub fn load_or_keep(
    machine: &Machine,
    config: &Path,
    good: Vec<Source>,
    pods: &[Pod],
) -> Result<(Loaded, Option<String>)> {
    match load(machine, config, pods) {
        Ok(loaded) => Ok((loaded, None)),
        Err(error) => Ok((parse(machine, good, pods)?, Some(format!("{error:#}")))),
    }
}

/// What there is to say of a configuration before anybody has come.
pub fn remarks(model: &Model, offline: &CpuSet) -> Vec<String> {
    let offline = (!offline.is_empty()).then(|| {
        format!("CPUs {offline} of host.cpus are offline: nothing is planned there until they are online")
    });
    let is_unmatched =
        |tenant: &&Tenant| tenant.matcher.is_none() && !tenant.pinned && model.monitors_in(tenant) == 0;
    let unmatched = model.tenants.iter().filter(is_unmatched);
    let unmatched =
        unmatched.map(|tenant| format!("{}: has no `match`, so it is only planned for", tenant.name));
    offline.into_iter().chain(unmatched).collect()
}
