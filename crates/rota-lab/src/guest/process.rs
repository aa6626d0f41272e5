//! Processes that this one starts, and ends.

use anyhow::{Context, Result, bail};
use nix::libc;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use super::cgroup::Cgroup;

const POLL: Duration = Duration::from_millis(50);
/// How much of a log an error shows.
const TAIL_LINES: usize = 10;

/// A process with its log. Dropped, it is killed if it still runs.
#[derive(Debug)]
pub struct Process {
    /// For messages.
    name: String,
    log: PathBuf,
    child: Child,
}

impl Process {
    /// Starts a program in a cgroup, or in this process' own. Its standard error goes to the file `log`, its standard
    /// output to the file `output`, or nowhere.
    ///
    /// # Errors
    ///
    /// If there is no such program, or the cgroup does not take it.
    pub fn start(
        command: &[String],
        cgroup: Option<&Cgroup>,
        log: &Path,
        output: Option<&Path>,
    ) -> Result<Process> {
        let [program, arguments @ ..] = command else { bail!("a program's command is empty") };
        let create =
            |path: &Path| File::create(path).with_context(|| format!("cannot create {}", path.display()));
        let mut command = Command::new(program);
        let errors = create(log)?;
        command.args(arguments).stdin(Stdio::null());
        command.stdout(match output {
            // One file has one offset, so that neither overwrites the other.
            Some(path) if path == log => Stdio::from(errors.try_clone()?),
            Some(path) => Stdio::from(create(path)?),
            None => Stdio::null(),
        });
        command.stderr(errors);
        if let Some(cgroup) = cgroup {
            let entrance = cgroup.entrance()?;
            // SAFETY: the closure runs between fork and exec; it makes one system call, with memory that is there.
            unsafe { command.pre_exec(move || enter(&entrance)) };
        }
        let child = command.spawn().with_context(|| format!("cannot start {program}; is it installed?"))?;
        Ok(Process { name: program.clone(), log: log.to_owned(), child })
    }

    /// Fails if it has ended.
    ///
    /// # Errors
    ///
    /// With the end of its log.
    pub fn expect_running(&mut self) -> Result<()> {
        match self.child.try_wait()? {
            None => Ok(()),
            Some(status) => bail!("{} ended too early ({status}):\n{}", self.name, self.log_tail()),
        }
    }

    /// Waits until it has ended well.
    ///
    /// # Errors
    ///
    /// If it fails, or still runs after `limit`.
    pub fn wait(&mut self, limit: Duration) -> Result<()> {
        match self.wait_for_end(limit)? {
            Some(status) if status.success() => Ok(()),
            Some(status) => bail!("{} failed ({status}):\n{}", self.name, self.log_tail()),
            None => {
                bail!("{} still runs {} s after its time:\n{}", self.name, limit.as_secs(), self.log_tail())
            }
        }
    }

    /// Waits until `ready` says so.
    ///
    /// # Errors
    ///
    /// If it ends before, or is not ready after `limit`.
    pub fn wait_until_ready(&mut self, limit: Duration, ready: impl Fn() -> bool) -> Result<()> {
        let end = Instant::now() + limit;
        while !ready() {
            self.expect_running()?;
            if Instant::now() > end {
                bail!("{} is not ready after {} s:\n{}", self.name, limit.as_secs(), self.log_tail());
            }
            std::thread::sleep(POLL);
        }
        Ok(())
    }

    /// Asks it to end, and waits.
    ///
    /// # Errors
    ///
    /// If it fails, or still runs after `limit`.
    pub fn stop(&mut self, limit: Duration) -> Result<()> {
        kill(Pid::from_raw(self.child.id().cast_signed()), Signal::SIGTERM)
            .with_context(|| format!("cannot stop {}", self.name))?;
        self.wait(limit)
    }

    fn wait_for_end(&mut self, limit: Duration) -> Result<Option<ExitStatus>> {
        let end = Instant::now() + limit;
        loop {
            match self.child.try_wait()? {
                Some(status) => return Ok(Some(status)),
                None if Instant::now() > end => return Ok(None),
                None => std::thread::sleep(POLL),
            }
        }
    }

    /// The end of its log.
    pub fn log_tail(&self) -> String {
        let log = fs::read(&self.log).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            // It can only have ended in between, which is what is wanted.
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// Moves the calling process into the cgroup whose `cgroup.procs` is open as `entrance`.
fn enter(entrance: &File) -> io::Result<()> {
    // SAFETY: the buffer is static and one byte long.
    let written = unsafe { libc::write(entrance.as_raw_fd(), c"0".as_ptr().cast(), 1) };
    if written == 1 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, folder: &Path) -> Process {
        let log = folder.join("log");
        Process::start(&["sh".into(), "-c".into(), script.into()], None, &log, Some(&log)).unwrap()
    }

    #[test]
    fn a_failure_shows_the_end_of_the_log() {
        let folder = tempfile::tempdir().unwrap();
        let mut process = shell("echo out; echo err >&2; exit 3", folder.path());
        let error = process.wait(Duration::from_secs(20)).unwrap_err().to_string();
        assert!(
            error.contains("exit status: 3") && error.contains("out") && error.contains("err"),
            "{error}"
        );
        let error = process.expect_running().unwrap_err().to_string();
        assert!(error.contains("too early"), "{error}");
    }

    #[test]
    fn it_is_stopped_by_a_signal() {
        let folder = tempfile::tempdir().unwrap();
        let ready = folder.path().join("ready");
        let script = format!("trap 'exit 0' TERM; touch {ready:?}; while :; do sleep 0.01; done");
        let mut process = shell(&script, folder.path());
        process.wait_until_ready(Duration::from_secs(20), || ready.exists()).unwrap();
        process.stop(Duration::from_secs(20)).unwrap();
    }

    #[test]
    fn it_is_killed_when_dropped() {
        let folder = tempfile::tempdir().unwrap();
        let process = shell("exec sleep 1000", folder.path());
        let pid = Pid::from_raw(process.child.id().cast_signed());
        drop(process);
        assert_eq!(kill(pid, None), Err(nix::errno::Errno::ESRCH));
    }

    #[test]
    fn a_program_that_is_not_there_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let error =
            Process::start(&["no-such-program".into()], None, &folder.path().join("log"), None).unwrap_err();
        assert!(error.to_string().contains("no-such-program"), "{error}");
    }
}
