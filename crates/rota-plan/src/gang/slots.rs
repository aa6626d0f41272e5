//! The slots of CPUs that gangs have in common.

use crate::period::{CANDIDATES, HYPERPERIOD_NS, Task};
use crate::piece::{Load, Piece};
use crate::settle::{Terms, Timetable};

/// So many periods of the gangs are tried beside others whose periods stay as they are, and so many blocks.
const PERIODS_TRIED: usize = 8;
const BLOCKS_TRIED: usize = 8;
/// Of so many gangs every order is tried in which they may be stacked.
const ORDERED_MAX: usize = 4;

/// CPUs, the tasks on them and which of these are gangs, all by place.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Gangs {
    cpus: usize,
    /// By task.
    homes: Vec<usize>,
    /// By task the gang that it is of, counted from 0.
    of_gang: Vec<Option<usize>>,
}

impl Gangs {
    /// Gangs may have any numbers.
    pub fn new(cpus: usize, homes: Vec<usize>, of_gang: Vec<Option<usize>>) -> Gangs {
        let mut numbers: Vec<usize> = Vec::new();
        let mut count = |number: usize| {
            numbers.iter().position(|&other| other == number).unwrap_or_else(|| {
                numbers.push(number);
                numbers.len() - 1
            })
        };
        let of_gang = of_gang.into_iter().map(|number| number.map(&mut count)).collect();
        Gangs { cpus, homes, of_gang }
    }

    /// The best timetable for the tasks, or the tasks with the budgets that they would need, if the CPUs have not that
    /// much to give.
    ///
    /// All gangs have one period, the longest that serves everybody beside them with the periods that they have. If
    /// there is none, everybody's period becomes a multiple of one block, in which the gangs come first. Then all
    /// deadlines fall on block ends and every block leaves the others of a CPU the same time. So they are served if
    /// that time is enough in sum.
    pub fn timetable(&self, tasks: &[Task], terms: &Terms) -> Result<Timetable, Vec<Task>> {
        let mut best: Option<Timetable> = None;
        let mut wanted: Option<Vec<Task>> = None;
        for (block, tried) in self.beside(tasks, terms).chain(self.in_blocks(tasks, terms)) {
            match Timetable::settle(tried, terms, |tasks| self.loads(tasks, block, terms.load_max)) {
                Ok(timetable) if timetable.is_storable() && !timetable.has_cut_budgets(terms.slot_min_ns) => {
                    return Ok(timetable);
                }
                Ok(timetable) => {
                    let cost = |timetable: &Timetable| timetable.cost(terms.slot_min_ns);
                    if best.as_ref().is_none_or(|best| cost(&timetable) < cost(best)) {
                        best = Some(timetable);
                    }
                }
                Err(tasks) => wanted = Some(tasks),
            }
        }
        match best {
            Some(best) if best.is_storable() || wanted.is_none() => Ok(best),
            _ => Err(wanted.unwrap_or_else(|| tasks.to_vec())),
        }
    }

    fn is_in_gang(&self, task: usize) -> bool {
        self.of_gang[task].is_some()
    }

    /// Periods of the gangs, and the tasks with them; the others are as they are.
    fn beside(&self, tasks: &[Task], terms: &Terms) -> impl Iterator<Item = (u64, Vec<Task>)> {
        let longest = self.shortest(tasks, |task| self.is_in_gang(task));
        let switch_ns = terms.costs.switch_ns;
        let with = move |period: u64| -> Vec<Task> {
            let one = |(place, task): (usize, &Task)| {
                if self.is_in_gang(place) { task.shortened(period, switch_ns) } else { *task }
            };
            tasks.iter().enumerate().map(one).collect()
        };
        let periods = CANDIDATES.into_iter().filter(move |&period| period <= longest);
        let tried = periods.map(move |period| (period, with(period)));
        tried.filter(|(_, tasks)| self.may_fit(tasks)).take(PERIODS_TRIED)
    }

    /// Whether nobody is to be served within one window that a gang has for itself, the gangs being at the start of
    /// theirs.
    fn may_fit(&self, tasks: &[Task]) -> bool {
        let mut longest = vec![0; self.cpus];
        for (place, task) in tasks.iter().enumerate().filter(|(place, _)| self.is_in_gang(*place)) {
            longest[self.homes[place]] = task.budget().max(longest[self.homes[place]]);
        }
        let fits = |(place, task): (usize, &Task)| {
            self.is_in_gang(place) || longest[self.homes[place]] + task.budget() <= task.period
        };
        tasks.iter().enumerate().all(fits)
    }

    /// Blocks, and the tasks with periods that are multiples of them, or equal to them.
    fn in_blocks(&self, tasks: &[Task], terms: &Terms) -> impl Iterator<Item = (u64, Vec<Task>)> {
        let shortest = self.shortest(tasks, |_| true);
        let switch_ns = terms.costs.switch_ns;
        let multiples = move |block: u64| -> Vec<Task> {
            let one = |(place, task): (usize, &Task)| {
                if self.is_in_gang(place) {
                    task.shortened(block, switch_ns)
                } else {
                    task.with_multiple_of(block, switch_ns)
                }
            };
            tasks.iter().enumerate().map(one).collect()
        };
        let equal = move |block: u64| tasks.iter().map(|task| task.shortened(block, switch_ns)).collect();
        let blocks = CANDIDATES.into_iter().filter(move |&block| block <= shortest).take(BLOCKS_TRIED);
        blocks.flat_map(move |block| [(block, multiples(block)), (block, equal(block))])
    }

    fn shortest(&self, tasks: &[Task], counts: impl Fn(usize) -> bool) -> u64 {
        let counted = tasks.iter().enumerate().filter(|(place, _)| counts(*place));
        counted.map(|(_, task)| task.period).min().unwrap_or(HYPERPERIOD_NS)
    }

    /// What each CPU has to do, the gangs having this period. None if a CPU has not `capacity`, in ns of a hyperperiod,
    /// for it.
    fn loads(&self, tasks: &[Task], period: u64, capacity: u64) -> Option<Vec<Load>> {
        let count = self.of_gang.iter().flatten().max().map_or(0, |last| last + 1);
        let mut stretches: Vec<Stretch> = vec![Stretch::default(); count];
        for (place, task) in tasks.iter().enumerate() {
            let Some(gang) = self.of_gang[place] else { continue };
            let stretch = &mut stretches[gang];
            // All of a gang change tasks at the same times, so it costs them the same.
            (stretch.cpus.is_empty() || stretch.length == task.budget()).then_some(())?;
            stretch.length = task.budget();
            stretch.cpus.push(self.homes[place]);
        }
        let offsets = stack(&stretches, period)?;
        let mut loads = vec![Load::new(capacity); self.cpus];
        for (place, task) in tasks.iter().enumerate() {
            let piece = match self.of_gang[place] {
                Some(gang) => Piece::fixed(period, offsets[gang], task.budget()),
                None => Piece::whole(task.period, task.budget()),
            };
            loads[self.homes[place]].add(place as u32, piece)?;
        }
        Some(loads)
    }
}

/// What has to be at one time on several CPUs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Stretch {
    pub length: u64,
    pub cpus: Vec<usize>,
}

/// Where in a room of this length each stretch begins, so that no CPU has two at once; none if no way is found. The
/// longest come first, each as early as it can; of few every other order is tried, too.
pub(super) fn stack(stretches: &[Stretch], room: u64) -> Option<Vec<u64>> {
    let mut order: Vec<usize> = (0..stretches.len()).collect();
    order.sort_by_key(|&place| (std::cmp::Reverse(stretches[place].length), place));
    if let Some(offsets) = stacked(stretches, &order, room) {
        return Some(offsets);
    }
    let is_few = (2..=ORDERED_MAX).contains(&order.len());
    is_few.then(|| orders(order.len()).into_iter().find_map(|order| stacked(stretches, &order, room)))?
}

fn stacked(stretches: &[Stretch], order: &[usize], room: u64) -> Option<Vec<u64>> {
    let mut offsets = vec![0; stretches.len()];
    for (done, &place) in order.iter().enumerate() {
        let Stretch { length, cpus } = &stretches[place];
        let is_beside = |other: &&usize| stretches[**other].cpus.iter().any(|cpu| cpus.contains(cpu));
        let taken = order[..done].iter().filter(is_beside);
        let mut taken: Vec<(u64, u64)> =
            taken.map(|&other| (offsets[other], offsets[other] + stretches[other].length)).collect();
        taken.sort_unstable();
        let offset = taken.into_iter().fold(
            0,
            |at: u64, (start, end)| {
                if at + length <= start { at } else { at.max(end) }
            },
        );
        (offset + length <= room).then_some(())?;
        offsets[place] = offset;
    }
    Some(offsets)
}

/// All orders of so many.
fn orders(count: usize) -> Vec<Vec<usize>> {
    (0..count).fold(vec![Vec::new()], |orders, next| {
        let with = |order: Vec<usize>| {
            (0..=order.len()).map(move |at| {
                let mut order = order.clone();
                order.insert(at, next);
                order
            })
        };
        orders.into_iter().flat_map(with).collect()
    })
}

#[cfg(test)]
mod tests {
    use rota_model::{Costs, Share};

    use super::*;
    use crate::timetable::SLOT_MIN_NS;

    fn stretch(length: u64, cpus: &[usize]) -> Stretch {
        Stretch { length, cpus: cpus.to_vec() }
    }

    #[test]
    fn stretches_of_one_cpu_come_after_each_other() {
        let three = [stretch(40, &[0, 1]), stretch(50, &[1, 2]), stretch(45, &[2, 3])];
        assert_eq!(stack(&three, 100), Some(vec![50, 0, 50]));
        assert_eq!(stack(&three, 94), None);
        // Each pair has a CPU in common, so all are one after the other.
        let ring = [stretch(40, &[0, 1]), stretch(40, &[1, 2]), stretch(40, &[2, 0])];
        assert_eq!(stack(&ring, 119), None);
        assert_eq!(stack(&ring, 120), Some(vec![0, 40, 80]));
        // The longest first would leave no room for the last.
        let line = [stretch(50, &[0, 1]), stretch(50, &[2, 3]), stretch(49, &[1, 2]), stretch(1, &[0, 3])];
        assert!(stack(&line, 100).is_some());
        assert_eq!(orders(4).len(), 24);
    }

    /// Two CPUs with a gang of a half, and somebody beside each of it, whose periods are not multiples of the gang's.
    #[test]
    fn a_gang_has_the_same_slots_everywhere() {
        let share = |percent: u32| Share::from_ppb(percent * 10_000_000).unwrap();
        let task =
            |divisor, percent| Task { period: HYPERPERIOD_NS / divisor, share: share(percent), cost: 0 };
        let terms = |switch_ns| Terms {
            load_max: HYPERPERIOD_NS,
            slot_min_ns: SLOT_MIN_NS,
            costs: Costs { switch_ns, migration_ns: 0 },
        };
        for (switch_ns, beside) in [(0, 3), (0, 156), (5_000, 3), (5_000, 156)] {
            let tasks: Vec<Task> = [task(5, 40), task(5, 40), task(beside, 45), task(7, 50)]
                .map(|task| Task { cost: switch_ns, ..task })
                .to_vec();
            let gangs = Gangs::new(2, vec![0, 1, 0, 1], vec![Some(7), Some(7), None, None]);
            let timetable = gangs.timetable(&tasks, &terms(switch_ns)).unwrap();
            let of = |cpu: usize, task: u32| {
                let cpu = &timetable.cpus[cpu];
                let rounds = (0..HYPERPERIOD_NS).step_by(cpu.length_ns as usize);
                let own = || cpu.slots.iter().filter(move |slot| slot.vcpu == task);
                rounds
                    .flat_map(|at| own().map(move |slot| (at + slot.start_ns, at + slot.end_ns)))
                    .collect::<Vec<_>>()
            };
            assert_eq!(of(0, 0), of(1, 1));
            let shortest = tasks.iter().map(|task| task.period).min().unwrap();
            let period = timetable.tasks[0].period;
            assert_eq!(timetable.tasks[1].period, period);
            // It gives way to a short period beside it.
            assert!(period <= if beside == 156 { 2 * shortest } else { tasks[0].period });
        }
    }
}
