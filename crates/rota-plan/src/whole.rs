//! CPUs for those that want one to themselves, such that the others still fit.

use crate::flow::Shortage;
use crate::network::Network;
use crate::partition::Item;

/// The search ends after so many flows. A choice that needs more is one between CPUs that many lists of few CPUs
/// contend for.
const FLOWS_MAX: u32 = 10_000;

/// Item and CPU of every item that wants one to itself. One after the other gets a CPU, those with least choice first
/// and each where the least load may go besides, as long as a flow carries the rest; a choice after which it does not
/// is taken back.
pub(crate) fn choose(
    items: &[Item],
    network: &Network,
    demands: &[u64],
    capacity: u64,
) -> Result<Vec<(usize, usize)>, Shortage> {
    let pinned = |(place, item): (usize, &Item)| Some((place, item.pinned(network.room.len())?));
    let is_whole = |(_, item): &(usize, &Item)| item.is_whole();
    let mut chosen: Vec<(usize, usize)> =
        items.iter().enumerate().filter(is_whole).filter_map(pinned).collect();
    let mut search = Search::new(items, network, demands, capacity);
    if !search.run(0, 0) {
        return Err(Shortage::Whole { item: search.wholes[search.furthest].0 });
    }
    let mut clean: Vec<_> = network.domains.iter().map(|domain| domain.cpus.iter().copied()).collect();
    for (&(item, _), &domain) in search.wholes.iter().zip(&search.chosen) {
        // The search has counted them.
        chosen.extend(clean[domain].next().map(|cpu| (item, cpu)));
    }
    chosen.sort_unstable();
    Ok(chosen)
}

struct Search<'a> {
    network: &'a Network<'a>,
    capacity: u64,
    /// Item and group, those of one group in a row.
    wholes: Vec<(usize, usize)>,
    /// By group: the domains where it can have a whole CPU, the best first.
    choices: Vec<Vec<usize>>,
    /// By domain: how many CPUs are left to choose.
    left: Vec<usize>,
    demands: Vec<u64>,
    supplies: Vec<u64>,
    /// By place in `wholes`: the domain.
    chosen: Vec<usize>,
    /// The first of `wholes` for which there never was a choice.
    furthest: usize,
    flows_left: u32,
}

impl<'a> Search<'a> {
    fn new(items: &[Item], network: &'a Network<'a>, demands: &[u64], capacity: u64) -> Search<'a> {
        let of_group = |number: usize| {
            let wholes = network.groups[number].items.iter().filter(|&&item| items[item].is_whole());
            wholes.map(move |&item| (item, number)).collect::<Vec<_>>()
        };
        let mut wholes: Vec<Vec<(usize, usize)>> = (0..network.groups.len()).map(of_group).collect();
        // What else may go to a domain, whole items aside.
        let mut contended = vec![0; network.domains.len()];
        for (number, group) in network.groups.iter().enumerate() {
            let divided = demands[number] - wholes[number].len() as u64 * capacity;
            group.domains.iter().for_each(|&domain| contended[domain] += divided);
        }
        let choices = network.groups.iter().map(|group| {
            let clean = group.domains.iter().copied().filter(|&domain| network.domains[domain].is_clean);
            let mut choices: Vec<usize> = clean.collect();
            choices.sort_by_key(|&domain| contended[domain]);
            choices
        });
        let choices: Vec<Vec<usize>> = choices.collect();
        let cpus = |domain: &usize| network.domains[*domain].cpus.len();
        wholes.sort_by_key(|wholes| {
            wholes.first().map_or(0, |&(_, group)| choices[group].iter().map(cpus).sum::<usize>())
        });
        Search {
            network,
            capacity,
            wholes: wholes.concat(),
            choices,
            left: network.domains.iter().map(|domain| domain.cpus.len()).collect(),
            demands: demands.to_vec(),
            supplies: network.supplies(),
            chosen: Vec::new(),
            furthest: 0,
            flows_left: FLOWS_MAX,
        }
    }

    /// Chooses for `wholes[next..]`. Items of one group are equal, so none needs a choice before its predecessor's,
    /// which is `choices[..][from]`.
    fn run(&mut self, next: usize, from: usize) -> bool {
        self.furthest = self.furthest.max(next);
        let Some(&(_, group)) = self.wholes.get(next) else { return true };
        let from = if next > 0 && self.wholes[next - 1].1 == group { from } else { 0 };
        for at in from..self.choices[group].len() {
            let domain = self.choices[group][at];
            if self.left[domain] == 0 {
                continue;
            }
            self.left[domain] -= 1;
            self.demands[group] -= self.capacity;
            self.supplies[domain] -= self.capacity;
            self.chosen.push(domain);
            if self.rest_fits(group) && self.run(next + 1, at) {
                return true;
            }
            self.chosen.pop();
            self.supplies[domain] += self.capacity;
            self.demands[group] += self.capacity;
            self.left[domain] += 1;
        }
        false
    }

    /// Whether a flow carries what is left, after a choice for `group`.
    fn rest_fits(&mut self, group: usize) -> bool {
        if self.network.groups[group].domains.len() == 1 {
            return true; // there was no other place for its load before
        }
        let Some(left) = self.flows_left.checked_sub(1) else { return false };
        self.flows_left = left;
        let flow = self.network.flow(&self.demands, &self.supplies);
        flow.iter().zip(&self.demands).all(|(flow, &demand)| flow.iter().sum::<u64>() == demand)
    }
}
