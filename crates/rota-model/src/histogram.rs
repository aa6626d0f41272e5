//! A histogram of times in ns whose buckets widen with the value: 16 to an octave, so that a bucket's upper end is
//! at most 1/16 beyond any value in it. The observer's BPF program fills the same buckets.

use serde::{Deserialize, Serialize};

/// Buckets to an octave, as a power of two. The same number is in `observer.h`.
const SUB_BITS: u32 = 4;
const SUB: u64 = 1 << SUB_BITS;
/// Values of 2^40 ns (18 minutes) and more fall into the last bucket.
const OCTAVES: usize = 40 - SUB_BITS as usize + 1;
/// How many buckets there are.
pub const BUCKETS: usize = OCTAVES * SUB as usize;

/// Counts of values by bucket. In JSON: `[[upper_ns, count], ...]`, ascending, buckets that are empty left out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Vec<(u64, u64)>", into = "Vec<(u64, u64)>")]
pub struct Histogram {
    counts: Vec<u64>,
}

impl Default for Histogram {
    fn default() -> Self {
        Histogram { counts: vec![0; BUCKETS] }
    }
}

impl Histogram {
    /// Takes over counts made elsewhere with the same buckets; what is missing counts 0, what is too much is ignored.
    pub fn from_counts(counts: &[u64]) -> Histogram {
        let mut histogram = Histogram::default();
        histogram.counts.iter_mut().zip(counts).for_each(|(mine, theirs)| *mine = *theirs);
        histogram
    }

    /// Counts one value.
    pub fn add(&mut self, value_ns: u64) {
        self.counts[bucket(value_ns)] += 1;
    }

    /// Counts all values of another one too.
    pub fn join(&mut self, other: &Histogram) {
        self.counts.iter_mut().zip(&other.counts).for_each(|(mine, theirs)| *mine += theirs);
    }

    /// How many values were counted.
    pub fn total(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// How many values are certain to be greater than `value_ns`: those in its own bucket are not.
    pub fn above(&self, value_ns: u64) -> u64 {
        self.counts[bucket(value_ns) + 1..].iter().sum()
    }

    /// The upper end of the bucket in which the value at `quantile` (0 ..= 1) lies: at least that part of all values is
    /// not greater. Nothing if no value was counted.
    pub fn quantile(&self, quantile: f64) -> Option<u64> {
        let total = self.total();
        let rank = ((total as f64 * quantile).ceil() as u64).clamp(1, total.max(1));
        let mut seen = 0;
        self.counts
            .iter()
            .position(|count| {
                seen += count;
                seen >= rank
            })
            .map(upper)
    }
}

/// The bucket that `value_ns` belongs to.
fn bucket(value_ns: u64) -> usize {
    if value_ns < SUB {
        return value_ns as usize;
    }
    let octave = value_ns.ilog2() - SUB_BITS;
    let index = (u64::from(octave) + 1) * SUB + ((value_ns >> octave) & (SUB - 1));
    (index as usize).min(BUCKETS - 1)
}

/// The greatest value of a bucket.
fn upper(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    match (bucket / SUB, bucket % SUB) {
        (0, value) => value,
        (octave, sub) => ((SUB + sub + 1) << (octave - 1)) - 1,
    }
}

impl From<Vec<(u64, u64)>> for Histogram {
    fn from(pairs: Vec<(u64, u64)>) -> Self {
        let mut histogram = Histogram::default();
        for (upper_ns, count) in pairs {
            histogram.counts[bucket(upper_ns)] += count;
        }
        histogram
    }
}

impl From<Histogram> for Vec<(u64, u64)> {
    fn from(histogram: Histogram) -> Self {
        let counted = histogram.counts.into_iter().enumerate().filter(|(_, count)| *count > 0);
        counted.map(|(bucket, count)| (upper(bucket), count)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn quantiles_of_known_values() {
        let mut histogram = Histogram::default();
        assert_eq!(histogram.quantile(0.5), None);
        (1..=10).for_each(|value| histogram.add(value));
        assert_eq!(histogram.quantile(0.0), Some(1));
        assert_eq!(histogram.quantile(0.5), Some(5));
        assert_eq!(histogram.quantile(0.99), Some(10));
        assert_eq!(histogram.quantile(1.0), Some(10));
    }

    #[test]
    fn what_is_above_is_counted() {
        let mut histogram = Histogram::default();
        [5, 1_000, 1_001, 2_000, u64::MAX].into_iter().for_each(|value| histogram.add(value));
        assert_eq!([0, 5, 1_000, 1_500, u64::MAX].map(|value| histogram.above(value)), [5, 4, 2, 2, 0]);
    }

    #[test]
    fn joined_counts_are_those_of_both() {
        let (mut one, mut two, mut both) = <(Histogram, Histogram, Histogram)>::default();
        for value in [1, 5, 5, 3_000] {
            one.add(value);
            both.add(value);
        }
        for value in [5, 70_000] {
            two.add(value);
            both.add(value);
        }
        one.join(&two);
        assert_eq!(one, both);
    }

    #[test]
    fn buckets_join_without_gap_or_overlap() {
        for index in 0..BUCKETS - 1 {
            assert_eq!(bucket(upper(index)), index);
            assert_eq!(bucket(upper(index) + 1), index + 1);
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    proptest! {
        #[test]
        fn a_bucket_end_is_near_its_values(value in 0u64..1 << 40) {
            let end = upper(bucket(value));
            prop_assert!(end >= value && end - value <= value / SUB);
        }

        #[test]
        fn json_keeps_every_count(values in prop::collection::vec(any::<u64>(), 0..50)) {
            let mut histogram = Histogram::default();
            values.iter().for_each(|value| histogram.add(*value));
            let text = serde_json::to_string(&histogram).unwrap();
            prop_assert_eq!(&serde_json::from_str::<Histogram>(&text).unwrap(), &histogram);
            prop_assert_eq!(histogram.total(), values.len() as u64);
        }
    }
}
