//! However `rota up` ends, the kernel's own scheduler takes over and no tenant stops.

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

/// What an older kernel does when the daemon is killed is in `promises`.
#[test]
#[ignore = "boots a guest"]
fn killed_stopped_or_refused_tenants_run_on() {
    let results = Guest::parallel(NEWEST).run(CONFIG, &script!("stop.sh"));
    let second = results.text("second.log");
    assert!(second.contains("another `rota up` runs already") && second.lines().count() == 1, "{second}");
    let [before, after, again] = ["before", "after_second", "again"].map(|name| results.status(name));
    assert_eq!((before.pid, before.generation), (after.pid, after.generation));
    assert_ne!(before.pid, again.pid);
    for status in [&before, &after, &again] {
        assert_eq!(tenant(status, "web").state, State::Served);
        assert_eq!(tenant(status, "batch").state, State::Served);
    }
    assert!(results.text("again.log").ends_with("stopped; the kernel's own scheduler runs every task\n"));
}
