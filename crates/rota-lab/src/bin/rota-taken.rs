//! Takes CPUs away between their slots: `rota-taken timetable --start-ns S --end-ns E` prints how often.

use std::path::PathBuf;

use anyhow::Context;
use clap::Parser;
use rota_lab::guest::clock::Window;
use rota_lab::guest::taken;

/// Take CPUs away by real-time threads whenever a timetable has no slots for them, and print how often, as root
#[derive(Parser)]
#[command(version)]
struct Arguments {
    /// The timetable, with `clock own`
    file: PathBuf,
    #[command(flatten)]
    window: Window,
}

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let text = std::fs::read_to_string(&arguments.file)
        .with_context(|| format!("reading {}", arguments.file.display()))?;
    println!("{}", taken::run(&text.parse()?, arguments.window)?);
    Ok(())
}
