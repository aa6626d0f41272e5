//! `rota fit`.

use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use rota_model::config::Source;

use super::status::columns;
use super::{Failure, print, print_json};
use crate::fleet::{Answer, ask, rank};
use crate::parallel;

/// Say which hosts of a fleet could take a tenant, and what that would move there
///
/// Each host is asked as its daemon would be. The best come first: those that move least, then those with most room.
/// Exits with 3 if no host has room.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The hosts' configurations, each with its tenants and with host.cpus
    #[arg(value_name = "FILE", required = true)]
    hosts: Vec<PathBuf>,
    /// A file with the tenant, or with several that belong on one host
    #[arg(short, long, value_name = "FILE")]
    tenant: PathBuf,
    /// Answer in JSON
    #[arg(long)]
    json: bool,
}

pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let newcomers = read(&arguments.tenant)?;
    let hosts = arguments.hosts.iter().map(|path| read(path)).collect::<Result<Vec<_>, _>>()?;
    let answers = parallel::map(&hosts, |host| ask(host, &newcomers));
    let mut answers =
        answers.into_iter().collect::<Result<Vec<_>, _>>().map_err(|errors| Failure::Usage(errors.into()))?;
    // What is wrong with the newcomers on every host is wrong with their file.
    if let [first, ..] = &answers[..]
        && let Some(reason) = first.reason.as_ref().filter(|reason| reason.starts_with(&newcomers.path))
        && answers.iter().all(|answer| answer.reason.as_ref() == Some(reason))
    {
        return Err(Failure::Usage(anyhow!("{reason}")));
    }
    rank(&mut answers);
    match arguments.json {
        true => print_json(&answers)?,
        false => print(text(&answers).as_bytes())?,
    }
    match answers.iter().any(|answer| answer.fits) {
        true => Ok(()),
        false => Err(Failure::Infeasible(anyhow!("none of {} hosts has room", answers.len()))),
    }
}

fn read(path: &Path) -> Result<Source, Failure> {
    let name = path.display().to_string();
    let text =
        std::fs::read_to_string(path).with_context(|| format!("reading {name}")).map_err(Failure::Usage)?;
    Ok(Source { path: name, text })
}

fn text(answers: &[Answer]) -> String {
    let row = |answer: &Answer| {
        let dash = || "-".to_owned();
        let (fits, moved) =
            if answer.fits { ("yes", answer.moved.len().to_string()) } else { ("no", dash()) };
        let changed = match answer.changed_cpus.as_deref() {
            Some("") => "none".to_owned(),
            Some(cpus) => cpus.to_owned(),
            None => dash(),
        };
        [answer.host.clone(), fits.to_owned(), changed, moved, format!("{:.3}", answer.free_cpus)]
    };
    let rows: Vec<_> = answers.iter().map(row).collect();
    let mut text = columns(["HOST", "FITS", "CHANGED CPUS", "MOVED", "FREE CPUS"], 3, &rows);
    for answer in answers {
        text.extend(answer.reason.as_ref().map(|reason| format!("{}: {reason}\n", answer.host)));
    }
    text
}
