//! A host with Rota, from a configuration to what each tenant received.

use rota_model::config::{Source, parse};
use rota_model::{Model, Topology};
use rota_sim::observe::{Metrics, UnitMetrics};
use rota_sim::{Costs, Simulation, Tenants};
use rota_twin::Rota;

const MS: u64 = 1_000_000;

pub type Run = Simulation<Rota, Metrics>;

pub fn model(text: &str) -> Model {
    let source = Source { path: "rota.toml".into(), text: text.to_owned() };
    parse(&[source], &Topology::default()).unwrap_or_else(|errors| panic!("{errors}"))
}

pub fn start(text: &str) -> (Run, Tenants) {
    start_made(text, |rota| rota)
}

/// The same with a scheduler that is made otherwise.
pub fn start_made(text: &str, made: fn(Rota) -> Rota) -> (Run, Tenants) {
    let model = model(text);
    let policy = made(Rota::new(&model).expect("a host"));
    let topology = model.host.topology.clone();
    let mut run = Run::new(topology, Costs::default(), 1, 1_000 * MS, policy, Metrics::default());
    let tenants = Tenants::new(&mut run.machine, &model);
    (run, tenants)
}

/// Everybody is here and served by a table; what is received is counted from now on.
pub fn settle(run: &mut Run, tenants: &Tenants) {
    for home in tenants.homes() {
        run.act(|run| run.policy.appears(&mut run.machine, &home.tenant.name, home.cgroup));
    }
    while !run.policy.is_settled() {
        run.run_until(run.machine.now_ns() + 10 * MS);
        assert!(run.machine.now_ns() < 3_000 * MS, "{:?}", run.policy.said());
    }
    run.observer.begin(&mut run.machine);
}

pub fn after(run: &mut Run, ns: u64) -> Vec<UnitMetrics> {
    run.run_until(run.machine.now_ns() + ns);
    run.observer.finish(&mut run.machine)
}
