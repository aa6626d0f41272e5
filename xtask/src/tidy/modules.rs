//! No Rust file lies about that no crate compiles.

use std::collections::BTreeSet;

use super::{Source, check};

/// The submodules that a file declares in other files.
fn declared(source: &Source) -> impl Iterator<Item = &str> {
    source.text.lines().filter_map(|line| {
        let line = line.trim_start().strip_suffix(';')?;
        let (visibility, name) = line.split_once("mod ").unwrap_or((" ", line));
        let is_declaration =
            visibility.is_empty() || (visibility.starts_with("pub") && visibility.ends_with(' '));
        (is_declaration && name.chars().all(|c| c.is_alphanumeric() || c == '_')).then_some(name)
    })
}

/// Where cargo starts reading by itself: libraries, binaries, build scripts, and each file directly in `tests/`,
/// `benches/`, `examples/` and `fuzz_targets/`.
fn is_root(path: &str) -> bool {
    let parts: Vec<&str> = path.rsplit('/').collect();
    match parts[..] {
        ["lib.rs" | "main.rs", "src", ..] | ["build.rs", ..] | [_, "bin", "src", ..] => true,
        [_, "tests" | "benches" | "examples" | "fuzz_targets", ref above @ ..] => !above.contains(&"src"),
        ["main.rs", _, "tests" | "benches" | "examples" | "bin", ..] => true,
        _ => false,
    }
}

/// The folder that the submodules of `path` lie in.
fn folder(path: &str) -> String {
    let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
    let stem = name.trim_end_matches(".rs");
    if is_root(path) || stem == "mod" { folder.to_owned() } else { format!("{folder}/{stem}") }
}

fn unreached(sources: &[Source]) -> Vec<String> {
    let rust: Vec<&Source> = sources.iter().filter(|source| source.is_rust()).collect();
    let mut waiting: Vec<&Source> = rust.iter().copied().filter(|source| is_root(&source.path)).collect();
    let mut reached = BTreeSet::new();
    while let Some(source) = waiting.pop() {
        if !reached.insert(source.path.clone()) {
            continue;
        }
        let folder = folder(&source.path);
        for name in declared(source) {
            let places = [format!("{folder}/{name}.rs"), format!("{folder}/{name}/mod.rs")];
            waiting.extend(rust.iter().filter(|candidate| places.contains(&candidate.path)));
        }
    }
    rust.iter()
        .filter(|source| !reached.contains(&source.path))
        .map(|source| format!("{}: no module declares it", source.path))
        .collect()
}

#[test]
fn every_rust_file_is_compiled() {
    check(unreached);
}

#[test]
fn catches_dead_files() {
    let sources = [
        Source::new("crates/a/src/lib.rs", "mod one;\npub mod two;\n"),
        Source::new("crates/a/src/one.rs", "pub(crate) mod deep;\n"),
        Source::new("crates/a/src/one/deep.rs", ""),
        Source::new("crates/a/src/two/mod.rs", "mod leaf;"),
        Source::new("crates/a/src/two/leaf.rs", "// mod dead;"),
        Source::new("crates/a/src/dead.rs", ""),
        Source::new("crates/a/tests/boot.rs", "mod common;"),
        Source::new("crates/a/tests/common/mod.rs", ""),
        Source::new("crates/a/build.rs", ""),
    ];
    assert_eq!(unreached(&sources), ["crates/a/src/dead.rs: no module declares it"]);
}
