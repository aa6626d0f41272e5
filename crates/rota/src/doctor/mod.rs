//! What on a machine is in the way of Rota or of its tenants: findings, each with its mend.
//!
//! `kernel` looks at what the scheduler needs, `machine` at what else has CPUs, and `tenants` at what the configuration
//! finds. The last asks the daemon's own discovery and rules ([`rotad::preview`]).

mod kernel;
mod machine;
mod tenants;
#[cfg(test)]
mod tests;

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use rotad::{Failure, Machine, preview};
use serde::Serialize;

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// As it should be.
    Ok,
    /// Rota runs, but something is worse than it could be.
    Warning,
    /// Rota does not run, or a tenant is not found.
    Problem,
}

impl Level {
    /// The word for people.
    pub fn name(self) -> &'static str {
        match self {
            Level::Ok => "ok",
            Level::Warning => "warning",
            Level::Problem => "problem",
        }
    }
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What was looked at; of a tenant, its name.
    pub about: String,
    /// How bad it is.
    pub level: Level,
    /// What was found.
    pub found: String,
    /// What to do; nothing if all is well.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mend: Option<String>,
}

impl Finding {
    fn ok(about: &str, found: impl Into<String>) -> Finding {
        Finding { about: about.to_owned(), level: Level::Ok, found: found.into(), mend: None }
    }

    fn warning(about: &str, found: impl Into<String>, mend: impl Into<String>) -> Finding {
        let (found, mend) = (found.into(), Some(mend.into()));
        Finding { about: about.to_owned(), level: Level::Warning, found, mend }
    }

    fn problem(about: &str, found: impl Into<String>, mend: impl Into<String>) -> Finding {
        Finding { level: Level::Problem, ..Finding::warning(about, found, mend) }
    }
}

/// The files of a machine, below a folder that is `/` but in tests.
struct Root<'a>(&'a Path);

impl Root<'_> {
    fn path(&self, path: &str) -> PathBuf {
        self.0.join(path)
    }

    fn exists(&self, path: &str) -> bool {
        self.path(path).exists()
    }

    /// What a small file says, without the newline at its end.
    fn read(&self, path: &str) -> Option<String> {
        std::fs::read_to_string(self.path(path)).ok().map(|text| text.trim_end().to_owned())
    }

    /// The number that a file says.
    fn number(&self, path: &str) -> Option<i64> {
        self.read(path)?.trim().parse().ok()
    }
}

/// Looks at the machine whose files lie below `root`, and at what this configuration finds there. Processes of
/// `vm_users` may be VMs, beside root's and libvirt's.
pub fn examine(root: &Path, config: &Path, vm_users: Vec<RangeInclusive<u32>>) -> Vec<Finding> {
    let files = Root(root);
    let mut findings = kernel::examine(&files);
    let machine = match Machine::under(root) {
        Ok(machine) => machine,
        Err(error) => {
            let mend = "boot with systemd.unified_cgroup_hierarchy=1, or mount it";
            findings.push(Finding::problem("cgroup v2", format!("{error:#}"), mend));
            return findings;
        }
    };
    findings.push(machine::cgroups(&files, &machine));
    let seen = preview(&machine, config, vm_users);
    let model = seen.as_ref().ok().map(|preview| &preview.model);
    findings.extend(machine::examine(&files, &machine, model));
    match seen {
        Ok(preview) => {
            findings.push(Finding::ok("configuration", format!("{} is right", config.display())));
            if let (Some(kubernetes), Some(told)) = (&preview.kubernetes, &preview.status.kubernetes) {
                findings.extend(machine::pods(kubernetes, told));
            }
            findings.extend(tenants::examine(&machine, &preview));
        }
        Err(Failure::Usage(error)) => {
            let mend = "write or correct it; examples/rota.toml shows every key";
            findings.push(Finding::problem("configuration", format!("{error:#}"), mend));
        }
        Err(Failure::Failed(error)) => {
            let mend = "see that this user may read it; `rota up` runs as root";
            findings.push(Finding::problem("cgroups", format!("{error:#}"), mend));
        }
    }
    findings
}
