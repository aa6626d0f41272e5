//! The socket through which `rota status` asks.

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use rota_rules::status::Status;

/// Where the daemon listens unless told otherwise.
pub const SOCKET: &str = "/run/rota/rota.sock";

/// A client that does not read or a daemon that does not answer is given up after this.
const PATIENCE: Duration = Duration::from_secs(5);

/// The daemon's end of the socket. Holding it is being *the* daemon: a lock beside it keeps a second one off.
#[derive(Debug)]
pub struct Server {
    listener: UnixListener,
    path: PathBuf,
    _lock: Flock<File>,
}

impl Server {
    /// Takes the lock and begins to listen. What a killed daemon left behind is replaced.
    ///
    /// # Errors
    /// If another daemon runs with this socket, or the folder cannot be made or written.
    pub fn bind(path: &Path) -> Result<Server> {
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))?;
        }
        let lock_path = path.with_extension("lock");
        let lock = File::create(&lock_path).with_context(|| format!("creating {}", lock_path.display()))?;
        let lock = Flock::lock(lock, FlockArg::LockExclusiveNonblock).map_err(|(_, error)| match error {
            Errno::EWOULDBLOCK => anyhow!(
                "another `rota up` runs already (it holds {}); stop it first, or give this one another --socket",
                lock_path.display()
            ),
            error => anyhow!("locking {}: {error}", lock_path.display()),
        })?;
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(error).with_context(|| format!("replacing {}", path.display()));
            }
            _ => {}
        }
        let listener =
            UnixListener::bind(path).with_context(|| format!("listening on {}", path.display()))?;
        listener.set_nonblocking(true).context("setting up the socket")?;
        // Names of tenants and what they use are the operator's business.
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))
            .with_context(|| format!("setting permissions of {}", path.display()))?;
        Ok(Server { listener, path: path.to_owned(), _lock: lock })
    }

    /// Answers whoever asks now; `snapshot` is called only if somebody does. A slow reader delays nobody.
    pub fn answer(&self, snapshot: impl FnOnce() -> Status) {
        let mut clients = Vec::new();
        while let Ok((client, _)) = self.listener.accept() {
            clients.push(client);
        }
        if clients.is_empty() {
            return;
        }
        let text = serde_json::to_string(&snapshot()).expect("a status has only strings for keys");
        std::thread::spawn(move || {
            for mut client in clients {
                // An error is the client's own: it went away or does not read.
                let _ =
                    client.set_write_timeout(Some(PATIENCE)).and_then(|()| client.write_all(text.as_bytes()));
            }
        });
    }
}

impl AsFd for Server {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The lock's file stays: to remove it would let two daemons lock two files of one name.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Asks the daemon.
///
/// # Errors
/// If none answers, or not in this version's words.
pub fn ask(path: &Path) -> Result<Status> {
    let mut stream = UnixStream::connect(path)
        .with_context(|| format!("no daemon answers at {} (is `rota up` running?)", path.display()))?;
    stream.set_read_timeout(Some(PATIENCE)).context("setting up the socket")?;
    let mut text = String::new();
    stream.read_to_string(&mut text).map_err(|error| match error.kind() {
        ErrorKind::WouldBlock => anyhow!(
            "the daemon at {} did not answer within {} s; it may be loading the scheduler, try again",
            path.display(),
            PATIENCE.as_secs()
        ),
        _ => anyhow!("reading from {}: {error}", path.display()),
    })?;
    serde_json::from_str(&text).context("the daemon answers in the words of another version of rota")
}

#[cfg(test)]
mod tests {
    use rota_rules::status::SpareStatus;

    use super::*;

    fn status() -> Status {
        Status {
            pid: 7,
            up_s: 1.5,
            generation: 3,
            table_length_ns: 102_702_600,
            window_s: 1.0,
            edit_refused: None,
            offline: String::new(),
            tenants: Vec::new(),
            cpus: Vec::new(),
            spares: vec![SpareStatus { share: 0.25, latency_ns: 20_000_000, count: 2, ready: 1 }],
        }
    }

    #[test]
    fn who_asks_is_answered() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run/rota.sock");
        let server = Server::bind(&path).unwrap();
        let client = std::thread::spawn({
            let path = path.clone();
            move || ask(&path)
        });
        while !client.is_finished() {
            server.answer(status);
            std::thread::yield_now();
        }
        assert_eq!(client.join().unwrap().unwrap(), status());
        drop(server);
        assert!(ask(&path).unwrap_err().to_string().contains("is `rota up` running?"));
    }

    #[test]
    fn there_is_one_daemon() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rota.sock");
        let first = Server::bind(&path).unwrap();
        let error = Server::bind(&path).unwrap_err().to_string();
        assert!(error.contains("another `rota up` runs already"), "{error}");
        drop(first);
        // What a killed daemon leaves behind does not stand in the way.
        std::fs::write(&path, "").unwrap();
        Server::bind(&path).unwrap();
    }
}
