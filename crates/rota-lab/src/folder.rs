//! Where the lab keeps kernels, and the files of runs.

use anyhow::{Context, Result, anyhow};
use nix::fcntl::{Flock, FlockArg};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// The lab's own folder: `$ROTA_LAB_DIR`, or `.lab` in the repository's root.
///
/// Outside a checkout (no `Cargo.lock` above the current folder) it is `.lab` in the current folder.
pub fn lab_folder() -> PathBuf {
    if let Some(folder) = std::env::var_os("ROTA_LAB_DIR") {
        return folder.into();
    }
    let here = std::env::current_dir().unwrap_or_else(|_| PathBuf::from("."));
    let root = here.ancestors().find(|folder| folder.join("Cargo.lock").is_file());
    root.unwrap_or(Path::new(&here)).join(".lab")
}

/// Waits until nobody else, a thread or a process, has this file locked, and locks it until the result is dropped.
pub(crate) fn locked(path: &Path) -> Result<Flock<File>> {
    let file = File::create(path).with_context(|| format!("cannot create {}", path.display()))?;
    Flock::lock(file, FlockArg::LockExclusive)
        .map_err(|(_, error)| anyhow!("cannot lock {}: {error}", path.display()))
}

/// Where one run's files are: the image while it lasts, the console's log until [`RunFolder::remove`].
pub(crate) struct RunFolder(PathBuf);

impl RunFolder {
    pub fn create() -> Result<RunFolder> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let folder = lab_folder().join("runs").join(name);
        // What is there is of an earlier process with the same number.
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
        Ok(RunFolder(folder))
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub fn remove(self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

impl Drop for RunFolder {
    fn drop(&mut self) {
        for large in ["image", "state"] {
            let _ = fs::remove_file(self.path(large));
        }
    }
}
