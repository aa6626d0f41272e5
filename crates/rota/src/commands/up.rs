//! `rota up`.

use std::net::SocketAddr;
use std::path::PathBuf;

use super::{Config, Failure};

/// Run the scheduler: tenants get what the configuration promises them, until Ctrl-C
///
/// Tenants may come and go, and the configuration may be edited meanwhile. One log line an event on standard error; a
/// line with the word ready when the first table is in force.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    config: Config,
    /// Where `rota status` asks
    #[arg(long, value_name = "PATH", default_value = rotad::server::SOCKET)]
    socket: PathBuf,
    /// Serve what `rota status` shows for Prometheus, at http://ADDRESS:PORT/metrics
    #[arg(long, value_name = "ADDRESS:PORT")]
    metrics: Option<SocketAddr>,
}

pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let options = rotad::Options {
        config: arguments.config.config.clone(),
        socket: arguments.socket.clone(),
        metrics: arguments.metrics,
    };
    rotad::run(&options).map_err(|failure| match failure {
        rotad::Failure::Usage(error) => Failure::Usage(error),
        rotad::Failure::Failed(error) => Failure::Failed(error),
    })
}
