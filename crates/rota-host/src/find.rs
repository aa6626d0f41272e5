//! Which cgroups are tenants. Each way to find one has a file below this one: by the names of cgroups, or as a VM.

mod names;
pub mod vm;

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use rota_model::{Cgroup, Match};

use names::Names;

/// Which tenants are there, and which were found where another tenant was found before.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Discovered {
    /// By tenant.
    pub found: BTreeMap<String, Cgroup>,
    /// Tenant and the earlier tenant whose cgroup it would also be: one cgroup is one tenant.
    pub conflicts: BTreeSet<(String, String)>,
    /// Tenant and what is there that it may mean, but is not it.
    pub unfit: BTreeSet<(String, Unfit)>,
}

/// What looks like a tenant and is none.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Unfit {
    /// The cgroup of a user's unit: any user can name one like the system's.
    UsersUnit(PathBuf),
    /// A VM in the root cgroup, which is the whole machine.
    InRoot,
}

/// Finds the tenants' cgroups in the tree. `vms` are the VMs that run, see [`vm::running_vms`].
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
        let unfit = match (path, matcher) {
            (None, Match::Unit(unit)) => {
                names.user_units.get(OsStr::new(unit)).map(|found| Unfit::UsersUnit(found.to_path_buf()))
            }
            (Some(path), Match::Vm { .. }) if path.as_os_str().is_empty() => Some(Unfit::InRoot),
            _ => None,
        };
        discovered.unfit.extend(unfit.map(|unfit| (tenant.to_owned(), unfit)));
        let Some((path, &id)) = path.and_then(|path| Some((path, cgroups.get(path)?))) else { continue };
        match owners.entry(id) {
            Entry::Occupied(owner) => {
                discovered.conflicts.insert((tenant.to_owned(), (*owner.get()).to_owned()));
            }
            Entry::Vacant(free) => {
                free.insert(tenant);
                discovered.found.insert(tenant.to_owned(), Cgroup { path: path.to_owned(), id });
            }
        }
    }
    discovered
}

#[cfg(test)]
mod tests {
    use super::*;

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

    /// Without systemd's driver a container's cgroup is named by colons, in which its id was not seen.
    #[test]
    fn ids_behind_colons_are_found() {
        for path in [
            format!("kubepods-burstable-pod1.slice:cri-containerd:{ID}"),
            format!("system.slice/kubepods-pod1.slice:cri-containerd:{ID}"),
            format!("system.slice:docker:{ID}"),
        ] {
            assert_eq!(find(&[&path], Match::Container(ID[..12].to_owned())), Some(path.clone()));
        }
    }

    #[test]
    fn a_vm_in_the_root_cgroup_is_no_tenant_and_is_told() {
        let key = ("qemu".to_owned(), "vm".to_owned());
        let matcher = Match::Vm { vmm: key.0.clone(), name: key.1.clone() };
        let vms = BTreeMap::from([(key, PathBuf::new())]);
        let discovered = discover(&BTreeMap::new(), &vms, [("t", &matcher)].into_iter());
        assert!(discovered.found.is_empty());
        assert_eq!(discovered.unfit, BTreeSet::from([("t".to_owned(), Unfit::InRoot)]));
    }

    /// A user could make a unit with the name of a tenant that is not running, and have its reservation.
    #[test]
    fn a_users_unit_is_no_tenant_by_name_and_is_told() {
        let unit = "user.slice/user-1000.slice/user@1000.service/app.slice/ptyxis-spawn-1.scope";
        let inner = "system.slice/a.service/b.slice/inner.scope";
        let cgroups = [unit, inner].iter().zip(1..).map(|(path, id)| (PathBuf::from(path), id)).collect();
        let tenants = ["ptyxis-spawn-1.scope", "inner.scope"].map(|name| Match::Unit(name.to_owned()));
        let tenants = ["a", "b"].into_iter().zip(&tenants);
        let discovered = discover(&cgroups, &BTreeMap::new(), tenants);
        assert!(discovered.found.is_empty());
        assert_eq!(discovered.unfit, BTreeSet::from([("a".to_owned(), Unfit::UsersUnit(unit.into()))]));
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
