//! What no plan could serve and what every planner worth its name must, in whole numbers and by the simplest means:
//! augmenting paths (Ford and Fulkerson 1956), and every choice of CPUs and cores for those that want some to
//! themselves. Shares no code with the planner.

use std::collections::{BTreeSet, VecDeque};
use std::sync::LazyLock;

use rota_model::{CpuSet, Model, Share};

const ONE: u64 = Share::ONE.ppb() as u64;

/// The periods that a plan may have, in ns, descending: all divisors of the longest from 100 us up.
pub static PERIODS: LazyLock<Vec<u64>> = LazyLock::new(|| {
    let longest = 102_702_600_u64;
    (1..=longest / 100_000).filter(|by| longest.is_multiple_of(*by)).map(|by| longest / by).collect()
});
/// The oracle looks at so many periods that all vCPUs could have in common.
const COMMON_PERIODS: usize = 8;
/// A budget of fewer ns may be too short for the table's format.
const BUDGET_MIN_NS: u64 = 4 * 1_568;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// With budgets in whole ns of some common period that keeps every latency, and enough besides for what changes of
    /// task take where CPUs share vCPUs, all fits.
    Feasible,
    /// Not even with budgets in fractions of a ns and changes of task that cost nothing.
    Infeasible,
    /// A matter of less than a ns for every vCPU and period, of what changes of task take, or of budgets too short for
    /// any table.
    Open,
}

struct Vcpu {
    share: Share,
    latency_ns: u64,
    is_whole: bool,
    /// The number of its tenant, if that wants cores to itself.
    alone: Option<usize>,
    /// A bit for every CPU.
    allowed: u32,
}

/// A host with at most 32 CPUs.
pub struct Oracle {
    vcpus: Vec<Vcpu>,
    /// Bits of the CPUs that may carry reservations.
    usable: u32,
    /// Cores of several CPUs, all of them usable.
    cores: Vec<u32>,
    floor_ppb: u64,
    /// What a change of tasks and one of CPUs take together where pieces of a divided vCPU and those that they
    /// interrupt begin, in ns, and a change of tasks alone.
    piece_ns: u64,
    switch_ns: u64,
}

impl Oracle {
    pub fn new(model: &Model) -> Oracle {
        let usable = model.host.tenant_cpus();
        let exclusive = model.host.exclusive_cpus();
        let mut vcpus = Vec::new();
        for (number, tenant) in model.tenants.iter().enumerate() {
            let Some(reservation) = tenant.reservation() else { continue };
            let host_cpus = if tenant.exclusive_cores { &exclusive } else { &usable };
            vcpus.extend((0..tenant.vcpus).map(|index| Vcpu {
                share: reservation.share,
                latency_ns: reservation.latency_ns,
                // Also a share that is a whole CPU in whole ns.
                is_whole: reservation.share.of(PERIODS[0]) == PERIODS[0],
                alone: tenant.exclusive_cores.then_some(number),
                allowed: bits(&tenant.vcpu_cpus(index, host_cpus)),
            }));
        }
        let cores = model.host.topology.siblings();
        let cores = cores.iter().filter(|core| core.difference(&exclusive).is_empty()).map(bits).collect();
        let costs = model.host.costs;
        Oracle {
            vcpus,
            usable: bits(&usable),
            cores,
            floor_ppb: model.host.floor_ppb.into(),
            piece_ns: 2 * costs.switch_ns + costs.migration_ns,
            switch_ns: costs.switch_ns,
        }
    }

    pub fn verdict(&self) -> Verdict {
        let shares: Vec<u64> = self.vcpus.iter().map(|vcpu| vcpu.share.ppb().into()).collect();
        if !self.any_choice(&shares, ONE - self.floor_ppb) {
            return Verdict::Infeasible;
        }
        let keeps =
            |period: &&u64| self.divisible().all(|vcpu| wait(vcpu.share, **period) <= vcpu.latency_ns);
        let is_feasible = PERIODS.iter().filter(keeps).take(COMMON_PERIODS).any(|&period| self.fits(period));
        if is_feasible { Verdict::Feasible } else { Verdict::Open }
    }

    fn divisible(&self) -> impl Iterator<Item = &Vcpu> {
        self.vcpus.iter().filter(|vcpu| !vcpu.is_whole)
    }

    /// Whether budgets of this common period fit.
    ///
    /// If a flow carries them, one does in which vCPUs and CPUs are joined to a forest: passing work around a cycle
    /// takes an edge away. In a forest of m CPUs no CPU has parts of more than m - 1 divided vCPUs, or two of these
    /// would be joined twice. Laid out in the period, each part is one stretch, or two around another's, and
    /// interrupts no more than as many others. So 2 m changes of everything are kept back on each CPU, and one change
    /// of tasks for each vCPU.
    fn fits(&self, period: u64) -> bool {
        let cpus = u64::from(self.usable.count_ones());
        let is_apart = cpus == 1 || self.divisible().all(|vcpu| vcpu.allowed.count_ones() == 1);
        let pieces_ns = if is_apart { self.switch_ns } else { 2 * cpus * self.piece_ns };
        let capacity = period * (ONE - self.floor_ppb) / ONE;
        let Some(capacity) = capacity.checked_sub(pieces_ns) else { return false };
        let budget = |vcpu: &Vcpu| vcpu.share.of(period) + self.switch_ns;
        let is_short = |vcpu: &Vcpu| vcpu.share.of(period) < BUDGET_MIN_NS;
        let is_long = |vcpu: &Vcpu| budget(vcpu) + pieces_ns > period;
        if self.divisible().any(|vcpu| is_short(vcpu) || is_long(vcpu)) {
            return false;
        }
        self.any_choice(&self.vcpus.iter().map(budget).collect::<Vec<u64>>(), capacity)
    }

    /// Whether some choice of cores for those that share none, and of CPUs for those that want one whole, leaves enough
    /// for all: each vCPU needs `needed`, each CPU gives `capacity`.
    fn any_choice(&self, needed: &[u64], capacity: u64) -> bool {
        let allowed: Vec<u32> = self.vcpus.iter().map(|vcpu| vcpu.allowed).collect();
        // Whatever is chosen, it takes as much as this.
        let relaxed: Vec<u64> = self.loads(needed, capacity);
        if !flow_carries(&relaxed, &allowed, self.usable, capacity) {
            return false;
        }
        let mut alone: Vec<usize> = self.vcpus.iter().filter_map(|vcpu| vcpu.alone).collect();
        alone.dedup();
        self.choose_cores(&alone, self.cores.len(), &mut vec![None; self.cores.len()], &mut |owners| {
            let allowed = self.with_cores(owners);
            self.choose_wholes(0, 0, &relaxed, &allowed, self.usable, capacity)
        })
    }

    fn loads(&self, needed: &[u64], capacity: u64) -> Vec<u64> {
        let load = |(vcpu, &needed): (&Vcpu, &u64)| if vcpu.is_whole { capacity } else { needed };
        self.vcpus.iter().zip(needed).map(load).collect()
    }

    /// Tries every owner of each of the first `left` cores. Cores of CPUs that the same vCPUs may use are equal, so
    /// their owners are tried in one order only.
    fn choose_cores(
        &self,
        tenants: &[usize],
        left: usize,
        owners: &mut Vec<Option<usize>>,
        visit: &mut impl FnMut(&[Option<usize>]) -> bool,
    ) -> bool {
        let Some(core) = left.checked_sub(1).filter(|_| !tenants.is_empty()) else { return visit(owners) };
        let equal = (core + 1..owners.len()).find(|&other| self.users(core) == self.users(other));
        let choices: Vec<Option<usize>> =
            std::iter::once(None).chain(tenants.iter().map(|&id| Some(id))).collect();
        for choice in choices {
            if equal.is_some_and(|other| choice > owners[other]) {
                continue;
            }
            owners[core] = choice;
            if self.choose_cores(tenants, core, owners, visit) {
                return true;
            }
        }
        owners[core] = None;
        false
    }

    /// Which vCPUs may use each of the core's CPUs.
    fn users(&self, core: usize) -> Vec<Vec<bool>> {
        let cpus = (0..32).filter(|cpu| self.cores[core] & 1 << cpu != 0);
        cpus.map(|cpu| self.vcpus.iter().map(|vcpu| vcpu.allowed & 1 << cpu != 0).collect()).collect()
    }

    /// What each vCPU may use if cores have these owners.
    fn with_cores(&self, owners: &[Option<usize>]) -> Vec<u32> {
        let all: u32 = self.cores.iter().fold(0, |all, core| all | core);
        let of = |tenant: Option<usize>| {
            let owned = self.cores.iter().zip(owners).filter(|(_, owner)| **owner == tenant);
            owned.fold(0, |all, (core, _)| all | core)
        };
        let unowned = of(None);
        self.vcpus
            .iter()
            .map(|vcpu| vcpu.allowed & (!all | if vcpu.alone.is_some() { of(vcpu.alone) } else { unowned }))
            .collect()
    }

    /// Tries every CPU for each vCPU from `next` on that wants one whole. Equal vCPUs choose in ascending order, the
    /// next one `from` here on; of equal CPUs only the first is tried.
    fn choose_wholes(
        &self,
        next: usize,
        from: u32,
        needed: &[u64],
        allowed: &[u32],
        open: u32,
        capacity: u64,
    ) -> bool {
        // Those that have no CPU yet take as much as one, wherever it will be.
        let waiting = (0..self.vcpus.len()).filter(|&at| at >= next || !self.vcpus[at].is_whole);
        let (loads, lists): (Vec<u64>, Vec<u32>) = waiting.map(|at| (needed[at], allowed[at])).unzip();
        if !flow_carries(&loads, &lists, open, capacity) {
            return false;
        }
        let Some(whole) = (next..self.vcpus.len()).find(|&at| self.vcpus[at].is_whole) else { return true };
        let mut tried: BTreeSet<Vec<bool>> = BTreeSet::new();
        for cpu in (from..32).filter(|cpu| allowed[whole] & open & 1 << cpu != 0) {
            if !tried.insert(allowed.iter().map(|allowed| allowed & 1 << cpu != 0).collect()) {
                continue;
            }
            let rival = (whole + 1..self.vcpus.len()).find(|&at| self.vcpus[at].is_whole);
            let from = if rival.is_some_and(|rival| allowed[rival] == allowed[whole]) { cpu + 1 } else { 0 };
            if self.choose_wholes(whole + 1, from, needed, allowed, open & !(1 << cpu), capacity) {
                return true;
            }
        }
        false
    }
}

/// The longest wait of something that gets its share somewhere in every period.
fn wait(share: Share, period: u64) -> u64 {
    2 * (period - share.of(period))
}

fn bits(cpus: &CpuSet) -> u32 {
    cpus.iter().fold(0, |bits, cpu| bits | 1 << cpu)
}

/// Whether loads that may be divided at will fit on CPUs that give `capacity` each.
fn flow_carries(needed: &[u64], allowed: &[u32], open: u32, capacity: u64) -> bool {
    let mut flow = AugmentingFlow {
        allowed: allowed.iter().map(|allowed| allowed & open).collect(),
        room: [capacity; 32],
        amounts: vec![[0; 32]; needed.len()],
    };
    needed.iter().enumerate().all(|(vcpu, &needed)| flow.send(vcpu, needed))
}

struct AugmentingFlow {
    allowed: Vec<u32>,
    room: [u64; 32],
    /// By vCPU and CPU.
    amounts: Vec<[u64; 32]>,
}

impl AugmentingFlow {
    /// Finds room for so much more of a vCPU, by moving others if it has to.
    fn send(&mut self, vcpu: usize, mut needed: u64) -> bool {
        while needed > 0 {
            let Some(path) = self.path(vcpu) else { return false };
            let mut amount = needed.min(self.room[path[path.len() - 1].1]);
            for pair in path.windows(2) {
                amount = amount.min(self.amounts[pair[1].0][pair[0].1]);
            }
            for (at, &(vcpu, cpu)) in path.iter().enumerate() {
                self.amounts[vcpu][cpu] += amount;
                if let Some(&(next, _)) = path.get(at + 1) {
                    self.amounts[next][cpu] -= amount;
                }
            }
            self.room[path[path.len() - 1].1] -= amount;
            needed -= amount;
        }
        true
    }

    /// vCPUs, each with the CPU that it gets more of: the first is `vcpu`, every further one loses what the one before
    /// gets, and the last one's CPU has room.
    fn path(&self, vcpu: usize) -> Option<Vec<(usize, usize)>> {
        let mut reached_by = [usize::MAX; 32];
        let mut lost_on = vec![usize::MAX; self.allowed.len()];
        let mut open = VecDeque::from([vcpu]);
        let mut is_seen = vec![false; self.allowed.len()];
        is_seen[vcpu] = true;
        while let Some(at) = open.pop_front() {
            for cpu in (0..32).filter(|cpu| self.allowed[at] & 1 << cpu != 0) {
                if reached_by[cpu] != usize::MAX {
                    continue;
                }
                reached_by[cpu] = at;
                if self.room[cpu] > 0 {
                    let mut path = vec![(at, cpu)];
                    while path[path.len() - 1].0 != vcpu {
                        let cpu = lost_on[path[path.len() - 1].0];
                        path.push((reached_by[cpu], cpu));
                    }
                    path.reverse();
                    return Some(path);
                }
                for other in 0..self.allowed.len() {
                    if self.amounts[other][cpu] > 0 && !std::mem::replace(&mut is_seen[other], true) {
                        lost_on[other] = cpu;
                        open.push_back(other);
                    }
                }
            }
        }
        None
    }
}
