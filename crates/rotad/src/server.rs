//! The socket through which `rota status` asks.

use std::cell::{Cell, RefCell};
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use nix::unistd::geteuid;
use rota_rules::status::Status;

use crate::log::say;
use crate::sampler::Sampler;
use crate::socket::{listen_at, lock_path, open_lock, write_all};

/// Where the daemon listens unless told otherwise.
pub const SOCKET: &str = "/run/rota/rota.sock";

/// A client that does not read or a daemon that does not answer is given up after this.
const PATIENCE: Duration = Duration::from_secs(5);
/// So many clients are answered at a time. Others are sent away, and may ask again.
const CLIENTS_MAX: usize = 32;
/// Who asks again within this time gets the same answer: asking often costs the daemon nothing.
const FRESH: Duration = Duration::from_millis(100);
/// After a failure to take a client in, none is taken for this time.
const REST: Duration = Duration::from_secs(1);

/// The daemon's end of the socket. Holding it is being *the* daemon: a lock beside it keeps a second one off.
#[derive(Debug)]
pub struct Server {
    listener: UnixListener,
    path: PathBuf,
    /// Only root's clients are answered, and the daemon's own user's, unless a group may connect as well.
    is_shared: bool,
    answered: RefCell<Option<(Instant, Arc<str>)>>,
    resting_until: Cell<Option<Instant>>,
    clients: Arc<AtomicUsize>,
    /// Where root has tenants sampled.
    pub sampler: Sampler,
    _lock: Flock<File>,
}

impl Server {
    /// Takes the lock and begins to listen, for root and for `group`. What a killed daemon left behind is replaced.
    ///
    /// # Errors
    /// If another daemon runs with this socket, something else is at its path, or the folder cannot be made or written.
    pub fn bind(path: &Path, group: Option<u32>) -> Result<Server> {
        let lock_path = lock_path(path);
        let lock = open_lock(&lock_path)?;
        let lock = Flock::lock(lock, FlockArg::LockExclusiveNonblock).map_err(|(_, error)| match error {
            Errno::EWOULDBLOCK => anyhow!(
                "another `rota up` runs already (it holds {}); stop it first, or give this one another --socket",
                lock_path.display()
            ),
            error => anyhow!("locking {}: {error}", lock_path.display()),
        })?;
        let listener = listen_at(path, group)?;
        let (answered, resting_until, clients) = Default::default();
        let sampler = Sampler::bind(path)?;
        let (path, is_shared) = (path.to_owned(), group.is_some());
        Ok(Server { listener, path, is_shared, answered, resting_until, clients, sampler, _lock: lock })
    }

    /// Tells of clients; nothing while none is taken in.
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        let rests = self.resting_until.get().is_some_and(|until| Instant::now() < until);
        (!rests).then(|| self.listener.as_fd())
    }

    /// Answers who asks now; `snapshot` is called only if somebody does. A slow reader delays nobody.
    pub fn answer(&self, snapshot: impl FnOnce() -> Status) {
        let mut clients = Vec::new();
        while clients.len() < CLIENTS_MAX {
            match self.listener.accept() {
                Ok((client, _)) => clients.extend(self.admit(client)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                // No file is free, perhaps: the client waits in the queue, and so does the daemon for it.
                Err(error) => {
                    self.rest(&format!("no client can be taken in: {error}"));
                    break;
                }
            }
        }
        if clients.is_empty() {
            return;
        }
        let text = self.text(snapshot);
        for (mut client, place) in clients {
            let text = text.clone();
            let write = move || {
                // An error is the client's own: it went away or does not read.
                let _ = client
                    .set_nonblocking(false)
                    .and_then(|()| write_all(&mut client, text.as_bytes(), PATIENCE));
                drop(place);
            };
            if let Err(error) = std::thread::Builder::new().name("status".to_owned()).spawn(write) {
                self.rest(&format!("no client can be answered: {error}"));
            }
        }
    }

    /// The client, if it may ask and there is a place for it.
    fn admit(&self, client: UnixStream) -> Option<(UnixStream, Seat)> {
        let peer = getsockopt(&client, PeerCredentials).ok()?.uid();
        let is_trusted = self.is_shared || peer == 0 || peer == geteuid().as_raw();
        Some((client, is_trusted.then(|| Seat::take(&self.clients, CLIENTS_MAX))??))
    }

    fn text(&self, snapshot: impl FnOnce() -> Status) -> Arc<str> {
        let mut answered = self.answered.borrow_mut();
        let (at, text) = answered.take().filter(|(at, _)| at.elapsed() < FRESH).unwrap_or_else(|| {
            let text = serde_json::to_string(&snapshot()).expect("a status has only strings for keys");
            (Instant::now(), text.into())
        });
        *answered = Some((at, text.clone()));
        text
    }

    fn rest(&self, why: &str) {
        say(why);
        self.resting_until.set(Some(Instant::now() + REST));
    }
}

/// One of a number of clients that are answered at a time. Dropped, it is free again.
#[derive(Debug)]
pub struct Seat(Arc<AtomicUsize>);

impl Seat {
    /// One, if fewer than `max` are taken.
    pub fn take(taken: &Arc<AtomicUsize>, max: usize) -> Option<Seat> {
        let one_more = |taken: usize| (taken < max).then_some(taken + 1);
        taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).ok()?;
        Some(Seat(taken.clone()))
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
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
    if text.is_empty() {
        bail!("the daemon at {} has too many clients, or does not know this user; try again", path.display());
    }
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
            interference: None,
            kubernetes: None,
            scheduler: rota_rules::status::SchedulerStatus::default(),
        }
    }

    #[test]
    fn who_asks_is_answered() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run/rota.sock");
        let server = Server::bind(&path, None).unwrap();
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
        let first = Server::bind(&path, None).unwrap();
        let error = Server::bind(&path, None).unwrap_err().to_string();
        assert!(error.contains("another `rota up` runs already"), "{error}");
        drop(first);
        // What a killed daemon leaves behind does not stand in the way.
        std::mem::forget(UnixListener::bind(&path).unwrap());
        Server::bind(&path, None).unwrap();
    }

    /// A few silent clients once delayed all others, and many could have taken all threads.
    #[test]
    fn clients_that_do_not_read_have_a_bound_and_delay_nobody() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rota.sock");
        let server = Server::bind(&path, None).unwrap();
        let long = || Status { offline: "x".repeat(4 << 20), ..status() };
        let deaf: Vec<UnixStream> =
            (0..2 * CLIENTS_MAX).map(|_| UnixStream::connect(&path).unwrap()).collect();
        for _ in 0..3 {
            server.answer(long);
        }
        assert_eq!(server.clients.load(Ordering::Relaxed), CLIENTS_MAX);
        drop(deaf);
        while server.clients.load(Ordering::Relaxed) > 0 {
            std::thread::yield_now();
        }
        let client = std::thread::spawn(move || ask(&path));
        while !client.is_finished() {
            server.answer(long);
            std::thread::yield_now();
        }
        assert_eq!(client.join().unwrap().unwrap().offline.len(), 4 << 20);
    }

    /// The socket once stayed readable, and the loop turned without a pause. Files are a process's, so another one runs
    /// out of them.
    #[test]
    fn without_a_free_file_the_daemon_rests_and_then_answers() {
        const CHILD: &str = "ROTA_TEST_WITHOUT_FILES";
        if std::env::var_os(CHILD).is_none() {
            let test = "server::tests::without_a_free_file_the_daemon_rests_and_then_answers";
            let script = format!("ulimit -n 64; exec \"$0\" --exact {test}");
            let mut child = std::process::Command::new("sh");
            child.arg("-c").arg(script).arg(std::env::current_exe().unwrap()).env(CHILD, "1");
            let done = child.output().unwrap();
            assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stdout));
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rota.sock");
        let server = Server::bind(&path, None).unwrap();
        let client = std::thread::spawn(move || ask(&path));
        let mut poll = [nix::poll::PollFd::new(server.fd().unwrap(), nix::poll::PollFlags::POLLIN)];
        nix::poll::poll(&mut poll, nix::poll::PollTimeout::NONE).unwrap();
        let files: Vec<File> =
            std::iter::repeat_with(|| File::open("/dev/null")).map_while(Result::ok).collect();
        server.answer(status);
        assert!(server.fd().is_none(), "{} files were free", files.len());
        drop(files);
        std::thread::sleep(REST);
        assert!(server.fd().is_some());
        server.answer(status);
        assert_eq!(client.join().unwrap().unwrap(), status());
    }

    #[test]
    fn who_asks_often_gets_one_answer() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rota.sock");
        let server = Server::bind(&path, None).unwrap();
        let asked = Cell::new(0);
        for _ in 0..20 {
            let _client = UnixStream::connect(&path).unwrap();
            server.answer(|| {
                asked.set(asked.get() + 1);
                status()
            });
            if server.answered.borrow().as_ref().unwrap().0.elapsed() >= FRESH {
                return; // a machine this slow proves nothing
            }
        }
        assert_eq!(asked.get(), 1);
    }
}
