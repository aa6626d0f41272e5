//! The kernel's side of the scheduler, as the loader sees it: maps, variables, programs and the clock. The running
//! kernel is one ([`Loaded`](crate::Loaded)), the simulator's model another.

use anyhow::{Context, Result, ensure};
use bytemuck::Pod;
use rota_model::CpuSet;

use crate::Options;
use crate::domains::domains;
use crate::shared::{NR_BUFFERS, NR_MISSES, Settings};

/// Memory that both sides see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    /// The table buffers, one after the other.
    Tables,
    /// `live` of `state.bpf.h`.
    Live,
    /// `exit_info`.
    Exit,
}

/// Where the scheduler's C runs.
pub trait Kernel {
    /// Hands the CPUs over to the scheduler.
    fn attach(&mut self) -> Result<()>;
    /// Whether the scheduler has been handed the CPUs.
    fn is_attached(&self) -> bool;
    /// CLOCK_MONOTONIC in ns, which the scheduler reads too.
    fn now_ns(&self) -> u64;
    /// The CPUs that are online.
    fn online(&self) -> Result<CpuSet>;
    /// Writes memory that nothing on the other side uses yet, or a word of it that is written at once.
    fn write(&self, memory: Memory, offset: usize, bytes: &[u8]);
    /// Reads memory. `offset` is a multiple of 8; the other side may change it, word by word.
    fn read(&self, memory: Memory, offset: usize, bytes: &mut [u8]);
    /// Writes a map's entry; the value may be shorter than the map's, and the rest of it zero then.
    fn put_bytes(&self, map: &str, key: &[u8], value: &[u8]) -> Result<()>;
    /// Removes a map's entry, if it is there.
    fn remove_bytes(&self, map: &str, key: &[u8]) -> Result<()>;
    /// An array's entry.
    fn entry(&self, map: &str, index: u32) -> Result<Vec<u8>>;
    /// All entries of a hash map: key and value.
    fn entries(&self, map: &str) -> Result<Vec<(Vec<u8>, Vec<u8>)>>;
    /// Runs one of the scheduler's programs on an argument, which it may change. Returns what the program returns.
    fn run(&self, program: &str, argument: &mut [u8]) -> Result<i32>;

    /// Writes a map's entry.
    fn put<K: Pod, V: Pod>(&self, map: &str, key: K, value: &V) -> Result<()> {
        self.put_bytes(map, bytemuck::bytes_of(&key), bytemuck::bytes_of(value))
    }

    /// Removes a map's entry, if it is there.
    fn remove<K: Pod>(&self, map: &str, key: K) -> Result<()> {
        self.remove_bytes(map, bytemuck::bytes_of(&key))
    }

    /// Reads a value.
    fn get<T: Pod>(&self, memory: Memory, offset: usize) -> T {
        let mut value = T::zeroed();
        self.read(memory, offset, bytemuck::bytes_of_mut(&mut value));
        value
    }

    /// Runs one of the scheduler's programs, which must not fail.
    fn call<T: Pod>(&self, program: &str, argument: &mut T) -> Result<()> {
        let result = self
            .run(program, bytemuck::bytes_of_mut(argument))
            .with_context(|| format!("running {program}"))?;
        ensure!(result == 0, "the scheduler's program {program} failed: error {result}");
        Ok(())
    }
}

/// How many cgroups and vCPU threads can be bound at once.
const BINDINGS_MAX: u32 = 1 << 16;

impl Settings {
    /// What the scheduler is told before it begins.
    ///
    /// # Errors
    ///
    /// More CPUs than there can be, or none.
    pub fn new(options: &Options) -> Result<Settings> {
        ensure!(options.nr_cpus > 0 && options.nr_cpus <= CpuSet::LIMIT, "{} CPU numbers", options.nr_cpus);
        let domains = domains(&options.topology);
        let mut settings = Settings {
            nr_cpus: options.nr_cpus,
            nr_queues: options.queues + 1,
            nr_tenants: options.queues + 1,
            table_bytes: options.table_bytes.next_multiple_of(4096),
            nr_domains: domains.len() as u32,
            reserved: 0,
            build: 0,
            housekeeping: [0; _],
            domain: [0; _],
            sibling: std::array::from_fn(|cpu| cpu as u16),
        };
        for (number, cpus) in (0..).zip(&domains) {
            for cpu in cpus.iter().filter(|cpu| *cpu < options.nr_cpus) {
                settings.domain[cpu as usize] = number;
            }
        }
        for core in options.topology.siblings() {
            for (cpu, sibling) in core.iter().zip(core.iter().skip(1).chain(core.first())) {
                settings.sibling[cpu as usize] = sibling as u16;
            }
        }
        for cpu in options.housekeeping.iter() {
            settings.housekeeping[cpu as usize / 64] |= 1 << (cpu % 64);
        }
        Ok(settings)
    }

    /// How many entries a map has, if that is settled when the scheduler is loaded.
    pub fn entries(&self, map: &str) -> Option<u32> {
        match map {
            "graces" => Some(1),
            "tables" => Some(NR_BUFFERS as u32),
            "views" => Some(self.nr_cpus * NR_BUFFERS as u32),
            "cpus" | "samplers" => Some(self.nr_cpus),
            "misses" => Some(self.nr_cpus * NR_MISSES as u32),
            "queues" | "profiles" => Some(self.nr_queues),
            "tenants" | "fair" => Some(self.nr_tenants),
            "domains" => Some(self.nr_domains),
            "places" => Some(self.nr_domains * self.nr_tenants),
            "cgroups" | "vcpu_threads" => Some(BINDINGS_MAX),
            _ => None,
        }
    }
}
