//! Systemd's units, containers and pods, by the names of their cgroups.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use crate::tree::{Place, is_slice};

/// The host's own cgroups by what their names say. What a user or a container creates passes for none of them.
pub struct Names<'a> {
    units: BTreeMap<&'a OsStr, Vec<&'a Path>>,
    containers: BTreeMap<&'a str, Vec<&'a Path>>,
    pods: BTreeMap<String, Vec<&'a Path>>,
}

impl<'a> Names<'a> {
    pub fn of(cgroups: &'a BTreeMap<PathBuf, Place>) -> Names<'a> {
        let mut names = Names { units: BTreeMap::new(), containers: BTreeMap::new(), pods: BTreeMap::new() };
        for (path, _) in cgroups.iter().filter(|(_, place)| place.of_host) {
            let Some(name) = path.file_name() else { continue };
            if path.parent().into_iter().flat_map(Path::iter).all(is_slice) {
                names.units.entry(name).or_default().push(path);
            }
            for id in name.to_str().into_iter().flat_map(container_ids) {
                names.containers.entry(id).or_default().push(path);
            }
            if let Some(uid) = pod_uid(path) {
                names.pods.entry(uid).or_default().push(path);
            }
        }
        names
    }

    /// The units of that name.
    pub fn units(&self, name: &str) -> Vec<&'a Path> {
        self.units.get(OsStr::new(name)).cloned().unwrap_or_default()
    }

    /// The pods of that uid.
    pub fn pods(&self, uid: &str) -> Vec<&'a Path> {
        self.pods.get(uid).cloned().unwrap_or_default()
    }

    /// The containers whose ids begin with `id`. As Docker does, nothing is guessed if there are several.
    pub fn containers(&self, id: &str) -> Vec<&'a Path> {
        let ids = self.containers.range(id..).take_while(|(found, _)| found.starts_with(id));
        ids.flat_map(|(_, paths)| paths.iter().copied()).collect()
    }
}

/// Where the kubelet has its pods' cgroups without systemd.
const CLASSES: [&str; 3] = ["kubepods", "kubepods/burstable", "kubepods/besteffort"];

/// The uid of the pod whose cgroup this is: the kubelet makes `kubepods/burstable/pod<uid>`, or with systemd
/// `kubepods-burstable-pod<uid>.slice`, in which `-` would be a level and is written as `_`.
fn pod_uid(path: &Path) -> Option<String> {
    let name = path.file_name()?.to_str()?;
    let Some(slice) = name.strip_suffix(".slice") else {
        let is_class = path.parent().is_some_and(|above| CLASSES.iter().any(|class| above.ends_with(class)));
        return name.strip_prefix("pod").filter(|_| is_class).map(str::to_owned);
    };
    let (class, uid) = slice.rsplit_once("-pod")?;
    class.split('-').any(|part| part == "kubepods").then(|| uid.replace('_', "-"))
}

/// What may be a container's id in the name of a cgroup: all of it, or what follows the runtime's prefix, as in
/// `docker-<id>.scope`, `libpod-<id>.scope`, `kubepods-pod1.slice:cri-containerd:<id>`. A container's monitor (conmon)
/// is not it.
fn container_ids(name: &str) -> impl Iterator<Item = &str> {
    let name = name.strip_suffix(".scope").unwrap_or(name);
    let is_monitor = name.contains("conmon-");
    let starts = std::iter::once(0).chain(name.match_indices(['-', ':']).map(|(end, _)| end + 1));
    let is_id = |id: &&str| id.len() >= 12 && id.bytes().all(|byte| byte.is_ascii_hexdigit());
    starts.map(|start| &name[start..]).filter(is_id).filter(move |_| !is_monitor)
}
