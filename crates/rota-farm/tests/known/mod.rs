//! `found.toml`: what was found wrong, and which test finds it again.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use toml::{Table, Value};

const TEXT: &str = include_str!("../found.toml");

/// Classes of the scheduler's mistakes. An entry of these has a test, or says why it has none.
const MISTAKES: [&str; 8] =
    ["telling", "reach", "change", "ageing", "account", "clocks", "hand-over", "kernel-thread"];
/// What was no mistake of the scheduler's, or is not known to be one.
const OTHERS: [&str; 4] = ["model", "check", "definition", "unexplained"];
const WORDS_MAX: usize = 25;

/// One thing that was found.
struct Entry {
    seeds: Vec<u64>,
    class: String,
    what: String,
    tests: Vec<String>,
    untested: bool,
}

impl Entry {
    fn read(value: &Value) -> Entry {
        let list = |key: &str| value[key].as_array().expect("a list");
        let text = |value: &Value| value.as_str().expect("a text").to_owned();
        let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        let seed = |value: &Value| {
            value.as_integer().and_then(|seed| u64::try_from(seed).ok()).expect("a seed, from 0 on")
        };
        Entry {
            seeds: list("seeds").iter().map(seed).collect(),
            class: text(&value["class"]),
            what: words(&text(&value["what"])),
            tests: list("tests").iter().map(text).collect(),
            untested: value.get("untested").is_some(),
        }
    }

    /// The seeds that the farm's test runs again for it.
    fn rerun(&self) -> impl Iterator<Item = u64> {
        self.tests.iter().filter_map(|test| Some(test.strip_prefix("farm::")?.parse().expect("farm::SEED")))
    }
}

/// The entries of `[[farm]]` or of `[[fairness]]`.
fn entries(text: &str, list: &str) -> Vec<Entry> {
    let table: Table = text.parse().expect("found.toml is TOML");
    table[list].as_array().expect("a list").iter().map(Entry::read).collect()
}

/// The seeds of the farm that are run again, in order.
pub fn seeds() -> BTreeSet<u64> {
    entries(TEXT, "farm").iter().flat_map(Entry::rerun).collect()
}

/// Rust and C files below a folder.
fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("a file").path()) {
        if entry.is_dir() {
            sources(&entry, found);
        } else if entry.extension().is_some_and(|extension| extension == "rs" || extension == "c") {
            found.push(entry);
        }
    }
}

/// Files of all crates with their texts.
fn texts() -> Vec<(PathBuf, String)> {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("crates/");
    let mut found = vec![];
    sources(crates, &mut found);
    found.into_iter().map(|path| (path.clone(), fs::read_to_string(path).expect("a text"))).collect()
}

/// Whether `file::test` is a function, or a scene of the explorer's, in a file or folder of that name.
fn exists(test: &str, texts: &[(PathBuf, String)]) -> bool {
    let Some((file, name)) = test.split_once("::") else { return false };
    let shown = [format!("fn {name}("), format!(".name = \"{name}\"")];
    let is_there = |path: &Path| path.with_extension("").iter().any(|part| part == file);
    texts.iter().any(|(path, text)| is_there(path) && shown.iter().any(|shown| text.contains(shown)))
}

/// What is wrong with a list of entries.
fn faults(entries: &[Entry], texts: &[(PathBuf, String)]) -> Vec<String> {
    let mut faults = vec![];
    let mut seen = BTreeSet::new();
    for Entry { seeds, class, what, tests, untested } in entries {
        let mut say = |fault: String| faults.push(format!("{fault}: {what}"));
        let is_mistake = MISTAKES.contains(&class.as_str());
        if !is_mistake && !OTHERS.contains(&class.as_str()) {
            say(format!("no such class, {class}"));
        }
        if is_mistake && tests.is_empty() != *untested {
            say("it has a test, or says why there is none".into());
        }
        for seed in seeds.iter().filter(|seed| !seen.insert(**seed)) {
            say(format!("seed {seed} stands twice"));
        }
        for test in tests {
            let again = test.strip_prefix("farm::").and_then(|seed| seed.parse().ok());
            if !again.map_or_else(|| exists(test, texts), |seed: u64| seeds.contains(&seed)) {
                say(format!("no such test, {test}"));
            }
        }
        if what.split_inclusive(". ").any(|sentence| sentence.split_whitespace().count() > WORDS_MAX) {
            say(format!("a sentence has more than {WORDS_MAX} words"));
        }
    }
    faults
}

#[test]
fn what_was_found_is_well_described() {
    let texts = texts();
    for list in ["farm", "fairness"] {
        let entries = entries(TEXT, list);
        assert!(!entries.is_empty());
        let faults = faults(&entries, &texts);
        assert!(faults.is_empty(), "{}", faults.join("\n"));
    }
    assert!(!seeds().is_empty());
}

#[test]
fn a_bad_description_is_seen() {
    let entry = |seeds: &str, class: &str, what: &str, tests: &str| {
        format!("[[farm]]\nseeds = [{seeds}]\nclass = \"{class}\"\nwhat = \"{what}\"\ntests = [{tests}]\n")
    };
    let long = "word ".repeat(WORDS_MAX + 1);
    let text = [
        entry("1", "wrong", "A.", "\"idle::b\""),
        entry("2", "reach", "B.", ""),
        entry("1, 3", "check", "C.", ""),
        entry("4", "reach", "D.", "\"idle::b\", \"idle::c\", \"lines::b\", \"farm::5\""),
        entry("5", "check", &format!("E. {long}"), "\"farm::5\", \"races::from slot to slot\""),
    ]
    .concat();
    let texts = [
        ("crates/a/tests/idle/main.rs", "fn b() {"),
        ("crates/a/tests/lines.rs", ""),
        ("crates/a/tests/races/main.c", "{.name = \"from slot to slot\","),
    ]
    .map(|(path, text)| (PathBuf::from(path), text.to_owned()));
    let seen = faults(&entries(&text, "farm"), &texts);
    let begins = [
        "no such class, wrong",
        "it has a test",
        "seed 1 stands twice",
        "no such test, idle::c",
        "no such test, lines::b",
        "no such test, farm::5",
        "a sentence has more",
    ];
    assert_eq!(seen.len(), begins.len(), "{seen:?}");
    assert!(seen.iter().zip(begins).all(|(seen, begin)| seen.starts_with(begin)), "{seen:?}");
}
