//! What an operator asks on a real kernel: `rota doctor`, `rota up --dry-run`, `rota top`.

use serde_json::Value;

use crate::guest::{Guest, NEWEST, Results, script};

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
fn an_operator_is_told_what_is_in_the_way_and_what_goes_on() {
    let results = Guest::exact_on(NEWEST, 2).program("script").run(CONFIG, &script!("operator.sh"));

    let before = findings(&results, "before.json");
    assert_eq!(said(&before, "sched_ext"), ("ok", "no scheduler is loaded"));
    assert_eq!(said(&before, "db"), ("problem", "cgroup = \"db\" finds nothing"));
    let problems = before.iter().filter(|finding| finding["level"] == "problem").count();
    assert_eq!(problems, 1, "{before:#?}");
    assert_eq!(said(&before, "web"), ("ok", "in cgroup web"));

    let running = findings(&results, "running.json");
    assert_eq!(said(&running, "sched_ext"), ("ok", "enabled: Rota has it"));
    assert_eq!(said(&running, "db"), ("ok", "in cgroup db"));

    let plan = results.text("dry-run.txt");
    assert!(
        plan.contains("\nweb     reserved  served") && plan.contains("\ndb      reserved  absent"),
        "{plan}"
    );
    // What the dry run said of the table is what the log said later.
    let line = "web: promised 1 vCPU with share 0.3, latency 20 ms";
    assert!(plan.contains(line) && results.logged(line).len() == 1, "{plan}");

    let screen = String::from_utf8_lossy(results.bytes("top.txt")).into_owned();
    for words in ["TENANT", "web", "0.300", "CPU"] {
        assert!(screen.contains(words), "{screen}");
    }
}

fn findings(results: &Results, name: &str) -> Vec<Value> {
    let answer: Value = serde_json::from_str(&results.text(name)).unwrap();
    answer["findings"].as_array().unwrap().clone()
}

fn said<'a>(findings: &'a [Value], about: &str) -> (&'a str, &'a str) {
    let of = findings.iter().find(|finding| finding["about"] == about).unwrap();
    (of["level"].as_str().unwrap(), of["found"].as_str().unwrap())
}
