//! Whether the CPUs that the vCPUs may use have enough to give, and where each vCPU's load could go then.
//!
//! Loads that may be divided at will fit if and only if no set of them wants more than the CPUs that any of it may use
//! have in sum: a maximum flow either carries all of them, or shows such a set (Hall 1935; Ford and Fulkerson 1956).
//! Where they fit, they can be served without anyone on two CPUs at once (Gonzalez and Sahni 1976).
//!
//! Those that want a CPU to themselves make it hard: to choose CPUs for them that leave the others enough is a covering
//! problem. `whole` searches for it and may fail where there is a choice. A bottleneck is never told wrongly.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use crate::apart::{Own, Teams};
use crate::network::{Flow, Network};
use crate::partition::Item;
use crate::whole;

/// So much of an item's load goes to a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub item: usize,
    pub cpu: usize,
    /// In ns of a hyperperiod, more than 0; the CPU's capacity for an item that has it to itself.
    pub load: u64,
}

/// Why the items do not fit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Shortage {
    /// These items may use no other CPUs than these, and want more than these have. Both ascending.
    Bottleneck { items: Vec<usize>, cpus: Vec<usize> },
    /// No CPU was found for this item to have to itself that leaves the others enough.
    Whole { item: usize },
}

/// The CPU of every item that wants one to itself, by item, such that the others' loads can be divided among the rest,
/// CPUs of 0 .. `cpus` that give `capacity` each.
///
/// # Errors
///
/// [`Shortage::Bottleneck`] only if the items cannot fit, and always then if none of them wants a CPU to itself.
pub(crate) fn whole_cpus(
    items: &[Item],
    cpus: usize,
    capacity: u64,
) -> Result<Vec<(usize, usize)>, Shortage> {
    let fit = Fit::new(items, cpus, capacity)?;
    Ok(fit.wholes)
}

/// Where every item's load goes, by item and CPU: as [`whole_cpus`], and all of an item onto one CPU where there is
/// room for it. An item of one of the teams goes to a CPU with fewest of its team, if it goes to one.
///
/// # Errors
///
/// As [`whole_cpus`].
pub(crate) fn assign(
    items: &[Item],
    cpus: usize,
    capacity: u64,
    teams: Option<&Teams>,
) -> Result<Vec<Part>, Shortage> {
    let Fit { mut network, mut demands, wholes } = Fit::new(items, cpus, capacity)?;
    let mut parts: Vec<Part> = Vec::with_capacity(items.len());
    for (item, cpu) in wholes {
        network.room[cpu] = 0;
        parts.push(Part { item, cpu, load: capacity });
    }
    for (demand, group) in demands.iter_mut().zip(&network.groups) {
        let wholes = group.items.iter().filter(|&&item| items[item].is_whole()).count();
        *demand -= wholes as u64 * capacity;
    }
    for (place, item) in items.iter().enumerate().filter(|(_, item)| !item.is_whole()) {
        parts.extend(item.pinned(cpus).map(|cpu| Part { item: place, cpu, load: item.load }));
    }
    let flow = network.flow(&demands, &network.supplies());
    spread(items, &network, flow, teams, &mut parts);
    parts.sort_unstable_by_key(|part| (part.item, part.cpu));
    Ok(parts)
}

/// Items that fit, as far as loads may be divided.
struct Fit<'a> {
    network: Network<'a>,
    /// Of the network's groups, in ns.
    demands: Vec<u64>,
    /// Item and CPU.
    wholes: Vec<(usize, usize)>,
}

impl Fit<'_> {
    fn new<'a>(items: &[Item<'a>], cpus: usize, capacity: u64) -> Result<Fit<'a>, Shortage> {
        let network = Network::new(items, cpus, capacity).map_err(|cpu| {
            let pinned = |&item: &usize| items[item].pinned(cpus) == Some(cpu);
            Shortage::Bottleneck { items: (0..items.len()).filter(pinned).collect(), cpus: vec![cpu] }
        })?;
        let demand = |items_of: &[usize]| items_of.iter().map(|&item| items[item].load_of(capacity)).sum();
        let demands: Vec<u64> = network.groups.iter().map(|group| demand(&group.items)).collect();
        let flow = network.flow(&demands, &network.supplies());
        let unserved =
            flow.iter().zip(&demands).position(|(flow, &demand)| flow.iter().sum::<u64>() < demand);
        if let Some(group) = unserved {
            return Err(bottleneck(items, &network, &demands, network.rivals(group, &flow)));
        }
        let wholes = whole::choose(items, &network, &demands, capacity)?;
        Ok(Fit { network, demands, wholes })
    }
}

/// The CPUs of one group if those that may use no others want more than these have: such a set is easy to see. Else
/// the CPUs of all the `rivals`, which always do.
fn bottleneck(items: &[Item], network: &Network, demands: &[u64], rivals: Vec<usize>) -> Shortage {
    let supplies = network.supplies();
    let confined = |inside: &[bool]| {
        let is_inside = |group: &usize| network.groups[*group].domains.iter().all(|&domain| inside[domain]);
        (0..network.groups.len()).filter(is_inside).collect::<Vec<usize>>()
    };
    let domains_of = |groups: &[usize]| {
        let mut inside = vec![false; supplies.len()];
        groups
            .iter()
            .flat_map(|&group| &network.groups[group].domains)
            .for_each(|&domain| inside[domain] = true);
        inside
    };
    let is_short = |inside: &Vec<bool>| {
        let needed: u64 = confined(inside).iter().map(|&group| demands[group]).sum();
        let given: u64 =
            supplies.iter().zip(inside).filter(|(_, inside)| **inside).map(|(given, _)| given).sum();
        needed > given
    };
    let size =
        |group: &usize| network.groups[*group].domains.iter().map(|&at| network.domains[at].cpus.len()).sum();
    let mut singles: Vec<usize> = (0..network.groups.len()).collect();
    singles.sort_by_key(|group| -> usize { size(group) });
    let inside = singles.iter().map(|&group| domains_of(&[group])).find(is_short);
    let inside = inside.unwrap_or_else(|| domains_of(&rivals));

    let mut short_items: Vec<usize> =
        confined(&inside).iter().flat_map(|&group| network.groups[group].items.iter().copied()).collect();
    let domains = network.domains.iter().zip(&inside).filter(|(_, inside)| **inside);
    let short_cpus: BTreeSet<usize> = domains.flat_map(|(domain, _)| domain.cpus.iter().copied()).collect();
    let is_pinned =
        |item: &usize| items[*item].pinned(network.room.len()).is_some_and(|cpu| short_cpus.contains(&cpu));
    short_items.extend((0..items.len()).filter(is_pinned));
    short_items.sort_unstable();
    Shortage::Bottleneck { items: short_items, cpus: short_cpus.into_iter().collect() }
}

/// Divides what flows from groups to domains among items and CPUs: first every item that fits whole on one CPU, the
/// largest first and each where it fits best, then the others wherever something is left.
fn spread(items: &[Item], network: &Network, mut flow: Flow, teams: Option<&Teams>, parts: &mut Vec<Part>) {
    let mut own = vec![Own::default(); teams.map_or(0, |teams| teams.cpus.len())];
    // What is free, by domain, least first.
    let mut free: Vec<BTreeSet<(u64, usize)>> = network
        .domains
        .iter()
        .map(|domain| domain.cpus.iter().map(|&cpu| (network.room[cpu], cpu)).collect())
        .collect();
    let mut waiting: Vec<(usize, usize)> = Vec::new();
    for (number, group) in network.groups.iter().enumerate() {
        waiting
            .extend(group.items.iter().filter(|&&item| !items[item].is_whole()).map(|&item| (item, number)));
    }
    waiting.sort_by_key(|&(item, _)| (Reverse(items[item].load), item));
    waiting.retain(|&(item, number)| {
        let load = items[item].load;
        let group = &network.groups[number];
        let team = teams.and_then(|teams| teams.of(item).map(|team| (team, teams.cpus[team])));
        let find = |most: Option<usize>| {
            group.domains.iter().enumerate().filter(|&(at, _)| flow[number][at] >= load).find_map(
                |(at, &domain)| {
                    let is_open =
                        |cpu: usize| most.zip(team).is_none_or(|(most, (team, _))| own[team].on(cpu) <= most);
                    let cpu = *free[domain].range((load, 0)..).find(|&&(_, cpu)| is_open(cpu))?;
                    Some((at, domain, cpu))
                },
            )
        };
        let best = match team {
            Some((team, cpus)) => own[team].levels(cpus).find_map(|most| find(Some(most))),
            None => find(None),
        };
        let Some((at, domain, (room, cpu))) = best else { return true };
        team.iter().for_each(|&(team, _)| own[team].add(cpu));
        flow[number][at] -= load;
        free[domain].remove(&(room, cpu));
        free[domain].insert((room - load, cpu));
        parts.push(Part { item, cpu, load });
        false
    });
    for (item, number) in waiting {
        let mut left = items[item].load;
        for (at, &domain) in network.groups[number].domains.iter().enumerate() {
            while left > 0
                && flow[number][at] > 0
                && let Some((room, cpu)) = free[domain].pop_last()
            {
                let load = left.min(flow[number][at]).min(room);
                left -= load;
                flow[number][at] -= load;
                free[domain].insert((room - load, cpu));
                parts.push(Part { item, cpu, load });
            }
        }
        debug_assert_eq!(left, 0, "the flow carries every item");
    }
}

#[cfg(test)]
mod tests;
