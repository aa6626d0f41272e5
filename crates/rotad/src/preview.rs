//! What the daemon would do now: the same discovery and the same rules, and nobody who carries it out.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::path::Path;

use rota_host::{Discovery, Sighting, Trust};
use rota_model::config::Kubernetes;
use rota_model::{CpuSet, Host, Interference, Model};
use rota_rules::life::Action;
use rota_rules::status::{KubernetesStatus, Status};
use rota_rules::{Command, Driver};
use rota_sched::Installed;

use crate::Failure;
use crate::configuration::{Loaded, load, remarks};
use crate::daemon::{Machine, event};
use crate::pods;

/// What the daemon would come to if it started now.
#[derive(Debug)]
pub struct Preview {
    /// The configuration, with the CPUs that are online.
    pub model: Model,
    /// The configured CPUs that are not.
    pub offline: CpuSet,
    /// How pods become tenants, if they do. The container runtime was asked for those of now.
    pub kubernetes: Option<Kubernetes>,
    /// What its status would be as soon as its first table is in force.
    pub status: Status,
    /// How many vCPU threads each tenant that was found has.
    pub threads: BTreeMap<String, usize>,
    /// What there is to say of tenants that were not found where something like them is.
    pub remarks: Vec<String>,
    /// What its log would say besides.
    pub log: Vec<String>,
}

/// Looks at the machine as the daemon does that has these [`vm_users`](crate::Options::vm_users), and lets the daemon's
/// rules decide. Nothing on the machine is changed.
///
/// # Errors
/// If the configuration is wrong, or the machine's cgroups cannot be read.
pub fn preview(
    machine: &Machine,
    config: &Path,
    vm_users: Vec<RangeInclusive<u32>>,
) -> Result<Preview, Failure> {
    let (Loaded { model, offline, kubernetes, refused, .. }, told) = load_with_pods(machine, config)?;
    let trust = Trust::new(vm_users);
    let mut discovery =
        Discovery::open(machine.cgroup_root.clone(), machine.proc.clone(), trust).map_err(Failure::Failed)?;
    discovery.scan_vms(&model);
    let (mut sightings, remarked) = discovery.look(&model);
    sightings.extend(discovery.scan_threads(&model));
    let threads = sightings.iter().filter_map(|sighting| match sighting {
        Sighting::Threads(tenant, threads) => Some((tenant.clone(), threads.len())),
        _ => None,
    });
    let threads = threads.collect();

    // What is done again and again has no end to wait for.
    let host = Host { interference: Interference::Off, ..model.host.clone() };
    let mut driver = Driver::new(0, Model { host, ..model.clone() }, &[]);
    sightings.into_iter().for_each(|sighting| driver.tell(event(sighting)));
    let mut log = remarks(&model, &offline);
    let end_ns = settle(&mut driver, &mut log);
    let status = driver.status(end_ns, std::process::id(), None);
    let pods = told.map(|told| told.with(&refused, &model, &status.tenants));
    let status = Status { offline: offline.to_string(), kubernetes: pods, ..status };
    Ok(Preview { model, offline, kubernetes, status, threads, remarks: remarked, log })
}

/// The configuration, with the pods of now if the node has any, and what the container runtime has told.
fn load_with_pods(machine: &Machine, config: &Path) -> Result<(Loaded, Option<KubernetesStatus>), Failure> {
    let loaded = load(machine, config, &[]).map_err(Failure::Usage)?;
    let Some(kubernetes) = &loaded.kubernetes else { return Ok((loaded, None)) };
    match pods::ask(&kubernetes.socket) {
        Ok((runtime, pods)) => {
            let told = KubernetesStatus {
                runtime: Some(runtime),
                pods: pods.len() as u32,
                ..KubernetesStatus::default()
            };
            Ok((load(machine, config, &pods).map_err(Failure::Usage)?, Some(told)))
        }
        Err(error) => {
            let lost = Some(format!("{error:#}"));
            Ok((loaded, Some(KubernetesStatus { lost, ..KubernetesStatus::default() })))
        }
    }
}

/// Lets all happen that follows, each table coming into force at once. Returns when nothing more does.
fn settle(driver: &mut Driver, log: &mut Vec<String>) -> u64 {
    let (mut now_ns, mut generation) = (0, 0);
    while driver.due_ns() != u64::MAX {
        now_ns = driver.due_ns().max(now_ns);
        while let Some(command) = driver.next(now_ns) {
            match command {
                Command::Act(Action::Say(line)) => log.push(line),
                Command::Act(Action::Install(_)) => {
                    generation += 1;
                    driver.installed(now_ns, Ok(Installed { generation, adopted_at_ns: now_ns }));
                }
                Command::Act(Action::Tell(_)) | Command::Spread(_) | Command::Do(_) => {}
            }
        }
    }
    now_ns
}
