//! `rota up`: one loop that waits for whatever happens next, lets [`rota_rules`] decide, and carries it out.

mod signals;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::Signal;
use nix::time::{ClockId, clock_gettime};
use rota_host::{Discovery, Sighting, Trust, topology, tree};
use rota_model::config::Source;
use rota_model::{CpuSet, Model, Pod};
use rota_rules::life::{Action, Event};
use rota_rules::pods::Refusal;
use rota_rules::status::{SchedulerStatus, Status};
use rota_rules::{Chore, Command, Driver, Job};
use rota_sched::{LetGo, Start};

use crate::branches::Branches;
use crate::comeback::Comebacks;
use crate::configuration::{Loaded, load, load_or_keep, parse, remarks};
use crate::guests::Guests;
use crate::installer::Installer;
use crate::log::say;
use crate::misses::Misses;
use crate::pods::Pods;
use crate::resctrl::Resctrl;
use crate::server::{Server, ask};
use crate::service::Service;
use crate::takeover::{Starter, told_of};
use crate::{metrics, sampler, socket, sources};
use signals::{Signals, drain, pause, signals};

/// After the kernel has let go of the scheduler because of CPU hotplug, the list of CPUs changes within this.
const HOTPLUG: Duration = Duration::from_secs(2);

/// What is said of an edit, before why.
const NOT_USED: &str = "the edited configuration is not used";

/// What `rota up` is given.
#[derive(Clone, Debug)]
pub struct Options {
    /// The configuration file.
    pub config: PathBuf,
    /// Where `rota status` asks.
    pub socket: PathBuf,
    /// Who may ask there, beside root.
    pub group: Option<u32>,
    /// Where Prometheus asks, if it does.
    pub metrics: Option<metrics::Address>,
    /// The users whose processes may be VMs, beside root's and libvirt's.
    pub vm_users: Vec<RangeInclusive<u32>>,
    /// How long the scheduler goes on when the daemon has ended and was not asked to; zero: it ends with the daemon.
    pub grace: Duration,
}

/// Why the daemon ended other than by being asked to.
#[derive(Debug)]
pub enum Failure {
    /// The configuration or the options are wrong; nothing was started.
    Usage(anyhow::Error),
    /// Something failed. The kernel's own scheduler runs every task, at once or after the grace time.
    Failed(anyhow::Error),
}

/// Where the machine shows itself.
#[derive(Clone, Debug)]
pub struct Machine {
    /// The mount point of cgroup v2.
    pub cgroup_root: PathBuf,
    /// `/proc`, where processes are.
    pub proc: PathBuf,
    /// Where CPUs are described, see [`topology::SYSFS`].
    pub system: PathBuf,
}

impl Machine {
    /// The machine whose files lie below `root`, which is `/` but in tests.
    ///
    /// # Errors
    /// If it has no cgroup v2.
    pub fn under(root: &Path) -> Result<Machine> {
        let system = root.join(topology::SYSFS.trim_start_matches('/'));
        Ok(Machine { cgroup_root: tree::mount_point_under(root)?, proc: root.join("proc"), system })
    }

    /// `/sys/fs/resctrl`, if it is mounted: beside where CPUs are described.
    fn resctrl(&self) -> PathBuf {
        self.system.join("../../fs/resctrl")
    }
}

/// Runs until SIGINT or SIGTERM. SIGHUP has the configuration read anew. After SIGUSR1, or if the daemon is killed, the
/// scheduler goes on for the grace time, and the next daemon takes it over.
///
/// # Errors
/// See [`Failure`].
pub fn run(options: &Options) -> Result<(), Failure> {
    let stop = signals(&[Signal::SIGINT, Signal::SIGTERM]).map_err(Failure::Failed)?;
    let leave = signals(&[Signal::SIGUSR1]).map_err(Failure::Failed)?;
    let reload = signals(&[Signal::SIGHUP]).map_err(Failure::Failed)?;
    // Planning takes several threads, and panics if there are none to be had: made now, none can be lacking later.
    // They leave signals alone as well.
    let planners = rayon::ThreadPoolBuilder::new().build_global();
    planners.context("starting the threads to plan with").map_err(Failure::Failed)?;
    let machine = Machine::under(Path::new("/")).map_err(Failure::Failed)?;
    let signals = Signals { stop: stop.as_fd(), leave: leave.as_fd(), reload: reload.as_fd() };
    let mut starter = Starter::new(&machine.system, options.grace);
    run_on(&machine, options, signals, |model| starter.start(model))
}

/// Sessions, one after the other, until one ends because it was asked to. After the kernel has ended the scheduler the
/// next one begins at once if the CPUs have changed, and else after a pause.
fn run_on<S: Installer>(
    machine: &Machine,
    options: &Options,
    signals: Signals,
    mut start: impl FnMut(&Model) -> Result<(S, Start)>,
) -> Result<(), Failure> {
    // Before anything is started: a second daemon, or a wrong configuration, disturbs nothing.
    let mut good = load(machine, &options.config, &[]).map_err(Failure::Usage)?.sources;
    let server = serve(options)?;
    let mut comebacks = Comebacks::default();
    loop {
        let online = topology::online(&machine.system).map_err(Failure::Failed)?;
        let mut session =
            Session::start(machine, options, &server, good, &mut start).map_err(Failure::Failed)?;
        session.scheduler_status = comebacks.status();
        let began = Instant::now();
        let ended = session.run(signals).map_err(Failure::Failed)?;
        good = session.sources.clone();
        if let Ended::Left = ended {
            say("stopped; the scheduler goes on for the grace time");
            return Ok(());
        }
        session.guests.withdraw();
        session.scheduler.end().map_err(Failure::Failed)?;
        match ended {
            Ended::Stopped | Ended::Left => {
                say("stopped; the kernel's own scheduler runs every task");
                return Ok(());
            }
            Ended::Exited(LetGo { reason, is_error }) => {
                say(&format!("the kernel has let go of the scheduler, and runs every task itself: {reason}"));
                let now = wait_for_hotplug(&machine.system, &online).map_err(Failure::Failed)?;
                if now != online {
                    say(&format!("the CPUs were {online} and are {now} now; starting anew"));
                } else if !is_error {
                    return Err(Failure::Failed(anyhow!("the kernel has let go of the scheduler: {reason}")));
                } else if !pause(signals, comebacks.lost(reason, began.elapsed())).map_err(Failure::Failed)? {
                    return Ok(());
                }
            }
        }
    }
}

/// Begins to listen, for `rota status` and for Prometheus.
fn serve(options: &Options) -> Result<Server, Failure> {
    socket::check(&options.socket).map_err(Failure::Usage)?;
    if let Some(metrics::Address::Unix(path)) = &options.metrics {
        socket::check(path).map_err(Failure::Usage)?;
    }
    let server = Server::bind(&options.socket, options.group).map_err(Failure::Failed)?;
    if let Some(address) = &options.metrics {
        let socket = options.socket.clone();
        let url = metrics::serve(address, options.group, move || ask(&socket)).map_err(Failure::Failed)?;
        say(&format!("metrics at {url}"));
    }
    Ok(server)
}

/// The online CPUs, as soon as they are others than before, or after [`HOTPLUG`].
fn wait_for_hotplug(system: &Path, before: &CpuSet) -> Result<CpuSet> {
    let end = Instant::now() + HOTPLUG;
    loop {
        let now = topology::online(system)?;
        if now != *before || Instant::now() >= end {
            return Ok(now);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// CLOCK_MONOTONIC in ns, the clock of the scheduler.
fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).expect("every Linux has CLOCK_MONOTONIC");
    now.tv_sec() as u64 * 1_000_000_000 + now.tv_nsec() as u64
}

/// What the life cycle is told of a sighting.
pub(crate) fn event(sighting: Sighting) -> Event {
    match sighting {
        Sighting::Appeared(tenant, cgroup) => Event::Appeared { tenant, cgroup },
        Sighting::Vanished(tenant) => Event::Vanished { tenant },
        Sighting::Threads(tenant, threads) => Event::Threads { tenant, threads },
    }
}

/// How a session ended.
enum Ended {
    Stopped,
    Left,
    Exited(LetGo),
}

/// From the scheduler's start to its end.
struct Session<'a, S> {
    machine: &'a Machine,
    config: &'a Path,
    server: &'a Server,
    scheduler: S,
    driver: Driver,
    misses: Misses,
    branches: Branches,
    discovery: Discovery,
    guests: Guests,
    watch: sources::Watch,
    sources: Vec<Source>,
    offline: CpuSet,
    /// Where pods are heard of, if they are tenants.
    runtime: Option<Pods>,
    /// Those in the configuration in use.
    pods: Vec<Pod>,
    /// Why some are not served as they ask.
    refused: BTreeMap<String, Refusal>,
    edit_refused: Option<String>,
    is_ready: bool,
    scheduler_status: SchedulerStatus,
    service: Service,
}

impl<'a, S: Installer> Session<'a, S> {
    fn start(
        machine: &'a Machine,
        options: &'a Options,
        server: &'a Server,
        good: Vec<Source>,
        start: &mut impl FnMut(&Model) -> Result<(S, Start)>,
    ) -> Result<Self> {
        let config = options.config.as_path();
        // Watched before it is read, so that no edit slips through.
        let watch = sources::Watch::open(config);
        let (Loaded { sources, model, offline, kubernetes, refused }, edit_refused) =
            load_or_keep(machine, config, good, &[])?;
        edit_refused.iter().for_each(|reason| say(&format!("{NOT_USED}: {reason}")));
        remarks(&model, &offline).iter().for_each(|line| say(line));
        let trust = Trust::new(options.vm_users.clone());
        let discovery = Discovery::open(machine.cgroup_root.clone(), machine.proc.clone(), trust)?;
        let (scheduler, start) = start(&model).context("starting the scheduler")?;
        say(&format!(
            "scheduler {}: CPUs {} for tenants, housekeeping on {}",
            told_of(&start),
            model.host.tenant_cpus(),
            if model.host.housekeeping.is_empty() {
                "none".to_owned()
            } else {
                model.host.housekeeping.to_string()
            }
        ));
        let mut guests = Guests::new(options.socket.with_file_name("guests"));
        guests.prepare(&model);
        if matches!(start, Start::Anew { .. }) {
            guests.withdraw();
        }
        let driver = match start {
            Start::Anew { .. } => Driver::new(now_ns(), model, &Job::ALL),
            Start::TakenOver(found) => Driver::found(now_ns(), model, found, &Job::ALL),
        };
        let (is_ready, service) = (false, Service::default());
        let mut session = Session {
            machine,
            config,
            server,
            scheduler,
            driver,
            misses: Misses::new(Resctrl::new(machine.resctrl(), machine.proc.clone())),
            branches: Branches::default(),
            discovery,
            guests,
            watch,
            sources,
            offline,
            runtime: kubernetes.map(Pods::follow).transpose()?,
            pods: Vec::new(),
            refused,
            edit_refused,
            is_ready,
            scheduler_status: SchedulerStatus::default(),
            service,
        };
        session.watch.note().iter().for_each(|line| say(line));
        session.follow_branches();
        session.count(); // the account begins with the scheduler, not with the first job
        session.discovery.scan_vms(session.driver.model());
        session.look();
        session.find_threads();
        Ok(session)
    }

    fn run(&mut self, signals: Signals) -> Result<Ended> {
        loop {
            if let Some(let_go) = self.scheduler.exited() {
                return Ok(Ended::Exited(let_go));
            }
            self.do_what_is_due();
            if !self.is_ready && self.driver.is_settled() {
                self.is_ready = true;
                say("ready");
                self.service.ready();
                self.tell_how_it_goes();
            }
            self.service.alive();
            let [stopped, left, reload, cgroups, config, asked, sampled, pods] = self.wait(signals)?;
            if stopped || left {
                self.service.stopping();
                return Ok(if stopped { Ended::Stopped } else { Ended::Left });
            }
            if cgroups && self.discovery.refresh() {
                self.look();
            }
            if reload {
                drain(signals.reload);
            }
            if reload || (config && self.watch.changed()) {
                self.driver.edited(now_ns());
            }
            if pods {
                self.driver.pods_changed(now_ns());
            }
            if asked {
                let server = self.server;
                server.answer(|| self.status());
            }
            if sampled {
                let number = |name: &str| self.driver.number_of(name);
                self.server.sampler.answer(|it| sampler::sample(&self.scheduler, number(&it.tenant), it));
            }
        }
    }

    fn status(&mut self) -> Status {
        self.count();
        let offline = self.offline.to_string();
        let branch_records_off = self.branches.lacking().map(str::to_owned);
        let scheduler = SchedulerStatus { branch_records_off, ..self.scheduler_status.clone() };
        let status = self.driver.status(now_ns(), std::process::id(), self.edit_refused.clone());
        let (refused, model) = (&self.refused, self.driver.model());
        let kubernetes =
            self.runtime.as_ref().map(|runtime| runtime.status().with(refused, model, &status.tenants));
        let mut interference = status.interference;
        if let Some(measured) =
            interference.as_mut().filter(|interference| interference.strategy == "measured")
        {
            measured.counted_by = self.misses.source().map(str::to_owned);
        }
        Status { offline, scheduler, kubernetes, interference, ..status }
    }

    /// Tells systemd.
    fn tell_how_it_goes(&self) {
        let line = match &self.edit_refused {
            None => format!("{} tenants configured", self.driver.model().tenants.len()),
            Some(_) => "the edited configuration is not used; the log says why".to_owned(),
        };
        self.service.status(&line);
    }

    /// Waits for a signal, cgroups, configuration, a client, pods, or the next thing that is due.
    fn wait(&self, signals: Signals) -> Result<[bool; 8]> {
        let due_ns = self.driver.due_ns().saturating_sub(now_ns());
        // A pause ends with a look.
        let pause_ns = Some(self.discovery.pause().as_nanos() as u64).filter(|pause_ns| *pause_ns > 0);
        let timeout_ns = pause_ns.map_or(due_ns, |pause_ns| pause_ns.min(due_ns));
        // Rounded up: a deadline that is almost there is not worth a turn that finds nothing due.
        let timeout = PollTimeout::try_from(timeout_ns.div_ceil(1_000_000)).unwrap_or(PollTimeout::MAX);
        let [stop, leave, reload] = [signals.stop, signals.leave, signals.reload].map(Some);
        let pods = self.runtime.as_ref().map(Pods::fd);
        let [asked, sampled] = [self.server.fd(), Some(self.server.sampler.fd())];
        let fds = [stop, leave, reload, self.discovery.fd(), self.watch.fd(), asked, sampled, pods];
        let mut polled: Vec<PollFd> =
            fds.iter().flatten().map(|fd| PollFd::new(*fd, PollFlags::POLLIN)).collect();
        match poll(&mut polled, timeout) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => {}
            Err(error) => return Err(error).context("waiting for events"),
        }
        let mut happened = polled.iter().map(|fd| fd.any().unwrap_or(false));
        Ok(fds.map(|fd| fd.is_some() && happened.next().unwrap_or(false)))
    }

    fn do_what_is_due(&mut self) {
        while let Some(command) = self.driver.next(now_ns()) {
            match command {
                Command::Act(action) => self.act(action),
                Command::Spread(ring) => {
                    or_say("background threads are not spread anew", self.scheduler.spread_background(&ring));
                }
                Command::Do(chore) => self.do_chore(chore),
            }
        }
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Tell(change) => {
                or_say("the scheduler does not take a change", self.scheduler.change(&change));
            }
            Action::Install(table) => {
                let shown = Guests::shown(self.driver.model(), |name| self.driver.number_of(name), &table);
                let outcome = self.scheduler.install(table);
                if let Ok(installed) = &outcome {
                    self.guests.publish(installed, shown);
                }
                self.driver.installed(now_ns(), outcome);
            }
            Action::Say(line) => say(&line),
        }
    }

    fn do_chore(&mut self, chore: Chore) {
        match chore {
            Chore::Count => {
                self.count();
                self.guests.follow_clock();
            }
            Chore::CountMisses => self.count_misses(),
            Chore::LookAgain => {
                or_say("waiting threads are not looked at again", self.scheduler.look_again())
            }
            Chore::FindVms => {
                if self.discovery.scan_vms(self.driver.model()) {
                    self.look();
                }
                self.guests.reach(self.discovery.contexts());
            }
            Chore::FindThreads => self.find_threads(),
            Chore::Rescan => {
                if self.discovery.rescan() {
                    self.look();
                }
                if self.watch.look() {
                    self.driver.edited(now_ns());
                }
            }
            Chore::Configure => self.reconfigure(),
        }
    }

    fn count(&mut self) {
        match self.scheduler.read(now_ns()) {
            Ok(reading) => self.driver.counted(reading),
            Err(error) => say(&format!("the scheduler's counters cannot be read: {error:#}")),
        }
    }

    /// What those with reservations fetch from memory.
    fn count_misses(&mut self) {
        let cpus: Vec<u32> = self.driver.model().host.tenant_cpus().iter().collect();
        let outcome = self.misses.count(&self.driver.reserved(), &cpus, &self.machine.cgroup_root);
        let counts = outcome.map(|(counts, news)| {
            news.iter().for_each(|line| say(line));
            counts
        });
        self.driver.misses_counted(now_ns(), counts);
    }

    /// Tells the rules who came and who went.
    fn look(&mut self) {
        let (sightings, lines) = self.discovery.look(self.driver.model());
        lines.iter().for_each(|line| say(line));
        sightings.into_iter().for_each(|sighting| self.driver.tell(event(sighting)));
    }

    fn find_threads(&mut self) {
        let sightings = self.discovery.scan_threads(self.driver.model());
        sightings.into_iter().for_each(|sighting| self.driver.tell(event(sighting)));
    }

    /// Branches are recorded where the configuration asks for it.
    fn follow_branches(&mut self) {
        let host = &self.driver.model().host;
        let cpus = if host.branch_records { host.tenant_cpus() } else { CpuSet::default() };
        if let Some(lacking) = self.branches.follow(cpus.difference(&self.offline), &self.scheduler) {
            say(&format!("branch records are not read: {lacking}"));
        }
    }

    /// Reads the configuration anew, and the pods. A configuration that is wrong changes nothing, and pods come and go
    /// beside it.
    fn reconfigure(&mut self) {
        self.watch.note().iter().for_each(|line| say(line));
        let pods = self.runtime.as_ref().map(Pods::now).unwrap_or_default();
        match load_or_keep(self.machine, self.config, self.sources.clone(), &pods) {
            Ok((loaded, edit_refused)) => {
                let is_told = self.edit_refused == edit_refused;
                edit_refused.iter().filter(|_| !is_told).for_each(|why| say(&format!("{NOT_USED}: {why}")));
                self.edit_refused = edit_refused;
                self.take_on_or_keep(loaded, &pods);
            }
            Err(error) => {
                say(&format!("neither the edited configuration nor the one before can be used: {error:#}"));
                self.edit_refused = Some(format!("{error:#}"));
            }
        }
        self.tell_how_it_goes();
    }

    /// Goes on with this configuration and these pods; or with the pods, if the host cannot take the rest over.
    fn take_on_or_keep(&mut self, loaded: Loaded, pods: &[Pod]) {
        let is_edited = loaded.sources != self.sources;
        if !is_edited && pods == self.pods {
            return;
        }
        if is_edited {
            say("configuration read");
        }
        if self.take_on(loaded, pods) || !is_edited {
            return;
        }
        self.edit_refused = Some("this host cannot take it over; the log says why".to_owned());
        if pods != self.pods
            && let Some(kept) = or_none(parse(self.machine, self.sources.clone(), pods))
        {
            self.take_on(kept, pods);
        }
    }

    /// Goes on with this configuration and these pods. False if the host cannot.
    fn take_on(&mut self, loaded: Loaded, pods: &[Pod]) -> bool {
        let Loaded { sources, model, offline, kubernetes, refused } = loaded;
        self.driver.tell(Event::Configured(model.clone()));
        self.do_what_is_due();
        let is_taken = *self.driver.model() == model;
        if is_taken {
            self.guests.prepare(self.driver.model());
            self.follow_branches();
            let is_new = |(pod, reason): &(&String, &Refusal)| self.refused.get(*pod) != Some(*reason);
            refused.iter().filter(is_new).for_each(|(pod, reason)| say(&format!("{pod}: {reason}")));
            (self.sources, self.offline, self.pods, self.refused) =
                (sources, offline, pods.to_vec(), refused);
            if self.runtime.as_ref().map(Pods::kubernetes) != kubernetes.as_ref() {
                self.runtime = None; // before the next one: the runtime knows plugins by their names
                self.runtime = kubernetes.and_then(|kubernetes| or_none(Pods::follow(kubernetes)));
            }
        }
        self.discovery.scan_vms(self.driver.model());
        self.look();
        is_taken
    }
}

/// What the scheduler refuses is said, and the daemon goes on.
fn or_say(what: &str, result: Result<()>) {
    if let Err(error) = result {
        say(&format!("{what}: {error:#}"));
    }
}

/// What cannot be had is said, and the daemon goes on without.
fn or_none<T>(result: Result<T>) -> Option<T> {
    result.map_err(|error| say(&format!("{error:#}"))).ok()
}
