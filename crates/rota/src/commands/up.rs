//! `rota up`.

mod dry_run;

use std::path::PathBuf;
use std::time::Duration;

use nix::unistd::Group;
use rota_model::config::duration_ns;
use rotad::metrics::Address;

use super::{Config, Failure, VmUsers};

/// Run the scheduler: tenants get what the configuration promises them, until Ctrl-C
///
/// Tenants may come and go, and the configuration may be edited meanwhile; SIGHUP has it read at once. When the daemon
/// is killed, or ended by SIGUSR1, the scheduler goes on for the grace time, and the next daemon takes it over. One log
/// line an
/// event on standard error; a line with the word ready when the first table is in force.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    config: Config,
    /// Where `rota status` asks
    #[arg(long, value_name = "PATH", default_value = rotad::server::SOCKET)]
    socket: PathBuf,
    /// The group, by name or number, that may ask for status and metrics at Unix sockets; without, root alone
    #[arg(long, value_name = "GROUP", value_parser = group)]
    group: Option<u32>,
    /// Serve what `rota status` shows for Prometheus, at http://ADDRESS:PORT/metrics or at a Unix socket
    #[arg(long, value_name = "ADDRESS:PORT|PATH")]
    metrics: Option<Address>,
    #[command(flatten)]
    vms: VmUsers,
    /// How long promises are kept after the daemon was killed, for the next daemon to take over; 2s to 600s, or 0s: the
    /// scheduler ends with the daemon
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = grace)]
    grace: Duration,
    /// Only say who would be matched, planned and refused. Exits with 3 if one has no room, with 1 if one is not found
    #[arg(long, conflicts_with_all = ["socket", "group", "metrics", "grace"])]
    dry_run: bool,
}

/// The number of a group.
fn group(text: &str) -> Result<u32, String> {
    let named = || Some(Group::from_name(text).ok()??.gid.as_raw());
    let found = text.parse().ok().or_else(named);
    found.ok_or_else(|| "is no group of this machine; make it: groupadd --system GROUP".to_owned())
}

/// How long the scheduler goes on without a daemon.
fn grace(text: &str) -> Result<Duration, String> {
    let grace = Duration::from_nanos(duration_ns(text).map_err(|error| error.to_string())?);
    match grace.as_secs() {
        0 if grace.is_zero() => Ok(grace),
        2..=600 => Ok(grace),
        _ => Err("is not between 2s and 600s, nor 0s".to_owned()),
    }
}

pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    if arguments.dry_run {
        return dry_run::run(&arguments.config.config, arguments.vms.vm_users.clone());
    }
    let options = rotad::Options {
        config: arguments.config.config.clone(),
        socket: arguments.socket.clone(),
        group: arguments.group,
        metrics: arguments.metrics.clone(),
        vm_users: arguments.vms.vm_users.clone(),
        grace: arguments.grace,
    };
    rotad::run(&options).map_err(failure)
}

fn failure(failure: rotad::Failure) -> Failure {
    match failure {
        rotad::Failure::Usage(error) => Failure::Usage(error),
        rotad::Failure::Failed(error) => Failure::Failed(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_named_or_numbered_and_a_grace_time_has_bounds() {
        assert_eq!((group("root"), group("77")), (Ok(0), Ok(77)));
        assert_eq!(grace("0s"), Ok(Duration::ZERO));
        assert_eq!(grace("10s"), Ok(Duration::from_secs(10)));
        assert!(grace("1s").unwrap_err().contains("between 2s"));
        assert!(group("no such group").unwrap_err().contains("groupadd"));
    }
}
