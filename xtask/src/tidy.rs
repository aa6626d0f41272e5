//! Rules that no compiler knows, as tests over the repository's own files. Each rule is a function from text to
//! findings, and each has a test that shows what it catches.

mod c;
mod docs;
mod layers;
mod modules;
mod text;

use std::path::{Path, PathBuf};
use std::process::Command;

/// One file of the repository.
struct Source {
    /// Relative to the root, with `/` between the parts.
    path: String,
    text: String,
}

impl Source {
    #[cfg(test)]
    fn new(path: &str, text: &str) -> Source {
        Source { path: path.to_owned(), text: text.to_owned() }
    }

    fn extension(&self) -> &str {
        Path::new(&self.path).extension().and_then(|extension| extension.to_str()).unwrap_or("")
    }

    fn is_rust(&self) -> bool {
        self.extension() == "rs"
    }

    fn is_c(&self) -> bool {
        matches!(self.extension(), "c" | "h")
    }

    /// By its name, or by its first line where it has no extension.
    fn is_script(&self) -> bool {
        matches!(self.extension(), "sh" | "py") || self.text.starts_with("#!")
    }

    fn is_code(&self) -> bool {
        self.is_rust() || self.is_c() || self.is_script()
    }

    /// Written by a program, or by someone else: the lock file and the licence.
    fn is_foreign(&self) -> bool {
        matches!(self.path.as_str(), "Cargo.lock" | "LICENSE")
    }

    /// Line numbers from 1.
    fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        self.text.lines().enumerate().map(|(index, line)| (index + 1, line))
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the root").to_owned()
}

/// Every text file that git tracks, or would if it were added.
fn repository() -> Vec<Source> {
    let output = Command::new("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard", "--deduplicate"])
        .current_dir(root())
        .output()
        .expect("git runs: the rules look at the files that it tracks");
    assert!(output.status.success(), "git ls-files: {}", String::from_utf8_lossy(&output.stderr));
    let paths = String::from_utf8(output.stdout).expect("paths are UTF-8");
    let sources: Vec<Source> = paths
        .split_terminator('\0')
        // A file deleted but not yet committed is still listed; pictures are no text.
        .filter_map(|path| {
            Some(Source { path: path.into(), text: std::fs::read_to_string(root().join(path)).ok()? })
        })
        .filter(|source| !source.is_foreign())
        .collect();
    assert!(
        sources.len() > 20,
        "only {} files found: the rules would pass by reading nothing",
        sources.len()
    );
    sources
}

/// Holds each of the repository's files against a rule.
fn check_each(rule: impl Fn(&Source) -> Vec<String>) {
    check(|sources| sources.iter().flat_map(&rule).collect());
}

/// Holds the repository as a whole against a rule.
fn check(rule: impl Fn(&[Source]) -> Vec<String>) {
    let findings = rule(&repository());
    assert!(findings.is_empty(), "\n{}\n", findings.join("\n"));
}
