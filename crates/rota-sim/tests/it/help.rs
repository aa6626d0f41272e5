//! What helps a plain guest whose vCPUs are stopped: pause-loop exits.

use rota_model::Topology;
use rota_sim::observe::Metrics;
use rota_sim::programs::Hog;
use rota_sim::{CgroupId, Costs, Guest, Help, Rng, Script, Simulation, TaskSpec, UnitId};

use crate::round_robin::RoundRobin;

const MS: u64 = 1_000_000;

/// Two vCPUs share CPU 0, where one of two threads waits busily for ever.
fn beside_a_spinner(help: Help) -> u64 {
    let topology = Topology::flat(&(0..1).collect());
    let mut host: Simulation<RoundRobin, Metrics> =
        Simulation::new(topology, Costs::default(), 1, 0, RoundRobin::default(), Metrics::default());
    let guest = Guest::with_help(1, Rng::new(1, 1), help);
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
