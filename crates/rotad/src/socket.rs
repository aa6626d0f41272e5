//! Unix sockets that are made with their mode, and that take no file's place.

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, chown};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use nix::sys::socket::{AddressFamily, Backlog, SockFlag, SockType, UnixAddr, bind, listen, socket};
use nix::sys::stat::{Mode, fchmod};

/// Whether a socket may be made at `path`.
///
/// # Errors
/// If something else than a socket is there.
pub fn check(path: &Path) -> Result<()> {
    match path.symlink_metadata() {
        Ok(status) if !status.file_type().is_socket() => {
            bail!("{} is there, and is no socket; remove it, or name another path", path.display())
        }
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(error).with_context(|| format!("looking at {}", path.display()))
        }
        _ => Ok(()),
    }
}

/// Listens at `path`, for root and for `group` if there is one. A socket that was left there is replaced.
///
/// # Errors
/// If something else is there, or the folder cannot be made or written.
pub fn listen_at(path: &Path, group: Option<u32>) -> Result<UnixListener> {
    make_folder(path)?;
    check(path)?;
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            return Err(error).with_context(|| format!("replacing {}", path.display()));
        }
        _ => {}
    }
    let listening = || format!("listening on {}", path.display());
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let fd = socket(AddressFamily::Unix, SockType::Stream, flags, None).with_context(listening)?;
    // Linux gives the file the mode of the socket, less the umask: there is no moment in which others may connect.
    fchmod(&fd, Mode::S_IRUSR | Mode::S_IWUSR).with_context(listening)?;
    bind(fd.as_raw_fd(), &UnixAddr::new(path).with_context(listening)?).with_context(listening)?;
    if let Some(group) = group {
        chown(path, None, Some(group))
            .with_context(|| format!("giving {} to group {group}", path.display()))?;
        std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o660))
            .with_context(|| format!("setting permissions of {}", path.display()))?;
    }
    listen(&fd, Backlog::new(128).unwrap_or(Backlog::MAXALLOWABLE)).with_context(listening)?;
    Ok(UnixListener::from(fd))
}

/// The file beside a socket whose lock is held by who listens there.
pub fn lock_path(socket: &Path) -> PathBuf {
    match socket.with_extension("lock") {
        path if path == socket => socket.with_extension("lock.lock"),
        path => path,
    }
}

/// Opens a file to lock it. What is in it stays.
///
/// # Errors
/// If it is a link, or no file.
pub fn open_lock(path: &Path) -> Result<File> {
    use std::os::unix::fs::OpenOptionsExt;
    make_folder(path)?;
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create(true).truncate(false).mode(0o600);
    let file =
        options.custom_flags(nix::libc::O_NOFOLLOW | nix::libc::O_NONBLOCK).open(path).map_err(|error| {
            anyhow!("opening the lock {}: {error}; it must be a file or nothing", path.display())
        })?;
    if !file.metadata().is_ok_and(|status| status.is_file()) {
        bail!("the lock {} is no file; remove it, or give another --socket", path.display());
    }
    Ok(file)
}

fn make_folder(path: &Path) -> Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    folder.map_or(Ok(()), |folder| {
        let made = std::fs::DirBuilder::new().recursive(true).mode(0o755).create(folder);
        made.with_context(|| format!("making {}", folder.display()))
    })
}

/// A connection that may be given up.
pub trait Patient: Read + Write {
    /// How long the next read may take.
    fn read_within(&self, time: Duration) -> std::io::Result<()>;
    /// How long the next write may take.
    fn write_within(&self, time: Duration) -> std::io::Result<()>;
}

impl Patient for TcpStream {
    fn read_within(&self, time: Duration) -> std::io::Result<()> {
        self.set_read_timeout(Some(time))
    }

    fn write_within(&self, time: Duration) -> std::io::Result<()> {
        self.set_write_timeout(Some(time))
    }
}

impl Patient for UnixStream {
    fn read_within(&self, time: Duration) -> std::io::Result<()> {
        self.set_read_timeout(Some(time))
    }

    fn write_within(&self, time: Duration) -> std::io::Result<()> {
        self.set_write_timeout(Some(time))
    }
}

/// Writes all of it in that time, however slowly it is taken.
///
/// # Errors
/// If the client goes away, or does not read.
pub fn write_all(client: &mut impl Patient, mut bytes: &[u8], time: Duration) -> std::io::Result<()> {
    let end = Instant::now() + time;
    while !bytes.is_empty() {
        client.write_within(left(end)?)?;
        match client.write(bytes)? {
            0 => return Err(ErrorKind::WriteZero.into()),
            written => bytes = &bytes[written..],
        }
    }
    Ok(())
}

/// How long it is until then.
///
/// # Errors
/// If it is no time any more.
pub fn left(end: Instant) -> std::io::Result<Duration> {
    end.checked_duration_since(Instant::now())
        .filter(|left| !left.is_zero())
        .ok_or(ErrorKind::TimedOut.into())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    /// `rota up --socket /etc/rota/rota.toml` once removed that file, and its lock emptied another.
    #[test]
    fn a_file_is_never_removed_emptied_or_followed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("precious.txt");
        fs::write(&path, "precious").unwrap();
        let error = listen_at(&path, None).unwrap_err().to_string();
        assert!(error.contains("is no socket"), "{error}");
        drop(open_lock(&path).unwrap());
        assert_eq!(fs::read_to_string(&path).unwrap(), "precious");

        let link = folder.path().join("link.lock");
        symlink(&path, &link).unwrap();
        assert!(open_lock(&link).is_err());
        assert!(listen_at(&link, None).is_err());
        nix::unistd::mkfifo(&folder.path().join("fifo"), Mode::S_IRUSR).unwrap();
        assert!(open_lock(&folder.path().join("fifo")).is_err(), "and it does not wait for a reader");
        assert_ne!(lock_path(Path::new("a/x.lock")), Path::new("a/x.lock"));
    }

    #[test]
    fn a_socket_has_its_mode() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run/x.sock");
        let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
        let first = listen_at(&path, None).unwrap();
        assert_eq!(mode(&path), 0o600);
        drop(first);
        let group = nix::unistd::getegid().as_raw();
        let _second = listen_at(&path, Some(group)).unwrap();
        assert_eq!(mode(&path), 0o660);
    }
}
