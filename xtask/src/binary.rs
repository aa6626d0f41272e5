//! Test binaries: cargo builds them, and they are run here, several at once, so that a long test of one holds up no
//! other's and the time of each test is known.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, pipe};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result};

use crate::tally::{Reader, Tally};

/// What has a test print how long it took. The stable toolchain's tests know it, and want to be told that this may
/// change; so only the binaries are told, never the compiler, which would then build all anew.
const TIMED: [&str; 2] = ["--report-time", "-Zunstable-options"];
/// See [`TIMED`].
const UNSTABLE: &str = "RUSTC_BOOTSTRAP";

/// A test binary that cargo has built.
#[derive(Debug, PartialEq, Eq)]
pub struct Binary {
    /// Its package and its source in it: `rota-model src/lib.rs`.
    name: String,
    path: PathBuf,
    /// The package's folder, in which it runs.
    folder: PathBuf,
}

/// How binaries are run.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    /// What each is told.
    pub arguments: &'static [&'static str],
    /// What each finds in its environment, beside what is there.
    pub environment: &'static [(&'static str, &'static str)],
    /// Whether its lines are passed on as they come, and not when it has ended.
    pub live: bool,
    /// How many run at once.
    pub at_once: usize,
}

/// Reads what `cargo test --no-run --message-format=json` prints: a line for each thing that it has built.
pub fn built(messages: &str) -> Vec<Binary> {
    messages
        .lines()
        .filter(|line| line.contains("\"test\":true},\"features\""))
        .filter_map(one_built)
        .collect()
}

/// A message's binary. No path here holds what JSON would have to escape.
fn one_built(message: &str) -> Option<Binary> {
    let field = |name: &str| message.split_once(&format!("\"{name}\":\""))?.1.split('"').next();
    let folder = Path::new(field("manifest_path")?).parent()?.to_owned();
    let source = Path::new(field("src_path")?).strip_prefix(&folder).ok()?;
    let package = folder.file_name()?.to_string_lossy().into_owned();
    Some(Binary {
        name: format!("{package} {}", source.display()),
        path: field("executable")?.into(),
        folder,
    })
}

/// Runs all and counts their tests; what they write goes to `show`.
///
/// # Errors
///
/// A binary cannot be started or read.
pub fn run_all(binaries: Vec<Binary>, how: Run, show: &(impl Fn(&[u8]) + Sync)) -> Result<Tally> {
    let at_once = how.at_once.min(binaries.len());
    let left = Mutex::new(VecDeque::from(binaries));
    let next = || left.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
    let worker = || -> Result<Tally> {
        let mut tally = Tally::default();
        while let Some(binary) = next() {
            tally.add(binary.run(how, show).with_context(|| format!("running {}", binary.path.display()))?);
        }
        Ok(tally)
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..at_once).map(|_| scope.spawn(worker)).collect();
        let mut total = Tally::default();
        for worker in workers {
            total.add(worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?);
        }
        Ok(total)
    })
}

impl Binary {
    fn run(&self, how: Run, show: &impl Fn(&[u8])) -> Result<Tally> {
        let mut command = Command::new(&self.path);
        command
            .args(how.arguments)
            .args(TIMED)
            .current_dir(&self.folder)
            .env(UNSTABLE, "1")
            .env("CARGO_MANIFEST_DIR", &self.folder)
            // A random case that fails becomes a test by hand; to look for where to keep it, in vain, is noise.
            .env("PROPTEST_DISABLE_FAILURE_PERSISTENCE", "1")
            .envs(how.environment.iter().copied());
        let mut said = format!("\n-- {} --\n", self.name).into_bytes();
        let mut reader = Reader::of(&self.name);
        let succeeded = read_lines(command, &mut |line| {
            reader.line(&String::from_utf8_lossy(line));
            said.extend(line);
            if how.live {
                show(&said);
                said.clear();
            }
        })?;
        show(&said);
        let mut tally = reader.finish();
        if !succeeded && tally.failed.is_empty() {
            tally.failed.push(format!("{}: ended as if it had failed", self.name));
        }
        Ok(tally)
    }
}

/// Runs a command to its end, with each line that it writes handed on as it comes: bytes, not text, as a guest's
/// console may write anything. True if it succeeded.
///
/// # Errors
///
/// It cannot be started or read.
pub fn read_lines(mut command: Command, on_line: &mut dyn FnMut(&[u8])) -> Result<bool> {
    let (reader, writer) = pipe().context("making a pipe")?;
    command.stdin(Stdio::null()).stdout(writer.try_clone()?).stderr(writer);
    let mut child = command.spawn().context("starting it")?;
    // The command holds the pipe's writing end; reading would never end while we keep it too.
    drop(command);
    let mut output = BufReader::new(reader);
    let mut line = Vec::new();
    while output.read_until(b'\n', &mut line)? > 0 {
        on_line(&line);
        line.clear();
    }
    Ok(child.wait()?.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: Run = Run { arguments: &[], environment: &[], live: false, at_once: 2 };

    #[test]
    fn only_tests_are_taken_from_what_was_built() {
        let message = |test: bool| {
            let target = r#"{"kind":["test"],"src_path":"/r/crates/rota-lab/tests/boot.rs","test":true}"#;
            let built = r#""features":[],"executable":"/r/target/debug/deps/boot-1f""#;
            let manifest = "/r/crates/rota-lab/Cargo.toml";
            let profile = format!(r#"{{"test":{test}}}"#);
            format!(r#"{{"manifest_path":"{manifest}","target":{target},"profile":{profile},{built}}}"#)
        };
        let found = built(&[message(true), message(false), "text".into()].join("\n"));
        let boot = Binary {
            name: "rota-lab tests/boot.rs".into(),
            path: "/r/target/debug/deps/boot-1f".into(),
            folder: "/r/crates/rota-lab".into(),
        };
        assert_eq!(found, [boot]);
    }

    /// A shell script in a test binary's place.
    fn script(folder: &Path, name: &str, text: &str) -> Binary {
        let path = folder.join(name);
        std::fs::write(&path, format!("#!/bin/sh\n{text}\n")).expect("the folder is writable");
        assert!(Command::new("chmod").arg("+x").arg(&path).status().expect("chmod").success());
        Binary { name: name.into(), path, folder: folder.into() }
    }

    #[test]
    fn binaries_are_run_and_counted() {
        let folder = std::env::temp_dir().join(format!("xtask-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let result = |passed: u32| format!("echo 'test result: ok. {passed} passed; 0 failed; 0 ignored'");
        let binaries = vec![
            script(&folder, "good", &result(3)),
            script(&folder, "crash", "kill -9 $$"),
            script(&folder, "liar", &(result(1) + "; exit 1")),
        ];
        let tally = run_all(binaries, NONE, &|_| {});
        std::fs::remove_dir_all(&folder).expect("it is ours");
        let mut tally = tally.expect("all are run");
        tally.failed.sort();
        assert_eq!(tally.passed, 4);
        assert_eq!(tally.failed, ["crash: ended without a result", "liar: ended as if it had failed"]);
    }
}
