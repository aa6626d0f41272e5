//! The daemon with what its unit leaves it, beside strangers that make cgroups as they like.

use crate::guest::{Guest, NEWEST, script, tenant};
use rota_rules::status::State;

/// What the unit starts.
const UNIT: &str = include_str!("../../../../packaging/rota.service");

/// The script reads the capabilities in the first line.
const CONFIG: &str = r#"
[[tenant]]
name = "web"
class = "reserved"
share = 0.30
latency = "20ms"
match = { cgroup = "web" }

[[tenant]]
name = "box"
class = "reserved"
share = 0.10
latency = "20ms"
match = { container = "0123456789ab" }
"#;

#[test]
#[ignore = "boots a guest"]
fn what_the_unit_takes_away_is_not_needed_and_strangers_take_nothing() {
    let mut capabilities = UNIT.lines().filter_map(|line| line.strip_prefix("CapabilityBoundingSet="));
    let names = capabilities.next().unwrap().split(' ').filter_map(|name| name.strip_prefix("CAP_"));
    let set: Vec<String> = names.map(|name| format!("+{}", name.to_lowercase())).collect();
    let config = format!("# -all,{}\n{CONFIG}", set.join(","));

    let results = Guest::parallel(NEWEST).program("setpriv").run(&config, &script!("strangers.sh"));
    let [before, after] = ["before", "after"].map(|name| results.status(name));
    assert_eq!((before.pid, before.generation), (after.pid, after.generation), "{}", results.text("up.log"));
    assert_eq!(tenant(&after, "web").state, State::Served);
    assert_eq!(tenant(&after, "box").state, State::Absent);
    assert!(!results.text("up.log").contains("\u{1b}"));
}
