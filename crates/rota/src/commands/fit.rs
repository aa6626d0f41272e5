//! `rota fit`.

mod serve;

use std::fs::DirEntry;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use rota_model::config::Source;

use super::status::columns;
use super::{Failure, print, print_json};
use crate::parallel;
use rota_rules::fleet::{Answer, Host, Newcomers, rank};

/// Say which hosts of a fleet could take a tenant, and what that would move there
///
/// Each host is asked as its daemon would be. The best come first: those that move least, then those with most room.
/// Exits with 3 if no host has room.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The hosts' configurations, each with its tenants and with host.cpus; of a folder all that end with .toml
    #[arg(value_name = "FILE|FOLDER", required = true)]
    hosts: Vec<PathBuf>,
    /// A file with the tenant, or with several that belong on one host
    #[arg(short, long, value_name = "FILE", required_unless_present = "serve")]
    tenant: Option<PathBuf>,
    /// Answer in JSON
    #[arg(long)]
    json: bool,
    /// Answer Kubernetes' scheduler as its extender, at http://ADDRESS:PORT/filter and /prioritize: node NAME is the
    /// host in NAME.toml, and the tenant is in the pod's annotations
    #[arg(long, value_name = "ADDRESS:PORT", conflicts_with_all = ["tenant", "json"])]
    serve: Option<SocketAddr>,
}

pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    if let Some(address) = arguments.serve {
        return serve::serve(address, arguments.hosts.clone());
    }
    let newcomers = read(arguments.tenant.as_deref().expect("clap requires it"))?;
    let hosts = files(&arguments.hosts)?.iter().map(|path| read(path)).collect::<Result<Vec<_>, _>>()?;
    let asked = Newcomers::new(newcomers.clone());
    let answers = parallel::map(&hosts, |host| Host::new(host.clone()).map(|host| host.ask(&asked)));
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

/// The files, and those in folders, by name.
fn files(given: &[PathBuf]) -> Result<Vec<PathBuf>, Failure> {
    let mut files = Vec::new();
    for path in given {
        if !path.is_dir() {
            files.push(path.clone());
            continue;
        }
        let entries = std::fs::read_dir(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
        let entries =
            entries.with_context(|| format!("reading {}", path.display())).map_err(Failure::Usage)?;
        let named = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "toml");
        let mut inside: Vec<PathBuf> = entries.iter().map(DirEntry::path).filter(named).collect();
        inside.sort();
        files.extend(inside);
    }
    Ok(files)
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
