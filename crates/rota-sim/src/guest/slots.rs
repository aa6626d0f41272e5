//! When the vCPUs of a guest have their slots: what a host that runs by a timetable can tell it.

/// The slots of a guest's vCPUs, and of nobody else.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Timetable {
    vcpus: Vec<Slots>,
}

/// The slots of one vCPU on all CPUs, in a time that repeats from CLOCK_MONOTONIC's zero on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Slots {
    /// How often they repeat, in ns; 0 if it has none.
    pub length_ns: u64,
    /// Starts and ends in ns, ascending and with gaps between them.
    pub slots: Vec<(u64, u64)>,
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

    /// The slots of each vCPU.
    pub fn vcpus(&self) -> &[Slots] {
        &self.vcpus
    }
}
