//! Counts tests by reading what `cargo test` prints.
//!
//! The totals come from each suite's closing `test result:` line, and only the names from the lines above it: those
//! may be torn by what a test writes itself. A suite that was started and never closed (it crashed, or was killed)
//! counts as a failure.

use std::time::Duration;

/// A test that cannot run on this machine writes a line with this mark, its name and the reason, and returns. It is
/// counted as skipped, not as passed.
const SKIP_MARK: &str = "SKIPPED: ";

/// A test that had to wait until the machine was free writes a line with this mark, its name and the seconds.
const WAIT_MARK: &str = "WAITED: ";

/// How many lines of what a failed test said last are repeated: where it panicked, and why, with a guest's last lines.
const REPEATED: usize = 24;
/// Nothing that comes after this line says why.
const BACKTRACE: &str = "stack backtrace:";

/// What became of the tests read so far.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// How many ran to their end and held.
    pub passed: u64,
    /// Names of those that did not, each with what it said as it panicked, on lines of their own.
    pub failed: Vec<String>,
    /// Names of those that could not run here, with the reason.
    pub skipped: Vec<String>,
    /// How long those took that said so, by name, without what they have waited for the machine to be free.
    pub times: Vec<(String, Duration)>,
}

impl Tally {
    /// Adds what another reader counted.
    pub fn add(&mut self, other: Tally) {
        self.passed += other.passed;
        self.failed.extend(other.failed);
        self.skipped.extend(other.skipped);
        self.times.extend(other.times);
    }
}

/// Reads the lines of test binaries, or of `cargo test --doc`, in order.
#[derive(Debug, Default)]
pub struct Reader {
    suite: Option<Suite>,
    tally: Tally,
}

/// One test binary, or one library's documentation, up to its `test result:` line.
#[derive(Debug, Default)]
struct Suite {
    name: String,
    failed: Vec<String>,
    skipped: Vec<String>,
    /// By test, as far as its lines were read.
    panics: Vec<(String, Vec<String>)>,
    /// How long tests took, waits and all.
    times: Vec<(String, Duration)>,
    /// How long tests waited, and again.
    waits: Vec<(String, Duration)>,
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
        } else if let Some((_, lines)) = self.panics.last_mut().filter(|(_, lines)| is_open(lines)) {
            lines.push(line.to_owned());
        }
    }

    /// Takes a test's verdict, if the line is one.
    fn verdict_line(&mut self, line: &str) {
        let Some((test, verdict)) = line.strip_prefix("test ").and_then(|rest| rest.rsplit_once(" ... "))
        else {
            return;
        };
        let (verdict, time) = verdict.split_once(" <").unwrap_or((verdict, ""));
        if verdict == "FAILED" {
            self.failed.push(test.to_owned());
        }
        self.times.extend(seconds(time).map(|time| (test.to_owned(), time)));
    }

    /// How long its tests took by themselves.
    fn own_times(&self) -> impl Iterator<Item = (String, Duration)> {
        self.times.iter().map(|(test, time)| {
            let waits = self.waits.iter().filter(|(who, _)| who == test).map(|(_, wait)| *wait);
            (format!("{}: {test}", self.name), time.saturating_sub(waits.sum()))
        })
    }

    /// A failed test's entry.
    fn entry(&self, test: &str) -> String {
        let said = self.panics.iter().filter(|(name, _)| name == test).flat_map(|(_, lines)| lines);
        said.fold(format!("{}: {test}", self.name), |entry, line| entry + "\n      " + line)
    }
}

impl Reader {
    /// For the lines of the test binary `name`.
    pub fn of(name: &str) -> Reader {
        let suite = Suite { name: name.to_owned(), ..Suite::default() };
        Reader { suite: Some(suite), tally: Tally::default() }
    }

    /// Takes the next line.
    pub fn line(&mut self, line: &str) {
        let line = line.trim();
        if let Some(library) = line.strip_prefix("Doc-tests ") {
            self.close_unfinished();
            self.suite = Some(Suite { name: format!("{library} documentation"), ..Suite::default() });
        } else if let Some(counts) = line.strip_prefix("test result: ") {
            self.close(counts);
        } else if let Some(suite) = &mut self.suite {
            if let Some((_, reason)) = line.split_once(SKIP_MARK) {
                suite.skipped.push(reason.to_owned());
            }
            if let Some((test, wait)) =
                line.split_once(WAIT_MARK).and_then(|(_, rest)| rest.rsplit_once(": "))
            {
                suite.waits.extend(seconds(wait).map(|wait| (test.to_owned(), wait)));
            }
            suite.verdict_line(line);
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
        self.tally.times.extend(suite.own_times());
        self.tally.skipped.append(&mut suite.skipped);
    }

    fn close_unfinished(&mut self) {
        if let Some(suite) = self.suite.take() {
            self.tally.failed.extend(suite.failed.iter().map(|test| suite.entry(test)));
            self.tally.failed.push(format!("{}: ended without a result", suite.name));
        }
    }
}

/// The time in `1.234s` or `1.234s>`.
fn seconds(text: &str) -> Option<Duration> {
    Duration::try_from_secs_f64(text.trim_end_matches('>').strip_suffix('s')?.trim().parse().ok()?).ok()
}

/// Whether the lines that a test said as it panicked may go on.
fn is_open(lines: &[String]) -> bool {
    lines.len() < REPEATED && lines.last().is_none_or(|line| line != BACKTRACE)
}

/// The number before `word` in `ok. 5 passed; 0 failed; 1 ignored; ...`.
fn count(counts: &str, word: &str) -> u64 {
    let before = counts.split(word).next().unwrap_or_default();
    before.rsplit(' ').next().and_then(|digits| digits.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_with(mut reader: Reader, text: &str) -> Tally {
        text.lines().for_each(|line| reader.line(line));
        reader.finish()
    }

    fn read(text: &str) -> Tally {
        read_with(Reader::of("lab tests/boot.rs"), text)
    }

    #[test]
    fn a_binary_is_counted() {
        let tally = read(
            "
running 5 tests
test share::budget ... ok <0.004s>
test one ... FAILED <1.500s>
test result: FAILED. 3 passed; 1 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s",
        );
        assert_eq!(tally.passed, 3);
        assert_eq!(tally.failed, ["lab tests/boot.rs: one"]);
        assert!(tally.skipped.is_empty());
        assert_eq!(tally.times[1], ("lab tests/boot.rs: one".into(), Duration::from_millis(1500)));
    }

    #[test]
    fn libraries_documentations_add_up() {
        let tally = read_with(
            Reader::default(),
            "   Doc-tests rota_model
test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s
   Doc-tests rota_plan
test src/lib.rs - plan (line 5) ... FAILED
test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s",
        );
        assert_eq!(tally.passed, 3);
        assert_eq!(tally.failed, ["rota_plan documentation: src/lib.rs - plan (line 5)"]);
    }

    #[test]
    fn a_wait_is_no_part_of_a_tests_time() {
        let tally = read(
            "WAITED: one: 31.5s
test two ... ok <3.000s>
said before WAITED: one: 0.5s
test one ... ok <40.000s>
test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s",
        );
        let times: Vec<u64> = tally.times.iter().map(|(_, time)| time.as_secs()).collect();
        assert_eq!(times, [3, 8]);
    }

    #[test]
    fn a_binary_that_crashes_has_failed() {
        let tally = read("test one ... ok <0.1s>");
        assert_eq!(tally.failed, ["lab tests/boot.rs: ended without a result"]);
    }

    #[test]
    fn a_failure_counts_even_when_its_line_is_torn() {
        let tally = read(
            "test one ... console output
FAILED
test result: FAILED. 0 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s",
        );
        assert_eq!(tally.failed.len(), 1);
    }

    #[test]
    fn a_failure_is_told_with_what_the_test_said() {
        let tally = read(
            "
thread 'two' (71) panicked at tests/boot.rs:5:9:
web: 0.2 of 0.3
note: run with `RUST_BACKTRACE=1` environment variable to display a backtrace
test one ... ok <0.1s>
test two ... FAILED <0.1s>
test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s",
        );
        let lines: Vec<&str> = tally.failed[0].lines().map(str::trim).collect();
        assert_eq!(
            lines[..3],
            ["lab tests/boot.rs: two", "thread 'two' (71) panicked at tests/boot.rs:5:9:", "web: 0.2 of 0.3"]
        );
    }

    #[test]
    fn a_skipped_test_is_not_a_passed_one() {
        let tally = read(
            "test vm ... SKIPPED: vm: no nested virtualisation
ok <0.1s>
test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s",
        );
        assert_eq!(tally.passed, 2);
        assert_eq!(tally.skipped, ["vm: no nested virtualisation"]);
    }
}
