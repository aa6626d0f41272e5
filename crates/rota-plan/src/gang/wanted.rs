//! Gangs in a layout.

use rota_model::{Placement, Share};

use super::{Gang, Seats, gangs, seats};
use crate::Infeasible;
use crate::apart::Teams;
use crate::demand::Demand;
use crate::lay_out::{Apart, Found, Wanted};
use crate::partition::{Fit, Item, Order, partition};
use crate::period::{Choice, HYPERPERIOD_NS};
use crate::reason::Place;

impl Wanted<'_> {
    /// A CPU for each item, some of which are gangs; if there are teams, with those of one team apart where that can
    /// be.
    pub fn find_beside(
        &self,
        items: &[Item],
        gangs: &[Gang],
        fits: &[Fit],
        teams: Option<&Teams>,
    ) -> Option<Found> {
        let Seats::All(places) = seats(items, gangs, self.cpus.len(), self.capacity, fits) else {
            return None;
        };
        if let Some(teams) = teams {
            let mut pinned = items.to_vec();
            for &member in gangs.iter().flat_map(|gang| &gang.members) {
                pinned[member].allowed = Some(std::slice::from_ref(&places[member]));
            }
            let apart = self.find_apart(&pinned, &pinned, fits, teams);
            if apart.is_some() {
                return apart;
            }
        }
        Some(Found { fit: fits[0], places, excess: 0 })
    }

    /// Notes that they are where they are as gangs.
    pub fn note_gangs(&self, gangs: &[Gang]) {
        for (&member, with) in
            gangs.iter().flat_map(|gang| gang.members.iter().map(|one| (one, gang.members.len() - 1)))
        {
            let of = self.demands[member].allowed.as_ref().map_or(self.cpus.len(), |allowed| allowed.len());
            self.journal.iter().for_each(|journal| journal.put(member, Place::Together { with, of }));
        }
    }

    /// The demands where not everybody fits on one CPU: each gang with the CPUs that it gets. Of the others as many as
    /// fit are on these as well, each on one, and nobody else may use them. So nobody is divided beside a gang. None if
    /// there are no gangs.
    ///
    /// # Errors
    ///
    /// [`Infeasible::Together`], if gangs have no CPUs, or others none beside them.
    pub fn seat_gangs(&self, loads: &[u64]) -> Result<Option<Apart>, Infeasible> {
        let gangs = gangs(self.demands);
        if gangs.is_empty() {
            return Ok(None);
        }
        let tasks = self.tasks(Choice::LeastWaste, loads)?;
        let items = self.items(&tasks);
        let fits = self.fits(Placement::WorstFit);
        let seated = match seats(&items, &gangs, self.cpus.len(), self.capacity, &fits) {
            Seats::All(places) => {
                gangs.iter().map(|gang| gang.members.iter().map(|&member| places[member]).collect()).collect()
            }
            Seats::Gangs(seated) => seated,
            Seats::Short(gang) => return Err(self.apart(&items, &gangs[gang])),
        };
        let demands = self.seated(&items, &gangs, &seated);
        match demands.iter().any(|demand| demand.allowed.as_ref().is_some_and(|allowed| allowed.is_empty())) {
            true => Err(self.apart(&items, &gangs[0])),
            false => Ok(Some((demands, self.wholes.to_vec()))),
        }
    }

    /// Everybody with one CPU who is on a gang's, and the others without these.
    fn seated(&self, items: &[Item], gangs: &[Gang], seated: &[Vec<usize>]) -> Vec<Demand> {
        let mut free = vec![self.capacity; self.cpus.len()];
        let mut is_gangs = vec![false; self.cpus.len()];
        let mut place: Vec<Option<usize>> = items.iter().map(|item| item.pinned(self.cpus.len())).collect();
        for (gang, cpus) in gangs.iter().zip(seated) {
            for (&member, &cpu) in gang.members.iter().zip(cpus) {
                (place[member], is_gangs[cpu]) = (Some(cpu), true);
            }
        }
        for (item, cpu) in items.iter().zip(&place) {
            cpu.iter().for_each(|&cpu| free[cpu] = free[cpu].saturating_sub(item.load));
        }
        let mut open: Vec<usize> = (0..items.len()).filter(|&item| place[item].is_none()).collect();
        let elsewhere = |item: usize| {
            items[item]
                .allowed
                .map_or(self.cpus.len(), |allowed| allowed.iter().filter(|&&cpu| !is_gangs[cpu]).count())
        };
        open.sort_by_key(|&item| (elsewhere(item).min(1), std::cmp::Reverse(items[item].load), item));
        for item in open {
            let fits = |cpu: &usize| {
                let may_use = items[item].allowed.is_none_or(|allowed| allowed.binary_search(cpu).is_ok());
                is_gangs[*cpu] && may_use && free[*cpu] >= items[item].load
            };
            if let Some(cpu) = (0..free.len()).filter(fits).min_by_key(|&cpu| (free[cpu], cpu)) {
                free[cpu] -= items[item].load;
                place[item] = Some(cpu);
            }
        }
        let one = |(demand, place): (&Demand, &Option<usize>)| {
            let allowed = match (place, &demand.allowed) {
                (Some(cpu), _) => [*cpu].into(),
                (None, Some(allowed)) => allowed.iter().copied().filter(|&cpu| !is_gangs[cpu]).collect(),
                (None, None) => (0..is_gangs.len()).filter(|&cpu| !is_gangs[cpu]).collect(),
            };
            Demand { allowed: Some(allowed), ..demand.clone() }
        };
        self.demands.iter().zip(&place).map(one).collect()
    }

    /// Why a gang's slots cannot come together: what is free beside everybody who is in no gang.
    pub fn apart(&self, items: &[Item], gang: &Gang) -> Infeasible {
        let demand = &self.demands[gang.members[0]];
        let needed = items[gang.members[0]].load;
        let mut free = self.free_beside(items, gang);
        free.sort_unstable_by_key(|&free| std::cmp::Reverse(free));
        let vcpus = gang.members.len();
        let part = |load: u64| {
            let ppb = u128::from(load) * u128::from(Share::ONE.ppb()) / u128::from(HYPERPERIOD_NS);
            Share::from_ppb(ppb as u32)
        };
        Infeasible::Together {
            tenant: self.model.tenants[demand.tenant as usize].name.clone(),
            vcpus,
            share: part(needed).unwrap_or(Share::ONE),
            with_room: free.iter().filter(|&&free| free >= needed).count(),
            most: free.get(vcpus - 1).copied().and_then(part),
        }
    }

    /// What is free for a gang on each CPU that it may use, if everybody who is in no gang finds room; or else beside
    /// those of them that have no choice.
    fn free_beside(&self, items: &[Item], gang: &Gang) -> Vec<u64> {
        let cpus = self.cpus.len();
        let others: Vec<usize> = (0..items.len()).filter(|&item| !self.demands[item].is_in_gang()).collect();
        let of = |items: &[Item], places: &[usize]| {
            let mut free = vec![self.capacity; cpus];
            for (item, &cpu) in items.iter().zip(places) {
                free[cpu] = if item.is_whole() { 0 } else { free[cpu].saturating_sub(item.load) };
            }
            free
        };
        let chosen: Vec<Item> = others.iter().map(|&item| items[item]).collect();
        let fit = Fit { order: Order::Choosiest, placement: Placement::BestFit };
        let free = partition(&chosen, cpus, self.capacity, fit, None).map_or_else(
            || {
                let pinned = chosen.iter().filter_map(|item| Some((*item, item.pinned(cpus)?)));
                let (pinned, places): (Vec<Item>, Vec<usize>) = pinned.unzip();
                of(&pinned, &places)
            },
            |places| of(&chosen, &places),
        );
        match items[gang.members[0]].allowed {
            Some(allowed) => allowed.iter().map(|&cpu| free[cpu]).collect(),
            None => free,
        }
    }
}
