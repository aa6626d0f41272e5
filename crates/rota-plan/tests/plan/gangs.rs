//! Tenants whose slots come together, against an exact judge of small hosts.

use rota_model::{Costs, CpuSet, Model, Share, Team, Tenant};
use rota_plan::{
    Change, Infeasible, Method, Options, Place, Plan, Planner, SlotsAlone, explain, plan, slots_alone,
};

use crate::checker;
use crate::models::{MS, alone, host, model, on, reserved, with_siblings};

/// What a unit of the judge's is: eight fit on a CPU, with a little left for changes of task and rounding, and nine do
/// not.
const UNIT: f64 = 0.12;
const UNITS: u32 = 8;

fn together(tenant: Tenant) -> Tenant {
    Tenant { team: Team { together: true, ..Team::default() }, ..tenant }
}

/// A small generator of numbers (SplitMix64, Steele et al. 2014).
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u32) -> u32 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % u64::from(limit)) as u32
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u32) as usize]
    }
}

/// vCPUs with so many units each, of which all are together or none, on some of the CPUs.
#[derive(Clone, Debug)]
struct Wish {
    vcpus: u32,
    units: u32,
    cpus: Vec<usize>,
    together: bool,
}

#[derive(Debug)]
struct Small {
    cpus: usize,
    wishes: Vec<Wish>,
    model: Model,
}

/// Up to four CPUs, up to three gangs and some others, loaded a little less or more than full.
fn small(seed: u64) -> Small {
    let mut dice = Dice(seed);
    let cpus = 2 + dice.below(3) as usize;
    let mut left = (cpus as u32 * UNITS * (70 + dice.below(40)) / 100) as i32;
    let mut wishes: Vec<Wish> = Vec::new();
    while left > 0 && wishes.len() < 7 {
        let gangs = wishes.iter().filter(|wish| wish.together).count();
        let is_gang = wishes.is_empty() || gangs < 3 && dice.below(3) == 0;
        let vcpus = if is_gang { 2 + dice.below(cpus as u32 - 1) } else { 1 + dice.below(2) };
        let units = 1 + dice.below(if is_gang { 5 } else { 6 });
        let mut allowed: Vec<usize> = (0..cpus).collect();
        if dice.below(4) == 0 {
            let least = if is_gang { vcpus as usize } else { 1 };
            while allowed.len() > least && dice.below(2) == 0 {
                allowed.remove(dice.below(allowed.len() as u32) as usize);
            }
        }
        left -= (vcpus * units) as i32;
        wishes.push(Wish { vcpus, units, cpus: allowed, together: is_gang });
    }
    let mut host = host(&format!("0-{}", cpus - 1), "");
    host.costs = Costs { switch_ns: dice.pick(&[0, 5_000]), migration_ns: 0 };
    let tenants = (0..).zip(&wishes).map(|(number, wish)| {
        let latency_ns = dice.pick(&[5, 20, 50]) * MS;
        let tenant = reserved(&format!("t{number}"), wish.vcpus, f64::from(wish.units) * UNIT, latency_ns);
        let cpus: CpuSet = wish.cpus.iter().map(|&cpu| cpu as u32).collect();
        Tenant { affinity: Some(cpus), team: Team { together: wish.together, ..Team::default() }, ..tenant }
    });
    let model = Model { host, tenants: tenants.collect() };
    Small { cpus, wishes, model }
}

/// What a host can carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Verdict {
    /// Not even if everybody who is in no gang is divided as one likes.
    Nothing,
    /// Perhaps, if some are divided.
    Divided,
    /// Everybody on one CPU.
    Whole,
}

impl Small {
    /// Tries all CPUs for all gangs and everybody else.
    fn judge(&self) -> Verdict {
        self.seat(0, &mut Vec::new(), &mut vec![UNITS; self.cpus])
    }

    fn gangs(&self) -> Vec<&Wish> {
        self.wishes.iter().filter(|wish| wish.together).collect()
    }

    fn seat(&self, at: usize, sets: &mut Vec<u32>, free: &mut Vec<u32>) -> Verdict {
        let gangs = self.gangs();
        let Some(gang) = gangs.get(at) else {
            if !self.at_different_times(&mut Vec::new(), sets) {
                return Verdict::Nothing;
            }
            let others: Vec<(u32, u32)> = self.others();
            if pack(&others, free) {
                return Verdict::Whole;
            }
            return if flows(&others, free) { Verdict::Divided } else { Verdict::Nothing };
        };
        let mut best = Verdict::Nothing;
        for set in 0..1_u32 << self.cpus {
            let has = |cpu: &usize| set >> cpu & 1 == 1;
            let fits = |cpu: usize| gang.cpus.contains(&cpu) && free[cpu] >= gang.units;
            if set.count_ones() != gang.vcpus || !(0..self.cpus).filter(has).all(fits) {
                continue;
            }
            (0..self.cpus).filter(has).for_each(|cpu| free[cpu] -= gang.units);
            sets.push(set);
            best = best.max(self.seat(at + 1, sets, free));
            sets.pop();
            (0..self.cpus).filter(has).for_each(|cpu| free[cpu] += gang.units);
        }
        best
    }

    /// Whether gangs with these CPUs can have such times that no two are at once on one CPU.
    fn at_different_times(&self, from: &mut Vec<u32>, sets: &[u32]) -> bool {
        let gangs = self.gangs();
        let at = from.len();
        let Some(gang) = gangs.get(at) else { return true };
        (0..=UNITS - gang.units).any(|start| {
            let is_clear = (0..at).all(|other| {
                sets[other] & sets[at] == 0
                    || start + gang.units <= from[other]
                    || from[other] + gangs[other].units <= start
            });
            from.push(start);
            let is_found = is_clear && self.at_different_times(from, sets);
            from.pop();
            is_found
        })
    }

    /// Units and CPUs of every vCPU that is in no gang, the largest first.
    fn others(&self) -> Vec<(u32, u32)> {
        let mask = |wish: &Wish| wish.cpus.iter().fold(0, |mask, cpu| mask | 1 << cpu);
        let others = self.wishes.iter().filter(|wish| !wish.together);
        let mut others: Vec<(u32, u32)> =
            others.flat_map(|wish| vec![(wish.units, mask(wish)); wish.vcpus as usize]).collect();
        others.sort_unstable_by_key(|&(units, _)| std::cmp::Reverse(units));
        others
    }
}

fn pack(others: &[(u32, u32)], free: &mut [u32]) -> bool {
    let Some((&(units, mask), rest)) = others.split_first() else { return true };
    (0..free.len()).any(|cpu| {
        if mask >> cpu & 1 == 0 || free[cpu] < units {
            return false;
        }
        free[cpu] -= units;
        let is_found = pack(rest, free);
        free[cpu] += units;
        is_found
    })
}

/// Whether no set of CPUs is short of what may go nowhere else (Hall).
fn flows(others: &[(u32, u32)], free: &[u32]) -> bool {
    (0..1_u32 << free.len()).all(|set| {
        let bound = others.iter().filter(|(_, mask)| mask & !set == 0).map(|(units, _)| units);
        let room = (0..free.len()).filter(|cpu| set >> cpu & 1 == 1).map(|cpu| free[cpu]);
        bound.sum::<u32>() <= room.sum()
    })
}

/// What the planner makes of so many small hosts: how many it plans whole, divided, and refuses where the judge sees
/// that nobody can, and where somebody perhaps could.
fn agree(seeds: std::ops::Range<u64>) -> [u32; 4] {
    let mut counts = [0; 4];
    for seed in seeds {
        let small = small(seed);
        let verdict = small.judge();
        match plan(&small.model, &Options::default()) {
            Ok(plan) => {
                assert_eq!(checker::check(&small.model, &plan), Ok(()), "seed {seed}: {small:?}");
                assert_ne!(verdict, Verdict::Nothing, "seed {seed}: planned what cannot be: {small:?}");
                counts[usize::from(verdict == Verdict::Divided)] += 1;
            }
            Err(why) => {
                assert_ne!(verdict, Verdict::Whole, "seed {seed}: {why}\n{small:?}");
                counts[if verdict == Verdict::Nothing { 2 } else { 3 }] += 1;
            }
        }
    }
    counts
}

#[test]
fn small_hosts_are_planned_if_they_can_be() {
    let counts = agree(0..10_000);
    println!("whole, divided, refused, perhaps: {counts:?}");
    assert!(counts[0] > 3_000 && counts[2] > 3_000, "{counts:?}");
}

fn planned(model: &Model) -> Plan {
    let plan = plan(model, &Options::default()).unwrap();
    checker::check(model, &plan).unwrap();
    plan
}

#[test]
fn a_gang_has_its_longest_period_beside_one_that_is_as_patient() {
    let model =
        model(host("0-3", ""), [together(reserved("vm", 4, 0.5, 20 * MS)), reserved("web", 4, 0.4, 50 * MS)]);
    let plan = planned(&model);
    let [vm, web] = [0, 4].map(|at| &plan.vcpus[at]);
    assert_eq!((vm.method, vm.period_ns), (Method::Together, 17_117_100));
    assert_eq!((web.method, web.period_ns), (Method::Partitioned, 34_234_200));
    for cpu in &plan.cpus {
        let why = slots_alone(&plan, cpu, 0).unwrap();
        assert!(matches!(why, SlotsAlone::Together(vcpu) if plan.vcpus[vcpu as usize].tenant == 0));
    }
}

#[test]
fn a_gang_gives_way_to_short_latencies_beside_it() {
    let beside = on("1", reserved("fast", 1, 0.3, MS));
    let model = model(host("0-3", ""), [together(reserved("vm", 4, 0.5, 50 * MS)), beside]);
    let plan = planned(&model);
    assert!(plan.vcpus[0].period_ns <= MS, "{:?}", plan.vcpus[0]);
    assert!(plan.vcpus.iter().take(4).all(|vcpu| vcpu.period_ns == plan.vcpus[0].period_ns));
}

#[test]
fn whole_cpus_come_together_by_themselves() {
    let model =
        model(host("0-3", ""), [together(reserved("vm", 3, 1.0, MS)), reserved("web", 1, 0.4, 50 * MS)]);
    assert_eq!(planned(&model).vcpus[0].method, Method::Dedicated);
}

#[test]
fn others_are_divided_where_no_gang_is() {
    let gang = on("0-1", together(reserved("vm", 2, 0.6, 20 * MS)));
    let model = model(host("0-3", ""), [gang, reserved("web", 3, 0.6, 50 * MS)]);
    let methods: Vec<Method> = planned(&model).vcpus.iter().map(|vcpu| vcpu.method).collect();
    assert_eq!(methods[..2], [Method::Together; 2]);
    assert!(methods[2..].contains(&Method::Split), "{methods:?}");
}

#[test]
fn gangs_with_cores_of_their_own_and_beside_spares() {
    let mut host = with_siblings(2, host("0-7", "0-1"));
    host.spares =
        vec![rota_model::Spare { share: Share::from_fraction(0.5).unwrap(), latency_ns: 20 * MS, count: 4 }];
    let model =
        model(host, [together(alone(reserved("vm", 4, 0.3, 20 * MS))), reserved("web", 2, 0.4, 50 * MS)]);
    let plan = planned(&model);
    assert_eq!(plan.cpus.iter().filter(|cpu| cpu.exclusive_to == Some(0)).count(), 4);
    assert!(plan.spares[0] > 0);
}

#[test]
fn a_refusal_says_how_much_can_be_together() {
    let refused = |tenants: Vec<Tenant>| {
        plan(&model(host("0-3", ""), tenants), &Options::default()).unwrap_err().to_string()
    };
    let gang = |share| together(reserved("vm", 4, share, 20 * MS));
    let pinned = |cpus| on(cpus, reserved("web", 1, 0.7, 20 * MS));
    assert_eq!(
        refused(vec![gang(0.5), pinned("1")]),
        "tenant `vm`: the slots of its 4 vCPUs cannot come together: each takes 0.5 of a CPU, which 3 of its CPUs have \
         beside the other tenants, and 4 of them have 0.3 each; write a lower share or fewer vCPUs, give it more CPUs, \
         or leave `together` out"
    );
    assert!(plan(&model(host("0-3", ""), [gang(0.29), pinned("1")]), &Options::default()).is_ok());
    let full = || on("2", reserved("db", 1, 1.0, MS));
    assert!(
        refused(vec![gang(0.2), full()]).contains("4 of them have nothing left"),
        "{}",
        refused(vec![gang(0.2), full()])
    );
    // Each has room alone, and the two of them have no time that is free on all of their CPUs.
    let on_two = |name: &str, cpus| on(cpus, together(reserved(name, 2, 0.4, 20 * MS)));
    let ring = refused(vec![on_two("a", "0,1"), on_two("b", "1,2"), on_two("c", "0,2")]);
    assert!(ring.contains("or other slots that come together are in the way"), "{ring}");
}

#[test]
fn why_a_gang_is_where_it_is() {
    let model =
        model(host("0-2", "0"), [together(reserved("vm", 2, 0.5, 50 * MS)), reserved("web", 1, 0.4, 5 * MS)]);
    let (plan, reasons) = explain(&model, &Options::default()).unwrap();
    assert_eq!(reasons[0].place, Place::Together { with: 1, of: 2 });
    assert!(matches!(reasons[0].period, rota_plan::Period::Together(_)), "{:?}", reasons[0]);
    assert_eq!(plan.vcpus[0].cpus.len(), 1);
}

/// Edits keep a gang: while it is not concerned, its CPUs are as they were.
#[test]
fn edits_keep_gangs_together() {
    let tenants = [together(reserved("vm", 2, 0.5, 20 * MS)), reserved("web", 2, 0.3, 20 * MS)];
    let mut planner = Planner::new(model(host("0-3", ""), tenants), &Options::default()).unwrap();
    let check = |planner: &Planner| checker::check(planner.model(), &planner.plan()).unwrap();
    check(&planner);
    let change = planner.admit(2, reserved("new", 1, 0.5, 20 * MS)).unwrap();
    assert!(!change.is_full, "{change}");
    check(&planner);
    assert!(planner.admit(3, together(reserved("two", 3, 0.2, 30 * MS))).unwrap().is_full);
    check(&planner);
    for (id, tenant) in [
        (1, None),
        (3, Some(together(reserved("two", 2, 0.2, 30 * MS)))),
        (0, Some(together(reserved("vm", 4, 0.4, 20 * MS)))),
        (4, Some(on("0", reserved("beside", 1, 0.1, 2 * MS)))),
        (2, None),
        (4, None),
        (3, Some(reserved("two", 2, 0.2, 30 * MS))),
        (0, None),
    ] {
        planner.update([(id, tenant)].into()).unwrap();
        check(&planner);
    }
    let refused = planner.admit(5, together(reserved("large", 4, 0.9, 20 * MS)));
    assert!(matches!(refused, Err(Infeasible::Together { .. })), "{refused:?}");
    check(&planner);
}

/// Random edits on small hosts, each checked.
#[test]
fn random_edits_keep_gangs_together() {
    let (mut full, mut refused, mut done) = (0, 0, 0);
    for seed in 0..60 {
        let mut dice = Dice(seed);
        let mut planner = Planner::new(model(small(seed).model.host, []), &Options::default()).unwrap();
        for _ in 0..25 {
            let tenants = small(u64::from(dice.below(100_000)) << 8 | seed).model.tenants;
            let cpus = planner.model().host.cpus.len() as u32;
            let mut tenant = tenants[dice.below(tenants.len() as u32) as usize].clone();
            tenant.affinity = None;
            tenant.team.together &= (2..=cpus).contains(&tenant.vcpus);
            let edit = if dice.below(3) == 0 { None } else { Some(tenant) };
            match planner.update([(dice.below(6), edit)].into()) {
                Ok(Change { is_full, .. }) => {
                    full += u32::from(is_full);
                    done += 1;
                }
                Err(_) => refused += 1,
            }
            let plan = planner.plan();
            assert_eq!(checker::check(planner.model(), &plan), Ok(()), "seed {seed}");
        }
    }
    println!("{done} done, {full} of them in full, {refused} refused");
    assert!(done - full > 300 && full > 200 && refused > 100, "{done} {full} {refused}");
}

/// 256 CPUs with 2,240 vCPUs, of which 160 are in gangs of eight: planned at once, and again beside one that comes.
#[test]
fn large_hosts_have_gangs() {
    let gangs = (0..20).map(|vm| together(reserved(&format!("vm-{vm}"), 8, 0.1, 20 * MS)));
    let others = (0..520).map(|vm| reserved(&format!("web-{vm}"), 4, 0.1, (10 + vm % 40) * MS));
    let mut planner =
        Planner::new(model(host("0-255", ""), gangs.chain(others)), &Options::default()).unwrap();
    checker::check(planner.model(), &planner.plan()).unwrap();
    planner.admit(600, together(reserved("new", 16, 0.1, 20 * MS))).unwrap();
    checker::check(planner.model(), &planner.plan()).unwrap();
    assert!(matches!(
        planner.admit(601, together(reserved("large", 250, 0.12, 20 * MS))),
        Err(Infeasible::Together { .. })
    ));
}
