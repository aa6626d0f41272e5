//! `rota up`: one loop that waits for whatever happens next, lets [`rota_rules`] decide, and carries it out.

#[cfg(test)]
mod tests;

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::time::{ClockId, clock_gettime};
use rota_host::{Discovery, Sighting, Trust, topology, tree};
use rota_model::config::{Source, parse_here};
use rota_model::{CpuSet, Model};
use rota_rules::life::{Action, Event};
use rota_rules::status::Status;
use rota_rules::{Chore, Command, Driver, Job, capacity};
use rota_sched::Scheduler;

use crate::installer::Installer;
use crate::log::say;
use crate::server::{Server, ask};
use crate::{metrics, sources};

/// After the kernel has let go of the scheduler because of CPU hotplug, the list of CPUs changes within this.
const HOTPLUG: Duration = Duration::from_secs(2);

/// What `rota up` is given.
#[derive(Clone, Debug)]
pub struct Options {
    /// The configuration file.
    pub config: PathBuf,
    /// Where `rota status` asks.
    pub socket: PathBuf,
    /// Where Prometheus asks, if it does.
    pub metrics: Option<SocketAddr>,
}

/// Why the daemon ended other than by being asked to.
#[derive(Debug)]
pub enum Failure {
    /// The configuration or the options are wrong; nothing was started.
    Usage(anyhow::Error),
    /// Something failed. The kernel's own scheduler runs every task.
    Failed(anyhow::Error),
}

/// Where the machine shows itself.
#[derive(Clone, Debug)]
struct Machine {
    cgroup_root: PathBuf,
    proc: PathBuf,
    system: PathBuf,
}

/// Runs until SIGINT or SIGTERM.
///
/// # Errors
/// See [`Failure`].
pub fn run(options: &Options) -> Result<(), Failure> {
    let signals = [Signal::SIGINT, Signal::SIGTERM].into_iter().collect::<SigSet>();
    signals.thread_block().context("blocking signals").map_err(Failure::Failed)?;
    let stop = SignalFd::with_flags(&signals, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)
        .context("making a signalfd")
        .map_err(Failure::Failed)?;
    let machine = Machine {
        cgroup_root: tree::mount_point().map_err(Failure::Failed)?,
        proc: "/proc".into(),
        system: topology::SYSFS.into(),
    };
    run_on(&machine, options, stop.as_fd(), |model| start_scheduler(&machine.system, model))
}

fn start_scheduler(system: &Path, model: &Model) -> Result<Scheduler> {
    if !Path::new("/sys/kernel/sched_ext").exists() {
        bail!("this kernel has no sched_ext; Linux 6.16 or later with CONFIG_SCHED_CLASS_EXT has it");
    }
    Scheduler::start(&capacity(model, topology::possible_count(system)?))
}

/// Sessions, one after the other, until one ends for another reason than that the CPUs have changed.
fn run_on<S: Installer>(
    machine: &Machine,
    options: &Options,
    stop: BorrowedFd,
    mut start: impl FnMut(&Model) -> Result<S>,
) -> Result<(), Failure> {
    // Before anything is started: a second daemon, or a wrong configuration, disturbs nothing.
    load(machine, &options.config).map_err(Failure::Usage)?;
    let server = Server::bind(&options.socket).map_err(Failure::Failed)?;
    if let Some(address) = options.metrics {
        let socket = options.socket.clone();
        let address = metrics::serve(address, move || ask(&socket)).map_err(Failure::Failed)?;
        say(&format!("metrics at http://{address}/metrics"));
    }
    loop {
        let online = topology::online(&machine.system).map_err(Failure::Failed)?;
        let ended = Session::start(machine, options, &server, &mut start)
            .and_then(|mut session| session.run(stop))
            .map_err(Failure::Failed)?;
        match ended {
            Ended::Stopped => {
                say("stopped; the kernel's own scheduler runs every task");
                return Ok(());
            }
            Ended::Exited(reason) => {
                say(&format!("the kernel has let go of the scheduler, and runs every task itself: {reason}"));
                let now = wait_for_hotplug(&machine.system, &online).map_err(Failure::Failed)?;
                if now == online {
                    return Err(Failure::Failed(anyhow!("the kernel has let go of the scheduler: {reason}")));
                }
                say(&format!("the CPUs were {online} and are {now} now; starting anew"));
            }
        }
    }
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

/// A configuration as it was read.
struct Loaded {
    sources: Vec<Source>,
    /// With the CPUs that are online.
    model: Model,
    /// Those that the configuration has beside them.
    offline: CpuSet,
}

fn load(machine: &Machine, config: &Path) -> Result<Loaded> {
    let sources = sources::read(config)?;
    let (model, offline) = parse_here(&sources, &topology::machine(&machine.system)?)?;
    Ok(Loaded { sources, model, offline })
}

/// CLOCK_MONOTONIC in ns, the clock of the scheduler.
fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).expect("every Linux has CLOCK_MONOTONIC");
    now.tv_sec() as u64 * 1_000_000_000 + now.tv_nsec() as u64
}

/// What the life cycle is told of a sighting.
fn event(sighting: Sighting) -> Event {
    match sighting {
        Sighting::Appeared(tenant, cgroup) => Event::Appeared { tenant, cgroup },
        Sighting::Vanished(tenant) => Event::Vanished { tenant },
        Sighting::Threads(tenant, threads) => Event::Threads { tenant, threads },
    }
}

/// How a session ended.
enum Ended {
    Stopped,
    Exited(String),
}

/// From the scheduler's start to its end. Dropping it detaches the scheduler.
struct Session<'a, S> {
    machine: &'a Machine,
    config: &'a Path,
    server: &'a Server,
    scheduler: S,
    driver: Driver,
    discovery: Discovery,
    watch: sources::Watch,
    sources: Vec<Source>,
    offline: CpuSet,
    edit_refused: Option<String>,
    is_ready: bool,
}

impl<'a, S: Installer> Session<'a, S> {
    fn start(
        machine: &'a Machine,
        options: &'a Options,
        server: &'a Server,
        start: &mut impl FnMut(&Model) -> Result<S>,
    ) -> Result<Self> {
        let config = options.config.as_path();
        // Watched before it is read, so that no edit slips through.
        let watch = sources::Watch::open(config)?;
        let Loaded { sources, model, offline } = load(machine, config)?;
        if !offline.is_empty() {
            say(&format!(
                "CPUs {offline} of host.cpus are offline: nothing is planned there until they are online"
            ));
        }
        let trust = Trust::new(Vec::new());
        let discovery = Discovery::open(machine.cgroup_root.clone(), machine.proc.clone(), trust)?;
        let unmatched = model.tenants.iter().filter(|tenant| tenant.matcher.is_none() && !tenant.pinned);
        for tenant in unmatched {
            say(&format!("{}: has no `match`, so it is only planned for", tenant.name));
        }
        let scheduler = start(&model).context("starting the scheduler")?;
        say(&format!(
            "scheduler attached: CPUs {} for tenants, housekeeping on {}",
            model.host.tenant_cpus(),
            if model.host.housekeeping.is_empty() {
                "none".to_owned()
            } else {
                model.host.housekeeping.to_string()
            }
        ));
        let driver = Driver::new(now_ns(), model, &Job::ALL);
        let (edit_refused, is_ready) = (None, false);
        let mut session = Session {
            machine,
            config,
            server,
            scheduler,
            driver,
            discovery,
            watch,
            sources,
            offline,
            edit_refused,
            is_ready,
        };
        session.count(); // the account begins with the scheduler, not with the first job
        session.discovery.scan_vms(session.driver.model());
        session.look();
        session.find_threads();
        Ok(session)
    }

    fn run(&mut self, stop: BorrowedFd) -> Result<Ended> {
        loop {
            if let Some(reason) = self.scheduler.exited() {
                return Ok(Ended::Exited(reason));
            }
            self.do_what_is_due()?;
            if !self.is_ready && self.driver.is_settled() {
                self.is_ready = true;
                say("ready");
            }
            let [stopped, cgroups, config, asked] = self.wait(stop)?;
            if stopped {
                return Ok(Ended::Stopped);
            }
            if cgroups && self.discovery.refresh() {
                self.look();
            }
            if config && self.watch.changed()? {
                self.driver.edited(now_ns());
            }
            if asked {
                self.count();
                let status = || Status {
                    offline: self.offline.to_string(),
                    ..self.driver.status(now_ns(), std::process::id(), self.edit_refused.clone())
                };
                self.server.answer(status);
            }
        }
    }

    /// Waits for a request to stop, cgroups, configuration, a client, or the next thing that is due.
    fn wait(&self, stop: BorrowedFd) -> Result<[bool; 4]> {
        let due_ns = self.driver.due_ns().saturating_sub(now_ns());
        // A pause ends with a look.
        let pause_ns = Some(self.discovery.pause().as_nanos() as u64).filter(|pause_ns| *pause_ns > 0);
        let timeout_ns = pause_ns.map_or(due_ns, |pause_ns| pause_ns.min(due_ns));
        // Rounded up: a deadline that is almost there is not worth a turn that finds nothing due.
        let timeout = PollTimeout::try_from(timeout_ns.div_ceil(1_000_000)).unwrap_or(PollTimeout::MAX);
        let fds = [Some(stop), self.discovery.fd(), Some(self.watch.as_fd()), Some(self.server.as_fd())];
        let mut polled: Vec<PollFd> =
            fds.iter().flatten().map(|fd| PollFd::new(*fd, PollFlags::POLLIN)).collect();
        match poll(&mut polled, timeout) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => {}
            Err(error) => return Err(error).context("waiting for events"),
        }
        let mut happened = polled.iter().map(|fd| fd.any().unwrap_or(false));
        Ok(fds.map(|fd| fd.is_some() && happened.next().unwrap_or(false)))
    }

    fn do_what_is_due(&mut self) -> Result<()> {
        while let Some(command) = self.driver.next(now_ns()) {
            match command {
                Command::Act(action) => self.act(action),
                Command::Spread(ring) => {
                    or_say("background threads are not spread anew", self.scheduler.spread_background(&ring));
                }
                Command::Do(chore) => self.do_chore(chore)?,
            }
        }
        Ok(())
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Tell(change) => {
                or_say("the scheduler does not take a change", self.scheduler.change(&change));
            }
            Action::Install(table) => {
                let outcome = self.scheduler.install(table);
                self.driver.installed(now_ns(), outcome);
            }
            Action::Say(line) => say(&line),
        }
    }

    fn do_chore(&mut self, chore: Chore) -> Result<()> {
        match chore {
            Chore::Count => self.count(),
            Chore::LookAgain => {
                or_say("waiting threads are not looked at again", self.scheduler.look_again())
            }
            Chore::FindVms => {
                if self.discovery.scan_vms(self.driver.model()) {
                    self.look();
                }
            }
            Chore::FindThreads => self.find_threads(),
            Chore::Rescan => {
                if self.discovery.rescan() {
                    self.look();
                }
            }
            Chore::Configure => self.reconfigure()?,
        }
        Ok(())
    }

    fn count(&mut self) {
        match self.scheduler.read(now_ns()) {
            Ok(reading) => self.driver.counted(reading),
            Err(error) => say(&format!("the scheduler's counters cannot be read: {error:#}")),
        }
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

    /// Reads the configuration anew. One that is wrong changes nothing.
    fn reconfigure(&mut self) -> Result<()> {
        self.edit_refused = None;
        match load(self.machine, self.config) {
            Ok(loaded) if loaded.sources == self.sources => {}
            Ok(Loaded { sources, model, offline }) => {
                say("configuration read");
                self.driver.tell(Event::Configured(model.clone()));
                self.do_what_is_due()?;
                if *self.driver.model() == model {
                    (self.sources, self.offline) = (sources, offline);
                } else {
                    self.edit_refused = Some("this host cannot take it over; the log says why".to_owned());
                }
                self.discovery.scan_vms(self.driver.model());
                self.look();
            }
            Err(error) => {
                say(&format!("the edited configuration is not used: {error:#}"));
                self.edit_refused = Some(format!("{error:#}"));
            }
        }
        Ok(())
    }
}

/// What the scheduler refuses is said, and the daemon goes on.
fn or_say(what: &str, result: Result<()>) {
    if let Err(error) = result {
        say(&format!("{what}: {error:#}"));
    }
}
