//! What is to be done next, and when: the life cycle's actions, and what is done again and again.
//!
//! Whoever carries out the commands, on a real host or on a simulated one, tells the driver what happened, asks
//! [`Driver::next`] until nothing is left, and asks again at [`Driver::due_ns`].

#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, VecDeque};

use anyhow::Result;
use rota_model::{Cgroup, Model, TenantId};
use rota_plan::Seat;
use rota_sched::{Found, Installed};

use crate::accounts::{Accounts, Reading, absent};
use crate::background::Spread;
use crate::interference::spread::Pair;
use crate::interference::{Due, Neighbours, ThreadCount};
use crate::life::{Action, Event, Life};
use crate::matching::Matching;
use crate::status::{SchedulerStatus, Status};

const SECOND_NS: u64 = 1_000_000_000;

/// A table that could not be installed is tried again after this.
const RETRY_NS: u64 = SECOND_NS;
/// An edit counts when nothing has happened to the files for so long: half a file, or one of two, is no edit.
const EDIT_NS: u64 = SECOND_NS / 10;

/// One thing to do, and then the next.
#[derive(Debug)]
pub enum Command {
    /// What the life cycle asks for. [`Action::Install`] is answered with [`Driver::installed`], before the next
    /// command.
    Act(Action),
    /// Spread background threads over these CPUs, each as often as it is named.
    Spread(Vec<u32>),
    /// Something that needs no more than its name.
    Do(Chore),
}

/// What is done again and again, or when files change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chore {
    /// Read the scheduler's counters, and answer with [`Driver::counted`].
    Count,
    /// Read what each thread fetches from memory, and answer with [`Driver::misses_counted`].
    CountMisses,
    /// Have the scheduler look again at threads that waited as tenants changed.
    LookAgain,
    /// Look for running VMs.
    FindVms,
    /// Look for vCPU threads.
    FindThreads,
    /// Read the tree of cgroups anew.
    Rescan,
    /// Read the configuration anew, and the pods.
    Configure,
}

/// Chores that are done together, again and again.
#[derive(Clone, Copy, Debug)]
pub struct Job {
    /// How often, and how long after the start for the first time, in ns.
    pub period_ns: u64,
    /// In this order.
    pub chores: &'static [Chore],
}

impl Job {
    /// What the scheduler needs.
    pub const COUNTERS: Job = Job { period_ns: SECOND_NS, chores: &[Chore::Count, Chore::LookAgain] };
    /// VMs start and end without a word.
    pub const VMS: Job = Job { period_ns: SECOND_NS, chores: &[Chore::FindVms] };
    /// A thread's name, and the scheduler's end, cannot be waited for.
    pub const THREADS: Job = Job { period_ns: SECOND_NS / 4, chores: &[Chore::FindThreads] };
    /// In case that the kernel missed telling of a cgroup.
    pub const CGROUPS: Job = Job { period_ns: 10 * SECOND_NS, chores: &[Chore::Rescan] };

    /// All that a real host needs. Of jobs that are due at one time the earlier comes first.
    pub const ALL: [Job; 4] = [Job::CGROUPS, Job::COUNTERS, Job::VMS, Job::THREADS];
}

/// The state. See the module's page.
#[derive(Debug)]
pub struct Driver {
    started_ns: u64,
    life: Life,
    accounts: Accounts,
    spread: Spread,
    neighbours: Neighbours,
    matching: Matching,
    /// Each with the time when it is due next.
    jobs: Vec<(Job, u64)>,
    /// When the configuration is to be read, after an edit.
    configure_ns: Option<u64>,
    /// What has happened and was not looked at.
    events: VecDeque<Event>,
    commands: VecDeque<Command>,
    /// The last command was [`Chore::Count`]: where background threads are to be follows from it.
    counts: bool,
}

impl Driver {
    /// A host on which the scheduler has just started, with what is done there again and again.
    pub fn new(now_ns: u64, model: Model, jobs: &[Job]) -> Driver {
        Driver::with(now_ns, Life::new(now_ns, model), jobs)
    }

    /// A host whose scheduler was taken over.
    pub fn found(now_ns: u64, model: Model, found: Found, jobs: &[Job]) -> Driver {
        Driver::with(now_ns, Life::found(now_ns, model, found), jobs)
    }

    fn with(now_ns: u64, life: Life, jobs: &[Job]) -> Driver {
        Driver {
            started_ns: now_ns,
            life,
            accounts: Accounts::default(),
            spread: Spread::default(),
            neighbours: Neighbours::new(now_ns),
            matching: Matching::default(),
            jobs: jobs.iter().map(|job| (*job, now_ns + job.period_ns)).collect(),
            configure_ns: None,
            events: VecDeque::from([Event::Tick]),
            commands: VecDeque::new(),
            counts: false,
        }
    }

    /// The configuration in use: the last one that was not refused.
    pub fn model(&self) -> &Model {
        self.life.model()
    }

    /// Whether all that has happened is in a table that holds.
    pub fn is_settled(&self) -> bool {
        self.life.is_settled() && self.events.is_empty() && self.commands.is_empty()
    }

    /// When there is something to do next; 0 if there is now, and [`u64::MAX`] if there never is.
    pub fn due_ns(&self) -> u64 {
        if !self.events.is_empty() || !self.commands.is_empty() {
            return 0;
        }
        let jobs = self.jobs.iter().map(|(_, due_ns)| *due_ns);
        let neighbours_ns = self.neighbours.due_ns(self.life.model().host.interference);
        jobs.chain([neighbours_ns])
            .chain(self.life.deadline_ns())
            .chain(self.configure_ns)
            .min()
            .unwrap_or(u64::MAX)
    }

    /// Something has happened.
    pub fn tell(&mut self, event: Event) {
        self.events.push_back(event);
    }

    /// What became of the last [`Action::Install`]. This comes before all that happened meanwhile.
    pub fn installed(&mut self, now_ns: u64, outcome: Result<Installed>) {
        self.events.push_front(match outcome {
            Ok(Installed { generation, adopted_at_ns }) => Event::Installed { generation, adopted_at_ns },
            Err(error) => {
                Event::NotInstalled { reason: format!("{error:#}"), retry_at_ns: now_ns + RETRY_NS }
            }
        });
    }

    /// The scheduler's counters were read, for [`Chore::Count`] or because somebody asks.
    pub fn counted(&mut self, reading: Reading) {
        let now_ns = reading.at_ns;
        for line in self.accounts.update(reading, self.life.tenants()).into_iter().rev() {
            self.commands.push_front(Command::Act(Action::Say(line)));
        }
        let better = self.matching.update(now_ns, &self.accounts, self.life.tenants());
        self.events.extend(better.into_iter().map(|(tenant, parts)| Event::Parted { tenant, parts }));
    }

    /// Something has happened to the configuration's files: [`Chore::Configure`] follows when they are left alone.
    pub fn edited(&mut self, now_ns: u64) {
        self.configure_ns = Some(now_ns + EDIT_NS);
    }

    /// A pod has come, changed or gone: [`Chore::Configure`] follows soon, however many others do.
    pub fn pods_changed(&mut self, now_ns: u64) {
        self.configure_ns.get_or_insert(now_ns + EDIT_NS);
    }

    /// What to do now; nothing if there is nothing to do before [`Driver::due_ns`].
    pub fn next(&mut self, now_ns: u64) -> Option<Command> {
        if std::mem::take(&mut self.counts)
            && let Some(ring) = self.ring()
        {
            return Some(Command::Spread(ring));
        }
        loop {
            match self.commands.pop_front() {
                Some(command) => {
                    self.counts = matches!(command, Command::Do(Chore::Count));
                    return Some(command);
                }
                None if self.begin_due(now_ns) => {}
                None => {
                    let is_due = self.life.deadline_ns().is_some_and(|due_ns| due_ns <= now_ns);
                    let event = self.events.pop_front().or(is_due.then_some(Event::Tick))?;
                    self.commands.extend(self.life.step(now_ns, event).into_iter().map(Command::Act));
                }
            }
        }
    }

    /// Whether a job or an edit was due; its chores are the next commands then.
    fn begin_due(&mut self, now_ns: u64) -> bool {
        if let Some((job, due_ns)) = self.jobs.iter_mut().find(|(_, due_ns)| *due_ns <= now_ns) {
            *due_ns = now_ns + job.period_ns;
            self.commands.extend(job.chores.iter().copied().map(Command::Do));
            return true;
        }
        match self.neighbours.due(now_ns, self.life.model().host.interference) {
            Some(Due::Count) => self.commands.push_back(Command::Do(Chore::CountMisses)),
            Some(Due::Shuffle) => self.shuffle(now_ns),
            None => {}
        }
        if !self.commands.is_empty() {
            return true;
        }
        let is_edited = self.configure_ns.take_if(|due_ns| *due_ns <= now_ns).is_some();
        self.commands.extend(is_edited.then_some(Command::Do(Chore::Configure)));
        is_edited
    }

    /// vCPUs change places at random.
    fn shuffle(&mut self, now_ns: u64) {
        let pairs = self.neighbours.shuffle(&self.life.seats());
        self.exchange(now_ns, &pairs, "at random");
    }

    fn exchange(&mut self, now_ns: u64, pairs: &[Pair], why: &str) {
        if pairs.is_empty() || !self.is_settled() {
            return;
        }
        let (actions, moved) = self.life.exchange(pairs);
        let said = self.neighbours.moved(now_ns, pairs, moved, why);
        let said = said.map(Action::Say).into_iter();
        self.commands.extend(said.chain(actions).map(Command::Act));
    }

    /// What was counted, for [`Chore::CountMisses`]; or why nothing can be counted.
    pub fn misses_counted(&mut self, now_ns: u64, outcome: Result<Vec<ThreadCount>, String>) {
        let threads = match outcome {
            Ok(threads) => threads,
            Err(reason) => {
                let said = self.neighbours.without_counters(now_ns, &reason);
                self.commands.extend(said.map(Action::Say).map(Command::Act));
                return;
            }
        };
        let counted = self.life.by_vcpu(&threads);
        self.neighbours.counted(now_ns, &counted);
        self.relieve(now_ns);
    }

    /// In place of counters, for one who knows: what threads fetch, or would fetch, in a millisecond.
    pub fn misses_known(&mut self, now_ns: u64, threads: Vec<ThreadCount>) {
        let counted = self.life.by_vcpu(&threads);
        let pressure = counted.into_iter().map(|(vcpu, counted)| (vcpu, counted.misses)).collect();
        self.neighbours.known(now_ns, pressure);
        self.relieve(now_ns);
    }

    /// Those that fill caches are spread, if that is worth it.
    fn relieve(&mut self, now_ns: u64) {
        if self.neighbours.is_quiet() {
            return;
        }
        let (seats, topology) = (self.life.seats(), &self.life.model().host.topology);
        let pairs = self.neighbours.spread(&seats, topology);
        let why = self.neighbours.why(&seats, topology);
        self.exchange(now_ns, &pairs, &why);
    }

    /// The number that a tenant which is here has in the scheduler and in tables.
    pub fn number_of(&self, tenant: &str) -> Option<TenantId> {
        self.life.tenants().find(|view| view.tenant.name == tenant).map(|view| view.id)
    }

    /// Where vCPUs have their slots in the newest table.
    pub fn seats(&self) -> Vec<Seat> {
        self.life.seats()
    }

    /// The cgroups and vCPU threads of those that have a reservation: what is to be counted.
    pub fn reserved(&self) -> Vec<(&Cgroup, Vec<i32>)> {
        self.life.reserved()
    }

    /// The new ring of background threads, if it differs enough from the one in force.
    fn ring(&mut self) -> Option<Vec<u32>> {
        let cpus = self.life.model().host.tenant_cpus();
        let mut left = self.accounts.left();
        left.retain(|(cpu, _)| cpus.contains(*cpu));
        self.spread.update(&left).map(<[u32]>::to_vec)
    }

    /// What `rota status` shows of a daemon that is process `pid`, by the last counters that were read.
    pub fn status(&self, now_ns: u64, pid: u32, edit_refused: Option<String>) -> Status {
        let (generation, table_length_ns) = self.life.table();
        let mut tenants = self.accounts.tenants(self.life.tenants());
        let here: BTreeSet<&str> = self.life.tenants().map(|view| view.tenant.name.as_str()).collect();
        let configured = self.life.model().tenants.iter();
        tenants.extend(configured.filter(|tenant| !here.contains(tenant.name.as_str())).map(absent));
        Status {
            pid,
            up_s: (now_ns - self.started_ns) as f64 / SECOND_NS as f64,
            generation,
            table_length_ns,
            window_s: self.accounts.window_ns() as f64 / SECOND_NS as f64,
            edit_refused,
            offline: String::new(),
            tenants,
            cpus: self.accounts.cpus(),
            spares: self.life.spares(),
            scheduler: SchedulerStatus::default(),
            kubernetes: None,
            interference: {
                let host = &self.life.model().host;
                self.neighbours.status(now_ns, host.interference, &self.life.seats(), &host.topology)
            },
        }
    }
}
