//! Huang et al., *Towards exploiting CPU elasticity via efficient thread oversubscription*, HPDC 2021: programs with
//! more threads than CPUs. Its tables 2 and 3, on what a detector finds, are of real processors: the lab has their like
//! (docs/OVERSUBSCRIPTION.md).

mod blocking;
mod server;
mod spinning;
mod switched;

use anyhow::Result;
use rota_scenario::Outcome;
use rota_scenario::policies::Entry;

use super::{Case, Study, called};

pub use blocking::{BLOCKED, ELASTIC};
pub use server::SERVED;
pub use spinning::{LOCKED, LOOKED};
pub use switched::SWITCHED;

/// A scheduler, and whether threads that wait busily give way.
#[derive(Clone, Copy)]
struct Way {
    policy: Entry,
    gives_way: bool,
}

/// The paper's kernel has CFS. What the paper adds is its *optimised* Linux.
fn ways() -> [Way; 4] {
    let way = |name, label, gives_way| Way { policy: called(name, label), gives_way };
    [
        way("cfs", "CFS", false),
        way("eevdf", "EEVDF", false),
        way("rota", "Rota, off", false),
        way("rota", "Rota", true),
    ]
}

/// A program that has some CPUs to itself.
#[derive(Clone, Debug)]
struct Setting {
    threads: u32,
    cpus: u32,
    /// The workload's keys, but for tenant and threads.
    keys: String,
}

impl Setting {
    fn text(&self, gives_way: bool) -> String {
        let Setting { threads, cpus, keys } = self;
        let oversubscribe = if gives_way { "auto" } else { "off" };
        format!(
            "duration = \"2s\"\nwarm_up = \"300ms\"\n[host]\ncpus = \"0-{cpus}\"\nhousekeeping = \"{cpus}\"\n\
             [[tenant]]\nname = \"program\"\nclass = \"shared\"\noversubscribe = \"{oversubscribe}\"\n\
             [[workload]]\ntenant = \"program\"\nthreads = {threads}\n{keys}\n"
        )
    }
}

/// What each setting comes to under each way.
fn run(study: &Study, settings: &[Setting]) -> Result<Vec<[Outcome; 4]>> {
    let ways = ways();
    let cases = settings.iter().flat_map(|setting| {
        ways.map(|way| Case { policy: way.policy, scenario: setting.text(way.gives_way) })
    });
    let mut outcomes = study.run(&cases.collect::<Vec<Case>>())?.into_iter();
    let next = |_: &Setting| std::array::from_fn(|_| outcomes.next().expect("there is one for each case"));
    Ok(settings.iter().map(next).collect())
}

/// The first tenant's work in a second.
fn rate(outcome: &Outcome) -> f64 {
    outcome.tenants[0].metrics.work as f64 * 1e9 / outcome.window_ns as f64
}
