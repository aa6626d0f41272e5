//! The timetable that a guest is shown, as text: when its own vCPUs have slots, and how the host's time follows from
//! the guest's.
//!
//! ```text
//! rota-timetable 1
//! generation 12
//! from 8123000000
//! clock realtime 1764263877000123456
//! vcpu 0 of 20540520: 0-5000000 10270260-15270260
//! vcpu 1 of 20540520: 5000000-10000000
//! end
//! ```
//!
//! All times are in ns. Slots are in the host's CLOCK_MONOTONIC, and repeat from its zero on. `clock realtime` says
//! what the host's CLOCK_REALTIME was at that zero; `clock own` is written where reader and host are one machine. A
//! vCPU that is not listed has no slots. The last line shows that the text is whole.
//!
//! Over vsock a host sends one text after the other, each when it has changed, and [`NO_TIMETABLE`] for none.

use std::fmt;
use std::str::FromStr;

use crate::own::OwnSlots;

/// The first line: what it is, in which version.
const FIRST: &str = "rota-timetable 1";

/// The vsock port at which a host sends timetables. Ports below 1024 are root's, so no other user answers there.
pub const VSOCK_PORT: u32 = 987;
/// What is sent where no timetable is in force.
pub const NO_TIMETABLE: &str = "none\n";

/// The most slots of all vCPUs together.
const SLOTS_MAX: usize = 1 << 16;
/// The most vCPUs.
const VCPUS_MAX: u32 = 1 << 10;

/// A tenant's own slots, and since when they hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timetable {
    /// The number of the table that they are of.
    pub generation: u64,
    /// From when on they hold, by the host's CLOCK_MONOTONIC, in ns.
    pub from_ns: u64,
    /// How the host's time follows from the reader's.
    pub clock: HostClock,
    /// The slots of each vCPU that has any, by ascending numbers.
    pub vcpus: Vec<OwnSlots>,
}

/// How the host's CLOCK_MONOTONIC follows from clocks that a guest has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostClock {
    /// From the host's CLOCK_REALTIME, which was this at CLOCK_MONOTONIC's zero, in ns.
    Realtime(i64),
    /// It is the reader's own.
    Own,
}

/// Why a text is no timetable: which line, and what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {what}")]
pub struct TextError {
    /// From 1 on.
    pub line: usize,
    /// What is wrong, and the mend.
    pub what: String,
}

impl fmt::Display for Timetable {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(out, "{FIRST}\ngeneration {}\nfrom {}", self.generation, self.from_ns)?;
        match self.clock {
            HostClock::Realtime(zero_ns) => writeln!(out, "clock realtime {zero_ns}")?,
            HostClock::Own => writeln!(out, "clock own")?,
        }
        for OwnSlots { index, length_ns, slots } in &self.vcpus {
            write!(out, "vcpu {index} of {length_ns}:")?;
            slots.iter().try_for_each(|(start_ns, end_ns)| write!(out, " {start_ns}-{end_ns}"))?;
            writeln!(out)?;
        }
        writeln!(out, "end")
    }
}

impl FromStr for Timetable {
    type Err = TextError;

    /// Reads a text of anybody's, in time linear in its length.
    fn from_str(text: &str) -> Result<Timetable, TextError> {
        let mut lines = Lines { lines: text.lines().map(str::trim_end), number: 0 };
        let first = lines.next("the file is empty; wait until the host has written it, or copy it again")?;
        if first != FIRST {
            return Err(lines.error(format!(
                "is not \"{FIRST}\"; name a timetable that this version of Rota has published"
            )));
        }
        let generation = lines.field("generation ", "a number, as in \"generation 12\"")?;
        let from_ns = lines.field("from ", "a time in ns, as in \"from 8123000000\"")?;
        let clock = lines.clock()?;
        let mut vcpus: Vec<OwnSlots> = Vec::new();
        let mut room = SLOTS_MAX;
        loop {
            let line = lines.next("the file ends without a line \"end\"; it was cut off: copy it again")?;
            if line == "end" {
                break;
            }
            let own = vcpu(line, room).map_err(|what| lines.error(what))?;
            room -= own.slots.len();
            if vcpus.last().is_some_and(|last| last.index >= own.index) {
                return Err(lines.error(format!("vcpu {} is not after the one before; sort them", own.index)));
            }
            vcpus.push(own);
        }
        match lines.lines.next() {
            Some(_) => {
                lines.number += 1;
                Err(lines.error("something follows the line \"end\"; remove it".to_owned()))
            }
            None => Ok(Timetable { generation, from_ns, clock, vcpus }),
        }
    }
}

/// Lines with their numbers.
struct Lines<I> {
    lines: I,
    number: usize,
}

impl<'t, I: Iterator<Item = &'t str>> Lines<I> {
    fn error(&self, what: String) -> TextError {
        TextError { line: self.number, what }
    }

    fn next(&mut self, without: &str) -> Result<&'t str, TextError> {
        self.number += 1;
        self.lines.next().ok_or_else(|| self.error(without.to_owned()))
    }

    /// A line that is a name and a number.
    fn field(&mut self, name: &str, mend: &str) -> Result<u64, TextError> {
        let wanted = format!("is not {mend}; write that");
        let line = self.next(&wanted)?;
        let number = line.strip_prefix(name).and_then(|number| number.parse().ok());
        number.ok_or_else(|| self.error(wanted))
    }

    fn clock(&mut self) -> Result<HostClock, TextError> {
        let wanted = "is neither \"clock realtime NS\" nor \"clock own\"; write one of them";
        let line = self.next(wanted)?;
        if line == "clock own" {
            return Ok(HostClock::Own);
        }
        let zero_ns = line.strip_prefix("clock realtime ").and_then(|zero_ns| zero_ns.parse().ok());
        zero_ns.map(HostClock::Realtime).ok_or_else(|| self.error(wanted.to_owned()))
    }
}

/// One vCPU's line, with at most `room` slots.
fn vcpu(line: &str, room: usize) -> Result<OwnSlots, String> {
    let (head, tail) = line
        .strip_prefix("vcpu ")
        .and_then(|line| line.split_once(':'))
        .ok_or("is neither \"end\" nor a vCPU's slots, as in \"vcpu 0 of 1000: 0-500\"; write one of them")?;
    let (index, length_ns) = head
        .split_once(" of ")
        .and_then(|(index, length)| Some((index.parse().ok()?, length.parse::<u32>().ok()?)))
        .filter(|(_, length_ns)| *length_ns > 0)
        .ok_or("has no number and length in ns below 2^32, as in \"vcpu 0 of 1000: 0-500\"; write them")?;
    if index >= VCPUS_MAX {
        return Err(format!("vcpu {index} is beyond {}; write a lower number", VCPUS_MAX - 1));
    }
    let mut slots = Vec::new();
    let mut after_ns = 0;
    for slot in tail.split_whitespace() {
        let times =
            slot.split_once('-').and_then(|(start, end)| Some((start.parse().ok()?, end.parse().ok()?)));
        let Some((start_ns, end_ns)) = times else {
            return Err(format!("{slot:?} is no slot; write its start and end in ns, as in 0-500"));
        };
        let touches = !slots.is_empty() && start_ns == after_ns;
        if touches || start_ns < after_ns || end_ns <= start_ns || end_ns > u64::from(length_ns) {
            return Err(format!(
                "the slot {slot} is not between {after_ns} and {length_ns} ns with a gap before it; sort slots, and \
                 write those that touch as one"
            ));
        }
        if slots.len() == room {
            return Err(format!("there are more than {SLOTS_MAX} slots; have the host plan longer ones"));
        }
        slots.push((start_ns, end_ns));
        after_ns = end_ns;
    }
    if slots.is_empty() {
        return Err("has no slot; leave the vCPU out".to_owned());
    }
    Ok(OwnSlots { index, length_ns: length_ns.into(), slots })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timetable() -> Timetable {
        let own =
            |index, slots: &[(u64, u64)]| OwnSlots { index, length_ns: 20_540_520, slots: slots.to_vec() };
        Timetable {
            generation: 12,
            from_ns: 8_123_000_000,
            clock: HostClock::Realtime(-5),
            vcpus: vec![own(0, &[(0, 5_000_000), (10_270_260, 20_540_520)]), own(2, &[(5, 6)])],
        }
    }

    #[test]
    fn what_is_written_is_read() {
        for clock in [HostClock::Realtime(-5), HostClock::Realtime(i64::MAX), HostClock::Own] {
            let timetable = Timetable { clock, ..timetable() };
            assert_eq!(timetable.to_string().parse(), Ok(timetable));
        }
    }

    #[test]
    fn a_text_that_is_cut_off_anywhere_is_refused() {
        let text = timetable().to_string();
        for length in 0..text.len() - 1 {
            assert!(text[..length].parse::<Timetable>().is_err(), "{length}");
        }
    }

    #[test]
    fn what_is_wrong_is_named_with_its_line_and_the_mend() {
        let text = timetable().to_string();
        let refused = |from: &str, to: &str| {
            assert!(text.contains(from), "{from}");
            text.replacen(from, to, 1).parse::<Timetable>().unwrap_err().to_string()
        };
        assert!(
            refused("timetable 1", "timetable 2").starts_with("line 1: is not \"rota-timetable 1\"; name")
        );
        assert!(refused("generation 12", "generation x").starts_with("line 2: is not a number"));
        assert!(refused("realtime -5", "realtime").starts_with("line 4: is neither"));
        assert!(refused("0-5000000", "0_5").starts_with("line 5: \"0_5\" is no slot; write"));
        assert!(refused("0-5000000", "7-7").contains("the slot 7-7 is not between 0 and 20540520 ns"));
        assert!(refused("0-5000000", "0-10270260").contains("10270260-20540520 is not between"));
        assert!(refused("10270260-20540520", "10270260-20540521").contains("20540521"));
        assert!(refused("vcpu 2", "vcpu 0").starts_with("line 6: vcpu 0 is not after the one before; sort"));
        assert!(refused("vcpu 2", "vcpu 2000").contains("beyond 1023"));
        assert!(refused("of 20540520", "of 0").contains("length in ns"));
        assert!(refused(" 5-6", "").contains("leave the vCPU out"));
        assert!(refused("end\n", "end\nvcpu").starts_with("line 8: something follows"));
        assert!(refused("end\n", "").starts_with("line 7: the file ends without"));
    }

    #[test]
    fn slots_have_a_bound() {
        let many: String = (0..SLOTS_MAX + 1).map(|slot| format!(" {}-{}", 2 * slot, 2 * slot + 1)).collect();
        let text = format!("{FIRST}\ngeneration 1\nfrom 0\nclock own\nvcpu 0 of 1000000:{many}\nend\n");
        assert!(text.parse::<Timetable>().unwrap_err().what.contains("more than 65536 slots"));
    }
}
