//! A vCPU that fits on no CPU, cut into pieces that do: C=D semi-partitioning (Burns, Davis, Wang and Zhang 2012:
//! Partitioned EDF scheduling for multiprocessors using a C=D task splitting scheme; thesis section 5.3).
//!
//! The pieces of one period run one after another, each on its own CPU. All but the last have a deadline that equals
//! their budget, so they run at once from their release; the next piece is released when they are done. So no two ever
//! run at the same time, whatever else their CPUs have to do.

use std::cmp::Reverse;

use crate::edf::{check, largest_fixed};
use crate::period::{HYPERPERIOD_NS, lcm};
use crate::piece::{Load, Piece};
use crate::timetable::VCPU_CPUS_MAX;

/// So many CPUs with most room are tried for each piece.
const TRIED: usize = 8;

/// What is to be cut.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Uncut {
    /// T in ns.
    pub period: u64,
    /// What the pieces have to give in a period, in ns.
    pub net: u64,
    /// What each piece takes beyond what it gives, in ns.
    pub cost: u64,
    /// No piece is shorter, in ns; more than `cost`.
    pub least: u64,
}

/// The pieces and the places in `loads` of the CPUs that take them, in the order in which they run; none if no cut is
/// found. `allowed` are the places that may be taken; `distance` says how far two of them are from each other.
///
/// Greedy: the rest goes to the nearest CPU that takes all of it; if there is none, the CPU that takes most of it gets
/// as much as it can, which also leaves the least to find room for. So pieces, and with them migrations, are few.
pub(crate) fn split(
    uncut: &Uncut,
    loads: &[Load],
    allowed: &[usize],
    distance: impl Fn(usize, usize) -> u32,
) -> Option<Vec<(usize, Piece)>> {
    let Uncut { period, cost, least, .. } = *uncut;
    let rounds = HYPERPERIOD_NS / period;
    let mut cuts: Vec<(usize, Piece)> = Vec::new();
    let (mut offset, mut left) = (0, uncut.net);
    while cuts.len() < VCPU_CPUS_MAX {
        let is_open = |place: &&usize| cuts.iter().all(|(taken, _)| taken != *place);
        let far = |place: usize| cuts.last().map_or(0, |&(last, _)| distance(last, place));
        if !cuts.is_empty() {
            let rest = Piece { period, offset, deadline: period.checked_sub(offset)?, budget: left + cost };
            if rest.deadline < rest.budget {
                return None;
            }
            let roomy = allowed.iter().filter(is_open).filter(|&&place| loads[place].free >= rest.load());
            let nearest = first(TRIED, roomy.map(|&place| (far(place), loads[place].free, place)).collect());
            if let Some((.., place)) = nearest.into_iter().find(|&(.., place)| takes(&loads[place], rest)) {
                cuts.push((place, rest));
                return Some(cuts);
            }
        }
        let open = allowed.iter().filter(is_open).filter(|&&place| loads[place].free / rounds >= least);
        let open = open.map(|&place| (Reverse(loads[place].free), far(place), place)).collect();
        let mut roomiest = first(8 * TRIED, open);
        roomiest.dedup_by_key(|&mut (.., place)| &loads[place].pieces);
        roomiest.truncate(TRIED);
        // What is left over has to be worth a piece as well.
        let most = (left + 2 * cost).saturating_sub(least);
        let (budget, _, place) = roomiest
            .into_iter()
            .map(|(_, far, place)| (largest(&loads[place], period, offset, most), Reverse(far), place))
            .max_by_key(|&(budget, near, place)| (budget, near, Reverse(place)))?;
        if budget < least {
            return None;
        }
        cuts.push((place, Piece::fixed(period, offset, budget)));
        offset += budget;
        left -= budget - cost;
    }
    None
}

/// The first `count` in order.
pub(crate) fn first<T: Ord>(count: usize, mut entries: Vec<T>) -> Vec<T> {
    if entries.len() > count {
        entries.select_nth_unstable(count);
        entries.truncate(count);
    }
    entries.sort_unstable();
    entries
}

/// Whether the load has room for the piece and can serve it beside the others.
fn takes(load: &Load, piece: Piece) -> bool {
    let with = || load.pieces.iter().copied().chain([piece]).collect::<Vec<_>>();
    piece.load() <= load.free && check(&with(), lcm(load.length_ns, piece.period)).is_ok()
}

/// The largest fixed piece that the load has room for and can serve beside the others.
fn largest(load: &Load, period: u64, offset: u64, most: u64) -> u64 {
    let most = most.min(load.free / (HYPERPERIOD_NS / period));
    largest_fixed(&load.pieces, lcm(load.length_ns, period), period, offset, most)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CPU: u64 = HYPERPERIOD_NS;

    /// CPUs that each carry one task of (budget, period).
    fn loads(tasks: &[(u64, u64)]) -> Vec<Load> {
        let load = |(vcpu, &(budget, period)): (u32, &(u64, u64))| {
            let mut load = Load::new(CPU);
            load.add(vcpu, Piece::whole(period, budget)).unwrap();
            load
        };
        (0..).zip(tasks).map(load).collect()
    }

    fn uncut(net: u64, period: u64) -> Uncut {
        Uncut { period, net, cost: 0, least: 1 }
    }

    /// The thesis' running example (section 5.3): three of 0.6 on two CPUs, here with all that the second CPU has left
    /// first.
    #[test]
    fn three_of_0_6_on_two_cpus() {
        let loads = loads(&[(CPU / 20 * 3, CPU / 4), (CPU / 5 * 3, CPU)]);
        let cuts = split(&uncut(CPU / 10 * 3, CPU / 2), &loads, &[0, 1], |_, _| 1).unwrap();
        let rest = Piece { period: CPU / 2, offset: CPU / 5, deadline: CPU / 2 - CPU / 5, budget: CPU / 10 };
        assert_eq!(cuts, [(1, Piece::fixed(CPU / 2, 0, CPU / 5)), (0, rest)]);
    }

    /// 17 of 0.94 on 16 CPUs: the last in as many pieces as there are CPUs.
    #[test]
    fn seventeen_of_0_94_on_sixteen_cpus() {
        let budget = CPU / 100 * 94;
        let loads = loads(&[(budget, CPU); 16]);
        let places: Vec<usize> = (0..16).collect();
        let cuts = split(&uncut(budget, CPU), &loads, &places, |_, _| 1).unwrap();
        assert_eq!(cuts.len(), 16);
        assert_eq!(cuts.iter().map(|(_, piece)| piece.budget).sum::<u64>(), budget);
        assert!(cuts.is_sorted_by(|(_, one), (_, next)| one.offset + one.budget == next.offset));
        assert_eq!(split(&uncut(budget, CPU), &loads[..15], &places[..15], |_, _| 1), None);
    }

    #[test]
    fn the_nearest_cpu_gets_the_rest_and_none_that_is_not_allowed() {
        let loads = loads(&[(CPU / 2, CPU), (CPU / 10 * 6, CPU), (CPU / 10 * 6, CPU), (1, CPU)]);
        let places = |allowed: &[usize]| {
            let near = |one: usize, other: usize| if one + other == 2 { 0 } else { 1 };
            let cuts = split(&uncut(CPU / 10 * 6, CPU), &loads, allowed, near);
            cuts.map(|cuts| cuts.into_iter().map(|(place, _)| place).collect::<Vec<_>>())
        };
        assert_eq!(places(&[0, 1, 2]), Some(vec![0, 2]));
        assert_eq!(places(&[0, 1]), Some(vec![0, 1]));
        assert_eq!(places(&[1]), None);
    }

    /// What a piece costs it does not give, and none is so short that it would hardly give anything.
    #[test]
    fn pieces_pay_for_themselves() {
        let (half, cost) = (CPU / 2, 1_000);
        let loads = loads(&[(half, CPU), (half, CPU)]);
        let cut = |net| split(&Uncut { period: CPU, net, cost, least: 5_000 }, &loads, &[0, 1], |_, _| 1);
        let most = CPU - 2 * cost;
        assert_eq!(cut(most).unwrap().iter().map(|(_, piece)| piece.budget).sum::<u64>(), CPU);
        assert_eq!(cut(most + 1), None);
        let cuts = cut(half - cost + 1).unwrap();
        assert_eq!(cuts.iter().map(|(_, piece)| piece.budget).collect::<Vec<_>>(), [half - 3_999, 5_000]);
    }
}
