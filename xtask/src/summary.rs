//! The text that ends a run.

use std::time::Duration;

use crate::tally::Tally;

/// How many of the slowest tests are named.
const SLOWEST: usize = 10;

/// What became of a step.
#[derive(Debug)]
pub struct Outcome {
    pub name: &'static str,
    pub tally: Tally,
    /// How long its build took, if that is known apart.
    pub build: Option<Duration>,
    /// How long the rest took.
    pub run: Duration,
}

impl Outcome {
    fn line(&self) -> String {
        let verdict = if self.tally.failed.is_empty() { "ok" } else { "FAILED" };
        let build = self.build.map(|build| format!("built in{:>5} s, ", build.as_secs())).unwrap_or_default();
        format!(
            "  {:<14} {:<7}{:>5} passed{:>4} failed{:>4} skipped   {build}ran{:>5} s",
            self.name,
            verdict,
            self.tally.passed,
            self.tally.failed.len(),
            self.tally.skipped.len(),
            self.run.as_secs()
        )
    }
}

/// The text; its last line holds the totals and nothing else.
pub fn text(outcomes: Vec<Outcome>) -> String {
    let mut text = "\n== summary ==\n".to_owned();
    let mut total = Tally::default();
    for outcome in outcomes {
        text += &(outcome.line() + "\n");
        total.add(outcome.tally);
    }
    total.times.sort_by_key(|(_, time)| std::cmp::Reverse(*time));
    total.times.truncate(SLOWEST);
    let slowest = total.times.iter().map(|(test, time)| format!("{:>7.1} s  {test}", time.as_secs_f64()));
    for (title, entries) in
        [("slowest", &slowest.collect()), ("failed", &total.failed), ("skipped", &total.skipped)]
    {
        if !entries.is_empty() {
            text += &format!("\n{title}:\n");
        }
        for entry in entries {
            text += &format!("  {entry}\n");
        }
    }
    let [failed, skipped] = [total.failed.len(), total.skipped.len()];
    text + &format!("\n{} passed, {failed} failed, {skipped} skipped\n", total.passed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_names_failures_and_ends_with_the_totals() {
        let tally = Tally {
            passed: 7,
            failed: vec!["plan: edf".into()],
            skipped: vec!["vm: no nested virtualisation".into()],
            times: (1..20).map(|second| (format!("test {second}"), Duration::from_secs(second))).collect(),
        };
        let (build, run) = (Some(Duration::from_secs(65)), Duration::from_secs(4));
        let text = text(vec![Outcome { name: "tests", tally, build, run }]);
        assert!(text.contains("1 skipped   built in   65 s, ran    4 s\n"), "{text}");
        assert!(text.contains("slowest:\n     19.0 s  test 19\n     18.0 s  test 18\n"), "{text}");
        assert!(text.contains("test 10\n\nfailed:\n  plan: edf\n"), "{text}");
        assert!(text.contains("skipped:\n  vm: no nested virtualisation\n"), "{text}");
        assert!(text.ends_with("\n\n7 passed, 1 failed, 1 skipped\n"), "{text}");
    }
}
