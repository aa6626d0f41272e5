//! A number that stands for every event of a run: two runs with the same one went the same way.

use crate::ids::{CpuId, TaskId};
use crate::machine::{Machine, Theft};
use crate::observe::{Event, Observer};

/// The digest of all events so far, with their times: each word is mixed in by exclusive or, a multiplication and a
/// rotation, all of which can be undone, so that no single change is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Digest {
    value: u64,
    events: u64,
}

impl Default for Digest {
    fn default() -> Digest {
        Digest { value: 0xcbf2_9ce4_8422_2325, events: 0 }
    }
}

impl Digest {
    /// The number.
    pub fn value(&self) -> u64 {
        self.value
    }

    /// How many events it stands for.
    pub fn events(&self) -> u64 {
        self.events
    }

    fn add(&mut self, word: u64) {
        // A word at a time, its high half folded in first: a multiplication only carries upwards.
        self.value = (self.value ^ word ^ (word >> 32)).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(23);
    }
}

/// An event in three words.
fn words(event: Event) -> [u64; 3] {
    let of = |kind: u64, TaskId(task): TaskId, more: u64| [kind, task.into(), more];
    match event {
        Event::Born(task) => of(1, task, 0),
        Event::Woken(task) => of(2, task, 0),
        Event::Runs(CpuId(cpu), task) => of(3, task, cpu.into()),
        Event::Stops(CpuId(cpu), task, runnable) => of(4, task, u64::from(cpu) << 1 | u64::from(runnable)),
        Event::Died(task) => of(5, task, 0),
        Event::Stolen(CpuId(cpu), Theft::Interrupt, ns) => [6, cpu.into(), ns],
        Event::Stolen(CpuId(cpu), Theft::SoftInterrupt, ns) => [7, cpu.into(), ns],
        Event::Stolen(CpuId(cpu), Theft::Steal, ns) => [8, cpu.into(), ns],
        Event::Hotplug(CpuId(cpu), online) => [9, cpu.into(), online.into()],
        Event::Work(task, amount) => of(10, task, amount),
        Event::Latency(task, ns) => of(11, task, ns),
    }
}

impl Observer for Digest {
    #[inline(always)]
    fn observe(&mut self, machine: &Machine, event: Event) {
        self.events += 1;
        self.add(machine.now_ns());
        words(event).into_iter().for_each(|word| self.add(word));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(words: &[u64]) -> u64 {
        let mut digest = Digest::default();
        words.iter().for_each(|word| digest.add(*word));
        digest.value()
    }

    #[test]
    fn every_bit_and_the_order_count() {
        for bit in 0..64 {
            assert_ne!(digest(&[0, 0, 0]), digest(&[1 << bit, 0, 0]), "bit {bit}");
            assert_ne!(digest(&[1 << bit, 0, 0]), digest(&[0, 1 << bit, 0]), "bit {bit}");
        }
        let events = [Event::Woken(TaskId(3)), Event::Runs(CpuId(0), TaskId(3)), Event::Died(TaskId(3))];
        assert_ne!(words(events[0]), words(events[1]));
        assert_ne!(words(events[0]), words(events[2]));
    }
}
