//! Interference in caches: what a target loses to tenants that are drawn, and to those that are after it.

use rota_scenario::{Options, policies};

use crate::fairness::scenarios::parse;

/// What the target does in a second while so many of 15 others thrash, after so many seconds of it.
fn work(pattern: Option<&str>, tenants: u32, policy: &str) -> u64 {
    let mut text = r#"
        duration = "2s"
        warm_up = "500ms"
        [host]
        cpus = "0-4"
        housekeeping = "4"
        sockets = ["0-1", "2-3"]
        caches = ["0-1", "2-3"]
        [[tenant]]
        name = "target"
        class = "reserved"
        share = 0.24
        latency = "20ms"
        [[tenant]]
        name = "other-{i}"
        count = 15
        class = "reserved"
        share = 0.24
        latency = "20ms"
        [[workload]]
        tenant = "target"
        program = "barrier"
        compute = "100us"
        working_set = 8192
        references = 10
        [[workload]]
        tenant = "other-{i}"
        program = "hog"
    "#
    .to_owned();
    if let Some(pattern) = pattern {
        text += &format!(
            "[interference]\npattern = \"{pattern}\"\ntenants = {tenants}\ntarget = \"target\"\nevery = \"500ms\"\n\
             working_set = 16384\nreferences = 30\noverlap = 4\n"
        );
    }
    let policy = policies::find(policy).expect("a policy");
    let outcome = parse(text).run(policy, Options::default(), &|_| ()).expect("it runs");
    assert_eq!(outcome.insane, []);
    let caches = outcome.tenants[0].caches.expect("its caches are simulated");
    assert!(caches.references > 100_000 && caches.misses < caches.references, "{caches:?}");
    assert_eq!(outcome.tenants[1].caches.is_some(), pattern.is_some());
    outcome.tenants[0].metrics.work
}

#[test]
fn who_is_targeted_loses_more_than_who_is_hit_at_random() {
    let (alone, random) = (work(None, 0, "rota"), work(Some("random"), 6, "rota"));
    let targeted = work(Some("targeted"), 6, "rota");
    assert!(alone > random && random > targeted, "{alone} {random} {targeted}");
    assert!(alone * 10 > targeted * 12, "{alone} {targeted}");
    assert_eq!(targeted, work(Some("targeted"), 6, "rota"), "the same text, the same run");
}

#[test]
fn under_any_policy_more_interference_is_worse() {
    for policy in ["eevdf", "credit"] {
        let [few, many] = [2, 14].map(|tenants| work(Some("random"), tenants, policy));
        assert!(few > many, "{policy}: {few} {many}");
    }
}
