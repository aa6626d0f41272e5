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
    let results = Guest::parallel(NEWEST).run(CONFIG, &script!("hotplug.sh"));
    for (name, cpus) in [("online_0", 1), ("online_1", 2)] {
        let status = results.status(name);
        assert_eq!(tenant(&status, "web").state, State::Served, "{name}");
        assert_eq!(tenant(&status, "system").vcpus, cpus, "{name}");
    }
    let anew = results.logged("starting anew");
    assert_eq!(anew.len(), 2, "{anew:?}");
    assert!(anew[0].contains("the CPUs were 0-1 and are 0 now"), "{anew:?}");
    let log = results.text("named.log");
    assert!(log.contains("CPUs 1 of host.cpus are offline"), "{log}");
    assert_eq!(tenant(&results.status("named"), "web").state, State::Served);
}
