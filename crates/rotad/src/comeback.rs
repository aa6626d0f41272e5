//! The kernel has ended the scheduler because something was wrong with it. It is started again, after pauses that grow:
//! what was wrong may be over, as when a real-time task has left its CPU, or it may not.

use std::time::Duration;

use rota_rules::status::SchedulerStatus;

/// The pause before the first try.
const FIRST: Duration = Duration::from_secs(1);
/// The longest.
const LONGEST: Duration = Duration::from_secs(60);
/// A scheduler that has run for so long was well: the next pause is the first one again.
const WELL: Duration = Duration::from_secs(600);

/// How often that was so, and what comes next.
#[derive(Debug, Default)]
pub struct Comebacks {
    lost: u64,
    why: Option<String>,
    pause: Option<Duration>,
}

impl Comebacks {
    /// The kernel has ended a scheduler that ran for so long. Returns the pause until the next one is started.
    pub fn lost(&mut self, why: String, ran: Duration) -> Duration {
        self.lost += 1;
        self.why = Some(why);
        let grown = self.pause.filter(|_| ran < WELL).map_or(FIRST, |pause| (pause * 2).min(LONGEST));
        self.pause = Some(grown);
        grown
    }

    /// What `rota status` shows of it.
    pub fn status(&self) -> SchedulerStatus {
        SchedulerStatus { lost: self.lost, lost_why: self.why.clone(), branch_records_off: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_until_a_scheduler_was_well() {
        let mut comebacks = Comebacks::default();
        let mut lost = |ran_s| comebacks.lost("stalled".to_owned(), Duration::from_secs(ran_s)).as_secs();
        let pauses: Vec<u64> = (0..8).map(|_| lost(5)).collect();
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60]);
        assert_eq!((lost(600), lost(599)), (1, 2));
        assert_eq!(
            comebacks.status(),
            SchedulerStatus { lost: 10, lost_why: Some("stalled".to_owned()), branch_records_off: None }
        );
    }
}
