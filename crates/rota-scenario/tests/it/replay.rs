//! Recordings of simulated runs, replayed.

#![allow(clippy::unwrap_used)] // as in every test; here also in what the tests share

use proptest::prelude::*;
use rota_model::config::Source;
use rota_record::{Cause, Event, How, Rank, Recording, Summary, What, summaries};
use rota_scenario::policies::{self, POLICIES};
use rota_scenario::{Options, Scenario, replay};

const MS: u64 = 1_000_000;

/// Something of every kind: servers, locks, barriers, a hog; containers and a VM, every class.
const MIXED: &str = include_str!("../mixed.toml");

fn recorded(text: &str, policy: &str, ms: u64) -> Recording {
    let source = Source { path: "s.toml".to_owned(), text: text.to_owned() };
    let scenario = Scenario::parse(&source).unwrap_or_else(|errors| panic!("{errors}"));
    let recording = scenario.record(policies::find(policy).unwrap(), None, ms * MS, &|_| {}).unwrap();
    let read = Recording::from_bytes(&recording.to_bytes().unwrap()).unwrap();
    assert_eq!(read, recording);
    recording
}

fn replayed(recording: &Recording, policy: &str) -> Recording {
    let scenario = replay::scenario(recording, None).unwrap();
    let policy = policies::find(policy).unwrap();
    scenario.record(policy, None, 2 * recording.duration_ns, &|_| {}).unwrap()
}

#[track_caller]
fn near(what: &str, one: u64, other: u64, percent: u64, free: u64) {
    let off = one.abs_diff(other);
    assert!(off <= one.max(other) * percent / 100 + free, "{what}: {one} recorded, {other} replayed");
}

/// Under Rota and with quotas, a tenant's time is given by rules that leave little to who comes a moment sooner.
#[test]
fn a_replay_under_the_recorded_policy_goes_as_the_recording() {
    for policy in ["eevdf-max", "rota"] {
        let recording = recorded(MIXED, policy, 1_000);
        let again = replayed(&recording, replay::policy_of(&recording).unwrap());
        let (before, after) = (summaries(&recording, u64::MAX), summaries(&again, recording.duration_ns));
        let names = recording.tenants.iter().map(|tenant| tenant.name.as_str());
        for ((before, after), name) in before.iter().zip(&after).zip(names) {
            let what = |figure: &str| format!("{figure} of {name} under {policy}");
            // What is left for those who take all that is left differs by as much as all others do together.
            let takes_rest = ["batch", "hog"].contains(&name);
            let free_ns = if takes_rest { recording.duration_ns / 100 } else { 0 };
            near(&what("CPU time"), before.cpu_ns, after.cpu_ns, 1, free_ns);
            // Which CPU idles when, and so where background work waits, is decided by moments.
            if name != "batch" {
                near(&what("waiting"), before.waiting_ns, after.waiting_ns, 20, 5 * MS);
            }
            near(&what("changes of task"), before.dispatches, after.dispatches, 35, 10);
        }
    }
}

/// Elsewhere it matters who comes first: the CPUs together do the same, and who needs little or all gets that.
#[test]
fn a_replay_without_promises_is_the_same_for_those_who_need_little_and_for_hogs() {
    for policy in ["eevdf", "cfs"] {
        let recording = recorded(MIXED, policy, 1_000);
        let again = replayed(&recording, policy);
        let (before, after) = (summaries(&recording, u64::MAX), summaries(&again, recording.duration_ns));
        let place = |name: &str| recording.tenants.iter().position(|tenant| tenant.name == name).unwrap();
        for name in ["web-0", "web-1", "hog"].map(place) {
            near("CPU time", before[name].cpu_ns, after[name].cpu_ns, 1, 0);
        }
        let all = |summaries: &[Summary]| summaries.iter().map(|summary| summary.cpu_ns).sum::<u64>();
        near("all CPU time", all(&before), all(&after), 3, 0);
    }
}

/// Pairs that pass a token round, by themselves: what one does depends on the other, whoever else is there.
const PIPELINE: &str = r#"
    duration = "1s"
    [host]
    cpus = "0-3"
    [[tenant]]
    name = "line"
    class = "shared"
    [[tenant]]
    name = "sleepy"
    class = "shared"
    [[workload]]
    tenant = "line"
    program = "pipeline"
    stages = 3
    compute = { uniform = ["1ms", "3ms"] }
    [[workload]]
    tenant = "sleepy"
    program = "periodic"
    on = "2ms"
    off = "6ms"
"#;

/// Nobody competes, so nothing can fall out differently: to the last change of task.
#[test]
fn without_competition_a_replay_is_the_recording() {
    let recording = recorded(PIPELINE, "eevdf", 1_000);
    let again = replayed(&recording, "eevdf");
    let (before, after) = (summaries(&recording, u64::MAX), summaries(&again, recording.duration_ns));
    for (before, after) in before.iter().zip(&after) {
        near("CPU time", before.cpu_ns, after.cpu_ns, 0, MS / 10);
        near("waiting", before.waiting_ns, after.waiting_ns, 1, MS / 100);
        near("changes of task", before.dispatches, after.dispatches, 0, 1);
    }
}

/// Synchronisation is a dependency: three stages on one CPU take as long as their sum, and each piece is still passed
/// on; time to think is time: the sleeper needs no longer.
#[test]
fn on_fewer_cpus_it_takes_longer_and_all_of_it_is_done() {
    let recording = recorded(PIPELINE, "eevdf", 1_000);
    let scenario = replay::scenario(&recording, Some(1)).unwrap();
    let again = scenario.record(policies::find("eevdf").unwrap(), None, 4_000 * MS, &|_| {}).unwrap();
    let (before, after) = (&summaries(&recording, u64::MAX)[0], &summaries(&again, u64::MAX)[0]);
    near("CPU time", before.cpu_ns, after.cpu_ns, 2, 0);
    let done_ns = after.done_ns.expect("it ends");
    assert!(before.cpu_ns > 1_500 * MS, "stages ran side by side: {}", before.cpu_ns);
    assert!(done_ns >= before.cpu_ns, "{done_ns} ns on one CPU for {} ns", before.cpu_ns);
}

#[test]
fn more_cpus_are_like_those_there_are() {
    let recording = recorded(PIPELINE, "eevdf", 10);
    let scenario = replay::scenario(&recording, Some(6)).unwrap();
    assert_eq!(scenario.model.host.cpus.to_string(), "0-5");
    assert_eq!(scenario.model.system(), Some(0));
    for (cpus, reason) in [(0, "a machine has a CPU"), (5_000, "5000 CPUs are too many")] {
        let error = replay::scenario(&recording, Some(cpus)).unwrap_err().to_string();
        assert!(error.starts_with(reason), "{error}");
    }
}

/// It can be asked for under every policy, as a configured host can.
#[test]
fn every_policy_runs_it() {
    let recording = recorded(MIXED, "eevdf", 200);
    let scenario = replay::scenario(&recording, None).unwrap();
    for policy in POLICIES {
        let outcome = scenario.run(policy, Options::default(), &|_| {}).unwrap();
        assert_eq!(outcome.insane, [], "{}", policy.name);
        assert!(outcome.tenants.iter().all(|tenant| tenant.metrics.received_ns > 0), "{}", policy.name);
    }
}

fn what() -> impl Strategy<Value = What> {
    let how =
        prop_oneof![Just(How::Preempted), Just(How::Waits), Just(How::WaitsForDevice), Just(How::Exits)];
    let cause = prop_oneof![(0..4u32).prop_map(Cause::Thread), Just(Cause::Timer), Just(Cause::Outside)];
    let (thread, cpu) = (0..4u32, 0..2u32);
    prop_oneof![
        (thread.clone(), cause.clone()).prop_map(|(thread, cause)| What::Waking { thread, cause }),
        thread.clone().prop_map(|thread| What::Woken { thread }),
        (thread.clone(), cause).prop_map(|(thread, cause)| What::Starts { thread, cause }),
        (cpu, thread.clone()).prop_map(|(cpu, thread)| What::Runs { cpu, thread }),
        (thread, how).prop_map(|(thread, how)| What::Stops { thread, how }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// Events in no order that a kernel could make, as a damaged file or lost events leave them.
    #[test]
    fn nonsense_is_replayed_without_harm(events in prop::collection::vec((0..300_000u64, what()), 0..80)) {
        let mut recording = recorded(PIPELINE, "eevdf", 10);
        recording.threads.truncate(4);
        let mut at_ns = 0;
        let event = |(delta_ns, what)| {
            at_ns += delta_ns;
            Event { at_ns, what }
        };
        recording.events = events.into_iter().map(event).collect();
        recording.duration_ns = at_ns + MS;
        recording.threads[1].rank = Rank::Realtime(7);
        recording.check().unwrap();
        for policy in ["eevdf", "rota"] {
            replayed(&recording, policy);
        }
    }
}
