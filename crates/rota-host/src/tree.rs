//! The host's cgroups: the tree below the cgroup v2 root, as far as tenants may be found in it, watched.
//!
//! Users make cgroups in what is delegated to them, and containers in their own. So a cgroup's children are read only
//! if it is a slice or a container runtime's folder, and belongs to the owner of the root. What anybody else creates
//! costs nothing here and can be nobody's tenant, but by its whole path in the configuration.

mod events;
mod reach;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::ops::Bound::{Excluded, Unbounded};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result};
use inotify::{Inotify, WatchDescriptor, WatchMask};

pub use reach::Reach;
pub(crate) use reach::is_slice;

/// Where cgroup v2 is mounted: `/sys/fs/cgroup`, or below it on a host that also has version 1.
///
/// # Errors
/// As [`mount_point_under`].
pub fn mount_point() -> Result<PathBuf> {
    mount_point_under(Path::new("/"))
}

/// The same for the machine whose files lie below `root`.
///
/// # Errors
/// If it is mounted nowhere.
pub fn mount_point_under(root: &Path) -> Result<PathBuf> {
    let path = root.join("proc/self/mounts");
    let mounts = std::fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
    let point = mount_point_in(&mounts)
        .context("no cgroup2 file system is mounted; mount one: mount -t cgroup2 none /sys/fs/cgroup")?;
    Ok(root.join(point.strip_prefix("/").unwrap_or(&point)))
}

fn mount_point_in(mounts: &str) -> Option<PathBuf> {
    mounts.lines().find_map(|line| {
        let mut fields = line.split(' ');
        let (point, kind) = (fields.nth(1)?, fields.next()?);
        (kind == "cgroup2").then(|| PathBuf::from(point))
    })
}

/// A cgroup in the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The kernel's id, which is the inode's number.
    pub id: u64,
    /// Only the owner of the root can have made it: each cgroup above it is that user's, and a slice or a runtime's
    /// folder.
    pub of_host: bool,
    /// Its children are `of_host` as well.
    is_parent: bool,
}

/// The cgroups in [`Reach`], with their ids. Follows creation and removal by inotify: each directory that is read has a
/// watch.
#[derive(Debug)]
pub struct Tree {
    root: PathBuf,
    /// Whose the root is: root's, but in tests.
    owner: u32,
    reach: Reach,
    inotify: Option<Inotify>,
    watched: HashMap<WatchDescriptor, PathBuf>,
    cgroups: BTreeMap<PathBuf, Place>,
    users_units: BTreeSet<PathBuf>,
    /// The kernel has dropped events.
    is_stale: bool,
    scanned: Instant,
    notes: Notes,
}

/// What there is to say, once.
#[derive(Debug, Default)]
struct Notes {
    said: BTreeSet<&'static str>,
    lines: Vec<String>,
}

impl Notes {
    fn say(&mut self, what: &'static str, line: impl FnOnce() -> String) {
        if self.said.insert(what) {
            self.lines.push(line());
        }
    }
}

impl Tree {
    /// So many cgroups are kept, whatever there is.
    const CGROUPS_MAX: usize = 65_536;
    /// So many are watched; the others are found by [`Tree::rescan`].
    const WATCHES_MAX: usize = 16_384;

    /// Reads the tree below `root` and begins to watch it. What cannot be watched is only read.
    ///
    /// # Errors
    /// If `root` cannot be read.
    pub fn open(root: impl Into<PathBuf>, reach: Reach) -> Result<Tree> {
        let root = root.into();
        let owner = root.read_dir().and_then(|_| root.metadata());
        let owner = owner.with_context(|| format!("reading {}", root.display()))?.uid();
        let mut notes = Notes::default();
        let inotify = Inotify::init()
            .map_err(|error| notes.say("inotify", || format!("inotify cannot be had ({error}); {POLLED}")))
            .ok();
        let (scanned, is_stale) = (Instant::now(), false);
        let (watched, cgroups, users_units) = Default::default();
        let mut tree =
            Tree { root, owner, reach, inotify, watched, cgroups, users_units, is_stale, scanned, notes };
        tree.rescan();
        Ok(tree)
    }

    /// The directory that the paths are relative to.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Whose the root is. What else belongs to this user is the host's own.
    pub fn owner(&self) -> u32 {
        self.owner
    }

    /// All cgroups but the root, by their paths relative to it.
    pub fn cgroups(&self) -> &BTreeMap<PathBuf, Place> {
        &self.cgroups
    }

    /// The units of users' own managers, as of the last [`Tree::rescan`]: a number of them.
    pub fn users_units(&self) -> &BTreeSet<PathBuf> {
        &self.users_units
    }

    /// Whether there is something to say.
    pub fn has_notes(&self) -> bool {
        !self.notes.lines.is_empty()
    }

    /// What there is to say about the watching that was not said before.
    pub fn notes(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notes.lines)
    }

    /// Follows these cgroups as well, whoever made them: the configuration names them. Says whether to look again.
    pub fn want(&mut self, paths: BTreeSet<PathBuf>) -> bool {
        self.reach.want(paths) && self.rescan()
    }

    /// Reads the whole tree anew: the safety net below inotify. Says whether that changed anything.
    pub fn rescan(&mut self) -> bool {
        (self.is_stale, self.scanned) = (false, Instant::now());
        let before = std::mem::take(&mut self.cgroups);
        self.add(PathBuf::new());
        let units = reach::users_units(&self.root, &self.cgroups);
        let units_before = std::mem::replace(&mut self.users_units, units);
        self.cgroups != before || self.users_units != units_before
    }

    /// Adds `path` and all below it that is in reach, if it is there. It is watched before it is read, so that nothing
    /// slips through.
    fn add(&mut self, path: PathBuf) {
        let mut left = vec![path];
        while let Some(path) = left.pop() {
            // Gone since, or deeper than a path can be: nothing to be found by.
            let Some(is_read) = self.enter(&path) else { continue };
            if !is_read {
                continue;
            }
            let full = self.root.join(&path);
            self.watch(&path, &full);
            for entry in full.read_dir().into_iter().flatten().flatten() {
                let child = path.join(entry.file_name());
                if self.is_wanted(&path, &child) && entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    left.push(child);
                }
            }
        }
    }

    /// Takes `path` into the tree; nothing if it is not there. Says whether its children are read.
    fn enter(&mut self, path: &Path) -> Option<bool> {
        let Some(above) = path.parent() else { return Some(true) };
        let status = self.root.join(path).symlink_metadata().ok().filter(std::fs::Metadata::is_dir)?;
        if self.cgroups.len() >= Self::CGROUPS_MAX && !self.cgroups.contains_key(path) {
            let line = || format!("there are more than {} cgroups; no more are looked at", Self::CGROUPS_MAX);
            self.notes.say("cgroups", line);
            return None;
        }
        let of_host = self.is_parent(above);
        let is_parent = of_host && status.uid() == self.owner && reach::may_be_parent(path);
        self.cgroups.insert(path.to_owned(), Place { id: status.ino(), of_host, is_parent });
        Some(is_parent || self.reach.has_below(path))
    }

    /// Whether children of `path` are the host's own.
    fn is_parent(&self, path: &Path) -> bool {
        path.as_os_str().is_empty() || self.cgroups.get(path).is_some_and(|place| place.is_parent)
    }

    /// Whether `child`, found in `path`, belongs into the tree.
    fn is_wanted(&self, path: &Path, child: &Path) -> bool {
        self.is_parent(path) || self.reach.has(child)
    }

    fn watch(&mut self, path: &Path, full: &Path) {
        let Some(inotify) = &self.inotify else { return };
        if self.watched.len() >= Self::WATCHES_MAX {
            let line = || format!("there are more than {} cgroups to watch; {POLLED}", Self::WATCHES_MAX);
            return self.notes.say("watches", line);
        }
        let mask = WatchMask::CREATE | WatchMask::DELETE | WatchMask::MOVE | WatchMask::ONLYDIR;
        match inotify.watches().add(full, mask) {
            Ok(watch) => _ = self.watched.insert(watch, path.to_owned()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                let line = || format!("{} cannot be watched ({error}); {POLLED}", full.display());
                self.notes.say("watch", line);
            }
        }
    }

    /// Drops `path` and all below it from the tree; their watches end by themselves.
    fn forget(&mut self, path: &Path) {
        self.cgroups.remove(path);
        let below = self.cgroups.range::<Path, _>((Excluded(path), Unbounded)).map(|(cgroup, _)| cgroup);
        let below: Vec<PathBuf> = below.take_while(|cgroup| cgroup.starts_with(path)).cloned().collect();
        below.iter().for_each(|cgroup| _ = self.cgroups.remove(cgroup));
    }

    /// Tells of events; nothing if the tree is only read from time to time.
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.inotify.as_ref().map(AsFd::as_fd)
    }
}

/// How what is not watched is found.
const POLLED: &str = "cgroups are looked for every ten seconds instead";

#[cfg(test)]
mod tests;
