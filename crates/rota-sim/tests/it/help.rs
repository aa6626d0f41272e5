//! What helps a guest whose vCPUs are stopped: pause-loop exits, and a timetable.

use rota_model::Topology;
use rota_sim::observe::{Metrics, UnitMetrics};
use rota_sim::programs::sync::Patience;
use rota_sim::programs::{Hog, Probe, Rounds};
use rota_sim::{
    CgroupId, Costs, CpuId, Distribution, Guest, Help, Rng, Script, Simulation, TaskSpec, Timetable, UnitId,
};

use crate::round_robin::RoundRobin;

const US: u64 = 1_000;
const MS: u64 = 1_000_000;
/// The host's timetable: a real-time task has CPU 0 for the second half of each.
const ROUND_NS: u64 = 20 * MS;

/// A guest with a vCPU on each of so many CPUs for 2 s, beside a real-time task that follows the host's timetable for
/// so many rounds.
fn beside_a_timetable(guest: &Guest, cpus: u32, rounds: u64) -> UnitMetrics {
    let topology = Topology::flat(&(0..cpus).collect());
    let mut host: Simulation<RoundRobin, Metrics> =
        Simulation::new(topology, Costs::default(), 1, 0, RoundRobin::default(), Metrics::default());
    for (cpu, vcpu) in (0..).zip(guest.vcpus()) {
        let affinity = Some(host.machine.mask([CpuId(cpu)]));
        host.spawn(TaskSpec { affinity, ..TaskSpec::new(100, UnitId(0), CgroupId::ROOT, vcpu) });
    }
    let script = Script::new(async move |thread| {
        for round in 1..=rounds {
            thread.compute(ROUND_NS / 2 - 20 * US).await;
            thread.sleep((round * ROUND_NS + ROUND_NS / 2).saturating_sub(thread.now_ns())).await;
        }
    });
    let affinity = Some(host.machine.mask([CpuId(0)]));
    let spec =
        TaskSpec { affinity, realtime: Some(50), ..TaskSpec::new(200, UnitId(1), CgroupId::ROOT, script) };
    host.at(ROUND_NS / 2, |host| _ = host.spawn(spec));
    host.run_until(2_000 * MS);
    host.observer.finish(&mut host.machine).remove(0)
}

/// The slots of vCPU 0 begin so late in each round; the other vCPUs have CPUs of their own.
fn published(vcpus: u32, from_ns: u64) -> Option<Timetable> {
    let mut timetable = Timetable::new(vcpus);
    timetable.set(0, ROUND_NS, vec![(from_ns, from_ns + ROUND_NS / 2)]);
    Some(timetable)
}

fn guest(vcpus: u32, help: Help) -> Guest {
    Guest::with_help(vcpus, Rng::new(1, 1), help)
}

/// How often in 2 s a thread that computes was kept from it for more than 1 ms, with an idle vCPU beside its own.
fn stops(help: Help) -> u64 {
    let guest = guest(2, help);
    guest.publish(published(2, 0));
    guest.thread(Probe::new(100 * US));
    let latencies = beside_a_timetable(&guest, 2, 100).latencies;
    latencies.above(MS)
}

#[test]
fn a_thread_leaves_its_vcpu_before_that_stops() {
    assert!((95..=100).contains(&stops(Help::None)), "each round has its stop");
    assert_eq!(stops(Help::Timetable), 1, "the first, by which it finds out");
}

/// Two threads that compute for 2 s beside a task that goes after half a second: 3.75 s are left to them.
#[test]
fn a_cpu_that_others_have_left_is_used_between_slots_again() {
    let guest = guest(2, Help::Timetable);
    guest.publish(published(2, 0));
    (0..2).for_each(|_| guest.thread(Hog));
    let received_ns = beside_a_timetable(&guest, 2, 25).received_ns;
    assert!(
        (3_600 * MS..3_760 * MS).contains(&received_ns),
        "{received_ns}: vCPU 0 has looked within a second"
    );
}

/// What four threads that wait for each other do in 2 s.
fn rounds(help: Help, timetable: Option<Timetable>, patience: Patience) -> u64 {
    let guest = guest(4, help);
    guest.publish(timetable);
    let compute = Distribution::Constant(MS);
    Rounds { threads: 4, compute, patience }.programs().into_iter().for_each(|script| guest.thread(script));
    beside_a_timetable(&guest, 4, 100).work
}

#[test]
fn threads_that_wait_for_each_other_come_forward_while_a_vcpu_is_stopped() {
    for patience in [Patience::NONE, Patience::ENDLESS] {
        let without = rounds(Help::None, None, patience);
        let with = rounds(Help::Timetable, published(4, 0), patience);
        assert!(with * 10 > without * 14, "{with} instead of {without}, {patience:?}");
    }
}

/// Believed, it would have threads leave as slots begin, and stay as they end.
#[test]
fn a_wrong_timetable_is_not_believed() {
    for patience in [Patience::NONE, Patience::ENDLESS] {
        let without = rounds(Help::None, None, patience);
        let wrong = rounds(Help::Timetable, published(4, ROUND_NS / 4), patience);
        assert!(wrong * 10 > without * 9, "{wrong} instead of {without}, {patience:?}");
    }
}

/// Two vCPUs share CPU 0, where one of two threads waits busily for ever.
fn beside_a_spinner(help: Help) -> u64 {
    let topology = Topology::flat(&(0..1).collect());
    let mut host: Simulation<RoundRobin, Metrics> =
        Simulation::new(topology, Costs::default(), 1, 0, RoundRobin::default(), Metrics::default());
    let guest = guest(1, help);
    guest.thread(Script::new(async |thread| _ = thread.spin(u64::MAX).await));
    for vcpu in guest.vcpus() {
        host.spawn(TaskSpec::new(100, UnitId(0), CgroupId::ROOT, vcpu));
    }
    host.spawn(TaskSpec::new(200, UnitId(1), CgroupId::ROOT, Hog));
    host.run_until(1_000 * MS);
    host.observer.finish(&mut host.machine)[1].received_ns / MS
}

#[test]
fn a_vcpu_that_waits_busily_gives_way_after_a_pause_loop() {
    let (without, with) = (beside_a_spinner(Help::None), beside_a_spinner(Help::PauseExits));
    assert!((450..550).contains(&without) && with > 950, "{with} ms beside it instead of {without} ms");
}
