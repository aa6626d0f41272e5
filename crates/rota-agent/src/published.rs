//! What the scheduler is told: tables, each in one of two buffers, the host's clock, and what was stolen.

use std::mem::offset_of;

use anyhow::Result;
use rota_sched::{CpuView, NEVER, NR_BUFFERS};

use crate::shared::{CPUS_MAX, Live, TableRef};
use crate::tables::{BYTES_MAX, Table};

/// Where the scheduler finds it: in the kernel, or in a model of that.
pub trait Maps {
    /// Writes bytes of the map `tables`, from the beginning of its first entry on.
    fn write_tables(&mut self, offset: usize, bytes: &[u8]);

    /// Writes bytes of what is live.
    fn write_live(&mut self, offset: usize, bytes: &[u8]);

    /// Puts an entry of the map `views`.
    ///
    /// # Errors
    ///
    /// If the kernel does not take it.
    fn put_view(&mut self, index: u32, view: &CpuView) -> Result<()>;
}

/// What has been published.
#[derive(Debug)]
pub struct Published {
    /// The highest CPU number and 1.
    nr_cpus: u32,
    /// When the table in each buffer holds.
    from_ns: [u64; NR_BUFFERS],
}

/// As the scheduler is loaded: no table.
impl Default for Live {
    fn default() -> Live {
        let never = TableRef { from_ns: NEVER, generation: 0 };
        Live { tables: [never; NR_BUFFERS], offset_ns: 0, stolen: [0; CPUS_MAX] }
    }
}

impl Published {
    /// Nothing yet.
    pub fn new(nr_cpus: u32) -> Published {
        Published { nr_cpus, from_ns: [NEVER; NR_BUFFERS] }
    }

    /// Publishes a table, which holds from `from_ns` of the host's time on. The one in force at `now_ns` holds until
    /// then.
    ///
    /// # Errors
    ///
    /// If the kernel does not take it.
    pub fn publish(
        &mut self,
        maps: &mut impl Maps,
        table: &Table,
        generation: u64,
        from_ns: u64,
        now_ns: u64,
    ) -> Result<()> {
        let in_force = (0..NR_BUFFERS).filter(|buffer| self.from_ns[*buffer] <= now_ns);
        let in_force = in_force.max_by_key(|buffer| self.from_ns[*buffer]);
        let buffer = in_force.map_or(0, |buffer| 1 - buffer);
        self.set_from(maps, buffer, NEVER);
        maps.write_tables(buffer * BYTES_MAX as usize, &table.bytes);
        for (cpu, view) in (0..).zip(&table.views) {
            maps.put_view(buffer as u32 * self.nr_cpus + cpu, view)?;
        }
        maps.write_live(at(buffer) + offset_of!(TableRef, generation), &generation.to_ne_bytes());
        // Later than any other: a newer table may have an earlier start, as after a restart of the host.
        let since_ns = in_force.map_or(0, |in_force| self.from_ns[in_force] + 1);
        self.set_from(maps, buffer, from_ns.max(since_ns));
        Ok(())
    }

    /// No table is in force.
    pub fn withdraw(&mut self, maps: &mut impl Maps) {
        (0..NR_BUFFERS).for_each(|buffer| self.set_from(maps, buffer, NEVER));
    }

    fn set_from(&mut self, maps: &mut impl Maps, buffer: usize, from_ns: u64) {
        self.from_ns[buffer] = from_ns;
        maps.write_live(at(buffer) + offset_of!(TableRef, from_ns), &from_ns.to_ne_bytes());
    }
}

/// What the host's time is beyond the guest's, in ns.
pub fn set_offset(maps: &mut impl Maps, offset_ns: i64) {
    maps.write_live(offset_of!(Live, offset_ns), &offset_ns.to_ne_bytes());
}

/// What was stolen of each CPU's time of late, in thousandths.
pub fn set_stolen(maps: &mut impl Maps, stolen: &[u32]) {
    let stolen = &stolen[..stolen.len().min(CPUS_MAX)];
    maps.write_live(offset_of!(Live, stolen), bytemuck::cast_slice(stolen));
}

/// Where a buffer's times are in what is live.
fn at(buffer: usize) -> usize {
    offset_of!(Live, tables) + buffer * size_of::<TableRef>()
}
