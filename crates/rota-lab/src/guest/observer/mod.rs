//! The observer: blackouts of tenants' cgroups, seen through the kernel's tracepoints and so under any scheduler alike.
//!
//! **Invariant:** shares nothing with Rota's scheduler, whose accounts it checks.

use anyhow::{Context, Result, ensure};
use bytemuck::{Pod, Zeroable};
use libbpf_rs::{Link, MapCore, MapFlags, Object, ObjectBuilder};

use super::clock::Window;
use crate::scenario::result::{Blackouts, Moves};
use crate::scenario::{BUCKETS, Histogram};

/// `observer.bpf.c`, compiled by the build script.
#[repr(align(8))]
struct Aligned<T: ?Sized>(T);
static PROGRAM: &Aligned<[u8]> = &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/observer.bpf.o")));

/// `TENANTS_MAX` of `observer.h`.
const TENANTS_MAX: usize = 256;

/// `struct tenant` of `observer.h`.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct Record {
    lock: u32,
    running: u32,
    queued: u32,
    padding: u32,
    starved_since: u64,
    wanted_since: u64,
    bound_ns: u64,
    longest_ns: u64,
    count: u64,
    beyond_bound: u64,
    total_ns: u64,
    wanted_ns: u64,
    preempted: u64,
    migrated: u64,
    histogram: [u64; BUCKETS],
}

/// `struct cpu` of `observer.h`.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct Cpu {
    since: u64,
    runs: u64,
    idle_ns: u64,
    system_ns: u64,
}

/// `IDLE` and `SYSTEM` of `observer.h`.
const IDLE: u64 = 0;
const SYSTEM: u64 = 1;

/// `struct observation` of `observer.h`.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct Settings {
    start_ns: u64,
    end_ns: u64,
    unfollowed: u64,
}

/// One tenant to observe.
#[derive(Clone, Copy, Debug)]
pub struct Observed {
    /// Its cgroup's id: the inode number of the cgroup's folder.
    pub cgroup: u64,
    /// Blackouts longer than this are counted; none if absent.
    pub bound_ns: Option<u64>,
}

/// What was seen in the window.
#[derive(Clone, Debug, Default)]
pub struct Observation {
    /// Of each tenant, in the order of [`Observer::attach`].
    pub tenants: Vec<(Blackouts, Moves)>,
    /// Time in which CPUs ran nothing, summed over CPUs.
    pub idle_ns: u64,
    /// Time in which CPUs ran threads of no tenant, summed over CPUs.
    pub system_ns: u64,
}

/// An observer at work. Dropped, it stops.
pub struct Observer {
    object: Object,
    links: Vec<Link>,
    observed: usize,
}

impl Observer {
    /// Begins to follow the tenants' threads. Those that start later, or switch at least once before the window, are
    /// followed correctly in it.
    ///
    /// # Errors
    ///
    /// Without root, without BTF in the kernel, and for more than 256 tenants.
    pub fn attach(observed: &[Observed]) -> Result<Observer> {
        ensure!(
            observed.len() <= TENANTS_MAX,
            "{} tenants are more than the observer's {TENANTS_MAX}",
            observed.len()
        );
        let object = ObjectBuilder::default()
            .open_memory(&PROGRAM.0)
            .and_then(|object| object.load())
            .context("the kernel refuses the observer's BPF program; it needs root and a kernel with BTF")?;
        let mut observer = Observer { object, links: Vec::new(), observed: observed.len() };
        for (index, tenant) in (0u32..).zip(observed) {
            let record = Record { bound_ns: tenant.bound_ns.unwrap_or(0), ..Record::zeroed() };
            observer.update("tenants", &index.to_ne_bytes(), bytemuck::bytes_of(&record))?;
            observer.update("cgroups", &tenant.cgroup.to_ne_bytes(), &index.to_ne_bytes())?;
        }
        for program in observer.object.progs_mut() {
            observer
                .links
                .push(program.attach().context("cannot attach the observer to the scheduler's tracepoints")?);
        }
        Ok(observer)
    }

    /// Says what is to be measured. Nothing is before this is called.
    ///
    /// # Errors
    ///
    /// If the kernel does not take it.
    pub fn set_window(&self, window: Window) -> Result<()> {
        let settings = Settings { start_ns: window.start_ns, end_ns: window.end_ns, unfollowed: 0 };
        self.update(".bss", &0u32.to_ne_bytes(), bytemuck::bytes_of(&settings))
    }

    /// Stops, and says what was seen. To be called after the window's end.
    ///
    /// # Errors
    ///
    /// If there were more threads than could be followed (16,384), since then blackouts may be wrong.
    pub fn finish(mut self) -> Result<Observation> {
        self.links.clear();
        let settings: Settings = self.look_up(".bss", 0)?;
        ensure!(
            settings.unfollowed == 0,
            "the tenants had more threads than the observer can follow (16384)"
        );
        let window = Window { start_ns: settings.start_ns, end_ns: settings.end_ns };
        let mut observation = Observation::default();
        for index in (0u32..).take(self.observed) {
            let record: Record = self.look_up("tenants", index)?;
            let moves = Moves { preempted: record.preempted, migrated: record.migrated };
            observation.tenants.push((seen(record, window), moves));
        }
        let cpus = self.map("cpus")?.lookup_percpu(&0u32.to_ne_bytes(), MapFlags::ANY)?.unwrap_or_default();
        for cpu in cpus {
            let cpu = decode::<Cpu>("cpus", &cpu)?;
            let open_ns = if cpu.since == 0 { 0 } else { window.overlap_ns(cpu.since, window.end_ns) };
            observation.idle_ns += cpu.idle_ns + if cpu.runs == IDLE { open_ns } else { 0 };
            observation.system_ns += cpu.system_ns + if cpu.runs == SYSTEM { open_ns } else { 0 };
        }
        Ok(observation)
    }

    fn map(&self, name: &str) -> Result<libbpf_rs::Map<'_>> {
        let mut maps = self.object.maps();
        maps.find(|map| {
            map.name() == name || (name == ".bss" && map.name().to_string_lossy().ends_with(name))
        })
        .with_context(|| format!("the observer's BPF program has no map {name}"))
    }

    fn update(&self, map: &str, key: &[u8], value: &[u8]) -> Result<()> {
        self.map(map)?
            .update(key, value, MapFlags::ANY)
            .with_context(|| format!("cannot write the observer's map {map}"))
    }

    fn look_up<T: Pod>(&self, map: &str, index: u32) -> Result<T> {
        let value = self.map(map)?.lookup(&index.to_ne_bytes(), MapFlags::ANY)?;
        let value = value.with_context(|| format!("the observer's map {map} has no entry {index}"))?;
        decode(map, &value)
    }
}

fn decode<T: Pod>(map: &str, value: &[u8]) -> Result<T> {
    bytemuck::try_pod_read_unaligned(value)
        .ok()
        .with_context(|| format!("an entry of the observer's map {map} has {} bytes; rebuild", value.len()))
}

/// What a record says, with what was still going on at the window's end.
fn seen(mut record: Record, window: Window) -> Blackouts {
    let open = |since_ns: u64| if since_ns == 0 { 0 } else { window.overlap_ns(since_ns, window.end_ns) };
    let mut histogram = Histogram::from_counts(&record.histogram);
    let blackout_ns = open(record.starved_since);
    if blackout_ns > 0 {
        histogram.add(blackout_ns);
        record.count += 1;
        record.total_ns += blackout_ns;
        record.longest_ns = record.longest_ns.max(blackout_ns);
        record.beyond_bound += u64::from(record.bound_ns > 0 && blackout_ns > record.bound_ns);
    }
    Blackouts {
        longest_ns: record.longest_ns,
        count: record.count,
        beyond_bound: record.beyond_bound,
        total_ns: record.total_ns,
        wanted_ns: record.wanted_ns + open(record.wanted_since),
        histogram,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: Window = Window { start_ns: 1_000, end_ns: 2_000 };

    #[test]
    fn what_is_still_open_counts_up_to_the_end_of_the_window() {
        let record = Record { starved_since: 1_400, wanted_since: 900, bound_ns: 500, ..Record::zeroed() };
        let blackouts = seen(record, WINDOW);
        assert_eq!((blackouts.longest_ns, blackouts.count, blackouts.beyond_bound), (600, 1, 1));
        assert_eq!((blackouts.total_ns, blackouts.wanted_ns, blackouts.histogram.total()), (600, 1_000, 1));
    }

    #[test]
    fn what_began_after_the_window_does_not_count() {
        let record = Record { starved_since: 2_000, wanted_since: 2_100, longest_ns: 7, ..Record::zeroed() };
        let blackouts = seen(record, WINDOW);
        assert_eq!((blackouts.longest_ns, blackouts.count, blackouts.wanted_ns), (7, 0, 0));
    }
}
