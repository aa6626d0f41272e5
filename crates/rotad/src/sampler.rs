//! The socket at which the operator has a tenant sampled with others held off. It is root's alone: who may ask for the
//! status may not take others' CPUs, however shortly.

use std::io::{ErrorKind, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use nix::time::{ClockId, clock_gettime};
use nix::unistd::geteuid;
use rota_model::TenantId;
use rota_rules::sampling::{Answer, Request, Sample};

use crate::installer::Installer;
use crate::socket::{listen_at, write_all};

/// At the beginning of a sample nobody looks for so long: those that are held off leave their CPUs meanwhile.
const SETTLE: Duration = Duration::from_millis(3);
/// It is looked at for the last time so long before it ends.
const MARGIN: Duration = Duration::from_millis(2);
/// The daemon waits so long for a request of who has connected. Only root does.
const PROMPT: Duration = Duration::from_millis(50);
/// A daemon that does not answer is given up after this.
const PATIENCE: Duration = Duration::from_secs(5);
/// No request is longer.
const REQUEST_MAX: u64 = 4096;

/// Where the daemon with this socket for the status is asked for samples.
fn path_beside(socket: &Path) -> PathBuf {
    socket.with_extension("sample")
}

/// The daemon's end.
#[derive(Debug)]
pub struct Sampler {
    listener: UnixListener,
    path: PathBuf,
}

impl Sampler {
    /// Listens beside the socket for the status, whose lock is held.
    ///
    /// # Errors
    /// As [`listen_at`].
    pub fn bind(socket: &Path) -> Result<Sampler> {
        let path = path_beside(socket);
        Ok(Sampler { listener: listen_at(&path, None)?, path })
    }

    /// Tells of who asks.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }

    /// Answers one who asks. What is wrong with the request is the client's to see.
    pub fn answer(&self, sample: impl FnOnce(&Request) -> Answer) {
        let Ok((mut client, _)) = self.listener.accept() else { return };
        let Some(request) = is_trusted(&client).then(|| read(&mut client)).flatten() else { return };
        let text = serde_json::to_string(&sample(&request)).expect("an answer has only strings for keys");
        // An error is the client's own: it went away or does not read.
        let _ = write_all(&mut client, text.as_bytes(), PROMPT);
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

fn is_trusted(client: &UnixStream) -> bool {
    let own = geteuid().as_raw();
    getsockopt(client, PeerCredentials).is_ok_and(|peer| peer.uid() == 0 || peer.uid() == own)
}

fn read(client: &mut UnixStream) -> Option<Request> {
    client.set_nonblocking(false).and_then(|()| client.set_read_timeout(Some(PROMPT))).ok()?;
    let mut text = String::new();
    client.take(REQUEST_MAX).read_to_string(&mut text).ok()?;
    serde_json::from_str(&text).ok()
}

/// Takes a sample, if the tenant is here. The daemon does nothing else meanwhile.
pub fn sample(scheduler: &impl Installer, id: Option<TenantId>, request: &Request) -> Answer {
    let Some(id) = id else {
        return Answer::Refused(format!("tenant {:?} is not on this host now", request.tenant));
    };
    let taken = match request.hold_off_ms {
        0 => so_far(scheduler, id).map(Answer::SoFar),
        ms => dedicated(scheduler, id, Duration::from_millis(ms)),
    };
    taken.unwrap_or_else(|error| Answer::Refused(format!("{error:#}")))
}

fn so_far(scheduler: &impl Installer, id: TenantId) -> Result<Sample> {
    Ok(Sample::of(id, &scheduler.read(now_ns())?))
}

fn dedicated(scheduler: &impl Installer, id: TenantId, length: Duration) -> Result<Answer> {
    let Some(until_ns) = scheduler.hold_off(id, length)? else { return Ok(Answer::NotNow) };
    let end_ns = until_ns - MARGIN.as_nanos() as u64;
    sleep(SETTLE);
    let before = so_far(scheduler, id)?;
    sleep(Duration::from_nanos(end_ns.saturating_sub(now_ns())));
    let after = so_far(scheduler, id)?;
    if now_ns() >= until_ns {
        return Ok(Answer::NotNow);
    }
    Ok(after.since(&before).map_or(Answer::NotNow, Answer::Dedicated))
}

/// CLOCK_MONOTONIC in ns, the clock of the scheduler.
fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).expect("every Linux has CLOCK_MONOTONIC");
    now.tv_sec() as u64 * 1_000_000_000 + now.tv_nsec() as u64
}

/// Asks the daemon that has this socket for the status.
///
/// # Errors
/// If none answers, or not in this version's words.
pub fn ask(socket: &Path, request: &Request) -> Result<Answer> {
    let path = path_beside(socket);
    let mut stream = UnixStream::connect(&path)
        .with_context(|| format!("no daemon answers at {} (is `rota up` running?)", path.display()))?;
    stream.set_read_timeout(Some(PATIENCE)).context("setting up the socket")?;
    let text = serde_json::to_string(request).context("writing a request")?;
    write_all(&mut stream, text.as_bytes(), PATIENCE).context("asking the daemon")?;
    stream.shutdown(std::net::Shutdown::Write).context("asking the daemon")?;
    let mut text = String::new();
    stream.read_to_string(&mut text).map_err(|error| match error.kind() {
        ErrorKind::WouldBlock => {
            anyhow::anyhow!("the daemon did not answer within {} s; try again", PATIENCE.as_secs())
        }
        _ => anyhow::anyhow!("reading from {}: {error}", path.display()),
    })?;
    if text.is_empty() {
        bail!("the daemon at {} does not take samples for this user; ask as root", path.display());
    }
    serde_json::from_str(&text).context("the daemon answers in the words of another version of rota")
}
