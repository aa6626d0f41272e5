//! `match`: how a tenant is found on the host.

use toml::de::DeValue;

use super::error::Errors;
use super::table::Table;
use super::tenant::{INDEX, matches_count};
use super::value;
use crate::{Match, quote};

const KEYS: [&str; 4] = ["cgroup", "vm", "unit", "container"];

/// The monitors whose VMs Rota knows how to find.
const VMMS: [&str; 3] = ["qemu", "firecracker", "cloud-hypervisor"];

/// The types of systemd units that processes run in.
const UNIT_TYPES: [&str; 6] = ["service", "scope", "slice", "socket", "mount", "swap"];

/// A path's limit in Linux.
const PATH_MAX: usize = 4095;

/// Reads the `match` of a tenant; none if it is absent or wrong.
pub(super) fn read(tenant: &Table, indexed: bool, errors: &mut Errors) -> Option<Match> {
    let table = tenant.table("match", "e.g. { cgroup = \"machine.slice/web\" }", errors)?;
    table.refuse_unknown(&KEYS, errors);
    let found: Vec<&str> = KEYS.into_iter().filter(|key| table.has(key)).collect();
    match found[..] {
        [key] => table.read(key, errors, |value| one(key, value, indexed)),
        [] if table.is_empty() => {
            errors.push(tenant.error("match", format!("says nothing; write one of {}", KEYS.join(", "))));
            None
        }
        [] => None, // its unknown keys are reported
        _ => {
            errors.push(tenant.error("match", format!("has {}; keep one", found.join(" and "))));
            None
        }
    }
}

/// The match with every text replaced.
pub(super) fn fill(matcher: &Match, fill: impl Fn(&str) -> String) -> Match {
    match matcher {
        Match::Cgroup(path) => Match::Cgroup(fill(path)),
        Match::Vm { vmm, name } => Match::Vm { vmm: vmm.clone(), name: fill(name) },
        Match::Unit(unit) => Match::Unit(fill(unit)),
        Match::Container(id) => Match::Container(fill(id)),
    }
}

fn one(key: &str, value: &DeValue, indexed: bool) -> Result<Match, String> {
    let text = value::text(value, "one in quotes")?;
    matches_count(text, indexed)?;
    if text.len() > PATH_MAX || text.chars().any(char::is_control) {
        return Err(format!("{} is too long or has control characters; write a plain name", quote(text)));
    }
    match key {
        "cgroup" => cgroup(text),
        "vm" => vm(text),
        "unit" => unit(text),
        _ => container(text),
    }
}

fn cgroup(path: &str) -> Result<Match, String> {
    if path.split('/').any(|part| ["", ".", ".."].contains(&part)) {
        return Err(format!(
            "{} is no path below the root of cgroups; write e.g. \"machine.slice/web\", without / at its ends",
            quote(path)
        ));
    }
    Ok(Match::Cgroup(path.to_owned()))
}

fn vm(text: &str) -> Result<Match, String> {
    let fail = |wrong: &str| Err(format!("{} {wrong}; write e.g. \"qemu:web\"", quote(text)));
    match text.split_once(':') {
        None => fail("has no monitor"),
        Some((vmm, _)) if !VMMS.contains(&vmm) => {
            Err(format!("{} is no known monitor; write one of {}", quote(vmm), VMMS.join(", ")))
        }
        Some((_, "")) => fail("has no name"),
        Some((vmm, name)) => Ok(Match::Vm { vmm: vmm.to_owned(), name: name.to_owned() }),
    }
}

fn unit(text: &str) -> Result<Match, String> {
    match text.rsplit_once('.') {
        Some((name, kind)) if !name.is_empty() && !text.contains('/') && UNIT_TYPES.contains(&kind) => {
            Ok(Match::Unit(text.to_owned()))
        }
        _ => Err(format!("{} is no unit that runs processes; write e.g. \"redis.service\"", quote(text))),
    }
}

/// Ids are hexadecimal with Docker and Podman; containerd's callers choose them, within these characters.
fn container(id: &str) -> Result<Match, String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    let shortest = id.replace(INDEX, "0");
    if shortest.len() < 12 || !shortest.chars().all(plain) {
        return Err(format!("{} is no container id; write at least 12 characters of it", quote(id)));
    }
    Ok(Match::Container(id.to_owned()))
}
