//! A tenant's cgroup, version 2.

use anyhow::{Context, Result, ensure};
use nix::sys::statfs::{CGROUP2_SUPER_MAGIC, statfs};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::scenario::result::Throttled;

const ROOT: &str = "/sys/fs/cgroup";
/// How long the kernel may take to end a cgroup's tasks once it was told to.
const KILL_LIMIT: Duration = Duration::from_secs(20);

/// A cgroup that this process made. Dropped, it ends the tasks in it and removes it, and with the last one below a
/// folder the folder.
#[derive(Debug)]
pub struct Cgroup {
    path: PathBuf,
    /// The folders made for it, outermost first; the last is its own.
    made: Vec<PathBuf>,
}

impl Cgroup {
    /// Makes the cgroup at `path` below the root, and those between that are missing, with the cpu controller.
    ///
    /// # Errors
    ///
    /// If the root is no cgroup v2 with a cpu controller, if the cgroup exists, and without root's rights.
    pub fn create(path: &str) -> Result<Cgroup> {
        let root = Path::new(ROOT);
        let kind = statfs(root).with_context(|| format!("cannot look at {ROOT}"))?.filesystem_type();
        ensure!(kind == CGROUP2_SUPER_MAGIC, "{ROOT} is no cgroup v2; boot with it, or mount it there");
        let mut cgroup = Cgroup { path: root.to_owned(), made: Vec::new() };
        for part in Path::new(path) {
            let controllers = cgroup.path.join("cgroup.subtree_control");
            fs::write(&controllers, "+cpu")
                .with_context(|| format!("cannot enable the cpu controller in {}", controllers.display()))?;
            cgroup.path.push(part);
            match fs::create_dir(&cgroup.path) {
                Ok(()) => cgroup.made.push(cgroup.path.clone()),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => {
                    return Err(error).with_context(|| format!("cannot make {}", cgroup.path.display()));
                }
            }
        }
        let fresh = cgroup.made.last() == Some(&cgroup.path);
        ensure!(fresh, "{} exists: another tenant or another run has it", cgroup.path.display());
        Ok(cgroup)
    }

    /// Its id, as BPF programs know it.
    ///
    /// # Errors
    ///
    /// If it was removed.
    pub fn id(&self) -> Result<u64> {
        Ok(fs::metadata(&self.path).with_context(|| format!("cannot look at {}", self.path.display()))?.ino())
    }

    /// Writes one of its files.
    ///
    /// # Errors
    ///
    /// If the kernel refuses the value.
    pub fn set(&self, file: &str, value: &str) -> Result<()> {
        fs::write(self.path.join(file), value)
            .with_context(|| format!("cannot write {value:?} to {}/{file}", self.path.display()))
    }

    /// The file into which a process writes `0` to enter.
    ///
    /// # Errors
    ///
    /// If it was removed.
    pub fn entrance(&self) -> Result<File> {
        let path = self.path.join("cgroup.procs");
        OpenOptions::new().write(true).open(&path).with_context(|| format!("cannot open {}", path.display()))
    }

    /// CPU time that it has had since it was made, in ns.
    ///
    /// # Errors
    ///
    /// If it was removed.
    pub fn cpu_ns(&self) -> Result<u64> {
        Ok(stat(&self.path, "usage_usec")? * 1000)
    }

    /// What its quota has done since it was made.
    ///
    /// # Errors
    ///
    /// If it was removed.
    pub fn throttled(&self) -> Result<Throttled> {
        Ok(Throttled {
            periods: stat(&self.path, "nr_periods")?,
            throttled: stat(&self.path, "nr_throttled")?,
            throttled_ns: stat(&self.path, "throttled_usec")? * 1000,
        })
    }

    /// Tells its tasks to end. They may need CPU time for it.
    ///
    /// # Errors
    ///
    /// If it was removed.
    pub fn kill(&self) -> Result<()> {
        self.set("cgroup.kill", "1")
    }

    /// Ends its tasks, and removes it with what was made for it.
    fn end(&self) -> Result<()> {
        self.kill()?;
        let limit = Instant::now() + KILL_LIMIT;
        while fs::read_to_string(self.path.join("cgroup.events"))?.contains("populated 1") {
            ensure!(Instant::now() < limit, "the tasks in {} do not end", self.path.display());
            std::thread::sleep(Duration::from_millis(10));
        }
        for folder in self.made.iter().rev() {
            match fs::remove_dir(folder) {
                // Another tenant is below it; whoever is last removes nothing that it did not make.
                Err(error) if error.raw_os_error() == Some(nix::libc::EBUSY) => break,
                result => result.with_context(|| format!("cannot remove {}", folder.display()))?,
            }
        }
        Ok(())
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        if self.made.last() != Some(&self.path) {
            return;
        }
        if let Err(error) = self.end() {
            eprintln!("{error:#}");
        }
    }
}

fn stat(cgroup: &Path, key: &str) -> Result<u64> {
    let path = cgroup.join("cpu.stat");
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    value_of(&text, key).with_context(|| format!("{} has no number for {key}", path.display()))
}

/// The number after `key` in a file of lines `key number`.
fn value_of(text: &str, key: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' ')?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_found_whole() {
        let text = "usage_usec_x 1\nusage_usec 22\nnr_periods 3\nthrottled_usec x\n";
        assert_eq!(value_of(text, "usage_usec"), Some(22));
        assert_eq!(value_of(text, "nr_periods"), Some(3));
        assert_eq!(value_of(text, "usage"), None);
        assert_eq!(value_of(text, "throttled_usec"), None);
    }
}
