//! A plan that is kept up as tenants come, change and go.

mod outlook;

use std::collections::BTreeMap;
use std::fmt;

use rota_model::{Class, CpuSet, Model, Placement, Team, Tenant, TenantId};

use crate::demand::Demand;
use crate::edit::{Edit, Newcomer, restock};
use crate::lay_out::refused;
use crate::period::{Choice, Task, task};
use crate::plan::Ground;
use crate::roster::Roster;
use crate::swap::{Seat, Unequal, VcpuKey};
use crate::{Infeasible, Options, Plan};
pub use outlook::Outlook;

/// The plan of a host, and what it takes to change it CPU by CPU.
///
/// It begins with a full plan, with the host's spares where there is room for them. From then on an edit plans only
/// the CPUs concerned: those that a vCPU leaves, and one CPU for each vCPU that comes; a CPU's timetable depends on
/// nothing but the tasks that it carries. Only if that does not give everybody a place, or if nobody is here yet, all
/// is planned anew as [`plan`](crate::plan()) would. So whatever has a full plan is admitted. All is planned anew, too,
/// if vCPUs of one tenant came to be on one CPU that a full plan keeps apart, or if vCPUs come whose slots come
/// together. The same edits in the same order give the same plans.
#[derive(Clone, Debug)]
pub struct Planner {
    /// Numbers that no tenant has are background tenants here, which have no reservations.
    model: Model,
    ground: Ground,
    roster: Roster,
}

/// What an edit did to the plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The CPUs whose slots may differ from before; a CPU that is not here has the very slots that it had. A CPU that
    /// one vCPU has to itself still has one slot, as long as the table.
    pub cpus: CpuSet,
    /// All was planned anew, because not everybody fitted otherwise or nobody was here before.
    pub is_full: bool,
    /// How many vCPUs took a spare, which needs no plan.
    pub spares: u32,
}

impl Change {
    /// This one and then another.
    #[must_use]
    pub fn and(&self, other: &Change) -> Change {
        let cpus = self.cpus.iter().chain(other.cpus.iter()).collect();
        Change { cpus, is_full: self.is_full || other.is_full, spares: self.spares + other.spares }
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.spares {
            0 => {}
            1 => f.write_str("1 spare taken, ")?,
            spares => write!(f, "{spares} spares taken, ")?,
        }
        match (self.is_full, self.cpus.len()) {
            (true, _) => f.write_str("all CPUs planned anew"),
            (false, 0) => f.write_str("no CPU changed"),
            (false, 1) => write!(f, "CPU {} changed", self.cpus),
            (false, _) => write!(f, "CPUs {} changed", self.cpus),
        }
    }
}

/// Whose vCPUs go and come by an edit.
struct Wishes {
    gone: Vec<u32>,
    /// If the slots of one come together with others', which CPUs it gets is a question for all who are here.
    newcomers: Vec<Newcomer>,
    /// Every tenant's vCPUs that stay, by index, and the place of each other among the newcomers.
    teams: Vec<(TenantId, Vec<Result<u32, usize>>)>,
}

/// Edits by tenant: what it is from now on, or nothing if it goes.
pub type Edits = BTreeMap<TenantId, Option<Tenant>>;

impl Planner {
    /// Plans every reservation of the model.
    ///
    /// # Errors
    ///
    /// [`Infeasible`], if not every promise can be kept.
    pub fn new(model: Model, options: &Options) -> Result<Planner, Infeasible> {
        let mut ground = Ground::new(&model.host, options);
        let roster = ground.plan(&model, None)?;
        Ok(Planner { model, ground, roster })
    }

    /// What is planned. A number that is free again is a background tenant without a name.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// The plan as it is now. This takes time linear in the number of slots.
    pub fn plan(&self) -> Plan {
        self.roster.plan(&self.model, &self.ground.places.cpus)
    }

    /// Adds a tenant, or changes the one that has this number. Numbers should be small: they are places in a list.
    ///
    /// # Errors
    ///
    /// [`Infeasible`], if not every promise can be kept; then nothing has changed.
    pub fn admit(&mut self, id: TenantId, tenant: Tenant) -> Result<Change, Infeasible> {
        self.update(Edits::from([(id, Some(tenant))]))
    }

    /// Takes a tenant out.
    pub fn remove(&mut self, id: TenantId) -> Change {
        self.update(Edits::from([(id, None)])).expect("who goes always can")
    }

    /// Prepares as many spares as the host is to have, as far as there is room beside those who are here.
    pub fn restock(&mut self) -> Change {
        let cpus = restock(&self.model, &mut self.ground, &mut self.roster);
        let cpus = cpus.iter().map(|&place| self.ground.places.cpus[place]).collect();
        Change { cpus, is_full: false, spares: 0 }
    }

    /// Where every vCPU with a reservation has its slots, by tenant and index.
    pub fn seats(&self) -> Vec<Seat> {
        self.roster.seats(&self.ground.places.cpus)
    }

    /// Has two vCPUs that are promised the same change places. Nobody else moves, and every promise is kept as before.
    ///
    /// # Errors
    ///
    /// [`Unequal`], if they are not interchangeable; then nothing has changed.
    pub fn swap(&mut self, one: VcpuKey, other: VcpuKey) -> Result<Change, Unequal> {
        let places = self.roster.swap(one, other)?;
        let cpus = places.into_iter().map(|place| self.ground.places.cpus[place]).collect();
        Ok(Change { cpus, is_full: false, spares: 0 })
    }

    /// Makes several edits at once.
    ///
    /// # Errors
    ///
    /// [`Infeasible`], if not every promise can be kept; then nothing has changed.
    pub fn update(&mut self, edits: Edits) -> Result<Change, Infeasible> {
        if self.roster.is_empty() && !edits.is_empty() {
            return self.plan_all(edits);
        }
        let Wishes { gone, newcomers, teams } = self.wishes(&edits)?;
        if newcomers.iter().any(|newcomer| newcomer.demand.is_in_gang()) {
            return self.plan_all(edits);
        }
        let edit = Edit::new(&self.model, &mut self.ground, &mut self.roster);
        let Some(done) = edit.run(&gone, newcomers) else { return self.plan_all(edits) };
        let mut is_crowded = false;
        for (id, team) in teams {
            let has_come = team.iter().any(Result::is_err);
            let number = |vcpu: Result<u32, usize>| vcpu.unwrap_or_else(|place| done.vcpus[place]);
            self.roster.set_of_tenant(id, team.into_iter().map(number).collect());
            is_crowded |= has_come && self.roster.is_crowded(id);
        }
        self.exchange(edits);
        if is_crowded && let Some(change) = self.spread() {
            return Ok(change);
        }
        let cpus = done.cpus.iter().map(|&place| self.ground.places.cpus[place]).collect();
        Ok(Change { cpus, is_full: false, spares: done.spares })
    }

    /// Who goes and who comes by these edits.
    fn wishes(&mut self, edits: &Edits) -> Result<Wishes, Infeasible> {
        let mut gone = Vec::new();
        let mut newcomers = Vec::new();
        let mut teams = Vec::with_capacity(edits.len());
        for (&id, tenant) in edits {
            let mut demands = Vec::new();
            if let Some(tenant) = tenant {
                self.ground.places.demand(id, tenant, &mut demands)?;
            }
            let old = self.roster.of_tenant(id);
            gone.extend(old.iter().skip(demands.len()));
            let mut team = Vec::with_capacity(demands.len());
            for (at, demand) in demands.into_iter().enumerate() {
                let old = old.get(at).map(|&vcpu| (vcpu, self.roster.vcpu(vcpu)));
                if let Some((vcpu, _)) = old.filter(|(_, old)| old.demand == demand) {
                    team.push(Ok(vcpu));
                    continue;
                }
                gone.extend(old.map(|(vcpu, _)| vcpu));
                let before = old.and_then(|(_, old)| self.roster.groups[old.group].single());
                let tasks = self.tasks(&demand, tenant.as_ref().map_or("", |tenant| &tenant.name))?;
                team.push(Err(newcomers.len()));
                newcomers.push(Newcomer { demand, tasks, before });
            }
            teams.push((id, team));
        }
        Ok(Wishes { gone, newcomers, teams })
    }

    /// Plans all anew if fewer vCPUs of one tenant share a CPU so, and no more are divided.
    fn spread(&mut self) -> Option<Change> {
        if self.ground.placement == Placement::BestFit {
            return None;
        }
        let roster = self.ground.plan(&self.model, None).ok()?;
        if !is_better(&roster, self.roster.burdens()) {
            return None;
        }
        self.roster = roster;
        Some(Change { cpus: self.model.host.tenant_cpus(), is_full: true, spares: 0 })
    }

    /// With the longest period, and with less waste by rounding.
    fn tasks(&self, demand: &Demand, tenant: &str) -> Result<[Task; 2], Infeasible> {
        let switch_ns = self.model.host.costs.switch_ns;
        let one = |choice| {
            task(&demand.reservation, choice, switch_ns)
                .map_err(|unkept| refused(tenant, &demand.reservation, unkept, switch_ns))
        };
        Ok([one(Choice::Longest)?, one(Choice::LeastWaste)?])
    }

    fn plan_all(&mut self, edits: Edits) -> Result<Change, Infeasible> {
        let before = self.exchange(edits);
        match self.ground.plan(&self.model, None) {
            Ok(roster) => {
                self.roster = roster;
                Ok(Change { cpus: self.model.host.tenant_cpus(), is_full: true, spares: 0 })
            }
            Err(infeasible) => {
                self.exchange(before);
                Err(infeasible)
            }
        }
    }

    /// Makes the edits in the model, and returns those that would undo it.
    fn exchange(&mut self, edits: Edits) -> Edits {
        let tenants = &mut self.model.tenants;
        let exchange = |(id, tenant): (TenantId, Option<Tenant>)| {
            let place = id as usize;
            if tenants.len() <= place {
                tenants.resize_with(place + 1, nobody);
            }
            let before = std::mem::replace(&mut tenants[place], tenant.unwrap_or_else(nobody));
            (id, Some(before))
        };
        edits.into_iter().map(exchange).collect()
    }
}

/// Whether a plan from nothing keeps a tenant's vCPUs apart that are together in one with these burdens, and divides no
/// more.
fn is_better(roster: &Roster, (divided_now, pairs_now): (usize, u64)) -> bool {
    let (divided, pairs) = roster.burdens();
    divided <= divided_now && pairs < pairs_now
}

/// In place of a tenant that is not here.
fn nobody() -> Tenant {
    Tenant {
        name: String::new(),
        class: Class::Background,
        vcpus: 1,
        affinity: None,
        pinned: false,
        exclusive_cores: false,
        oversubscribe: true,
        team: Team::default(),
        matcher: None,
    }
}
