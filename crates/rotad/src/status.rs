//! What `rota status` shows, and the socket it comes through.

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
use rota_model::{Host, Spare};
use serde::{Deserialize, Serialize};

/// Where the daemon listens unless told otherwise.
pub const SOCKET: &str = "/run/rota/rota.sock";

/// A client that does not read or a daemon that does not answer is given up after this.
const PATIENCE: Duration = Duration::from_secs(5);

/// The daemon at one moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// The daemon's process.
    pub pid: u32,
    /// Since the scheduler was loaded, in seconds.
    pub up_s: f64,
    /// The table in force; 0 before the first.
    pub generation: u64,
    /// Its length in ns; 0 before the first.
    pub table_length_ns: u64,
    /// How long the window is over which `received` and the like are measured, in seconds.
    pub window_s: f64,
    /// Why the configuration as it is now is not the one in use; nothing if it is.
    pub edit_refused: Option<String>,
    /// Present tenants in the order of their numbers, then those that are configured and not there.
    pub tenants: Vec<TenantStatus>,
    /// The CPUs that the scheduler knows.
    pub cpus: Vec<CpuStatus>,
    /// What is prepared for who comes next, as far as the table in force has room for it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub spares: Vec<SpareStatus>,
}

/// One kind of `[host] spares`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SpareStatus {
    /// Of one CPU.
    pub share: f64,
    /// The longest wait, in ns.
    pub latency_ns: u64,
    /// How many there are to be.
    pub count: u32,
    /// How many of these are ready.
    pub ready: u32,
}

impl SpareStatus {
    /// Each kind that a host is to have, of which so many are `ready`.
    pub fn all(host: &Host, ready: &[u32]) -> Vec<SpareStatus> {
        let one = |(spare, &ready): (&Spare, &u32)| SpareStatus {
            share: spare.share.fraction(),
            latency_ns: spare.latency_ns,
            count: spare.count,
            ready,
        };
        host.spares.iter().zip(ready).map(one).collect()
    }
}

/// What a tenant is to the daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Configured, and not on this host now.
    Absent,
    /// Served as its class says: a reserved tenant has its slots.
    Served,
    /// Reserved, and served as background until the next table.
    Waiting,
    /// Reserved, and served as background because there is no room for it; see `refused`.
    Refused,
    /// Gone; its slots end with the next table.
    Leaving,
}

/// One tenant. Shares are in CPUs: 0.5 is half a CPU's time, summed over the tenant's vCPUs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TenantStatus {
    /// Its name.
    pub name: String,
    /// Its number in the scheduler; nothing for an absent one.
    pub id: Option<u32>,
    /// `reserved`, `shared` or `background`.
    pub class: String,
    /// Whether it is here and served.
    pub state: State,
    /// Why there is no room for it.
    pub refused: Option<String>,
    /// Its cgroup, relative to the root of cgroups.
    pub cgroup: Option<String>,
    /// `vm` or `container`.
    pub kind: String,
    /// How many vCPUs.
    pub vcpus: u32,
    /// The guaranteed share; nothing unless it is reserved.
    pub promised: Option<f64>,
    /// The share received in the window.
    pub received: f64,
    /// CPU time since it came, in ns.
    pub used_ns: u64,
    /// The share received since it came.
    pub received_total: f64,
    /// The part of the window in which it had something to run; of a VM, the busiest vCPU's.
    pub wanted: f64,
    /// How much CPU time it is behind what is fair now, in ns; negative if it is ahead, nothing unless it is shared.
    pub lag_ns: Option<i64>,
    /// The longest blackout seen, in ns.
    pub blackout_max_ns: u64,
    /// The promised bound of it; nothing unless it is reserved.
    pub bound_ns: Option<u64>,
    /// Blackouts beyond the bound.
    pub missed: u64,
    /// Those by what took most of the time.
    pub missed_by_cause: ByCause,
    /// Time lost in its slots while it wanted them, in ns, by cause.
    pub lost_ns: ByCause,
    /// Times that one of its threads was put on a CPU, and on another one than before.
    pub dispatches: u64,
    /// See `dispatches`.
    pub migrations: u64,
    /// Threads runnable or running now.
    pub runnable: u32,
}

/// One number for each of [`rota_sched::Cause`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ByCause {
    /// Kernel threads that had to run on this CPU.
    pub kernel_thread: u64,
    /// Tasks of a higher scheduling class.
    pub higher_class: u64,
    /// Interrupts.
    pub interrupt: u64,
    /// The hypervisor below.
    pub steal: u64,
    /// The floor of service.
    pub floor: u64,
    /// Rota itself.
    pub rota: u64,
}

impl ByCause {
    /// Names for people, in the order of [`rota_sched::Cause::ALL`].
    pub const NAMES: [&'static str; 6] = [
        "kernel threads",
        "higher scheduling classes",
        "interrupts",
        "host steal",
        "the floor",
        "rota itself",
    ];

    /// The numbers in the order of [`rota_sched::Cause::ALL`].
    pub fn values(&self) -> [u64; 6] {
        [self.kernel_thread, self.higher_class, self.interrupt, self.steal, self.floor, self.rota]
    }

    /// All together.
    pub fn total(&self) -> u64 {
        self.values().iter().sum()
    }
}

impl From<[u64; 6]> for ByCause {
    fn from([kernel_thread, higher_class, interrupt, steal, floor, rota]: [u64; 6]) -> ByCause {
        ByCause { kernel_thread, higher_class, interrupt, steal, floor, rota }
    }
}

/// One CPU. Parts are of the window.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CpuStatus {
    /// Its number.
    pub cpu: u32,
    /// The table that it enacts.
    pub generation: u64,
    /// Rounds in which it saw two tables: always 0.
    pub mixed: u64,
    /// The part with nothing to run.
    pub idle: f64,
    /// The part given to background tenants.
    pub background: f64,
    /// The part given to the second level and to shared tenants.
    pub second_level: f64,
    /// Time taken from tenants since the scheduler was loaded, in ns.
    pub lost_ns: ByCause,
}

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
    use super::*;

    fn status() -> Status {
        Status {
            pid: 7,
            up_s: 1.5,
            generation: 3,
            table_length_ns: 102_702_600,
            window_s: 1.0,
            edit_refused: None,
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
