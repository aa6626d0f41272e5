//! Which cgroups are tenants. Each way to find one has a file below this one: by the names of cgroups, or as a VM.
//!
//! Where several cgroups are what a tenant is matched by, none is guessed: it stays with the one that it was found in
//! first, and the operator is told.

pub mod context;
pub mod monitors;
mod names;
pub mod threads;
mod vm;

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use rota_model::{Cgroup, Match};

use crate::tree::Place;
use monitors::{Stranger, Vms};
use names::Names;

/// What is here to be found.
#[derive(Clone, Copy, Debug)]
pub struct Here<'a> {
    /// See [`crate::tree::Tree::cgroups`].
    pub cgroups: &'a BTreeMap<PathBuf, Place>,
    /// See [`crate::tree::Tree::users_units`].
    pub users_units: &'a BTreeSet<PathBuf>,
    /// See [`monitors::running_vms`].
    pub vms: &'a Vms,
}

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
    /// One of these, and nobody can say which.
    Several(Vec<PathBuf>),
    /// A process that only says that it is the VM.
    Stranger(Stranger),
}

/// Finds the tenants' cgroups. A tenant that was in one of several `before` stays there.
pub fn discover<'a>(
    here: Here<'_>,
    before: &BTreeMap<String, Cgroup>,
    tenants: impl Iterator<Item = (&'a str, &'a Match)>,
) -> Discovered {
    let names = Names::of(here.cgroups);
    let mut discovered = Discovered::default();
    let mut owners: BTreeMap<u64, &str> = BTreeMap::new();
    for (tenant, matcher) in tenants {
        let candidates = candidates(here, &names, matcher);
        let unfit = unfit(here, matcher, &candidates);
        discovered.unfit.extend(unfit.map(|unfit| (tenant.to_owned(), unfit)));
        let was = |candidate: &&Cgroup| before.get(tenant) == Some(*candidate);
        let place = match &candidates[..] {
            [one] => Some(one),
            several => several.iter().find(was),
        };
        let Some(place) = place.filter(|place| !place.path.as_os_str().is_empty()) else { continue };
        match owners.entry(place.id) {
            Entry::Occupied(owner) => {
                discovered.conflicts.insert((tenant.to_owned(), (*owner.get()).to_owned()));
            }
            Entry::Vacant(free) => {
                free.insert(tenant);
                discovered.found.insert(tenant.to_owned(), place.clone());
            }
        }
    }
    discovered
}

/// All that a tenant may be.
fn candidates(here: Here<'_>, names: &Names<'_>, matcher: &Match) -> Vec<Cgroup> {
    let paths = match matcher {
        Match::Cgroup(path) => vec![Path::new(path)],
        Match::Unit(unit) => names.units(unit),
        Match::Container(id) => names.containers(id),
        Match::Pod(uid) => names.pods(uid),
        Match::Vm { vmm, name } => {
            return here.vms.found.get(&(vmm.clone(), name.clone())).cloned().unwrap_or_default();
        }
    };
    let cgroup = |path: &Path| Some(Cgroup { path: path.to_owned(), id: here.cgroups.get(path)?.id });
    paths.into_iter().filter_map(cgroup).collect()
}

/// What there is to tell about a tenant with these candidates.
fn unfit(here: Here<'_>, matcher: &Match, candidates: &[Cgroup]) -> Option<Unfit> {
    match (candidates, matcher) {
        ([], Match::Unit(unit)) => {
            let named = |path: &&PathBuf| path.file_name().is_some_and(|name| name == unit.as_str());
            here.users_units.iter().find(named).map(|path| Unfit::UsersUnit(path.clone()))
        }
        ([], Match::Vm { vmm, name }) => {
            here.vms.strangers.get(&(vmm.clone(), name.clone())).cloned().map(Unfit::Stranger)
        }
        ([one], Match::Vm { .. }) if one.path.as_os_str().is_empty() => Some(Unfit::InRoot),
        ([] | [_], _) => None,
        (several, _) => Some(Unfit::Several(several.iter().map(|cgroup| cgroup.path.clone()).collect())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::{Reach, Tree};

    const ID: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

    /// A tree with these cgroups, as the daemon reads it.
    fn tree(paths: &[&str]) -> Tree {
        let folder = tempfile::tempdir().unwrap();
        paths.iter().for_each(|path| std::fs::create_dir_all(folder.path().join(path)).unwrap());
        Tree::open(folder.path(), Reach::tenants()).unwrap()
    }

    fn look(
        tree: &Tree,
        vms: &Vms,
        before: &BTreeMap<String, Cgroup>,
        tenants: &[(&str, Match)],
    ) -> Discovered {
        let here = Here { cgroups: tree.cgroups(), users_units: tree.users_units(), vms };
        discover(here, before, tenants.iter().map(|(name, matcher)| (*name, matcher)))
    }

    fn vms(cgroups: &[(&str, u64)]) -> Vms {
        let cgroup = |(path, id): &(&str, u64)| Cgroup { path: path.into(), id: *id };
        let key = ("qemu".to_owned(), "vm".to_owned());
        Vms { found: BTreeMap::from([(key, cgroups.iter().map(cgroup).collect())]), ..Vms::default() }
    }

    fn vm(name: &str) -> Match {
        Match::Vm { vmm: "qemu".to_owned(), name: name.to_owned() }
    }

    fn container(id: &str) -> Match {
        Match::Container(id.to_owned())
    }

    fn unit(unit: &str) -> Match {
        Match::Unit(unit.to_owned())
    }

    fn find(paths: &[&str], matcher: Match) -> Option<String> {
        let vms = vms(&[("vm.scope", 7)]);
        let discovered = look(&tree(paths), &vms, &BTreeMap::new(), &[("t", matcher)]);
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
        assert_eq!(find(&paths, unit("redis.service")).as_deref(), Some("system.slice/redis.service"));
        assert_eq!(find(&paths, unit("hidden.service")), None, "not a slice's child");
        assert_eq!(find(&paths, container(&ID[..12])), Some(docker.clone()));
        assert_eq!(find(&paths, container(ID)), Some(docker.clone()));
        assert_eq!(find(&paths, container("fedcba987654")), None);
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
        let discovered = look(&tree(&[]), &vms(&[("", 1)]), &BTreeMap::new(), &[("t", vm("vm"))]);
        assert!(discovered.found.is_empty());
        assert_eq!(discovered.unfit, BTreeSet::from([("t".to_owned(), Unfit::InRoot)]));
    }

    /// A user could make a unit with the name of a tenant that is not running, and have its reservation.
    #[test]
    fn a_users_unit_is_no_tenant_by_name_and_is_told() {
        let path = "user.slice/user-1000.slice/user@1000.service/app.slice/ptyxis-spawn-1.scope";
        let tree = tree(&[path, "system.slice/a.service/b.slice/inner.scope"]);
        let tenants = [("a", unit("ptyxis-spawn-1.scope")), ("b", unit("inner.scope"))];
        let discovered = look(&tree, &Vms::default(), &BTreeMap::new(), &tenants);
        assert!(discovered.found.is_empty());
        assert_eq!(discovered.unfit, BTreeSet::from([("a".to_owned(), Unfit::UsersUnit(path.into()))]));
    }

    #[test]
    fn one_cgroup_is_one_tenant() {
        let tenants = [("x", Match::Cgroup("a.service".into())), ("y", unit("a.service"))];
        let discovered = look(&tree(&["a.service"]), &Vms::default(), &BTreeMap::new(), &tenants);
        assert_eq!(discovered.found.keys().collect::<Vec<_>>(), ["x"]);
        assert_eq!(discovered.conflicts, BTreeSet::from([("y".to_owned(), "x".to_owned())]));
    }

    /// A directory that a user or a container calls like a container once took that one's place.
    #[test]
    fn nobody_becomes_a_container_by_a_directory() {
        let docker = format!("system.slice/docker-{ID}.scope");
        let pod =
            format!("kubepods.slice/kubepods-burstable.slice/kubepods-pod1.slice/cri-containerd-{ID}.scope");
        for (real, fake) in [
            (docker.as_str(), format!("user.slice/user-1000.slice/user@1000.service/a/b/{}", &ID[..12])),
            (pod.as_str(), format!("machine.slice/tenant.scope/{ID}")),
            (pod.as_str(), format!("docker/tenant/{ID}")),
        ] {
            for id in [ID, &ID[..12]] {
                assert_eq!(find(&[real, &fake], container(id)).as_deref(), Some(real), "{fake}");
                assert_eq!(find(&[&fake], container(id)), None, "{fake}");
            }
        }
    }

    #[test]
    fn nobody_becomes_a_pod_by_a_directory() {
        let uid = "0a1b2c3d-0000-4000-8000-0123456789ab";
        for fake in [
            format!("pod{uid}"),
            format!("docker/pod{uid}"),
            format!("machine.slice/tenant.scope/kubepods/pod{uid}"),
            format!("user.slice/user-1000.slice/user@1000.service/kubepods.slice/kubepods-pod{uid}.slice"),
            format!("kubepods/burstable/pod1/pod{uid}"),
            format!("kubepods/pod1/kubepods/pod{uid}"),
            format!("other-pod{uid}.slice"),
        ] {
            assert_eq!(find(&[&fake], Match::Pod(uid.to_owned())), None, "{fake}");
        }
    }

    #[test]
    fn where_there_are_several_none_is_guessed_and_the_first_one_stays() {
        let paths = [format!("docker/{ID}"), format!("docker/{}f{}", &ID[..12], &ID[13..])];
        let tree = tree(&[&paths[0], &paths[1]]);
        let tenants = [("t", container(&ID[..12]))];
        let none = BTreeMap::new();
        let discovered = look(&tree, &Vms::default(), &none, &tenants);
        assert!(discovered.found.is_empty());
        let several = Unfit::Several(paths.iter().map(PathBuf::from).collect());
        assert_eq!(discovered.unfit, BTreeSet::from([("t".to_owned(), several.clone())]));
        assert_eq!(look(&tree, &Vms::default(), &none, &[("t", container(ID))]).found.len(), 1);

        let first = Cgroup { path: paths[1].clone().into(), id: tree.cgroups()[Path::new(&paths[1])].id };
        let before = BTreeMap::from([("t".to_owned(), first.clone())]);
        let discovered = look(&tree, &Vms::default(), &before, &tenants);
        assert_eq!((&discovered.found["t"], discovered.unfit.len()), (&first, 1));

        // So it is with VMs: a later one of the same name, whatever its process id, displaces none.
        let (tenants, later) = ([("t", vm("vm"))], vms(&[("late", 8), ("first", 7)]));
        let first = Cgroup { path: "first".into(), id: 7 };
        let before = BTreeMap::from([("t".to_owned(), first.clone())]);
        assert!(look(&tree, &later, &none, &tenants).found.is_empty());
        assert_eq!(look(&tree, &later, &before, &tenants).found["t"], first);
    }
}
