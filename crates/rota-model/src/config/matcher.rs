//! `match`: how a tenant is found on the host.

use std::path::Path;

use toml::de::DeValue;

use super::error::Errors;
use super::table::Table;
use super::tenant::{INDEX, matches_count};
use super::value;
use crate::{Match, quote};

const KEYS: [&str; 5] = ["cgroup", "vm", "unit", "container", "pod"];

/// The monitors whose VMs Rota knows how to find.
const VMMS: [&str; 3] = ["qemu", "firecracker", "cloud-hypervisor"];

/// The types of systemd units that processes run in.
const UNIT_TYPES: [&str; 6] = ["service", "scope", "slice", "socket", "mount", "swap"];

/// A path's limit in Linux, and that of each name in it.
const PATH_MAX: usize = 4095;
const NAME_MAX: usize = 255;
/// So many levels of cgroups below the root may have tenants: the scheduler looks no deeper.
pub const CGROUP_LEVELS: usize = 31;

/// Where cgroups are mounted, as people copy it into a path: the longer first.
const MOUNT_POINTS: [&str; 2] = ["sys/fs/cgroup/unified", "sys/fs/cgroup"];

/// How the machines of libvirt's drivers are named, escapes undone.
const LIBVIRT: [&str; 3] = ["qemu-", "lxc-", "ch-"];

/// The longest id that Firecracker takes.
const FIRECRACKER_ID_MAX: usize = 64;

/// How much of a container's id is enough, and how much there is.
const ID_MIN: usize = 12;
const ID_MAX: usize = 64;

/// How many digits there are between the `-` of a pod's uid, and in that of a static pod.
const UID_GROUPS: [usize; 5] = [8, 4, 4, 4, 12];
const UID_DIGITS: usize = 32;

/// What to write for a pattern.
const WHOLE: &str = "write one whole name, or for several that are numbered {i} and a count";

/// Reads the `match` of a tenant; none if it is absent or wrong.
pub(super) fn read(tenant: &Table, indexed: bool, errors: &mut Errors) -> Option<Match> {
    let table = tenant.table("match", "e.g. { cgroup = \"machine.slice/web\" }", errors)?;
    table.refuse_unknown(&KEYS, errors);
    let found: Vec<&str> = KEYS.into_iter().filter(|key| table.has(key)).collect();
    match found[..] {
        [key] => table.read(key, errors, |value| one(&table, key, value, indexed)),
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
        Match::Pod(_) => matcher.clone(), // no two pods have uids that a number tells apart
    }
}

fn one(table: &Table, key: &str, value: &DeValue, indexed: bool) -> Result<Match, String> {
    let text = value::text(value, "one in quotes")?;
    if key == "pod" && indexed {
        return Err("is one pod, which no number tells from others; write a tenant for each, without count"
            .to_owned());
    }
    matches_count(text, indexed)?;
    if loses_escape(table.written(key)) {
        return Err(format!(
            "\\x and two digits are one character in double quotes, so this is {}; write it in single quotes",
            quote(text)
        ));
    }
    if text.len() > PATH_MAX || text.chars().any(char::is_control) {
        return Err(format!("{} is too long or has control characters; write a plain name", quote(text)));
    }
    if text.trim() != text {
        return Err(format!("{} begins or ends with a space; write {}", quote(text), quote(text.trim())));
    }
    match key {
        "cgroup" => cgroup(text),
        "vm" => vm(text),
        "unit" => unit(text),
        "container" => container(text),
        _ => pod(text),
    }
}

/// Whether a value as the file has it is in double quotes and has an escape of systemd's, as `\x2d`.
fn loses_escape(written: &str) -> bool {
    let mut characters = written.chars();
    let in_double_quotes = characters.next() == Some('"');
    // What follows a backslash is no backslash of its own.
    let mut escapes = std::iter::from_fn(|| characters.find(|c| *c == '\\').and_then(|_| characters.next()));
    in_double_quotes && escapes.any(|escaped| escaped == 'x')
}

fn cgroup(path: &str) -> Result<Match, String> {
    let shown = quote(path);
    let below = path.trim_matches('/');
    if let Some(mend) = MOUNT_POINTS.iter().find_map(|point| below.strip_prefix(point)?.strip_prefix('/')) {
        return Err(format!("{shown} begins with the mount point of cgroups; write {}", quote(mend)));
    }
    if path.split('/').any(|part| ["", ".", ".."].contains(&part)) {
        return Err(format!(
            "{shown} is no path below the root of cgroups; write e.g. \"machine.slice/web\", without / at its ends"
        ));
    }
    if path.contains(['*', '?', '[']) {
        return Err(format!("{shown} is a pattern, and a tenant is one cgroup; {WHOLE}"));
    }
    if let Some(part) = path.split('/').find(|part| part.len() > NAME_MAX) {
        return Err(format!(
            "{} is longer than a cgroup's name can be, {NAME_MAX} bytes; write that of an existing one",
            quote(part)
        ));
    }
    if path.split('/').count() > CGROUP_LEVELS {
        return Err(format!(
            "{shown} is below {CGROUP_LEVELS} others, too deep for a tenant; write one further up"
        ));
    }
    path.split('/').try_for_each(escaped_machine)?;
    Ok(Match::Cgroup(path.to_owned()))
}

/// Libvirt writes `\x2d` for each `-` of a machine's name into the name of its scope.
fn escaped_machine(unit: &str) -> Result<(), String> {
    let machine = unit.strip_prefix("machine-").and_then(|rest| rest.strip_suffix(".scope"));
    match machine.filter(|name| LIBVIRT.iter().any(|driver| name.starts_with(driver))) {
        Some(name) => Err(format!(
            "{} is not what libvirt names a scope; write 'machine-{}.scope' in single quotes, or match the vm",
            quote(unit),
            name.replace('-', "\\x2d")
        )),
        None => Ok(()),
    }
}

fn vm(text: &str) -> Result<Match, String> {
    let fail = |wrong: &str| Err(format!("{} {wrong}; write e.g. \"qemu:web\"", quote(text)));
    let (vmm, name) = match text.split_once(':') {
        None => return fail("has no monitor"),
        Some((vmm, _)) if !VMMS.contains(&vmm) => {
            return Err(format!("{} is no known monitor; write one of {}", quote(vmm), VMMS.join(", ")));
        }
        Some((_, "")) => return fail("has no name"),
        Some(parts) => parts,
    };
    if name.contains(['*', '?']) {
        return Err(format!("{} is a pattern, and a tenant is one VM; {WHOLE}", quote(text)));
    }
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '-';
    if vmm == "firecracker"
        && (name.len() > FIRECRACKER_ID_MAX || !name.replace(INDEX, "0").chars().all(plain))
    {
        return Err(format!(
            "{} is no id that Firecracker takes; write its --id, up to {FIRECRACKER_ID_MAX} letters, digits and -",
            quote(name)
        ));
    }
    if vmm == "cloud-hypervisor" && name.contains('/') {
        let named = Match::cloud_hypervisor_name(Path::new(name)).unwrap_or("web");
        return Err(format!(
            "{} is a path; write what tells it from others: {}",
            quote(name),
            quote(&format!("{vmm}:{named}"))
        ));
    }
    Ok(Match::Vm { vmm: vmm.to_owned(), name: name.to_owned() })
}

fn unit(text: &str) -> Result<Match, String> {
    let shown = quote(text);
    if text.contains(['*', '?', '[']) {
        return Err(format!("{shown} is a pattern, and a tenant is one unit; {WHOLE}"));
    }
    let (name, kind) = text.rsplit_once('.').unwrap_or((text, ""));
    if name.is_empty() || text.contains('/') || !UNIT_TYPES.contains(&kind) {
        return Err(format!("{shown} is no unit that runs processes; write e.g. \"redis.service\""));
    }
    if text == "-.slice" {
        return Err(format!("{shown} is the whole machine; write a slice below it, e.g. \"batch.slice\""));
    }
    if name.ends_with('@') {
        return Err(format!("{shown} is a template that never runs itself; write e.g. \"{name}1.{kind}\""));
    }
    let plain = |c: char| c.is_ascii_alphanumeric() || ":-_.\\@".contains(c);
    if let Some(bad) = text.replace(INDEX, "0").chars().find(|c| !plain(*c)) {
        return Err(format!(
            "{shown} has the character {bad:?}, which systemd escapes; write what `systemctl` shows, in single quotes"
        ));
    }
    if text.len() > NAME_MAX {
        return Err(format!(
            "{shown} is longer than a unit's name can be; write at most {NAME_MAX} characters"
        ));
    }
    escaped_machine(text)?;
    Ok(Match::Unit(text.to_owned()))
}

/// Ids are lower-case hexadecimal with Docker, Podman and Kubernetes. Another id is a part of a cgroup's path at most.
fn container(id: &str) -> Result<Match, String> {
    let shown = quote(id);
    let filled = id.replace(INDEX, "0");
    if filled.len() >= ID_MIN && filled.len() <= ID_MAX && filled.chars().all(is_id) {
        return Ok(Match::Container(id.to_owned()));
    }
    let lower = id.to_ascii_lowercase();
    let within = lower.strip_suffix(".scope").unwrap_or(&lower);
    let within = within.rsplit(|c: char| !is_id(c)).next().unwrap_or_default();
    Err(match within.len() {
        ID_MIN..=ID_MAX => {
            format!("{shown} is not how a container's cgroup has its id; write {}", quote(within))
        }
        _ if filled.chars().all(is_id) => {
            format!("{shown} is no container id; write at least {ID_MIN} of its {ID_MAX} characters")
        }
        _ => format!(
            "{shown} is no container id, which has the characters 0-9 and a-f only; write the id that belongs to this \
             name, or match its cgroup"
        ),
    })
}

/// A uid is as the API server writes it, or for a static pod the kubelet's hash of its file.
fn pod(uid: &str) -> Result<Match, String> {
    if is_uid(uid) {
        return Ok(Match::Pod(uid.to_owned()));
    }
    let shown = quote(uid);
    let meant = uid.to_ascii_lowercase().replace('_', "-");
    let meant = meant.strip_suffix(".slice").unwrap_or(&meant);
    let meant = meant.rsplit_once("pod").map_or(meant, |(_, uid)| uid);
    match is_uid(meant) {
        true => Err(format!("{shown} is not how Kubernetes writes a uid; write {}", quote(meant))),
        false => Err(format!(
            "{shown} is no uid of a pod; write the one that `kubectl get pod NAME -o jsonpath={{.metadata.uid}}` shows"
        )),
    }
}

fn is_uid(text: &str) -> bool {
    let groups: Vec<usize> = text.split('-').map(str::len).collect();
    (groups == UID_GROUPS || groups == [UID_DIGITS]) && text.chars().all(|c| c == '-' || is_id(c))
}

fn is_id(c: char) -> bool {
    matches!(c, '0'..='9' | 'a'..='f')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_double_quotes_lose_escapes() {
        for written in [r#""a\x2db""#, r#""a\\\x2d""#, r#""""a\x2d""""#] {
            assert!(loses_escape(written), "{written}");
        }
        for written in [r"'a\x2db'", r#""a\\x2db""#, r#""axb""#, r#""a\""#, "", "5"] {
            assert!(!loses_escape(written), "{written}");
        }
    }
}
