//! A set of CPU numbers, written as Linux writes it: `0-3,8`.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// A set of CPU numbers below [`CpuSet::LIMIT`], ascending. A bit map behind a shared pointer: a template's thousand
/// tenants hold one affinity, and the planner's question is one bit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct CpuSet(Arc<[u64]>); // the last word is never 0, so that equal sets are equal words

/// Why a text is no CPU list.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CpuSetError {
    /// A part is neither a number nor a range of two.
    #[error("{} is neither a CPU number nor a range like \"0-3\"", crate::quote(.0))]
    Part(String),
    /// A range that ends before it begins.
    #[error("the range {} ends before it begins", crate::quote(.0))]
    Backwards(String),
    /// A number no host has.
    #[error("CPU {0} is beyond the limit of {limit}", limit = CpuSet::LIMIT - 1)]
    TooHigh(u32),
}

impl CpuSet {
    /// CPU numbers are below this (the table's limit).
    pub const LIMIT: u32 = 4096;

    /// Whether `cpu` is in the set.
    pub fn contains(&self, cpu: u32) -> bool {
        self.0.get((cpu / 64) as usize).is_some_and(|word| word >> (cpu % 64) & 1 == 1)
    }

    /// The CPUs, ascending.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = u32> + '_ {
        self.0.iter().enumerate().flat_map(|(index, &word)| {
            let first = 64 * index as u32;
            (0..64).filter(move |bit| word >> bit & 1 == 1).map(move |bit| first + bit)
        })
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The lowest number in the set.
    pub fn first(&self) -> Option<u32> {
        self.iter().next()
    }

    /// The highest number in the set.
    pub fn last(&self) -> Option<u32> {
        self.iter().next_back()
    }

    /// What is in this set and not in the other.
    pub fn difference(&self, other: &CpuSet) -> CpuSet {
        let words = self.0.iter().enumerate();
        Self::from_words(words.map(|(index, word)| word & !other.0.get(index).unwrap_or(&0)).collect())
    }

    /// What is in both.
    pub fn intersection(&self, other: &CpuSet) -> CpuSet {
        Self::from_words(self.0.iter().zip(other.0.iter()).map(|(one, two)| one & two).collect())
    }

    fn from_words(mut words: Vec<u64>) -> CpuSet {
        let used = words.iter().rposition(|word| *word != 0).map_or(0, |last| last + 1);
        words.truncate(used);
        CpuSet(words.into())
    }
}

/// # Panics
///
/// At a number that is not below [`CpuSet::LIMIT`].
impl FromIterator<u32> for CpuSet {
    fn from_iter<I: IntoIterator<Item = u32>>(cpus: I) -> Self {
        let mut words = vec![0; (Self::LIMIT / 64) as usize];
        for cpu in cpus {
            assert!(cpu < Self::LIMIT, "{}", CpuSetError::TooHigh(cpu));
            words[(cpu / 64) as usize] |= 1 << (cpu % 64);
        }
        Self::from_words(words)
    }
}

impl FromStr for CpuSet {
    type Err = CpuSetError;

    /// Linux' list format. The empty text is the empty set.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut ranges = Vec::new();
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let number = |digits: &str| {
                let digits = digits.trim();
                let plain = digits.bytes().all(|byte| byte.is_ascii_digit()); // u32's own parser takes a sign
                digits.parse().ok().filter(|_| plain).ok_or_else(|| CpuSetError::Part(part.to_owned()))
            };
            let (first, last): (u32, u32) = match part.split_once('-') {
                Some((first, last)) => (number(first)?, number(last)?),
                None => (number(part)?, number(part)?),
            };
            if first > last {
                return Err(CpuSetError::Backwards(part.to_owned()));
            }
            if last >= Self::LIMIT {
                return Err(CpuSetError::TooHigh(last));
            }
            ranges.push(first..=last);
        }
        Ok(ranges.into_iter().flatten().collect())
    }
}

impl fmt::Display for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut cpus = self.iter().peekable();
        let mut separator = "";
        while let Some(first) = cpus.next() {
            let mut last = first;
            while cpus.next_if_eq(&(last + 1)).is_some() {
                last += 1;
            }
            match last - first {
                0 => write!(f, "{separator}{first}")?,
                _ => write!(f, "{separator}{first}-{last}")?,
            }
            separator = ",";
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn lists_read_and_print() {
        for (text, printed) in
            [("0-3,8", "0-3,8"), ("3,1,2", "1-3"), ("", ""), (" 5 - 6 , 9", "5-6,9"), ("7-7", "7")]
        {
            assert_eq!(text.parse::<CpuSet>().unwrap().to_string(), printed);
        }
    }

    #[test]
    fn bad_lists_say_what_is_wrong() {
        assert_eq!("0-x".parse::<CpuSet>(), Err(CpuSetError::Part("0-x".into())));
        assert_eq!("+5".parse::<CpuSet>(), Err(CpuSetError::Part("+5".into())));
        assert_eq!("3-1".parse::<CpuSet>(), Err(CpuSetError::Backwards("3-1".into())));
        assert_eq!("0-4294967295".parse::<CpuSet>(), Err(CpuSetError::TooHigh(u32::MAX)));
        assert!(format!("{}-0", "9".repeat(1000)).parse::<CpuSet>().unwrap_err().to_string().len() < 150);
    }

    proptest! {
        /// The bit map against the standard library's set.
        #[test]
        fn behaves_as_a_set(one: [bool; 200], two: BTreeSet<u8>) {
            let one: BTreeSet<u32> = (0..200).filter(|cpu| one[*cpu as usize]).collect();
            let two: BTreeSet<u32> = two.into_iter().map(|cpu| u32::from(cpu) * 16).collect();
            let [a, b] = [&one, &two].map(|set| set.iter().copied().collect::<CpuSet>());
            prop_assert!(a.iter().eq(one.iter().copied()));
            prop_assert!(a.iter().rev().eq(one.iter().rev().copied()));
            prop_assert!((0..CpuSet::LIMIT + 64).all(|cpu| b.contains(cpu) == two.contains(&cpu)));
            prop_assert_eq!((a.len(), a.first(), a.last()), (one.len(), one.first().copied(), one.last().copied()));
            prop_assert_eq!(a.is_empty(), one.is_empty());
            prop_assert_eq!(a.difference(&b), one.difference(&two).copied().collect());
            prop_assert_eq!(b.difference(&a), two.difference(&one).copied().collect());
            prop_assert_eq!(a.intersection(&b), one.intersection(&two).copied().collect());
            prop_assert_eq!(a.to_string().parse::<CpuSet>(), Ok(a));
        }
    }
}
