//! Which cgroups are read: those whose makers are the host's own.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::ops::Bound::{Excluded, Unbounded};
use std::path::{Path, PathBuf};

use super::Place;

/// Which cgroups are in a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Those that may be tenants: what is the host's own, and these.
    Tenants(BTreeSet<PathBuf>),
    /// All.
    All,
}

impl Reach {
    /// Where tenants are found by their names.
    pub fn tenants() -> Reach {
        Reach::Tenants(BTreeSet::new())
    }

    /// Also reaches these, and those before no more. Says whether they are others.
    pub(super) fn want(&mut self, paths: BTreeSet<PathBuf>) -> bool {
        match self {
            Reach::All => false,
            Reach::Tenants(wanted) => std::mem::replace(wanted, paths) != *wanted,
        }
    }

    /// Whether it names `path`, or something below it.
    pub(super) fn has(&self, path: &Path) -> bool {
        match self {
            Reach::All => true,
            Reach::Tenants(wanted) => wanted.contains(path) || self.has_below(path),
        }
    }

    /// Whether it names something below `path`.
    pub(super) fn has_below(&self, path: &Path) -> bool {
        match self {
            Reach::All => true,
            Reach::Tenants(wanted) => {
                let next = wanted.range::<Path, _>((Excluded(path), Unbounded)).next();
                next.is_some_and(|next| next.starts_with(path))
            }
        }
    }
}

/// Folders in which container runtimes and virtual machine managers without systemd make cgroups.
const RUNTIMES: [&str; 8] =
    ["docker", "libpod_parent", "kubepods", "k8s.io", "moby", "default", "machine", "lxc"];

pub fn is_slice(name: &OsStr) -> bool {
    name.as_encoded_bytes().ends_with(b".slice")
}

/// Under which folder the kubelet makes its cgroups, if it has a `--cgroup-root`: kind's nodes have this one.
const KUBELET: &str = "kubelet";
/// An id of Podman's has so many digits.
const ID_DIGITS: usize = 64;

/// Whether a cgroup of the root's owner holds units or containers: a slice, a runtime's folder, one of the folders that
/// the kubelet makes for a class or a pod, or one that Podman makes for a pod.
pub(super) fn may_be_parent(path: &Path) -> bool {
    let is_runtimes = |name: &OsStr| RUNTIMES.iter().any(|runtime| name == *runtime);
    let is_pod = |name: &OsStr| name.as_encoded_bytes().starts_with(b"pod");
    let mut below = path.iter().skip_while(|name| is_slice(name)).peekable();
    if below.next_if(|name| *name == KUBELET).is_some() && below.peek().is_none_or(|name| *name != "kubepods")
    {
        return below.next().is_none();
    }
    match below.next() {
        None => true,
        Some(name) if name == "kubepods" => {
            below.next_if(|name| *name == "burstable" || *name == "besteffort");
            below.next().is_none_or(is_pod) && below.next().is_none()
        }
        Some(name) if name == "libpod_parent" => below.next().is_none_or(is_id) && below.next().is_none(),
        Some(name) => is_runtimes(name) && below.next().is_none(),
    }
}

/// Whether it is an id and nothing else, as Podman calls a pod's cgroup, but no container's.
fn is_id(name: &OsStr) -> bool {
    name.len() == ID_DIGITS && name.as_encoded_bytes().iter().all(u8::is_ascii_hexdigit)
}

/// So many directories of each user's manager are looked at.
const USERS_MAX: usize = 256;

/// The units of users' own managers. A manager is its user's, who may make as many as there can be.
pub(super) fn users_units(root: &Path, cgroups: &BTreeMap<PathBuf, Place>) -> BTreeSet<PathBuf> {
    let managers = cgroups.iter().filter(|(path, place)| place.of_host && is_users_manager(path));
    let mut units = BTreeSet::new();
    for (manager, _) in managers {
        let (mut left, mut seen) = (vec![manager.clone()], 0);
        while let Some(path) = left.pop()
            && seen < USERS_MAX
        {
            for entry in root.join(&path).read_dir().into_iter().flatten().flatten().take(USERS_MAX - seen) {
                seen += 1;
                if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    let unit = path.join(entry.file_name());
                    left.extend(is_slice(&entry.file_name()).then(|| unit.clone()));
                    units.insert(unit);
                }
            }
        }
    }
    units
}

/// Whether it is a user's manager, `user@1000.service`.
fn is_users_manager(path: &Path) -> bool {
    let name = path.file_name().and_then(OsStr::to_str);
    name.is_some_and(|name| name.starts_with("user@") && name.ends_with(".service"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_and_runtimes_folders_have_tenants_and_units_and_containers_have_none() {
        for path in [
            "a.slice",
            "a.slice/a-b.slice",
            "docker",
            "kubepods/burstable/pod1",
            "kubepods.slice/kubepods-pod1.slice",
            "kubelet",
            "kubelet/kubepods/pod1",
            &format!("libpod_parent/{}", "0f".repeat(32)),
        ] {
            assert!(may_be_parent(Path::new(path)), "{path}");
        }
        for path in [
            "a.service",
            "a.slice/b.scope/c.slice",
            "docker/0123",
            "docker/kubepods",
            "kubepods/x/pod1",
            "kubelet/docker",
            "kubelet/kubelet/kubepods",
            "libpod_parent/conmon",
            &format!("libpod_parent/{0}/{0}", "0f".repeat(32)),
        ] {
            assert!(!may_be_parent(Path::new(path)), "{path}");
        }
    }
}
