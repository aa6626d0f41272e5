//! Tenants and their processes come, move and go.

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
name = "db"
class = "reserved"
share = 0.20
latency = "20ms"
match = { cgroup = "db" }
"#;

#[test]
#[ignore = "boots a guest"]
fn tenants_and_their_processes_come_and_go() {
    let results = Guest::parallel(NEWEST).run(CONFIG, &script!("churn.sh"));
    let [nested, moved, outside, removed, again] =
        ["nested", "moved", "outside", "removed", "again"].map(|name| results.status(name));
    assert_eq!((tenant(&nested, "web").runnable, tenant(&nested, "db").runnable), (2, 0));
    assert_eq!((tenant(&moved, "web").runnable, tenant(&moved, "db").runnable), (1, 1));
    assert_eq!((tenant(&outside, "web").runnable, tenant(&outside, "db").runnable), (1, 0));
    assert_eq!(tenant(&removed, "web").id, None, "{removed:?}");
    assert_eq!(tenant(&removed, "db").state, State::Served);
    assert_eq!(tenant(&again, "web").state, State::Served);
    for name in ["web", "db"] {
        assert!(tenant(&again, name).dispatches > 0, "{again:?}");
    }
    assert!(again.cpus.iter().all(|cpu| cpu.mixed == 0), "{:?}", again.cpus);
}
