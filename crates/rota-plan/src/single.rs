//! One CPU's timetable, from the tasks that it carries.

use crate::Slot;
use crate::dissolve::dissolve;
use crate::edf::simulate;
use crate::period::{CANDIDATES, HYPERPERIOD_NS, Task, lcm};
use crate::timetable::{SLICES_MAX, SLOT_MIN_NS};

/// The slots of one CPU, whoever owns them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Timetable {
    /// The tasks as planned, in the order given; their periods may be shorter than asked for, never longer.
    pub tasks: Vec<Task>,
    /// The least common multiple of their periods.
    pub length_ns: u64,
    /// [`Slot::vcpu`] is the place in `tasks`.
    pub slots: Vec<Slot>,
    /// The longest time without a slot, per task, across the wrap.
    pub blackouts: Vec<u64>,
    /// How many slots are shorter than the minimum.
    pub short_slots: usize,
}

impl Timetable {
    fn new(tasks: Vec<Task>, slot_min_ns: u64) -> Timetable {
        let length_ns = tasks.iter().fold(1, |length, task| lcm(length, task.period));
        let mut slots = dissolve(&tasks, length_ns, simulate(&tasks, length_ns), slot_min_ns);
        if slots.iter().any(|slot| slot.len_ns() < SLOT_MIN_NS) {
            // What finds nobody to give it 50 us may still find the little that the table's format asks for.
            slots = dissolve(&tasks, length_ns, slots, SLOT_MIN_NS);
        }
        let blackouts = blackouts(tasks.len(), length_ns, &slots);
        let short_slots = slots.iter().filter(|slot| slot.len_ns() < slot_min_ns).count();
        Timetable { tasks, length_ns, slots, blackouts, short_slots }
    }

    /// Its shortest slot in ns.
    pub fn slot_min_ns(&self) -> u64 {
        self.slots.iter().map(Slot::len_ns).min().unwrap_or(self.length_ns)
    }

    /// Whether the table's format has room for it.
    pub fn has_few_slices(&self) -> bool {
        self.length_ns.div_ceil(self.slot_min_ns()) <= SLICES_MAX
    }

    /// Whether a slot is short although its owner's budget is not: other periods might give it a longer one. (A budget
    /// that is short itself would be shorter still.)
    fn has_cut_budgets(&self, slot_min_ns: u64) -> bool {
        let is_cut = |slot: &Slot| slot.len_ns() < self.tasks[slot.vcpu as usize].budget();
        self.slots.iter().any(|slot| slot.len_ns() < slot_min_ns && is_cut(slot))
    }

    /// Less is better: what cannot be stored, then short slots in a hyperperiod, then slots in it.
    fn cost(&self) -> (bool, u64, u64) {
        let rounds = HYPERPERIOD_NS / self.length_ns;
        let per_hyperperiod = |count: usize| count as u64 * rounds;
        (!self.has_few_slices(), per_hyperperiod(self.short_slots), per_hyperperiod(self.slots.len()))
    }
}

/// The best timetable for tasks, whose budgets may grow by rounding up to `load_max` ns of a hyperperiod in sum.
///
/// Periods as they are give the longest slots, but unlike periods cut each other's budgets anywhere, and not every
/// short slot can be dissolved. Then periods that are multiples of one base, or all equal to it, are tried: shorter
/// periods keep every promise as well. The base is the shortest period; a shorter one is only tried for a table that
/// could not be stored otherwise, since there the budgets' rounding may fit.
pub(crate) fn timetable(tasks: &[Task], load_max: u64, slot_min_ns: u64) -> Timetable {
    let mut best = Timetable::new(tasks.to_vec(), slot_min_ns);
    let shortest = tasks.iter().map(|task| task.period).min().unwrap_or(HYPERPERIOD_NS);
    let bases = CANDIDATES.into_iter().filter(|base| (shortest.div_ceil(2)..=shortest).contains(base));
    for base in bases {
        if best.has_few_slices() && (base < shortest || !best.has_cut_budgets(slot_min_ns)) {
            break;
        }
        let multiple = |task: &Task| {
            let fits = |period: &u64| *period <= task.period && period.is_multiple_of(base);
            Task { period: CANDIDATES.into_iter().find(fits).unwrap_or(base), ..*task }
        };
        let multiples: Vec<Task> = tasks.iter().map(multiple).collect();
        let equals: Vec<Task> = tasks.iter().map(|task| Task { period: base, ..*task }).collect();
        for tried in [multiples, equals] {
            if tried.iter().map(|task| task.load()).sum::<u64>() > load_max {
                continue;
            }
            let timetable = Timetable::new(tried, slot_min_ns);
            if timetable.cost() < best.cost() {
                best = timetable;
            }
        }
    }
    best
}

fn blackouts(tasks: usize, length_ns: u64, slots: &[Slot]) -> Vec<u64> {
    // Per task: its first start, its last end so far, and the longest gap so far.
    let mut seen: Vec<Option<(u64, u64, u64)>> = vec![None; tasks];
    for slot in slots {
        let entry = &mut seen[slot.vcpu as usize];
        *entry = Some(match *entry {
            None => (slot.start_ns, slot.end_ns, 0),
            Some((first, end, gap)) => (first, slot.end_ns, gap.max(slot.start_ns - end)),
        });
    }
    let longest = |entry: Option<(u64, u64, u64)>| {
        entry.map_or(length_ns, |(first, end, gap)| gap.max(length_ns - end + first))
    };
    seen.into_iter().map(longest).collect()
}
