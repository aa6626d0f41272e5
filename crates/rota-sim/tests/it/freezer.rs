//! Threads that are frozen for a while lose that time, and nothing else.

use rota_model::Topology;
use rota_sim::observe::Metrics;
use rota_sim::programs::sync::Patience;
use rota_sim::programs::{Freezer, Locking, Phases, Rounds, Staged, Waiting};
use rota_sim::{CgroupId, Costs, CpuId, Distribution, Memory, Program, Simulation, TaskSpec, UnitId};

use crate::round_robin::RoundRobin;

const MS: u64 = 1_000_000;

type Plain = Simulation<RoundRobin, Metrics>;

fn host(cpus: u32) -> Plain {
    let topology = Topology::flat(&(0..cpus).collect());
    Simulation::new(topology, Costs::FREE, 1, 0, RoundRobin::default(), Metrics::default())
}

/// One for each thread, so that a freeze changes nobody's place in a queue.
const CPUS: u32 = 10;

/// What each of four programs has done by `until_ns`, if all are frozen for these times.
fn done(times: &[(u64, u64)], until_ns: u64) -> Vec<u64> {
    let (mut host, freezer) = (host(CPUS), Freezer::default());
    let constant = Distribution::Constant;
    let locking = |waiting| Locking { threads: 3, outside: constant(MS), inside: constant(MS / 2), waiting };
    let [blocking, spinning] = [Patience::NONE, Patience::ENDLESS].map(Waiting::Unordered);
    let rounds = Rounds { threads: 3, compute: constant(2 * MS), patience: Patience(MS / 4) };
    let groups: [Vec<Box<dyn Program>>; 4] = [
        vec![Box::new(Phases { compute: constant(3 * MS), sleep: constant(MS) })],
        locking(blocking).programs().into_iter().map(Box::from).collect(),
        locking(spinning).programs().into_iter().map(Box::from).collect(),
        rounds.programs().into_iter().map(Box::from).collect(),
    ];
    for (unit, programs) in (0..).zip(groups) {
        for program in programs {
            let spec = TaskSpec::new(100, UnitId(unit), CgroupId::ROOT, freezer.thread(program));
            host.spawn(spec);
        }
    }
    host.attach(freezer.device(times), CpuId(0), Some(0));
    for (from_ns, to_ns) in times {
        host.run_until((from_ns + to_ns) / 2);
        assert!((0..CPUS).all(|cpu| host.machine.cpu(CpuId(cpu)).current.is_none()), "nobody runs");
    }
    host.run_until(until_ns);
    host.observer.finish(&mut host.machine).iter().map(|unit| unit.work).collect()
}

#[test]
fn a_freeze_costs_its_own_time() {
    let (free, frozen) = (done(&[], 500 * MS), done(&[(51 * MS, 151 * MS), (300 * MS, 400 * MS)], 700 * MS));
    assert!(free.iter().all(|work| *work > 50), "{free:?}");
    for (free, frozen) in free.iter().zip(&frozen) {
        // Who slept when it came had that sleep meanwhile.
        assert!(free.abs_diff(*frozen) <= free / 50 + 2, "{frozen}, not {free}");
    }
}

/// A stage takes as long as its memory makes it, and stages take turns.
#[test]
fn stages_differ_in_what_memory_costs() {
    let mut host = host(2);
    let staged = Staged {
        threads: 2,
        compute: Distribution::Constant(MS),
        patience: Patience::ENDLESS,
        rounds: 50,
        working_sets_kib: [64, 64 * 1024],
    };
    for program in staged.programs() {
        let memory = Some(Memory { working_set_kib: 64, references_per_us: 10, overlap: 1 });
        host.spawn(TaskSpec { memory, ..TaskSpec::new(100, UnitId(0), CgroupId::ROOT, program) });
    }
    let mut work = Vec::new();
    for end_ms in [50, 100, 150] {
        host.run_until(end_ms * MS);
        work.push(host.observer.counted(UnitId(0)).expect("a thread").work);
    }
    assert!((90..=100).contains(&work[0]), "{work:?}");
    let slow = work[2] - work[1];
    assert!(slow > 10 && slow < 70, "most references go to memory: {work:?}");
    let spun_ns: u64 = host.machine.tasks().map(|(_, task)| task.spun_ns).sum();
    assert!(spun_ns < 150 * MS / 10, "equal threads seldom wait for each other: {spun_ns}");
}
