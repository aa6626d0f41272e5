//! What the simulator has found, as programs read it and as a report shows it.

mod distance;
pub mod lab;

use rota_lab::scenario::result::{Blackouts, Moves, TenantResult};
use rota_model::{Class, Reservation};
use rota_scenario::policies::Entry;
use rota_scenario::{Deviation, Outcome, Scenario, Service, TenantOutcome};
use rota_sim::observe::UnitMetrics;
use serde::Serialize;

pub use distance::Distance;

use crate::report::{Contestant, Inside, Lag, Report, Run, Tenant, format};

/// One run, for programs.
#[derive(Debug, Serialize)]
pub struct Result {
    /// Under which policy.
    pub policy: &'static str,
    /// With which seed.
    pub seed: u64,
    /// CPUs of the host.
    pub cpus: u32,
    /// Simulated, but not measured.
    pub warm_up_ns: u64,
    /// Measured.
    pub window_ns: u64,
    /// CPU time that threads received, summed over CPUs.
    pub busy_ns: u64,
    /// The part of it that went to no tenant.
    pub system_ns: u64,
    /// Events that the simulator went through.
    pub events: u64,
    /// Of all that happened: the same if and only if it went the same way. Hexadecimal.
    pub digest: String,
    /// What no scheduler may do and this one did.
    pub insane: Vec<String>,
    /// In the configuration's order.
    pub tenants: Vec<Tenant>,
}

impl Result {
    /// One outcome.
    pub fn new(policy: &Entry, outcome: &Outcome) -> Result {
        Result {
            policy: policy.name,
            seed: outcome.seed,
            cpus: outcome.cpus,
            warm_up_ns: outcome.began_ns,
            window_ns: outcome.window_ns,
            busy_ns: outcome.received_ns,
            system_ns: system_ns(outcome),
            events: outcome.events,
            digest: format!("{:#018x}", outcome.digest),
            insane: insane(outcome),
            tenants: outcome.tenants.iter().map(|found| tenant(found, outcome.window_ns)).collect(),
        }
    }
}

/// What no scheduler may do and this one did.
pub fn insane(outcome: &Outcome) -> Vec<String> {
    outcome.insane.iter().map(|(time_ns, what)| format!("at {time_ns} ns: {what:?}")).collect()
}

/// Runs of one scenario under some policies, with their outcomes: those of one policy, with different seeds, are shown
/// as one.
pub fn report(
    name: &str,
    scenario: &Scenario,
    runs: &[(&Entry, Vec<&Outcome>)],
    timetable: Option<String>,
) -> Report {
    let taken_ns = scenario.costs.late_ns();
    let seeds: Vec<String> =
        runs.first().map_or(vec![], |(_, runs)| runs.iter().map(|run| run.seed.to_string()).collect());
    let measured = format::round_time(scenario.duration_ns);
    let mut looks = 1..;
    let abouts: Vec<String> =
        runs.iter().map(|(policy, _)| format!("{}: {}.", policy.label, policy.about)).collect();
    let runs = runs.iter().map(|(policy, outcomes)| {
        let look = if policy.name == "rota" { 0 } else { looks.next().unwrap_or(1) };
        run(Contestant { label: policy.label, look }, outcomes, taken_ns)
    });
    Report {
        scenario: name.to_owned(),
        conditions: vec![
            ("Simulated", format!("{} CPUs", scenario.model.host.cpus.len())),
            ("Measured", format!("{measured} each")),
            ("After", format!("{} of warm-up", format::round_time(scenario.warm_up_ns))),
            (if seeds.len() > 1 { "Seeds" } else { "Seed" }, seeds.join(", ")),
            ("A decision takes", format!("up to {}", format::round_time(taken_ns))),
        ],
        runs: runs.collect(),
        timetable,
        comparison: None,
        notes: vec![],
        method: METHOD.iter().map(|paragraph| (*paragraph).to_owned()).chain(abouts).collect(),
    }
}

/// How a simulation is measured.
const METHOD: [&str; 3] = [
    "A simulation: the same threads did the same things under each policy, on a model of the machine and of the \
     kernel's core. Under Rota the scheduler's own source ran in it, with its planner and its daemon's rules; the \
     other policies are models of what they are named after.",
    "A blackout is an interval in which at least one thread of a tenant was runnable and none ran; in a virtual \
     machine, each vCPU has its own.",
    "What the machine itself takes is the longest that one decision can take to have its effect, by the costs that the \
     scenario gives: a late timer, interrupts, a kick to a CPU that idles, and a change of tasks.",
];

/// All outcomes of one policy as one run.
fn run(policy: Contestant, outcomes: &[&Outcome], taken_ns: u64) -> Run {
    let window_ns = outcomes.iter().map(|outcome| outcome.window_ns).sum();
    let tenants = outcomes.first().map_or(0, |first| first.tenants.len());
    let joined = (0..tenants).map(|place| {
        let same: Vec<&TenantOutcome> = outcomes.iter().map(|outcome| &outcome.tenants[place]).collect();
        tenant(&join(&same), window_ns)
    });
    Run {
        policy,
        cpus: outcomes.first().map_or(0, |first| first.cpus),
        window_ns,
        length_ns: outcomes.first().map_or(0, |first| first.window_ns),
        taken_ns,
        busy_ns: outcomes.iter().map(|outcome| outcome.received_ns).sum(),
        system_ns: outcomes.iter().map(|outcome| system_ns(outcome)).sum(),
        tenants: joined.collect(),
    }
}

fn join(same: &[&TenantOutcome]) -> TenantOutcome {
    let mut joined = same[0].clone();
    for other in &same[1..] {
        joined.metrics.join(&other.metrics);
        for (mine, theirs) in joined.service.iter_mut().zip(&other.service) {
            mine.received_ns += theirs.received_ns;
            mine.wanted_ns += theirs.wanted_ns;
        }
    }
    let deviations: Vec<&Deviation> = same.iter().filter_map(|found| found.deviation.as_ref()).collect();
    joined.deviation = mean(&deviations);
    joined
}

/// Of several runs: the mean at each time, and the most of any.
fn mean(runs: &[&Deviation]) -> Option<Deviation> {
    let parts = 0..runs.first()?.lag_ns.len();
    let at = |part: usize| runs.iter().map(|run| run.lag_ns[part]).sum::<i64>() / runs.len() as i64;
    Some(Deviation {
        lag_ns: parts.map(at).collect(),
        behind_max_ns: runs.iter().map(|run| run.behind_max_ns).max()?,
        ahead_max_ns: runs.iter().map(|run| run.ahead_max_ns).max()?,
    })
}

fn system_ns(outcome: &Outcome) -> u64 {
    outcome.received_ns - outcome.tenants.iter().map(|tenant| tenant.metrics.received_ns).sum::<u64>()
}

fn tenant(found: &TenantOutcome, window_ns: u64) -> Tenant {
    let TenantOutcome { tenant, units, metrics, service, deviation } = found;
    let reservation = tenant.reservation();
    let seen = TenantResult {
        name: tenant.name.clone(),
        class: class(tenant.class).to_owned(),
        vcpus: tenant.vcpus,
        promised_share: reservation.map(|reservation| reservation.share.fraction()),
        latency_bound_ns: reservation.map(|reservation| reservation.latency_ns),
        capped: reservation.is_some_and(|reservation| reservation.capped),
        cpu_ns: metrics.received_ns,
        received_share: metrics.received_ns as f64 / (f64::from(tenant.vcpus) * window_ns.max(1) as f64),
        blackouts: blackouts(metrics, reservation, *units),
        moves: Moves { preempted: metrics.preemptions, migrated: metrics.migrations },
        throttled: None,
        probe: None,
        requests: None,
        work: None,
    };
    let entitlement = match tenant.class {
        Class::Reserved(reservation) => reservation.share.fraction() * f64::from(tenant.vcpus),
        Class::Shared { weight } => f64::from(weight),
        Class::Background => 1.0,
    };
    let inside = Inside {
        wakeups: metrics.wakeups.clone().into(),
        latencies: metrics.latencies.clone().into(),
        work: metrics.work,
        dispatches: metrics.dispatches,
        preemptions: metrics.preemptions,
        migrations: metrics.migrations,
        entitlement,
        units: *units,
        service: service
            .iter()
            .map(|Service { received_ns, wanted_ns }| (*received_ns, *wanted_ns))
            .collect(),
        lag: deviation.clone().map(|Deviation { lag_ns, behind_max_ns, ahead_max_ns }| Lag {
            over_time_ns: lag_ns,
            behind_max_ns,
            ahead_max_ns,
        }),
    };
    Tenant { seen, inside: Some(inside) }
}

fn blackouts(metrics: &UnitMetrics, reservation: Option<Reservation>, units: u32) -> Blackouts {
    Blackouts {
        longest_ns: metrics.blackout_max_ns,
        count: metrics.blackouts.total(),
        beyond_bound: reservation.map_or(0, |reservation| metrics.blackouts.above(reservation.latency_ns)),
        total_ns: metrics.blackout_ns,
        wanted_ns: metrics.wanted_ns / u64::from(units.max(1)),
        histogram: metrics.blackouts.clone(),
    }
}

fn class(class: Class) -> &'static str {
    match class {
        Class::Reserved(_) => "reserved",
        Class::Shared { .. } => "shared",
        Class::Background => "background",
    }
}
