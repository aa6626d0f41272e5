//! Every task onto one CPU. Thesis section 5.2.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use rota_model::{Placement, Share};

use crate::apart::{Own, Teams};
use crate::period::{HYPERPERIOD_NS, Task};
use crate::reason::{Journal, Place};

/// Which task is placed first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// The largest.
    Size,
    /// The one that may use fewest CPUs; among equals the largest.
    Choosiest,
}

/// What has to be placed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Item<'a> {
    /// Load of [`HYPERPERIOD_NS`], in ns; exactly that for one that wants a CPU to itself.
    pub load: u64,
    /// Places of the CPUs that it may use, ascending; all of them if absent.
    pub allowed: Option<&'a [usize]>,
}

impl<'a> Item<'a> {
    /// A task that has a CPU to itself only if its share is all of one.
    pub fn new(task: Task, allowed: Option<&'a [usize]>) -> Item<'a> {
        let most = if task.share == Share::ONE { HYPERPERIOD_NS } else { HYPERPERIOD_NS - 1 };
        Item { load: task.load().min(most), allowed }
    }

    /// Whether it wants a CPU to itself.
    pub fn is_whole(&self) -> bool {
        self.load == HYPERPERIOD_NS
    }

    /// The one CPU that it may use, if that is so, of 0 .. `cpus`.
    pub fn pinned(&self, cpus: usize) -> Option<usize> {
        match self.allowed {
            Some([cpu]) => Some(*cpu),
            None if cpus == 1 => Some(0),
            _ => None,
        }
    }

    /// What it takes at least of CPUs that give `capacity` each: one that wants a CPU to itself takes all of that.
    pub fn load_of(&self, capacity: u64) -> u64 {
        if self.is_whole() { capacity } else { self.load }
    }
}

/// How a placement is made: which item is next, and which CPU it gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fit {
    pub order: Order,
    pub placement: Placement,
}

impl Fit {
    /// The items in the order in which they are placed on 0 .. `cpus`.
    fn sequence(self, items: &[Item], cpus: usize) -> Vec<usize> {
        let mut sequence: Vec<usize> = (0..items.len()).collect();
        sequence.sort_by_key(|&item| {
            let choice = items[item].allowed.map_or(cpus, <[usize]>::len);
            (if self.order == Order::Choosiest { choice } else { 0 }, Reverse(items[item].load))
        });
        sequence
    }
}

/// The CPU (0 .. `cpus`) of every item, or none if one finds no room. Each CPU takes loads up to `capacity` in sum, or
/// one whole item.
///
/// Decreasing worst fit or best fit; equal CPUs are taken in ascending order. An item of one of the teams goes to a CPU
/// with fewest of its team, of those with room. `n log n` but for items that may not use every CPU, which look at each
/// that they may, and for those of teams, which look at each that their team has.
pub(crate) fn partition(
    items: &[Item],
    cpus: usize,
    capacity: u64,
    fit: Fit,
    teams: Option<&Teams>,
) -> Option<Vec<usize>> {
    let mut room = Room::new(cpus, capacity);
    let mut places = vec![0; items.len()];
    let mut own = vec![Own::default(); teams.map_or(0, |teams| teams.cpus.len())];
    for item in fit.sequence(items, cpus) {
        let found = match teams.and_then(|teams| teams.of(item).map(|team| (team, teams.cpus[team]))) {
            Some((team, cpus)) => {
                let mut levels = own[team].levels(cpus);
                let cpu = levels.find_map(|most| room.find(&items[item], fit.placement, &own[team], most));
                cpu.iter().for_each(|&cpu| own[team].add(cpu));
                cpu
            }
            None => room.find(&items[item], fit.placement, &Own::default(), 0),
        };
        places[item] = found?;
        room.take(places[item], &items[item]);
    }
    Some(places)
}

/// Notes why every item is where it is, placed one after the other in this way.
pub(crate) fn note(
    items: &[Item],
    cpus: usize,
    capacity: u64,
    fit: Fit,
    places: &[usize],
    journal: &Journal,
) {
    let mut room = Room::new(cpus, capacity);
    for item in fit.sequence(items, cpus) {
        journal.put(item, room.reason(places[item], &items[item], fit.placement));
        room.take(places[item], &items[item]);
    }
}

/// What is free on every CPU.
#[derive(Clone, Debug)]
pub(crate) struct Room {
    capacity: u64,
    /// 0 on a CPU that takes nothing.
    free: Vec<u64>,
    /// The same but for these CPUs, ordered: most free last, and the lowest CPU last among equals.
    ordered: BTreeSet<(u64, Reverse<usize>)>,
}

impl Room {
    pub fn new(cpus: usize, capacity: u64) -> Room {
        Room {
            capacity,
            free: vec![capacity; cpus],
            ordered: (0..cpus).map(|cpu| (capacity, Reverse(cpu))).collect(),
        }
    }

    /// What is free on one CPU; 0 if nothing more may go there.
    pub fn free(&self, cpu: usize) -> u64 {
        self.free[cpu]
    }

    /// The CPU for an item, of those that have no more than so many of its tenant's vCPUs.
    pub fn find(&self, item: &Item, placement: Placement, own: &Own, most: usize) -> Option<usize> {
        // A whole CPU has no floor, but it has to be empty.
        let needed = item.load.min(if item.is_whole() { self.capacity } else { u64::MAX });
        let is_open = |cpu: &usize| own.on(*cpu) <= most;
        if let Some(allowed) = item.allowed {
            let fitting = allowed.iter().copied().filter(|&cpu| self.free[cpu] >= needed).filter(is_open);
            return match placement {
                Placement::WorstFit => fitting.max_by_key(|&cpu| (self.free[cpu], Reverse(cpu))),
                Placement::BestFit => fitting.min_by_key(|&cpu| (self.free[cpu], cpu)),
            };
        }
        let takes = |place: &&(u64, Reverse<usize>)| is_open(&place.1.0);
        match placement {
            Placement::WorstFit => {
                let &(free, Reverse(cpu)) = self.ordered.iter().rev().find(takes)?;
                (free >= needed).then_some(cpu)
            }
            Placement::BestFit => {
                let mut with_room = self.ordered.range((needed, Reverse(usize::MAX))..);
                let &(free, cpu) = with_room.find(takes)?;
                // The lowest of equals.
                let mut equals = self.ordered.range((free, cpu)..=(free, Reverse(0))).rev();
                equals.find(takes).map(|&(_, Reverse(cpu))| cpu)
            }
        }
    }

    /// Why this CPU is taken.
    fn reason(&self, cpu: usize, item: &Item, placement: Placement) -> Place {
        let has_room = |cpu: &usize| self.free[*cpu] >= item.load;
        let (with_room, of) = match item.allowed {
            Some(allowed) => (allowed.iter().filter(|cpu| has_room(cpu)).count(), allowed.len()),
            None => ((0..self.free.len()).filter(has_room).count(), self.free.len()),
        };
        let free = self.free[cpu];
        if self.find(item, placement, &Own::default(), 0) == Some(cpu) {
            return Place::Fit { with_room, of, placement, free, needed: item.load };
        }
        Place::Apart { with_room, of, free, needed: item.load }
    }

    /// Says how much is free on one CPU; none if nothing more may go there.
    pub fn set(&mut self, cpu: usize, free: Option<u64>) {
        self.ordered.remove(&(self.free[cpu], Reverse(cpu)));
        self.free[cpu] = free.unwrap_or(0);
        self.ordered.extend(free.map(|free| (free, Reverse(cpu))));
    }

    pub fn take(&mut self, cpu: usize, item: &Item) {
        // Nothing fits beside a whole one, not even a load of nothing.
        self.set(cpu, (!item.is_whole()).then(|| self.free[cpu] - item.load));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(loads: &[u64], cpus: usize, placement: Placement) -> Option<Vec<usize>> {
        let items: Vec<Item> = loads.iter().map(|&load| Item { load, allowed: None }).collect();
        partition(&items, cpus, 100, Fit { order: Order::Size, placement }, None)
    }

    #[test]
    fn worst_fit_spreads_and_best_fit_packs() {
        assert_eq!(place(&[25, 25, 25, 25], 3, Placement::WorstFit), Some(vec![0, 1, 2, 0]));
        assert_eq!(place(&[25, 25, 25, 25], 3, Placement::BestFit), Some(vec![0, 0, 0, 0]));
        // Larger ones first, whatever their order.
        assert_eq!(place(&[30, 70, 60, 40], 2, Placement::WorstFit), Some(vec![0, 0, 1, 1]));
    }

    #[test]
    fn a_whole_item_takes_an_empty_cpu_beyond_its_capacity() {
        assert_eq!(place(&[50, HYPERPERIOD_NS, 50], 2, Placement::WorstFit), Some(vec![1, 0, 1]));
        assert_eq!(place(&[HYPERPERIOD_NS, HYPERPERIOD_NS, 1], 2, Placement::BestFit), None);
    }

    #[test]
    fn the_choosiest_may_go_first() {
        let items = [Item { load: 60, allowed: None }, Item { load: 50, allowed: Some(&[0]) }];
        let by = |order| partition(&items, 2, 100, Fit { order, placement: Placement::WorstFit }, None);
        assert_eq!(by(Order::Size), None);
        assert_eq!(by(Order::Choosiest), Some(vec![1, 0]));
    }
}
