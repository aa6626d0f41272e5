//! The configuration is edited while `rota up` runs.

use crate::guest::{Guest, NEWEST, script, tenant};
use rota_rules::status::{State, Status};

const CONFIG: &str = r#"
[[tenant]]
name = "web"
class = "reserved"
share = 0.30
latency = "20ms"
match = { cgroup = "web" }
"#;

#[test]
#[ignore = "boots a guest"]
fn edits_are_refused_or_taken_up() {
    let results = Guest::exact_on(NEWEST, 2).run(CONFIG, &script!("edits.sh"));
    let [before, wrong, right, infeasible] =
        ["before", "wrong", "right", "infeasible"].map(|name| results.status(name));

    let refused = results.logged("edited configuration is not used");
    assert_eq!(refused.len(), 1, "{refused:?}");
    assert!(refused[0].contains("rota.toml:") && refused[0].contains("share"), "{refused:?}");
    assert!(wrong.edit_refused.as_ref().is_some_and(|reason| refused[0].contains(reason)), "{wrong:?}");
    assert_eq!((names(&wrong), wrong.generation), (names(&before), before.generation));

    assert_eq!((right.edit_refused.clone(), right.generation), (None, before.generation + 1));
    assert_eq!((tenant(&right, "db").state, tenant(&right, "db").promised), (State::Served, Some(0.2)));

    let big = tenant(&infeasible, "big");
    assert_eq!((big.state, infeasible.generation), (State::Refused, right.generation), "{big:?}");
    assert!(big.refused.as_ref().is_some_and(|reason| !reason.is_empty()), "{big:?}");
    for name in ["web", "db"] {
        assert_eq!(tenant(&infeasible, name).promised, tenant(&right, name).promised);
        assert_eq!(tenant(&infeasible, name).state, State::Served);
    }
}

fn names(status: &Status) -> Vec<&str> {
    status.tenants.iter().map(|tenant| tenant.name.as_str()).collect()
}
