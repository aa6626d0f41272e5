//! The programs of a scenario.

use anyhow::{Result, ensure};
use serde::{Deserialize, Serialize};

/// What a server speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// Redis: each request counts one up.
    Redis,
    /// HTTP/1.1: each request gets `/`.
    Http,
    /// memcached's text protocol: each request gets a key that is not there.
    Memcached,
}

impl Protocol {
    /// As the scenario and the client's command line write it.
    pub fn name(self) -> &'static str {
        match self {
            Protocol::Redis => "redis",
            Protocol::Http => "http",
            Protocol::Memcached => "memcached",
        }
    }
}

/// What a parallel program's threads do between two pieces of computing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Shape {
    /// All wait for each other at a pthread barrier.
    Barrier,
    /// The first computes a tenth of a piece alone while the others wait, then all a piece each: parallel loops, as
    /// OpenMP runs them if its threads wait passively.
    Loops,
    /// Each is a stage that takes from the one before and gives to the one after; four pieces fit between two.
    Pipeline,
    /// Nothing: they never wait.
    Hog,
}

impl Shape {
    /// As the scenario and the program's command line write it.
    pub fn name(self) -> &'static str {
        match self {
            Shape::Barrier => "barrier",
            Shape::Loops => "loops",
            Shape::Pipeline => "pipeline",
            Shape::Hog => "hog",
        }
    }
}

/// One program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
pub enum Program {
    /// Runs in the tenant from the start to the end.
    Load {
        /// The tenant's name.
        tenant: String,
        /// The program and its arguments.
        command: Vec<String>,
    },
    /// The same, and is waited for until it accepts connections on a TCP port.
    Server {
        /// The tenant's name.
        tenant: String,
        /// The program and its arguments.
        command: Vec<String>,
        /// Where it listens, on every or on the loopback address.
        port: u16,
    },
    /// This crate's intrinsic-latency probe, in the tenant.
    Probe {
        /// The tenant's name.
        tenant: String,
    },
    /// This crate's parallel program, in the tenant.
    Parallel {
        /// The tenant's name.
        tenant: String,
        /// What its threads do.
        shape: Shape,
        /// How many there are.
        threads: u32,
        /// A piece, in instructions, one a ns; each is drawn from four to six fifths of it.
        #[serde(with = "super::duration")]
        compute: u64,
    },
    /// This crate's open-loop client, outside of all tenants, at real-time priority.
    Client {
        /// The tenant whose server it asks.
        tenant: String,
        /// What the server speaks.
        protocol: Protocol,
        /// Where the server listens.
        port: u16,
        /// Requests a second.
        rate_hz: u32,
        /// On so many connections in turn: a server with several workers gives each its own.
        #[serde(default = "one")]
        connections: u32,
    },
}

fn one() -> u32 {
    1
}

impl Program {
    /// The tenant that it runs in, or asks.
    pub fn tenant(&self) -> &str {
        match self {
            Program::Load { tenant, .. }
            | Program::Server { tenant, .. }
            | Program::Probe { tenant }
            | Program::Parallel { tenant, .. }
            | Program::Client { tenant, .. } => tenant,
        }
    }

    /// As the scenario writes it.
    pub fn kind(&self) -> &'static str {
        match self {
            Program::Load { .. } => "load",
            Program::Server { .. } => "server",
            Program::Probe { .. } => "probe",
            Program::Parallel { .. } => "parallel",
            Program::Client { .. } => "client",
        }
    }

    /// The command, if it is none of this crate's own programs.
    pub fn command(&self) -> Option<&[String]> {
        match self {
            Program::Load { command, .. } | Program::Server { command, .. } => Some(command),
            Program::Probe { .. } | Program::Parallel { .. } | Program::Client { .. } => None,
        }
    }

    /// Whether it has results of its own, and so ends by itself with the window.
    pub fn reports(&self) -> bool {
        self.command().is_none()
    }

    /// Checks what can be without starting it.
    pub(super) fn check(&self) -> Result<()> {
        if let Some(command) = self.command() {
            ensure!(!command.is_empty(), "its command is empty; name a program");
        }
        if let Program::Client { rate_hz, connections, .. } = self {
            ensure!((1..=100_000).contains(rate_hz), "its rate_hz = {rate_hz} is not between 1 and 100000");
            let fits = (1..=1000).contains(connections);
            ensure!(fits, "its connections = {connections} are not between 1 and 1000");
        }
        if let Program::Parallel { threads, compute, .. } = self {
            ensure!((1..=1000).contains(threads), "its threads = {threads} are not between 1 and 1000");
            let whole = (10_000..=1_000_000_000).contains(compute);
            ensure!(whole, "its compute of {compute} ns is not between 10 us and 1 s");
        }
        Ok(())
    }
}
