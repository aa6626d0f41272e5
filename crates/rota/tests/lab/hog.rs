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

[[tenant]]
name = "light"
class = "shared"
match = { cgroup = "light" }

[[tenant]]
name = "heavy"
class = "shared"
weight = 300
match = { cgroup = "heavy" }
"#;

/// What one of the two shared tenants may be behind, in ns of CPU time: three quarters, by their weights, of how far
/// apart their clocks may be on one CPU (docs/FAIRNESS.md).
const LAG_MAX_NS: i64 = (3_000_000 + 125_000 * 4 / 3) * 3 / 4;

#[test]
#[ignore = "boots a guest"]
fn what_a_realtime_hog_takes_is_told() {
    let guest = Guest::exact(NEWEST).halved(0).program("chrt").program("bash");
    let results = guest.run(CONFIG, &script!("hog.sh"));
    let [before, hogged, after] = ["before", "hogged", "after"].map(|name| results.status(name));
    let [before, hogged, after] = [&before, &hogged, &after].map(|status| tenant(status, "web"));
    // Real-time tasks leave a twentieth of a second to others.
    assert!(results.gaps("web").longest_ns >= 500_000_000, "{}", results.gaps("web").longest_ns);
    assert_eq!((before.missed, before.lost_ns.higher_class), (0, 0));
    assert!(hogged.missed > 0 && hogged.missed == hogged.missed_by_cause.higher_class, "{hogged:?}");
    assert!(hogged.lost_ns.higher_class >= 250_000_000, "{hogged:?}");
    assert_eq!(after.missed, hogged.missed);
    assert!(!results.logged("higher scheduling classes").is_empty());
    let lag_ns = |name: &str| tenant(&results.status("before"), name).lag_ns;
    assert_eq!(["web", "batch"].map(lag_ns), [None; 2]);
    let (light, heavy) = (lag_ns("light").unwrap(), lag_ns("heavy").unwrap());
    assert!((light + heavy).abs() <= 1 && light.abs() <= LAG_MAX_NS, "{light} {heavy}");
    assert_metrics(&results.text("metrics"), after.missed_by_cause.higher_class);
}

/// What Prometheus is told is what `rota status` shows.
fn assert_metrics(metrics: &str, missed: u64) {
    let value = |sample: &str| -> f64 {
        let of = metrics.lines().find_map(|line| line.strip_prefix(sample)?.strip_prefix(' '));
        of.unwrap_or_else(|| panic!("no {sample} in {metrics}")).parse().unwrap()
    };
    let web = "{tenant=\"web\",class=\"reserved\"";
    let cause = "rota_tenant_missed_promises_total";
    assert_eq!(value(&format!("{cause}{web},cause=\"higher scheduling classes\"}}")), missed as f64);
    assert_eq!(value(&format!("{cause}{web},cause=\"rota itself\"}}")), 0.0);
    assert!(value(&format!("rota_tenant_blackout_max_seconds{web}}}")) >= 0.5, "{metrics}");
    assert!(value(&format!("rota_tenant_cpu_seconds_total{web}}}")) > 1.0, "{metrics}");
    let lag = |name| value(&format!("rota_tenant_lag_seconds{{tenant=\"{name}\",class=\"shared\"}}"));
    assert!(lag("light").abs() <= LAG_MAX_NS as f64 / 1e9 && lag("light") * lag("heavy") <= 0.0, "{metrics}");
}

/// Four that want all they can get, so that a lost slot is a wait of nearly two periods.
const CROWD: &str = r#"
[[tenant]]
name = "t{i}"
count = 4
class = "reserved"
share = 0.20
latency = "20ms"
match = { cgroup = "t{i}" }
"#;

/// What an alarm interrupts goes on afterwards without the scheduler being asked. That must not cost the next slot.
#[test]
#[ignore = "boots a guest"]
fn realtime_alarms_cost_no_slot() {
    let results = Guest::exact(NEWEST).halved(2).program("stress-ng").run(CROWD, &script!("alarms.sh"));
    let (before, after) = (results.status("before"), results.status("after"));
    for name in ["t0", "t1", "t2", "t3"] {
        let [before, after] = [&before, &after].map(|status| tenant(status, name));
        assert_eq!(after.missed, before.missed, "{after:?}");
    }
}
