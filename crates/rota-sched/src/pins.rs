//! What outlives this process: the scheduler's link, maps and programs as files of the BPF file system.
//!
//! The link is pinned last and removed first: a folder without one is the rest of a start or an end that was cut short.

use std::ffi::CString;
use std::fs::{self, File};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, ensure};
use libbpf_rs::{Link, MapHandle, libbpf_sys};
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use nix::sys::statfs::{BPF_FS_MAGIC, statfs};

/// Where Linux has its BPF file system.
pub const BPF_FS: &str = "/sys/fs/bpf";

/// What is pinned, beside the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Map,
    Program,
}

impl Kind {
    fn folder(self) -> &'static str {
        match self {
            Kind::Map => "maps",
            Kind::Program => "programs",
        }
    }
}

/// Why nothing can be pinned.
#[derive(Debug)]
pub enum NoPins {
    /// There is no BPF file system.
    NotMounted,
    /// Another process has the folder.
    Held(PathBuf),
    /// It cannot be made, or locked: the file system may be read-only for this process.
    Failed(anyhow::Error),
}

/// The folder of one scheduler, and the right to change it: one process has it at a time, for as long as it lives.
#[derive(Debug)]
pub struct Pins {
    folder: PathBuf,
    _lock: Flock<File>,
}

impl Pins {
    /// The folder in the BPF file system at `root`.
    ///
    /// # Errors
    ///
    /// See [`NoPins`].
    pub fn open(root: &Path) -> Result<Pins, NoPins> {
        if !statfs(root).is_ok_and(|found| found.filesystem_type() == BPF_FS_MAGIC) {
            return Err(NoPins::NotMounted);
        }
        let folder = root.join(FOLDER);
        let file = Pins::folder(&folder).map_err(NoPins::Failed)?;
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => Ok(Pins { folder, _lock: lock }),
            Err((_, Errno::EWOULDBLOCK)) => Err(NoPins::Held(folder)),
            Err((_, error)) => {
                Err(NoPins::Failed(anyhow!(error).context(format!("locking {}", folder.display()))))
            }
        }
    }

    /// Makes the folder, if it is not there.
    fn folder(folder: &Path) -> Result<File> {
        match fs::DirBuilder::new().mode(0o700).create(folder) {
            Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
                return Err(error).with_context(|| format!("making {}", folder.display()));
            }
            _ => {}
        }
        File::open(folder).with_context(|| format!("opening {}", folder.display()))
    }

    /// Whether a scheduler was left behind.
    pub fn has_scheduler(&self) -> bool {
        self.link().exists()
    }

    pub(crate) fn link(&self) -> PathBuf {
        self.folder.join("link")
    }

    /// Gives a map or program of that name a file.
    pub(crate) fn pin(&self, kind: Kind, name: &str, object: BorrowedFd<'_>) -> Result<()> {
        let folder = self.folder.join(kind.folder());
        fs::create_dir_all(&folder).with_context(|| format!("making {}", folder.display()))?;
        let path = folder.join(file_name(name));
        let c_path = CString::new(path.as_os_str().as_bytes())?;
        // SAFETY: a path that ends with 0, and an open descriptor.
        let error = unsafe { libbpf_sys::bpf_obj_pin(object.as_raw_fd(), c_path.as_ptr()) };
        ensure!(
            error == 0,
            anyhow!(std::io::Error::from_raw_os_error(-error)).context(format!("pinning {}", path.display()))
        );
        Ok(())
    }

    /// All that is pinned of a kind, by name.
    pub(crate) fn all(&self, kind: Kind) -> Result<Vec<(String, PathBuf)>> {
        let folder = self.folder.join(kind.folder());
        let files = fs::read_dir(&folder).with_context(|| format!("reading {}", folder.display()))?;
        let named = |path: PathBuf| {
            let name = path.file_name().unwrap_or_default().to_string_lossy().replace(DOT, ".");
            (name, path)
        };
        files.map(|file| Ok(named(file?.path()))).collect()
    }

    /// Ends the scheduler that is pinned, if there is one, and removes all files. The kernel runs every task then.
    ///
    /// # Errors
    ///
    /// A file cannot be removed.
    pub fn clear(&self) -> Result<()> {
        if self.has_scheduler() {
            // One that has ended cannot be detached once more.
            let _ = Link::open(self.link()).and_then(|link| link.detach());
            fs::remove_file(self.link()).context("removing the link to the scheduler")?;
        }
        for kind in [Kind::Map, Kind::Program] {
            let folder = self.folder.join(kind.folder());
            match fs::remove_dir_all(&folder) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(error).with_context(|| format!("removing {}", folder.display()));
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// A scheduler's folder in the BPF file system.
const FOLDER: &str = "rota";
/// Stands for a dot, which no name in a BPF file system has.
const DOT: &str = "--";

fn file_name(name: &str) -> String {
    name.replace('.', DOT)
}

/// Opens a map of the scheduler that is pinned in the BPF file system at `root`, whoever has the folder.
pub(crate) fn pinned_map(root: &Path, name: &str) -> Result<MapHandle> {
    let path = root.join(FOLDER).join(Kind::Map.folder()).join(file_name(name));
    MapHandle::from_pinned_path(&path).with_context(|| format!("opening {}", path.display()))
}
