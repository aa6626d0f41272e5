//! Earliest deadline first on one CPU, simulated. Optimal there: if anything serves every piece in its windows, this
//! does (Liu and Layland 1973; thesis section 5.2).

use crate::Slot;
use crate::piece::Piece;

/// A job that waits for its CPU: ordered by deadline, then by the piece's place in the list. The last is what is left
/// of its budget.
type Job = (u64, u32, u64);

/// More is due in this interval than it is long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Overload {
    pub start_ns: u64,
    pub end_ns: u64,
}

/// The slots of one round of `length_ns`, which must be a multiple of every period. [`Slot::vcpu`] is the piece's place
/// in `pieces`. Slots of one owner that touch are one slot.
///
/// A running job is only preempted by an earlier deadline, never by an equal one; among equal ones the first in the
/// list runs first. A fixed piece has no time to lose, so if all deadlines are kept it runs at once.
///
/// # Errors
///
/// A deadline is missed; then no schedule at all would have kept them.
pub(crate) fn simulate(pieces: &[Piece], length_ns: u64) -> Result<Vec<Slot>, Overload> {
    let mut slots: Vec<Slot> = Vec::new();
    let done = run(pieces, length_ns, |slot, _| match slots.last_mut() {
        Some(last) if last.vcpu == slot.vcpu && last.end_ns == slot.start_ns => last.end_ns = slot.end_ns,
        _ => slots.push(slot),
    });
    match done {
        Ok(()) => Ok(slots),
        Err(missed) => Err(overload(pieces, length_ns, missed)),
    }
}

/// Whether every deadline is kept.
///
/// # Errors
///
/// As [`simulate`].
pub(crate) fn check(pieces: &[Piece], length_ns: u64) -> Result<(), Overload> {
    run(pieces, length_ns, |_, _| ()).map_err(|missed| overload(pieces, length_ns, missed))
}

/// The longest interval up to the `missed` deadline in which nothing was done that is due later. What was done in it
/// was released in it as well, or it would have been done before.
fn overload(pieces: &[Piece], length_ns: u64, missed: u64) -> Overload {
    let mut busy = (0, 0);
    // It ends at the deadline that was missed before, so only the interval is wanted.
    let _ = run(pieces, length_ns, |slot, deadline| {
        if deadline > missed {
            busy = (slot.end_ns, slot.end_ns);
        } else if slot.start_ns > busy.1 {
            busy = (slot.start_ns, slot.end_ns);
        } else {
            busy.1 = slot.end_ns;
        }
    });
    Overload { start_ns: busy.0, end_ns: missed }
}

/// Tells `serve` what runs when, with the job's deadline, until all is done or a deadline is missed: that one is the
/// error.
fn run(pieces: &[Piece], length_ns: u64, mut serve: impl FnMut(Slot, u64)) -> Result<(), u64> {
    // What is next is last in both.
    let mut releases: Vec<(u64, u32)> = Vec::with_capacity(pieces.len());
    (0..).zip(pieces).for_each(|(place, piece)| insert(&mut releases, (piece.offset, place)));
    let mut ready: Vec<Job> = Vec::with_capacity(pieces.len());
    let mut now = 0;
    let mut running: Option<Job> = None;
    while now < length_ns {
        while let Some((at, place)) = releases.pop_if(|release| release.0 <= now) {
            let piece = &pieces[place as usize];
            insert(&mut releases, (at + piece.period, place));
            insert(&mut ready, (at + piece.deadline, place, piece.budget));
        }
        let next_release = releases.last().map_or(length_ns, |&(at, _)| at.min(length_ns));
        if let Some(first) = ready.pop_if(|first| running.is_none_or(|job| first.0 < job.0))
            && let Some(preempted) = running.replace(first)
        {
            insert(&mut ready, preempted);
        }
        let Some((deadline, place, left)) = running else {
            now = next_release;
            continue;
        };
        let end = next_release.min(now + left);
        if end > deadline {
            return Err(deadline);
        }
        serve(Slot { start_ns: now, end_ns: end, vcpu: place }, deadline);
        running = (end < now + left).then(|| (deadline, place, now + left - end));
        now = end;
    }
    let late = running.into_iter().chain(ready);
    late.map(|(deadline, ..)| deadline).min().map_or(Ok(()), Err)
}

/// Into a list in descending order. A CPU has few pieces, and most come next to the end, so that no heap is as quick.
fn insert<T: Ord>(list: &mut Vec<T>, one: T) {
    let place = list.iter().rposition(|other| *other > one).map_or(0, |before| before + 1);
    list.insert(place, one);
}

/// The largest budget up to `most` that a fixed piece with this period and offset can have beside `pieces`, which are
/// feasible by themselves: the first piece of a C=D split (Burns, Davis, Wang and Zhang 2012: Partitioned EDF
/// scheduling for multiprocessors using a C=D task splitting scheme). Rounds of `length_ns` must be multiples of
/// `period` too.
///
/// A smaller piece would run within the larger one's time, so what is feasible at all is feasible up to some budget.
/// The search comes down on that from above: an interval that is overloaded is so for all budgets but those that it
/// has room for. The test is a simulation with the true offsets, and exact because rounds repeat.
pub(crate) fn largest_fixed(pieces: &[Piece], length_ns: u64, period: u64, offset: u64, most: u64) -> u64 {
    let mut pieces = pieces.to_vec();
    let mut budget = most.min(period - offset);
    while budget > 0 {
        let fixed = Piece::fixed(period, offset, budget);
        pieces.push(fixed);
        let tested = check(&pieces, length_ns);
        pieces.pop();
        let Err(Overload { start_ns, end_ns }) = tested else { break };
        let due = |piece: &Piece| piece.windows_within(start_ns, end_ns) * piece.budget;
        let room = (end_ns - start_ns).saturating_sub(pieces.iter().map(due).sum());
        budget = room.checked_div(fixed.windows_within(start_ns, end_ns)).unwrap_or(0);
    }
    budget
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Pieces whose periods divide 24.
    fn pieces() -> impl Strategy<Value = Vec<Piece>> {
        let piece = (prop::sample::select(vec![4, 6, 8, 12, 24_u64]), any::<[u8; 3]>()).prop_map(
            |(period, numbers)| {
                let [offset, deadline, budget] = numbers.map(u64::from);
                let offset = if offset % 2 == 0 { 0 } else { offset % period };
                let deadline =
                    if deadline % 2 == 0 { period - offset } else { deadline % (period - offset) + 1 };
                Piece { period, offset, deadline, budget: budget % deadline.div_ceil(2) + 1 }
            },
        );
        prop::collection::vec(piece, 1..5)
    }

    /// The demand bound: in every interval no more is due than it is long.
    fn feasible(pieces: &[Piece], length_ns: u64) -> bool {
        let jobs: Vec<(u64, u64, u64)> = pieces
            .iter()
            .flat_map(|piece| {
                let release = move |k| k * piece.period + piece.offset;
                (0..length_ns / piece.period)
                    .map(move |k| (release(k), release(k) + piece.deadline, piece.budget))
            })
            .collect();
        (0..=length_ns).all(|start| {
            (start..=length_ns).all(|end| {
                let due = jobs.iter().filter(|job| job.0 >= start && job.1 <= end).map(|job| job.2);
                due.sum::<u64>() <= end - start
            })
        })
    }

    proptest! {
        #[test]
        fn a_schedule_is_found_if_there_is_one(pieces in pieces()) {
            match simulate(&pieces, 24) {
                Err(Overload { start_ns, end_ns }) => {
                    let due = |piece: &Piece| piece.windows_within(start_ns, end_ns) * piece.budget;
                    prop_assert!(pieces.iter().map(due).sum::<u64>() > end_ns - start_ns);
                    prop_assert!(!feasible(&pieces, 24));
                }
                Ok(slots) => {
                    prop_assert!(slots.is_sorted_by(|a, b| a.end_ns <= b.start_ns));
                    for (place, piece) in (0..).zip(&pieces) {
                        let mut served = vec![0; (24 / piece.period) as usize];
                        for slot in slots.iter().filter(|slot| slot.vcpu == place) {
                            for ns in slot.start_ns..slot.end_ns {
                                let window = piece.window(ns, ns + 1);
                                prop_assert!(window.is_some(), "{slot:?} is not within {piece:?}");
                                served[window.unwrap() as usize] += 1;
                            }
                        }
                        prop_assert!(served.iter().all(|&served| served == piece.budget));
                    }
                }
            }
        }

        #[test]
        fn the_largest_fixed_piece_is_found(
            pieces in pieces().prop_filter("infeasible", |pieces| feasible(pieces, 24)),
            period in prop::sample::select(vec![4, 6, 8, 12, 24_u64]),
            offset in 0..24_u64,
            most in 1..24_u64,
        ) {
            let offset = offset % period;
            let fits = |&budget: &u64| {
                let mut all = pieces.clone();
                all.push(Piece::fixed(period, offset, budget));
                feasible(&all, 24)
            };
            let most_possible = most.min(period - offset);
            let expected = (1..=most_possible).filter(fits).max().unwrap_or(0);
            prop_assert!((1..=expected).all(|budget| fits(&budget)), "it is monotone");
            prop_assert_eq!(largest_fixed(&pieces, 24, period, offset, most), expected);
        }
    }
}
