//! The scheduler outlives the daemon: it is pinned, goes on for a grace time, and the next daemon takes it over.

use std::mem::offset_of;
use std::rc::Rc;
use std::time::Duration;

use anyhow::{Result, ensure};
use rota_model::Costs;

use super::{Found, Options, Scheduler};
use crate::kernel::{Kernel, Memory};
use crate::object::Loaded;
use crate::pins::Pins;
use crate::shared::{Live, Settings};

/// How a daemon has come to its scheduler.
#[derive(Debug)]
pub enum Start {
    /// It was loaded, and attached.
    Anew {
        /// Why the one that was left behind was not taken over, if one was.
        instead: Option<String>,
    },
    /// It goes on.
    TakenOver(Found),
}

impl Scheduler {
    /// Takes over the scheduler that another process has left in `pins`, or else starts one, which outlives this
    /// process by `grace`.
    ///
    /// One that cannot be taken over is replaced: the new one is loaded before the other one ends.
    ///
    /// # Errors
    ///
    /// As [`Scheduler::start`].
    pub fn start_or_take_over(
        options: &Options,
        costs: Costs,
        pins: &Rc<Pins>,
        grace: Duration,
    ) -> Result<(Scheduler, Start)> {
        let settings = Loaded::settings(Settings::new(options)?);
        let mut instead = None;
        if pins.has_scheduler() {
            match Scheduler::take_over(&settings, options, costs, pins, grace) {
                Ok((scheduler, found)) => {
                    scheduler.set_grace(grace);
                    return Ok((scheduler, Start::TakenOver(found)));
                }
                Err(error) => instead = Some(format!("{error:#}")),
            }
        }
        let mut loaded = Loaded::load(&settings)?;
        pins.clear()?;
        loaded.pin(pins)?;
        loaded.live(grace)?;
        let mut scheduler = Scheduler::with_settings(loaded, settings);
        scheduler.prepare(options)?;
        scheduler.set_grace(grace);
        scheduler.kernel.attach()?;
        Ok((scheduler, Start::Anew { instead }))
    }

    fn take_over(
        wanted: &Settings,
        options: &Options,
        costs: Costs,
        pins: &Rc<Pins>,
        grace: Duration,
    ) -> Result<(Scheduler, Found)> {
        let (mut loaded, settings) = Loaded::take_over(pins)?;
        ensure!(
            settings.serves(wanted),
            "it was loaded for another host, or has no room for the configuration"
        );
        // Before anything that takes time: how much of the grace time is left is not known.
        loaded.live(grace)?;
        let (mut scheduler, found, newest) = Scheduler::adopt(loaded, settings, &options.topology, costs)?;
        if let Some(ended) = scheduler.exited() {
            anyhow::bail!("it has ended: {}", ended.reason);
        }
        if let Some(newest) = newest {
            scheduler.sleep_until(newest.from_ns);
            scheduler.settle(newest)?;
        }
        Ok((scheduler, found))
    }

    /// How long it goes on without this process, once that has ended. A scheduler that began without goes on for ever.
    fn set_grace(&self, grace: Duration) {
        let grace_ns = u64::try_from(grace.as_nanos()).unwrap_or(u64::MAX);
        self.kernel.write(Memory::Live, offset_of!(Live, grace_ns), bytemuck::bytes_of(&grace_ns));
    }

    /// Whether it outlives this process.
    pub fn is_pinned(&self) -> bool {
        self.kernel.pins().is_some()
    }

    /// Ends the scheduler, and all that would outlive this process of it.
    ///
    /// # Errors
    ///
    /// A pin cannot be removed.
    pub fn end(self) -> Result<()> {
        let pins = self.kernel.pins().cloned();
        drop(self);
        pins.map_or(Ok(()), |pins| pins.clear())
    }
}

impl Settings {
    /// Whether a scheduler that was loaded so is of use to one that would be loaded as `wanted`: for the same host, and
    /// with room for all that is configured, of which twice is wanted.
    fn serves(&self, wanted: &Settings) -> bool {
        let sized = Settings {
            nr_queues: wanted.nr_queues,
            nr_tenants: wanted.nr_tenants,
            table_bytes: wanted.table_bytes,
            ..*self
        };
        let has_room = |has: u32, wants: u32| u64::from(has) * 2 >= u64::from(wants);
        bytemuck::bytes_of(&sized) == bytemuck::bytes_of(wanted)
            && has_room(self.nr_queues, wanted.nr_queues)
            && has_room(self.nr_tenants, wanted.nr_tenants)
    }
}

#[cfg(test)]
mod tests {
    use rota_model::Topology;

    use super::*;

    fn settings(nr_cpus: u32, queues: u32) -> Settings {
        let housekeeping = "0".parse().unwrap();
        let topology = Topology::default();
        let table_bytes = Options::TABLE_BYTES;
        Settings::new(&Options { nr_cpus, topology, housekeeping, queues, table_bytes }).unwrap()
    }

    #[test]
    fn a_scheduler_serves_the_same_host_with_room_for_what_is_configured() {
        let loaded = settings(4, 300);
        assert!(loaded.serves(&settings(4, 300)) && loaded.serves(&settings(4, 256)));
        assert!(loaded.serves(&settings(4, 600)));
        assert!(!loaded.serves(&settings(4, 700)), "too few queues");
        assert!(!loaded.serves(&settings(5, 300)), "other CPUs");
        assert!(!loaded.serves(&Settings { build: 1, ..loaded }), "another build");
    }
}
