//! The scheduler of sched_ext's that a run is under, Rota or another: it takes the CPUs, and keeps them.

use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::process::Process;

/// Where the kernel says what sched_ext does.
const SCHED_EXT: &str = "/sys/kernel/sched_ext";

/// A scheduler that has the CPUs. Dropped, it is killed if it still runs.
#[derive(Debug)]
pub struct Scheduler {
    name: String,
    process: Process,
    /// Where the kernel's files are.
    files: PathBuf,
    /// How many schedulers the kernel has enabled since its boot, this one being the last.
    enabled: u64,
}

impl Scheduler {
    /// Starts one and waits until it has the CPUs and says that it is `ready`, `limit` at most. What it says goes to
    /// the file `log`.
    ///
    /// # Errors
    ///
    /// If there is no such program, if it ends, or if it is not ready in time; with the end of its log.
    pub fn start(
        command: &[String],
        log: &Path,
        limit: Duration,
        ready: impl Fn() -> bool,
    ) -> Result<Scheduler> {
        Scheduler::start_in(Path::new(SCHED_EXT), command, log, limit, ready)
    }

    /// The same with the kernel's files in another folder.
    fn start_in(
        files: &Path,
        command: &[String],
        log: &Path,
        limit: Duration,
        ready: impl Fn() -> bool,
    ) -> Result<Scheduler> {
        let before = enabled(files)?;
        let mut process = Process::start(command, None, log, Some(log))?;
        let has_cpus = || is_on(files) && enabled(files).is_ok_and(|enabled| enabled > before);
        process.wait_until_ready(limit, || has_cpus() && ready())?;
        let name = command.first().cloned().unwrap_or_default();
        Ok(Scheduler { name, process, files: files.to_owned(), enabled: enabled(files)? })
    }

    /// Fails if it has ended, or has not had the CPUs all the time: what ran then ran under the kernel's own scheduler.
    ///
    /// # Errors
    ///
    /// With the end of its log.
    pub fn expect_running(&mut self) -> Result<()> {
        self.process.expect_running()?;
        ensure!(
            is_on(&self.files) && enabled(&self.files)? == self.enabled,
            "{} has lost the CPUs to the kernel's own scheduler:\n{}",
            self.name,
            self.process.log_tail()
        );
        Ok(())
    }

    /// Asks it to end, and waits.
    ///
    /// # Errors
    ///
    /// If it fails, or still runs after `limit`.
    pub fn stop(&mut self, limit: Duration) -> Result<()> {
        self.process.stop(limit)
    }
}

/// Whether a scheduler of sched_ext's has the CPUs.
fn is_on(files: &Path) -> bool {
    fs::read_to_string(files.join("state")).is_ok_and(|state| state.trim() == "enabled")
}

/// How many have had them since the kernel's boot.
fn enabled(files: &Path) -> Result<u64> {
    let path = files.join("enable_seq");
    let text = fs::read_to_string(&path)
        .with_context(|| format!("cannot read {}: this kernel has no sched_ext", path.display()))?;
    text.trim().parse().with_context(|| format!("{} holds no number: {}", path.display(), text.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(20);

    /// A folder as the kernel's, before anything is enabled, and a program that does `script` there.
    fn started(script: &str, limit: Duration) -> (tempfile::TempDir, Result<Scheduler>) {
        let folder = tempfile::tempdir().unwrap();
        // What another scheduler has left, whose end the kernel has not noted yet.
        fs::write(folder.path().join("state"), "enabled\n").unwrap();
        fs::write(folder.path().join("enable_seq"), "3\n").unwrap();
        let script = format!("cd {}; {script}", folder.path().display());
        let command = ["sh".to_owned(), "-c".to_owned(), script];
        let scheduler =
            Scheduler::start_in(folder.path(), &command, &folder.path().join("log"), limit, || true);
        (folder, scheduler)
    }

    #[test]
    fn it_has_the_cpus_once_the_kernel_has_counted_it() {
        let (_folder, scheduler) = started("sleep 0.2; echo 4 >enable_seq; exec sleep 1000", LIMIT);
        scheduler.unwrap().expect_running().unwrap();
    }

    #[test]
    fn one_that_never_takes_the_cpus_is_named_with_what_it_says() {
        let (_folder, scheduler) = started("echo no kernel >&2; exec sleep 1000", Duration::from_millis(300));
        let error = scheduler.unwrap_err().to_string();
        assert!(error.contains("is not ready") && error.contains("no kernel"), "{error}");
    }

    #[test]
    fn one_that_ends_is_named_with_what_it_says_on_either_output() {
        let (_folder, scheduler) = started("echo out; echo err >&2; exit 1", LIMIT);
        let error = scheduler.unwrap_err().to_string();
        assert!(error.contains("too early") && error.contains("out") && error.contains("err"), "{error}");
    }

    #[test]
    fn who_loses_the_cpus_is_found_even_if_it_has_them_again() {
        let (folder, scheduler) = started("echo 4 >enable_seq; exec sleep 1000", LIMIT);
        let mut scheduler = scheduler.unwrap();
        scheduler.expect_running().unwrap();
        for (name, lost, kept) in [("state", "disabled\n", "enabled\n"), ("enable_seq", "5\n", "4\n")] {
            fs::write(folder.path().join(name), lost).unwrap();
            let error = scheduler.expect_running().unwrap_err().to_string();
            assert!(error.starts_with("sh has lost the CPUs"), "{name}: {error}");
            fs::write(folder.path().join(name), kept).unwrap();
        }
        scheduler.expect_running().unwrap();
    }
}
