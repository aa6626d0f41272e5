//! The documents speak of what exists: their links resolve, every crate has its place in the architecture page, and
//! each `rota` command that they show is one that the binary knows.

use std::process::Command;

use super::{Source, check, check_each, root};

const ARCHITECTURE: &str = "docs/ARCHITECTURE.md";

/// Targets of `[text](target)`, and of `src="target"` and `srcset="target"` in the HTML that Markdown may hold.
fn links(text: &str) -> Vec<&str> {
    let mut found = vec![];
    for (opening, closing) in [("](", ')'), ("src=\"", '"'), ("srcset=\"", '"')] {
        for rest in text.split(opening).skip(1) {
            found.extend(rest.split(closing).next().filter(|target| !target.contains(char::is_whitespace)));
        }
    }
    found
}

/// How a heading is linked to: lower case, words joined by dashes, punctuation dropped.
fn anchor(heading: &str) -> String {
    let kept = |c: char| match c {
        ' ' | '-' => Some('-'),
        c if c.is_alphanumeric() || c == '_' => Some(c.to_ascii_lowercase()),
        _ => None,
    };
    heading.trim_start_matches('#').trim().chars().filter_map(kept).collect()
}

/// `../README.md` seen from `docs/A.md` is `README.md`.
fn resolve(from: &str, target: &str) -> String {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in target.split('/') {
        match part {
            "." | "" => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

fn broken_links(sources: &[Source]) -> Vec<String> {
    let mut findings = vec![];
    for source in sources.iter().filter(|source| source.extension() == "md") {
        for link in links(&source.text).into_iter().filter(|link| !link.contains("://")) {
            let (target, heading) = link.split_once('#').unwrap_or((link, ""));
            let path = if target.is_empty() { source.path.clone() } else { resolve(&source.path, target) };
            let file = sources.iter().find(|other| other.path == path);
            let has_heading = |file: &Source| {
                file.text.lines().any(|line| line.starts_with('#') && anchor(line) == heading)
            };
            let resolves = match file {
                Some(file) => heading.is_empty() || has_heading(file),
                // Folders and pictures.
                None => heading.is_empty() && root().join(&path).exists(),
            };
            if !resolves {
                findings.push(format!("{}: the link `{link}` leads nowhere", source.path));
            }
        }
    }
    findings
}

/// Folders whose files the documents name in code spans.
const NAMED: &[&str] = &["crates/", "docs/", "examples/", "scripts/", "xtask/"];

fn missing_files(source: &Source) -> Vec<String> {
    let spans = source.text.split('`').skip(1).step_by(2);
    spans
        .filter(|span| source.extension() == "md" && NAMED.iter().any(|folder| span.starts_with(folder)))
        .filter(|span| {
            span.chars().all(|c| c.is_alphanumeric() || "/._-".contains(c)) && !root().join(span).exists()
        })
        .map(|span| format!("{}: names `{span}`, which does not exist", source.path))
        .collect()
}

fn crates_without_a_place(sources: &[Source]) -> Vec<String> {
    let architecture =
        sources.iter().find(|source| source.path == ARCHITECTURE).map_or("", |page| &page.text);
    sources
        .iter()
        .filter_map(|source| source.path.strip_prefix("crates/")?.strip_suffix("/Cargo.toml"))
        .filter(|name| !architecture.lines().any(|line| line == format!("### `{name}`")))
        .map(|name| format!("{ARCHITECTURE}: has no section for the crate `{name}`"))
        .collect()
}

/// The commands shown as `rota VERB`, in code spans or in code blocks.
fn commands(text: &str) -> Vec<&str> {
    let mut found = vec![];
    let mut in_block = false;
    for line in text.lines() {
        if line.starts_with("```") {
            in_block = !in_block;
            continue;
        }
        let shown: Vec<&str> = if in_block {
            vec![line.trim_start_matches("$ ").trim_start_matches("sudo ")]
        } else {
            line.split('`').skip(1).step_by(2).collect()
        };
        for words in shown.iter().filter_map(|code| code.strip_prefix("rota ")) {
            found.extend(
                words.split_whitespace().next().filter(|verb| verb.starts_with(|c: char| c.is_lowercase())),
            );
        }
    }
    found
}

fn unknown_commands(source: &Source, help: &str) -> Vec<String> {
    let known = |verb: &str| help.lines().any(|line| line.split_whitespace().next() == Some(verb));
    if source.extension() != "md" {
        return vec![];
    }
    commands(&source.text)
        .into_iter()
        .filter(|verb| !known(verb))
        .map(|verb| format!("{}: shows `rota {verb}`, which `rota --help` does not list", source.path))
        .collect()
}

/// Of the command line as `cargo test --workspace` builds it: built alone, its libraries would have other features, and
/// all of them would be compiled once more. An example has the features of tests and is built sooner than they are.
fn help() -> String {
    let built = Command::new(env!("CARGO"))
        .args(["build", "--quiet", "--locked", "--workspace", "--bin", "rota", "--example", "boot"])
        .env_remove("RUSTC_BOOTSTRAP") // meant for this test's own process, and a reason to compile all anew
        .current_dir(root())
        .status()
        .expect("cargo runs");
    assert!(built.success(), "the workspace does not build");
    let tests = std::env::current_exe().expect("a test has a path");
    let rota = tests.ancestors().nth(2).expect("it is in target/debug/deps").join("rota");
    let output = Command::new(rota).arg("--help").output().expect("it was built");
    assert!(output.status.success(), "rota --help: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("the help is UTF-8")
}

#[test]
fn links_lead_somewhere() {
    check(broken_links);
}

#[test]
fn named_files_exist() {
    check_each(missing_files);
}

#[test]
fn every_crate_has_its_section() {
    check(crates_without_a_place);
}

#[test]
fn shown_commands_exist() {
    let help = help();
    check_each(|source| unknown_commands(source, &help));
}

#[test]
fn catches_broken_links() {
    let sources = [
        Source::new(
            "README.md",
            "# Rota\n## Read on, then\n[a](docs/A.md#in-b) [w](https://example.org/x) [s](#read-on-then)",
        ),
        Source::new(
            "docs/A.md",
            "# In `B`\n[up](../README.md) [no](gone.md) [h](../README.md#nothing)\n<img src=\"no.svg\">",
        ),
    ];
    assert_eq!(
        broken_links(&sources),
        ["gone.md", "../README.md#nothing", "no.svg"]
            .map(|link| format!("docs/A.md: the link `{link}` leads nowhere"))
    );
}

#[test]
fn catches_missing_files() {
    let page = Source::new(
        "README.md",
        "see `crates/rota/Cargo.toml`, `crates/gone.rs` and `scripts/`; `crates/*`\n",
    );
    assert_eq!(missing_files(&page), ["README.md: names `crates/gone.rs`, which does not exist"]);
}

#[test]
fn catches_crates_without_a_section() {
    let sources = [
        Source::new(ARCHITECTURE, "### `rota-plan`\n"),
        Source::new("crates/rota-plan/Cargo.toml", ""),
        Source::new("crates/rota-new/Cargo.toml", ""),
    ];
    assert_eq!(
        crates_without_a_place(&sources),
        [format!("{ARCHITECTURE}: has no section for the crate `rota-new`")]
    );
}

#[test]
fn catches_commands_that_do_not_exist() {
    let help = "Commands:\n  plan  Makes a timetable\n  up    Runs\n";
    let page = Source::new(
        "README.md",
        "see `rota plan`, `rota fly` and rota dances\n```\n$ rota up -c x\nrota land\n```\n",
    );
    assert_eq!(
        unknown_commands(&page, help),
        ["fly", "land"]
            .map(|verb| format!("README.md: shows `rota {verb}`, which `rota --help` does not list"))
    );
}
