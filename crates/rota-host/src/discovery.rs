//! Which tenants come and go: the tree of cgroups, the running VMs and the configuration, looked at together.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;

use anyhow::Result;
use rota_model::{Cgroup, Match, Model};

use crate::find::vm::{ThreadScan, running_vms};
use crate::find::{Discovered, Unfit, discover};
use crate::tree::Tree;

/// What has changed about a tenant, which is named as in the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sighting {
    /// Its cgroup was found.
    Appeared(String, Cgroup),
    /// Its cgroup is gone, or the tenant is not configured any more.
    Vanished(String),
    /// The vCPU threads in its cgroup, by vCPU number.
    Threads(String, BTreeMap<u32, i32>),
}

/// What was found so far.
#[derive(Debug)]
pub struct Discovery {
    tree: Tree,
    proc: PathBuf,
    threads: ThreadScan,
    vms: BTreeMap<(String, String), PathBuf>,
    seen: Discovered,
}

impl Discovery {
    /// Begins to watch the tree of cgroups.
    ///
    /// # Errors
    /// As [`Tree::open`].
    pub fn open(cgroup_root: PathBuf, proc: PathBuf) -> Result<Discovery> {
        let tree = Tree::open(cgroup_root)?;
        let threads = ThreadScan::new(&proc);
        Ok(Discovery { tree, proc, threads, vms: BTreeMap::new(), seen: Discovered::default() })
    }

    /// Takes in what inotify has reported about cgroups. Says whether to [`Discovery::look`].
    ///
    /// # Errors
    /// As [`Tree::refresh`].
    pub fn refresh(&mut self) -> Result<bool> {
        self.tree.refresh()
    }

    /// Reads the whole tree anew, for what inotify may have missed. Says whether to [`Discovery::look`].
    ///
    /// # Errors
    /// As [`Tree::rescan`].
    pub fn rescan(&mut self) -> Result<bool> {
        self.tree.rescan()
    }

    /// Looks for running VMs, if any tenant is matched by VM. Says whether to [`Discovery::look`].
    pub fn scan_vms(&mut self, model: &Model) -> bool {
        let wanted = |matcher: &Match| matches!(matcher, Match::Vm { .. });
        if !model.tenants.iter().filter_map(|tenant| tenant.matcher.as_ref()).any(wanted) {
            return !std::mem::take(&mut self.vms).is_empty();
        }
        let vms = running_vms(&self.proc, self.tree.root());
        let changed = vms != self.vms;
        self.vms = vms;
        changed
    }

    /// Finds the model's tenants. Returns what has changed since the last time, those that went first, and what there
    /// is to say about tenants that match one cgroup, or mean what is none.
    pub fn look(&mut self, model: &Model) -> (Vec<Sighting>, Vec<String>) {
        let matchers =
            model.tenants.iter().filter_map(|tenant| Some((tenant.name.as_str(), tenant.matcher.as_ref()?)));
        let now = discover(self.tree.cgroups(), &self.vms, matchers);
        let before = std::mem::replace(&mut self.seen, now);
        let now = &self.seen;

        let mut sightings = Vec::new();
        for (name, cgroup) in &before.found {
            if now.found.get(name) != Some(cgroup) {
                self.threads.forget(&self.tree.root().join(&cgroup.path));
                sightings.push(Sighting::Vanished(name.clone()));
            }
        }
        // In the configuration's order: on a full host, the earlier tenant has the place.
        for tenant in &model.tenants {
            let Some(cgroup) = now.found.get(&tenant.name) else { continue };
            if before.found.get(&tenant.name) != Some(cgroup) {
                sightings.push(Sighting::Appeared(tenant.name.clone(), cgroup.clone()));
            }
        }
        (sightings, lines(now, &before))
    }

    /// Looks for vCPU threads in the tenants' cgroups.
    pub fn scan_threads(&mut self) -> Vec<Sighting> {
        let root = self.tree.root();
        let scan = |(name, cgroup): (&String, &Cgroup)| {
            Sighting::Threads(name.clone(), self.threads.vcpus(&root.join(&cgroup.path)))
        };
        self.seen.found.iter().map(scan).collect()
    }
}

/// What there is to say that there was not before.
fn lines(now: &Discovered, before: &Discovered) -> Vec<String> {
    let conflict = |(tenant, owner): &(String, String)| {
        format!("{tenant}: left out, its cgroup is {owner}'s; give each tenant a cgroup of its own")
    };
    let unfit = |(tenant, unfit): &(String, Unfit)| match unfit {
        Unfit::UsersUnit(path) => format!(
            "{tenant}: not found, but a user has such a unit; if it is meant, write match = {{ cgroup = '{}' }}",
            path.display()
        ),
        Unfit::InRoot => {
            format!("{tenant}: left out, it runs in the root cgroup, as all do; start it in one of its own")
        }
    };
    let conflicts = now.conflicts.difference(&before.conflicts).map(conflict);
    conflicts.chain(now.unfit.difference(&before.unfit).map(unfit)).collect()
}

impl AsFd for Discovery {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.tree.as_fd()
    }
}
