//! The walls between the crates (docs/ARCHITECTURE.md): what each must not know.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::{Source, check, check_each};

/// Words that must not stand in the code of some crates, and why. The same input gives the same bytes there.
const IMPURE: &[(&[&str], &[&str], &str)] = &[
    (
        &["rota-model", "rota-plan", "rota-rules", "rota-table"],
        &[
            "std::fs",
            "std::io",
            "std::net",
            "std::env",
            "std::process",
            "std::thread",
            "std::time::Instant",
            "std::time::SystemTime",
            "Instant::now",
            "SystemTime::now",
            "println!",
        ],
        "no I/O, no clock, no environment here",
    ),
    (
        &["rota-sim", "rota-peers", "rota-twin", "rota-scenario", "rota-farm"],
        &[
            "std::fs",
            "std::io",
            "std::net",
            "std::env",
            "std::process",
            "std::time",
            "Instant::now",
            "println!",
        ],
        "no I/O, no clock, no environment here",
    ),
    (
        &["rota-plan", "rota-sim", "rota-peers", "rota-twin", "rota-scenario", "rota-farm"],
        &["f32", "f64"],
        "no floating point here",
    ),
];

/// The one header that may name what the kernel offers, and what names it.
const KERNEL_HEADER: &str = "crates/rota-sched/src/bpf/kernel.bpf.h";
const KERNEL_WORDS: &[&str] = &["__ksym", "#include <"];

/// (crate, what it must not depend on, itself or through others). Tests are free: they may hold a planner's table
/// against the certifier.
const WALLS: &[(&str, &[&str])] = &[
    (
        "rota-model",
        &[
            "rota-host",
            "rota-plan",
            "rota-rules",
            "rota-table",
            "rota-sched",
            "rota-sim",
            "rota-lab",
            "rotad",
        ],
    ),
    (
        "rota-plan",
        &[
            "rota-host",
            "rota-rules",
            "rota-table",
            "rota-sched",
            "rota-sim",
            "rota-peers",
            "rota-lab",
            "rotad",
        ],
    ),
    (
        "rota-table",
        &[
            "rota-host",
            "rota-plan",
            "rota-rules",
            "rota-sched",
            "rota-sim",
            "rota-peers",
            "rota-lab",
            "rotad",
        ],
    ),
    (
        "rota-sched",
        &[
            "rota-host",
            "rota-plan",
            "rota-rules",
            "rota-record",
            "rota-sim",
            "rota-peers",
            "rota-lab",
            "rotad",
        ],
    ),
    (
        "rota-host",
        &[
            "rota-plan",
            "rota-rules",
            "rota-table",
            "rota-sched",
            "rota-record",
            "rota-sim",
            "rota-lab",
            "rotad",
        ],
    ),
    ("rota-nri", &["rota-host", "rota-plan", "rota-rules", "rota-table", "rota-sched", "rota-lab", "rotad"]),
    (
        "rota-rules",
        &["rota-host", "rota-nri", "rota-record", "rota-sim", "rota-peers", "rota-twin", "rota-lab", "rotad"],
    ),
    (
        "rota-record",
        &[
            "rota-plan",
            "rota-rules",
            "rota-table",
            "rota-sched",
            "rota-sim",
            "rota-peers",
            "rota-twin",
            "rota-lab",
            "rotad",
        ],
    ),
    (
        "rota-sim",
        &[
            "rota-host",
            "rota-plan",
            "rota-rules",
            "rota-table",
            "rota-sched",
            "rota-record",
            "rota-lab",
            "rotad",
        ],
    ),
    (
        "rota-peers",
        &[
            "rota-host",
            "rota-plan",
            "rota-rules",
            "rota-table",
            "rota-sched",
            "rota-record",
            "rota-twin",
            "rota-lab",
            "rotad",
        ],
    ),
    (
        "rota-agent",
        &[
            "rota-host",
            "rota-plan",
            "rota-rules",
            "rota-record",
            "rota-sim",
            "rota-peers",
            "rota-twin",
            "rota-lab",
            "rotad",
        ],
    ),
    ("rota-twin", &["rota-host", "rota-peers", "rota-record", "rota-lab", "rotad"]),
    ("rota-scenario", &["rota-lab", "rotad"]),
    ("rota-farm", &["rota-lab", "rotad"]),
    ("rotad", &["rota-record", "rota-sim", "rota-peers", "rota-twin", "rota-lab"]),
];

/// (crate, what it must not use itself, though what it uses may).
const NOT_ITSELF: &[(&str, &[&str])] = &[
    ("rota-scenario", &["rota-plan", "rota-rules", "rota-table", "rota-sched", "rota-host"]),
    ("rota-farm", &["rota-plan", "rota-peers", "rota-record", "rota-host"]),
];

/// A file's code without its unit tests, which stand at its end.
fn without_tests(source: &Source) -> impl Iterator<Item = (usize, &str)> {
    source.lines().take_while(|(_, line)| *line != "#[cfg(test)]")
}

fn impurities(source: &Source) -> Vec<String> {
    let mut findings = vec![];
    for (crates, words, why) in IMPURE {
        let is_meant = crates.iter().any(|name| source.path.starts_with(&format!("crates/{name}/src/")));
        if !is_meant || source.path.ends_with("/tests.rs") {
            continue;
        }
        for (number, line) in without_tests(source).filter(|(_, line)| !line.trim_start().starts_with("//")) {
            for word in words.iter().filter(|word| line.contains(**word)) {
                findings.push(format!("{}:{number}: `{word}`: {why}", source.path));
            }
        }
    }
    findings
}

fn kernel_calls(source: &Source) -> Vec<String> {
    if !source.path.starts_with("crates/rota-sched/src/bpf/") || source.path == KERNEL_HEADER {
        return vec![];
    }
    let mut findings = vec![];
    for (number, line) in source.lines() {
        for word in KERNEL_WORDS.iter().filter(|word| line.contains(**word)) {
            findings.push(format!("{}:{number}: `{word}` belongs in {KERNEL_HEADER}", source.path));
        }
    }
    findings
}

/// What a crate's own manifest says that it depends on, without what its tests and its build script need.
fn dependencies(manifest: &str) -> Vec<&str> {
    let dependencies = manifest.split("[dependencies]").nth(1).unwrap_or_default();
    let dependencies = dependencies.split("\n[").next().unwrap_or_default();
    dependencies.lines().filter_map(|line| line.split(['.', ' ', '=']).next()).collect()
}

/// The workspace's crates and what each depends on itself.
fn graph(sources: &[Source]) -> BTreeMap<&str, Vec<&str>> {
    sources.iter().filter_map(node).collect()
}

fn node(source: &Source) -> Option<(&str, Vec<&str>)> {
    let name = source.path.strip_prefix("crates/")?.strip_suffix("/Cargo.toml")?;
    Some((name, dependencies(&source.text)))
}

/// The shortest way from one crate to another, both included.
fn way<'a>(graph: &BTreeMap<&'a str, Vec<&'a str>>, from: &'a str, to: &str) -> Option<Vec<&'a str>> {
    let mut ways = VecDeque::from([vec![from]]);
    let mut seen = BTreeSet::from([from]);
    while let Some(way) = ways.pop_front() {
        let last = way.last()?;
        if *last == to {
            return Some(way);
        }
        for &next in graph.get(last).into_iter().flatten().filter(|next| seen.insert(*next)) {
            ways.push_back(way.iter().copied().chain([next]).collect());
        }
    }
    None
}

fn breaches(sources: &[Source]) -> Vec<String> {
    let graph = graph(sources);
    let mut findings = vec![];
    for (name, forbidden) in WALLS {
        for way in forbidden.iter().filter_map(|other| way(&graph, name, other)) {
            findings.push(format!("crates/{name}/Cargo.toml: must not be: {}", way.join(" -> ")));
        }
    }
    for (name, forbidden) in NOT_ITSELF {
        for other in graph.get(name).into_iter().flatten().filter(|other| forbidden.contains(other)) {
            findings.push(format!("crates/{name}/Cargo.toml: must not be: {name} -> {other}"));
        }
    }
    findings
}

#[test]
fn pure_crates_are_pure() {
    check_each(impurities);
}

#[test]
fn crates_know_only_what_they_may() {
    check(breaches);
}

#[test]
fn kernel_calls_are_listed_in_one_header() {
    check_each(kernel_calls);
}

/// A crate or header renamed would leave its rules behind, guarding nothing.
#[test]
fn every_rule_has_its_crate() {
    check(|sources| {
        let names = IMPURE
            .iter()
            .flat_map(|(crates, ..)| *crates)
            .chain(WALLS.iter().chain(NOT_ITSELF).map(|(name, _)| name));
        names
            .map(|name| format!("crates/{name}/Cargo.toml"))
            .chain([KERNEL_HEADER.to_owned()])
            .filter(|path| !sources.iter().any(|source| source.path == *path))
            .map(|path| format!("{path}: has rules and does not exist"))
            .collect()
    });
}

#[test]
fn catches_impurities() {
    let clock = "use std::time::Instant;\n";
    assert_eq!(impurities(&Source::new("crates/rota-plan/src/edf.rs", clock)).len(), 1);
    assert!(impurities(&Source::new("crates/rota-lab/src/vm.rs", clock)).is_empty());
    assert_eq!(impurities(&Source::new("crates/rota-plan/src/edf.rs", "x: f64")).len(), 1);
    assert!(impurities(&Source::new("crates/rota-model/src/share.rs", "x: f64")).is_empty());
    let tests_only = format!("// like std::fs\n#[cfg(test)]\nmod tests {{\n    {clock}}}\n");
    assert!(impurities(&Source::new("crates/rota-plan/src/edf.rs", &tests_only)).is_empty());
}

#[test]
fn catches_kernel_calls() {
    let call = "#include <bpf/bpf_helpers.h>\nvoid f(void) __ksym;\n";
    assert_eq!(kernel_calls(&Source::new("crates/rota-sched/src/bpf/pick.bpf.h", call)).len(), 2);
    assert!(kernel_calls(&Source::new(KERNEL_HEADER, call)).is_empty());
}

fn manifest(name: &str, text: &str) -> Source {
    Source::new(&format!("crates/{name}/Cargo.toml"), text)
}

#[test]
fn catches_breaches() {
    let table = |section: &str| {
        manifest(
            "rota-table",
            &format!("[dependencies]\nserde = \"1\"\n{section}rota-plan.workspace = true\n"),
        )
    };
    assert_eq!(
        breaches(&[table("")]),
        ["crates/rota-table/Cargo.toml: must not be: rota-table -> rota-plan"]
    );
    assert!(breaches(&[table("\n[dev-dependencies]\n")]).is_empty());
    let scenario = manifest("rota-scenario", "[dependencies]\nrota-table.workspace = true\n");
    assert_eq!(breaches(&[scenario]).len(), 1);
}

#[test]
fn catches_a_breach_through_a_crate_between() {
    let record = manifest("rota-record", "[dependencies]\nrota-host.workspace = true\n");
    let host = |dependency: &str| manifest("rota-host", &format!("[dependencies]\n{dependency} = \"1\"\n"));
    assert!(breaches(&[record, host("inotify")]).is_empty());
    let record = manifest("rota-record", "[dependencies]\nrota-host.workspace = true\n");
    assert_eq!(
        breaches(&[record, host("rota-sched")]),
        [
            "crates/rota-host/Cargo.toml: must not be: rota-host -> rota-sched",
            "crates/rota-record/Cargo.toml: must not be: rota-record -> rota-host -> rota-sched",
        ]
    );
    // A way through others is allowed where only a crate's own use is forbidden.
    let scenario = manifest("rota-scenario", "[dependencies]\nrota-twin.workspace = true\n");
    let twin = manifest("rota-twin", "[dependencies]\nrota-sched.workspace = true\n");
    assert!(breaches(&[scenario, twin]).is_empty());
}
