//! What a tenant's threads do while they run, as the processor counts it: instructions, misses of the last-level cache,
//! and waits for memory. Nothing counts before somebody asks, so that nobody pays for it until then.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use rota_host::tree;
use rota_rules::counters::Counted;

use crate::perf::{Event, Group, is_missing, reason, stands_in};

/// `CYCLE_ACTIVITY.STALLS_L3_MISS` of Intel: nothing is executed while a load waits for memory. A raw event of the
/// processors of [`INTEL`], by the lists that come with Linux' perf (tools/perf/pmu-events).
const STALLS_L3_MISS: Event = Event(4, 0x0600_06a3);
/// Of family 6: Skylake, Skylake and Cascade Lake for servers, Ice Lake for servers, Sapphire and Emerald Rapids.
const INTEL: [u32; 9] = [0x4e, 0x5e, 0x8e, 0x9e, 0x55, 0x6a, 0x6c, 0x8f, 0xcf];

/// Which events are counted.
struct Events {
    work: [Event; 2],
    misses: [Event; 1],
    stalls: [Event; 2],
}

impl Events {
    /// Those of the processor that `/proc/cpuinfo` tells of.
    fn of(cpuinfo: &str) -> Events {
        let stalls = if is_listed(cpuinfo) { STALLS_L3_MISS } else { Event::STALLS };
        Events {
            work: [Event::CYCLES, Event::INSTRUCTIONS],
            misses: [Event::MISSES],
            stalls: [Event::CYCLES, stalls],
        }
    }

    /// What [stands in](stands_in) for them: a cycle and an instruction are each a ns that a thread runs.
    const SOFTWARE: Events = Events {
        work: [Event::RUN_TIME, Event::RUN_TIME],
        misses: [Event::FAULTS],
        stalls: [Event::RUN_TIME, Event::FAULTS],
    };
}

/// Whether it is one of [`INTEL`].
fn is_listed(cpuinfo: &str) -> bool {
    let field = |name: &str| {
        let fields = || cpuinfo.lines().filter_map(|line| line.split_once(':'));
        fields().find(|(key, _)| key.trim() == name).map(|(_, value)| value.trim())
    };
    let model = field("model").and_then(|model| model.parse().ok());
    field("vendor_id") == Some("GenuineIntel")
        && field("cpu family") == Some("6")
        && model.is_some_and(|model| INTEL.contains(&model))
}

/// The counters of one tenant, on each CPU.
pub struct Counters {
    work: Vec<Group<2>>,
    misses: Option<Vec<Group<1>>>,
    stalls: Option<Vec<Group<2>>>,
}

impl Counters {
    /// Counts the threads of a cgroup, named from the root of cgroups, on these CPUs from now on.
    ///
    /// # Errors
    /// Why nothing is counted, for the operator.
    pub fn open(cgroup: &str, cpus: &[u32]) -> Result<Counters, String> {
        let root = tree::mount_point().map_err(|error| format!("{error:#}"))?;
        let directory = File::open(root.join(cgroup)).map_err(|error| format!("{cgroup}: {error}"))?;
        let cpuinfo = fs::read_to_string(Path::new("/proc/cpuinfo")).unwrap_or_default();
        let events = if stands_in() { Events::SOFTWARE } else { Events::of(&cpuinfo) };
        let work = on_each(events.work, &directory, cpus).map_err(|error| match is_missing(&error) {
            true => "no PMU".to_owned(),
            false => reason(&error, "cycles"),
        })?;
        let misses = on_each(events.misses, &directory, cpus).ok();
        let stalls = on_each(events.stalls, &directory, cpus).ok();
        Ok(Counters { work, misses, stalls })
    }

    /// What was counted so far.
    pub fn read(&self) -> Counted {
        let [cycles, instructions] = sum(&self.work);
        let misses = self.misses.as_deref().map(|groups| sum(groups)[0]);
        let stalled = self.stalls.as_deref().map(sum).map(|[cycles, stalled]| (stalled, cycles));
        Counted { cycles, instructions, misses, stalled }
    }
}

fn on_each<const N: usize>(events: [Event; N], directory: &File, cpus: &[u32]) -> io::Result<Vec<Group<N>>> {
    cpus.iter().map(|cpu| Group::of_cgroup(events, directory, *cpu)).collect()
}

/// Of all CPUs. A CPU that has gone says nothing.
fn sum<const N: usize>(groups: &[Group<N>]) -> [u64; N] {
    let read = groups.iter().filter_map(|group| group.read().ok());
    read.fold([0; N], |sum, one| std::array::from_fn(|event| sum[event] + one.events[event]))
}

#[cfg(test)]
mod tests {
    use super::*;

    const CASCADE_LAKE: &str = "processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 85\n\
                                model name\t: Intel(R) Xeon(R) Gold 6248 CPU @ 2.50GHz\n";

    #[test]
    fn waits_for_memory_are_counted_as_the_processor_does() {
        let stalls = |cpuinfo: &str| Events::of(cpuinfo).stalls[1];
        assert_eq!(stalls(CASCADE_LAKE), STALLS_L3_MISS);
        assert_eq!(stalls(&CASCADE_LAKE.replace(": 85", ": 63")), Event::STALLS, "Haswell has another event");
        assert_eq!(stalls(&CASCADE_LAKE.replace("GenuineIntel", "AuthenticAMD")), Event::STALLS);
        assert_eq!(stalls(""), Event::STALLS);
    }

    #[test]
    fn a_cgroup_that_is_not_there_is_named() {
        let reason = Counters::open("no/such/cgroup", &[0]).err().unwrap();
        assert!(reason.contains("no/such/cgroup") || reason.contains("cgroup2"), "{reason}");
    }
}
