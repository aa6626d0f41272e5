//! One module a command: its arguments, and what it does.

pub mod advise;
pub mod check;
pub mod doctor;
pub mod down;
pub mod farm;
mod files;
pub mod fit;
pub mod guest;
pub mod lab;
pub mod load;
pub mod pages;
pub mod plan;
mod predict;
pub mod profile;
pub mod record;
pub mod sim;
pub mod status;
pub mod top;
pub mod up;

use std::io::{ErrorKind, Write};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Error};
use clap::Args;
use nix::unistd::User;
use rota_host::topology;
use rota_model::config::{duration_ns, parse_for};
use rota_model::{Model, printable};
use rotad::sources;

/// Why a command did not do what it was asked for.
#[derive(Debug)]
pub enum Failure {
    /// Exit code 1: it was tried.
    Failed(Error),
    /// Exit code 2: the arguments or the configuration are wrong.
    Usage(Error),
    /// Exit code 3: the promises cannot all be kept.
    Infeasible(Error),
}

impl Failure {
    /// What went wrong.
    fn into_error(self) -> Error {
        let (Failure::Failed(error) | Failure::Usage(error) | Failure::Infeasible(error)) = self;
        error
    }

    /// Says it on standard error, each line with the program's name.
    pub fn print(&self) {
        let (Failure::Failed(error) | Failure::Usage(error) | Failure::Infeasible(error)) = self;
        for line in format!("{error:#}").lines() {
            note(&format!("rota: {line}"));
        }
    }

    /// What the program exits with.
    pub fn code(&self) -> ExitCode {
        ExitCode::from(match self {
            Failure::Failed(_) => 1,
            Failure::Usage(_) => 2,
            Failure::Infeasible(_) => 3,
        })
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::Failed(error)
    }
}

/// How long something goes on, as an argument.
fn length(text: &str) -> Result<Duration, String> {
    match duration_ns(text).map_err(|error| error.to_string())? {
        0 => Err("is no time; write more, e.g. 10s".to_owned()),
        ns => Ok(Duration::from_nanos(ns)),
    }
}

/// Which configuration.
#[derive(Debug, Args)]
pub struct Config {
    /// The host's configuration; tenants may also be in `tenants.d/*.toml` beside it
    #[arg(short, long = "config", value_name = "FILE", default_value = "/etc/rota/rota.toml")]
    config: PathBuf,
}

impl Config {
    /// Reads it for planning: for the machine it describes, which may be another one than this.
    fn model(&self) -> Result<Model, Failure> {
        let sources = sources::read(&self.config).map_err(Failure::Usage)?;
        // What this machine is like is a default; a description of another machine needs none.
        let machine = topology::machine(Path::new(topology::SYSFS)).unwrap_or_default();
        parse_for(&sources, &machine).map_err(|errors| Failure::Usage(errors.into()))
    }
}

/// Whose processes may be VMs.
#[derive(Debug, Args)]
pub struct VmUsers {
    /// Users whose processes may be VMs, as a jailer's: names, numbers or ranges of them, as fc,3000-3999. Root's and
    /// libvirt's are known
    #[arg(long, value_name = "USERS", value_delimiter = ',', value_parser = users)]
    vm_users: Vec<RangeInclusive<u32>>,
}

/// The numbers of a user, or of a range of them.
fn users(text: &str) -> Result<RangeInclusive<u32>, String> {
    if let Ok(number) = text.parse() {
        return Ok(number..=number);
    }
    let range = text.split_once('-').and_then(|(first, last)| Some(first.parse().ok()?..=last.parse().ok()?));
    if let Some(range) = range {
        return if range.is_empty() {
            Err("is an empty range; write e.g. 3000-3999".to_owned())
        } else {
            Ok(range)
        };
    }
    let named = User::from_name(text).ok().flatten().map(|user| user.uid.as_raw());
    named
        .map(|user| user..=user)
        .ok_or_else(|| "is no user of this machine; write a number, or a name".to_owned())
}

/// Writes to standard output. A reader that has seen enough (`| head`) is no failure.
fn print(bytes: &[u8]) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(error).context("writing to standard output").map_err(Failure::Failed)
        }
        _ => Ok(()),
    }
}

/// Prints lines for people. What a user may have named is no command to a terminal.
fn print_text(text: &str) -> Result<(), Failure> {
    let lines: Vec<String> = text.split('\n').map(printable).collect();
    print(lines.join("\n").as_bytes())
}

/// Says something on standard error. Who listened there may have gone (`2>&1 | head`): the work goes on.
fn note(line: &str) {
    let _ = writeln!(std::io::stderr(), "{}", printable(line));
}

/// Prints a value as JSON for programs, on one line.
fn print_json(value: &impl serde::Serialize) -> Result<(), Failure> {
    let mut text = serde_json::to_string(value).context("writing JSON")?;
    text.push('\n');
    print(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_named_numbered_or_a_range() {
        assert_eq!(users("root"), Ok(0..=0));
        assert_eq!(users("3000-3999"), Ok(3_000..=3_999));
        assert!(users("3999-3000").unwrap_err().contains("empty range"));
        assert!(users("no such user").unwrap_err().contains("no user"));
    }
}
