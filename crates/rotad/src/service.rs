//! What systemd is told, if it has started the daemon: that it is ready, how it goes, and that its loop still turns.

use std::time::{Duration, Instant};

use sd_notify::NotifyState;

/// Tells no more often that the loop turns.
const ALIVE: Duration = Duration::from_secs(1);

/// The service manager, or nobody.
#[derive(Debug, Default)]
pub struct Service {
    told_alive: Option<Instant>,
}

impl Service {
    /// The first table is in force.
    pub fn ready(&self) {
        tell(&[NotifyState::Ready]);
    }

    /// How it goes, for `systemctl status`.
    pub fn status(&self, line: &str) {
        tell(&[NotifyState::Status(line)]);
    }

    /// The loop turns.
    pub fn alive(&mut self) {
        if self.told_alive.is_none_or(|told| told.elapsed() >= ALIVE) {
            self.told_alive = Some(Instant::now());
            tell(&[NotifyState::Watchdog]);
        }
    }

    /// The end has been asked for.
    pub fn stopping(&self) {
        tell(&[NotifyState::Stopping]);
    }
}

fn tell(states: &[NotifyState<'_>]) {
    // Nobody to tell, or nobody who listens: the daemon does not depend on it.
    let _ = sd_notify::notify(states);
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixDatagram;
    use std::process::Command;

    use super::*;

    /// The environment is the process's, so another one is told of.
    #[test]
    fn systemd_hears_that_the_daemon_is_ready_and_alive() {
        if std::env::var_os("NOTIFY_SOCKET").is_some_and(|path| path.to_string_lossy().contains("rota-test"))
        {
            let mut service = Service::default();
            service.ready();
            service.status("2 tenants");
            (0..3).for_each(|_| service.alive());
            service.stopping();
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rota-test");
        let systemd = UnixDatagram::bind(&path).unwrap();
        let test = "service::tests::systemd_hears_that_the_daemon_is_ready_and_alive";
        let mut child = Command::new(std::env::current_exe().unwrap());
        let done = child.args(["--exact", test]).env("NOTIFY_SOCKET", &path).output().unwrap();
        assert!(done.status.success(), "{done:?}");
        systemd.set_nonblocking(true).unwrap();
        let mut heard = Vec::new();
        let mut bytes = [0; 256];
        while let Ok(length) = systemd.recv(&mut bytes) {
            heard.push(String::from_utf8_lossy(&bytes[..length]).trim().to_owned());
        }
        assert_eq!(heard, ["READY=1", "STATUS=2 tenants", "WATCHDOG=1", "STOPPING=1"]);
    }
}
