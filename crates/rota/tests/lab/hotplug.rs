//! CPUs come and go.

use crate::guest::{Guest, NEWEST, script, tenant};
use rota_rules::status::State;

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
fn tenants_survive_cpus_that_go_and_come() {
    let results = Guest::exact_on(NEWEST, 2).run(CONFIG, &script!("hotplug.sh"));
    for (name, cpus) in [("gone", 1), ("named", 1), ("back", 2)] {
        let status = results.status(name);
        assert_eq!(tenant(&status, "web").state, State::Served, "{name}");
        assert_eq!(tenant(&status, "system").vcpus, cpus, "{name}");
    }
    for (log, change) in [("up.log", "were 0-1 and are 0 now"), ("named.log", "were 0 and are 0-1 now")] {
        let log = results.text(log);
        assert!(log.contains(change), "{log}");
    }
    let log = results.text("named.log");
    assert!(log.contains("CPUs 1 of host.cpus are offline"), "{log}");
}
