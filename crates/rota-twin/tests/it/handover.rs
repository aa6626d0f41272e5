//! vCPUs with slots on several CPUs: they get what they are promised wherever that is, and are never served twice at
//! once, however late timers are.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::rc::Rc;

use rota_model::config::{Source, parse};
use rota_model::{Class, CpuSet, Model, Topology};
use rota_rules::life::Event::Configured;
use rota_rules::planning::{Grants, propose};
use rota_sched::Cause;
use rota_sim::observe::{Event, Metrics, Observer, Promise, Promises, Sanity, UnitMetrics};
use rota_sim::programs::{Hog, Intermittent, Periodic};
use rota_sim::{CgroupId, Costs, CpuId, CpuMask, Machine, Rng, Simulation, TaskSpec, Tenants, UnitId};
use rota_sim::{Program, Resumed, Step, Theft, World};
use rota_table::Certified;
use rota_twin::{Deed, Rota, apart};

const US: u64 = 1_000;
const MS: u64 = 1_000_000;
const WATCHDOG_NS: u64 = 30_000 * MS;
/// What a bound may be passed by: a kick and a switch beyond what the host keeps back.
const SLACK_NS: u64 = 20 * US;

/// How many threads of each unit run at once, and where, seen from outside.
#[derive(Default)]
struct Parallel {
    running: Vec<u32>,
    /// Since when a CPU runs what it runs, and how much of it each unit has had.
    since_ns: BTreeMap<CpuId, u64>,
    received_ns: BTreeMap<(UnitId, CpuId), u64>,
    /// How many may; nothing is said of units beyond these.
    most: Vec<u32>,
    found: Vec<(u64, UnitId, u32)>,
}

impl Observer for Parallel {
    fn observe(&mut self, machine: &Machine, event: Event) {
        let (cpu, task, starts) = match event {
            Event::Runs(cpu, task) => (cpu, task, true),
            Event::Stops(cpu, task, _) => (cpu, task, false),
            _ => return,
        };
        let unit = machine.task(task).unit;
        match starts {
            true => _ = self.since_ns.insert(cpu, machine.now_ns()),
            false => {
                let since_ns = self.since_ns.get(&cpu).copied().unwrap_or(machine.now_ns());
                *self.received_ns.entry((unit, cpu)).or_default() += machine.now_ns() - since_ns;
            }
        }
        self.running.resize(self.running.len().max(unit.index() + 1), 0);
        let running = &mut self.running[unit.index()];
        *running = if starts { *running + 1 } else { *running - 1 };
        if starts && self.most.get(unit.index()).is_some_and(|most| *running > *most) {
            self.found.push((machine.now_ns(), unit, *running));
        }
    }
}

type Run = Simulation<Rota, (Metrics, (Promises, Parallel), Sanity)>;

fn model(text: &str) -> Model {
    let source = Source { path: "rota.toml".into(), text: text.to_owned() };
    parse(&[source], &Topology::default()).unwrap_or_else(|errors| panic!("{errors}\n{text}"))
}

/// The table for all of a host's tenants; `None` if there is none.
fn table(model: &Model) -> Option<Certified> {
    let reserved = |tenant: &&rota_model::Tenant| matches!(tenant.class, Class::Reserved(_));
    let grants: Grants = (1..).zip(model.tenants.iter().filter(reserved).cloned()).collect();
    propose(&model.host, &grants).ok().map(|proposal| proposal.table)
}

/// How often in a second each vCPU's service goes from one CPU to another, if it wants all of it; in the table's order.
fn hand_overs(table: &Certified) -> Vec<f64> {
    let view = table.view();
    let length_ns = view.header().length_ns;
    let mut slots: Vec<Vec<(u32, u32)>> = vec![Vec::new(); view.vcpus().len()];
    for (cpu, own) in (0..).zip(view.cpus()) {
        for round in 0..length_ns / own.record.length_ns {
            for slot in own.slots.iter() {
                slots[slot.vcpu as usize].push((round * own.record.length_ns + slot.start_ns, cpu));
            }
        }
    }
    let rounds_per_s = 1e9 / f64::from(length_ns);
    let moves = |slots: &mut Vec<(u32, u32)>| {
        slots.sort_unstable();
        let next = slots.iter().cycle().skip(1);
        let moves = slots.iter().zip(next).filter(|(one, next)| one.1 != next.1).count();
        moves as f64 * rounds_per_s
    };
    slots.iter_mut().map(moves).collect()
}

fn start(model: &Model, costs: Costs, seed: u64) -> (Run, Tenants) {
    let mut policy = Rota::new(model).expect("a host");
    policy.journal(); // it is kept from now on
    let watch = (Promises::new(SLACK_NS), Parallel::default());
    let observers = (Metrics::default(), watch, Sanity::new(WATCHDOG_NS));
    let topology = model.host.topology.clone();
    let mut run = Simulation::new(topology, costs, seed, 1_000 * MS, policy, observers);
    let tenants = Tenants::new(&mut run.machine, model);
    (run, tenants)
}

/// Everybody is here, and served by a table; what was promised is watched from now on.
fn settle(run: &mut Run, tenants: &Tenants) {
    for home in tenants.homes() {
        run.act(|run| run.policy.appears(&mut run.machine, &home.tenant.name, home.cgroup));
    }
    wait_until_settled(run);
    let from_ns = run.machine.now_ns();
    for home in tenants.homes() {
        let Some(reservation) = home.tenant.reservation() else { continue };
        for (unit, vcpus) in home.units() {
            let watch = &mut run.observer.1;
            watch.0.promise(&run.machine, unit, Some(Promise { reservation, vcpus, from_ns }));
            watch.1.most.resize(watch.1.most.len().max(unit.index() + 1), u32::MAX);
            watch.1.most[unit.index()] = vcpus;
        }
    }
    run.observer.1.1.found.clear();
    run.observer.0.begin(&mut run.machine);
}

fn wait_until_settled(run: &mut Run) {
    let end_ns = run.machine.now_ns() + 3_000 * MS;
    while !run.policy.is_settled() {
        let until_ns = run.machine.now_ns() + 10 * MS;
        run.run_until(until_ns);
        assert!(until_ns < end_ns, "{:?}", run.policy.said());
    }
}

/// Nothing was missed, by anyone's account, and nobody was served twice at once.
fn check(run: &mut Run, what: &str) -> Vec<UnitMetrics> {
    assert_eq!(run.policy.exited().cloned(), None, "{what}: {:?}", run.policy.said());
    assert_eq!(run.observer.1.0.finish(&run.machine), [], "{what}");
    assert_eq!(run.observer.1.1.found, [], "{what}");
    assert_eq!(run.observer.2.finish(&run.machine), [], "{what}");
    let mixed: u64 = run.policy.cpus(&mut run.machine).iter().map(|cpu| cpu.mixed).sum();
    assert_eq!(mixed, 0, "{what}: CPUs saw two tables in a round");
    for queue in run.policy.queues(&mut run.machine) {
        assert_eq!(queue.missed, 0, "{what}: the scheduler's own account: {queue:?}");
    }
    run.observer.0.finish(&mut run.machine)
}

/// Three of 0.6 on two CPUs: the thesis' running example (section 5.3).
const EXAMPLE: &str = r#"
[host]
cpus = "0-2"
housekeeping = "0"
migration_cost = "5us"

[[tenant]]
name = "t{i}"
count = 3
class = "reserved"
share = 0.6
latency = "20ms"
capped = true
match = { cgroup = "t{i}" }
"#;

/// Timers as late as an interrupt that is held off on a loaded machine, and more.
fn late(most_ns: u64) -> Costs {
    Costs { timer_slack_ns: most_ns, ..Costs::default() }
}

#[test]
fn three_of_0_6_have_it() {
    apart(|| {
        let model = model(EXAMPLE);
        let hand_overs = hand_overs(&table(&model).expect("it fits"));
        assert!(hand_overs.iter().any(|&moves| moves > 0.0), "{hand_overs:?}");
        let (mut run, mut tenants) = start(&model, Costs::default(), 1);
        for name in ["t0", "t1", "t2"] {
            let spec = tenants.thread(name, Hog);
            run.spawn(spec);
        }
        settle(&mut run, &tenants);
        let began_ns = run.machine.now_ns();
        run.run_until(began_ns + 10_000 * MS);
        let metrics = check(&mut run, "the example");
        for (home, planned) in tenants.homes().iter().zip(&hand_overs) {
            let unit = &metrics[home.first_unit.index()];
            let share = unit.received_ns as f64 / 10e9;
            assert!((0.6..0.605).contains(&share), "{share}");
            let migrations = unit.migrations as f64 / 10.0;
            assert!(
                (migrations - planned).abs() <= 0.1 + 0.01 * planned,
                "{migrations} of {planned} in a second"
            );
        }
    });
}

/// What the scheduler's own accounts say is what is seen from outside.
#[test]
fn accounts_hold_across_cpus() {
    apart(|| {
        let model = model(EXAMPLE);
        let (mut run, mut tenants) = start(&model, late(100 * US), 3);
        for name in ["t0", "t1", "t2"] {
            let spec = tenants.thread(name, Intermittent::new(100 * US, 30 * MS));
            run.spawn(spec);
        }
        settle(&mut run, &tenants);
        let before = run.policy.queues(&mut run.machine);
        let began_ns = run.machine.now_ns();
        run.run_until(began_ns + 5_000 * MS);
        let after = run.policy.queues(&mut run.machine);
        let metrics = run.observer.0.finish(&mut run.machine);
        for home in tenants.homes() {
            let unit = &metrics[home.first_unit.index()];
            let place = after
                .iter()
                .position(|queue| queue.tenant > 0 && queue.tenant as usize == home.first_unit.index());
            let (before, after) = (&before[place.expect("an account")], &after[place.expect("an account")]);
            let near = |one: u64, other: u64, ns: u64| one.abs_diff(other) <= ns;
            // What runs now is counted when it stops; interrupts are the task's for the scheduler.
            assert!(near(after.used_ns - before.used_ns, unit.received_ns, 40 * MS), "{after:?} {unit:?}");
            assert!(near(after.wanted_ns - before.wanted_ns, unit.wanted_ns, 10 * US), "{after:?} {unit:?}");
            assert!(near(after.blackout_max_ns, unit.blackout_max_ns, 10 * US), "{after:?} {unit:?}");
            assert!(near(after.migrations - before.migrations, unit.migrations, 1), "{after:?} {unit:?}");
        }
    });
}

/// A tenant that is not capped takes what its neighbours leave, on one CPU at a time; one that is capped does not.
#[test]
fn who_is_split_may_be_uncapped() {
    for (threads, capped, least, most) in
        [(1, true, 0.6, 0.61), (3, true, 0.6, 0.61), (1, false, 0.95, 1.0), (3, false, 0.95, 1.0)]
    {
        apart(|| {
            let config = EXAMPLE.replace("capped = true", &format!("capped = {capped}"));
            let (mut run, mut tenants) = start(&model(&config), Costs::default(), 1);
            let hand_overs = hand_overs(&table(&model(&config)).expect("it fits"));
            let split = hand_overs.iter().position(|&moves| moves > 0.0).expect("one is split");
            // The others sleep almost all the time.
            for (number, home) in tenants.clone().homes().iter().enumerate() {
                let specs: Vec<TaskSpec> = match number == split {
                    true => (0..threads).map(|_| tenants.thread(&home.tenant.name, Hog)).collect(),
                    false => vec![tenants.thread(&home.tenant.name, Periodic::new(10 * US, 3 * MS))],
                };
                specs.into_iter().for_each(|spec| _ = run.spawn(spec));
            }
            settle(&mut run, &tenants);
            let began_ns = run.machine.now_ns();
            run.run_until(began_ns + 5_000 * MS);
            let metrics = check(&mut run, "one that is split");
            let unit = &metrics[tenants.homes()[split].first_unit.index()];
            let share = unit.received_ns as f64 / 5e9;
            assert!((least..=most).contains(&share), "capped = {capped}: {share}");
            // Outside of its slots one stays where the last was, and goes to the next when that begins.
            let (migrations, planned) = (unit.migrations as f64 / 5.0, hand_overs[split]);
            assert!(
                threads > 1 || (migrations - planned).abs() <= 1.0,
                "capped = {capped}: {migrations} of {planned}"
            );
        });
    }
}

/// The slots of a vCPU on one CPU, in parts of that CPU's time.
fn planned_on(table: &Certified, vcpu: usize, cpu: CpuId) -> f64 {
    let view = table.view();
    let own = view.cpus().nth(cpu.index()).expect("the CPU");
    let slots = own.slots.iter().filter(|slot| slot.vcpu as usize == vcpu);
    let sum_ns: u32 = slots.map(|slot| slot.end_ns - slot.start_ns).sum();
    f64::from(sum_ns) / f64::from(own.record.length_ns)
}

/// A real-time task has one of its CPUs when it should go on to the next: there it runs all the same.
#[test]
fn a_real_time_task_keeps_nobody_from_slots_elsewhere() {
    for (threads, capped, on) in [(1, true, 1), (1, true, 2), (2, true, 1), (1, false, 1), (2, false, 2)] {
        apart(|| {
            let model = model(&EXAMPLE.replace("capped = true", &format!("capped = {capped}")));
            let table = table(&model).expect("it fits");
            let split = hand_overs(&table).iter().position(|&moves| moves > 0.0).expect("one is split");
            let (mut run, mut tenants) = start(&model, Costs::default(), 1);
            for (number, home) in tenants.clone().homes().iter().enumerate() {
                for _ in 0..if number == split { threads } else { 1 } {
                    let spec = tenants.thread(&home.tenant.name, Hog);
                    run.spawn(spec);
                }
            }
            settle(&mut run, &tenants);
            let realtime = TaskSpec::new(9_999, UnitId(9), CgroupId::ROOT, Intermittent::new(MS, 9 * MS));
            let affinity = Some(Rc::new(CpuMask::of(3, [CpuId(on)])));
            run.spawn(TaskSpec { realtime: Some(50), affinity, ..realtime });
            run.observer.1.1.received_ns.clear();
            let began_ns = run.machine.now_ns();
            run.run_until(began_ns + 5_000 * MS);
            let unit = tenants.homes()[split].first_unit;
            let other = CpuId(3 - on);
            let received = run.observer.1.1.received_ns[&(unit, other)] as f64 / 5e9;
            let planned = planned_on(&table, split, other);
            let what = format!("{threads} threads, capped = {capped}, on {on}: {received} of {planned}");
            assert!(received > 0.99 * planned, "{what}");
            assert_eq!(run.observer.1.1.found, [], "{what}");
            for queue in run.policy.queues(&mut run.machine) {
                assert_eq!(queue.missed_by_cause[Cause::Rota as usize], 0, "{what}: {queue:?}");
                assert_eq!(queue.lost_ns[Cause::Rota as usize], 0, "{what}: {queue:?}");
            }
        });
    }
}

/// May not leave the CPU on which it starts, from then on, and computes.
struct Held;

impl Program for Held {
    fn next(&mut self, _: Resumed, world: &mut World<'_>) -> Step {
        world.hold(true);
        Step::Compute(u64::MAX)
    }
}

/// A thread that is held on a CPU has no use of slots on the others; its siblings do.
#[test]
fn who_may_not_leave_a_cpu_leaves_slots_elsewhere_to_its_siblings() {
    apart(|| {
        let model = model(EXAMPLE);
        let (mut run, mut tenants) = start(&model, Costs::default(), 1);
        let split = hand_overs(&table(&model).expect("it fits")).iter().position(|&moves| moves > 0.0);
        for (number, home) in tenants.clone().homes().iter().enumerate() {
            let spec = tenants.thread(&home.tenant.name, Hog);
            run.spawn(spec);
            if split == Some(number) {
                let spec = tenants.thread(&home.tenant.name, Held);
                run.spawn(spec);
            }
        }
        settle(&mut run, &tenants);
        let began_ns = run.machine.now_ns();
        run.run_until(began_ns + 2_000 * MS);
        for unit in check(&mut run, "one that is held").iter().filter(|unit| unit.received_ns > 0) {
            assert!((0.595..0.605).contains(&(unit.received_ns as f64 / 2e9)), "{}", unit.received_ns);
        }
    });
}

/// CPUs without anything to do sleep, and are there when a slot of theirs begins for a thread that woke up elsewhere.
#[test]
fn idle_cpus_wake_up_for_slots_to_come() {
    for number in 0..3 {
        apart(|| {
            let (mut run, mut tenants) = start(&model(EXAMPLE), late(50 * US), 11);
            let spec = tenants.thread(&format!("t{number}"), Periodic::new(150 * MS, 333 * MS));
            run.spawn(spec);
            settle(&mut run, &tenants);
            let began_ns = run.machine.now_ns();
            run.run_until(began_ns + 10_000 * MS);
            check(&mut run, "one that sleeps for long");
        });
    }
}

/// No CPU has room for the last one, and it goes from one to the next.
#[test]
fn seventeen_of_0_94_on_sixteen_cpus() {
    let config = r#"
        [host]
        cpus = "0-16"
        housekeeping = "0"
        floor = 0
        switch_cost = "2us"

        [[tenant]]
        name = "t{i}"
        count = 17
        class = "reserved"
        share = 0.94
        latency = "20ms"
        capped = true
        match = { cgroup = "t{i}" }
    "#;
    apart(|| {
        let model = model(config);
        let costs = Costs { timer_slack_ns: 0, ..Costs::default() };
        let (mut run, mut tenants) = start(&model, costs, 17);
        for home in tenants.clone().homes() {
            let spec = tenants.thread(&home.tenant.name, Hog);
            run.spawn(spec);
        }
        settle(&mut run, &tenants);
        let began_ns = run.machine.now_ns();
        run.run_until(began_ns + 2_000 * MS);
        let metrics = check(&mut run, "seventeen on sixteen");
        let planned: f64 = hand_overs(&table(&model).expect("it fits")).iter().sum();
        let migrations = metrics.iter().map(|unit| unit.migrations).sum::<u64>() as f64 / 2.0;
        assert!(
            planned > 100.0 && (migrations - planned).abs() < 0.05 * planned,
            "{migrations} of {planned}"
        );
    });
}

/// A host on which something has to be split, with timers that are late by up to 200 us, for which it keeps 300 us back
/// at each change.
fn random_host(rng: &mut Rng) -> String {
    let cpus = rng.between(2, 5);
    let mut text = format!("[host]\ncpus = \"0-{cpus}\"\nhousekeeping = \"0\"\n");
    text += "switch_cost = \"300us\"\nmigration_cost = \"300us\"\n";
    let count = rng.between(cpus + 1, 2 * cpus);
    for number in 0..count {
        let share = 0.86 * cpus as f64 / count as f64 * rng.between(95, 105) as f64 / 100.0;
        let vm = rng.chance(1, 3);
        let matched = if vm { "vm = \"qemu:" } else { "cgroup = \"" };
        let latency = rng.between(20, 80);
        let capped = rng.chance(1, 2);
        writeln!(
            text,
            "[[tenant]]\nname = \"t{number}\"\nclass = \"reserved\"\nshare = {share:.4}\nlatency = \"{latency}ms\"\n\
             capped = {capped}\nmatch = {{ {matched}t{number}\" }}"
        )
        .expect("a string takes all");
    }
    text
}

fn random_thread(rng: &mut Rng, tenants: &mut Tenants, name: &str, is_vm: bool) -> TaskSpec {
    macro_rules! running {
        ($program:expr) => {
            if is_vm { tenants.vcpu(name, 0, $program) } else { tenants.thread(name, $program) }
        };
    }
    match rng.below(3) {
        0 => running!(Hog),
        1 => running!(Intermittent::new(20 * US, rng.between(1, 40) * MS)),
        _ => running!(Periodic::new(rng.between(10, 5_000) * US, rng.between(1, 5_000) * US)),
    }
}

/// Runs a random host for a while. How many of its vCPUs migrate; `None` if there is no table for it.
fn run_random_host(seed: u64) -> Option<usize> {
    let mut rng = Rng::new(seed, 0);
    let text = random_host(&mut rng);
    let model = model(&text);
    let moving = hand_overs(&table(&model)?).iter().filter(|&&moves| moves > 0.0).count();
    let what = format!("seed {seed}\n{text}");
    let (mut run, mut tenants) = start(&model, late(200 * US), seed);
    for home in tenants.clone().homes() {
        let name = &home.tenant.name;
        let threads = if home.is_vm { 1 } else { rng.between(1, 3) };
        for _ in 0..threads {
            let spec = random_thread(&mut rng, &mut tenants, name, home.is_vm);
            let pid = spec.pid;
            run.spawn(spec);
            if home.is_vm {
                let threads = [(0, pid)].into();
                run.act(|run| run.policy.vcpu_threads(&mut run.machine, name, threads));
            }
        }
    }
    settle(&mut run, &tenants);
    let began_ns = run.machine.now_ns();
    run.run_until(began_ns + 2_000 * MS);
    check(&mut run, &what);
    Some(moving)
}

#[test]
fn random_split_hosts_keep_their_promises_with_late_timers() {
    let moving: Vec<usize> = (0..40).filter_map(|seed| apart(|| run_random_host(seed))).collect();
    assert!(moving.len() > 20, "{} planned", moving.len());
    assert!(moving.iter().filter(|&&count| count > 0).count() > 15, "{moving:?}");
}

/// Tenants come and go, so that vCPUs are split, whole on one CPU and split again: nobody who stays misses anything.
#[test]
fn tables_change_under_migrating_vcpus() {
    apart(|| {
        let config = EXAMPLE.replace("[host]", "[host]\nswitch_cost = \"100us\"");
        let model = model(&config);
        assert_eq!(model.host.tenant_cpus(), (1..=2).collect::<CpuSet>());
        let (mut run, mut tenants) = start(&model, late(40 * US), 5);
        for home in tenants.clone().homes() {
            for _ in 0..2 {
                let spec = tenants.thread(&home.tenant.name, Hog);
                run.spawn(spec);
            }
        }
        settle(&mut run, &tenants);
        let gone = tenants.home("t2").clone();
        run.observer.1.0.promise(&run.machine, gone.first_unit, None);
        run.observer.1.1.most[gone.first_unit.index()] = u32::MAX;
        for round in 0..20 {
            let until_ns = run.machine.now_ns() + 150 * MS;
            run.run_until(until_ns);
            run.act(|run| match round % 2 {
                0 => run.policy.vanishes(&mut run.machine, "t2"),
                _ => run.policy.appears(&mut run.machine, "t2", gone.cgroup),
            });
            wait_until_settled(&mut run);
        }
        check(&mut run, "tables change");
    });
}

/// A tenant that grows has other queues, and other claims, before a table has slots for more of it. Until then a CPU
/// that the hypervisor has just then keeps the one vCPU that it serves.
#[test]
fn no_vcpu_is_served_twice_while_its_tenant_grows() {
    let found: Vec<_> = (0..120).map(|seed| apart(|| grow_one(seed))).collect();
    assert!(found.iter().all(Vec::is_empty), "{found:?}");
}

/// Four of 0.55 on three CPUs, of which the last migrates, and is to have a second vCPU. The times at which two of its
/// threads ran before the table in force had two.
fn grow_one(seed: u64) -> Vec<u64> {
    let text = |vcpus: u32| {
        format!(
            "[host]\ncpus = \"0-3\"\nhousekeeping = \"0\"\nmigration_cost = \"5us\"\n\
             [[tenant]]\nname = \"t{{i}}\"\ncount = 3\nclass = \"reserved\"\nshare = 0.55\nlatency = \"20ms\"\n\
             match = {{ cgroup = \"t{{i}}\" }}\n\
             [[tenant]]\nname = \"split\"\nvcpus = {vcpus}\nclass = \"reserved\"\nshare = 0.55\nlatency = \"20ms\"\n\
             match = {{ cgroup = \"split\" }}\n"
        )
    };
    let before = model(&text(1));
    let (mut run, mut tenants) = start(&before, Costs::default(), seed);
    for name in ["t0", "t1", "t2", "split", "split"] {
        let spec = tenants.thread(name, Hog);
        run.spawn(spec);
    }
    settle(&mut run, &tenants);
    let began_ns = run.machine.now_ns();
    let grows_ns = began_ns + 10 * MS + seed * 170 * US;
    run.run_until(grows_ns);
    // The daemon runs where nobody is in the way.
    (1..4).for_each(|cpu| run.steal(CpuId(cpu), 1, Theft::Steal));
    run.act(|run| run.policy.tell(&mut run.machine, Configured(model(&text(2)))));
    // The table is planned after 20 ms in which nothing else changes.
    run.at(grows_ns + 19 * MS, move |run| run.steal(CpuId(1 + (seed % 3) as u32), 5 * MS, Theft::Steal));
    wait_until_settled(&mut run);
    let in_force_ns = run.policy.journal().borrow().iter().rev().find_map(|(_, deed)| match deed {
        Deed::Table(from_ns, _) => Some(*from_ns),
        _ => None,
    });
    let in_force_ns = in_force_ns.filter(|from_ns| *from_ns > grows_ns).expect("a table has two");
    let found = run.observer.1.1.found.iter().map(|(at_ns, ..)| *at_ns);
    found.filter(|at_ns| *at_ns < in_force_ns).collect()
}
