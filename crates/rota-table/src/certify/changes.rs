//! When the owner of each slot is served: once the CPU is through with changing to it.

use super::violation::Violation;
use crate::layout::{Cpu, Records, Slot};

/// From when on a slot's owner has the CPU.
#[derive(Clone, Copy, Debug)]
pub(super) struct Taken {
    /// In ns from the start of the CPU's length; the slot may have ended by then.
    pub from_ns: u64,
    /// Whether tasks change at the slot's start: another's slot, or idle time, is before it.
    pub changes: bool,
}

/// For every slot of a CPU. The slots must have been found sound.
///
/// A change takes `switch_ns`; one that the slot is too short for goes on in the next. The start of the CPU's length
/// counts as a change whoever has its end: another table may have been in force until then. A CPU that one vCPU has all
/// of the time never sees one.
pub(super) fn check(
    number: u32,
    cpu: &Cpu,
    slots: Records<Slot>,
    switch_ns: u64,
    taken: &mut Vec<Taken>,
) -> Result<(), Violation> {
    if is_whole(cpu, slots) {
        taken.extend(slots.iter().map(|slot| Taken { from_ns: slot.start_ns.into(), changes: false }));
        return Ok(());
    }
    let first = taken.len();
    let through_ns = one_round(slots, switch_ns, 0, taken);
    let changes = taken.drain(first..).filter(|taken| taken.changes).count() as u64;
    let length_ns = u64::from(cpu.length_ns);
    if changes.saturating_mul(switch_ns) > length_ns {
        return Err(Violation::Changes { cpu: number, changes, switch_ns, length_ns });
    }
    // What is left over at the end of a round is so in every later one, since a round has time for all of its changes.
    one_round(slots, switch_ns, through_ns.saturating_sub(length_ns), taken);
    Ok(())
}

/// Whether the CPU has one owner and no idle time.
pub(super) fn is_whole(cpu: &Cpu, slots: Records<Slot>) -> bool {
    let owner = slots.get(0).map(|slot| slot.vcpu);
    let mut until_ns = 0;
    let touch = slots.iter().all(|slot| {
        let touches = slot.start_ns == until_ns && Some(slot.vcpu) == owner;
        until_ns = slot.end_ns;
        touches
    });
    touch && until_ns == cpu.length_ns
}

/// On a CPU that is through with all changes before this round at `through_ns`. When it is with those of this round.
fn one_round(slots: Records<Slot>, switch_ns: u64, mut through_ns: u64, taken: &mut Vec<Taken>) -> u64 {
    let mut before: Option<Slot> = None;
    for slot in slots.iter() {
        let goes_on = |before: Slot| before.vcpu == slot.vcpu && before.end_ns == slot.start_ns;
        let changes = !before.is_some_and(goes_on);
        through_ns = through_ns.max(slot.start_ns.into()) + if changes { switch_ns } else { 0 };
        taken.push(Taken { from_ns: through_ns, changes });
        before = Some(slot);
    }
    through_ns
}
