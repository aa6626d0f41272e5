//! One CPU's timetable, from the tasks that it carries.

use crate::period::{CANDIDATES, HYPERPERIOD_NS, Task};
use crate::piece::{Load, Piece};
use crate::settle::{Terms, Timetable};

/// The best timetable for tasks, whose budgets grow by what changes of task take. The tasks with the budgets that they
/// would need, if the CPU has not that much to give, or not enough for a timetable that can be stored.
///
/// Periods as they are give the longest slots, but unlike periods cut each other's budgets anywhere, and not every
/// short slot can be dissolved. Then periods that are multiples of one base, or all equal to it, are tried: shorter
/// periods keep every promise as well. The base is the shortest period; a shorter one is only tried for a table that
/// could not be stored otherwise, since there the budgets' rounding may fit. Equal periods also change tasks least.
pub(crate) fn timetable(tasks: &[Task], terms: &Terms) -> Result<Timetable, Vec<Task>> {
    let loads = |tasks: &[Task]| load(tasks, terms.load_max).map(|load| vec![load]);
    let cost = |timetable: &Timetable| timetable.cost(terms.slot_min_ns);
    let mut best = Timetable::settle(tasks.to_vec(), terms, loads);
    // What would be better than what cannot be stored.
    let mut wanted: Option<Vec<Task>> = None;
    let shortest = tasks.iter().map(|task| task.period).min().unwrap_or(HYPERPERIOD_NS);
    let bases = CANDIDATES.into_iter().filter(|base| (shortest.div_ceil(2)..=shortest).contains(base));
    for base in bases {
        let is_good = |best: &Timetable| {
            best.is_storable() && (base < shortest || !best.has_cut_budgets(terms.slot_min_ns))
        };
        if best.as_ref().map_or(base < shortest, is_good) {
            break;
        }
        let switch_ns = terms.costs.switch_ns;
        let multiples: Vec<Task> = tasks.iter().map(|task| task.with_multiple_of(base, switch_ns)).collect();
        let equals: Vec<Task> = tasks.iter().map(|task| task.shortened(base, switch_ns)).collect();
        for tried in [multiples, equals] {
            match Timetable::settle(tried, terms, loads) {
                Ok(timetable) if best.as_ref().map_or(true, |best| cost(&timetable) < cost(best)) => {
                    best = Ok(timetable);
                }
                Ok(_) => {}
                Err(tasks) => wanted = wanted.or(Some(tasks)),
            }
        }
    }
    match (&best, wanted) {
        (Ok(timetable), Some(wanted)) if !timetable.is_storable() => Err(wanted),
        _ => best,
    }
}

/// All of it on one CPU, if that has so much to give.
fn load(tasks: &[Task], capacity: u64) -> Option<Load> {
    let mut load = Load::new(capacity);
    for (place, task) in (0..).zip(tasks) {
        load.add(place, Piece::whole(task.period, task.budget()))?;
    }
    Some(load)
}
