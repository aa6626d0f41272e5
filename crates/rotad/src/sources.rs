//! The configuration's files: `rota.toml`, and one file a tenant in the folder `tenants.d` beside it.

mod watch;

use std::ffi::OsStr;
use std::fs::{Metadata, OpenOptions};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use nix::unistd::geteuid;
use rota_model::config::Source;

pub use watch::Watch;

/// A file is no longer. Ten thousand tenants take some 2 MB.
const BYTES_MAX: u64 = 16 << 20;
/// `tenants.d` has no more files.
const FILES_MAX: usize = 16_384;

/// The folder of tenants' files that belongs to a configuration file.
pub fn tenants_folder(config: &Path) -> PathBuf {
    config.with_file_name("tenants.d")
}

/// Reads the configuration file, and the `*.toml` files of its `tenants.d`, if there is one, in the order of their
/// names. Hidden files (an editor's) are left out.
///
/// # Errors
/// If one of them cannot be read, is no file or is too large, named.
pub fn read(config: &Path) -> Result<Vec<Source>> {
    read_all(config, |_, _| Ok(()))
}

/// As [`read`], but for a host: who writes these files decides who gets its CPUs.
///
/// # Errors
/// As [`read`], and if others than root and this process's user may write one.
pub fn read_trusted(config: &Path) -> Result<Vec<Source>> {
    let folder = config.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    for folder in [folder, &tenants_folder(config)] {
        match folder.metadata() {
            Ok(status) => check_owner(folder, &status)?,
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error).with_context(|| format!("reading {}", folder.display())),
        }
    }
    read_all(config, check_owner)
}

/// Who called sudo, if anybody did: such a user is root already, and may have the configuration at home.
fn sudo_user() -> Option<u32> {
    std::env::var("SUDO_UID").ok()?.parse().ok()
}

/// Whether root or this process's user alone decides what is there.
fn check_owner(path: &Path, status: &Metadata) -> Result<()> {
    let (path, owner) = (path.display(), status.uid());
    let is_sudo_users = sudo_user() == Some(owner);
    ensure!(
        owner == 0 || owner == geteuid().as_raw() || is_sudo_users,
        "{path} is user {owner}'s, who would decide who gets which CPU; chown root {path}"
    );
    // In a folder as /tmp others cannot replace what is not theirs. The group may be root's, or a user's own.
    let sticky = status.is_dir() && status.mode() & 0o1000 != 0;
    let others = if status.gid() == 0 || (is_sudo_users && status.gid() == owner) { 0o002 } else { 0o022 };
    ensure!(
        sticky || status.mode() & others == 0,
        "{path} may be written by others, who would decide who gets which CPU; chmod go-w {path}"
    );
    Ok(())
}

/// The files, in order.
fn paths(config: &Path) -> Result<Vec<PathBuf>> {
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
                ensure!(tenants.len() <= FILES_MAX, "{} has more than {FILES_MAX} files", folder.display());
            }
            tenants.sort();
            paths.extend(tenants);
        }
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(error).with_context(|| format!("reading {}", folder.display())),
    }
    Ok(paths)
}

fn read_all(config: &Path, check: impl Fn(&Path, &Metadata) -> Result<()>) -> Result<Vec<Source>> {
    paths(config)?.iter().map(|path| read_one(path, &check)).collect()
}

fn read_one(path: &Path, check: impl Fn(&Path, &Metadata) -> Result<()>) -> Result<Source> {
    let reading = || format!("reading {}", path.display());
    // Opening a FIFO waits for its writer otherwise.
    let flags = nix::libc::O_NONBLOCK | nix::libc::O_NOCTTY;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path).with_context(reading)?;
    let status = file.metadata().with_context(reading)?;
    ensure!(status.is_file(), "{} is no file; write the configuration as one", path.display());
    check(path, &status)?;
    let mut text = String::new();
    file.take(BYTES_MAX + 1).read_to_string(&mut text).with_context(reading)?;
    if text.len() as u64 > BYTES_MAX {
        bail!("{} is larger than {} MiB; divide it over tenants.d", path.display(), BYTES_MAX >> 20);
    }
    Ok(Source { path: path.display().to_string(), text })
}

fn is_tenant_file(path: &Path) -> bool {
    let hidden = path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
    !hidden && path.extension() == Some(OsStr::new("toml"))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, chown};

    use super::*;

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
        assert_eq!(read_trusted(&config).unwrap(), sources);
    }

    #[test]
    fn a_missing_file_is_named() {
        let error = read(Path::new("/nonexistent/rota.toml")).unwrap_err();
        assert_eq!(error.to_string(), "reading /nonexistent/rota.toml");
    }

    /// A FIFO once had `rota plan` wait for ever, and the daemon after an edit; a device was read until memory ended.
    #[test]
    fn what_is_no_file_or_has_no_end_is_one_error() {
        let folder = tempfile::tempdir().unwrap();
        let config = folder.path().join("rota.toml");
        let error = |config: &Path| read(config).unwrap_err().to_string();
        assert!(error(Path::new("/dev/zero")).contains("is no file"));
        nix::unistd::mkfifo(&config, nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert!(error(&config).contains("is no file"));
        fs::remove_file(&config).unwrap();
        fs::File::create(&config).unwrap().set_len(BYTES_MAX + 1).unwrap();
        assert!(error(&config).contains("larger than 16 MiB"));
        fs::write(&config, "").unwrap();
        fs::create_dir_all(tenants_folder(&config).join("x.toml")).unwrap();
        assert!(error(&config).contains("x.toml is no file"));
    }

    #[test]
    fn what_others_may_write_is_not_trusted() {
        let folder = tempfile::tempdir().unwrap();
        let config = folder.path().join("rota.toml");
        fs::write(&config, "").unwrap();
        let refused = |part: &str| {
            let error = read_trusted(&config).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
            read(&config).unwrap();
        };
        let mode = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        mode(&config, 0o666);
        refused("chmod go-w");
        mode(&config, 0o644);
        mode(folder.path(), 0o777);
        refused("chmod go-w");
        mode(folder.path(), 0o1777);
        read_trusted(&config).unwrap();
        if chown(&config, Some(65_534), None).is_err() {
            println!("SKIPPED: what_others_may_write_is_not_trusted: only root gives a file away");
            return;
        }
        refused("is user 65534's");
    }
}
