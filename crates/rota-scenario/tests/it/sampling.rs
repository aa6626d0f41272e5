//! Samples of a tenant beside others and with the others held off.

use rota_model::Counts;
use rota_model::config::Source;
use rota_rules::slowdown::Method;
use rota_scenario::{PARTS, Plan, STEP_NS, Sampled, Scenario, policies};

const MS: u64 = 1_000_000;

const TEXT: &str = r#"
    warm_up = "500ms"
    [host]
    cpus = "0-2"
    housekeeping = "2"
    [[tenant]]
    name = "program"
    class = "shared"
    vcpus = 2
    [[tenant]]
    name = "web"
    class = "reserved"
    share = 0.3
    latency = "20ms"
    [[tenant]]
    name = "others"
    class = "shared"
    vcpus = 2
    [[workload]]
    tenant = "program"
    program = "barrier"
    threads = 2
    compute = { uniform = ["900us", "1100us"] }
    spin = "200us"
    [[workload]]
    tenant = "web"
    program = "hog"
    [[workload]]
    tenant = "others"
    program = "periodic"
    threads = 4
"#;

fn scenario() -> (Scenario, u32) {
    let source = Source { path: "s.toml".to_owned(), text: TEXT.to_owned() };
    let scenario = Scenario::parse(&source).unwrap_or_else(|errors| panic!("{errors}"));
    let place = scenario.model.tenants.iter().position(|tenant| tenant.name == "program");
    (scenario, place.expect("it is there") as u32)
}

fn sample(policy: &str) -> Sampled {
    let (scenario, tenant) = scenario();
    let plan = Plan { tenant, sample_ns: 2_000 * MS, settle_ns: 100 * MS };
    scenario.sample(policies::find(policy).expect("a policy"), None, plan).expect("it is sampled")
}

#[test]
fn who_has_no_promise_is_held_off() {
    for policy in ["rota", "eevdf", "credit"] {
        let sampled = sample(policy);
        assert_eq!((sampled.dedicated.len(), sampled.beside.len()), (PARTS, PARTS), "{policy}");
        let [dedicated, beside] = [&sampled.dedicated, &sampled.beside].map(|parts| Counts::sum(parts));
        // Two threads' time. The reserved one is never held off, and takes at least its share of 0.3.
        assert_eq!((dedicated.total_ns, beside.total_ns), (4_000 * MS, 4_000 * MS), "{policy}");
        assert!(dedicated.steal_ns > 100 * MS, "{policy}: {dedicated:?}, {beside:?}");
        let useful_ns = [&dedicated, &beside].map(Counts::useful_ns);
        assert!(useful_ns[0] > useful_ns[1] * 5 / 4, "{policy}: {dedicated:?}, {beside:?}");
        assert!(dedicated.sync_ns > 0 && dedicated.memory_ns == 0 && dedicated.misses == 0, "{policy}");
        assert_eq!(sampled, sample(policy), "{policy}: the same seed, the same samples");
    }
}

#[test]
fn what_a_sample_foretells_comes_true() {
    let (mut scenario, tenant) = scenario();
    let policy = policies::find("rota").unwrap();
    let Sampled { dedicated, beside } = sample("rota");
    let foretold = Method::UsefulWork.slowdown(&dedicated, &beside).unwrap();
    let work = 20_000;
    let beside_ns = scenario.time_for(policy, None, tenant, work, 60_000 * MS).unwrap();
    assert!(scenario.time_for(policy, None, tenant, work, 1_000 * MS).is_err(), "it takes longer");
    scenario.workloads.pop();
    let alone_ns = scenario.time_for(policy, None, tenant, work, 60_000 * MS).unwrap();
    assert!(alone_ns % STEP_NS == 0 && alone_ns > 5_000 * MS, "{alone_ns}");
    let slowdown = beside_ns as f64 / alone_ns as f64;
    assert!(slowdown > 1.3 && (foretold / slowdown - 1.0).abs() < 0.03, "{foretold}, and it is {slowdown}");
}
