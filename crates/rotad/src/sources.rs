//! The configuration's files: `rota.toml`, and one file a tenant in the folder `tenants.d` beside it.

use std::ffi::OsStr;
use std::io::ErrorKind;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use inotify::{Inotify, WatchMask};
use rota_model::config::Source;

/// The folder of tenants' files that belongs to a configuration file.
pub fn tenants_folder(config: &Path) -> PathBuf {
    config.with_file_name("tenants.d")
}

/// Reads the configuration file, and the `*.toml` files of its `tenants.d`, if there is one, in the order of their
/// names. Hidden files (an editor's) are left out.
///
/// # Errors
/// If one of them cannot be read, named.
pub fn read(config: &Path) -> Result<Vec<Source>> {
    let mut paths = vec![config.to_owned()];
    let folder = tenants_folder(config);
    match std::fs::read_dir(&folder) {
        Ok(entries) => {
            let mut tenants = Vec::new();
            for entry in entries {
                let path = entry.with_context(|| format!("reading {}", folder.display()))?.path();
                if is_tenant_file(&path) {
                    tenants.push(path);
                }
            }
            tenants.sort();
            paths.extend(tenants);
        }
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(error).with_context(|| format!("reading {}", folder.display())),
    }
    paths.iter().map(|path| read_one(path)).collect()
}

fn read_one(path: &Path) -> Result<Source> {
    let text = std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
    Ok(Source { path: path.display().to_string(), text })
}

fn is_tenant_file(path: &Path) -> bool {
    let hidden = path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
    !hidden && path.extension() == Some(OsStr::new("toml"))
}

/// Tells when the files may have changed. The folders are watched, not the files: most editors replace a file.
#[derive(Debug)]
pub struct Watch {
    config: PathBuf,
    inotify: Inotify,
}

impl Watch {
    /// Begins to watch the folder of `config`, and its `tenants.d` as soon as there is one.
    ///
    /// # Errors
    /// If the folder cannot be watched.
    pub fn open(config: &Path) -> Result<Watch> {
        let inotify = Inotify::init().context("starting inotify")?;
        let watch = Watch { config: config.to_owned(), inotify };
        watch.add()?;
        Ok(watch)
    }

    fn add(&self) -> Result<()> {
        let folder = match self.config.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        let mask = WatchMask::CREATE | WatchMask::MODIFY | WatchMask::MOVE | WatchMask::DELETE;
        let mut watches = self.inotify.watches();
        watches.add(folder, mask).with_context(|| format!("watching {}", folder.display()))?;
        let tenants = tenants_folder(&self.config);
        match watches.add(&tenants, mask) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                Err(error).with_context(|| format!("watching {}", tenants.display()))
            }
            _ => Ok(()),
        }
    }

    /// Whether anything has happened in the folders since the last time.
    ///
    /// # Errors
    /// If a folder cannot be watched any more.
    pub fn changed(&mut self) -> Result<bool> {
        let mut changed = false;
        let mut buffer = [0; 4096];
        loop {
            match self.inotify.read_events(&mut buffer) {
                Ok(events) => changed |= events.count() > 0,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error).context("reading inotify events of the configuration"),
            }
        }
        if changed {
            self.add()?;
        }
        Ok(changed)
    }
}

impl AsFd for Watch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inotify.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn tenants_files_follow_the_configuration_in_order() {
        let folder = tempfile::tempdir().unwrap();
        let config = folder.path().join("rota.toml");
        fs::write(&config, "[host]\n").unwrap();
        let names = |sources: &[Source]| -> Vec<String> {
            sources.iter().map(|source| source.path.rsplit('/').next().unwrap().to_owned()).collect()
        };
        assert_eq!(names(&read(&config).unwrap()), ["rota.toml"]);

        fs::create_dir(folder.path().join("tenants.d")).unwrap();
        for name in ["b.toml", "a.toml", ".#a.toml", "a.toml~", "README"] {
            fs::write(folder.path().join("tenants.d").join(name), name).unwrap();
        }
        let sources = read(&config).unwrap();
        assert_eq!(names(&sources), ["rota.toml", "a.toml", "b.toml"]);
        assert_eq!(sources[1].text, "a.toml");
    }

    #[test]
    fn edits_are_seen_also_in_a_folder_that_comes_later() {
        let folder = tempfile::tempdir().unwrap();
        let config = folder.path().join("rota.toml");
        fs::write(&config, "").unwrap();
        let mut watch = Watch::open(&config).unwrap();
        assert!(!watch.changed().unwrap());
        fs::write(folder.path().join("new"), "[host]").unwrap();
        fs::rename(folder.path().join("new"), &config).unwrap();
        assert!(watch.changed().unwrap());
        fs::create_dir(tenants_folder(&config)).unwrap();
        assert!(watch.changed().unwrap());
        fs::write(tenants_folder(&config).join("a.toml"), "").unwrap();
        assert!(watch.changed().unwrap());
        assert!(!watch.changed().unwrap());
    }

    #[test]
    fn a_missing_file_is_named() {
        let error = read(Path::new("/nonexistent/rota.toml")).unwrap_err();
        assert_eq!(error.to_string(), "reading /nonexistent/rota.toml");
    }
}
