//! Sets of CPUs, as the kernel's calls take them.

use crate::ids::CpuId;

/// A set of CPUs. Every mask of one machine has the same number of words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpuMask {
    words: Vec<u64>,
}

impl CpuMask {
    /// No CPU of `cpus`.
    pub fn none(cpus: u32) -> CpuMask {
        CpuMask { words: vec![0; cpus.div_ceil(64) as usize] }
    }

    /// These CPUs of `cpus`.
    pub fn of(cpus: u32, members: impl IntoIterator<Item = CpuId>) -> CpuMask {
        let mut mask = CpuMask::none(cpus);
        for cpu in members {
            mask.set(cpu, true);
        }
        mask
    }

    /// Whether `cpu` is in it.
    pub fn has(&self, cpu: CpuId) -> bool {
        self.words.get(cpu.index() / 64).is_some_and(|word| word >> (cpu.0 % 64) & 1 == 1)
    }

    /// Adds `cpu` or takes it away.
    pub fn set(&mut self, cpu: CpuId, member: bool) {
        let (word, bit) = (&mut self.words[cpu.index() / 64], 1 << (cpu.0 % 64));
        if member { *word |= bit } else { *word &= !bit }
    }

    /// Takes `cpu` away; whether it was in it.
    pub fn take(&mut self, cpu: CpuId) -> bool {
        let had = self.has(cpu);
        self.set(cpu, false);
        had
    }

    /// How many CPUs it has.
    pub fn count(&self) -> u32 {
        self.words.iter().map(|word| word.count_ones()).sum()
    }

    /// Whether both have a CPU.
    pub fn meets(&self, other: &CpuMask) -> bool {
        self.words.iter().zip(&other.words).any(|(a, b)| a & b != 0)
    }

    /// Whether it has all of the other's CPUs.
    pub fn holds(&self, part: &CpuMask) -> bool {
        self.words.iter().zip(&part.words).all(|(whole, part)| part & !whole == 0)
    }

    /// Becomes the CPUs that both have. All are of one machine.
    pub fn set_common(&mut self, one: &CpuMask, other: &CpuMask) {
        assert_eq!((self.words.len(), one.words.len()), (one.words.len(), other.words.len()));
        for (word, (a, b)) in self.words.iter_mut().zip(one.words.iter().zip(&other.words)) {
            *word = a & b;
        }
    }

    /// Its first CPU.
    pub fn first(&self) -> Option<CpuId> {
        self.next_common(self, CpuId(0))
    }

    /// Its CPUs, ascending.
    pub fn iter(&self) -> impl Iterator<Item = CpuId> + '_ {
        self.words.iter().zip(0..).flat_map(|(&word, place)| {
            let mut rest = word;
            std::iter::from_fn(move || {
                let bit = rest.trailing_zeros();
                rest &= rest.wrapping_sub(1);
                (bit < 64).then(|| CpuId(place * 64 + bit))
            })
        })
    }

    /// The first CPU of both masks after `last`, beginning again from CPU 0: the kernel's `cpumask_any_and_distribute`.
    pub fn next_common_after(&self, other: &CpuMask, last: CpuId) -> Option<CpuId> {
        self.next_common(other, CpuId(last.0 + 1)).or_else(|| self.next_common(other, CpuId(0)))
    }

    fn next_common(&self, other: &CpuMask, from: CpuId) -> Option<CpuId> {
        let first = from.index() / 64;
        for place in first..self.words.len() {
            let mut common = self.words[place] & other.words[place];
            if place == first {
                common &= u64::MAX << (from.0 % 64);
            }
            if common != 0 {
                return Some(CpuId(place as u32 * 64 + common.trailing_zeros()));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mask(cpus: &[u32]) -> CpuMask {
        CpuMask::of(200, cpus.iter().map(|&cpu| CpuId(cpu)))
    }

    #[test]
    fn members_come_and_go() {
        let mut some = mask(&[0, 63, 64, 199]);
        assert_eq!(some.iter().map(|cpu| cpu.0).collect::<Vec<_>>(), [0, 63, 64, 199]);
        assert_eq!((some.count(), some.first()), (4, Some(CpuId(0))));
        assert!(
            some.take(CpuId(63)) && !some.take(CpuId(63)) && !some.has(CpuId(63)) && !some.has(CpuId(4000))
        );
        assert!(some.meets(&mask(&[199])) && !some.meets(&mask(&[63])));
        assert_eq!(mask(&[]).first(), None);
    }

    #[test]
    fn picks_go_round() {
        let (idle, allowed) = (mask(&[1, 70, 130]), mask(&[1, 2, 130]));
        assert_eq!(idle.next_common_after(&allowed, CpuId(0)), Some(CpuId(1)));
        assert_eq!(idle.next_common_after(&allowed, CpuId(1)), Some(CpuId(130)));
        assert_eq!(idle.next_common_after(&allowed, CpuId(130)), Some(CpuId(1)));
        assert_eq!(idle.next_common_after(&mask(&[2]), CpuId(0)), None);
    }
}
