//! How many events the simulator goes through in a second, on one core: `cargo bench -p rota-scenario`.
//!
//! Hosts of 2, 48 and 1,024 CPUs, one of them for the system; on each of the others four tenants that are promised a
//! fifth of a CPU within 20 ms, each a server with an open loop at that load. And 48 VMs on 12 CPUs, of which a minute
//! is to take seconds. Measured as `rota sim` runs it, with all that it observes, once the policy has settled; in CPU
//! time, so that what else runs on a machine counts less.

use std::time::Duration;

use criterion::{Criterion, Throughput};
use nix::time::{ClockId, clock_gettime};
use rota_model::config::Source;
use rota_scenario::{Options, Scenario, policies};
use rota_twin::apart;

const MS: u64 = 1_000_000;

fn scenario(text: String) -> Scenario {
    let source = Source { path: "speed.toml".to_owned(), text };
    Scenario::parse(&source).unwrap_or_else(|errors| panic!("{errors}"))
}

/// Servers, four a CPU.
fn servers(cpus: u32) -> Scenario {
    scenario(format!(
        r#"
        warm_up = "100ms"
        [host]
        cpus = "0-{}"
        housekeeping = "0"
        [[tenant]]
        name = "web-{{i}}"
        count = {}
        class = "reserved"
        share = 0.2
        latency = "20ms"
        [[workload]]
        tenant = "web-{{i}}"
        program = "server"
        service = {{ exponential = "100us" }}
        arrival = {{ exponential = "500us" }}
        "#,
        cpus - 1,
        (cpus - 1) * 4
    ))
}

/// 48 VMs of one vCPU on twelve CPUs, half of them computing and half of them serving.
fn vms() -> Scenario {
    let vms = |name: &str, program: &str| {
        format!(
            r#"
            [[tenant]]
            name = "{name}-{{i}}"
            count = 24
            class = "reserved"
            share = 0.24
            latency = "20ms"
            match = {{ vm = "qemu:{name}-{{i}}" }}
            [[workload]]
            tenant = "{name}-{{i}}"
            {program}
            "#
        )
    };
    let server =
        "program = \"server\"\nservice = { exponential = \"200us\" }\narrival = { exponential = \"1ms\" }";
    let host = "[host]\ncpus = \"0-12\"\nhousekeeping = \"0\"\n";
    scenario(host.to_owned() + &vms("web", server) + &vms("hog", "program = \"hog\""))
}

/// What this thread has used so far.
fn cpu_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).expect("Linux has this clock").into()
}

/// One iteration is so much simulated time; the throughput is in events. In a thread of its own, which has a scheduler
/// of its own.
fn measure(name: &str, scenario: &Scenario, step_ns: u64) {
    apart(|| {
        let policy = policies::find("rota").expect("it is there");
        let mut session = scenario.start(policy, Options::default()).expect("it settles");
        let before = session.events();
        session.advance(100 * step_ns);
        let mut criterion = Criterion::default().configure_from_args();
        let mut group = criterion.benchmark_group("speed");
        group.throughput(Throughput::Elements((session.events() - before) / 100));
        group.bench_function(name, |bencher| {
            bencher.iter_custom(|count| {
                let began = cpu_time();
                (0..count).for_each(|_| session.advance(step_ns));
                cpu_time() - began
            });
        });
        group.finish();
    });
}

fn main() {
    measure("2 CPUs, 10 ms", &servers(2), 10 * MS);
    measure("48 CPUs, 1 ms", &servers(48), MS);
    measure("1024 CPUs, 100 us", &servers(1024), MS / 10);
    measure("48 VMs on 12 CPUs, 10 ms", &vms(), 10 * MS);
}
