//! A search through all placements of few items, for the one with fewest pairs of a team's items on one CPU.

use std::cmp::Reverse;

use super::{Own, Teams, may_use};
use crate::partition::Item;

/// More items than this are not searched through.
const ITEMS_MAX: usize = 32;
/// The search ends after so many placements of one item.
const STEPS_MAX: u32 = 3_000;

/// The CPU of every item, if that leaves a smaller [`Teams::excess`] than `most`. The search is complete, unless it has
/// to end for its length.
pub(crate) fn search(
    items: &[Item],
    cpus: usize,
    capacity: u64,
    teams: &Teams,
    most: u64,
) -> Option<Vec<usize>> {
    if items.len() > ITEMS_MAX {
        return None;
    }
    let mut search = Search::new(items, cpus, capacity, teams, most);
    search.run(0, 0);
    search.best
}

struct Search<'a> {
    items: &'a [Item<'a>],
    capacity: u64,
    teams: &'a Teams,
    /// The items, the largest first, equal ones in a row.
    sequence: Vec<usize>,
    /// Those in the rest of the sequence, in sum.
    loads: Vec<u64>,
    /// By CPU: which lists name it. CPUs that differ in nothing are tried once.
    kinds: Vec<Vec<usize>>,
    free: Vec<u64>,
    is_empty: Vec<bool>,
    own: Vec<Own>,
    places: Vec<usize>,
    best: Option<Vec<usize>>,
    /// What is looked for is less than this.
    most: u64,
    steps_left: u32,
}

impl<'a> Search<'a> {
    fn new(items: &'a [Item<'a>], cpus: usize, capacity: u64, teams: &'a Teams, most: u64) -> Search<'a> {
        let mut sequence: Vec<usize> = (0..items.len()).collect();
        sequence.sort_by_key(|&item| (Reverse(items[item].load), teams.of(item), items[item].allowed, item));
        let mut loads: Vec<u64> = sequence.iter().map(|&item| items[item].load_of(capacity)).collect();
        (1..loads.len()).rev().for_each(|at| loads[at - 1] += loads[at]);
        let lists = |cpu| {
            let names = |item: &usize| items[*item].allowed.is_some() && may_use(&items[*item], cpu);
            (0..items.len()).filter(names).collect()
        };
        Search {
            items,
            capacity,
            teams,
            loads,
            kinds: (0..cpus).map(lists).collect(),
            is_empty: vec![true; cpus],
            free: vec![capacity; cpus],
            own: vec![Own::default(); teams.cpus.len()],
            places: vec![0; items.len()],
            best: None,
            most,
            steps_left: STEPS_MAX,
            sequence,
        }
    }

    /// Places the rest of the sequence. There are so many pairs more than need be by now.
    fn run(&mut self, at: usize, excess: u64) {
        let Some(&item) = self.sequence.get(at) else {
            (self.most, self.best) = (excess, Some(self.places.clone()));
            return;
        };
        if self.loads[at] > self.free.iter().sum() {
            return;
        }
        let load = self.items[item].load_of(self.capacity);
        let team = self.teams.of(item);
        for (cpu, _) in self.choices(at) {
            let Some(left) = self.steps_left.checked_sub(1) else { return };
            self.steps_left = left;
            let was_empty = std::mem::replace(&mut self.is_empty[cpu], false);
            self.free[cpu] -= load;
            self.places[item] = cpu;
            team.iter().for_each(|&team| self.own[team].add(cpu));
            let excess = team.map_or(excess, |_| self.teams.excess_of(&self.own));
            if excess < self.most {
                self.run(at + 1, excess);
            }
            team.iter().for_each(|&team| self.own[team].take(cpu));
            self.free[cpu] += load;
            self.is_empty[cpu] = was_empty;
            if self.most == 0 {
                return;
            }
        }
    }

    /// The CPUs for the next of the sequence, the best first, with how many of its team are there.
    fn choices(&self, at: usize) -> Vec<(usize, usize)> {
        let item = self.sequence[at];
        let own = |cpu| self.teams.of(item).map_or(0, |team| self.own[team].on(cpu));
        let has_room = |cpu: &usize| {
            may_use(&self.items[item], *cpu) && self.free[*cpu] >= self.items[item].load_of(self.capacity)
        };
        // Equal items are placed in ascending order.
        let from = at.checked_sub(1).map(|before| self.sequence[before]);
        let from = from.filter(|&before| self.is_equal(before, item)).map_or(0, |before| self.places[before]);
        let is_first = |cpu: &usize| {
            let is_same = |other: usize| self.is_empty[other] && self.kinds[other] == self.kinds[*cpu];
            !self.is_empty[*cpu] || !(from..*cpu).any(is_same)
        };
        let cpus = from..self.free.len();
        let mut choices: Vec<(usize, usize)> =
            cpus.filter(has_room).filter(is_first).map(|cpu| (cpu, own(cpu))).collect();
        choices.sort_by_key(|&(cpu, own)| (own, Reverse(self.free[cpu]), cpu));
        choices
    }

    fn is_equal(&self, one: usize, other: usize) -> bool {
        let of = |item: usize| (self.items[item].load, self.teams.of(item), self.items[item].allowed);
        of(one) == of(other)
    }
}
