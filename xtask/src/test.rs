//! `cargo xtask test`: every step in order, one summary at the end.

use std::io::{BufRead, BufReader, Write, pipe};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::tally::{Reader, Tally};

/// Where the steps run.
const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

/// One step: a cargo command.
struct Step {
    name: &'static str,
    arguments: &'static [&'static str],
    /// Whether its tests are counted one by one; otherwise the step as a whole is one test.
    has_tests: bool,
}

/// In this order, because a formatting slip is cheap to find and the guests are dear. Every step is of the whole
/// workspace: of fewer packages, libraries would have other features, and be compiled once more.
///
/// Tests that boot kernels are marked `#[ignore]`, so that a plain `cargo test` stays quick; the last step runs exactly
/// those, unmuffled because minutes of silence look like a hang. The lab itself sees to it that no more guests run at
/// once than there are CPUs for; more threads than that, because some wait until they have all CPUs for themselves.
const STEPS: &[Step] = &[
    Step { name: "format", arguments: &["fmt", "--all", "--check"], has_tests: false },
    Step {
        name: "lint",
        arguments: &["clippy", "--workspace", "--all-targets", "--locked", "--", "--deny", "warnings"],
        has_tests: false,
    },
    Step {
        name: "tests",
        // With what passing tests print, so that a skipped one is seen.
        arguments: &["test", "--workspace", "--locked", "--no-fail-fast", "--", "--show-output"],
        has_tests: true,
    },
    Step {
        name: "released",
        // A simulation goes the same way however it was built: the digest that is written down is this one's, too.
        arguments: &["test", "--config", "xtask/released.toml", "--workspace", "--locked", "--test", "run"],
        has_tests: true,
    },
    Step {
        name: "lab",
        arguments: &[
            "test",
            "--workspace",
            "--locked",
            "--no-fail-fast",
            "--",
            "--ignored",
            "--nocapture",
            "--test-threads=8",
        ],
        has_tests: true,
    },
];

/// Runs every step, whatever became of the ones before it, and prints the summary. True if nothing failed.
pub fn run() -> Result<bool> {
    let mut total = Tally::default();
    let mut lines = Vec::new();
    for step in STEPS {
        println!("\n== {} ==", step.name);
        let started = Instant::now();
        let tally = run_step(step).with_context(|| format!("running the step `{}`", step.name))?;
        lines.push(step_line(step, &tally, started.elapsed()));
        total.add(tally);
    }
    print!("{}", summary(&lines, &total));
    Ok(total.failed.is_empty())
}

/// Runs one step with its output passed on as it comes.
fn run_step(step: &Step) -> Result<Tally> {
    let (reader, writer) = pipe().context("making a pipe")?;
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command
        .args(step.arguments)
        .current_dir(ROOT)
        // A random case that fails becomes a test by hand; to look for where to keep it, in vain, is noise.
        .env("PROPTEST_DISABLE_FAILURE_PERSISTENCE", "1")
        .stdin(Stdio::null())
        .stdout(writer.try_clone()?)
        .stderr(writer);
    let mut child = command.spawn().context("starting cargo")?;
    // The command holds the pipe's writing end; reading would never end while we keep it too.
    drop(command);
    let mut tests = Reader::default();
    let mut output = BufReader::new(reader);
    let mut line = Vec::new();
    // Bytes, not text: a guest's console may write anything.
    while output.read_until(b'\n', &mut line)? > 0 {
        std::io::stdout().write_all(&line)?;
        tests.line(&String::from_utf8_lossy(&line));
        line.clear();
    }
    let succeeded = child.wait()?.success();
    Ok(judge(step, succeeded, tests.finish()))
}

/// What a step that ended counts for. No step can pass by running nothing.
fn judge(step: &Step, succeeded: bool, tests: Tally) -> Tally {
    let mut tally = if step.has_tests { tests } else { Tally::default() };
    if !step.has_tests && succeeded {
        tally.passed = 1;
    } else if !succeeded && tally.failed.is_empty() {
        tally.failed.push(format!("{}: cargo {} failed", step.name, step.arguments.join(" ")));
    } else if tally == Tally::default() {
        tally.failed.push(format!("{}: no test ran", step.name));
    }
    tally
}

fn step_line(step: &Step, tally: &Tally, took: Duration) -> String {
    let verdict = if tally.failed.is_empty() { "ok" } else { "FAILED" };
    format!(
        "  {:<9} {:<8}{:>5} passed{:>4} failed{:>4} skipped{:>6} s",
        step.name,
        verdict,
        tally.passed,
        tally.failed.len(),
        tally.skipped.len(),
        took.as_secs()
    )
}

/// The text that ends a run; its last line holds the totals and nothing else.
fn summary(lines: &[String], total: &Tally) -> String {
    let mut text = format!("\n== summary ==\n{}\n", lines.join("\n"));
    for (title, entries) in [("failed", &total.failed), ("skipped", &total.skipped)] {
        if !entries.is_empty() {
            text += &format!("\n{title}:\n");
        }
        for entry in entries {
            text += &format!("  {entry}\n");
        }
    }
    text + &format!(
        "\n{} passed, {} failed, {} skipped\n",
        total.passed,
        total.failed.len(),
        total.skipped.len()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: Step = Step { name: "lint", arguments: &["clippy"], has_tests: false };
    const TESTS: Step = Step { name: "tests", arguments: &["test"], has_tests: true };

    #[test]
    fn a_step_without_tests_is_one_test() {
        assert_eq!(judge(&WHOLE, true, Tally::default()).passed, 1);
        assert_eq!(judge(&WHOLE, false, Tally::default()).failed, ["lint: cargo clippy failed"]);
    }

    #[test]
    fn a_build_error_fails_the_step() {
        assert_eq!(judge(&TESTS, false, Tally::default()).failed, ["tests: cargo test failed"]);
    }

    #[test]
    fn running_nothing_is_a_failure() {
        assert_eq!(judge(&TESTS, true, Tally::default()).failed, ["tests: no test ran"]);
    }

    #[test]
    fn failed_tests_are_not_counted_twice() {
        let tests = Tally { passed: 4, failed: vec!["plan: edf".into()], skipped: vec![] };
        assert_eq!(judge(&TESTS, false, tests).failed, ["plan: edf"]);
    }

    #[test]
    fn the_summary_names_failures_and_ends_with_the_totals() {
        let total = Tally {
            passed: 7,
            failed: vec!["plan: edf".into()],
            skipped: vec!["vm: no nested virtualisation".into()],
        };
        let text = summary(&["  lint".into()], &total);
        assert!(text.contains("failed:\n  plan: edf\n"), "{text}");
        assert!(text.contains("skipped:\n  vm: no nested virtualisation\n"), "{text}");
        assert!(text.ends_with("\n\n7 passed, 1 failed, 1 skipped\n"), "{text}");
    }
}
