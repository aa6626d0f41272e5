//! The threads of a VM's monitor run where the operator has them run, and take nothing of its vCPUs' slots there.

use crate::guest::{Guest, NEWEST, Results, script, tenant};

const CONFIG: &str = r#"
[[tenant]]
name = "web"
class = "reserved"
share = 0.3
latency = "20ms"
capped = true
monitor = "io"
match = { vm = "qemu:web" }

[[tenant]]
name = "io"
class = "reserved"
share = 0.1
latency = "20ms"
capped = true

[[tenant]]
name = "plain"
class = "reserved"
share = 0.3
latency = "20ms"
capped = true
match = { vm = "qemu:plain" }
"#;

/// What a part of a VM had of the four seconds.
fn share(results: &Results, part: &str) -> f64 {
    let spent = |when: &str| results.text(&format!("{part}-{when}")).trim().parse::<f64>().unwrap();
    (spent("after") - spent("before")) / 400.0
}

#[test]
#[ignore = "boots a guest"]
fn a_monitor_elsewhere_takes_nothing_of_its_vcpu() {
    let results = Guest::exact(NEWEST).program("bash").run(CONFIG, &script!("monitor.sh"));
    let [web, io, plain, own] =
        ["web-vcpu", "web-monitor", "plain-vcpu", "plain-monitor"].map(|part| share(&results, part));
    println!("vCPU {web:.3} and monitor {io:.3} in its own reservation; {plain:.3} and {own:.3} in one");
    let status = results.status("after");
    assert_eq!(tenant(&status, "web").monitor.as_deref(), Some("io"));
    for (share, promised) in [(web, 0.3), (io, 0.1), (plain + own, 0.3)] {
        assert!((promised - 0.01..promised + 0.03).contains(&share), "{share} of {promised}");
    }
    assert!(plain < 0.2, "its monitor has half of its slots: {plain}");
    for name in ["web", "io", "plain"] {
        let tenant = tenant(&status, name);
        assert_eq!((tenant.missed_by_cause.rota, tenant.missed_by_cause.floor), (0, 0), "{tenant:?}");
    }
}
