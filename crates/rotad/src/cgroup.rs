//! The host's cgroups: the tree below the cgroup v2 root, watched, and which of its directories are tenants.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use inotify::{EventMask, Inotify, WatchDescriptor, WatchMask};
use rota_model::Match;

/// Where cgroup v2 is mounted: `/sys/fs/cgroup`, or below it on a host that also has version 1.
///
/// # Errors
/// If it is mounted nowhere.
pub fn mount_point() -> Result<PathBuf> {
    let mounts = std::fs::read_to_string("/proc/self/mounts").context("reading /proc/self/mounts")?;
    mount_point_in(&mounts)
        .context("no cgroup2 file system is mounted; mount one: mount -t cgroup2 none /sys/fs/cgroup")
}

fn mount_point_in(mounts: &str) -> Option<PathBuf> {
    mounts.lines().find_map(|line| {
        let mut fields = line.split(' ');
        let (point, kind) = (fields.nth(1)?, fields.next()?);
        (kind == "cgroup2").then(|| PathBuf::from(point))
    })
}

/// Every cgroup below the root, with its id. Follows creation and removal by inotify, one watch a directory.
#[derive(Debug)]
pub struct Tree {
    root: PathBuf,
    inotify: Inotify,
    watched: HashMap<WatchDescriptor, PathBuf>,
    cgroups: BTreeMap<PathBuf, u64>,
}

impl Tree {
    /// Reads the tree below `root` and begins to watch it.
    ///
    /// # Errors
    /// If `root` cannot be read, or the system's limit of inotify watches is too low for the tree.
    pub fn open(root: impl Into<PathBuf>) -> Result<Tree> {
        let inotify = Inotify::init().context("starting inotify")?;
        let mut tree = Tree { root: root.into(), inotify, watched: HashMap::new(), cgroups: BTreeMap::new() };
        tree.rescan()?;
        Ok(tree)
    }

    /// The directory that the paths are relative to.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// All cgroups but the root: path relative to it, and the kernel's id, which is the inode's number.
    pub fn cgroups(&self) -> &BTreeMap<PathBuf, u64> {
        &self.cgroups
    }

    /// Takes in what inotify has reported. Says whether the tree may have changed.
    ///
    /// # Errors
    /// As [`Tree::open`].
    pub fn refresh(&mut self) -> Result<bool> {
        let mut changed = false;
        let mut buffer = [0; 16384];
        loop {
            let events: Vec<_> = match self.inotify.read_events(&mut buffer) {
                Ok(events) => events.map(|event| event.to_owned()).collect(),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(changed),
                Err(error) => return Err(error).context("reading inotify events of cgroups"),
            };
            for event in events {
                if event.mask.contains(EventMask::Q_OVERFLOW) {
                    self.rescan()?;
                    changed = true;
                } else if event.mask.contains(EventMask::IGNORED) {
                    self.watched.remove(&event.wd);
                } else if event.mask.contains(EventMask::ISDIR)
                    && let (Some(parent), Some(name)) = (self.watched.get(&event.wd), &event.name)
                {
                    let path = parent.join(name);
                    self.forget(&path);
                    self.add(path)?;
                    changed = true;
                }
            }
        }
    }

    /// Reads the whole tree anew: the safety net below inotify. Says whether that changed anything.
    ///
    /// # Errors
    /// As [`Tree::open`].
    pub fn rescan(&mut self) -> Result<bool> {
        let before = std::mem::take(&mut self.cgroups);
        std::fs::read_dir(&self.root).with_context(|| format!("reading {}", self.root.display()))?;
        self.add(PathBuf::new())?;
        Ok(self.cgroups != before)
    }

    /// Adds `path` and all below it, if it is there. It is watched before it is read, so that nothing slips through.
    fn add(&mut self, path: PathBuf) -> Result<()> {
        let full = self.root.join(&path);
        let mask = WatchMask::CREATE | WatchMask::DELETE | WatchMask::MOVE | WatchMask::ONLYDIR;
        match self.inotify.watches().add(&full, mask) {
            Ok(watch) => self.watched.insert(watch, path.clone()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => {
                return Err(error).with_context(|| {
                    format!("watching {} (raise fs.inotify.max_user_watches?)", full.display())
                });
            }
        };
        // Gone since: inotify will report the removal, or has nothing to report.
        let Ok(entries) = std::fs::read_dir(&full) else { return Ok(()) };
        if !path.as_os_str().is_empty() {
            let Ok(status) = std::fs::metadata(&full) else { return Ok(()) };
            self.cgroups.insert(path.clone(), status.ino());
        }
        for entry in entries.flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                self.add(path.join(entry.file_name()))?;
            }
        }
        Ok(())
    }

    /// Drops `path` and all below it from the tree; their watches end by themselves.
    fn forget(&mut self, path: &Path) {
        self.cgroups.retain(|cgroup, _| !cgroup.starts_with(path));
    }
}

impl AsFd for Tree {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inotify.as_fd()
    }
}

/// A tenant's cgroup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Relative to the cgroup root.
    pub path: PathBuf,
    /// The kernel's id of it.
    pub id: u64,
}

/// Which tenants are there, and which were found where another tenant was found before.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Discovered {
    /// By tenant.
    pub found: BTreeMap<String, Found>,
    /// Tenant and the earlier tenant whose cgroup it would also be: one cgroup is one tenant.
    pub conflicts: BTreeSet<(String, String)>,
}

/// Finds the tenants' cgroups in the tree. `vms` are the VMs that run, see [`crate::vm::running_vms`].
pub fn discover<'a>(
    cgroups: &BTreeMap<PathBuf, u64>,
    vms: &BTreeMap<(String, String), PathBuf>,
    tenants: impl Iterator<Item = (&'a str, &'a Match)>,
) -> Discovered {
    let names = Names::of(cgroups);
    let mut discovered = Discovered::default();
    let mut owners: BTreeMap<u64, &str> = BTreeMap::new();
    for (tenant, matcher) in tenants {
        let path = match matcher {
            Match::Cgroup(path) => Some(Path::new(path)),
            Match::Unit(unit) => names.units.get(OsStr::new(unit)).copied(),
            Match::Container(id) => names.container(id),
            Match::Vm { vmm, name } => vms.get(&(vmm.clone(), name.clone())).map(PathBuf::as_path),
        };
        let Some((path, &id)) = path.and_then(|path| Some((path, cgroups.get(path)?))) else { continue };
        match owners.entry(id) {
            Entry::Occupied(owner) => {
                discovered.conflicts.insert((tenant.to_owned(), (*owner.get()).to_owned()));
            }
            Entry::Vacant(free) => {
                free.insert(tenant);
                discovered.found.insert(tenant.to_owned(), Found { path: path.to_owned(), id });
            }
        }
    }
    discovered
}

/// The tree's directories by what their names say. Units are looked for in slices only, and of two containers the one
/// nearest to the root counts, so that what a container creates inside of its own cgroup does not pass for another.
struct Names<'a> {
    units: BTreeMap<&'a OsStr, &'a Path>,
    containers: BTreeMap<&'a str, &'a Path>,
}

impl<'a> Names<'a> {
    fn of(cgroups: &'a BTreeMap<PathBuf, u64>) -> Names<'a> {
        let mut paths: Vec<&Path> = cgroups.keys().map(PathBuf::as_path).collect();
        paths.sort_by_key(|path| path.components().count());
        let mut names = Names { units: BTreeMap::new(), containers: BTreeMap::new() };
        for path in paths {
            let Some(name) = path.file_name() else { continue };
            if path.parent().is_some_and(|parent| parent.iter().all(is_slice)) {
                names.units.entry(name).or_insert(path);
            }
            for id in name.to_str().into_iter().flat_map(container_ids) {
                names.containers.entry(id).or_insert(path);
            }
        }
        names
    }

    /// The container whose id begins with `id`.
    fn container(&self, id: &str) -> Option<&'a Path> {
        let (found, path) = self.containers.range(id..).next()?;
        found.starts_with(id).then_some(*path)
    }
}

fn is_slice(name: &OsStr) -> bool {
    name.as_encoded_bytes().ends_with(b".slice")
}

/// What may be a container's id in the name of a cgroup: all of it, or what follows the runtime's prefix, as in
/// `docker-<id>.scope`, `cri-containerd-<id>.scope`, `libpod-<id>.scope`. A container's monitor (conmon) is not it.
fn container_ids(name: &str) -> impl Iterator<Item = &str> {
    let name = name.strip_suffix(".scope").unwrap_or(name);
    let is_monitor = name.contains("conmon-");
    let starts = std::iter::once(0).chain(name.match_indices('-').map(|(dash, _)| dash + 1));
    starts.map(|start| &name[start..]).filter(move |id| id.len() >= 12 && !is_monitor)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn the_mount_point_is_found_on_pure_and_on_mixed_hosts() {
        let mixed = "tmpfs /sys/fs/cgroup tmpfs ro 0 0\ncgroup /sys/fs/cgroup/cpu cgroup rw,cpu 0 0\n\
                     cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n";
        assert_eq!(mount_point_in(mixed), Some(PathBuf::from("/sys/fs/cgroup/unified")));
        assert_eq!(mount_point_in("cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n"), Some("/sys/fs/cgroup".into()));
        assert_eq!(mount_point_in("proc /proc proc rw 0 0\n"), None);
    }

    fn tree_paths(tree: &Tree) -> Vec<&str> {
        tree.cgroups().keys().map(|path| path.to_str().unwrap()).collect()
    }

    #[test]
    fn the_tree_follows_creation_and_removal() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("a/b")).unwrap();
        fs::write(folder.path().join("a/cgroup.procs"), "").unwrap();
        let mut tree = Tree::open(folder.path()).unwrap();
        assert_eq!(tree_paths(&tree), ["a", "a/b"]);
        assert!(!tree.refresh().unwrap());

        fs::create_dir_all(folder.path().join("a/c/d")).unwrap();
        assert!(tree.refresh().unwrap());
        assert_eq!(tree_paths(&tree), ["a", "a/b", "a/c", "a/c/d"]);
        fs::create_dir(folder.path().join("a/c/d/e")).unwrap();
        assert!(tree.refresh().unwrap());
        fs::remove_dir_all(folder.path().join("a/c")).unwrap();
        assert!(tree.refresh().unwrap());
        assert_eq!(tree_paths(&tree), ["a", "a/b"]);

        let ino = |path| fs::metadata(folder.path().join(path)).unwrap().ino();
        assert_eq!(tree.cgroups()[Path::new("a/b")], ino("a/b"));
        assert!(!tree.rescan().unwrap());
    }

    #[test]
    fn a_directory_made_anew_is_another_cgroup() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("a")).unwrap();
        let mut tree = Tree::open(folder.path()).unwrap();
        fs::create_dir(folder.path().join("keeps-the-inode-number-from-being-reused")).unwrap();
        fs::rename(folder.path().join("a"), folder.path().join("old")).unwrap();
        fs::create_dir(folder.path().join("a")).unwrap();
        assert!(tree.refresh().unwrap());
        let ino = fs::metadata(folder.path().join("a")).unwrap().ino();
        assert_eq!(tree.cgroups()[Path::new("a")], ino);
    }

    #[test]
    fn a_missing_root_is_an_error() {
        assert!(Tree::open("/nonexistent/rota").is_err());
    }

    const ID: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

    fn find(paths: &[&str], matcher: Match) -> Option<String> {
        let cgroups = paths.iter().zip(1..).map(|(path, id)| (PathBuf::from(path), id)).collect();
        let vms = BTreeMap::from([(("qemu".to_owned(), "vm".to_owned()), PathBuf::from("vm.scope"))]);
        let discovered = discover(&cgroups, &vms, [("t", &matcher)].into_iter());
        discovered.found.get("t").map(|found| found.path.to_str().unwrap().to_owned())
    }

    #[test]
    fn tenants_are_found_by_path_unit_container_and_vm() {
        let docker = format!("system.slice/docker-{ID}.scope");
        let inner = format!("a/b/c/docker-{ID}.scope");
        let conmon = format!("libpod-conmon-{ID}.scope");
        let paths = [
            "machine.slice/web-0",
            "system.slice/redis.service",
            "docker.slice/container/redis.service",
            "docker.slice/container/hidden.service",
            &docker,
            &inner,
            &conmon,
            "vm.scope",
        ];
        let cgroup = |path: &str| Match::Cgroup(path.to_owned());
        assert_eq!(find(&paths, cgroup("machine.slice/web-0")).as_deref(), Some("machine.slice/web-0"));
        assert_eq!(find(&paths, cgroup("machine.slice/web-1")), None);
        let unit = |unit: &str| Match::Unit(unit.to_owned());
        assert_eq!(find(&paths, unit("redis.service")).as_deref(), Some("system.slice/redis.service"));
        assert_eq!(find(&paths, unit("hidden.service")), None, "not a slice's child");
        let container = |id: &str| Match::Container(id.to_owned());
        assert_eq!(find(&paths, container(&ID[..12])), Some(docker.clone()));
        assert_eq!(find(&paths, container(ID)), Some(docker.clone()));
        assert_eq!(find(&paths, container("fedcba987654")), None);
        let vm = |name: &str| Match::Vm { vmm: "qemu".to_owned(), name: name.to_owned() };
        assert_eq!(find(&paths, vm("vm")).as_deref(), Some("vm.scope"));
        assert_eq!(find(&paths, vm("other")), None);
        assert_eq!(find(&[ID], container(&ID[..12])).as_deref(), Some(ID));
    }

    #[test]
    fn one_cgroup_is_one_tenant() {
        let cgroups = BTreeMap::from([(PathBuf::from("a.service"), 7)]);
        let tenants = [("x", Match::Cgroup("a.service".into())), ("y", Match::Unit("a.service".into()))];
        let discovered =
            discover(&cgroups, &BTreeMap::new(), tenants.iter().map(|(name, matcher)| (*name, matcher)));
        assert_eq!(discovered.found.keys().collect::<Vec<_>>(), ["x"]);
        assert_eq!(discovered.conflicts, BTreeSet::from([("y".to_owned(), "x".to_owned())]));
    }
}
