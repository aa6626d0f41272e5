//! The daemon on the simulated machine: the real one's rules ([`rota_rules::Driver`]), carried out on the model. What
//! it does takes no time, but for what it waits for: a table's buffer, and the time at which a table holds.

use std::rc::Rc;

use anyhow::Result;
use rota_model::Model;
use rota_rules::interference::ThreadCount;
use rota_rules::life::{Action, Event};
use rota_rules::status::Status;
use rota_rules::{Chore, Command, Driver, Enactor, Job};
use rota_sched::{Found, Published, Scheduler};
use rota_table::{Certified, OwnSlots};

use crate::rota::journal::{Deed, Journal};
use crate::rota::side::Side;

/// A table that the daemon waits with.
enum Install {
    /// Until a buffer is free.
    Waits(Certified),
    /// Until it holds.
    Published(Published),
}

/// The daemon.
pub struct Daemon {
    driver: Driver,
    install: Option<Install>,
    said: Vec<String>,
    journal: Option<Journal>,
    /// What was counted of threads, or is known of them.
    counts: Vec<ThreadCount>,
    is_knowing: bool,
    /// The newest table that holds, or is about to.
    table: Option<Rc<Certified>>,
}

impl Daemon {
    /// Who simulates tells of tenants and threads, so nothing is looked for.
    pub fn new(now_ns: u64, model: Model, journal: Option<Journal>) -> Daemon {
        Daemon::with(Driver::new(now_ns, model, &[Job::COUNTERS]), None, journal)
    }

    fn with(driver: Driver, install: Option<Install>, journal: Option<Journal>) -> Daemon {
        Daemon {
            driver,
            install,
            said: Vec::new(),
            journal,
            counts: Vec::new(),
            is_knowing: false,
            table: None,
        }
    }

    /// The next daemon, of a scheduler that was taken over with the newest table that is to be settled.
    pub fn found(
        now_ns: u64,
        model: Model,
        journal: Option<Journal>,
        (found, newest): (Found, Option<Published>),
    ) -> Daemon {
        let driver = Driver::found(now_ns, model, found, &[Job::COUNTERS]);
        Daemon::with(driver, newest.map(Install::Published), journal)
    }

    /// What was counted of threads until now; or, as `misses`, what is known that each fetches in a millisecond.
    pub fn count(&mut self, counts: Vec<ThreadCount>, is_knowing: bool) {
        (self.counts, self.is_knowing) = (counts, is_knowing);
    }

    /// What the operator would be shown.
    pub fn status(&self, now_ns: u64) -> Status {
        self.driver.status(now_ns, 0, None)
    }

    fn note(&self, now_ns: u64, deed: impl FnOnce() -> Deed) {
        if let Some(journal) = &self.journal {
            journal.borrow_mut().push((now_ns, deed()));
        }
    }

    /// Whether everything that has happened is in a table that holds.
    pub fn is_settled(&self) -> bool {
        self.driver.is_settled() && self.install.is_none()
    }

    pub fn said(&self) -> &[String] {
        &self.said
    }

    pub fn tell(&mut self, event: Event) {
        self.driver.tell(event);
    }

    /// Does what is due. Returns when something is due next.
    pub fn run(&mut self, scheduler: &mut Scheduler<Side>, now_ns: u64) -> u64 {
        loop {
            if let Some(until_ns) = self.go_on_installing(scheduler, now_ns) {
                return until_ns;
            }
            let Some(command) = self.driver.next(now_ns) else { return self.driver.due_ns() };
            self.carry_out(scheduler, now_ns, command);
        }
    }

    /// Until when there is nothing to do but wait, if a table is being installed.
    fn go_on_installing(&mut self, scheduler: &mut Scheduler<Side>, now_ns: u64) -> Option<u64> {
        match self.install.take()? {
            Install::Waits(table) if scheduler.ready_ns() > now_ns => {
                self.install = Some(Install::Waits(table));
                Some(scheduler.ready_ns())
            }
            Install::Waits(table) => match self.publish(scheduler, now_ns, table) {
                Ok(published) => {
                    let until_ns = published.from_ns;
                    self.install = Some(Install::Published(published));
                    Some(until_ns)
                }
                Err(error) => {
                    self.driver.installed(now_ns, Err(error));
                    None
                }
            },
            Install::Published(published) if published.from_ns > now_ns => {
                let until_ns = published.from_ns;
                self.install = Some(Install::Published(published));
                Some(until_ns)
            }
            Install::Published(published) => {
                let settled = scheduler.settle(published);
                if settled.is_ok() {
                    self.note(now_ns, || Deed::Settled);
                }
                self.driver.installed(now_ns, settled);
                None
            }
        }
    }

    fn publish(
        &mut self,
        scheduler: &mut Scheduler<Side>,
        now_ns: u64,
        table: Certified,
    ) -> Result<Published> {
        let kept = Rc::new(table.clone());
        let published = scheduler.publish(table)?;
        self.note(now_ns, || Deed::Table(published.from_ns, kept.clone()));
        self.table = Some(kept);
        Ok(published)
    }

    /// When the vCPUs of a tenant that is here have their slots; none of one without slots.
    pub fn own_slots(&self, tenant: &str) -> Option<Vec<OwnSlots>> {
        let id = self.driver.number_of(tenant)?;
        Some(self.table.as_ref()?.view().own_slots(id)).filter(|own| !own.is_empty())
    }

    fn carry_out(&mut self, scheduler: &mut Scheduler<Side>, now_ns: u64, command: Command) {
        let can = "the model's maps can be read, and its programs run";
        match command {
            Command::Act(Action::Tell(change)) => {
                self.note(now_ns, || Deed::of(&change));
                if let Err(error) = scheduler.change(&change) {
                    self.said.push(format!("the scheduler does not take a change: {error:#}"));
                }
            }
            Command::Act(Action::Install(table)) => self.install = Some(Install::Waits(table)),
            Command::Act(Action::Say(line)) => self.said.push(line),
            Command::Spread(ring) => scheduler.spread_background(&ring).expect(can),
            Command::Do(Chore::Count) => self.driver.counted(scheduler.read(now_ns).expect(can)),
            Command::Do(Chore::CountMisses) if self.is_knowing => {
                self.driver.misses_known(now_ns, self.counts.clone());
            }
            Command::Do(Chore::CountMisses) => {
                self.driver.misses_counted(now_ns, Ok(self.counts.clone()));
            }
            Command::Do(Chore::LookAgain) => Enactor::look_again(scheduler).expect(can),
            Command::Do(Chore::FindVms | Chore::FindThreads | Chore::Rescan | Chore::Configure) => {
                unreachable!("the model has neither files nor processes, and no job to look at them")
            }
        }
    }
}
