//! Which tenants come and go: the tree of cgroups, the running VMs and the configuration, looked at together.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Result;
use rota_model::{Cgroup, Match, Model};

use crate::find::context::Context;
use crate::find::monitors::{Key, Trust, Vms, running_vms};
use crate::find::threads::ThreadScan;
use crate::find::{Discovered, Here, Unfit, discover};
use crate::tree::{Reach, Tree};

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
///
/// How much there is to look at is the tenants' and users' doing. So each look is followed by a pause that is as much
/// longer as the look was, and there is no look in it.
#[derive(Debug)]
pub struct Discovery {
    tree: Tree,
    proc: PathBuf,
    trust: Trust,
    threads: ThreadScan,
    vms: Vms,
    seen: Discovered,
    paces: Paces,
    /// Looks for VMs so far.
    vm_looks: u64,
    /// Which tenant's threads were looked for last.
    turn: usize,
}

/// One for each kind of look.
#[derive(Debug, Default)]
struct Paces {
    tree: Pace,
    rescan: Pace,
    vms: Pace,
    threads: Pace,
}

/// When the next look may be.
#[derive(Debug, Default)]
struct Pace(Option<Instant>);

impl Pace {
    /// A look every so often takes a fiftieth of a CPU's time at most.
    const SELDOM: u32 = 49;
    /// What the kernel tells of is looked at for a fifth of a CPU's time at most.
    const OFTEN: u32 = 4;

    fn is_due(&self) -> bool {
        self.left().is_zero()
    }

    fn left(&self) -> Duration {
        self.0.map_or(Duration::ZERO, |next| next.saturating_duration_since(Instant::now()))
    }

    /// A look began then; it is followed by so many times what it took.
    fn looked(&mut self, began: Instant, times: u32) {
        let now = Instant::now();
        self.0 = Some(now + (now - began) * times);
    }
}

/// Every so many looks for VMs also see what only says that it is one.
const STRANGERS_EVERY: u64 = 10;

/// After so long the other tenants' threads are left for the next look.
const TURN: Duration = Duration::from_millis(50);

impl Discovery {
    /// Begins to watch the tree of cgroups.
    ///
    /// # Errors
    /// As [`Tree::open`]. Nothing that comes later is an error: what cannot be seen is not there.
    pub fn open(cgroup_root: PathBuf, proc: PathBuf, trust: Trust) -> Result<Discovery> {
        let tree = Tree::open(cgroup_root, Reach::tenants())?;
        let threads = ThreadScan::new(&proc);
        let (vms, seen, paces) = Default::default();
        Ok(Discovery { tree, proc, trust, threads, vms, seen, paces, vm_looks: 0, turn: 0 })
    }

    /// Tells of cgroups; nothing while there is a pause, or if nothing tells of them.
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.tree.fd().filter(|_| self.paces.tree.is_due())
    }

    /// How long the pause still is.
    pub fn pause(&self) -> Duration {
        self.paces.tree.left()
    }

    /// Takes in what inotify has reported about cgroups. Says whether to [`Discovery::look`].
    pub fn refresh(&mut self) -> bool {
        let began = Instant::now();
        let changed = self.tree.refresh() || self.tree.has_notes();
        self.paces.tree.looked(began, Pace::OFTEN);
        changed
    }

    /// Reads the whole tree anew, for what inotify may have missed. Says whether to [`Discovery::look`].
    pub fn rescan(&mut self) -> bool {
        if !self.paces.rescan.is_due() {
            return false;
        }
        let began = Instant::now();
        let changed = self.tree.rescan() || self.tree.has_notes();
        self.paces.rescan.looked(began, Pace::SELDOM);
        changed
    }

    /// Looks for running VMs, if any tenant is matched by VM. Says whether to [`Discovery::look`].
    pub fn scan_vms(&mut self, model: &Model) -> bool {
        let key = |matcher: &Match| match matcher {
            Match::Vm { vmm, name } => Some((vmm.clone(), name.clone())),
            _ => None,
        };
        let wanted: BTreeSet<Key> =
            model.tenants.iter().filter_map(|tenant| key(tenant.matcher.as_ref()?)).collect();
        if wanted.is_empty() {
            return std::mem::take(&mut self.vms) != Vms::default();
        }
        if !self.paces.vms.is_due() {
            return false;
        }
        let began = Instant::now();
        let with_strangers = self.vm_looks.is_multiple_of(STRANGERS_EVERY);
        let (root, owner) = (self.tree.root(), self.tree.owner());
        let is_wanted = |key: &Key| wanted.contains(key);
        let mut vms = running_vms(&self.proc, root, owner, &self.trust, with_strangers, is_wanted);
        if !with_strangers {
            vms.strangers = std::mem::take(&mut self.vms.strangers);
        }
        self.vm_looks += 1;
        let changed = vms != self.vms;
        self.vms = vms;
        self.paces.vms.looked(began, Pace::SELDOM);
        changed
    }

    /// Finds the model's tenants. Returns what has changed since the last time, those that went first, and what there
    /// is to say about tenants that match one cgroup, or mean what is none.
    pub fn look(&mut self, model: &Model) -> (Vec<Sighting>, Vec<String>) {
        let began = Instant::now();
        let matchers = || {
            model.tenants.iter().filter_map(|tenant| Some((tenant.name.as_str(), tenant.matcher.as_ref()?)))
        };
        let path = |matcher: &Match| match matcher {
            Match::Cgroup(path) => Some(PathBuf::from(path)),
            _ => None,
        };
        self.tree.want(matchers().filter_map(|(_, matcher)| path(matcher)).collect());
        let here =
            Here { cgroups: self.tree.cgroups(), users_units: self.tree.users_units(), vms: &self.vms };
        let now = discover(here, &self.seen.found, matchers());
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
        let lines = self.tree.notes().into_iter().chain(lines(now, &before)).collect();
        self.paces.tree.looked(began, Pace::OFTEN);
        (sightings, lines)
    }

    /// The vsock context ids of the VMs that were found, by tenant. One that two tenants' monitors claim is nobody's.
    pub fn contexts(&self) -> BTreeMap<String, Context> {
        let context = |cgroup: &Cgroup| self.vms.contexts.get(&cgroup.id)?.clone();
        let mut contexts: BTreeMap<String, Context> = (self.seen.found.iter())
            .filter_map(|(name, cgroup)| Some((name.clone(), context(cgroup)?)))
            .collect();
        let mut claims: BTreeMap<u32, u32> = BTreeMap::new();
        contexts.values().for_each(|context| *claims.entry(context.id()).or_default() += 1);
        contexts.retain(|_, context| claims[&context.id()] == 1);
        contexts
    }

    /// Looks for vCPU threads of the tenants that are VMs, or may be.
    pub fn scan_threads(&mut self, model: &Model) -> Vec<Sighting> {
        if !self.paces.threads.is_due() {
            return Vec::new();
        }
        let began = Instant::now();
        let mut sightings = Vec::new();
        for _ in &model.tenants {
            if began.elapsed() >= TURN {
                break;
            }
            self.turn = (self.turn + 1) % model.tenants.len();
            let tenant = &model.tenants[self.turn];
            let Some(cgroup) = self.seen.found.get(&tenant.name) else { continue };
            let is_vm = matches!(tenant.matcher, Some(Match::Vm { .. }));
            let found = self.threads.look(&self.tree.root().join(&cgroup.path), tenant.vcpus, is_vm);
            sightings.extend(found.map(|threads| Sighting::Threads(tenant.name.clone(), threads)));
        }
        self.paces.threads.looked(began, Pace::SELDOM);
        sightings
    }
}

/// So many cgroups are named in a line.
const SHOWN: usize = 3;

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
        Unfit::Several(paths) => {
            let shown: Vec<_> = paths.iter().take(SHOWN).map(|path| path.display().to_string()).collect();
            let shown = shown.join(", ");
            let kept = now.found.get(tenant).map_or_else(
                || "it is left out".to_owned(),
                |kept| format!("it stays in {}, where it was first", kept.path.display()),
            );
            format!("{tenant}: {} cgroups match it ({shown}), and {kept}; end the others", paths.len())
        }
        Unfit::Stranger(stranger) => {
            format!("{tenant}: not found, but a process says that it is this VM: {stranger}")
        }
    };
    let conflicts = now.conflicts.difference(&before.conflicts).map(conflict);
    conflicts.chain(now.unfit.difference(&before.unfit).map(unfit)).collect()
}
