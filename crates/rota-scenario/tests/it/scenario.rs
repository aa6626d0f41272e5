//! Scenarios: what their text means, and exactly what is said of mistakes in it.

use rota_model::config::Source;
use rota_peers::{Eevdf, Fair};
use rota_scenario::{Member, Scenario};
use rota_sim::{CgroupId, Costs, Simulation, TaskSpec, UnitId};

fn parse(text: &str) -> Result<Scenario, String> {
    let source = Source { path: "s.toml".to_owned(), text: text.to_owned() };
    Scenario::parse(&source).map_err(|errors| errors.to_string())
}

/// `scenario_errors.txt` holds one case a paragraph: a scenario's text, and behind `> ` the errors in it. Each begins
/// with a host of four CPUs and a tenant called `web`, unless it has a host of its own.
#[test]
fn every_mistake_is_named_with_place_and_mend() {
    const HOST: &str = "host = { cpus = \"0-3\" }\ntenant = [{ name = \"web\", class = \"background\" }]\n";
    let mut cases = 0;
    for case in include_str!("scenario_errors.txt").split("\n\n").map(str::trim) {
        let (expected, lines): (Vec<&str>, Vec<&str>) = case.lines().partition(|line| line.starts_with("> "));
        let head = if case.contains("host") { "" } else { HOST };
        let text = format!("{head}{}", lines.join("\n"));
        let expected: Vec<&str> = expected.iter().map(|line| &line[2..]).collect();
        match parse(&text) {
            Ok(scenario) => panic!("accepted as {scenario:?}:\n{case}"),
            Err(errors) => assert_eq!(errors, expected.join("\n"), "for:\n{case}"),
        }
        cases += 1;
    }
    assert!(cases >= 15, "only {cases} cases were read");
}

const TWO_KINDS: &str = r#"
    duration = "2s"
    warm_up = "100ms"
    seed = 7

    [host]
    cpus = "0-1"
    housekeeping = "0"

    [costs]
    switch = "2us"

    [[tenant]]
    name = "web-{i}"
    count = 11
    class = "reserved"
    share = 0.05
    latency = "50ms"

    [[tenant]]
    name = "batch"
    class = "background"

    [[workload]]
    tenant = "web-{i}"
    program = "phases"
    threads = 2
    working_set = 64
    compute = { exponential = "2ms" }
    sleep = { uniform = ["1ms", "9ms"] }

    [[workload]]
    tenant = "batch"
    program = "hog"
"#;

#[test]
fn a_scenario_says_what_it_means() {
    let scenario = parse(TWO_KINDS).unwrap();
    assert_eq!((scenario.duration_ns, scenario.warm_up_ns, scenario.seed), (2_000_000_000, 100_000_000, 7));
    assert_eq!(scenario.costs, Costs { switch_ns: 2_000, ..Costs::default() });
    assert_eq!(scenario.model.tenants.len(), 12);
    let mut simulation = Simulation::new(
        scenario.model.host.topology.clone(),
        scenario.costs.clone(),
        scenario.seed,
        0,
        Fair::<Eevdf>::default(),
        (),
    );
    let members = scenario.members(&mut simulation);
    let places: Vec<_> =
        members.iter().map(|member| (member.tenant.unwrap(), member.working_set_kib)).collect();
    let webs = (0..11).flat_map(|tenant| [(tenant, 64); 2]);
    assert_eq!(places, webs.chain([(11, 0)]).collect::<Vec<_>>());
}

/// The same text and seed, the same run; another seed, another one.
#[test]
fn runs_repeat() {
    let used = |seed: u64| {
        let scenario = parse(TWO_KINDS).unwrap();
        let topology = scenario.model.host.topology.clone();
        let policy = Fair::<Eevdf>::default();
        let mut simulation = Simulation::new(topology, Costs::default(), seed, 0, policy, ());
        for Member { tenant, program, .. } in scenario.members(&mut simulation) {
            let spec = TaskSpec::new(100, UnitId(tenant.unwrap()), CgroupId::ROOT, program);
            simulation.spawn(spec);
        }
        simulation.run_until(scenario.duration_ns);
        let used: Vec<u64> = simulation.machine.tasks().map(|(_, task)| task.used_ns).collect();
        (used, simulation.events())
    };
    assert_eq!(used(1), used(1));
    assert_ne!(used(1), used(2));
}
