//! One scenario under one policy, from the first cgroup to the written result.

use anyhow::{Context, Result, ensure};
use nix::unistd::{SysconfVar, sysconf};
use serde::de::DeserializeOwned;
use std::fs;
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::clock::{self, Window};
use super::control::{self, Alarms};
use super::observer::Observer;
use super::process::Process;
use super::realtime;
use super::scheduler::Scheduler;
use super::tenant::{Reading, Tenants};
use crate::scenario::result::{Clock, PolicyResult, TenantResult};
use crate::scenario::{Policy, Program, Scenario};

/// The runner's priority: it sleeps nearly always, and must not be late when it does not. Above the clients'.
const PRIORITY: i32 = 20;
/// So long before the window the runner does its own part, which holds up a CPU: a console of a guest is slow. The
/// tenants' CPU time is read then and at the end, with the time of each reading.
const HASTE_NS: u64 = 300_000_000;
/// How long a server, or Rota, may take to get ready, and anything to end.
const LIMIT: Duration = Duration::from_secs(60);
/// Where Rota's configuration is put.
const CONFIG: &str = "/tmp/rota.toml";

/// What to run, and where to put what came of it.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// The scenario's file
    #[arg(long)]
    pub scenario: PathBuf,
    /// What shares the CPUs out
    #[arg(long)]
    pub policy: Policy,
    /// What this machine's clock follows
    #[arg(long, default_value = "real")]
    pub clock: Clock,
    /// Folder for <POLICY>.json and the programs' logs
    #[arg(long, default_value = "/results")]
    pub out: PathBuf,
    /// Rota's command line
    #[arg(long, default_value = "rota")]
    pub rota: String,
}

/// Runs the scenario and writes its result as `<policy>.json`. Progress goes to the standard output, a line a step.
///
/// # Errors
///
/// If anything does not start, ends too early or does not end. Whatever was started has ended then, too.
pub fn run(options: &Options) -> Result<()> {
    let scenario = Scenario::load(&options.scenario)?;
    let cpus = sysconf(SysconfVar::_NPROCESSORS_ONLN)?.and_then(|cpus| u32::try_from(cpus).ok());
    ensure!(
        cpus == Some(scenario.cpus),
        "{} is for {} CPUs, and this machine has {}",
        scenario.name,
        scenario.cpus,
        cpus.unwrap_or(0)
    );
    realtime::set_fifo(PRIORITY)?;
    let logs = options.out.join(options.policy.name());
    fs::create_dir_all(&logs).with_context(|| format!("cannot create {}", logs.display()))?;
    let result = Run { options, scenario: &scenario, logs }.run()?;
    let path = options.out.join(format!("{}.json", options.policy));
    let json = serde_json::to_string(&result)? + "\n";
    fs::write(&path, json).with_context(|| format!("cannot write {}", path.display()))
}

struct Run<'a> {
    options: &'a Options,
    scenario: &'a Scenario,
    /// Folder of the programs' logs.
    logs: PathBuf,
}

impl Run<'_> {
    fn run(&self) -> Result<PolicyResult> {
        let (scenario, policy) = (self.scenario, self.options.policy);
        let model = scenario.model()?;
        let tenants = Tenants::create(scenario, &model, policy)?;
        self.say(&format!("control, {:.1} s", seconds(scenario.control)));
        let cpus: Vec<u32> = (0..scenario.cpus).collect();
        let mut control = control::alone(&cpus, scenario.control)?;
        let observer = Observer::attach(&tenants.observed()?)?;
        self.write_files()?;
        let mut scheduler = self.start_scheduler()?;
        let mut programs = self.start_programs(&tenants)?;
        let window = Window::after(scenario.warm_up, scenario.window);
        observer.set_window(window)?;
        // They are a thousand real-time tasks a second, which a program that is to be compared exactly does without.
        let alarms = (scenario.control > 0).then(|| Alarms::set(&cpus, window));
        let mut reporters = self.start_reporters(&tenants, window)?;

        let [start, end] = self.measure(&tenants, window, &mut programs, scheduler.as_mut())?;
        let status = if policy == Policy::Rota { Some(self.status()?) } else { None };
        for (_, reporter) in &mut reporters {
            reporter.wait(LIMIT)?;
        }
        if let Some(alarms) = alarms {
            alarms.finish(&mut control)?;
        }
        let observation = observer.finish()?;
        let mut results = tenants.results(&start, &end, observation.tenants, policy);
        for (index, _) in &reporters {
            self.add_report(*index, &mut results)?;
        }
        drop(tenants);
        if let Some(scheduler) = &mut scheduler {
            scheduler.stop(LIMIT)?;
        }
        Ok(PolicyResult {
            scenario: scenario.name.clone(),
            policy,
            kernel: nix::sys::utsname::uname()?.release().to_string_lossy().into_owned(),
            cpus: scenario.cpus,
            clock: self.options.clock,
            warm_up_ns: scenario.warm_up,
            window_ns: scenario.window,
            control,
            busy_ns: u64::from(scenario.cpus) * scenario.window - observation.idle_ns,
            system_ns: observation.system_ns,
            tenants: results,
            status,
        })
    }

    /// Waits for the window and for its end, and reads what the tenants have had by then. Neither may end early.
    fn measure(
        &self,
        tenants: &Tenants,
        window: Window,
        programs: &mut [Process],
        mut scheduler: Option<&mut Scheduler>,
    ) -> Result<[Reading; 2]> {
        let mut expect_running = || {
            programs.iter_mut().try_for_each(Process::expect_running)?;
            scheduler.as_mut().map_or(Ok(()), |scheduler| scheduler.expect_running())
        };
        self.say(&format!("warm-up, {:.1} s", seconds(self.scenario.warm_up)));
        clock::sleep_until(window.start_ns.saturating_sub(HASTE_NS));
        expect_running()?;
        self.say(&format!("measuring, {:.1} s", seconds(self.scenario.window)));
        let start = tenants.read()?;
        clock::sleep_until(window.end_ns);
        let end = tenants.read()?;
        expect_running()?;
        Ok([start, end])
    }

    fn say(&self, message: &str) {
        println!("{}: {message}", self.options.policy);
    }

    fn write_files(&self) -> Result<()> {
        for file in &self.scenario.files {
            let path = Path::new(&file.path);
            fs::create_dir_all(path.parent().unwrap_or(path))
                .and_then(|()| fs::write(path, &file.text))
                .with_context(|| format!("cannot write {}", file.path))?;
        }
        Ok(())
    }

    /// Starts the scheduler, if it is not the kernel's own, and waits until it has the CPUs.
    fn start_scheduler(&self) -> Result<Option<Scheduler>> {
        let policy = self.options.policy;
        if let Some(program) = policy.program() {
            self.say(&format!("starting {program}"));
            let log = self.logs.join("scheduler.log");
            let arguments = self.scenario.scheduler_arguments.get(&policy).into_iter().flatten().cloned();
            let command: Vec<String> = std::iter::once(program).chain(arguments).collect();
            return Scheduler::start(&command, &log, LIMIT, || true).map(Some);
        }
        if policy != Policy::Rota {
            return Ok(None);
        }
        self.say("starting rota up");
        fs::write(CONFIG, &self.scenario.config).with_context(|| format!("cannot write {CONFIG}"))?;
        let log = self.logs.join("rota-up.log");
        let command = [&self.options.rota, "up", "-c", CONFIG].map(String::from);
        let is_ready = || fs::read_to_string(&log).is_ok_and(|log| says_ready(&log));
        Scheduler::start(&command, &log, LIMIT, is_ready).map(Some)
    }

    fn status(&self) -> Result<serde_json::Value> {
        let rota = &self.options.rota;
        let output = Command::new(rota).args(["status", "--json"]).output();
        let output = output.with_context(|| format!("cannot start {rota} status"))?;
        ensure!(
            output.status.success(),
            "rota status failed: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        );
        serde_json::from_slice(&output.stdout).context("rota status --json printed no JSON")
    }

    /// Starts the servers and waits for each, then the loads.
    fn start_programs(&self, tenants: &Tenants) -> Result<Vec<Process>> {
        let mut processes = Vec::new();
        let (servers, others): (Vec<_>, Vec<_>) = (0..self.scenario.programs.len())
            .partition(|index| matches!(self.scenario.programs[*index], Program::Server { .. }));
        for index in servers.into_iter().chain(others) {
            let program = &self.scenario.programs[index];
            let Some(command) = program.command() else { continue };
            self.say(&format!("starting {} in {}", command[0], program.tenant()));
            let cgroup = tenants.cgroup(program.tenant())?;
            let mut process = Process::start(command, Some(cgroup), &self.log(index, "log"), None)?;
            if let Program::Server { port, .. } = program {
                process
                    .wait_until_ready(LIMIT, || TcpStream::connect((Ipv4Addr::LOCALHOST, *port)).is_ok())?;
            }
            processes.push(process);
        }
        Ok(processes)
    }

    /// Starts what has results of its own, by its place in the scenario.
    fn start_reporters(&self, tenants: &Tenants, window: Window) -> Result<Vec<(usize, Process)>> {
        let here = std::env::current_exe()?;
        let own = |name: &str| here.with_file_name(name).to_string_lossy().into_owned();
        let ends =
            ["--start-ns".into(), window.start_ns.to_string(), "--end-ns".into(), window.end_ns.to_string()];
        let mut reporters = Vec::new();
        for (index, program) in self.scenario.programs.iter().enumerate() {
            let (mut command, cgroup) = match program {
                Program::Probe { tenant } => (vec![own("rota-probe")], Some(tenants.cgroup(tenant)?)),
                Program::Parallel { tenant, shape, threads, compute } => {
                    let words =
                        ["--threads".into(), threads.to_string(), "--compute-ns".into(), compute.to_string()];
                    let mut command = vec![own("rota-parallel"), shape.name().into()];
                    command.extend(words);
                    (command, Some(tenants.cgroup(tenant)?))
                }
                Program::Client { protocol, port, rate_hz, connections, .. } => {
                    let words = [("--port", u32::from(*port)), ("--rate-hz", *rate_hz)];
                    let words = words.into_iter().chain([("--connections", *connections)]);
                    let words = words.flat_map(|(name, value)| [name.to_owned(), value.to_string()]);
                    let mut command = vec![own("rota-load"), protocol.name().into()];
                    command.extend(words);
                    (command, None)
                }
                Program::Load { .. } | Program::Server { .. } => continue,
            };
            command.extend(ends.clone());
            let process =
                Process::start(&command, cgroup, &self.log(index, "log"), Some(&self.log(index, "json")))?;
            reporters.push((index, process));
        }
        Ok(reporters)
    }

    /// Puts what a reporter has printed into its tenant's result.
    fn add_report(&self, index: usize, results: &mut [TenantResult]) -> Result<()> {
        let program = &self.scenario.programs[index];
        let result = results.iter_mut().find(|result| result.name == program.tenant());
        let result = result.with_context(|| format!("there is no tenant {}", program.tenant()))?;
        match program {
            Program::Probe { .. } => result.probe = Some(self.report(index)?),
            Program::Parallel { .. } => result.work = Some(self.report(index)?),
            Program::Client { .. } => result.requests = Some(self.report(index)?),
            Program::Load { .. } | Program::Server { .. } => {}
        }
        Ok(())
    }

    fn report<T: DeserializeOwned>(&self, index: usize) -> Result<T> {
        let path = self.log(index, "json");
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        serde_json::from_str(&text).with_context(|| format!("{} holds no result", path.display()))
    }

    /// A file for the program at `index` in the scenario.
    fn log(&self, index: usize, extension: &str) -> PathBuf {
        let program = &self.scenario.programs[index];
        self.logs.join(format!("{index:02}-{}-{}.{extension}", program.tenant(), program.kind()))
    }
}

/// Whether a log has the word with which Rota says that its first table is in force.
fn says_ready(log: &str) -> bool {
    log.split(|c: char| !c.is_alphanumeric()).any(|word| word == "ready")
}

fn seconds(ns: u64) -> f64 {
    Duration::from_nanos(ns).as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ready_is_a_word_of_its_own() {
        assert!(says_ready("attached\nready: generation 1 is in force"));
        assert!(!says_ready("another `rota up` runs already"));
    }
}
