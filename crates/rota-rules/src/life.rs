//! The life cycle of tenants: events in, actions out. No I/O and no clock: the time comes with the event.
//!
//! What the scheduler shall be told follows from four things: which tenants are here, what the configuration says about
//! each, the table in force, and the next table, if one is on its way. After every event the difference between that
//! and what it was told before becomes actions. The rules:
//!
//! - A new tenant is served at once: as background if it is to be reserved, until a table has slots for it. A pod of
//!   Kubernetes' is shared until then.
//! - At most one table is on its way. What happens meanwhile goes into the one after it.
//! - A tenant is reserved while the table in force or the next one has slots for it, and in the change from one promise
//!   to another has the weaker of both.
//! - A number is free again when neither table mentions it.
//! - Who has a reservation keeps it. Who comes and does not fit is background, and is looked at again with each change.

mod admission;
mod event;
mod exchange;
mod found;
mod monitors;
mod parts;
#[cfg(test)]
mod tests;
mod threads;
mod told;

use std::collections::{BTreeMap, BTreeSet};

use rota_model::{Cgroup, Class, Host, Match, Model, Reservation, Share, Tenant, TenantId};
use rota_sched::{FoundTenant, SYSTEM, TenantKind, TenantSpec};
use rota_table::Certified;

use crate::planning::{Grants, Proposer, propose};
use crate::status::{SpareStatus, State};
use admission::Admission;
pub use event::{Action, Change, Event};
use threads::Changes;
use told::Told;

/// Changes within this time go into one plan.
const SETTLE_NS: u64 = 20_000_000;

/// QEMU has started a VM's vCPU threads, and named them if it does, within this.
const NAMED_NS: u64 = 5_000_000_000;

/// A table: what it promises.
#[derive(Clone, Debug, Default)]
struct Table {
    generation: u64,
    length_ns: u64,
    vcpus: usize,
    cpus: usize,
    /// How many of each kind that the host is to have.
    spares: Vec<u32>,
    grants: Grants,
    host: Option<Host>,
    /// Once it is published.
    adopted_at_ns: Option<u64>,
    /// It differs from the one before in nothing but who is where.
    is_exchange: bool,
}

/// A tenant that is here, or was until just now.
#[derive(Clone, Debug)]
struct Entry {
    tenant: Tenant,
    /// The system's own tenant has none.
    cgroup: Option<Cgroup>,
    present: bool,
    arrival: u64,
    since_ns: u64,
    is_vm: bool,
    threads: BTreeMap<u32, i32>,
    changes: Changes,
    /// The operator was told that they change too often.
    is_told_restless: bool,
    /// The operator was told that its vCPU threads have no names.
    is_told_nameless: bool,
    refused: Option<String>,
    told: Told,
    /// The scheduler knew it before the daemon began, and it has not been found yet.
    sought: Option<FoundTenant>,
}

impl Entry {
    /// Whether it is a VM of QEMU's that does not name its vCPU threads; once.
    fn is_nameless(&mut self, now_ns: u64) -> bool {
        let is_qemu = matches!(&self.tenant.matcher, Some(Match::Vm { vmm, .. }) if vmm == "qemu");
        let is_late = now_ns >= self.since_ns + NAMED_NS;
        is_qemu && is_late && self.threads.is_empty() && !std::mem::replace(&mut self.is_told_nameless, true)
    }
}

/// One tenant, for status and accounts.
#[derive(Clone, Debug)]
pub struct TenantView<'a> {
    /// Its number in the scheduler.
    pub id: TenantId,
    /// What the configuration says.
    pub tenant: &'a Tenant,
    /// Where it was found.
    pub cgroup: Option<&'a Cgroup>,
    /// How it is served.
    pub state: State,
    /// Why it is refused what it wishes for.
    pub refused: Option<&'a str>,
    /// Whether it has vCPU threads.
    pub is_vm: bool,
    /// When it came.
    pub since_ns: u64,
    /// What each of its vCPUs is promised by the table in force, or all of them on average.
    pub promised: Option<Reservation>,
    /// What each is promised, if parts of the total are by load.
    pub parts: &'a [Share],
}

/// The state. See the module's page.
#[derive(Debug)]
pub struct Life {
    model: Model,
    proposer: Proposer,
    entries: BTreeMap<TenantId, Entry>,
    arrivals: u64,
    in_force: Table,
    next: Option<Table>,
    /// When the next plan is due, if something has changed.
    due_ns: Option<u64>,
    /// The newest plan is in no table, since the kernel did not take that.
    is_unpublished: bool,
}

impl Life {
    /// A host with no tenant yet, but for the system's own if it has no housekeeping CPUs. Begin with [`Event::Tick`].
    pub fn new(now_ns: u64, model: Model) -> Life {
        let system = model.system().map(|place| model.tenants[place as usize].clone());
        let mut life = Life {
            model,
            proposer: Proposer::default(),
            entries: BTreeMap::new(),
            arrivals: 0,
            in_force: Table::default(),
            next: None,
            due_ns: None,
            is_unpublished: false,
        };
        if let Some(system) = system {
            life.enter(SYSTEM, now_ns, system, None);
        }
        life
    }

    /// The configuration in use: the last one that was not refused.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// When [`Event::Tick`] is due next.
    pub fn deadline_ns(&self) -> Option<u64> {
        match &self.next {
            Some(next) => next.adopted_at_ns,
            None => self.due_ns,
        }
    }

    /// Whether all that is here is served by the table in force.
    pub fn is_settled(&self) -> bool {
        self.next.is_none() && self.due_ns.is_none()
    }

    /// Generation and length in ns of the table in force; zeros before the first.
    pub fn table(&self) -> (u64, u64) {
        (self.in_force.generation, self.in_force.length_ns)
    }

    /// The spares beside the table in force.
    pub fn spares(&self) -> Vec<SpareStatus> {
        let Table { host, spares, .. } = &self.in_force;
        host.as_ref().map(|host| SpareStatus::all(host, spares)).unwrap_or_default()
    }

    /// The tenants that are here or leaving, by number.
    pub fn tenants(&self) -> impl Iterator<Item = TenantView<'_>> {
        self.entries.iter().filter(|(_, entry)| entry.sought.is_none()).map(|(&id, entry)| {
            let granted = self.in_force.grants.get(&id);
            let state = match entry.tenant.class {
                _ if !entry.present => State::Leaving,
                Class::Reserved(_) if granted.is_some() => State::Served,
                Class::Reserved(_) if entry.refused.is_some() => State::Refused,
                Class::Reserved(_) => State::Waiting,
                Class::Shared { .. } | Class::Background => State::Served,
            };
            TenantView {
                id,
                tenant: &entry.tenant,
                cgroup: entry.cgroup.as_ref(),
                state,
                refused: entry.refused.as_deref(),
                is_vm: entry.is_vm,
                since_ns: entry.since_ns,
                promised: granted.and_then(Tenant::reservation),
                parts: granted.map_or(&[], |granted| &granted.team.parts),
            }
        })
    }

    /// Takes in one event.
    pub fn step(&mut self, now_ns: u64, event: Event) -> Vec<Action> {
        let mut said = Vec::new();
        match event {
            Event::Configured(model) => self.configured(now_ns, model, &mut said),
            Event::Appeared { tenant, cgroup } => self.appeared(now_ns, &tenant, cgroup, &mut said),
            Event::Vanished { tenant } => self.vanished(now_ns, &tenant, &mut said),
            Event::Threads { tenant, threads } => self.threads(now_ns, &tenant, threads, &mut said),
            Event::Parted { tenant, parts } => self.parted(now_ns, tenant, parts, &mut said),
            Event::Installed { generation, adopted_at_ns } => {
                if let Some(next) = &mut self.next {
                    (next.generation, next.adopted_at_ns) = (generation, Some(adopted_at_ns));
                }
            }
            Event::NotInstalled { reason, retry_at_ns } => {
                said.push(format!("the table could not be installed, the one in force stays: {reason}"));
                self.next = None;
                self.is_unpublished = true;
                self.due_ns = Some(retry_at_ns);
            }
            Event::Tick => {}
        }
        self.follow_vms(now_ns, &mut said);
        self.adopt(now_ns, &mut said);
        let table = self.plan(now_ns, &mut said);
        let mut actions: Vec<Action> = said.into_iter().map(Action::Say).collect();
        self.reconcile(&mut actions);
        actions.extend(table.map(Action::Install));
        actions
    }

    fn configured(&mut self, now_ns: u64, model: Model, said: &mut Vec<String>) {
        if model.host.housekeeping != self.model.host.housekeeping {
            said.push(format!(
                "the edit is not used: housekeeping CPUs change from \"{}\" to \"{}\", which needs a restart",
                self.model.host.housekeeping, model.host.housekeeping
            ));
            return;
        }
        let kept = self.with_parts(&model.tenants);
        let wishes: BTreeMap<&str, &Tenant> =
            kept.iter().map(|tenant| (tenant.name.as_str(), tenant)).collect();
        if model.host != self.model.host
            && let Err(reason) = self.check_host(&model.host, &wishes)
        {
            said.push(format!("the edit is not used: the edited host cannot keep its promises: {reason}"));
            return;
        }
        for entry in self.entries.values_mut().filter(|entry| entry.present) {
            if let Some(tenant) = wishes.get(entry.tenant.name.as_str())
                && **tenant != entry.tenant
            {
                entry.tenant = (*tenant).clone();
                said.push(format!("{}: configured anew: {}", tenant.name, describe(tenant)));
            }
        }
        self.model = model;
        self.change(now_ns);
    }

    /// Whether an edited host carries those who have a reservation: as they wish now, or as they are granted.
    fn check_host(&self, host: &Host, wishes: &BTreeMap<&str, &Tenant>) -> Result<(), String> {
        let granted: Grants = self.granted();
        let wished: Grants = granted
            .iter()
            .filter_map(|(&id, granted)| Some((id, wishes.get(granted.name.as_str()).copied()?.clone())))
            .filter(|(_, tenant)| tenant.reservation().is_some())
            .collect();
        propose(host, &wished).or_else(|_| propose(host, &granted)).map_err(|refusal| refusal.to_string())?;
        Ok(())
    }

    fn appeared(&mut self, now_ns: u64, name: &str, cgroup: Cgroup, said: &mut Vec<String>) {
        let Some(tenant) = self.model.tenants.iter().find(|tenant| tenant.name == name).cloned() else {
            return;
        };
        // Two of one name cannot be here: the one that was has gone unseen.
        self.vanished(now_ns, name, said);
        if let Some(id) = self.sought(&cgroup) {
            return self.recognise(now_ns, id, (tenant, Some(cgroup)), said);
        }
        said.push(format!("{name}: appeared in cgroup {}: {}", cgroup.path.display(), describe(&tenant)));
        let id = self.free_id();
        self.enter(id, now_ns, tenant, Some(cgroup));
    }

    fn free_id(&self) -> TenantId {
        let free = (SYSTEM + 1..).find(|id| !self.entries.contains_key(id));
        free.expect("fewer tenants than numbers")
    }

    fn enter(&mut self, id: TenantId, now_ns: u64, tenant: Tenant, cgroup: Option<Cgroup>) {
        let is_vm = matches!(tenant.matcher, Some(Match::Vm { .. }));
        let entry = Entry {
            tenant,
            cgroup,
            present: true,
            arrival: self.arrivals,
            since_ns: now_ns,
            is_vm,
            threads: BTreeMap::new(),
            changes: Changes::new(now_ns),
            is_told_restless: false,
            is_told_nameless: false,
            refused: None,
            told: Told::default(),
            sought: None,
        };
        self.arrivals += 1;
        self.entries.insert(id, entry);
        self.change(now_ns);
    }

    fn vanished(&mut self, now_ns: u64, name: &str, said: &mut Vec<String>) {
        if let Some(entry) = present(&mut self.entries, name) {
            entry.present = false;
            said.push(format!("{name}: gone"));
            self.change(now_ns);
        }
    }

    fn threads(&mut self, now_ns: u64, name: &str, threads: BTreeMap<u32, i32>, said: &mut Vec<String>) {
        let Some(entry) = present(&mut self.entries, name) else { return };
        let (threads, waits) = entry.changes.take(now_ns, &entry.threads, threads);
        if waits && !std::mem::replace(&mut entry.is_told_restless, true) {
            said.push(format!("{name}: its vCPU threads change too often; new ones wait some seconds each"));
        }
        if entry.threads == threads {
            said.extend(entry.is_nameless(now_ns).then(|| {
                format!(
                    "{name}: none of its threads is named as a vCPU, so none has its own slots; start QEMU with -name \
                     guest=...,debug-threads=on"
                )
            }));
            return;
        }
        entry.is_vm |= !threads.is_empty();
        let vcpus = entry.tenant.vcpus;
        let spare = threads.keys().filter(|index| **index >= vcpus).count();
        said.push(match spare {
            0 => format!("{name}: {} vCPU threads of {vcpus}", threads.len()),
            _ => format!(
                "{name}: {} vCPU threads, but vcpus = {vcpus}: {spare} are served as the monitor's own threads; \
                 raise vcpus or give the VM fewer",
                threads.len()
            ),
        });
        entry.threads = threads;
    }

    /// Something has changed that the next plan has to look at.
    fn change(&mut self, now_ns: u64) {
        self.due_ns.get_or_insert(now_ns + SETTLE_NS);
    }

    /// The next table comes into force when its time has come.
    fn adopt(&mut self, now_ns: u64, said: &mut Vec<String>) {
        let Some(next) = self.next.take_if(|next| next.adopted_at_ns.is_some_and(|at_ns| at_ns <= now_ns))
        else {
            return;
        };
        if next.is_exchange {
            self.in_force = next;
            return;
        }
        said.push(format!(
            "table {} in force: {} vCPUs of {} tenants on {} CPUs, {:.3} ms long",
            next.generation,
            next.vcpus,
            next.grants.len(),
            next.cpus,
            next.length_ns as f64 / 1e6
        ));
        for (id, granted) in &next.grants {
            if self.in_force.grants.get(id).map(|before| before.class) != Some(granted.class) {
                said.push(format!("{}: promised {}", granted.name, describe(granted)));
            }
        }
        self.in_force = next;
    }

    /// The grants of the newest table that still hold: of those who are here and still want a reservation.
    fn granted(&self) -> Grants {
        let newest = self.next.as_ref().unwrap_or(&self.in_force);
        let holds = |id: &TenantId| {
            let entry = self.entries.get(id);
            entry.is_some_and(|entry| entry.present && entry.tenant.reservation().is_some())
        };
        newest.grants.iter().filter(|(id, _)| holds(id)).map(|(id, tenant)| (*id, tenant.clone())).collect()
    }

    /// Plans if it is time to, and says who does not fit.
    fn plan(&mut self, now_ns: u64, said: &mut Vec<String>) -> Option<Certified> {
        if self.next.is_some() {
            return None;
        }
        self.give_up(now_ns, said);
        self.due_ns.take_if(|due_ns| *due_ns <= now_ns)?;
        let mut reserved: Vec<(TenantId, &Entry)> = self
            .entries
            .iter()
            .filter(|(_, entry)| entry.present && entry.tenant.reservation().is_some())
            .map(|(id, entry)| (*id, entry))
            .collect();
        reserved.sort_by_key(|(_, entry)| entry.arrival);

        let host = &self.model.host;
        let granted = self.granted();
        // An edited host may carry the new wishes only; `check_host` has seen that it carries either.
        let same_host = self.in_force.host.as_ref() == Some(host);
        let keeps = granted.is_empty() || same_host || propose(host, &granted).is_ok();
        let granted = if keeps { granted } else { Grants::new() };
        let wishes: Vec<(TenantId, &Tenant)> = reserved
            .iter()
            .map(|(id, entry)| (*id, &entry.tenant))
            .filter(|(id, tenant)| granted.get(id) != Some(tenant))
            .collect();
        let admission = Admission::decide(host, &mut self.proposer, granted, &wishes);

        let is_other = !same_host || std::mem::take(&mut self.is_unpublished);
        let changed = admission.grants != self.in_force.grants || (is_other && !admission.grants.is_empty());
        let proposal = match admission.proposal {
            _ if !changed => None,
            Some(proposal) => Some(proposal),
            None => admission
                .proposer
                .propose(host, &admission.grants)
                .map_err(|refusal| said.push(format!("the table in force stays, for now: {refusal}")))
                .ok(),
        };
        let (grants, mut refused, host) = (admission.grants, admission.refused, host.clone());
        self.take_back_parts(&grants, &mut refused, said);
        self.refuse(refused, said);
        let proposal = proposal?;
        said.push(format!("the next table: {}", proposal.change));
        self.next = Some(Table {
            generation: 0,
            length_ns: proposal.length_ns,
            vcpus: proposal.vcpus,
            cpus: proposal.cpus,
            spares: proposal.spares,
            grants,
            host: Some(host),
            adopted_at_ns: None,
            is_exchange: false,
        });
        Some(proposal.table)
    }

    fn refuse(&mut self, mut refused: BTreeMap<TenantId, String>, said: &mut Vec<String>) {
        for (id, entry) in &mut self.entries {
            let reason = refused.remove(id);
            if let Some(reason) = &reason
                && entry.refused.as_ref() != Some(reason)
            {
                let keeps = match (self.in_force.grants.contains_key(id), entry.tenant.class_without_slots())
                {
                    (true, _) => "keeps what it has",
                    (false, Class::Shared { .. }) => "served as shared",
                    (false, _) => "served as background",
                };
                said.push(format!("{}: does not fit, {keeps}: {reason}", entry.tenant.name));
            }
            entry.refused = reason;
        }
    }

    /// Whether a table that is or may come into force has slots for it.
    fn is_mentioned(&self, id: TenantId) -> bool {
        self.in_force.grants.contains_key(&id)
            || self.next.as_ref().is_some_and(|next| next.grants.contains_key(&id))
    }

    /// Makes what the scheduler was told what it shall be told.
    fn reconcile(&mut self, actions: &mut Vec<Action>) {
        let ids: Vec<TenantId> = self.entries.keys().copied().collect();
        let mut free = BTreeSet::new();
        for id in ids {
            let mentioned = self.is_mentioned(id);
            let Some(entry) = self.entries.get(&id).filter(|entry| entry.sought.is_none()) else { continue };
            let shall = if entry.present {
                self.shall(id, entry)
            } else {
                // Its number, and what it was, last as long as a table speaks of them.
                Told { spec: entry.told.spec.clone().filter(|_| mentioned), ..Told::default() }
            };
            if !entry.present && !mentioned {
                free.insert(id);
            }
            if let Some(entry) = self.entries.get_mut(&id) {
                told::tell(id, &entry.told, &shall, actions);
                entry.told = shall;
            }
        }
        self.entries.retain(|id, _| !free.contains(id));
    }

    /// What the scheduler shall know about a tenant that is here.
    fn shall(&self, id: TenantId, entry: &Entry) -> Told {
        let now = self.in_force.grants.get(&id);
        let next = self.next.as_ref().and_then(|next| next.grants.get(&id));
        let reservations = [now, next].into_iter().flatten().filter_map(Tenant::reservation);
        let class = match reservations.reduce(weaker) {
            Some(reservation) => Class::Reserved(reservation),
            None => entry.tenant.class_without_slots(),
        };
        // No more than what each table has slots for, or the scheduler would take it for a tenant without any.
        let granted = [now, next].into_iter().flatten().map(|tenant| tenant.vcpus).min();
        let vcpus = granted.unwrap_or(entry.tenant.vcpus);
        let kind = if entry.is_vm { TenantKind::Vm } else { TenantKind::Container };
        let bound = entry.threads.iter().filter(|(index, _)| **index < vcpus);
        Told {
            spec: Some(TenantSpec {
                id,
                class,
                vcpus,
                kind,
                oversubscribe: entry.tenant.oversubscribe,
                monitor: self.monitor(entry),
            }),
            cgroup: entry.cgroup.as_ref().map(|cgroup| cgroup.id),
            threads: bound.map(|(index, tid)| (*tid, *index)).collect(),
        }
    }
}

fn present<'a>(entries: &'a mut BTreeMap<TenantId, Entry>, name: &str) -> Option<&'a mut Entry> {
    entries.values_mut().find(|entry| entry.present && entry.tenant.name == name)
}

/// What holds while one promise is replaced by another.
fn weaker(one: Reservation, other: Reservation) -> Reservation {
    Reservation {
        share: one.share.min(other.share),
        latency_ns: one.latency_ns.max(other.latency_ns),
        capped: one.capped && other.capped,
    }
}

/// A tenant's class in a few words.
fn describe(tenant: &Tenant) -> String {
    match tenant.class {
        Class::Reserved(Reservation { share, latency_ns, capped }) => {
            let vcpus =
                if tenant.vcpus == 1 { "1 vCPU".to_owned() } else { format!("{} vCPUs", tenant.vcpus) };
            let capped = if capped { ", capped" } else { "" };
            format!("{vcpus} with share {share}, latency {} ms{capped}", latency_ns as f64 / 1e6)
        }
        Class::Shared { weight } => format!("shared, weight {weight}"),
        Class::Background => "background".to_owned(),
    }
}
