//! A program of a higher scheduling class takes what it likes. Nothing can be done about it; it can be told.

use crate::guest::{Guest, NEWEST, script, tenant};

const CONFIG: &str = r#"
[[tenant]]
name = "web"
class = "reserved"
share = 0.30
latency = "20ms"
match = { cgroup = "web" }

[[tenant]]
name = "batch"
class = "background"
match = { cgroup = "batch" }
"#;

#[test]
#[ignore = "boots a guest"]
fn what_a_realtime_hog_takes_is_told() {
    let results = Guest::exact(NEWEST).program("chrt").run(CONFIG, &script!("hog.sh"));
    let [before, hogged, after] = ["before", "hogged", "after"].map(|name| results.status(name));
    let [before, hogged, after] = [&before, &hogged, &after].map(|status| tenant(status, "web"));
    // Real-time tasks leave a twentieth of a second to others.
    assert!(results.gaps("web").longest_ns >= 500_000_000, "{}", results.gaps("web").longest_ns);
    assert_eq!((before.missed, before.lost_ns.higher_class), (0, 0));
    assert!(hogged.missed > 0 && hogged.missed == hogged.missed_by_cause.higher_class, "{hogged:?}");
    assert!(hogged.lost_ns.higher_class >= 250_000_000, "{hogged:?}");
    assert_eq!(after.missed, hogged.missed);
    assert!(!results.logged("higher scheduling classes").is_empty());
}
