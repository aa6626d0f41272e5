//! What the simulator has found, as programs read it and as a report shows it.

mod distance;
pub mod gain;
pub mod lab;

use rota_lab::scenario::result::{Blackouts, Moves, TenantResult};
use rota_model::{Class, Reservation};
use rota_rules::profile::{self, BySpent, Spending};
use rota_scenario::policies::Entry;
use rota_scenario::{Deviation, Outcome, Scenario, Service, TenantOutcome, TimeSpent, WATCHDOG_NS};
use rota_sim::CacheCounters;
use rota_sim::observe::{Insane, UnitMetrics};
use serde::Serialize;

pub use distance::Distance;

use crate::report::{Caches, Contestant, Inside, Lag, Report, Run, Tenant, format};

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

/// What no scheduler may do and this one did, each in a few words.
fn insane(outcome: &Outcome) -> Vec<String> {
    let words = |(at_ns, what): &(u64, Insane)| {
        let what = match *what {
            Insane::Twice(task, one, other) => {
                format!("{} runs on CPUs {} and {} at once", outcome.name(task), one.0, other.0)
            }
            Insane::Crowded(cpu, one, other) => {
                format!("CPU {} runs {} and {} at once", cpu.0, outcome.name(one), outcome.name(other))
            }
            Insane::Forbidden(task, cpu) => {
                format!("{} runs on CPU {}, where it may not", outcome.name(task), cpu.0)
            }
            Insane::Starved(task, ns) => {
                format!("{} has waited for {}", outcome.name(task), format::time(ns))
            }
        };
        format!("after {}: {what}", format::time(*at_ns))
    };
    outcome.insane.iter().map(words).collect()
}

/// What no scheduler may do and this one did, in as many lines as people read.
pub struct Faults {
    /// Nothing if there was none.
    pub lines: Vec<String>,
    /// Whether the run shows nothing: it would not have gone on like that on a machine.
    pub is_void: bool,
}

impl Faults {
    /// So many of one outcome are listed.
    const LISTED: usize = 3;

    /// Of a run under a policy. A thread may starve under others; under Rota the kernel's watchdog would have come.
    pub fn of(policy: &Entry, outcome: &Outcome) -> Faults {
        let is_starved = |what: &Insane| matches!(what, Insane::Starved(..));
        let starved = outcome.insane.iter().filter(|(_, what)| is_starved(what)).count();
        let all = insane(outcome);
        let mut lines: Vec<String> = all.iter().take(Self::LISTED).cloned().collect();
        if all.len() > Self::LISTED {
            lines.push(format!("and {} more like that", all.len() - Self::LISTED));
        }
        let is_rota = policy.name == "rota";
        if is_rota && starved > 0 {
            lines.push(format!(
                "the kernel's watchdog ends a scheduler that lets a thread wait for {}; give these tenants more, or \
                 fewer threads",
                format::round_time(WATCHDOG_NS)
            ));
        }
        let lines = lines.iter().map(|line| format!("under {}: {line}", policy.label)).collect();
        Faults { lines, is_void: all.len() > starved || (is_rota && starved > 0) }
    }
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
        let is_void = outcomes.iter().any(|outcome| Faults::of(policy, outcome).is_void);
        Run { is_void, ..run(Contestant { label: policy.label, look }, outcomes, taken_ns) }
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
        is_void: false,
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
        joined.spent.join(&other.spent);
        if let (Some(mine), Some(theirs)) = (&mut joined.caches, other.caches) {
            *mine = mine.plus(theirs);
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
    let TenantOutcome { tenant, units, metrics, service, deviation, spent, caches } = found;
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
        wanted_ns: wanted(metrics, tenant.vcpus, *units),
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
        spending: spending(spent),
        spinning_ns: spent.spent.spinning_ns,
        caches: caches.map(|CacheCounters { references, misses, .. }| Caches { references, misses }),
        lag: deviation.clone().map(|Deviation { lag_ns, behind_max_ns, ahead_max_ns }| Lag {
            over_time_ns: lag_ns,
            behind_max_ns,
            ahead_max_ns,
        }),
    };
    Tenant { seen, inside: Some(inside) }
}

/// The time of its threads, as `rota profile` shows it.
fn spending(TimeSpent { spent, waited_for }: &TimeSpent) -> Spending {
    let [others, devices, time, interrupt, unknown] = spent.blocked_ns;
    let mut waited_for_ns = waited_for.clone();
    let nobody_ns = waited_for_ns.remove("").unwrap_or(0) + spent.waited_for_nobody_ns;
    if nobody_ns > 0 {
        waited_for_ns.insert(profile::NOBODY.to_owned(), nobody_ns);
    }
    let times = [spent.running_ns, spent.waiting_ns, others, devices, time, interrupt, unknown];
    Spending { spent_ns: BySpent::from(times), waited_for_ns }
}

/// Time in which at least one, two, ... of its threads wanted to run; of a VM, whose vCPUs have a thread each and are
/// measured one by one, the mean of its vCPUs.
fn wanted(metrics: &UnitMetrics, vcpus: u32, units: u32) -> Vec<u64> {
    if units > 1 {
        return vec![metrics.wanted_ns / u64::from(units); units as usize];
    }
    let mut so_many: Vec<u64> = Vec::new();
    for ns in metrics.runnable_ns.iter().rev() {
        so_many.push(so_many.last().unwrap_or(&0) + ns);
    }
    so_many.reverse();
    so_many.truncate(vcpus as usize);
    so_many
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

#[cfg(test)]
mod tests {
    use rota_model::config::Source;
    use rota_scenario::{Options, policies};
    use rota_sim::{CpuId, TaskId};

    use super::*;

    /// What was found is told in words, the first of many; starving voids a run under Rota only.
    #[test]
    fn faults_are_told_in_words() {
        let text = "duration = \"10ms\"\n[host]\ncpus = \"0\"\n[[tenant]]\nname = \"crowd\"\nclass = \"background\"\n\
                    [[workload]]\ntenant = \"crowd\"\nprogram = \"hog\"\n";
        let source = Source { path: "s.toml".to_owned(), text: text.to_owned() };
        let scenario = Scenario::parse(&source).unwrap();
        let [rota, eevdf] = ["rota", "eevdf"].map(|name| policies::find(name).unwrap());
        let mut outcome = scenario.run(rota, Options::default(), &|_| {}).unwrap();
        assert!(Faults::of(rota, &outcome).lines.is_empty() && !Faults::of(rota, &outcome).is_void);

        outcome.insane = vec![(44_060_704_191, Insane::Starved(TaskId(0), 43_005_701_682)); 5];
        let faults = Faults::of(rota, &outcome);
        assert_eq!(faults.lines[0], "under Rota: after 44.1 s: crowd/0 has waited for 43.0 s");
        assert_eq!(faults.lines[3], "under Rota: and 2 more like that");
        assert!(faults.lines[4].contains("watchdog") && faults.is_void);
        let report = report("s", &scenario, &[(rota, vec![&outcome])], None);
        assert!(crate::report::text(&report).contains("no scheduler may do"));
        assert!(!Faults::of(eevdf, &outcome).is_void && Faults::of(eevdf, &outcome).lines.len() == 4);

        outcome.insane = vec![(1_000_000, Insane::Twice(TaskId(0), CpuId(0), CpuId(1)))];
        let faults = Faults::of(eevdf, &outcome);
        assert_eq!(faults.lines, ["under EEVDF: after 1.00 ms: crowd/0 runs on CPUs 0 and 1 at once"]);
        assert!(faults.is_void);
    }
}
