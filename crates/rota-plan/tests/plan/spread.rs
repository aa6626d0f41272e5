//! vCPUs of one tenant are on different CPUs wherever there is room: random small hosts, against all partitions.

use std::collections::BTreeMap;

use rota_model::{Costs, CpuSet, Host, Model, Reservation, Share, Tenant};
use rota_plan::{Options, Placement, Plan, Planner, plan};

use crate::checker::check;
use crate::models::{MS, host, model, on, reserved};

const WHOLE: u64 = Share::ONE.ppb() as u64;

/// Sebastiano Vigna's splitmix64.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u32) -> u32 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut next = self.0;
        next = (next ^ (next >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        next = (next ^ (next >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((next ^ (next >> 31)) % u64::from(end)) as u32
    }

    fn one_of<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u32) as usize]
    }
}

/// 2 to 4 CPUs and up to 8 vCPUs, of tenants that have 1 to 4 each. Every fourth tenant may not use every CPU, every
/// second host has costs and a floor.
fn draw(random: &mut Random) -> Model {
    let cpus = 2 + random.below(3);
    let is_plain = random.below(2) == 0;
    let floor_ppb = if is_plain { 0 } else { Host::FLOOR_PPB };
    let costs = if is_plain { Costs::default() } else { Costs::DEFAULT };
    let host = Host { floor_ppb, costs, ..host(&format!("0-{}", cpus - 1), "") };
    let most = 1 + random.below(18);
    let mut left = 2 + random.below(7);
    let mut tenants: Vec<Tenant> = Vec::new();
    while left > 0 {
        let vcpus = (1 + random.below(4)).min(left);
        left -= vcpus;
        let share = if random.below(20) == 0 { 20 } else { 1 + random.below(most) };
        let latency_ns = random.one_of(&[2, 10, 10, 50]) * MS;
        let tenant = reserved(&format!("t{}", tenants.len()), vcpus, f64::from(share) / 20.0, latency_ns);
        let first = random.below(cpus);
        let last = (first + 1 + random.below(2)).min(cpus - 1);
        let is_choosy = random.below(4) == 0;
        tenants.push(if is_choosy { on(&format!("{first}-{last}"), tenant) } else { tenant });
    }
    model(host, tenants)
}

/// By tenant and CPU, how many vCPUs. One that is divided is on each of its CPUs.
fn counts(plan: &Plan) -> BTreeMap<(u32, u32), u32> {
    let mut counts = BTreeMap::new();
    for vcpu in &plan.vcpus {
        vcpu.cpus.iter().for_each(|&cpu| *counts.entry((vcpu.tenant, cpu)).or_default() += 1);
    }
    counts
}

/// How many pairs of vCPUs of one tenant are on one CPU.
fn pairs(plan: &Plan) -> u32 {
    counts(plan).values().map(|count| count * (count - 1) / 2).sum()
}

/// All ways to put whole vCPUs on CPUs.
struct Search<'a> {
    model: &'a Model,
    /// Tenant, and the CPUs that it may use.
    vcpus: Vec<(usize, Vec<u32>)>,
    /// By vCPU that has one.
    cpus: Vec<u32>,
}

impl Search<'_> {
    fn new(model: &Model) -> Search<'_> {
        let usable = model.host.tenant_cpus();
        let of = |(number, tenant): (usize, &Tenant)| {
            let cpus = |index| (number, tenant.vcpu_cpus(index, &usable).iter().collect());
            (0..tenant.vcpus).map(cpus).collect::<Vec<_>>()
        };
        let reserved = |(_, tenant): &(usize, &Tenant)| tenant.reservation().is_some();
        let vcpus = model.tenants.iter().enumerate().filter(reserved).flat_map(of).collect();
        Search { model, vcpus, cpus: Vec::new() }
    }

    fn reservation(&self, vcpu: usize) -> Reservation {
        self.model.tenants[self.vcpus[vcpu].0].reservation().unwrap()
    }

    /// Whether one way has fewer than so many pairs of vCPUs of one tenant on one CPU, and can be served.
    fn finds_fewer_than(&mut self, pairs: u32) -> bool {
        let next = self.cpus.len();
        if pairs == 0 {
            return false;
        }
        if next == self.vcpus.len() {
            return self.can_be_served();
        }
        let (tenant, allowed) = self.vcpus[next].clone();
        for cpu in allowed {
            let here = || (0..next).filter(|&vcpu| self.cpus[vcpu] == cpu);
            let load: u64 = here().map(|vcpu| u64::from(self.reservation(vcpu).share.ppb())).sum();
            let share = u64::from(self.reservation(next).share.ppb());
            let has_room = if share == WHOLE {
                load == 0
            } else {
                load + share <= WHOLE - u64::from(self.model.host.floor_ppb)
            };
            let beside = here().filter(|&vcpu| self.vcpus[vcpu].0 == tenant).count() as u32;
            if !has_room || beside >= pairs {
                continue;
            }
            self.cpus.push(cpu);
            let found = self.finds_fewer_than(pairs - beside);
            self.cpus.pop();
            if found {
                return true;
            }
        }
        false
    }

    /// Whether the planner has a plan where each vCPU has no other CPU to go to.
    fn can_be_served(&self) -> bool {
        let alone = |(vcpu, &cpu): (usize, &u32)| Tenant {
            vcpus: 1,
            affinity: Some(CpuSet::from_iter([cpu])),
            ..self.model.tenants[self.vcpus[vcpu].0].clone()
        };
        let tenants = self.cpus.iter().enumerate().map(alone).collect();
        plan(&Model { host: self.model.host.clone(), tenants }, &Options::default()).is_ok()
    }
}

/// The CPUs of a tenant's vCPUs, by index.
fn cpus_of(plan: &Plan, tenant: u32) -> Vec<Vec<u32>> {
    plan.vcpus.iter().filter(|vcpu| vcpu.tenant == tenant).map(|vcpu| vcpu.cpus.clone()).collect()
}

/// The emptiest CPU of all would be the one that has the first vCPU already.
#[test]
fn two_vcpus_are_apart_beside_fuller_cpus() {
    let others = || (0..2).map(|number| reserved(&format!("o{number}"), 1, 0.45, 10 * MS));
    let tenants = std::iter::once(reserved("vm", 2, 0.2, 10 * MS)).chain(others());
    let mut model = model(host("0-3", "0"), tenants);
    assert_eq!(cpus_of(&plan(&model, &Options::default()).unwrap(), 0), [[3], [1]]);
    let packed = plan(&model, &Options { placement: Placement::BestFit }).unwrap();
    assert_eq!(cpus_of(&packed, 0), [[2], [2]]);
    // Who comes last has the same, and who grows.
    let vm = model.tenants.remove(0);
    let mut planner = Planner::new(model, &Options::default()).unwrap();
    assert!(!planner.admit(2, vm.clone()).unwrap().is_full);
    assert_eq!(cpus_of(&planner.plan(), 2), [[3], [1]]);
    planner.admit(2, Tenant { vcpus: 1, ..vm.clone() }).unwrap();
    assert!(!planner.admit(2, vm.clone()).unwrap().is_full);
    assert_eq!(cpus_of(&planner.plan(), 2), [[3], [1]]);
    planner.admit(2, Tenant { vcpus: 3, ..vm }).unwrap();
    assert_eq!(cpus_of(&planner.plan(), 2), [[3], [1], [2]]);
}

/// If a tenant that came has vCPUs on one CPU that it alone would not have there, then no partition is better.
#[test]
fn who_comes_or_grows_is_apart_if_it_can_be() {
    let mut random = Random(1);
    let (mut full, mut edits, mut checked) = (0, 0, 0);
    for _ in 0..400 {
        let Model { host, tenants } = draw(&mut random);
        let cpus = host.cpus.len() as u32;
        let mut planner = Planner::new(model(host, []), &Options::default()).unwrap();
        for _ in 0..12 {
            let id = random.below(tenants.len() as u32);
            let vcpus = random.below(5);
            let tenant = Tenant { vcpus, ..tenants[id as usize].clone() };
            let before = planner.plan();
            let had = cpus_of(&before, id).len() as u32;
            if vcpus == 0 {
                planner.remove(id);
                continue;
            }
            if before.vcpus.len() as u32 - had + vcpus > 10 {
                continue;
            }
            let Ok(change) = planner.admit(id, tenant.clone()) else { continue };
            (full, edits) = (full + u32::from(change.is_full), edits + 1);
            let plan = planner.plan();
            check(planner.model(), &plan).unwrap();
            let own = counts(&plan).into_iter().filter(|((tenant, _), _)| *tenant == id);
            let most = own.map(|(_, count)| count).max().unwrap();
            let wholes = plan.vcpus.iter().filter(|vcpu| vcpu.share == Share::ONE).count() as u32;
            let usable =
                tenant.affinity.map_or(cpus.saturating_sub(wholes), |affinity| affinity.len() as u32);
            if vcpus > had && most > vcpus.div_ceil(usable.max(1)) {
                checked += 1;
                let found = Search::new(planner.model()).finds_fewer_than(pairs(&plan));
                assert!(!found, "{id} needs not be on one CPU: {:#?}", planner.model());
            }
        }
    }
    println!("{edits} edits, {full} of them full; {checked} left a tenant with vCPUs on one CPU by need");
    assert!(checked > 10 && full < edits * 2 / 3, "{edits} edits, {full} of them full; {checked} by need");
}

/// No partition that can be served has fewer pairs of vCPUs of one tenant on one CPU than the plan.
/// `ROTA_STACKED=100000` draws more hosts.
#[test]
fn none_is_stacked_without_need() {
    let hosts = std::env::var("ROTA_STACKED").unwrap_or("503".into());
    let hosts: u32 = hosts.parse().expect("ROTA_STACKED=NUMBER");
    let mut random = Random(503);
    let (mut planned, mut stacked, mut divided) = (0, 0, 0);
    while planned < hosts {
        let model = draw(&mut random);
        let Ok(plan) = plan(&model, &Options::default()) else { continue };
        check(&model, &plan).unwrap_or_else(|error| panic!("{model:#?}: {error}"));
        let pairs = pairs(&plan);
        assert!(
            !Search::new(&model).finds_fewer_than(pairs),
            "{pairs} pairs on one CPU without need: {model:#?}"
        );
        planned += 1;
        stacked += u32::from(pairs > 0);
        divided += plan.vcpus.iter().filter(|vcpu| vcpu.cpus.len() > 1).count();
    }
    assert!(stacked > hosts / 10, "{stacked}");
    println!(
        "{planned} hosts, {stacked} with vCPUs of a tenant on one CPU, all by need; {divided} vCPUs divided"
    );
}
