//! A scenario's run as a recording.

use anyhow::Result;
use rota_record::{Event, Host, Limits, Policy, Quota, Rank, Recording, Tenant, Thread};
use rota_sim::{Home, Machine, Task};
use rota_twin::apart;

use super::{Options, Scenario, Session};
use crate::policies::Entry;
use crate::recorder::Recorder;
use crate::replay;

impl Scenario {
    /// Runs it under a policy, and returns what a recorder on that host would have seen: for `ns` from where the
    /// measurement begins. `progress` is told from time to time how many of [`super::INTERVALS`] parts are done.
    ///
    /// # Errors
    ///
    /// As [`Scenario::run`].
    pub fn record(
        &self,
        policy: &Entry,
        seed: Option<u64>,
        ns: u64,
        progress: &(dyn Fn(u64) + Sync),
    ) -> Result<Recording> {
        apart(|| {
            let mut session = self.start(policy, Options { seed, trace: false })?;
            let run = &mut session.run;
            run.observer.2.2.insert(Recorder::default()).begin(&run.machine);
            let mut done_ns = 0;
            for part in 1..=super::INTERVALS {
                let until_ns = (u128::from(ns) * u128::from(part) / u128::from(super::INTERVALS)) as u64;
                session.advance(until_ns - done_ns);
                done_ns = until_ns;
                progress(part);
            }
            session.is_fit()?;
            Ok(session.recording(policy, ns))
        })
    }
}

impl Session<'_> {
    fn recording(mut self, policy: &Entry, duration_ns: u64) -> Recording {
        let recorder = self.run.observer.2.2.take().unwrap_or_default();
        let (began_ns, events): (u64, Vec<Event>) = recorder.finish();
        let machine = &self.run.machine;
        let homes = self.tenants.homes();
        let cpus = machine.topology().places.len() as u32;
        let threads =
            machine.tasks().zip(&self.names).map(|((_, task), name)| thread(task, name, homes, cpus));
        Recording {
            kernel: "simulated".to_owned(),
            policy: match policy.name {
                "rota" => Policy::Rota,
                "eevdf" | "eevdf-max" => Policy::Eevdf,
                "cfs" | "cfs-max" => Policy::Cfs,
                other => Policy::Other(other.to_owned()),
            },
            began_ns,
            duration_ns,
            lost: 0,
            host: Host::from(&self.scenario.model.host),
            tenants: homes.iter().map(|home| tenant(home, machine)).collect(),
            threads: threads.collect(),
            events,
        }
    }
}

fn tenant(home: &Home, machine: &Machine) -> Tenant {
    let cgroup = machine.cgroup(home.cgroup);
    let quota = cgroup.max.map(|(quota_ns, period_ns)| Quota { quota_ns, period_ns });
    Tenant::new(&home.tenant, home.tenant.name.clone(), Limits { weight: cgroup.weight, quota })
}

fn thread(task: &Task, name: &str, homes: &[Home], cpus: u32) -> Thread {
    let of_home =
        |home: &Home| task.unit.0.checked_sub(home.first_unit.0).filter(|unit| *unit <= home.last_unit());
    let found = (0..).zip(homes).find_map(|(place, home)| Some((place, home, of_home(home)?)));
    let vcpu =
        found.and_then(|(_, home, unit)| Some(unit).filter(|unit| home.is_vm && *unit < home.tenant.vcpus));
    Thread {
        tid: task.pid,
        name: name.to_owned(),
        tenant: found.map(|(place, ..)| place),
        vcpu,
        is_kernel: task.kernel_thread,
        rank: task.realtime.map_or_else(|| replay::rank(task.weight), Rank::Realtime),
        cpus: (task.nr_cpus_allowed < cpus).then(|| task.affinity.iter().map(|cpu| cpu.0).collect()),
    }
}
