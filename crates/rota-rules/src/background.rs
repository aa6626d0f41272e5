//! Where background tenants run: their threads are spread over the CPUs in proportion to what each CPU has left for
//! them (thesis section 4.3: the background tier is re-partitioned by the idle time measured over the last rounds).

use rota_sched::RING;

/// So many entries must change before a new ring is worth its moves.
const CHANGE_MIN: usize = RING / 16;

/// Remembers the ring in force.
#[derive(Debug, Default)]
pub struct Spread {
    ring: Vec<u32>,
}

impl Spread {
    /// The new ring, if it differs enough from the one before. `left` has each CPU's idle and background time, in any
    /// unit; without any CPU there is no ring.
    pub fn update(&mut self, left: &[(u32, u64)]) -> Option<&[u32]> {
        let ring = ring(left);
        if self.ring.len() == ring.len() && moved(&self.ring, &ring) < CHANGE_MIN {
            return None;
        }
        self.ring = ring;
        (!self.ring.is_empty()).then_some(&self.ring)
    }
}

/// How many entries of one ring have to change hands to make the other.
fn moved(one: &[u32], other: &[u32]) -> usize {
    let mut rest = one.to_vec();
    other.iter().filter(|cpu| !take(&mut rest, **cpu)).count()
}

fn take(cpus: &mut Vec<u32>, cpu: u32) -> bool {
    let place = cpus.iter().position(|other| *other == cpu);
    place.map(|place| cpus.swap_remove(place)).is_some()
}

/// Each CPU as often as its part of the time asks for, by largest remainders, and evenly interleaved, so that threads
/// that come one after the other do not land on one CPU.
fn ring(left: &[(u32, u64)]) -> Vec<u32> {
    let total: u128 = left.iter().map(|(_, time)| u128::from(*time)).sum();
    // Nothing left anywhere: equal parts of the floor.
    let time = |time: u64| if total == 0 { 1 } else { u128::from(time) };
    let total = if total == 0 { left.len() as u128 } else { total };

    let mut counts: Vec<(u32, usize, u128)> = left
        .iter()
        .map(|&(cpu, own)| {
            let entries = time(own) * RING as u128;
            (cpu, (entries / total) as usize, entries % total)
        })
        .collect();
    let given: usize = counts.iter().map(|(_, count, _)| count).sum();
    counts.sort_by_key(|&(cpu, _, remainder)| (std::cmp::Reverse(remainder), cpu));
    for (_, count, _) in counts.iter_mut().take(RING - given.min(RING)) {
        *count += 1;
    }

    // Entry k of n lies at (2k + 1) / 2n of the way round.
    let place = |k: usize, n: usize| ((2 * k + 1) << 32) / (2 * n);
    let mut places: Vec<(usize, u32)> =
        counts.iter().flat_map(|&(cpu, n, _)| (0..n).map(move |k| (place(k, n), cpu))).collect();
    places.sort_unstable();
    places.into_iter().map(|(_, cpu)| cpu).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn count(ring: &[u32], cpu: u32) -> usize {
        ring.iter().filter(|entry| **entry == cpu).count()
    }

    #[test]
    fn cpus_get_entries_in_proportion_and_interleaved() {
        let ring = ring(&[(0, 300), (1, 100), (2, 0)]);
        assert_eq!((count(&ring, 0), count(&ring, 1), count(&ring, 2)), (RING * 3 / 4, RING / 4, 0));
        assert!(ring.windows(4).all(|four| count(four, 1) <= 2 && count(four, 0) >= 2));
    }

    #[test]
    fn a_saturated_host_shares_its_floor_equally() {
        let ring = ring(&[(4, 0), (5, 0)]);
        assert_eq!((count(&ring, 4), count(&ring, 5)), (RING / 2, RING / 2));
        assert!(super::ring(&[]).is_empty());
    }

    #[test]
    fn small_changes_move_nothing() {
        let mut spread = Spread::default();
        assert_eq!(spread.update(&[(0, 100), (1, 100)]).unwrap().len(), RING);
        assert_eq!(spread.update(&[(0, 103), (1, 100)]), None);
        assert!(spread.update(&[(0, 200), (1, 100)]).is_some());
        assert_eq!(spread.update(&[]), None);
    }

    proptest! {
        #[test]
        fn every_ring_is_full_and_fair(left in prop::collection::btree_map(0..200u32, any::<u64>(), 1..100)) {
            let left: Vec<(u32, u64)> = left.into_iter().collect();
            let ring = ring(&left);
            prop_assert_eq!(ring.len(), RING);
            let total: u128 = left.iter().map(|(_, time)| u128::from(*time)).sum();
            for &(cpu, time) in left.iter().filter(|_| total > 0) {
                let exact = u128::from(time) * RING as u128 / total;
                prop_assert!((count(&ring, cpu) as u128).abs_diff(exact) <= 1);
            }
        }
    }
}
