//! The daemon's log: one line an event, on standard error.

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use rota_model::printable;

/// Writes one line with the time in UTC. A message of several lines becomes one. Of lines that come faster than anybody
/// reads some are left out, and counted.
pub fn say(message: &str) {
    let mut limit = LIMIT.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(left_out) = limit.take(subject(message), Instant::now()) else { return };
    let time = humantime::format_rfc3339_millis(SystemTime::now());
    let note = if left_out > 0 { format!(" ({left_out} lines before it left out)") } else { String::new() };
    // Who reads the log may go away; tenants do not depend on it.
    let _ = writeln!(std::io::stderr(), "{time} {}{note}", printable(&message.replace('\n', "; ")));
}

/// What a line is about: the tenant in `web-0: gone`. Tenants cause lines, each its own.
fn subject(message: &str) -> &str {
    message.split_once(": ").map_or("", |(subject, _)| subject)
}

static LIMIT: Mutex<Limit> = Mutex::new(Limit { subjects: BTreeMap::new() });

/// How many more lines there may be of each subject.
#[derive(Debug)]
struct Limit {
    subjects: BTreeMap<String, Lines>,
}

#[derive(Debug)]
struct Lines {
    left: u32,
    filled: Instant,
    left_out: u64,
}

impl Limit {
    /// So many lines of one subject may come at once.
    const BURST: u32 = 60;
    /// One more may come after each.
    const PERIOD: Duration = Duration::from_secs(1);
    /// More subjects share one.
    const SUBJECTS_MAX: usize = 4096;

    /// How many lines were left out before this one; nothing if this one is, too.
    fn take(&mut self, subject: &str, now: Instant) -> Option<u64> {
        if self.subjects.len() >= Self::SUBJECTS_MAX {
            // Who has all lines left again is as one who never had a line.
            let refill = |lines: &Lines| Self::PERIOD * (Self::BURST - lines.left);
            self.subjects.retain(|_, lines| now.saturating_duration_since(lines.filled) < refill(lines));
        }
        let is_known = self.subjects.contains_key(subject) || self.subjects.len() < Self::SUBJECTS_MAX;
        let subject = if is_known { subject } else { "" };
        let new = || Lines { left: Self::BURST, filled: now, left_out: 0 };
        let lines = self.subjects.entry(subject.to_owned()).or_insert_with(new);
        let periods = now.saturating_duration_since(lines.filled).as_secs() / Self::PERIOD.as_secs();
        if periods > 0 {
            let more = u32::try_from(periods).unwrap_or(u32::MAX);
            lines.left = lines.left.saturating_add(more).min(Self::BURST);
            lines.filled = now;
        }
        if lines.left == 0 {
            lines.left_out += 1;
            return None;
        }
        lines.left -= 1;
        Some(std::mem::take(&mut lines.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A tenant that comes and goes all the time once filled the log, and others' lines went under.
    #[test]
    fn a_noisy_tenants_lines_are_left_out_and_counted_and_no_others() {
        let mut limit = Limit { subjects: BTreeMap::new() };
        let now = Instant::now();
        let noisy = subject("noisy: gone");
        let said = (0..1_000).filter(|_| limit.take(noisy, now).is_some()).count();
        assert_eq!(said as u32, Limit::BURST);
        assert_eq!(limit.take(subject("quiet: gone"), now), Some(0));
        assert_eq!(limit.take(noisy, now + Limit::PERIOD), Some(1_000 - u64::from(Limit::BURST)));
        assert_eq!(limit.take(noisy, now + Limit::PERIOD), None);
    }

    #[test]
    fn subjects_are_forgotten_when_they_have_been_silent() {
        let mut limit = Limit { subjects: BTreeMap::new() };
        let now = Instant::now();
        for table in 0..2 * Limit::SUBJECTS_MAX {
            limit.take(&format!("table {table} in force"), now);
        }
        assert_eq!(limit.subjects.len(), Limit::SUBJECTS_MAX + 1);
        limit.take("web", now + Limit::PERIOD * Limit::BURST);
        assert_eq!(limit.subjects.len(), 1);
    }
}
