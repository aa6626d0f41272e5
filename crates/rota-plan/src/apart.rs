//! Which vCPUs are to be on different CPUs: those of one tenant.
//!
//! Two vCPUs of a tenant that share a CPU run in turn, and one cannot use what the other's slots leave elsewhere. So of
//! the placements that give everybody a CPU the one is taken in which fewest pairs of a tenant's vCPUs share one: as
//! `partition` finds it where there is room, else by moving and exchanging, and on small hosts by a search.

use std::cmp::Reverse;

use crate::partition::{Item, Room};
use crate::reason::Together;

mod search;

pub(crate) use search::search;

/// An exchange is given up after so many looks for each item.
const LOOKS_MAX: usize = 64;

/// How many vCPUs of one tenant are on each CPU that has any, by CPU.
#[derive(Clone, Debug, Default)]
pub(crate) struct Own(Vec<(usize, usize)>);

impl Own {
    pub fn on(&self, cpu: usize) -> usize {
        self.find(cpu).map_or(0, |at| self.0[at].1)
    }

    fn find(&self, cpu: usize) -> Result<usize, usize> {
        self.0.binary_search_by_key(&cpu, |&(cpu, _)| cpu)
    }

    pub fn add(&mut self, cpu: usize) {
        match self.find(cpu) {
            Ok(at) => self.0[at].1 += 1,
            Err(at) => self.0.insert(at, (cpu, 1)),
        }
    }

    fn take(&mut self, cpu: usize) {
        if let Ok(at) = self.find(cpu) {
            self.0[at].1 -= 1;
            if self.0[at].1 == 0 {
                self.0.remove(at);
            }
        }
    }

    fn counts(&self) -> impl Iterator<Item = usize> {
        self.0.iter().map(|&(_, count)| count)
    }

    /// The numbers that CPUs, of so many, may have of the tenant already, ascending.
    pub fn levels(&self, cpus: usize) -> impl Iterator<Item = usize> + use<> {
        let least = if self.0.len() < cpus { 0 } else { self.counts().min().unwrap_or(0) };
        least..=self.counts().max().unwrap_or(0)
    }

    /// How many pairs of the tenant's vCPUs share a CPU.
    pub fn pairs(&self) -> u64 {
        self.counts().map(choose_two).sum()
    }
}

/// The tenants that have several of the items to be placed.
#[derive(Clone, Debug)]
pub(crate) struct Teams {
    /// By item; none for an item that is alone, or that has a CPU to itself.
    of: Vec<Option<usize>>,
    /// By team: how many of its items share a CPU at least, in pairs.
    least: Vec<u64>,
    /// By team: how many CPUs its items may use at most.
    pub cpus: Vec<usize>,
    /// By team: how many items it has.
    sizes: Vec<usize>,
    /// How many CPUs there are.
    all: usize,
}

impl Teams {
    /// `tenants` are the items', on CPUs of 0 .. `cpus`. None if no tenant has several.
    pub fn new(items: &[Item], tenants: impl Iterator<Item = u32>, cpus: usize) -> Option<Teams> {
        let is_shared = |(item, _): &(usize, u32)| !items[*item].is_whole();
        let mut members: Vec<(u32, usize)> =
            tenants.enumerate().filter(is_shared).map(|(item, tenant)| (tenant, item)).collect();
        members.sort_unstable();
        let wholes = items.iter().filter(|item| item.is_whole());
        let wholes: Vec<Option<&[usize]>> = wholes.map(|item| item.allowed).collect();
        let [cpus_of, sizes] = [Vec::new(), Vec::new()];
        let mut teams =
            Teams { of: vec![None; items.len()], least: Vec::new(), cpus: cpus_of, sizes, all: cpus };
        for team in members.chunk_by(|one, next| one.0 == next.0).filter(|team| team.len() > 1) {
            let lists = team.iter().map(|&(_, item)| items[item].allowed);
            let open = open_cpus(lists, &wholes, cpus);
            for &(_, item) in team {
                teams.of[item] = Some(teams.cpus.len());
            }
            teams.least.push(least_pairs(team.len(), open));
            teams.cpus.push(open);
            teams.sizes.push(team.len());
        }
        (!teams.cpus.is_empty()).then_some(teams)
    }

    /// Why an item shares its CPU with others of its team, if it does.
    pub fn together(&self, items: &[Item], item: usize, places: &[usize], capacity: u64) -> Option<Together> {
        let team = self.of[item]?;
        let count = |cpu: usize| {
            places.iter().zip(&self.of).filter(|&(&place, of)| place == cpu && *of == Some(team)).count()
        };
        let here = count(places[item]);
        if here == 1 {
            return None;
        }
        let (vcpus, cpus) = (self.sizes[team], self.cpus[team]);
        if here <= vcpus.div_ceil(cpus) {
            return Some(Together::Many { vcpus, cpus });
        }
        let free = |cpu: usize| {
            let on = places.iter().zip(items).filter(|(place, _)| **place == cpu);
            capacity.saturating_sub(on.map(|(_, item)| item.load_of(capacity)).sum())
        };
        let open = (0..self.all).filter(|&cpu| may_use(&items[item], cpu) && count(cpu) + 1 < here);
        Some(Together::NoRoom { most: open.map(free).max().unwrap_or(0), needed: items[item].load })
    }

    pub fn of(&self, item: usize) -> Option<usize> {
        self.of[item]
    }

    /// Who is where.
    fn own(&self, places: &[usize]) -> Vec<Own> {
        let mut own = vec![Own::default(); self.cpus.len()];
        for (team, &cpu) in self.of.iter().zip(places) {
            team.iter().for_each(|&team| own[team].add(cpu));
        }
        own
    }

    /// By how many pairs that share a CPU the teams exceed what each would need by itself.
    fn excess_of(&self, own: &[Own]) -> u64 {
        own.iter().zip(&self.least).map(|(own, &least)| own.pairs().saturating_sub(least)).sum()
    }

    /// The same of a placement.
    pub fn excess(&self, places: &[usize]) -> u64 {
        self.excess_of(&self.own(places))
    }
}

/// How many CPUs, of so many, are left at most for a team that may use these, by item: `wholes` are what those may use
/// that want a CPU to themselves. None stands for all CPUs.
pub(crate) fn open_cpus<'a>(
    lists: impl Iterator<Item = Option<&'a [usize]>>,
    wholes: &[Option<&[usize]>],
    cpus: usize,
) -> usize {
    let mut is_open = Vec::new();
    let mut last: Option<&[usize]> = None;
    for allowed in lists {
        is_open.resize(if allowed.is_some() { cpus } else { 0 }, false);
        let Some(allowed) = allowed else { return cpus.saturating_sub(wholes.len()) };
        // Those of one tenant share a list, as a rule.
        if !last.is_some_and(|last| std::ptr::eq(last, allowed)) {
            allowed.iter().for_each(|&cpu| is_open[cpu] = true);
            last = Some(allowed);
        }
    }
    let count = is_open.iter().filter(|is_open| **is_open).count();
    let is_inside =
        |allowed: &&Option<&[usize]>| allowed.is_some_and(|allowed| allowed.iter().all(|&cpu| is_open[cpu]));
    let inside = wholes.iter().filter(is_inside).count();
    count.saturating_sub(inside.max(wholes.len().saturating_sub(cpus - count)))
}

/// How many pairs share a CPU if so many are as even as they can be on so many CPUs.
pub(crate) fn least_pairs(items: usize, cpus: usize) -> u64 {
    let cpus = cpus.max(1);
    let (each, rest) = (items / cpus, items % cpus);
    choose_two(each + 1) * rest as u64 + choose_two(each) * (cpus - rest) as u64
}

fn choose_two(count: usize) -> u64 {
    count as u64 * (count as u64).saturating_sub(1) / 2
}

/// Moves items to other CPUs, and exchanges two, as long as that leaves fewer pairs of one team on a CPU.
pub(crate) fn improve(items: &[Item], places: &mut [usize], cpus: usize, capacity: u64, teams: &Teams) {
    let mut state = Exchange::new(items, places, cpus, capacity, teams);
    let mut looks = LOOKS_MAX * items.len();
    loop {
        let before = looks;
        let mut is_better = false;
        for item in 0..items.len() {
            is_better |= state.better(item, &mut looks);
        }
        if !is_better || looks == 0 || looks == before {
            return;
        }
    }
}

/// A placement in which items change places.
struct Exchange<'a> {
    items: &'a [Item<'a>],
    places: &'a mut [usize],
    teams: &'a Teams,
    own: Vec<Own>,
    /// What is free on each CPU: nothing on one that an item has to itself.
    free: Vec<u64>,
    /// By CPU.
    carried: Vec<Vec<usize>>,
}

impl<'a> Exchange<'a> {
    fn new(
        items: &'a [Item<'a>],
        places: &'a mut [usize],
        cpus: usize,
        capacity: u64,
        teams: &'a Teams,
    ) -> Exchange<'a> {
        let mut room = Room::new(cpus, capacity);
        let mut carried = vec![Vec::new(); cpus];
        for (item, &cpu) in places.iter().enumerate() {
            room.take(cpu, &items[item]);
            carried[cpu].push(item);
        }
        let free = (0..cpus).map(|cpu| room.free(cpu)).collect();
        Exchange { items, own: teams.own(places), places, teams, free, carried }
    }

    /// Whether it found something better for an item that shares its CPU with another of its team: the emptiest CPU
    /// with fewer of them that has room, or else another item to change places with.
    fn better(&mut self, item: usize, looks: &mut usize) -> bool {
        let from = self.places[item];
        let Some(team) = self.teams.of(item).filter(|&team| self.own[team].on(from) > 1) else {
            return false;
        };
        let mut fewer: Vec<usize> = (0..self.free.len())
            .filter(|&cpu| self.own[team].on(cpu) + 1 < self.own[team].on(from))
            .collect();
        fewer.retain(|&cpu| may_use(&self.items[item], cpu) && !self.is_whole(cpu));
        fewer.sort_by_key(|&cpu| (self.own[team].on(cpu), Reverse(self.free[cpu]), cpu));
        *looks = looks.saturating_sub(self.free.len());
        if let Some(&to) = fewer.iter().find(|&&to| self.free[to] >= self.items[item].load) {
            self.put(item, to);
            return true;
        }
        for to in fewer {
            for at in 0..self.carried[to].len() {
                let Some(left) = looks.checked_sub(1) else { return false };
                *looks = left;
                let other = self.carried[to][at];
                if self.may_exchange(item, other) {
                    self.put(item, to);
                    self.put(other, from);
                    return true;
                }
            }
        }
        false
    }

    fn is_whole(&self, cpu: usize) -> bool {
        self.carried[cpu].iter().any(|&item| self.items[item].is_whole())
    }

    /// Whether two items can change places, with fewer pairs then.
    fn may_exchange(&self, one: usize, other: usize) -> bool {
        let (from, to) = (self.places[one], self.places[other]);
        let (leaving, coming) = (self.items[one].load, self.items[other].load);
        if self.free[from] + leaving < coming || self.free[to] + coming < leaving {
            return false;
        }
        let team = self.teams.of(other);
        if team == self.teams.of(one) || !may_use(&self.items[other], from) {
            return false;
        }
        // Beside how many of its team an item would be, and how many it is beside.
        let beside = |item: usize, from: usize, to: usize| {
            self.teams.of(item).map_or((0, 0), |team| (self.own[team].on(to), self.own[team].on(from) - 1))
        };
        let ((one_then, one_now), (other_then, other_now)) = (beside(one, from, to), beside(other, to, from));
        one_then + other_then < one_now + other_now
    }

    fn put(&mut self, item: usize, to: usize) {
        let from = std::mem::replace(&mut self.places[item], to);
        self.carried[from].retain(|&other| other != item);
        self.carried[to].push(item);
        // Of two that change places the first may be too much for a moment.
        self.free[from] = self.free[from].wrapping_add(self.items[item].load);
        self.free[to] = self.free[to].wrapping_sub(self.items[item].load);
        if let Some(team) = self.teams.of(item) {
            self.own[team].take(from);
            self.own[team].add(to);
        }
    }
}

fn may_use(item: &Item, cpu: usize) -> bool {
    item.allowed.is_none_or(|allowed| allowed.binary_search(&cpu).is_ok())
}
