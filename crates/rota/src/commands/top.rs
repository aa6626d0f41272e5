//! `rota top`.

use std::io::IsTerminal;
use std::path::PathBuf;

use anyhow::anyhow;
use rotad::server::SOCKET;

use super::Failure;

/// Watch tenants on a terminal: promised and received, waits and bounds, what was lost to whom, and the last minutes
///
/// Press ? for its keys. There are no colours if NO_COLOR is set.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Where `rota up` listens
    #[arg(long, value_name = "PATH", default_value = SOCKET)]
    socket: PathBuf,
}

pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    if !std::io::stdout().is_terminal() || !std::io::stdin().is_terminal() {
        return Err(Failure::Usage(anyhow!("rota top needs a terminal; `rota status` prints the same once")));
    }
    Ok(crate::top::run(&arguments.socket)?)
}
