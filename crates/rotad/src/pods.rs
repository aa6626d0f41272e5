//! The pods of this node. A thread hears of them from the container runtime, and wakes the daemon's loop.

use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use nix::sys::eventfd::{EfdFlags, EventFd};
use rota_model::Pod;
use rota_model::config::Kubernetes;
use rota_nri::{News, follow};
use rota_rules::status::KubernetesStatus;

use crate::log::say;

/// Between tries to connect; each is twice as long as the one before.
const PAUSE: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// Who asks once waits so long for each answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// What the runtime tells, until this is dropped.
#[derive(Debug)]
pub struct Pods {
    kubernetes: Kubernetes,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    told: Mutex<Told>,
    changed: EventFd,
}

/// What was told last.
#[derive(Debug, Default)]
struct Told {
    runtime: Option<String>,
    lost: Option<String>,
    pods: Vec<Pod>,
    /// The connection, to end it by.
    stream: Option<UnixStream>,
    /// Nobody listens any more.
    ends: bool,
}

impl Pods {
    /// Begins to listen to the runtime. One that is not there is tried again and again.
    ///
    /// # Errors
    /// If the system has no thread or file for it.
    pub fn follow(kubernetes: Kubernetes) -> Result<Pods> {
        let changed = EventFd::from_flags(EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC);
        let changed = changed.context("making an eventfd for pods")?;
        let shared = Arc::new(Shared { told: Mutex::default(), changed });
        let (listener, socket) = (Arc::clone(&shared), kubernetes.socket.clone());
        let thread = std::thread::Builder::new().name("pods".to_owned());
        thread.spawn(move || listener.listen(&socket)).context("starting a thread for pods")?;
        Ok(Pods { kubernetes, shared })
    }

    /// How pods become tenants.
    pub fn kubernetes(&self) -> &Kubernetes {
        &self.kubernetes
    }

    /// Tells that there is another list of pods.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.shared.changed.as_fd()
    }

    /// The pods of now; [`Pods::fd`] tells of other ones from now on.
    pub fn now(&self) -> Vec<Pod> {
        let _ = self.shared.changed.read();
        self.shared.told().pods.clone()
    }

    /// For `rota status`: what the runtime has told.
    pub fn status(&self) -> KubernetesStatus {
        let told = self.shared.told();
        KubernetesStatus {
            runtime: told.runtime.clone(),
            lost: told.lost.clone(),
            pods: told.pods.len() as u32,
            ..KubernetesStatus::default()
        }
    }
}

/// Asks the runtime at `socket` once: its name and version, and the pods of now.
///
/// # Errors
/// If it is not there, refuses, or says nothing for five seconds.
pub fn ask(socket: &Path) -> Result<(String, Vec<Pod>)> {
    // An older runtime takes the plugin, hears what it asks for, and hangs up: less is asked for the second time.
    ask_once(socket, true)
        .or_else(|_| ask_once(socket, false))
        .with_context(|| format!("the container runtime does not tell of its pods at {}", socket.display()))
}

fn ask_once(socket: &Path, updates: bool) -> Result<(String, Vec<Pod>)> {
    let stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let ours = stream.try_clone()?;
    let (mut runtime, mut listed) = (None, None);
    let Err(error) = follow(stream, updates, |news| match news {
        News::Runtime(name) => runtime = Some(name),
        News::Pods(pods) => {
            listed.get_or_insert(pods);
            let _ = ours.shutdown(Shutdown::Both);
        }
    });
    let pods = listed.ok_or(error)?;
    Ok((runtime.unwrap_or_else(|| "a container runtime".to_owned()), pods))
}

impl Drop for Pods {
    fn drop(&mut self) {
        let mut told = self.shared.told();
        told.ends = true;
        if let Some(stream) = told.stream.take() {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

impl Shared {
    fn told(&self) -> MutexGuard<'_, Told> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Connects, again and again.
    fn listen(&self, socket: &Path) {
        let (mut updates, mut pause) = (true, PAUSE);
        loop {
            let (error, has_listed) = self.converse(socket, updates);
            let is_known = {
                let mut told = self.told();
                if told.ends {
                    return;
                }
                told.runtime.take().is_some()
            };
            // An older runtime takes the plugin, hears what it asks for, and hangs up: less is asked for the next time.
            if updates && is_known && !has_listed {
                updates = false;
                continue;
            }
            (updates, pause) = (true, if has_listed { PAUSE } else { pause });
            self.lose(&error);
            std::thread::sleep(pause);
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// One connection: why it has ended, and whether there was a list of pods.
    fn converse(&self, socket: &Path, updates: bool) -> (anyhow::Error, bool) {
        let connected = UnixStream::connect(socket)
            .and_then(|stream| Ok((stream.try_clone()?, stream)))
            .with_context(|| format!("connecting to {}", socket.display()));
        let (ours, stream) = match connected {
            Ok(streams) => streams,
            Err(error) => return (error, false),
        };
        {
            let mut told = self.told();
            if told.ends {
                return (anyhow!("nobody listens"), false);
            }
            told.stream = Some(ours);
        }
        let mut has_listed = false;
        let Err(error) = follow(stream, updates, |news| match news {
            News::Runtime(runtime) => self.told().runtime = Some(runtime),
            News::Pods(pods) => {
                has_listed = true;
                self.list(pods);
            }
        });
        (error, has_listed)
    }

    /// These are the pods now.
    fn list(&self, pods: Vec<Pod>) {
        let mut told = self.told();
        if told.lost.take().is_some() || told.pods.is_empty() {
            let runtime = told.runtime.as_deref().unwrap_or("a container runtime");
            say(&format!("{runtime} tells of {} pods", pods.len()));
        }
        told.pods = pods;
        // It is full only after 2^64 lists.
        let _ = self.changed.write(1);
    }

    /// The runtime is not there. The pods of before stay: they run on without it.
    fn lose(&self, error: &anyhow::Error) {
        let mut told = self.told();
        let lost = format!("{error:#}");
        if told.lost.as_ref() != Some(&lost) {
            say(&format!("pods are not heard of ({lost}); tried again and again"));
        }
        told.lost = Some(lost);
    }
}
