//! Guests: their scheduler by its rules, and what becomes of locks when the host takes a vCPU's CPU away.

use std::cell::RefCell;
use std::rc::Rc;

use rota_model::Topology;
use rota_sim::observe::{Metrics, UnitMetrics};
use rota_sim::programs::sync::Patience;
use rota_sim::programs::{Hog, Load, Locking, Server, Waiting};
use rota_sim::{
    CgroupId, Costs, CpuId, Device, DeviceId, Distribution, Guest, Rng, Script, Simulation, Site, TaskSpec,
    UnitId,
};

use crate::round_robin::RoundRobin;

const US: u64 = 1_000;
const MS: u64 = 1_000_000;

type Host = Simulation<RoundRobin, Metrics>;

struct Here<'s>(&'s mut Host);

impl Site for Here<'_> {
    fn attach(&mut self, device: Box<dyn Device>) -> DeviceId {
        self.0.attach(device, CpuId(0), Some(0))
    }
}

fn host(cpus: u32, costs: Costs) -> Host {
    let topology = Topology::flat(&(0..cpus).collect());
    Simulation::new(topology, costs, 1, 0, RoundRobin::default(), Metrics::default())
}

/// A guest's vCPUs as one unit, each on a CPU of its own; beside a hog of the host's on each of the first CPUs as
/// another unit; for so long.
fn run(mut host: Host, guest: &Guest, hogs: u32, time_ns: u64) -> (Host, UnitMetrics) {
    let vcpus = (0..)
        .zip(guest.vcpus())
        .map(|(cpu, vcpu)| (cpu, TaskSpec::new(100, UnitId(0), CgroupId::ROOT, vcpu)));
    let hogs = (0..hogs).map(|cpu| (cpu, TaskSpec::new(200, UnitId(1), CgroupId::ROOT, Hog)));
    for (cpu, spec) in vcpus.chain(hogs) {
        let affinity = Some(host.machine.mask([CpuId(cpu)]));
        host.spawn(TaskSpec { affinity, ..spec });
    }
    host.run_until(time_ns);
    let metrics = host.observer.finish(&mut host.machine).remove(0);
    (host, metrics)
}

#[derive(Clone, Copy)]
enum Phase {
    ComputeMs(u64),
    SleepMs(u64),
}
use Phase::{ComputeMs, SleepMs};

/// Threads of one guest, each with its phases; which was done in which ms.
fn noted((vcpus, cpus): (u32, u32), threads: &[&[Phase]]) -> (Vec<(u64, usize)>, Host) {
    let (guest, log) = (Guest::new(vcpus, Rng::new(1, 1)), Rc::new(RefCell::new(Vec::new())));
    for (number, phases) in threads.iter().enumerate() {
        let (log, phases) = (log.clone(), phases.to_vec());
        guest.thread(Script::new(async move |thread| {
            for phase in phases {
                match phase {
                    ComputeMs(ms) => thread.compute(ms * MS).await,
                    SleepMs(ms) => thread.sleep(ms * MS).await,
                }
            }
            log.borrow_mut().push(((thread.now_ns() + MS / 2) / MS, number));
        }));
    }
    let (host, _) = run(host(cpus, Costs::FREE), &guest, 0, 100 * MS);
    (log.take(), host)
}

fn used_ms(host: &Host) -> Vec<u64> {
    host.machine.tasks().map(|(_, task)| (task.used_ns + MS / 2) / MS).collect()
}

#[test]
fn threads_of_one_vcpu_take_turns() {
    let (log, host) = noted((1, 1), &[&[ComputeMs(5)], &[ComputeMs(5)]]);
    assert_eq!(log, [(8, 0), (10, 1)], "three each, then the rest");
    assert_eq!(used_ms(&host), [10]);
}

#[test]
fn a_vcpu_halts_while_its_threads_sleep() {
    let (log, host) = noted((1, 1), &[&[ComputeMs(2), SleepMs(10), ComputeMs(3)]]);
    assert_eq!((log, used_ms(&host)), (vec![(15, 0)], vec![5]));
}

#[test]
fn a_timer_comes_while_another_thread_computes() {
    let (log, _) = noted((1, 1), &[&[ComputeMs(20)], &[SleepMs(10)]]);
    assert_eq!(log, [(13, 1), (20, 0)], "it sleeps from 3 ms on; the slice of the first one is long over");
}

#[test]
fn an_idle_vcpu_takes_a_thread_that_waits() {
    let (log, host) = noted((2, 2), &[&[ComputeMs(10)], &[], &[ComputeMs(10)]]);
    assert_eq!(log, [(0, 1), (10, 0), (10, 2)]);
    assert_eq!(used_ms(&host), [10, 10]);
}

#[test]
fn a_server_in_a_guest_gets_its_interrupts() {
    let mut host = host(1, Costs::FREE);
    let guest = Guest::new(1, Rng::new(1, 1));
    let (service, between) = (Distribution::Constant(2 * MS), Distribution::Constant(5 * MS));
    let server = Server { threads: 1, service, load: Load::Open(between) };
    for script in server.programs(&mut guest.site(&mut Here(&mut host))) {
        guest.thread(script);
    }
    let (_, metrics) = run(host, &guest, 0, 100 * MS);
    assert_eq!((metrics.work, metrics.received_ns / MS), (19, 38));
    assert!(metrics.latencies.quantile(1.0).unwrap() < 2 * MS + MS / 8);
}

/// Four threads on four vCPUs that want one lock all the time. What they get done in a second.
fn locking(waiting: Waiting, hogs: u32) -> UnitMetrics {
    let guest = Guest::new(4, Rng::new(1, 1));
    let (outside, inside) = (Distribution::Exponential(200 * US), Distribution::Constant(100 * US));
    for script in (Locking { threads: 4, outside, inside, waiting }).programs() {
        guest.thread(script);
    }
    run(host(4, Costs::default()), &guest, hogs, 1_000 * MS).1
}

/// One vCPU of the four runs half of the time, 4 ms each. The other three could use the lock all the time; but while
/// the one that does not run has it, nobody can, and if the lock goes round in order, nobody can either while it is
/// next.
#[test]
fn who_has_a_lock_or_is_next_may_not_run() {
    let percent = |waiting| locking(waiting, 1).work * 100 / locking(waiting, 0).work;
    let (spins, in_order) = (percent(Waiting::Unordered(Patience::ENDLESS)), percent(Waiting::Ordered));
    assert!((75..92).contains(&spins), "lock-holder preemption: {spins} %");
    assert!((60..spins - 5).contains(&in_order), "lock-waiter preemption as well: {in_order} %");
    let longest_ns = |hogs| locking(Waiting::Ordered, hogs).latencies.quantile(1.0).unwrap();
    assert!(longest_ns(0) < MS && longest_ns(1) > 4 * MS, "a slice of the host's");
    let blocks = percent(Waiting::Unordered(Patience::NONE));
    assert!((65..92).contains(&blocks), "sleeping does not help: {blocks} %");
}
