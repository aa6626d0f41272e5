//! `rota record`.

use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use rota_host::topology;
use rota_model::Model;
use rota_model::config::parse_for;
use rota_record::recorder::{self, Recorder};
use rotad::sources;

use super::files::Output;
use super::{Failure, length, note, print_text};

/// Record what the threads of this host do, for `rota sim --replay`
///
/// Who ran when, who blocked, and who woke whom, whatever scheduler is at work: the kernel's own, Rota, or another one.
/// Needs root, and a kernel that describes its types (BTF). Ctrl-C ends it early; what was recorded so far is written.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// For how long
    #[arg(long = "for", value_name = "DURATION", default_value = "10s", value_parser = length)]
    length: Duration,
    /// Where to
    #[arg(short, long, value_name = "FILE", default_value = "rota.recording")]
    out: PathBuf,
    /// The host's configuration, whose tenants are recorded with what they are promised; without, each cgroup with
    /// threads is a tenant with its own cpu.weight
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
}

/// How often is looked for events.
const LOOK: Duration = Duration::from_millis(20);
/// How often is said how it goes on.
const SAY: Duration = Duration::from_secs(1);

pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let model = model(arguments)?;
    let mut ends = SigSet::empty();
    ends.add(Signal::SIGINT);
    ends.add(Signal::SIGTERM);
    ends.thread_block().context("blocking signals")?;
    let signals = SignalFd::with_flags(&ends, SfdFlags::SFD_NONBLOCK).context("waiting for signals")?;
    let path = arguments.out.display();
    let out = Output::open(&arguments.out).map_err(Failure::Usage)?;
    let mut recorder = Recorder::start(&model, arguments.config.is_some())?;
    let began = Instant::now();
    let mut said = began;
    while began.elapsed() < arguments.length && matches!(signals.read_signal(), Ok(None)) {
        thread::sleep(LOOK.min(arguments.length.saturating_sub(began.elapsed())));
        recorder.read()?;
        if said.elapsed() >= SAY {
            said = Instant::now();
            say(&recorder, began.elapsed())?;
        }
    }
    let recording = recorder.finish()?;
    if std::io::stderr().is_terminal() {
        note("");
    }
    let bytes = recording.to_bytes().context("writing the recording")?;
    out.write(&bytes)?;
    let lost = match recording.lost {
        0 => "nothing lost".to_owned(),
        lost => format!("{lost} events lost, since they came faster than they were read"),
    };
    let line = format!(
        "{path}: {} events of {} threads, {} tenants, {} bytes; {lost}\n",
        recording.events.len(),
        recording.threads.len(),
        recording.tenants.len(),
        bytes.len()
    );
    print_text(&line)
}

/// How it goes on: a line that changes on a terminal, a line each second elsewhere.
fn say(recorder: &Recorder, elapsed: Duration) -> anyhow::Result<()> {
    let (begin, end) = if std::io::stderr().is_terminal() { ("\r", "") } else { ("", "\n") };
    let (events, lost) = (recorder.events(), recorder.lost()?);
    // Who listened may have gone.
    let _ = write!(std::io::stderr(), "{begin}{} s: {events} events, {lost} lost{end}", elapsed.as_secs());
    Ok(())
}

/// The host with the tenants that it shall have.
fn model(arguments: &Arguments) -> Result<Model, Failure> {
    let Some(config) = &arguments.config else {
        if recorder::is_rota_in_force() {
            return Err(Failure::Usage(anyhow!(
                "Rota schedules this host: name its configuration, e.g. --config /etc/rota/rota.toml"
            )));
        }
        return Ok(recorder::unconfigured()?);
    };
    let sources = sources::read(config).map_err(Failure::Usage)?;
    let machine = topology::machine(Path::new(topology::SYSFS))?;
    parse_for(&sources, &machine).map_err(|errors| Failure::Usage(errors.into()))
}
