//! Cores for tenants that share no core with others.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::ptr;
use std::sync::Arc;

use rota_model::{CpuSet, Host, Model, TenantId};

use crate::demand::Demand;
use crate::flow::whole_cpus;
use crate::partition::Item;
use crate::{CpuPlan, Infeasible, PlannedVcpu};

/// Gives each tenant that wants it cores to itself: the fewest that carry it, one after the other, those first that
/// others need least, and as long as a flow carries everybody else on the rest. From then on the tenant may use these
/// and the cores of one CPU only, and nobody else may use these.
///
/// `loads` are the demands', in ns of a hyperperiod, on CPUs that give `capacity`.
///
/// # Errors
///
/// [`Infeasible::Cores`], if no such cores were found. They may exist: which tenant gets which is not searched for.
pub(crate) fn set_apart(
    model: &Model,
    demands: &mut [Demand],
    loads: &[u64],
    cpus: &[u32],
    capacity: u64,
) -> Result<(), Infeasible> {
    let mut tenants: Vec<TenantId> = demands.iter().map(|demand| demand.tenant).collect();
    tenants.dedup();
    tenants.retain(|&tenant| model.tenants[tenant as usize].exclusive_cores);
    let cores = if tenants.is_empty() { Vec::new() } else { cores_of_several(&model.host, cpus) };
    if cores.is_empty() {
        return Ok(());
    }
    tenants.sort_by_cached_key(|&tenant| {
        let own = |(demand, load): (&Demand, &u64)| {
            (demand.tenant == tenant)
                .then(|| (demand.allowed.as_ref().map_or(cpus.len(), |all| all.len()), *load))
        };
        let own: Vec<(usize, u64)> = demands.iter().zip(loads).filter_map(own).collect();
        (own.first().map(|&(choice, _)| choice), Reverse(own.iter().map(|&(_, load)| load).sum::<u64>()))
    });
    for tenant in tenants {
        let mut choice = CoreChoice { tenant, demands, loads, cpus: cpus.len(), capacity, cores: &cores };
        let Some(chosen) = choice.choose() else {
            let entry = &model.tenants[tenant as usize];
            let cpus = entry.vcpu_cpus(0, &model.host.exclusive_cpus());
            return Err(Infeasible::Cores { tenant: entry.name.clone(), cpus });
        };
        choice.settle(&chosen);
    }
    Ok(())
}

/// Notes on every CPU of a core with siblings whose it is, if one of them carries a tenant that shares no core.
pub(crate) fn mark(model: &Model, plans: &mut [CpuPlan], vcpus: &[PlannedVcpu]) {
    if model.tenants.iter().all(|tenant| !tenant.exclusive_cores) {
        return;
    }
    for core in model.host.topology.siblings() {
        let owner = |plan: &CpuPlan| Some(vcpus[plan.slots.first()?.vcpu as usize].tenant);
        let of_core = || (0..plans.len()).filter(|&at| core.contains(plans[at].cpu));
        let owner = of_core().filter_map(|at| owner(&plans[at])).next();
        let exclusive = owner.filter(|&owner| model.tenants[owner as usize].exclusive_cores);
        for at in of_core().collect::<Vec<usize>>() {
            plans[at].exclusive_to = exclusive;
        }
    }
}

/// Has CPUs change hands within each tenant that has cores of its own, so that demands with neighbouring numbers are on
/// one core. A VM numbers the siblings of its cores in a row, if it has any. `given` are demands and the places of the
/// CPUs that they have. Nothing changes where two of one tenant's demands are not alike.
pub(crate) fn pair(
    host: &Host,
    demands: &[Demand],
    cpus: &[u32],
    given: &mut [(usize, usize)],
    is_alike: impl Fn(usize, usize) -> bool,
) {
    let place = |cpu: usize| host.topology.place(cpus[cpu]);
    let core = |cpu: usize| place(cpu).map_or((1, cpus[cpu]), |place| (0, place.core));
    let first = |cpu: usize| (0..cpu).find(|&other| core(other) == core(cpu)).unwrap_or(cpu);
    for team in given.chunk_by_mut(|one, next| demands[one.0].tenant == demands[next.0].tenant) {
        let may_change =
            |one: usize, other: usize| is_alike(one, other) && demands[one].allowed == demands[other].allowed;
        if !demands[team[0].0].is_exclusive || !team.windows(2).all(|two| may_change(two[0].0, two[1].0)) {
            continue;
        }
        let mut counts = HashMap::new();
        let mut sorted: Vec<(usize, usize, usize)> = Vec::with_capacity(team.len());
        for &(_, cpu) in team.iter() {
            let round: &mut usize = counts.entry(cpu).or_default();
            sorted.push((first(cpu), *round, cpu));
            *round += 1;
        }
        sorted.sort_unstable();
        team.iter_mut().zip(sorted).for_each(|(given, (.., cpu))| given.1 = cpu);
    }
}

/// The places of each core's CPUs, of the cores with several CPUs that are all for tenants.
fn cores_of_several(host: &Host, cpus: &[u32]) -> Vec<Vec<usize>> {
    let places =
        |core: CpuSet| core.iter().map(|cpu| cpus.binary_search(&cpu).ok()).collect::<Option<Vec<usize>>>();
    host.topology.siblings().into_iter().filter_map(places).collect()
}

/// The cores of several CPUs that are all for tenants, by CPU.
#[derive(Clone, Debug)]
pub(crate) struct Cores {
    /// The core of each CPU, if it has one of these.
    of: Vec<Option<usize>>,
    cores: Vec<Vec<usize>>,
}

impl Cores {
    pub fn new(host: &Host, cpus: &[u32]) -> Cores {
        let cores = cores_of_several(host, cpus);
        let mut of = vec![None; cpus.len()];
        for (number, core) in cores.iter().enumerate() {
            core.iter().for_each(|&cpu| of[cpu] = Some(number));
        }
        Cores { of, cores }
    }

    /// The places of the CPUs of this one's core, ascending; none if the core is this CPU alone.
    pub fn of(&self, cpu: usize) -> &[usize] {
        self.of[cpu].map_or(&[], |core| &self.cores[core])
    }
}

/// One tenant's choice of cores.
struct CoreChoice<'a> {
    tenant: TenantId,
    demands: &'a mut [Demand],
    loads: &'a [u64],
    cpus: usize,
    capacity: u64,
    /// Of several CPUs each.
    cores: &'a [Vec<usize>],
}

impl CoreChoice<'_> {
    /// Which cores the tenant gets, by CPU.
    fn choose(&self) -> Option<Vec<bool>> {
        let own: Vec<usize> =
            (0..self.demands.len()).filter(|&at| self.demands[at].tenant == self.tenant).collect();
        let mine = self.allowed(*own.first()?);
        let usable = |core: &&Vec<usize>| core.iter().filter(|&&cpu| mine[cpu]).count();
        let pressure = self.pressure();
        let mut open: Vec<&Vec<usize>> = self.cores.iter().filter(|core| usable(core) > 0).collect();
        open.sort_by_key(|core| {
            (Reverse(usable(core)), core.iter().map(|&cpu| pressure[cpu]).sum::<u64>(), core[0])
        });
        let mut chosen = vec![false; self.cpus];
        if self.carries(&chosen, true) {
            return Some(chosen);
        }
        loop {
            let next = open.iter().enumerate().find_map(|(at, core)| {
                let mut tried = chosen.clone();
                core.iter().for_each(|&cpu| tried[cpu] = true);
                let is_enough = self.carries(&tried, true);
                (is_enough || self.carries(&tried, false)).then_some((at, tried, is_enough))
            });
            let (at, tried, is_enough) = next?;
            if is_enough {
                return Some(tried);
            }
            chosen = tried;
            open.remove(at);
        }
    }

    /// Whether a flow carries everybody if the `chosen` CPUs are this tenant's alone: with these and cores of one CPU
    /// for it, or with all that it may still choose. There has to be a CPU for each vCPU whose slots come together.
    fn carries(&self, chosen: &[bool], is_final: bool) -> bool {
        let lists = self.lists(chosen, is_final);
        let own = || self.demands.iter().zip(&lists).filter(|(demand, _)| demand.tenant == self.tenant);
        let vcpus = own().count();
        if own().any(|(demand, list)| demand.is_together && list.len() < vcpus) {
            return false;
        }
        let item = |(list, &load)| Item { load, allowed: Some(list) };
        let items: Vec<Item> = lists.iter().map(|list| &**list).zip(self.loads).map(item).collect();
        whole_cpus(&items, self.cpus, self.capacity).is_ok()
    }

    /// What each demand may use then.
    fn lists(&self, chosen: &[bool], is_final: bool) -> Vec<Arc<[usize]>> {
        let mut has_siblings = vec![false; self.cpus];
        self.cores.iter().flatten().for_each(|&cpu| has_siblings[cpu] = true);
        let for_tenant = |cpu: usize| chosen[cpu] || !is_final || !has_siblings[cpu];
        // Most demands share few lists.
        let mut known: HashMap<(bool, Option<*const usize>), Arc<[usize]>> = HashMap::new();
        let mut list = |demand: &Demand| {
            let is_tenants = demand.tenant == self.tenant;
            let may_use = |cpu: &usize| if is_tenants { for_tenant(*cpu) } else { !chosen[*cpu] };
            let key = (is_tenants, demand.allowed.as_deref().map(<[usize]>::as_ptr));
            let entry = known.entry(key).or_insert_with(|| match demand.allowed.as_deref() {
                Some(allowed) => allowed.iter().copied().filter(may_use).collect(),
                None => (0..self.cpus).filter(may_use).collect(),
            });
            entry.clone()
        };
        self.demands.iter().map(&mut list).collect()
    }

    /// By CPU: whether the demand may use it.
    fn allowed(&self, demand: usize) -> Vec<bool> {
        match self.demands[demand].allowed.as_deref() {
            None => vec![true; self.cpus],
            Some(places) => {
                let mut allowed = vec![false; self.cpus];
                places.iter().for_each(|&cpu| allowed[cpu] = true);
                allowed
            }
        }
    }

    /// By CPU: the loads of those others who may not use every CPU, each divided among its CPUs.
    fn pressure(&self) -> Vec<u64> {
        let mut pressure = vec![0; self.cpus];
        let others = self.demands.iter().zip(self.loads).filter(|(demand, _)| demand.tenant != self.tenant);
        let mut run: Option<(&[usize], u64)> = None;
        let mut add = |(places, load): (&[usize], u64)| {
            places.iter().for_each(|&cpu| pressure[cpu] += load / places.len() as u64);
        };
        for (demand, &load) in others {
            let Some(places) = demand.allowed.as_deref() else { continue };
            run = match run {
                Some((last, sum)) if ptr::eq(last, places) => Some((last, sum + load)),
                last => {
                    last.into_iter().for_each(&mut add);
                    Some((places, load))
                }
            };
        }
        run.into_iter().for_each(add);
        pressure
    }

    /// Gives the tenant the CPUs, and takes them from everybody else.
    fn settle(&mut self, chosen: &[bool]) {
        let lists = self.lists(chosen, true);
        for (demand, list) in self.demands.iter_mut().zip(lists) {
            demand.allowed = Some(list);
        }
    }
}
