//! The walls between the crates (docs/ARCHITECTURE.md): what each must not know.

use super::{Source, check, check_each};

/// Words that must not stand in the code of some crates, and why. The same input gives the same bytes there.
const IMPURE: &[(&[&str], &[&str], &str)] = &[
    (
        &["rota-model", "rota-plan", "rota-table"],
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

/// (crate, what it must not depend on). Tests are free: they may hold a planner's table against the certifier.
const WALLS: &[(&str, &[&str])] = &[
    ("rota-model", &["rota-plan", "rota-table", "rota-sched", "rota-sim", "rota-lab", "rotad"]),
    ("rota-plan", &["rota-table", "rota-sched", "rota-sim", "rota-peers", "rota-lab", "rotad"]),
    ("rota-table", &["rota-plan", "rota-sched", "rota-sim", "rota-peers", "rota-lab", "rotad"]),
    ("rota-sched", &["rota-plan", "rota-sim", "rota-peers", "rota-lab", "rotad"]),
    (
        "rota-record",
        &["rota-plan", "rota-table", "rota-sched", "rota-sim", "rota-peers", "rota-twin", "rota-lab"],
    ),
    ("rota-sim", &["rota-plan", "rota-table", "rota-sched", "rota-record", "rota-lab", "rotad"]),
    (
        "rota-peers",
        &["rota-plan", "rota-table", "rota-sched", "rota-record", "rota-twin", "rota-lab", "rotad"],
    ),
    ("rota-twin", &["rota-peers", "rota-record", "rota-lab"]),
    ("rota-scenario", &["rota-plan", "rota-table", "rota-sched", "rota-lab", "rotad"]),
    ("rota-farm", &["rota-plan", "rota-peers", "rota-record", "rota-lab"]),
    ("rotad", &["rota-record", "rota-sim", "rota-peers", "rota-lab"]),
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

fn breaches(source: &Source) -> Vec<String> {
    let mut findings = vec![];
    for (name, forbidden) in
        WALLS.iter().filter(|(name, _)| source.path == format!("crates/{name}/Cargo.toml"))
    {
        let dependencies = source.text.split("[dependencies]").nth(1).unwrap_or_default();
        let dependencies = dependencies.split("\n[").next().unwrap_or_default();
        let named = |line: &str| line.split(['.', ' ', '=']).next().unwrap_or_default().to_owned();
        for dependency in dependencies.lines().map(named).filter(|name| forbidden.contains(&name.as_str())) {
            findings.push(format!("{}: {name} must not know {dependency}", source.path));
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
    check_each(breaches);
}

#[test]
fn kernel_calls_are_listed_in_one_header() {
    check_each(kernel_calls);
}

/// A crate or header renamed would leave its rules behind, guarding nothing.
#[test]
fn every_rule_has_its_crate() {
    check(|sources| {
        let names = IMPURE.iter().flat_map(|(crates, ..)| *crates).chain(WALLS.iter().map(|(name, _)| name));
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

#[test]
fn catches_breaches() {
    let manifest =
        |section: &str| format!("[dependencies]\nserde = \"1\"\n{section}rota-plan.workspace = true\n");
    let path = "crates/rota-table/Cargo.toml";
    assert_eq!(breaches(&Source::new(path, &manifest(""))).len(), 1);
    assert!(breaches(&Source::new(path, &manifest("\n[dev-dependencies]\n"))).is_empty());
    assert!(breaches(&Source::new("crates/rotad/Cargo.toml", &manifest(""))).is_empty());
}
