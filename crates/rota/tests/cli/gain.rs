//! `rota sim --replay --interference`: what moving vCPUs for their caches would gain with a recorded load.

use std::fs;

use rota_model::config::Source;
use rota_scenario::{Scenario, policies};
use serde_json::Value;

use super::Folder;

/// Sixteen tenants that are promised the same, four on each CPU of two cache domains; all but the first always compute.
const EQUAL: &str = r#"
    duration = "2s"
    [host]
    cpus = "0-4"
    housekeeping = "4"
    caches = ["0-1", "2-4"]
    sockets = ["0-1", "2-4"]
    [[tenant]]
    name = "target"
    class = "reserved"
    share = 0.24
    latency = "20ms"
    [[tenant]]
    name = "other-{i}"
    count = 15
    class = "reserved"
    share = 0.24
    latency = "20ms"
    [[workload]]
    tenant = "target"
    program = "phases"
    compute = "2ms"
    sleep = "4ms"
    [[workload]]
    tenant = "other-{i}"
    program = "hog"
"#;

/// Those beside the target in its domain fill the cache of that: 21 MiB and its own 4 are more than 20.
const FILE: [u32; 7] = [0, 3, 4, 7, 8, 11, 12];

fn memories() -> String {
    let one = |name: &str, kib: u32, rest: &str| {
        format!("[[memory]]\ntenant = \"{name}\"\nworking_set = {kib}\n{rest}")
    };
    let others = FILE.map(|number| one(&format!("other-{number}"), 3072, "references = 60\noverlap = 8\n"));
    one("target", 4096, "references = 40\n") + &others.concat()
}

fn folder(scenario: &str, memories: &str) -> Folder {
    let folder = Folder::new("");
    let source = Source { path: "s.toml".to_owned(), text: scenario.to_owned() };
    let scenario = Scenario::parse(&source).unwrap();
    let recording = scenario.record(policies::find("rota").unwrap(), None, 2_000_000_000, &|_| {}).unwrap();
    fs::write(folder.path("host.recording"), recording.to_bytes().unwrap()).unwrap();
    fs::write(folder.path("memory.toml"), memories).unwrap();
    folder
}

const ASK: [&str; 5] = ["sim", "--replay", "host.recording", "--interference", "memory.toml"];

#[test]
fn the_gain_of_each_strategy_is_told_for_each_tenant() {
    let folder = folder(EQUAL, &memories());
    let (text, _) = folder.expect(0, &ASK);
    for part in [
        "What moving vCPUs for their caches would gain with the load of host.recording",
        "CPU time saved for the same work",
        "all of these",
        "What threads work on is taken from memory.toml.",
        "taken to ask nothing of memory: other-1, other-2, other-5",
        "Caches: 256 KiB for a core, as in the model, and 20480 KiB for a domain.",
        "measured: Rota kept every promise",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
    let (json, _) = folder.expect(0, &[&ASK[..], &["--json"]].concat());
    let found: Value = serde_json::from_str(&json).unwrap();
    let target = &found["tenants"][0];
    let figure = |of: &str, strategy: &str| target[of][strategy].as_f64().unwrap();
    assert_eq!(target["tenant"], "target");
    let [off, measured] = ["off", "measured"].map(|strategy| figure("slowdown", strategy));
    assert!(off > 0.1 && measured < off / 2.0 && measured >= 0.0, "{text}");
    let saved = 1.0 - (1.0 + measured) / (1.0 + off);
    assert!((figure("saved", "measured") - saved).abs() < 1e-9, "{target}");
    assert!(figure("lines_per_ms", "measured") < figure("lines_per_ms", "off"), "{target}");
    assert_eq!((&found["moved"]["off"], &target["saved"]["off"]), (&0.into(), &Value::Null));
    assert!(found["moved"]["measured"].as_u64().unwrap() > 0, "{json}");
    assert_eq!(found["last_level_cache_kib"], 20_480);
    let strategies =
        found["runs"].as_array().unwrap().iter().map(|run| run["interference"].as_str().unwrap());
    assert_eq!(strategies.collect::<Vec<_>>(), ["off", "random", "measured"]);
}

/// In a cache that has room for all of them nobody is disturbed.
#[test]
fn a_larger_cache_leaves_nothing_to_gain() {
    let folder = folder(EQUAL, &("last_level_cache = 65536\n".to_owned() + &memories()));
    let (json, _) = folder.expect(0, &[&ASK[..], &["--json"]].concat());
    let found: Value = serde_json::from_str(&json).unwrap();
    for strategy in ["off", "random", "measured"] {
        let slower = found["together"]["slowdown"][strategy].as_f64().unwrap();
        assert!(slower < 0.015, "{strategy}: {slower}");
    }
    assert_eq!(found["last_level_cache_kib"], 65_536);
}

/// What was recorded is computing that nobody disturbed: alone with its cache, a tenant needs what it needed then.
#[test]
fn without_a_neighbour_the_replay_takes_what_was_recorded() {
    let alone = EQUAL
        .replace("count = 15", "count = 1")
        .replace("program = \"hog\"", "program = \"phases\"\ncompute = \"1ms\"\nsleep = \"9ms\"");
    let folder = folder(&alone, "[[memory]]\ntenant = \"target\"\nworking_set = 4096\nreferences = 40\n");
    let (json, _) = folder.expect(0, &[&ASK[..], &["--json"]].concat());
    let found: Value = serde_json::from_str(&json).unwrap();
    let slower = found["tenants"][0]["slowdown"]["off"].as_f64().unwrap();
    // The first ms of it fetch the whole set from memory.
    assert!((0.0..0.02).contains(&slower), "{slower}");
    let (replayed, recorded_ns) = (&found["runs"][0]["tenants"][0], 2e9 * 2.0 / 6.0);
    let cpu_ns = replayed["cpu_ns"].as_f64().unwrap();
    assert!((0.97..1.03).contains(&(cpu_ns / recorded_ns)), "{cpu_ns}");
}

#[test]
fn where_nobody_is_promised_the_same_nothing_moves_and_the_output_says_why() {
    let shared =
        EQUAL.replace("class = \"reserved\"\n    share = 0.24\n    latency = \"20ms\"", "class = \"shared\"");
    let folder = folder(&shared, "[[memory]]\ntenant = \"target\"\nworking_set = 4096\nreferences = 40\n");
    let (text, _) = folder.expect(0, &ASK);
    assert!(text.contains("No vCPU could change places") && text.contains("rota record --config"), "{text}");
}

#[test]
fn what_is_not_known_is_asked_for_and_not_guessed() {
    let folder = folder(EQUAL, "[[memory]]\ntenant = \"target\"\nworking_set = 4096\nreferences = 4000\n");
    let (_, err) = folder.expect(2, &ASK[..4]);
    assert!(err.contains("host.recording has no cache data") && err.contains("target, other-0"), "{err}");
    assert!(err.contains("other-6 and 8 more"), "{err}");
    let (_, err) = folder.expect(2, &ASK);
    let expected =
        "rota: memory.toml:4:14: memory.references: 4000 is no whole number from 1 to 1000; write one\n";
    assert_eq!(err, expected);
    let (_, err) = folder.expect(2, &[&ASK[..4], &["nowhere.toml"]].concat());
    assert!(err.contains("reading nowhere.toml"), "{err}");
    let (_, err) = folder.expect(2, &["sim", "--interference", "memory.toml"]);
    assert!(err.contains("--replay"), "{err}");
}
