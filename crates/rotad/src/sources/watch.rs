//! Tells when the configuration's files may have changed.
//!
//! The folders are watched, not the files: most editors replace a file. All are also looked at from time to time, for
//! what cannot be watched, and for what a watch does not tell: a folder that was swapped for another one.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use inotify::{Inotify, WatchMask};

use super::{paths, tenants_folder};

/// How many links lead to a file at most.
const LINKS_MAX: usize = 40;

/// A turn reads so many buffers; what is left waits for the next one.
const READS_MAX: usize = 4;

/// Follows the files.
#[derive(Debug)]
pub struct Watch {
    config: PathBuf,
    inotify: Option<Inotify>,
    files: Files,
    is_told: bool,
    note: Option<String>,
}

/// What tells a file from what it was: device, inode, size, time of change in ns. Nothing if it is not there.
type Stamp = Option<(u64, u64, u64, i128)>;
type Files = Vec<(PathBuf, Stamp)>;

impl Watch {
    /// Begins to watch the folder of `config`, and its `tenants.d` as soon as there is one.
    pub fn open(config: &Path) -> Watch {
        let (files, inotify) = (files(config), Inotify::init());
        let mut watch = Watch { config: config.to_owned(), inotify: None, files, is_told: false, note: None };
        match inotify {
            Ok(inotify) => watch.inotify = Some(inotify),
            Err(error) => watch.tell(&format!("inotify cannot be had ({error})")),
        }
        watch.add();
        watch
    }

    /// What there is to say about the watching; once.
    pub fn note(&mut self) -> Option<String> {
        self.note.take()
    }

    fn tell(&mut self, what: &str) {
        if !std::mem::replace(&mut self.is_told, true) {
            self.note = Some(format!("{what}; the configuration is looked at every ten seconds instead"));
        }
    }

    fn add(&mut self) {
        let Some(inotify) = &self.inotify else { return };
        let mask = WatchMask::CREATE
            | WatchMask::MODIFY
            | WatchMask::ATTRIB
            | WatchMask::MOVE
            | WatchMask::DELETE
            | WatchMask::MOVE_SELF
            | WatchMask::DELETE_SELF;
        let mut failure = None;
        for folder in folders(&self.config) {
            match inotify.watches().add(&folder, mask) {
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    failure = Some(format!("{} cannot be watched ({error})", folder.display()));
                }
                _ => {}
            }
        }
        if let Some(failure) = failure {
            self.tell(&failure);
        }
    }

    /// Takes in a bounded part of what has happened in the folders. Says whether the files are others than they were:
    /// in a folder as /tmp anybody may have files.
    pub fn changed(&mut self) -> bool {
        let mut happened = false;
        let mut buffer = [0; 4096];
        for _ in 0..READS_MAX {
            let Some(inotify) = &mut self.inotify else { break };
            match inotify.read_events(&mut buffer) {
                Ok(events) => happened |= events.count() > 0,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => {
                    self.inotify = None;
                    self.tell(&format!("inotify fails ({error})"));
                }
            }
        }
        if happened {
            self.add();
        }
        happened && self.look()
    }

    /// Looks whether the files are others than they were, whatever was told.
    pub fn look(&mut self) -> bool {
        let files = files(&self.config);
        if files == self.files {
            return false;
        }
        self.files = files;
        self.add();
        true
    }

    /// Tells of events; nothing if the files are only looked at.
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.inotify.as_ref().map(AsFd::as_fd)
    }
}

fn folder(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// The folders in which an edit may be: of the configuration, of `tenants.d`, and of what links in them lead to.
fn folders(config: &Path) -> BTreeSet<PathBuf> {
    let tenants = tenants_folder(config);
    let mut folders = BTreeSet::from([tenants.clone()]);
    let files = paths(config).unwrap_or_else(|_| vec![config.to_owned()]);
    for mut path in files.into_iter().chain([tenants]) {
        for _ in 0..LINKS_MAX {
            folders.insert(folder(&path).to_owned());
            let Ok(target) = path.read_link() else { break };
            path = folder(&path).join(target);
        }
    }
    folders
}

fn files(config: &Path) -> Files {
    let stamp = |path: PathBuf| {
        let status = path.metadata().ok();
        let stamp = status.map(|status| {
            let changed_ns = i128::from(status.ctime()) * 1_000_000_000 + i128::from(status.ctime_nsec());
            (status.dev(), status.ino(), status.len(), changed_ns)
        });
        (path, stamp)
    };
    paths(config).unwrap_or_else(|_| vec![config.to_owned()]).into_iter().map(stamp).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn edits_are_seen_also_in_a_folder_that_comes_later() {
        let folder = tempfile::tempdir().unwrap();
        let config = folder.path().join("rota.toml");
        fs::write(&config, "").unwrap();
        let mut watch = Watch::open(&config);
        assert!(!watch.changed());
        fs::write(folder.path().join("new"), "[host]").unwrap();
        fs::rename(folder.path().join("new"), &config).unwrap();
        assert!(watch.changed());
        fs::create_dir(tenants_folder(&config)).unwrap();
        assert!(!watch.changed(), "an empty folder says nothing");
        fs::write(tenants_folder(&config).join("a.toml"), "").unwrap();
        assert!(watch.changed());
        assert!(!watch.changed());
        fs::write(folder.path().join("another's"), "").unwrap();
        assert!(!watch.changed());
    }

    /// Of a configuration that is a link only the link was followed.
    #[test]
    fn an_edit_of_what_a_link_leads_to_is_seen() {
        let folder = tempfile::tempdir().unwrap();
        let at = |path: &str| folder.path().join(path);
        fs::create_dir_all(at("etc")).unwrap();
        fs::create_dir_all(at("store/1")).unwrap();
        fs::write(at("store/1/rota.toml"), "").unwrap();
        symlink("1", at("store/now")).unwrap();
        symlink("../store/1/rota.toml", at("etc/rota.toml")).unwrap();
        let mut watch = Watch::open(&at("etc/rota.toml"));
        assert!(!watch.changed());
        fs::write(at("store/1/rota.toml"), "[host]").unwrap();
        assert!(watch.changed());
    }

    /// The folder's removal once ended the daemon.
    #[test]
    fn a_folder_may_go_and_come_back() {
        let folder = tempfile::tempdir().unwrap();
        let etc = folder.path().join("etc");
        let config = etc.join("rota.toml");
        fs::create_dir(&etc).unwrap();
        fs::write(&config, "").unwrap();
        let mut watch = Watch::open(&config);
        fs::remove_dir_all(&etc).unwrap();
        assert!(watch.changed());
        assert!(!watch.look());
        fs::create_dir(&etc).unwrap();
        fs::write(&config, "[host]").unwrap();
        assert!(watch.look());
        assert!(!watch.look());
        fs::write(&config, "[host]\n").unwrap();
        assert!(watch.changed(), "it is watched again");
    }
}
