//! Systemd's units and containers, by the names of their cgroups.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// The tree's directories by what their names say. Units are looked for in slices only, and of two containers the one
/// nearest to the root counts, so that what a container creates inside of its own cgroup does not pass for another.
pub struct Names<'a> {
    pub units: BTreeMap<&'a OsStr, &'a Path>,
    /// Units of users' own managers. Any user can name one like the system's, so none of them is a tenant by its name.
    pub user_units: BTreeMap<&'a OsStr, &'a Path>,
    containers: BTreeMap<&'a str, &'a Path>,
}

impl<'a> Names<'a> {
    pub fn of(cgroups: &'a BTreeMap<PathBuf, u64>) -> Names<'a> {
        let mut paths: Vec<&Path> = cgroups.keys().map(PathBuf::as_path).collect();
        paths.sort_by_key(|path| path.components().count());
        let mut names =
            Names { units: BTreeMap::new(), user_units: BTreeMap::new(), containers: BTreeMap::new() };
        for path in paths {
            let Some(name) = path.file_name() else { continue };
            let mut above = path.parent().into_iter().flat_map(Path::iter).skip_while(|name| is_slice(name));
            match above.next() {
                None => _ = names.units.entry(name).or_insert(path),
                Some(manager) if is_users_manager(manager) && above.all(is_slice) => {
                    names.user_units.entry(name).or_insert(path);
                }
                Some(_) => {}
            }
            for id in name.to_str().into_iter().flat_map(container_ids) {
                names.containers.entry(id).or_insert(path);
            }
        }
        names
    }

    /// The container whose id begins with `id`.
    pub fn container(&self, id: &str) -> Option<&'a Path> {
        let (found, path) = self.containers.range(id..).next()?;
        found.starts_with(id).then_some(*path)
    }
}

fn is_slice(name: &OsStr) -> bool {
    name.as_encoded_bytes().ends_with(b".slice")
}

/// Whether it is a user's manager, `user@1000.service`.
fn is_users_manager(name: &OsStr) -> bool {
    name.to_str().is_some_and(|name| name.starts_with("user@") && name.ends_with(".service"))
}

/// What may be a container's id in the name of a cgroup: all of it, or what follows the runtime's prefix, as in
/// `docker-<id>.scope`, `libpod-<id>.scope`, `kubepods-pod1.slice:cri-containerd:<id>`. A container's monitor (conmon)
/// is not it.
fn container_ids(name: &str) -> impl Iterator<Item = &str> {
    let name = name.strip_suffix(".scope").unwrap_or(name);
    let is_monitor = name.contains("conmon-");
    let starts = std::iter::once(0).chain(name.match_indices(['-', ':']).map(|(end, _)| end + 1));
    starts.map(|start| &name[start..]).filter(move |id| id.len() >= 12 && !is_monitor)
}
