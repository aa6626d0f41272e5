//! When the vCPUs of a guest have their slots: what a host that runs by a timetable can tell it.

/// The slots of a guest's vCPUs, and of nobody else.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Timetable {
    vcpus: Vec<Slots>,
}

/// The slots of one vCPU on all CPUs, ascending, in a time that repeats from CLOCK_MONOTONIC's zero on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Slots {
    length_ns: u64,
    slots: Vec<(u64, u64)>,
}

/// Where a time is among a vCPU's slots. Times are absolute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// In a slot, until then; slots without a gap between them are one.
    In { until_ns: u64 },
    /// Between two, until the next one begins.
    Out { from_ns: u64 },
}

impl Timetable {
    /// One in which nobody has a slot yet.
    pub fn new(vcpus: u32) -> Timetable {
        Timetable { vcpus: vec![Slots::default(); vcpus as usize] }
    }

    /// Sets the slots of a vCPU, as pairs of start and end in ns that repeat every `length_ns`, ascending and with gaps
    /// between them.
    ///
    /// # Panics
    ///
    /// If there is no such vCPU, or the slots are not so.
    pub fn set(&mut self, vcpu: u32, length_ns: u64, slots: Vec<(u64, u64)>) {
        let times: Vec<u64> = slots.iter().flat_map(|(start_ns, end_ns)| [*start_ns, *end_ns]).collect();
        let fit =
            times.is_sorted_by(|one, next| one < next) && times.last().is_none_or(|end| *end <= length_ns);
        assert!(fit, "slots ascend within {length_ns} ns: {slots:?}");
        self.vcpus[vcpu as usize] = Slots { length_ns, slots };
    }

    /// Where a time is among a vCPU's slots; none if it has no slots, or nothing but one.
    pub(super) fn at(&self, vcpu: usize, now_ns: u64) -> Option<Moment> {
        let Slots { length_ns, slots } = self.vcpus.get(vcpu)?;
        let (first, last) = (slots.first()?, slots.last()?);
        let wraps = first.0 == 0 && last.1 == *length_ns;
        if wraps && slots.len() == 1 {
            return None;
        }
        let round_ns = now_ns - now_ns % length_ns;
        let place = slots.partition_point(|(_, end_ns)| round_ns + end_ns <= now_ns);
        let Some(&(start_ns, end_ns)) = slots.get(place) else {
            return Some(Moment::Out { from_ns: round_ns + length_ns + first.0 });
        };
        Some(match round_ns + start_ns {
            from_ns if now_ns < from_ns => Moment::Out { from_ns },
            _ if wraps && place == slots.len() - 1 => Moment::In { until_ns: round_ns + length_ns + first.1 },
            _ => Moment::In { until_ns: round_ns + end_ns },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_that_touch_over_the_wrap_are_one() {
        let mut timetable = Timetable::new(2);
        timetable.set(0, 100, vec![(0, 10), (30, 50), (80, 100)]);
        let at = |now_ns| timetable.at(0, now_ns).unwrap();
        assert_eq!(at(5), Moment::In { until_ns: 10 });
        assert_eq!(at(10), Moment::Out { from_ns: 30 });
        assert_eq!(at(130), Moment::In { until_ns: 150 });
        assert_eq!(at(160), Moment::Out { from_ns: 180 });
        assert_eq!(at(199), Moment::In { until_ns: 210 });
        assert_eq!(timetable.at(1, 5), None, "it has none");
    }

    #[test]
    fn a_cpu_of_its_own_has_no_end() {
        let mut timetable = Timetable::new(1);
        timetable.set(0, 100, vec![(0, 100)]);
        assert_eq!(timetable.at(0, 5), None);
        timetable.set(0, 100, vec![(20, 60)]);
        assert_eq!(timetable.at(0, 70), Some(Moment::Out { from_ns: 120 }));
    }
}
