//! Scenarios run under a policy: what comes out, and that it always does.

use rota_model::config::Source;
use rota_scenario::policies::{self, POLICIES};
use rota_scenario::{Options, Outcome, Scenario};

const MS: u64 = 1_000_000;

/// Something of every kind: servers, locks, barriers, a hog; containers and a VM, every class.
const MIXED: &str = include_str!("mixed.toml");

fn scenario(text: &str) -> Scenario {
    let source = Source { path: "s.toml".to_owned(), text: text.to_owned() };
    Scenario::parse(&source).unwrap_or_else(|errors| panic!("{errors}"))
}

fn run(text: &str, policy: &str, options: Options) -> Outcome {
    let policy = policies::find(policy).expect("a policy");
    scenario(text).run(policy, options, &|_| {}).unwrap_or_else(|error| panic!("{}: {error:#}", policy.name))
}

fn traced(seed: u64) -> Options {
    Options { seed: Some(seed), trace: true }
}

#[test]
fn the_same_seed_gives_the_same_trace_under_every_policy() {
    for policy in POLICIES {
        let [first, again, other] = [3, 3, 4].map(|seed| run(MIXED, policy.name, traced(seed)));
        assert!(first.trace.as_ref().unwrap().events().len() > 10_000, "{}", policy.name);
        assert_eq!(first.trace, again.trace, "{}", policy.name);
        assert_eq!((first.digest, first.events), (again.digest, again.events), "{}", policy.name);
        assert_ne!(first.digest, other.digest, "{}", policy.name);
    }
}

/// What the scheduler or the model does otherwise, this shows. If that was meant, write down what the test says.
const DIGEST: u64 = 0xfeb8_13d1_c4ad_8b83;

/// The same in every build: debug and release, here and elsewhere.
#[test]
fn the_digest_is_the_one_written_down() {
    let outcome = run(MIXED, "rota", Options::default());
    assert_eq!(outcome.digest, DIGEST, "it is {:#018x} now", outcome.digest);
}

#[test]
fn an_outcome_adds_up_under_every_policy() {
    let text = scenario(MIXED);
    for policy in POLICIES {
        let outcome = run(MIXED, policy.name, Options::default());
        assert_eq!(outcome.insane, [], "{}", policy.name);
        assert_eq!((outcome.window_ns, outcome.seed, outcome.cpus), (text.duration_ns, text.seed, 4));
        assert!(outcome.trace.is_none());
        let received_ns: u64 = outcome.tenants.iter().map(|tenant| tenant.metrics.received_ns).sum();
        assert!(received_ns <= outcome.received_ns && outcome.received_ns <= 4 * outcome.window_ns);
        for tenant in &outcome.tenants {
            let name = format!("{} under {}", tenant.tenant.name, policy.name);
            let parts: u64 = tenant.service.iter().map(|service| service.received_ns).sum();
            assert_eq!(parts, tenant.metrics.received_ns, "{name}");
            let wanted_ns: u64 = tenant.service.iter().map(|service| service.wanted_ns).sum();
            assert_eq!(wanted_ns, tenant.metrics.wanted_ns, "{name}");
            assert_eq!(wanted_ns, tenant.metrics.runnable_ns.iter().sum::<u64>(), "{name}");
            let spent = &tenant.spent.spent;
            let threads = spent.total_ns() / outcome.window_ns;
            assert!(threads > 0 && spent.total_ns() == threads * outcome.window_ns, "{name}: {spent:?}");
            assert!(tenant.metrics.received_ns <= spent.running_ns, "{name}: interrupts ran as well");
            // A wait that goes on has nobody yet who ran meanwhile.
            let told_ns = tenant.spent.waited_for.values().sum::<u64>() + spent.waited_for_nobody_ns;
            assert!(told_ns <= spent.waiting_ns, "{name}: {told_ns} of {spent:?}");
            let ongoing_ns = spent.waiting_ns - told_ns;
            assert!(ongoing_ns <= threads * outcome.window_ns / 4, "{name}: {ongoing_ns} of {spent:?}");
            assert!(tenant.metrics.work > 0 || name.starts_with("hog"), "{name} did something");
        }
        let vm = outcome.tenants.iter().find(|tenant| tenant.tenant.name == "vm").expect("it is there");
        assert_eq!(vm.units, 2, "each vCPU is measured by itself");
    }
}

#[test]
fn rota_keeps_every_promise_of_it() {
    for tenant in run(MIXED, "rota", Options::default()).tenants {
        let Some(reservation) = tenant.tenant.reservation() else { continue };
        let (bound_ns, longest_ns) = (reservation.latency_ns + 20_000, tenant.metrics.blackout_max_ns);
        assert!(longest_ns <= bound_ns, "{}: {longest_ns}", tenant.tenant.name);
    }
}

/// 0.3 and 0.6 of one CPU, capped, for two hogs; the third one's promise of 0.05 leaves it the rest.
#[test]
fn shares_are_what_is_promised() {
    const TEXT: &str = r#"
        duration = "4s"
        [host]
        cpus = "0-1"
        housekeeping = "0"
        [[tenant]]
        name = "a"
        class = "reserved"
        share = 0.3
        latency = "20ms"
        capped = true
        [[tenant]]
        name = "b"
        class = "reserved"
        share = 0.6
        latency = "10ms"
        capped = true
        [[workload]]
        tenant = "a"
        program = "hog"
        [[workload]]
        tenant = "b"
        program = "hog"
    "#;
    let outcome = run(TEXT, "rota", Options::default());
    for (tenant, promised_ms) in outcome.tenants.iter().zip([1_200, 2_400]) {
        let received_ms = tenant.metrics.received_ns / MS;
        assert!(received_ms.abs_diff(promised_ms) <= promised_ms / 50, "{received_ms}, not {promised_ms}");
    }
}

#[test]
fn progress_is_told() {
    let told = std::sync::Mutex::new(Vec::new());
    let policy = policies::find("rota").unwrap();
    scenario(MIXED).run(policy, Options::default(), &|part| told.lock().unwrap().push(part)).unwrap();
    assert_eq!(told.into_inner().unwrap(), (1..=100).collect::<Vec<_>>());
    assert!(policies::find("nonesuch").is_none());
}
