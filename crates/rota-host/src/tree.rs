//! The host's cgroups: the tree below the cgroup v2 root, watched.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use inotify::{EventMask, Inotify, WatchDescriptor, WatchMask};

/// Where cgroup v2 is mounted: `/sys/fs/cgroup`, or below it on a host that also has version 1.
///
/// # Errors
/// If it is mounted nowhere.
pub fn mount_point() -> Result<PathBuf> {
    let mounts = std::fs::read_to_string("/proc/self/mounts").context("reading /proc/self/mounts")?;
    mount_point_in(&mounts)
        .context("no cgroup2 file system is mounted; mount one: mount -t cgroup2 none /sys/fs/cgroup")
}

fn mount_point_in(mounts: &str) -> Option<PathBuf> {
    mounts.lines().find_map(|line| {
        let mut fields = line.split(' ');
        let (point, kind) = (fields.nth(1)?, fields.next()?);
        (kind == "cgroup2").then(|| PathBuf::from(point))
    })
}

/// Every cgroup below the root, with its id. Follows creation and removal by inotify, one watch a directory.
#[derive(Debug)]
pub struct Tree {
    root: PathBuf,
    inotify: Inotify,
    watched: HashMap<WatchDescriptor, PathBuf>,
    cgroups: BTreeMap<PathBuf, u64>,
}

impl Tree {
    /// Reads the tree below `root` and begins to watch it.
    ///
    /// # Errors
    /// If `root` cannot be read, or the system's limit of inotify watches is too low for the tree.
    pub fn open(root: impl Into<PathBuf>) -> Result<Tree> {
        let inotify = Inotify::init().context("starting inotify")?;
        let mut tree = Tree { root: root.into(), inotify, watched: HashMap::new(), cgroups: BTreeMap::new() };
        tree.rescan()?;
        Ok(tree)
    }

    /// The directory that the paths are relative to.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// All cgroups but the root: path relative to it, and the kernel's id, which is the inode's number.
    pub fn cgroups(&self) -> &BTreeMap<PathBuf, u64> {
        &self.cgroups
    }

    /// Takes in what inotify has reported. Says whether the tree may have changed.
    ///
    /// # Errors
    /// As [`Tree::open`].
    pub fn refresh(&mut self) -> Result<bool> {
        let mut changed = false;
        let mut buffer = [0; 16384];
        loop {
            let events: Vec<_> = match self.inotify.read_events(&mut buffer) {
                Ok(events) => events.map(|event| event.to_owned()).collect(),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(changed),
                Err(error) => return Err(error).context("reading inotify events of cgroups"),
            };
            for event in events {
                if event.mask.contains(EventMask::Q_OVERFLOW) {
                    self.rescan()?;
                    changed = true;
                } else if event.mask.contains(EventMask::IGNORED) {
                    self.watched.remove(&event.wd);
                } else if event.mask.contains(EventMask::ISDIR)
                    && let (Some(parent), Some(name)) = (self.watched.get(&event.wd), &event.name)
                {
                    let path = parent.join(name);
                    self.forget(&path);
                    self.add(path)?;
                    changed = true;
                }
            }
        }
    }

    /// Reads the whole tree anew: the safety net below inotify. Says whether that changed anything.
    ///
    /// # Errors
    /// As [`Tree::open`].
    pub fn rescan(&mut self) -> Result<bool> {
        let before = std::mem::take(&mut self.cgroups);
        std::fs::read_dir(&self.root).with_context(|| format!("reading {}", self.root.display()))?;
        self.add(PathBuf::new())?;
        Ok(self.cgroups != before)
    }

    /// Adds `path` and all below it, if it is there. It is watched before it is read, so that nothing slips through.
    fn add(&mut self, path: PathBuf) -> Result<()> {
        let full = self.root.join(&path);
        let mask = WatchMask::CREATE | WatchMask::DELETE | WatchMask::MOVE | WatchMask::ONLYDIR;
        match self.inotify.watches().add(&full, mask) {
            Ok(watch) => self.watched.insert(watch, path.clone()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => {
                return Err(error).with_context(|| {
                    format!("watching {} (raise fs.inotify.max_user_watches?)", full.display())
                });
            }
        };
        // Gone since: inotify will report the removal, or has nothing to report.
        let Ok(entries) = std::fs::read_dir(&full) else { return Ok(()) };
        if !path.as_os_str().is_empty() {
            let Ok(status) = std::fs::metadata(&full) else { return Ok(()) };
            self.cgroups.insert(path.clone(), status.ino());
        }
        for entry in entries.flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                self.add(path.join(entry.file_name()))?;
            }
        }
        Ok(())
    }

    /// Drops `path` and all below it from the tree; their watches end by themselves.
    fn forget(&mut self, path: &Path) {
        self.cgroups.retain(|cgroup, _| !cgroup.starts_with(path));
    }
}

impl AsFd for Tree {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inotify.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn the_mount_point_is_found_on_pure_and_on_mixed_hosts() {
        let mixed = "tmpfs /sys/fs/cgroup tmpfs ro 0 0\ncgroup /sys/fs/cgroup/cpu cgroup rw,cpu 0 0\n\
                     cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n";
        assert_eq!(mount_point_in(mixed), Some(PathBuf::from("/sys/fs/cgroup/unified")));
        assert_eq!(mount_point_in("cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n"), Some("/sys/fs/cgroup".into()));
        assert_eq!(mount_point_in("proc /proc proc rw 0 0\n"), None);
    }

    fn tree_paths(tree: &Tree) -> Vec<&str> {
        tree.cgroups().keys().map(|path| path.to_str().unwrap()).collect()
    }

    #[test]
    fn the_tree_follows_creation_and_removal() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("a/b")).unwrap();
        fs::write(folder.path().join("a/cgroup.procs"), "").unwrap();
        let mut tree = Tree::open(folder.path()).unwrap();
        assert_eq!(tree_paths(&tree), ["a", "a/b"]);
        assert!(!tree.refresh().unwrap());

        fs::create_dir_all(folder.path().join("a/c/d")).unwrap();
        assert!(tree.refresh().unwrap());
        assert_eq!(tree_paths(&tree), ["a", "a/b", "a/c", "a/c/d"]);
        fs::create_dir(folder.path().join("a/c/d/e")).unwrap();
        assert!(tree.refresh().unwrap());
        fs::remove_dir_all(folder.path().join("a/c")).unwrap();
        assert!(tree.refresh().unwrap());
        assert_eq!(tree_paths(&tree), ["a", "a/b"]);

        let ino = |path| fs::metadata(folder.path().join(path)).unwrap().ino();
        assert_eq!(tree.cgroups()[Path::new("a/b")], ino("a/b"));
        assert!(!tree.rescan().unwrap());
    }

    #[test]
    fn a_directory_made_anew_is_another_cgroup() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("a")).unwrap();
        let mut tree = Tree::open(folder.path()).unwrap();
        fs::create_dir(folder.path().join("keeps-the-inode-number-from-being-reused")).unwrap();
        fs::rename(folder.path().join("a"), folder.path().join("old")).unwrap();
        fs::create_dir(folder.path().join("a")).unwrap();
        assert!(tree.refresh().unwrap());
        let ino = fs::metadata(folder.path().join("a")).unwrap().ino();
        assert_eq!(tree.cgroups()[Path::new("a")], ino);
    }

    #[test]
    fn a_missing_root_is_an_error() {
        assert!(Tree::open("/nonexistent/rota").is_err());
    }
}
