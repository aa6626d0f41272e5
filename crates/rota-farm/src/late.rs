//! Within what time the scheduler's decisions take effect.

use rota_sim::Costs;

use super::swarm::{Deal, MS, Swarm, US};

/// Timers are late by this at most, while faults make them so, in ns.
pub const TIMER_LATE_MAX_NS: u64 = 4 * MS;
/// Kicks likewise.
pub const KICK_LATE_MAX_NS: u64 = 500 * US;

/// Without faults, in ns: of a slot that begins late, a CPU that is asked and one that is told, each with a change of
/// tasks; and a look that came too early is made again.
pub fn usual_ns(costs: &Costs) -> u64 {
    3 * costs.late_ns() + 100 * US
}

/// The same while there are faults, in ns.
pub fn most_ns(swarm: &Swarm, usual: &Costs) -> u64 {
    match swarm.has(Deal::Late) {
        true => {
            usual_ns(&Costs { timer_slack_ns: TIMER_LATE_MAX_NS, kick_ns: KICK_LATE_MAX_NS, ..usual.clone() })
        }
        false => usual_ns(usual),
    }
}
