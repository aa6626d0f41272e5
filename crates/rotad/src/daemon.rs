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
use rota_host::{Discovery, Sighting, topology, tree};
use rota_model::config::{Source, parse};
use rota_model::{CpuSet, Model};
use rota_rules::accounts::{Accounts, Reading, absent};
use rota_rules::background::Spread;
use rota_rules::life::{Action, Event, Life};
use rota_rules::status::Status;
use rota_rules::{ACCOUNTS_NS, RETRY_NS, capacity};
use rota_sched::Scheduler;

use crate::enactor::Enactor;
use crate::log::say;
use crate::server::{Server, ask};
use crate::{metrics, sources};

const SECOND_NS: u64 = 1_000_000_000;

/// How often vCPU threads are looked for, and whether the scheduler still runs: neither can be waited for.
const THREADS_NS: u64 = SECOND_NS / 4;
/// How often the tree of cgroups is read anew, in case that inotify missed something.
const RESCAN_NS: u64 = 10 * SECOND_NS;
/// An edit counts when nothing has happened to the files for so long: half a file, or one of two, is no edit.
const EDIT_NS: u64 = SECOND_NS / 10;
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
fn run_on<E: Enactor>(
    machine: &Machine,
    options: &Options,
    stop: BorrowedFd,
    mut start: impl FnMut(&Model) -> Result<E>,
) -> Result<(), Failure> {
    // Before anything is started: a second daemon, or a wrong configuration, disturbs nothing.
    let (_, model) = load(machine, &options.config).map_err(Failure::Usage)?;
    check_cpus(machine, &model).map_err(Failure::Usage)?;
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

fn load(machine: &Machine, config: &Path) -> Result<(Vec<Source>, Model)> {
    let sources = sources::read(config)?;
    let model = parse(&sources, &topology::read(&machine.system)?)?;
    Ok((sources, model))
}

/// A configuration may describe another machine, for planning; but only this one's CPUs can be scheduled.
fn check_cpus(machine: &Machine, model: &Model) -> Result<()> {
    let online = topology::online(&machine.system)?;
    let missing = model.host.cpus.difference(&online);
    if !missing.is_empty() {
        bail!(
            "host.cpus = \"{}\", but CPUs {missing} are not online on this machine (which has {online}); leave them \
             out, or use `rota plan` to plan for another machine",
            model.host.cpus
        );
    }
    Ok(())
}

/// CLOCK_MONOTONIC in ns, the clock of the scheduler.
fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).expect("every Linux has CLOCK_MONOTONIC");
    now.tv_sec() as u64 * SECOND_NS + now.tv_nsec() as u64
}

/// Something that is done again and again.
#[derive(Debug)]
struct Every {
    period_ns: u64,
    next_ns: u64,
}

impl Every {
    fn new(period_ns: u64) -> Every {
        Every { period_ns, next_ns: 0 }
    }

    /// Whether it is time; if so, the next time is a period from now.
    fn is_due(&mut self, now_ns: u64) -> bool {
        let due = self.next_ns <= now_ns;
        if due {
            self.next_ns = now_ns + self.period_ns;
        }
        due
    }
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
struct Session<'a, E> {
    machine: &'a Machine,
    config: &'a Path,
    server: &'a Server,
    scheduler: E,
    started_ns: u64,
    life: Life,
    discovery: Discovery,
    watch: sources::Watch,
    sources: Vec<Source>,
    edited_ns: Option<u64>,
    edit_refused: Option<String>,
    accounts: Accounts,
    spread: Spread,
    is_ready: bool,
    threads: Every,
    counters: Every,
    rescan: Every,
}

impl<'a, E: Enactor> Session<'a, E> {
    fn start(
        machine: &'a Machine,
        options: &'a Options,
        server: &'a Server,
        start: &mut impl FnMut(&Model) -> Result<E>,
    ) -> Result<Self> {
        let config = options.config.as_path();
        // Watched before it is read, so that no edit slips through.
        let watch = sources::Watch::open(config)?;
        let (sources, model) = load(machine, config)?;
        check_cpus(machine, &model)?;
        let discovery = Discovery::open(machine.cgroup_root.clone(), machine.proc.clone())?;
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
        let started_ns = now_ns();
        let life = Life::new(started_ns, model);
        let mut session = Session {
            machine,
            config,
            server,
            scheduler,
            started_ns,
            life,
            discovery,
            watch,
            sources,
            edited_ns: None,
            edit_refused: None,
            accounts: Accounts::default(),
            spread: Spread::default(),
            is_ready: false,
            threads: Every::new(THREADS_NS),
            counters: Every::new(ACCOUNTS_NS),
            rescan: Every::new(RESCAN_NS),
        };
        session.feed(Event::Tick);
        session.discovery.scan_vms(session.life.model());
        session.look();
        Ok(session)
    }

    fn run(&mut self, stop: BorrowedFd) -> Result<Ended> {
        loop {
            if let Some(reason) = self.scheduler.exited() {
                return Ok(Ended::Exited(reason));
            }
            self.do_what_is_due()?;
            if !self.is_ready && self.life.is_settled() {
                self.is_ready = true;
                say("ready");
            }
            let [stopped, cgroups, config, asked] = self.wait(stop)?;
            if stopped {
                return Ok(Ended::Stopped);
            }
            if cgroups && self.discovery.refresh()? {
                self.look();
            }
            if config && self.watch.changed()? {
                self.edited_ns = Some(now_ns());
            }
            if asked {
                self.read_accounts();
                self.server.answer(|| self.status());
            }
        }
    }

    /// Waits for a request to stop, cgroups, configuration, a client, or the next thing that is due.
    fn wait(&self, stop: BorrowedFd) -> Result<[bool; 4]> {
        let due = [self.threads.next_ns, self.counters.next_ns, self.rescan.next_ns];
        let edited_ns = self.edited_ns.map(|edited_ns| edited_ns + EDIT_NS);
        let due_ns = due.into_iter().chain(self.life.deadline_ns()).chain(edited_ns).min().unwrap_or(0);
        // Rounded up: a deadline that is almost there is not worth a turn that finds nothing due.
        let timeout_ms = due_ns.saturating_sub(now_ns()).div_ceil(1_000_000);
        let timeout = PollTimeout::try_from(timeout_ms).unwrap_or(PollTimeout::MAX);
        let mut fds = [stop, self.discovery.as_fd(), self.watch.as_fd(), self.server.as_fd()]
            .map(|fd| PollFd::new(fd, PollFlags::POLLIN));
        match poll(&mut fds, timeout) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => {}
            Err(error) => return Err(error).context("waiting for events"),
        }
        Ok(fds.map(|fd| fd.any().unwrap_or(false)))
    }

    fn do_what_is_due(&mut self) -> Result<()> {
        if self.rescan.is_due(now_ns()) && self.discovery.rescan()? {
            self.look();
        }
        if self.counters.is_due(now_ns()) {
            self.read_accounts();
            self.spread_background();
            if let Err(error) = self.scheduler.look_again() {
                say(&format!("waiting threads could not be looked at again: {error:#}"));
            }
            if self.discovery.scan_vms(self.life.model()) {
                self.look();
            }
        }
        if self.threads.is_due(now_ns()) {
            for sighting in self.discovery.scan_threads() {
                self.feed(event(sighting));
            }
        }
        if self.edited_ns.take_if(|edited_ns| *edited_ns + EDIT_NS <= now_ns()).is_some() {
            self.reconfigure();
        }
        if self.life.deadline_ns().is_some_and(|due_ns| due_ns <= now_ns()) {
            self.feed(Event::Tick);
        }
        Ok(())
    }

    /// Tells the life cycle who came and who went.
    fn look(&mut self) {
        let (sightings, lines) = self.discovery.look(self.life.model());
        lines.iter().for_each(|line| say(line));
        for sighting in sightings {
            self.feed(event(sighting));
        }
    }

    /// Reads the configuration anew. One that is wrong changes nothing.
    fn reconfigure(&mut self) {
        let loaded = load(self.machine, self.config)
            .and_then(|(sources, model)| check_cpus(self.machine, &model).map(|()| (sources, model)));
        self.edit_refused = None;
        match loaded {
            Ok((sources, _)) if sources == self.sources => {}
            Ok((sources, model)) => {
                say("configuration read");
                self.feed(Event::Configured(model.clone()));
                if *self.life.model() == model {
                    self.sources = sources;
                } else {
                    self.edit_refused = Some("this host cannot take it over; the log says why".to_owned());
                }
                self.discovery.scan_vms(self.life.model());
                self.look();
            }
            Err(error) => {
                say(&format!("the edited configuration is not used: {error:#}"));
                self.edit_refused = Some(format!("{error:#}"));
            }
        }
    }

    /// Gives an event to the life cycle and carries out what follows from it.
    fn feed(&mut self, event: Event) {
        let mut event = Some(event);
        while let Some(next) = event.take() {
            for action in self.life.step(now_ns(), next) {
                event = self.carry_out(action).or(event);
            }
        }
    }

    fn carry_out(&mut self, action: Action) -> Option<Event> {
        let scheduler = &mut self.scheduler;
        let result = match action {
            Action::Set(spec) => scheduler.tenant_set(&spec),
            Action::Remove(id) => scheduler.tenant_remove(id),
            Action::Bind { cgroup, id } => scheduler.cgroup_bind(cgroup, id),
            Action::Unbind { cgroup } => scheduler.cgroup_unbind(cgroup),
            Action::BindThread { tid, id, index } => scheduler.vcpu_thread_bind(tid, id, index),
            Action::UnbindThread { tid } => scheduler.vcpu_thread_unbind(tid),
            Action::Install(table) => {
                return Some(match scheduler.install(table) {
                    Ok(installed) => Event::Installed {
                        generation: installed.generation,
                        adopted_at_ns: installed.adopted_at_ns,
                    },
                    Err(error) => {
                        Event::NotInstalled { reason: format!("{error:#}"), retry_at_ns: now_ns() + RETRY_NS }
                    }
                });
            }
            Action::Say(line) => {
                say(&line);
                Ok(())
            }
        };
        if let Err(error) = result {
            say(&format!("the scheduler does not take a change: {error:#}"));
        }
        None
    }

    fn read_accounts(&mut self) {
        let read = || -> Result<_> {
            Ok((self.scheduler.queues()?, self.scheduler.cpus()?, self.scheduler.lags()?))
        };
        match read() {
            Ok((queues, cpus, lags)) => {
                let reading = Reading { at_ns: now_ns(), queues, cpus, lags };
                let missed = self.accounts.update(reading, self.life.tenants());
                missed.iter().for_each(|line| say(line));
            }
            Err(error) => say(&format!("the scheduler's counters cannot be read: {error:#}")),
        }
    }

    fn spread_background(&mut self) {
        let cpus = self.life.model().host.tenant_cpus();
        let mut left = self.accounts.left();
        left.retain(|(cpu, _)| cpus.contains(*cpu));
        if let Some(ring) = self.spread.update(&left)
            && let Err(error) = self.scheduler.spread_background(ring)
        {
            say(&format!("background threads could not be spread anew: {error:#}"));
        }
    }

    fn status(&self) -> Status {
        let (generation, table_length_ns) = self.life.table();
        let mut tenants = self.accounts.tenants(self.life.tenants());
        let here: std::collections::BTreeSet<&str> =
            self.life.tenants().map(|view| view.tenant.name.as_str()).collect();
        let configured = self.life.model().tenants.iter();
        tenants.extend(configured.filter(|tenant| !here.contains(tenant.name.as_str())).map(absent));
        Status {
            pid: std::process::id(),
            up_s: (now_ns() - self.started_ns) as f64 / SECOND_NS as f64,
            generation,
            table_length_ns,
            window_s: self.accounts.window_ns() as f64 / SECOND_NS as f64,
            edit_refused: self.edit_refused.clone(),
            tenants,
            cpus: self.accounts.cpus(),
            spares: self.life.spares(),
        }
    }
}
