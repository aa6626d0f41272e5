//! A set of CPU numbers, written as Linux writes it: `0-3,8`.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

/// A set of CPU numbers below [`CpuSet::LIMIT`], ascending.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct CpuSet(BTreeSet<u32>);

/// Why a text is no CPU list.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CpuSetError {
    /// A part is neither a number nor a range of two.
    #[error("`{0}` is neither a CPU number nor a range like `0-3`")]
    Part(String),
    /// A range that ends before it begins.
    #[error("the range `{0}` ends before it begins")]
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
        self.0.contains(&cpu)
    }

    /// The CPUs, ascending.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = u32> + '_ {
        self.0.iter().copied()
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The highest number in the set.
    pub fn last(&self) -> Option<u32> {
        self.0.last().copied()
    }

    /// What is in this set and not in the other.
    pub fn difference(&self, other: &CpuSet) -> CpuSet {
        CpuSet(self.0.difference(&other.0).copied().collect())
    }

    /// What is in both.
    pub fn intersection(&self, other: &CpuSet) -> CpuSet {
        CpuSet(self.0.intersection(&other.0).copied().collect())
    }
}

impl FromIterator<u32> for CpuSet {
    fn from_iter<I: IntoIterator<Item = u32>>(cpus: I) -> Self {
        CpuSet(cpus.into_iter().collect())
    }
}

impl FromStr for CpuSet {
    type Err = CpuSetError;

    /// Linux' list format. The empty text is the empty set.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut cpus = BTreeSet::new();
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let number = |digits: &str| {
                digits.trim().parse::<u32>().map_err(|_| CpuSetError::Part(part.to_owned()))
            };
            let (first, last) = match part.split_once('-') {
                Some((first, last)) => (number(first)?, number(last)?),
                None => (number(part)?, number(part)?),
            };
            if first > last {
                return Err(CpuSetError::Backwards(part.to_owned()));
            }
            if last >= Self::LIMIT {
                return Err(CpuSetError::TooHigh(last));
            }
            cpus.extend(first..=last);
        }
        Ok(CpuSet(cpus))
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
        assert_eq!("3-1".parse::<CpuSet>(), Err(CpuSetError::Backwards("3-1".into())));
        assert_eq!("0-4294967295".parse::<CpuSet>(), Err(CpuSetError::TooHigh(u32::MAX)));
    }
}
