//! `rota down`.

use std::path::PathBuf;

use super::{Failure, note};

/// End the scheduler: the daemon if one runs, and what a daemon has left behind. The kernel schedules every task then
///
/// A service manager that restarts the daemon is to be asked instead, as in `systemctl stop rota`.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Where the daemon answers
    #[arg(long, value_name = "PATH", default_value = rotad::server::SOCKET)]
    socket: PathBuf,
}

pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let was = rotad::down(&arguments.socket)?;
    note(match (was.daemon, was.scheduler) {
        (true, _) => "the daemon has ended, and the scheduler with it",
        (false, true) => "no daemon ran; the scheduler that one had left behind has ended",
        (false, false) => "nothing to end: no daemon answers, and no scheduler was left behind",
    });
    Ok(())
}
