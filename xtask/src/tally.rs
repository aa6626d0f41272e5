//! Counts tests by reading what `cargo test` prints.
//!
//! The totals come from each suite's closing `test result:` line, and only the names from the lines above it: those
//! may be torn by what a test writes itself. A suite that was started and never closed (it crashed, or was killed)
//! counts as a failure.

/// A test that cannot run on this machine writes a line with this mark, its name and the reason, and returns. It is
/// counted as skipped, not as passed.
const SKIP_MARK: &str = "SKIPPED: ";

/// How many lines of what a failed test said last are repeated: where it panicked, and why.
const REPEATED: usize = 4;

/// What became of the tests read so far.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// How many ran to their end and held.
    pub passed: u64,
    /// Names of those that did not, each with what it said as it panicked, on lines of their own.
    pub failed: Vec<String>,
    /// Names of those that could not run here, with the reason.
    pub skipped: Vec<String>,
}

impl Tally {
    /// Adds what another reader counted.
    pub fn add(&mut self, other: Tally) {
        self.passed += other.passed;
        self.failed.extend(other.failed);
        self.skipped.extend(other.skipped);
    }
}

/// Reads the lines of one `cargo test` run, in order.
#[derive(Debug, Default)]
pub struct Reader {
    suite: Option<Suite>,
    tally: Tally,
}

/// One test binary, between its `Running` line and its `test result:` line.
#[derive(Debug, Default)]
struct Suite {
    name: String,
    failed: Vec<String>,
    skipped: Vec<String>,
    /// By test, as far as its lines were read.
    panics: Vec<(String, Vec<String>)>,
}

impl Suite {
    /// Takes what a test says as it panics.
    fn panic_line(&mut self, line: &str) {
        if let Some((test, _)) = line
            .strip_prefix("thread '")
            .filter(|rest| rest.contains(" panicked at "))
            .and_then(|rest| rest.split_once('\''))
        {
            self.panics.push((test.to_owned(), vec![line.to_owned()]));
        } else if let Some((_, lines)) = self.panics.last_mut().filter(|(_, lines)| lines.len() < REPEATED) {
            lines.push(line.to_owned());
        }
    }

    /// A failed test's entry.
    fn entry(&self, test: &str) -> String {
        let said = self.panics.iter().filter(|(name, _)| name == test).flat_map(|(_, lines)| lines);
        said.fold(format!("{}: {test}", self.name), |entry, line| entry + "\n      " + line)
    }
}

impl Reader {
    /// Takes the next line.
    pub fn line(&mut self, line: &str) {
        let line = line.trim();
        if let Some(name) = suite_name(line) {
            self.close_unfinished();
            self.suite = Some(Suite { name, ..Suite::default() });
        } else if let Some(counts) = line.strip_prefix("test result: ") {
            self.close(counts);
        } else if let Some(suite) = &mut self.suite {
            if let Some((_, reason)) = line.split_once(SKIP_MARK) {
                suite.skipped.push(reason.to_owned());
            }
            if let Some(test) = line.strip_prefix("test ").and_then(|rest| rest.strip_suffix(" ... FAILED")) {
                suite.failed.push(test.to_owned());
            }
            suite.panic_line(line);
        }
    }

    /// The counts, once the run has ended.
    pub fn finish(mut self) -> Tally {
        self.close_unfinished();
        self.tally
    }

    fn close(&mut self, counts: &str) {
        let mut suite = self.suite.take().unwrap_or_default();
        let failed = count(counts, " failed");
        while (suite.failed.len() as u64) < failed {
            suite.failed.push("a test whose name was lost in its output".to_owned());
        }
        self.tally.passed += count(counts, " passed").saturating_sub(suite.skipped.len() as u64);
        self.tally.failed.extend(suite.failed.iter().map(|test| suite.entry(test)));
        self.tally.skipped.append(&mut suite.skipped);
    }

    fn close_unfinished(&mut self) {
        if let Some(suite) = self.suite.take() {
            self.tally.failed.extend(suite.failed.iter().map(|test| suite.entry(test)));
            self.tally.failed.push(format!("{}: ended without a result", suite.name));
        }
    }
}

/// `Running unittests src/lib.rs (target/debug/deps/rota_model-0a1b)` gives `rota_model src/lib.rs`.
fn suite_name(line: &str) -> Option<String> {
    if let Some(library) = line.strip_prefix("Doc-tests ") {
        return Some(format!("{library} documentation"));
    }
    let (source, binary) = line.strip_prefix("Running ")?.strip_suffix(')')?.rsplit_once(" (")?;
    let binary = binary.rsplit('/').next()?.rsplit_once('-')?.0;
    Some(format!("{binary} {}", source.trim_start_matches("unittests ")))
}

/// The number before `word` in `ok. 5 passed; 0 failed; 1 ignored; ...`.
fn count(counts: &str, word: &str) -> u64 {
    let before = counts.split(word).next().unwrap_or_default();
    before.rsplit(' ').next().and_then(|digits| digits.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Tally {
        let mut reader = Reader::default();
        text.lines().for_each(|line| reader.line(line));
        reader.finish()
    }

    #[test]
    fn adds_up_suites() {
        let tally = read(
            "   Compiling rota v0.1.0
     Running unittests src/lib.rs (target/debug/deps/rota_model-7f)
test share::budget ... ok
test result: ok. 12 passed; 0 failed; 3 ignored; 0 measured; 0 filtered out; finished in 0.00s
     Running tests/boot.rs (target/debug/deps/boot-12)
test one ... FAILED
test two ... ok
test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s
   Doc-tests rota_model
test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s",
        );
        assert_eq!(tally.passed, 15);
        assert_eq!(tally.failed, ["boot tests/boot.rs: one"]);
        assert!(tally.skipped.is_empty());
    }

    #[test]
    fn a_suite_that_crashes_has_failed() {
        let tally = read(
            "     Running tests/crash.rs (target/debug/deps/crash-12)
test one ... ok
error: test failed, to rerun pass `-p x --test crash`
     Running tests/fine.rs (target/debug/deps/fine-12)
test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s
     Running tests/last.rs (target/debug/deps/last-12)",
        );
        assert_eq!(tally.passed, 1);
        assert_eq!(
            tally.failed,
            ["crash tests/crash.rs: ended without a result", "last tests/last.rs: ended without a result"]
        );
    }

    #[test]
    fn a_failure_counts_even_when_its_line_is_torn() {
        let tally = read(
            "     Running tests/boot.rs (target/debug/deps/boot-12)
test one ... console output
FAILED
test result: FAILED. 0 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s",
        );
        assert_eq!(tally.failed.len(), 1);
    }

    #[test]
    fn a_failure_is_told_with_what_the_test_said() {
        let tally = read(
            "     Running tests/boot.rs (target/debug/deps/boot-12)

thread 'two' (71) panicked at tests/boot.rs:5:9:
web: 0.2 of 0.3
note: run with `RUST_BACKTRACE=1` environment variable to display a backtrace
test one ... ok
test two ... FAILED
test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s",
        );
        let lines: Vec<&str> = tally.failed[0].lines().map(str::trim).collect();
        assert_eq!(
            lines[..3],
            [
                "boot tests/boot.rs: two",
                "thread 'two' (71) panicked at tests/boot.rs:5:9:",
                "web: 0.2 of 0.3"
            ]
        );
    }

    #[test]
    fn a_skipped_test_is_not_a_passed_one() {
        let tally = read(
            "     Running tests/kvm.rs (target/debug/deps/kvm-12)
test vm ... SKIPPED: vm: no nested virtualisation
ok
test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s",
        );
        assert_eq!(tally.passed, 2);
        assert_eq!(tally.skipped, ["vm: no nested virtualisation"]);
    }
}
