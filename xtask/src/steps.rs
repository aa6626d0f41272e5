//! The steps of `cargo xtask test` and of `cargo xtask quick`: in order, with one summary at the end.

use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result};

use crate::binary::{self, Run};
use crate::summary::{self, Outcome};
use crate::tally::{Reader, Tally};

/// Where the steps run.
const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

/// Which steps to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Selection {
    /// All that there is to check.
    Test,
    /// What an edit is tried with, again and again.
    Quick,
}

/// One step.
struct Step {
    name: &'static str,
    selected: &'static [Selection],
    /// A cargo command.
    arguments: &'static [&'static str],
    work: Work,
}

/// What a step's cargo command is for.
enum Work {
    /// It is one test as a whole.
    Check,
    /// It runs tests, and these are counted.
    Counted,
    /// It builds test binaries, which are run then.
    Binaries(Run),
}

/// Several binaries at once keep both CPUs of a small machine busy while one of them has a single long test left.
const RUN: Run = Run {
    // With what passing tests print, so that a skipped one is seen.
    arguments: &["--show-output"],
    environment: &[],
    live: false,
    at_once: 2,
};

/// In this order, because a formatting slip is cheap to find and the guests are dear. Every step is of the whole
/// workspace: of fewer packages, libraries would have other features, and be compiled once more.
const STEPS: &[Step] = &[
    Step {
        name: "format",
        selected: &[Selection::Test, Selection::Quick],
        arguments: &["fmt", "--all", "--check"],
        work: Work::Check,
    },
    Step {
        name: "lint",
        selected: &[Selection::Test],
        arguments: &["clippy", "--workspace", "--all-targets", "--locked", "--", "--deny", "warnings"],
        work: Work::Check,
    },
    Step {
        name: "quick",
        selected: &[Selection::Quick],
        // Unit tests, among them the project's rules; the explorer of races; a few of the farm's seeds.
        arguments: &["test", "--workspace", "--locked", "--lib", "--bins", "--test", "it", "--test", "farm"],
        work: Work::Binaries(Run { environment: &[("ROTA_SEEDS", "0-4")], ..RUN }),
    },
    Step {
        name: "tests",
        selected: &[Selection::Test],
        arguments: &["test", "--workspace", "--locked"],
        work: Work::Binaries(RUN),
    },
    Step {
        name: "documentation",
        selected: &[Selection::Test],
        arguments: &["test", "--workspace", "--locked", "--no-fail-fast", "--doc"],
        work: Work::Counted,
    },
    Step {
        name: "released",
        selected: &[Selection::Test],
        // A simulation goes the same way however it was built: optimised and asserted, as above, or neither, as here.
        arguments: &["test", "--config", "xtask/released.toml", "--workspace", "--locked", "--test", "run"],
        work: Work::Binaries(RUN),
    },
    Step {
        name: "lab",
        selected: &[Selection::Test],
        arguments: &["test", "--workspace", "--locked"],
        // Tests that boot kernels are marked `#[ignore]`, so that a plain `cargo test` stays quick; exactly those are
        // run, all at once and unmuffled, because minutes of silence look like a hang. The lab itself sees to it that
        // no more guests run than there are CPUs for, those that want one CPU before those that want all.
        work: Work::Binaries(Run {
            arguments: &["--ignored", "--nocapture", "--test-threads=64"],
            live: true,
            at_once: usize::MAX,
            ..RUN
        }),
    },
];

/// Runs the selected steps, whatever became of the ones before, and prints the summary. True if nothing failed.
///
/// # Errors
///
/// What a step runs cannot be started.
pub fn run(selection: Selection) -> Result<bool> {
    let mut outcomes = Vec::new();
    for step in STEPS.iter().filter(|step| step.selected.contains(&selection)) {
        println!("\n== {} ==", step.name);
        outcomes.push(run_step(step).with_context(|| format!("running the step `{}`", step.name))?);
    }
    let passed = outcomes.iter().all(|outcome| outcome.tally.failed.is_empty());
    print!("{}", summary::text(outcomes));
    Ok(passed)
}

fn run_step(step: &Step) -> Result<Outcome> {
    let started = Instant::now();
    let mut build = None;
    let (succeeded, tests) = match step.work {
        Work::Check => (cargo(step).status().context("starting cargo")?.success(), Tally::default()),
        Work::Counted => count(step)?,
        Work::Binaries(how) => {
            let output = cargo(step)
                .args(["--no-run", "--message-format=json-render-diagnostics"])
                .stderr(Stdio::inherit())
                .output()
                .context("starting cargo")?;
            build = Some(started.elapsed());
            let binaries = binary::built(&String::from_utf8_lossy(&output.stdout));
            match output.status.success() {
                true => (true, binary::run_all(binaries, how, &show)?),
                false => (false, Tally::default()),
            }
        }
    };
    let run = started.elapsed() - build.unwrap_or_default();
    Ok(Outcome { name: step.name, tally: judge(step, succeeded, tests), build, run })
}

fn cargo(step: &Step) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(step.arguments).current_dir(ROOT).stdin(Stdio::null());
    command
}

/// Runs a command that runs tests, and counts these.
fn count(step: &Step) -> Result<(bool, Tally)> {
    let mut reader = Reader::default();
    let succeeded = binary::read_lines(cargo(step), &mut |line| {
        let line = String::from_utf8_lossy(line);
        print!("{line}");
        reader.line(&line);
    })?;
    Ok((succeeded, reader.finish()))
}

/// What a step that ended counts for. No step can pass by running nothing.
fn judge(step: &Step, succeeded: bool, tests: Tally) -> Tally {
    let mut tally = tests;
    if matches!(step.work, Work::Check) && succeeded {
        tally.passed = 1;
    } else if !succeeded && tally.failed.is_empty() {
        tally.failed.push(format!("{}: cargo {} failed", step.name, step.arguments.join(" ")));
    } else if tally.passed == 0 && tally.failed.is_empty() && tally.skipped.is_empty() {
        tally.failed.push(format!("{}: no test ran", step.name));
    }
    tally
}

/// Passes on what a test binary writes. Whoever reads may have gone.
fn show(said: &[u8]) {
    let _ = std::io::stdout().lock().write_all(said);
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHECK: Step = Step { name: "lint", selected: &[], arguments: &["clippy"], work: Work::Check };
    const TESTS: Step =
        Step { name: "tests", selected: &[], arguments: &["test"], work: Work::Binaries(RUN) };

    #[test]
    fn a_step_without_tests_is_one_test() {
        assert_eq!(judge(&CHECK, true, Tally::default()).passed, 1);
        assert_eq!(judge(&CHECK, false, Tally::default()).failed, ["lint: cargo clippy failed"]);
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
        let tests = Tally { passed: 4, failed: vec!["plan: edf".into()], ..Tally::default() };
        assert_eq!(judge(&TESTS, false, tests).failed, ["plan: edf"]);
    }

    #[test]
    fn a_selection_is_part_of_what_all_is() {
        let [all, quick] = [Selection::Test, Selection::Quick]
            .map(|selection| STEPS.iter().filter(|step| step.selected.contains(&selection)).count());
        assert!(0 < quick && quick < all && STEPS.iter().all(|step| !step.selected.is_empty()));
    }
}
