//! `rota doctor`.

use std::path::Path;

use anyhow::anyhow;
use serde::Serialize;

use super::{Config, Failure, VmUsers, print, print_json};
use crate::doctor::{Finding, Level, examine};

/// Look at this machine and the configuration: what keeps Rota from running, which tenants are not found, and the mend
///
/// Nothing is changed or started. Exits with 1 if something keeps Rota from running, or a tenant is not found.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    config: Config,
    #[command(flatten)]
    vms: VmUsers,
    /// Answer in JSON
    #[arg(long)]
    json: bool,
}

/// The answer for programs.
#[derive(Debug, Serialize)]
struct Answer<'a> {
    problems: usize,
    warnings: usize,
    findings: &'a [Finding],
}

pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let findings = examine(Path::new("/"), &arguments.config.config, arguments.vms.vm_users.clone());
    let count = |level| findings.iter().filter(|finding| finding.level == level).count();
    let (problems, warnings) = (count(Level::Problem), count(Level::Warning));
    match arguments.json {
        true => print_json(&Answer { problems, warnings, findings: &findings })?,
        false => print(text(&findings).as_bytes())?,
    }
    match problems {
        0 => Ok(()),
        1 => Err(Failure::Failed(anyhow!("1 problem"))),
        _ => Err(Failure::Failed(anyhow!("{problems} problems"))),
    }
}

/// One finding a line, its mend below it.
fn text(findings: &[Finding]) -> String {
    let width = findings.iter().map(|finding| finding.about.len()).max().unwrap_or(0);
    let mut text = String::new();
    for Finding { about, level, found, mend } in findings {
        let mut lines = found.lines();
        let first = lines.next().unwrap_or_default();
        text += &format!("{:<7}  {about:<width$}  {first}\n", level.name());
        let mend = mend.as_ref().map(|mend| format!("-> {mend}"));
        for line in lines.map(str::to_owned).chain(mend) {
            text += &format!("{:<7}  {:<width$}  {line}\n", "", "");
        }
    }
    text
}
