//! A farm that looks for mistakes in the scheduler: random hosts with random tenants, loads and faults, each drawn from
//! one seed, and observers that know what must not be. After TigerBeetle's VOPR.
//!
//! A seed is run in two phases. In the first there are faults, and nothing forbidden may happen. Then they stop, and
//! within a stated time every promise is kept to the letter.
//!
//! | file | |
//! | --- | --- |
//! | `swarm` | what a seed leaves out, and how often the rest happens |
//! | `hosts` | the host, its tenants and what they run, as a scenario's text |
//! | `faults` | what is done to them |
//! | `service` | the observer that holds each CPU to the table in force, slot by slot |
//! | `watch` | what that one has seen of one CPU |
//! | `windows` | its part for CPUs that serve their vCPUs in windows |
//! | `spare` | its part that looks at what slots leave |
//! | `lines` | what is looked at from time to time: who waits for long, and where a CPU idles meanwhile |
//! | `weights` | likewise: whether a tenant with a weight waits while another one has much more |
//! | `scene` | the host with all that watches it |
//! | `play` | a seed's run, from start to end |

mod faults;
mod finding;
mod hosts;
mod late;
mod lines;
mod play;
mod scene;
mod service;
mod spare;
mod swarm;
mod threads;
mod timetable;
mod watch;
mod weights;
mod windows;

use std::any::Any;

pub use finding::{Fault, Finding};
pub use rota_model::TenantId;
use rota_sim::Rng;
use rota_twin::Code;

use swarm::Swarm;

/// What became of a seed.
#[derive(Clone, Debug)]
pub struct Verdict {
    /// The seed.
    pub seed: u64,
    /// What was simulated: the host in full, and the faults.
    pub shown: String,
    /// How many slots have gone by on all CPUs.
    pub slots: u64,
    /// How many events there were.
    pub events: u64,
    /// How much time was simulated, in ns.
    pub simulated_ns: u64,
    /// Of all that was observed: the same if and only if it went the same way.
    pub digest: u64,
    /// What must not be, if it was found.
    pub finding: Option<Finding>,
    /// The last events before it, with their times in ns.
    pub last: Vec<String>,
}

/// Runs a seed, in a thread of its own, with a copy of the scheduler.
pub fn run(seed: u64, code: &Code) -> Verdict {
    let mut rng = Rng::new(seed, FARM_STREAM);
    let swarm = Swarm::draw(seed, &mut rng);
    let text = hosts::text(&swarm, &mut rng);
    let mut verdict = Verdict {
        seed,
        shown: format!("{swarm}\n\n{text}"),
        slots: 0,
        events: 0,
        simulated_ns: 0,
        digest: 0,
        finding: None,
        last: Vec::new(),
    };
    let ran = std::thread::scope(|scope| scope.spawn(|| play::run(swarm, &text, rng, code)).join());
    match ran {
        Ok(ran) => {
            (verdict.slots, verdict.events) = (ran.slots, ran.events);
            (verdict.simulated_ns, verdict.digest) = (ran.simulated_ns, ran.digest);
            (verdict.finding, verdict.last) = (ran.finding, ran.last);
        }
        Err(panic) => verdict.finding = Some(Finding { at_ns: 0, fault: Fault::Panicked(message(&*panic)) }),
    }
    verdict
}

/// Of chance; see `DEVICE_STREAM` and `GUEST_STREAM` for the others.
const FARM_STREAM: u64 = 1 << 34;

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".to_owned())
}
