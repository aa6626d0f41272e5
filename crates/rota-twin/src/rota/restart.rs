//! The daemon ends, wherever it is, and the next one takes the scheduler over.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use anyhow::Result;
use rota_sched::{Scheduler, Settings};
use rota_sim::Machine;

use super::side::Ended;
use super::{Deed, Rota, Running, Stage, calls};
use crate::rota::daemon::Daemon;

/// What a daemon has done; nothing if it has ended meanwhile.
pub fn lives<T>(deed: impl FnOnce() -> T) -> Option<T> {
    // What it has in memory is dropped and looked at by nobody.
    catch_unwind(AssertUnwindSafe(deed))
        .map_err(|why| {
            if !why.is::<Ended>() {
                resume_unwind(why)
            }
        })
        .ok()
}

impl Rota {
    /// The daemon is killed when it has made so many more changes to the scheduler.
    pub fn ends_after(&mut self, changes: u64) {
        self.side.ends_after(changes);
    }

    /// The daemon is killed as it waits.
    pub fn ends(&mut self, machine: &Machine) {
        if let Stage::Runs(running) = &self.stage {
            self.stage = Stage::Left(running.timer);
            self.note_away(machine, true);
        }
    }

    /// Whether the scheduler goes on without a daemon.
    pub fn is_left(&self) -> bool {
        matches!(self.stage, Stage::Left(_))
    }

    /// The next daemon begins: it takes the scheduler over, and is to be told who is here.
    ///
    /// # Errors
    ///
    /// What it finds is not sound.
    ///
    /// # Panics
    ///
    /// There is a daemon.
    pub fn comes_back(&mut self, machine: &mut Machine) -> Result<()> {
        let Stage::Left(timer) = self.stage else { panic!("there is a daemon") };
        self.side = self.side.found();
        let (side, settings) = (self.side.clone(), Settings::new(&self.options)?);
        let (topology, costs) = (&self.options.topology, self.model.host.costs);
        let adopt = || Scheduler::adopt(side, settings, topology, costs);
        let (scheduler, found, newest) =
            self.ext.call(machine, |ops, kernel| calls::enter(kernel, &mut ops.model, adopt))?;
        let now_ns = machine.now_ns();
        let daemon = Daemon::found(now_ns, self.model.clone(), self.journal.clone(), (found, newest));
        self.stage = Stage::Runs(Box::new(Running { scheduler, daemon, timer }));
        self.note_away(machine, false);
        self.run_daemon(machine);
        Ok(())
    }

    fn note_away(&self, machine: &Machine, away: bool) {
        if let Some(journal) = &self.journal {
            journal.borrow_mut().push((machine.now_ns(), Deed::Away(away)));
        }
    }

    /// The configuration is this from now on, for the daemon that runs and for the next one.
    pub fn configure(&mut self, machine: &mut Machine, model: rota_model::Model) {
        self.model = model.clone();
        self.tell(machine, rota_rules::life::Event::Configured(model));
    }
}
