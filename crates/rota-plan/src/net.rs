//! What slots give their owners, net of what it costs to change from one task to another.
//!
//! A slot begins with a change of tasks, which takes time that the slot's owner does not get; a change that a slot is
//! too short for goes on in the next. A slot at the very start of a CPU's length begins with one even if its owner has
//! the CPU's last slot, too: when a table is exchanged, another task may have run just before. Only a CPU that one vCPU
//! has to itself sees no change. A vCPU that was on another CPU just before loses the cost of migration as well.

use rota_model::Costs;

use crate::Slot;
use crate::period::{Task, lcm};

/// One CPU's slots, which repeat after `length_ns`. Slots of one owner that touch are one slot.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lane<'a> {
    pub length_ns: u64,
    pub slots: &'a [Slot],
}

/// What a task's slots give it, all CPUs together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Service {
    /// Net of costs, in the window [k*T, (k+1)*T) with the least of it, in ns.
    pub least_ns: u64,
    /// Net of costs, in a window on average, rounded up.
    pub mean_ns: u64,
    /// What costs take in the window in which they take most.
    pub most_lost_ns: u64,
    /// The longest time without net service, across the wrap, in ns.
    pub blackout_ns: u64,
}

impl Service {
    /// Whether the task gets what it has to. One that is capped may get no more than its share and what costs take in
    /// its costliest window. Budgets that follow the costs keep within that by themselves, all but always; so it is
    /// asked of every task.
    pub fn is_enough(&self, task: &Task) -> bool {
        self.least_ns >= task.net() && self.mean_ns <= task.net() + self.most_lost_ns
    }
}

/// The service of each task; [`Slot::vcpu`] is its place in `tasks`. Slots of one task on different lanes must not
/// overlap.
pub(crate) fn services(tasks: &[Task], lanes: &[Lane], costs: Costs) -> Vec<Service> {
    let mut stretches = Stretches::collect(tasks.len(), lanes, costs.switch_ns);
    tasks
        .iter()
        .enumerate()
        .map(|(place, task)| stretches.service(place, task.period, lanes, costs))
        .collect()
}

/// A slot, and what its owner loses at its start.
#[derive(Clone, Copy, Debug, Default)]
struct Stretch {
    start_ns: u64,
    end_ns: u64,
    lost_ns: u64,
    lane: u32,
}

/// Every task's slots, by lane and start.
struct Stretches {
    all: Vec<Stretch>,
    /// Those of task t end at ends[t], where those of t + 1 start.
    ends: Vec<usize>,
    /// Those of one task on several lanes, written out over the ring after which they repeat together.
    ring: Vec<Stretch>,
}

impl Stretches {
    /// Sorts by counting.
    fn collect(tasks: usize, lanes: &[Lane], switch_ns: u64) -> Stretches {
        let mut ends = vec![0; tasks];
        for slot in lanes.iter().flat_map(|lane| lane.slots) {
            ends[slot.vcpu as usize] += 1;
        }
        let mut total = 0;
        for end in &mut ends {
            // For now the start; it becomes the end as the stretches come in.
            total += std::mem::replace(end, total);
        }
        let mut all = vec![Stretch::default(); total];
        for (number, lane) in (0..).zip(lanes) {
            let mut debt = Debt::at_start(lane, switch_ns);
            for slot in lane.slots {
                let place = &mut ends[slot.vcpu as usize];
                let Slot { start_ns, end_ns, .. } = *slot;
                all[*place] = Stretch { start_ns, end_ns, lost_ns: debt.change(start_ns), lane: number };
                *place += 1;
            }
        }
        Stretches { all, ends, ring: Vec::new() }
    }

    fn service(&mut self, task: usize, period: u64, lanes: &[Lane], costs: Costs) -> Service {
        let start = if task == 0 { 0 } else { self.ends[task - 1] };
        let own = &self.all[start..self.ends[task]];
        let by_lane = || own.chunk_by(|a, b| a.lane == b.lane);
        let ring_ns = by_lane().fold(period, |ring, of| lcm(ring, lanes[of[0].lane as usize].length_ns));
        if by_lane().all(|of| lanes[of[0].lane as usize].length_ns == ring_ns) && by_lane().count() < 2 {
            return service(own, period, ring_ns, costs.migration_ns);
        }
        self.ring.clear();
        for of in by_lane() {
            let rounds = (0..ring_ns).step_by(lanes[of[0].lane as usize].length_ns as usize);
            self.ring.extend(rounds.flat_map(|round| {
                of.iter().map(move |stretch| Stretch {
                    start_ns: round + stretch.start_ns,
                    end_ns: round + stretch.end_ns,
                    ..*stretch
                })
            }));
        }
        self.ring.sort_unstable_by_key(|stretch| stretch.start_ns);
        service(&self.ring, period, ring_ns, costs.migration_ns)
    }
}

/// What is left to do, at some moment, of the changes of task on one CPU.
struct Debt {
    switch_ns: u64,
    since_ns: u64,
    left_ns: u64,
}

impl Debt {
    /// As it is at the start of a round, not the first.
    fn at_start(lane: &Lane, switch_ns: u64) -> Debt {
        let is_whole = |slot: &Slot| slot.len_ns() == lane.length_ns;
        if lane.slots.first().is_none_or(is_whole) {
            return Debt { switch_ns: 0, since_ns: 0, left_ns: 0 };
        }
        if switch_ns.saturating_mul(lane.slots.len() as u64) > lane.length_ns {
            // It grows from round to round: nobody ever gets anything.
            return Debt { switch_ns: lane.length_ns, since_ns: 0, left_ns: 0 };
        }
        let mut debt = Debt { switch_ns, since_ns: 0, left_ns: 0 };
        for slot in lane.slots {
            debt.change(slot.start_ns);
        }
        let left_ns = debt.left_ns.saturating_sub(lane.length_ns - debt.since_ns);
        Debt { switch_ns, since_ns: 0, left_ns }
    }

    /// One more, at `now_ns`. How long it takes from then on until it is done.
    fn change(&mut self, now_ns: u64) -> u64 {
        self.left_ns = self.left_ns.saturating_sub(now_ns - self.since_ns) + self.switch_ns;
        self.since_ns = now_ns;
        self.left_ns
    }
}

/// Of stretches in order, which repeat after `ring_ns`, a multiple of `period`.
fn service(stretches: &[Stretch], period: u64, ring_ns: u64, migration_ns: u64) -> Service {
    let mut windows = Windows { period, least_ns: u64::MAX, ..Windows::default() };
    let mut lane = stretches.last().map(|last| last.lane);
    // The first start, the last end so far, and the longest gap so far.
    let mut seen: Option<(u64, u64, u64)> = None;
    for stretch in stretches {
        let moved = lane.replace(stretch.lane) != Some(stretch.lane);
        let lost_ns = stretch.lost_ns + if moved { migration_ns } else { 0 };
        let (start_ns, end_ns) = (stretch.end_ns.min(stretch.start_ns + lost_ns), stretch.end_ns);
        windows.add(stretch.start_ns, start_ns, |now| &mut now.lost_ns);
        if start_ns == end_ns {
            continue;
        }
        windows.add(start_ns, end_ns, |now| &mut now.net_ns);
        seen = Some(match seen {
            None => (start_ns, end_ns, 0),
            Some((first, end, gap)) => (first, end_ns, gap.max(start_ns - end)),
        });
    }
    let count = ring_ns / period;
    windows.advance(count);
    Service {
        least_ns: windows.least_ns,
        mean_ns: windows.total_ns.div_ceil(count),
        most_lost_ns: windows.most_lost_ns,
        blackout_ns: seen.map_or(ring_ns, |(first, end, gap)| gap.max(ring_ns - end + first)),
    }
}

/// The least that these spans, in order and disjoint, come to in a window within `ring_ns`, a multiple of `period`.
pub(crate) fn least_of_windows(spans: impl Iterator<Item = (u64, u64)>, period: u64, ring_ns: u64) -> u64 {
    let mut windows = Windows { period, least_ns: u64::MAX, ..Windows::default() };
    spans.for_each(|(start_ns, end_ns)| windows.add(start_ns, end_ns, |now| &mut now.net_ns));
    windows.advance(ring_ns / period);
    windows.least_ns
}

/// Adds up window by window.
#[derive(Default)]
struct Windows {
    period: u64,
    /// The present one, and what there was in it so far.
    number: u64,
    now: Window,
    /// Of those before it: the least and all net service, and the most that was lost.
    least_ns: u64,
    total_ns: u64,
    most_lost_ns: u64,
}

#[derive(Default)]
struct Window {
    net_ns: u64,
    lost_ns: u64,
}

impl Windows {
    /// [`start_ns`, `end_ns`) is of this kind. Nothing that was added may be later.
    fn add(&mut self, mut start_ns: u64, end_ns: u64, kind: impl Fn(&mut Window) -> &mut u64) {
        self.advance(start_ns / self.period);
        while end_ns > (self.number + 1) * self.period {
            let edge_ns = (self.number + 1) * self.period;
            *kind(&mut self.now) += edge_ns - start_ns;
            start_ns = edge_ns;
            self.advance(self.number + 1);
        }
        *kind(&mut self.now) += end_ns - start_ns;
    }

    /// Goes on to window `number`.
    fn advance(&mut self, number: u64) {
        if number == self.number {
            return;
        }
        let Window { net_ns, lost_ns } = std::mem::take(&mut self.now);
        self.least_ns = self.least_ns.min(if number > self.number + 1 { 0 } else { net_ns });
        self.total_ns += net_ns;
        self.most_lost_ns = self.most_lost_ns.max(lost_ns);
        self.number = number;
    }
}

#[cfg(test)]
mod tests {
    use rota_model::Share;

    use super::*;

    fn slots(slots: &[(u64, u64, u32)]) -> Vec<Slot> {
        slots.iter().map(|&(start_ns, end_ns, vcpu)| Slot { start_ns, end_ns, vcpu }).collect()
    }

    fn tasks(periods: &[u64]) -> Vec<Task> {
        periods.iter().map(|&period| Task { period, share: Share::ONE, cost: 0 }).collect()
    }

    /// Least service and blackout of each.
    fn net(periods: &[u64], lanes: &[(u64, &[Slot])], switch_ns: u64, migration_ns: u64) -> Vec<(u64, u64)> {
        let lanes: Vec<Lane> = lanes.iter().map(|&(length_ns, slots)| Lane { length_ns, slots }).collect();
        let services = services(&tasks(periods), &lanes, Costs { switch_ns, migration_ns });
        services.iter().map(|service| (service.least_ns, service.blackout_ns)).collect()
    }

    #[test]
    fn a_slot_loses_the_change_at_its_start() {
        let slots = slots(&[(0, 100, 0), (100, 200, 1), (210, 310, 0)]);
        let periods = [210, 420];
        assert_eq!(net(&periods, &[(420, &slots)], 0, 0), [(100, 110), (100, 320)]);
        assert_eq!(net(&periods, &[(420, &slots)], 10, 5), [(90, 120), (90, 330)]);
    }

    #[test]
    fn a_slot_over_the_edge_of_a_window_loses_it_where_the_change_is() {
        let slots = slots(&[(0, 100, 0), (200, 260, 0)]);
        assert_eq!(net(&[210], &[(420, &slots)], 10, 0), [(50, 170)]);
        assert_eq!(net(&[210], &[(420, &slots)], 15, 0), [(45, 175)]);
        let service = services(
            &tasks(&[210]),
            &[Lane { length_ns: 420, slots: &slots }],
            Costs { switch_ns: 15, migration_ns: 0 },
        );
        assert_eq!((service[0].mean_ns, service[0].most_lost_ns), (65, 25));
    }

    #[test]
    fn a_whole_cpu_changes_nothing() {
        assert_eq!(net(&[420], &[(420, &slots(&[(0, 420, 0)]))], 50, 0), [(420, 0)]);
    }

    #[test]
    fn what_a_slot_is_too_short_for_the_next_one_loses() {
        let short = slots(&[(0, 100, 0), (100, 106, 1), (106, 200, 2)]);
        assert_eq!(net(&[420; 3], &[(420, &short)], 10, 0), [(90, 330), (0, 420), (80, 340)]);
        // Over the end of the CPU's length.
        let late = slots(&[(0, 100, 0), (416, 420, 1)]);
        assert_eq!(net(&[420; 2], &[(420, &late)], 10, 0), [(84, 336), (0, 420)]);
        // Nothing is left where changes take more than there is.
        assert_eq!(net(&[420; 3], &[(420, &short)], 141, 0), [(0, 420); 3]);
    }

    /// Lanes of unlike lengths; task 0 goes from one to the other and back every 420 ns.
    #[test]
    fn a_slot_after_one_on_another_cpu_loses_the_migration_as_well() {
        let (first, second) = (slots(&[(0, 100, 0)]), slots(&[(100, 150, 1), (210, 310, 0)]));
        let lanes: [(u64, &[Slot]); 2] = [(420, &first), (420, &second)];
        assert_eq!(net(&[210, 420], &lanes, 10, 7), [(83, 127), (40, 380)]);
        let short: [(u64, &[Slot]); 2] = [(210, &first[..]), (420, &second[..1])];
        assert_eq!(net(&[105, 420], &short, 10, 7), [(0, 120), (40, 380)]);
        assert_eq!(net(&[420, 420], &short, 10, 7), [(180, 120), (40, 380)]);
    }
}
