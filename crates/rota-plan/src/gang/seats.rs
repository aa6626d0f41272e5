//! Which CPUs gangs get, such that everybody else fits beside them.

use std::cmp::Reverse;

use super::Gang;
use super::slots::{Stretch, stack};
use crate::partition::{Fit, Item, Room, partition};
use crate::period::HYPERPERIOD_NS;

/// So many ways to give all gangs CPUs are tried; one where more than [`FEW`] vCPUs are to be placed.
const WAYS_MAX: u32 = 256;
/// So few vCPUs are placed by a search, if nothing else places them.
const FEW: usize = 32;
/// A search ends after so many placements of one vCPU.
const STEPS_MAX: u32 = 3_000;
/// CPUs of gangs are chosen in so many steps at most; where more vCPUs are to be placed, in so many for each of a gang.
const CHOICES_MAX: u32 = 20_000;
const CHOICES_EACH: u32 = 8;

/// What was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Seats {
    /// A CPU for each item.
    All(Vec<usize>),
    /// A CPU for each member of each gang, in their order, but not everybody else fits on one CPU so.
    Gangs(Vec<Vec<usize>>),
    /// No way to give this gang CPUs beside the gangs before it.
    Short(usize),
}

/// A CPU (0 .. `cpus`) for each item, those of a gang on different ones. Each CPU takes loads up to `capacity` in sum,
/// in ns of a hyperperiod. Everybody else is placed by the first of `fits` that places all, or by a search.
pub(crate) fn seats(items: &[Item], gangs: &[Gang], cpus: usize, capacity: u64, fits: &[Fit]) -> Seats {
    let mut free = vec![capacity; cpus];
    for (item, cpu) in items.iter().filter_map(|item| Some((item, item.pinned(cpus)?))) {
        free[cpu] = if item.is_whole() { 0 } else { free[cpu].saturating_sub(item.load) };
    }
    let mut order: Vec<usize> = (0..gangs.len()).collect();
    order.sort_by_key(|&gang| {
        let members = &gangs[gang].members;
        let choice = items[members[0]].allowed.map_or(cpus, <[usize]>::len);
        (Reverse(items[members[0]].load * members.len() as u64), choice, gang)
    });
    let nr_members: usize = gangs.iter().map(|gang| gang.members.len()).sum();
    let is_small = items.len() <= FEW;
    let mut search = Search {
        items,
        gangs,
        cpus,
        capacity,
        fits,
        order,
        free,
        seats: vec![Vec::new(); gangs.len()],
        first: None,
        furthest: 0,
        is_small,
        ways_left: if is_small { WAYS_MAX } else { 1 },
        choices_left: if is_small { CHOICES_MAX } else { CHOICES_EACH * nr_members as u32 },
    };
    match (search.run(0), search.first) {
        (Some(places), _) => Seats::All(places),
        (None, Some(seats)) => Seats::Gangs(seats),
        (None, None) => Seats::Short(search.order[search.furthest]),
    }
}

struct Search<'a> {
    items: &'a [Item<'a>],
    gangs: &'a [Gang],
    cpus: usize,
    capacity: u64,
    fits: &'a [Fit],
    /// The gangs, the largest first.
    order: Vec<usize>,
    /// Without pinned items and the gangs that have CPUs.
    free: Vec<u64>,
    /// By gang, of those that have CPUs.
    seats: Vec<Vec<usize>>,
    /// The first way that gives all gangs CPUs.
    first: Option<Vec<Vec<usize>>>,
    /// How many of `order` had CPUs at once.
    furthest: usize,
    /// Few are to be placed: CPUs that are alike are tried once.
    is_small: bool,
    ways_left: u32,
    choices_left: u32,
}

impl Search<'_> {
    /// Gives CPUs to the rest of `order`.
    fn run(&mut self, at: usize) -> Option<Vec<usize>> {
        self.furthest = self.furthest.max(at.min(self.order.len() - 1));
        let Some(&gang) = self.order.get(at) else {
            self.ways_left = self.ways_left.saturating_sub(1);
            self.first.get_or_insert_with(|| self.seats.clone());
            return self.rest();
        };
        let item = &self.items[self.gangs[gang].members[0]];
        let may_use = |cpu: &usize| item.allowed.is_none_or(|allowed| allowed.binary_search(cpu).is_ok());
        let mut open: Vec<usize> =
            (0..self.cpus).filter(may_use).filter(|&cpu| self.free[cpu] >= item.load).collect();
        open.sort_by_key(|&cpu| (Reverse(self.free[cpu]), cpu));
        self.choose(at, &open, 0, &mut Vec::new())
    }

    /// Adds CPUs of `open[from..]` to those that a gang has, until it has enough, and goes on with the next gang.
    fn choose(&mut self, at: usize, open: &[usize], from: usize, has: &mut Vec<usize>) -> Option<Vec<usize>> {
        let gang = self.order[at];
        let load = self.items[self.gangs[gang].members[0]].load;
        let missing = self.gangs[gang].members.len() - has.len();
        if missing == 0 {
            self.seats[gang].clone_from(has);
            has.iter().for_each(|&cpu| self.free[cpu] -= load);
            let found = self.can_stack().then(|| self.run(at + 1)).flatten();
            has.iter().for_each(|&cpu| self.free[cpu] += load);
            self.seats[gang].clear();
            return found;
        }
        for next in from..=open.len().checked_sub(missing)? {
            let cpu = open[next];
            if self.is_small && open[from..next].iter().any(|&other| self.are_alike(other, cpu)) {
                continue;
            }
            self.choices_left = self.choices_left.checked_sub(1)?;
            has.push(cpu);
            let found = self.choose(at, open, next + 1, has);
            has.pop();
            if found.is_some() || self.ways_left == 0 {
                return found;
            }
        }
        None
    }

    /// Whether two CPUs have the same room and gangs, and the same items may use them.
    fn are_alike(&self, one: usize, other: usize) -> bool {
        let names =
            |item: &Item| item.allowed.map(|all| [one, other].map(|cpu| all.binary_search(&cpu).is_ok()));
        let is_fair = |item: &Item| names(item).is_none_or(|[one, other]| one == other);
        let has_both = |seats: &Vec<usize>| seats.contains(&one) == seats.contains(&other);
        self.free[one] == self.free[other]
            && self.seats.iter().all(has_both)
            && self.items.iter().all(is_fair)
    }

    /// Whether the gangs that have CPUs can be at different times where they have CPUs in common.
    fn can_stack(&self) -> bool {
        let seated = self.seats.iter().zip(self.gangs).filter(|(seats, _)| !seats.is_empty());
        let stretches: Vec<Stretch> = seated
            .map(|(seats, gang)| Stretch { length: self.items[gang.members[0]].load, cpus: seats.clone() })
            .collect();
        stack(&stretches, HYPERPERIOD_NS).is_some()
    }

    /// Everybody, now that the gangs have CPUs.
    fn rest(&self) -> Option<Vec<usize>> {
        let mut items = self.items.to_vec();
        for (gang, seats) in self.gangs.iter().zip(&self.seats) {
            for (&member, cpu) in gang.members.iter().zip(seats) {
                items[member].allowed = Some(std::slice::from_ref(cpu));
            }
        }
        let found = self.fits.iter().find_map(|&fit| partition(&items, self.cpus, self.capacity, fit, None));
        found.or_else(|| pack(&items, self.cpus, self.capacity))
    }
}

/// A CPU for each of few items, if there is a way: a search through all, unless it gets too long.
fn pack(items: &[Item], cpus: usize, capacity: u64) -> Option<Vec<usize>> {
    if items.len() > FEW {
        return None;
    }
    let mut sequence: Vec<usize> = (0..items.len()).collect();
    sequence.sort_by_key(|&item| (items[item].pinned(cpus).is_none(), Reverse(items[item].load), item));
    let mut packing = Packing {
        items,
        sequence,
        room: Room::new(cpus, capacity),
        places: vec![0; items.len()],
        steps_left: STEPS_MAX,
    };
    packing.run(0, cpus).then_some(packing.places)
}

struct Packing<'a> {
    items: &'a [Item<'a>],
    /// Those with one CPU first, then the largest.
    sequence: Vec<usize>,
    room: Room,
    places: Vec<usize>,
    steps_left: u32,
}

impl Packing<'_> {
    fn run(&mut self, at: usize, cpus: usize) -> bool {
        let Some(&number) = self.sequence.get(at) else { return true };
        let item = self.items[number];
        let mut tried: Vec<u64> = Vec::new();
        for cpu in 0..cpus {
            let free = self.room.free(cpu);
            let may_use = item.allowed.is_none_or(|allowed| allowed.binary_search(&cpu).is_ok());
            let is_new = item.allowed.is_some() || self.is_choosy() || !tried.contains(&free);
            let needed = if item.is_whole() { free.max(1) } else { item.load };
            if !may_use || !is_new || free < needed {
                continue;
            }
            let Some(left) = self.steps_left.checked_sub(1) else { return false };
            self.steps_left = left;
            tried.push(free);
            self.places[number] = cpu;
            self.room.take(cpu, &item);
            if self.run(at + 1, cpus) {
                return true;
            }
            self.room.set(cpu, Some(free));
        }
        false
    }

    /// Whether CPUs with the same room may still differ.
    fn is_choosy(&self) -> bool {
        self.items.iter().any(|item| item.allowed.is_some_and(|allowed| allowed.len() > 1))
    }
}
