//! The daemon's part: its rules for tenants that come, change and go ([`rota_rules::life`]), carried out on the simulated
//! machine. What it does takes no time, but for what it waits for: a table's buffer, and the time at which a table
//! holds.

use std::collections::VecDeque;
use std::rc::Rc;

use rota_model::Model;
use rota_rules::accounts::{Accounts, Reading};
use rota_rules::background::Spread;
use rota_rules::life::{Action, Event, Life};
use rota_rules::{ACCOUNTS_NS, RETRY_NS};
use rota_sched::{Published, Scheduler};
use rota_table::Certified;

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
    life: Life,
    accounts: Accounts,
    spread: Spread,
    /// What has happened while it waited.
    events: VecDeque<Event>,
    install: Option<Install>,
    accounts_due_ns: u64,
    said: Vec<String>,
    journal: Option<Journal>,
}

impl Daemon {
    pub fn new(now_ns: u64, model: Model, journal: Option<Journal>) -> Daemon {
        Daemon {
            life: Life::new(now_ns, model),
            accounts: Accounts::default(),
            spread: Spread::default(),
            events: VecDeque::from([Event::Tick]),
            install: None,
            accounts_due_ns: now_ns + ACCOUNTS_NS,
            said: Vec::new(),
            journal,
        }
    }

    fn note(&self, now_ns: u64, deed: Option<Deed>) {
        if let (Some(journal), Some(deed)) = (&self.journal, deed) {
            journal.borrow_mut().push((now_ns, deed));
        }
    }

    /// Whether everything that has happened is in a table that holds.
    pub fn is_settled(&self) -> bool {
        self.life.is_settled() && self.install.is_none() && self.events.is_empty()
    }

    pub fn said(&self) -> &[String] {
        &self.said
    }

    pub fn tell(&mut self, event: Event) {
        self.events.push_back(event);
    }

    /// Does what is due. Returns when something is due next.
    pub fn run(&mut self, scheduler: &mut Scheduler<Side>, now_ns: u64) -> u64 {
        loop {
            if let Some(until_ns) = self.go_on_installing(scheduler, now_ns) {
                return until_ns;
            }
            if self.accounts_due_ns <= now_ns {
                self.accounts_due_ns = now_ns + ACCOUNTS_NS;
                self.read_accounts(scheduler, now_ns);
            }
            let is_due = self.life.deadline_ns().is_some_and(|deadline_ns| deadline_ns <= now_ns);
            let tick = is_due.then_some(Event::Tick);
            let Some(event) = self.events.pop_front().or(tick) else { break };
            for action in self.life.step(now_ns, event) {
                self.carry_out(scheduler, now_ns, action);
            }
        }
        self.life
            .deadline_ns()
            .map_or(self.accounts_due_ns, |deadline_ns| deadline_ns.min(self.accounts_due_ns))
    }

    /// Until when there is nothing to do but wait, if a table is being installed.
    fn go_on_installing(&mut self, scheduler: &mut Scheduler<Side>, now_ns: u64) -> Option<u64> {
        if let Some(Install::Waits(_)) = self.install
            && scheduler.ready_ns() > now_ns
        {
            return Some(scheduler.ready_ns());
        }
        let outcome = match self.install.take()? {
            Install::Waits(table) => {
                let kept = self.journal.as_ref().map(|_| Rc::new(table.clone()));
                scheduler.publish(table).map(|published| {
                    self.note(now_ns, kept.map(|table| Deed::Table(published.from_ns, table)));
                    Install::Published(published)
                })
            }
            Install::Published(published) if published.from_ns > now_ns => Ok(Install::Published(published)),
            Install::Published(published) => match scheduler.settle(published) {
                Ok(installed) => {
                    self.note(now_ns, Some(Deed::Settled));
                    let (generation, adopted_at_ns) = (installed.generation, installed.adopted_at_ns);
                    self.events.push_front(Event::Installed { generation, adopted_at_ns });
                    return None;
                }
                Err(error) => Err(error),
            },
        };
        match outcome {
            Ok(install) => {
                let Install::Published(published) = &install else { return None };
                let until_ns = published.from_ns;
                self.install = Some(install);
                Some(until_ns)
            }
            Err(error) => {
                let (reason, retry_at_ns) = (format!("{error:#}"), now_ns + RETRY_NS);
                self.events.push_front(Event::NotInstalled { reason, retry_at_ns });
                None
            }
        }
    }

    fn carry_out(&mut self, scheduler: &mut Scheduler<Side>, now_ns: u64, action: Action) {
        self.note(now_ns, Deed::of(&action));
        let result = match action {
            Action::Set(spec) => scheduler.tenant_set(&spec),
            Action::Remove(id) => scheduler.tenant_remove(id),
            Action::Bind { cgroup, id } => scheduler.cgroup_bind(cgroup, id),
            Action::Unbind { cgroup } => scheduler.cgroup_unbind(cgroup),
            Action::BindThread { tid, id, index } => scheduler.vcpu_thread_bind(tid, id, index),
            Action::UnbindThread { tid } => scheduler.vcpu_thread_unbind(tid),
            Action::Install(table) => {
                self.install = Some(Install::Waits(table));
                Ok(())
            }
            Action::Say(line) => {
                self.said.push(line);
                Ok(())
            }
        };
        if let Err(error) = result {
            self.said.push(format!("the scheduler does not take a change: {error:#}"));
        }
    }

    fn read_accounts(&mut self, scheduler: &mut Scheduler<Side>, now_ns: u64) {
        let expected = "the model's maps can be read";
        let (queues, cpus) = (scheduler.queues().expect(expected), scheduler.cpus().expect(expected));
        let reading = Reading { at_ns: now_ns, queues, cpus, lags: scheduler.lags().expect(expected) };
        let missed = self.accounts.update(reading, self.life.tenants());
        self.said.extend(missed);
        let cpus = self.life.model().host.tenant_cpus();
        let mut left = self.accounts.left();
        left.retain(|(cpu, _)| cpus.contains(*cpu));
        if let Some(ring) = self.spread.update(&left) {
            scheduler.spread_background(ring).expect("the ring has a CPU");
        }
        scheduler.look_again().expect("the model's programs run");
    }
}
