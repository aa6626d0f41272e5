//! Which vCPUs change places so that no cache is filled more than need be: first over cache domains, then over the CPUs
//! of each (thesis section 7.3, the two phases). The thesis counts vCPUs; here each weighs what it fetches.

use std::collections::{BTreeMap, BTreeSet};

use rota_model::Topology;
use rota_plan::{Seat, VcpuKey};

/// Two vCPUs that change places.
pub type Pair = (VcpuKey, VcpuKey);

/// What is looked at as gained goes on for so long, in ms: those who fill caches change at some time.
const HORIZON_MS: u64 = 500;
/// The lines of a core's private cache, 256 KiB: what any vCPU that moves fetches anew.
const PRIVATE_LINES: u64 = 4_096;
/// The lines of a last-level cache, 20 MiB.
const SHARED_LINES: u64 = 327_680;
/// A place that is filled more than the one with least by no more than this part is not relieved.
const WORTH_PART: u64 = 8;
/// Of what moves at least this part is a relief: the rest only makes another place the fullest.
const MOVED_PART: u64 = 4;

/// So many pairs change places at once at most.
const PAIRS_MAX: usize = 64;

/// What each vCPU fetches in a millisecond; 0 for those that do not matter.
pub type Pressure = BTreeMap<VcpuKey, u64>;

/// A place, and who is there: a cache domain, or a CPU.
type Place = (u32, Vec<usize>);

/// What is planned.
struct Spread<'a> {
    seats: Vec<(VcpuKey, u32)>,
    kind: Vec<&'a Seat>,
    pressure: Vec<u64>,
    domain_of: &'a dyn Fn(u32) -> u32,
    /// Those who may not move.
    fixed: BTreeSet<usize>,
    pairs: Vec<Pair>,
}

/// How much is fetched in a millisecond on each CPU.
pub fn by_cpu(seats: &[Seat], pressure: &Pressure) -> BTreeMap<u32, u64> {
    let mut sums = BTreeMap::new();
    for seat in seats {
        let own = pressure.get(&seat.vcpu).copied().unwrap_or(0) / seat.cpus.len().max(1) as u64;
        seat.cpus.iter().for_each(|&cpu| *sums.entry(cpu).or_insert(0) += own);
    }
    sums
}

/// The pairs that are worth it. `rested` are those that may move; those that are divided over CPUs never do.
pub fn spread(
    seats: &[Seat],
    pressure: &Pressure,
    topology: &Topology,
    rested: &dyn Fn(VcpuKey) -> bool,
) -> Vec<Pair> {
    let domain_of = |cpu: u32| topology.place(cpu).map_or(0, |place| place.cache);
    let single: Vec<&Seat> = seats.iter().filter(|seat| seat.cpus.len() == 1).collect();
    let mut spread = Spread {
        seats: single.iter().map(|seat| (seat.vcpu, seat.cpus[0])).collect(),
        pressure: single.iter().map(|seat| pressure.get(&seat.vcpu).copied().unwrap_or(0)).collect(),
        fixed: (0..single.len()).filter(|&place| !rested(single[place].vcpu)).collect(),
        kind: single,
        domain_of: &domain_of,
        pairs: Vec::new(),
    };
    spread.level(&|_| 0, &domain_of, SHARED_LINES);
    let domains: BTreeSet<u32> = spread.seats.iter().map(|(_, cpu)| domain_of(*cpu)).collect();
    for domain in domains {
        let within = |cpu: u32| u32::from(domain_of(cpu) != domain);
        spread.level(&within, &|cpu| cpu, PRIVATE_LINES);
    }
    spread.pairs
}

impl Spread<'_> {
    /// Those whose `within` is 0, by place.
    fn places(&self, within: &dyn Fn(u32) -> u32, place_of: &dyn Fn(u32) -> u32) -> Vec<Place> {
        let mut places: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
        for (number, (_, cpu)) in self.seats.iter().enumerate().filter(|(_, (_, cpu))| within(*cpu) == 0) {
            places.entry(place_of(*cpu)).or_default().push(number);
        }
        places.into_iter().collect()
    }

    fn sum(&self, place: &Place) -> u64 {
        place.1.iter().map(|&vcpu| self.pressure[vcpu]).sum()
    }

    /// Relieves the place that is filled most, for as long as that is worth it.
    fn level(&mut self, within: &dyn Fn(u32) -> u32, place_of: &dyn Fn(u32) -> u32, cache_lines: u64) {
        while self.pairs.len() < PAIRS_MAX {
            let mut places = self.places(within, place_of);
            places.sort_by_key(|place| (self.sum(place), place.0));
            let ([least, ..], Some(most)) = (&places[..], places.last()) else { return };
            let (low, high) = (self.sum(least), self.sum(most));
            let Some((giver, taker)) = self.best(least, most, (high - low) / 2) else { return };
            let moved = self.pressure[giver] - self.pressure[taker];
            // What the fuller of the two is filled less from then on.
            let gain = high - (high - moved).max(low + moved);
            let cost = self.refetched(giver, high, cache_lines) + self.refetched(taker, low, cache_lines);
            let is_little = (high - low) * WORTH_PART <= high || gain * MOVED_PART < moved;
            if gain * HORIZON_MS <= cost || is_little {
                return;
            }
            self.exchange(giver, taker);
        }
    }

    /// Of the pairs that can change places the one that moves an amount next to `wanted`, and less than twice that.
    fn best(&self, least: &Place, most: &Place, wanted: u64) -> Option<(usize, usize)> {
        let free = |place: &Place| {
            let free = place.1.iter().copied().filter(|vcpu| !self.fixed.contains(vcpu));
            free.collect::<Vec<usize>>()
        };
        let (givers, takers) = (free(most), free(least));
        let mut sated = takers;
        sated.sort_by_key(|&taker| (self.pressure[taker], taker));
        // Of those that are promised the same the one that fetches least.
        let good = givers.into_iter().filter_map(|giver| {
            let is_equal = |taker: &&usize| self.kind[giver].reservation == self.kind[**taker].reservation;
            let taker = *sated.iter().find(is_equal)?;
            let amount = self.pressure[giver].checked_sub(self.pressure[taker])?;
            (amount > 0 && amount < 2 * wanted).then_some((amount.abs_diff(wanted), giver, taker))
        });
        good.min().map(|(_, giver, taker)| (giver, taker))
    }

    /// The lines that a vCPU fetches anew: what it has of a cache is as its part of what comes in.
    fn refetched(&self, vcpu: usize, sum: u64, cache_lines: u64) -> u64 {
        let part = (cache_lines * self.pressure[vcpu]).checked_div(sum).unwrap_or(0);
        part.max(PRIVATE_LINES)
    }

    fn exchange(&mut self, giver: usize, taker: usize) {
        let (one, other) = (self.seats[giver].1, self.seats[taker].1);
        (self.seats[giver].1, self.seats[taker].1) = (other, one);
        self.pairs.push((self.seats[giver].0, self.seats[taker].0));
        let is_far = (self.domain_of)(one) != (self.domain_of)(other);
        // Within a domain the last-level cache keeps what they have: the second phase may still move them.
        if !is_far {
            self.fixed.extend([giver, taker]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rota_model::{CpuPlace, Reservation, Share};

    fn topology(domains: u32, cpus: u32) -> Topology {
        let place =
            |cpu| CpuPlace { cpu, core: cpu, cache: cpu / cpus, node: cpu / cpus, socket: cpu / cpus };
        Topology { places: (0..domains * cpus).map(place).collect() }
    }

    /// So many on each CPU.
    fn seats(cpus: u32, each: u32) -> Vec<Seat> {
        let share = Share::from_fraction(0.2).unwrap();
        let reservation = Reservation { share, latency_ns: 20_000_000, capped: false };
        (0..cpus * each).map(|vcpu| Seat { vcpu: (vcpu, 0), reservation, cpus: vec![vcpu / each] }).collect()
    }

    fn after(seats: &[Seat], pairs: &[Pair]) -> Vec<Seat> {
        let mut seats = seats.to_vec();
        for (one, other) in pairs {
            let at = |key: &VcpuKey| seats.iter().position(|seat| seat.vcpu == *key).unwrap();
            let (one, other) = (at(one), at(other));
            let cpus = seats[one].cpus.clone();
            seats[one].cpus = std::mem::replace(&mut seats[other].cpus, cpus);
        }
        seats
    }

    /// All of the first domain's fill caches: half of them go, and then no CPU has more than its part.
    #[test]
    fn a_full_domain_is_halved_and_each_cpu_has_its_part() {
        let (seats, topology) = (seats(8, 4), topology(2, 4));
        let pressure: Pressure = (0..16).map(|vcpu| ((vcpu, 0), 5_000)).collect();
        let pairs = spread(&seats, &pressure, &topology, &|_| true);
        let cpus = by_cpu(&after(&seats, &pairs), &pressure);
        assert_eq!(cpus.values().copied().collect::<Vec<_>>(), [10_000; 8], "{pairs:?}");
    }

    #[test]
    fn what_is_spread_stays() {
        let (seats, topology) = (seats(8, 4), topology(2, 4));
        let pressure: Pressure =
            (0..32).step_by(2).map(|vcpu| ((vcpu, 0), 5_000 + u64::from(vcpu))).collect();
        assert_eq!(spread(&seats, &pressure, &topology, &|_| true), []);
        assert_eq!(spread(&seats, &Pressure::new(), &topology, &|_| true), []);
        let one = Pressure::from([((0, 0), 50_000)]);
        assert_eq!(spread(&seats, &one, &topology, &|_| true), [], "one has to be somewhere");
    }

    #[test]
    fn little_is_not_worth_a_move() {
        let (seats, topology) = (seats(8, 4), topology(2, 4));
        let pressure: Pressure = (0..4).map(|vcpu| ((vcpu, 0), 10)).collect();
        assert_eq!(spread(&seats, &pressure, &topology, &|_| true), []);
    }

    #[test]
    fn who_has_moved_stays_for_now_and_unequal_ones_do_not_change() {
        let (mut seats, topology) = (seats(8, 4), topology(2, 4));
        let pressure: Pressure = (0..16).map(|vcpu| ((vcpu, 0), 5_000)).collect();
        assert_eq!(spread(&seats, &pressure, &topology, &|vcpu| vcpu.0 >= 16), []);
        seats.iter_mut().skip(16).for_each(|seat| seat.reservation.latency_ns += 1);
        assert_eq!(spread(&seats, &pressure, &topology, &|_| true), []);
    }
}
