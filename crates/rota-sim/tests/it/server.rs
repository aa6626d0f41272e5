//! Servers: what a single queue is known to do.

use rota_model::Topology;
use rota_sim::observe::{Metrics, UnitMetrics};
use rota_sim::programs::{Load, Server};
use rota_sim::{CgroupId, Costs, CpuId, Device, DeviceId, Distribution, Simulation, Site, TaskSpec, UnitId};

use crate::round_robin::RoundRobin;

const US: u64 = 1_000;
const MS: u64 = 1_000_000;

type Plain = Simulation<RoundRobin, Metrics>;

struct Here<'s>(&'s mut Plain);

impl Site for Here<'_> {
    fn attach(&mut self, device: Box<dyn Device>) -> DeviceId {
        self.0.attach(device, CpuId(0), Some(0))
    }
}

fn measure(cpus: u32, server: Server, time_ns: u64) -> UnitMetrics {
    let topology = Topology::flat(&(0..cpus).collect());
    let (policy, metrics) = (RoundRobin::default(), Metrics::default());
    let mut simulation = Plain::new(topology, Costs::FREE, 5, 0, policy, metrics);
    for script in server.programs(&mut Here(&mut simulation)) {
        simulation.spawn(TaskSpec::new(100, UnitId(0), CgroupId::ROOT, script));
    }
    simulation.run_until(time_ns);
    simulation.observer.finish(&mut simulation.machine).remove(0)
}

fn open(threads: u32, service: Distribution, between: Distribution) -> Server {
    Server { threads, service, load: Load::Open(between) }
}

#[test]
fn requests_that_come_in_time_are_answered_at_once() {
    let (service, between) = (Distribution::Constant(2 * MS), Distribution::Constant(5 * MS));
    let metrics = measure(1, open(1, service, between), 100 * MS);
    assert_eq!(metrics.work, 19);
    assert_eq!(metrics.received_ns / MS, 38);
    let longest_ns = metrics.latencies.quantile(1.0).unwrap();
    assert!((2 * MS..2 * MS + MS / 8).contains(&longest_ns), "{longest_ns}");
}

/// An open loop goes on whether there are answers or not: at twice the speed, the last of n requests waits n services.
#[test]
fn an_open_loop_does_not_wait() {
    let (service, between) = (Distribution::Constant(2 * MS), Distribution::Constant(MS));
    let metrics = measure(1, open(1, service, between), 101 * MS);
    assert_eq!(metrics.work, 50);
    let longest_ns = metrics.latencies.quantile(1.0).unwrap();
    assert!((51 * MS..55 * MS).contains(&longest_ns), "{longest_ns}");
}

/// A closed loop does: one client, 3 ms of thought and 2 of service.
#[test]
fn a_closed_loop_waits_for_its_answers() {
    let (service, think) = (Distribution::Constant(2 * MS), Distribution::Constant(3 * MS));
    let closed = |threads, clients| Server { threads, service, load: Load::Closed(clients, think) };
    assert_eq!(measure(1, closed(1, 1), 101 * MS).work, 20);
    let metrics = measure(1, closed(1, 10), 104 * MS);
    assert_eq!(metrics.work, 50, "busy from 3 ms on");
    assert!(metrics.latencies.quantile(1.0).unwrap() < 22 * MS, "no more than ten wait");
    assert_eq!(measure(4, closed(4, 4), 101 * MS).work, 80, "each thread has a client");
}

/// M/M/1: at load rho the mean time in the system is service / (1 - rho), and the time is exponential.
#[test]
fn a_queue_is_what_theory_says() {
    let service = Distribution::Exponential(70 * US);
    let metrics = measure(1, open(1, service, Distribution::Exponential(100 * US)), 60_000 * MS);
    assert!(metrics.work.abs_diff(600_000) < 3_000, "{}", metrics.work);
    assert!((metrics.received_ns / MS).abs_diff(42_000) < 420, "{}", metrics.received_ns);
    let mean_ns = 70.0 * US as f64 / 0.3;
    for quantile in [0.5f64, 0.9, 0.99] {
        let expected_ns = -(1.0 - quantile).ln() * mean_ns;
        let seen_ns = metrics.latencies.quantile(quantile).unwrap() as f64;
        assert!((0.93..1.13).contains(&(seen_ns / expected_ns)), "{quantile}: {seen_ns}, not {expected_ns}");
    }
}
