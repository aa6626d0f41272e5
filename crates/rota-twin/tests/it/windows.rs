//! CPUs that serve their vCPUs in windows. Each vCPU has its budget in each window, whoever wakes and when, and who
//! wakes has its own soon.

use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

use rota_model::Model;
use rota_sched::{Cause, QueueAccount};
use rota_sim::observe::{Event, Metrics, Observer};
use rota_sim::programs::{Hog, Periodic};
use rota_sim::{CgroupId, Costs, CpuId, CpuMask, Machine, Simulation, TaskSpec, Tenants, UnitId};
use rota_sim::{Program, Resumed, Step, World};
use rota_table::layout::CPU_WINDOWS;
use rota_twin::{Deed, Rota, apart};

use crate::host::{model, start};

const US: u64 = 1_000;
const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;
/// Within so much of waking one runs that may go first: a kick, an interrupt, a late timer, changes of tasks.
const SOON_NS: u64 = 50 * US;
/// So little of a claim is not worth a turn, or is lost as a timer is late.
const GRAIN_NS: u64 = 30 * US;

/// Less than this is not worth a turn.
const LEAST_NS: u64 = 2 * US;

/// Who has had which CPU, and when.
#[derive(Default)]
struct Turns {
    since: BTreeMap<CpuId, (UnitId, u64)>,
    /// Those that are over, as they ended.
    over: Vec<(UnitId, Range<u64>)>,
}

impl Observer for Turns {
    fn observe(&mut self, machine: &Machine, event: Event) {
        match event {
            Event::Runs(cpu, task) => {
                self.since.insert(cpu, (machine.task(task).unit, machine.now_ns()));
            }
            Event::Stops(cpu, ..) => {
                let turn = self.since.remove(&cpu);
                self.over.extend(turn.map(|(unit, since_ns)| (unit, since_ns..machine.now_ns())));
            }
            _ => {}
        }
    }
}

impl Turns {
    /// The unit's turns in a time, each as far as it lies in there; one that goes on ends with that time.
    fn of(&self, unit: UnitId, within: Range<u64>) -> impl Iterator<Item = Range<u64>> {
        let present = self.since.values().map(|&(unit, since_ns)| (unit, since_ns..u64::MAX));
        let turns = self.over.iter().cloned().chain(present).filter(move |(owner, _)| *owner == unit);
        let cut = move |turn: Range<u64>| turn.start.max(within.start)..turn.end.min(within.end);
        turns.map(move |(_, turn)| cut(turn)).filter(|turn| !turn.is_empty())
    }

    fn had_ns(&self, unit: UnitId, within: Range<u64>) -> u64 {
        self.of(unit, within).map(|turn| turn.end - turn.start).sum()
    }
}

type Run = Simulation<Rota, (Metrics, Turns)>;

/// What a table has for a tenant's only vCPU, and when the table holds.
#[derive(Clone, Copy, Debug)]
struct Claim {
    unit: UnitId,
    budget_ns: u64,
    window_ns: u64,
    period_ns: u64,
    bound_ns: u64,
    from_ns: u64,
    to_ns: u64,
}

impl Claim {
    /// The windows that lie in a time as a whole, and in which the table holds.
    fn windows(self, within: Range<u64>) -> impl Iterator<Item = Range<u64>> {
        let from_ns = within.start.max(self.from_ns).next_multiple_of(self.period_ns);
        let to_ns = within.end.min(self.to_ns);
        let starts = (from_ns..to_ns).step_by(self.period_ns as usize);
        starts.map(move |start_ns| start_ns..start_ns + self.period_ns).filter(move |own| own.end <= to_ns)
    }
}

/// A tenant of the configuration, on CPU 1.
fn tenant(name: &str, share: f64, latency_ms: u32) -> String {
    format!(
        "[[tenant]]\nname = \"{name}\"\nclass = \"reserved\"\nshare = {share}\nlatency = \"{latency_ms}ms\"\n\
         match = {{ cgroup = \"{name}\" }}\n"
    )
}

/// One CPU for these tenants, of which all are here; the host keeps `switch_us` back for each change of tasks.
fn host(config: &[String], switch_us: u32, costs: Costs) -> (Run, Tenants) {
    let host = format!("[host]\ncpus = \"0-1\"\nhousekeeping = \"0\"\nswitch_cost = \"{switch_us}us\"\n");
    let model: Model = model(&config.iter().fold(host, |text, tenant| text + tenant));
    let mut policy = Rota::new(&model).expect("a host");
    policy.journal(); // it is kept from now on
    let topology = model.host.topology.clone();
    let mut run = Run::new(topology, costs, 1, SECOND, policy, Default::default());
    let tenants = Tenants::new(&mut run.machine, &model);
    for home in tenants.homes() {
        run.act(|run| run.policy.appears(&mut run.machine, &home.tenant.name, home.cgroup));
    }
    wait_until_settled(&mut run);
    (run, tenants)
}

/// The last table that was made is in force.
fn wait_until_settled(run: &mut Run) {
    let end_ns = run.machine.now_ns() + 3 * SECOND;
    loop {
        run.run_until(run.machine.now_ns() + 10 * MS);
        assert!(run.machine.now_ns() < end_ns, "{:?}", run.policy.said());
        if run.policy.is_settled() {
            return;
        }
    }
}

/// What each table so far has for a tenant.
fn claims(run: &mut Run, tenants: &Tenants, name: &str) -> Vec<Claim> {
    let home = tenants.home(name);
    let journal = run.policy.journal();
    let mut found: Vec<Claim> = Vec::new();
    let mut id = None;
    for (_, deed) in journal.borrow().iter() {
        match deed {
            Deed::Bound(cgroup, tenant) if *cgroup == home.cgroup => id = Some(*tenant),
            Deed::Table(from_ns, table) => {
                found.iter_mut().for_each(|claim| claim.to_ns = claim.to_ns.min(*from_ns));
                let view = table.view();
                let own = view.vcpus().iter().filter(|vcpu| Some(vcpu.tenant) == id);
                let flags = view.cpus().nth(1).map_or(0, |cpu| cpu.record.flags);
                found.extend(own.map(|vcpu| {
                    assert_ne!(flags & CPU_WINDOWS, 0, "CPU 1 goes by its slots");
                    Claim {
                        unit: home.first_unit,
                        budget_ns: vcpu.budget_ns.into(),
                        window_ns: vcpu.window_ns.into(),
                        period_ns: vcpu.period_ns.into(),
                        bound_ns: vcpu.latency_ns,
                        from_ns: *from_ns,
                        to_ns: u64::MAX,
                    }
                }));
            }
            _ => {}
        }
    }
    found
}

/// The same of the table in force.
fn claim(run: &mut Run, tenants: &Tenants, name: &str) -> Claim {
    claims(run, tenants, name).pop().unwrap_or_else(|| panic!("{name} has slots"))
}

/// Goes on for so long. From when to when that was; what is received is counted from its start.
fn run_for(run: &mut Run, ns: u64) -> Range<u64> {
    let from_ns = run.machine.now_ns();
    run.observer.0.begin(&mut run.machine);
    run.run_until(from_ns + ns);
    from_ns..from_ns + ns
}

/// The longest that the tenant waited.
fn longest_wait_ns(run: &mut Run, tenants: &Tenants, name: &str) -> u64 {
    run.observer.0.finish(&mut run.machine)[tenants.home(name).first_unit.index()].blackout_max_ns
}

/// The tenant, which always wanted to run, has had its budget in each window, its changes of task counted.
fn has_its_budget(run: &mut Run, tenants: &Tenants, name: &str, within: &Range<u64>) {
    let mut seen = 0;
    for claim in claims(run, tenants, name) {
        for window in claim.windows(within.clone()) {
            let had_ns = run.observer.1.had_ns(claim.unit, window.clone());
            assert!(had_ns + LEAST_NS >= claim.budget_ns, "{name} had {had_ns} in {window:?} of {claim:?}");
            seen += 1;
        }
    }
    assert!(seen > 10, "{name} had {seen} windows");
}

/// A light tenant beside hogs waits for none of their budgets.
#[test]
fn who_wakes_beside_hogs_runs_at_once() {
    apart(|| {
        let config = ["light", "a", "b", "c"].map(|name| tenant(name, 0.235, 20));
        let (mut run, mut tenants) = host(&config, 5, Costs::default());
        for name in ["a", "b", "c"] {
            run.spawn(tenants.thread(name, Hog));
        }
        run_for(&mut run, 50 * MS);
        run.spawn(tenants.thread("light", Periodic::new(100 * US, 3_700 * US)));
        run_for(&mut run, 2 * SECOND);
        let waited_ns = longest_wait_ns(&mut run, &tenants, "light");
        assert!(waited_ns < SOON_NS, "{waited_ns}");
    });
}

#[test]
fn a_hog_has_its_budget_beside_three_that_wake_all_the_time() {
    apart(|| {
        let config = ["hog", "a", "b", "c"].map(|name| tenant(name, 0.235, 20));
        let (mut run, mut tenants) = host(&config, 5, Costs::default());
        for (name, off_us) in [("a", 10), ("b", 15), ("c", 20)] {
            run.spawn(tenants.thread(name, Periodic::new(20 * US, off_us * US)));
        }
        run.spawn(tenants.thread("hog", Hog));
        let seen = run_for(&mut run, 2 * SECOND);
        has_its_budget(&mut run, &tenants, "hog", &seen);
    });
}

/// Sleeps until a time in each window, and then computes until the window's end.
struct Late {
    period_ns: u64,
    after_ns: u64,
}

impl Program for Late {
    fn next(&mut self, _: Resumed, world: &mut World<'_>) -> Step {
        let start_ns = world.now_ns - world.now_ns % self.period_ns;
        match world.now_ns < start_ns + self.after_ns {
            true => Step::SleepUntil(start_ns + self.after_ns),
            false => Step::ComputeUntil { ns: u64::MAX, until_ns: start_ns + self.period_ns },
        }
    }
}

/// If it had all that is left of its budget, one of the others would not have its part.
#[test]
fn who_wakes_late_has_its_part_of_the_rest() {
    apart(|| {
        let names = ["a", "b", "c", "d"];
        let (mut run, mut tenants) = host(&names.map(|name| tenant(name, 0.235, 20)), 5, Costs::default());
        let claims = names.map(|name| claim(&mut run, &tenants, name));
        let period_ns = claims[0].period_ns;
        let after_ns = period_ns * 7 / 10;
        for name in names {
            run.spawn(tenants.thread(name, Late { period_ns, after_ns }));
        }
        let seen = run_for(&mut run, SECOND);
        for (name, claim) in names.iter().zip(claims) {
            let due_ns = claim.budget_ns * (period_ns - after_ns) / period_ns;
            for window in claim.windows(seen.clone()).skip(1) {
                let had_ns = run.observer.1.had_ns(claim.unit, window.start + after_ns..window.end);
                assert!(had_ns + GRAIN_NS >= due_ns, "{name} had {had_ns} of {due_ns} in {window:?}");
            }
        }
    });
}

/// Nobody is in its way, so it has all of its budget from when it wakes on, and then nothing until the window ends.
#[test]
fn a_capped_tenant_has_its_budget_when_it_wants_it() {
    for parts in [1, 3, 5, 7] {
        apart(|| {
            let config = ["capped", "asleep"]
                .map(|name| tenant(name, 0.2, 20).replace("match", "capped = true\nmatch"));
            let (mut run, mut tenants) = host(&config, 5, Costs::default());
            let claim = claim(&mut run, &tenants, "capped");
            let (period_ns, after_ns) = (claim.period_ns, claim.period_ns * parts / 10);
            run.spawn(tenants.thread("capped", Late { period_ns, after_ns }));
            let seen = run_for(&mut run, SECOND);
            for window in claim.windows(seen).skip(1) {
                let at_once = window.start..window.start + after_ns + claim.budget_ns + SOON_NS;
                let had_ns = run.observer.1.had_ns(claim.unit, at_once);
                assert!(
                    had_ns + GRAIN_NS >= claim.budget_ns,
                    "{parts}: {had_ns} at once in {window:?} of {claim:?}"
                );
                let had_ns = run.observer.1.had_ns(claim.unit, window.clone());
                assert!(had_ns <= claim.window_ns + GRAIN_NS, "{parts}: {had_ns} in {window:?} of {claim:?}");
            }
        });
    }
}

/// Whoever wakes all the time, the one with the longer period or the other.
#[test]
fn different_periods_have_their_budgets() {
    for waker in ["short", "long"] {
        apart(|| {
            let config = [tenant("short", 0.45, 5), tenant("long", 0.45, 50)];
            let (mut run, mut tenants) = host(&config, 5, Costs::default());
            let [short, long] = ["short", "long"].map(|name| claim(&mut run, &tenants, name));
            assert!(short.period_ns < long.period_ns, "{short:?}, {long:?}");
            let hog = if waker == "short" { "long" } else { "short" };
            run.spawn(tenants.thread(waker, Periodic::new(50 * US, 10 * US)));
            run.spawn(tenants.thread(hog, Hog));
            let seen = run_for(&mut run, 2 * SECOND);
            has_its_budget(&mut run, &tenants, hog, &seen);
        });
    }
}

/// Its changes of task are as dear as the host keeps back for. With two for each wake-up its reservation is soon spent,
/// and then it has only what nobody claims.
#[test]
fn who_wakes_ten_thousand_times_a_second_pays_for_it() {
    apart(|| {
        let hogs = ["a", "b", "c"];
        let config = hogs.map(|name| tenant(name, 0.265, 20)).into_iter().chain([tenant("waker", 0.15, 23)]);
        let costs = Costs { switch_ns: 12 * US, timer_slack_ns: 0, ..Costs::default() };
        let (mut run, mut tenants) = host(&config.collect::<Vec<_>>(), 15, costs);
        for name in hogs {
            run.spawn(tenants.thread(name, Hog));
        }
        run_for(&mut run, 50 * MS);
        run.spawn(tenants.thread("waker", Periodic::new(10 * US, 90 * US)));
        let seen = run_for(&mut run, 2 * SECOND);
        hogs.iter().for_each(|name| has_its_budget(&mut run, &tenants, name, &seen));
        let claimed_ns: u64 = hogs.map(|name| claim(&mut run, &tenants, name).window_ns).iter().sum();
        let claim = claim(&mut run, &tenants, "waker");
        let turn_ns = 10 * US + 12 * US;
        let own = claim.window_ns / (turn_ns + 2 * 15 * US);
        let open = (claim.period_ns - claimed_ns - claim.window_ns) / turn_ns;
        for window in claim.windows(seen) {
            let turns = run.observer.1.of(claim.unit, window.clone()).count() as u64;
            assert!(turns <= own + open, "{turns} turns in {window:?}, {own} and {open} of {claim:?}");
        }
    });
}

/// A capped tenant with nearly all of a CPU wakes all the time, and pays for that. So its budget is spent sooner.
/// It still waits for the next window no longer than its bound.
#[test]
fn who_pays_has_its_next_window_within_its_bound() {
    for share in [0.9, 0.94, 0.97] {
        apart(move || {
            let capped = tenant("capped", share, 2).replace("match", "capped = true\nmatch");
            let (mut run, mut tenants) = host(&[capped, tenant("hog", 0.02, 100)], 25, Costs::default());
            run.spawn(tenants.thread("hog", Hog));
            run.spawn(tenants.thread("capped", Periodic::new(300 * US, 5 * US)));
            run_for(&mut run, 2 * SECOND);
            let bound_ns = claim(&mut run, &tenants, "capped").bound_ns;
            let waited_ns = longest_wait_ns(&mut run, &tenants, "capped");
            assert!(waited_ns <= bound_ns, "share {share}: waited for {waited_ns} of {bound_ns}");
        });
    }
}

/// What a real-time task takes is lost to whom the CPU served before or serves next. All others have their budgets.
#[test]
fn what_a_real_time_task_takes_is_its_victims_loss() {
    apart(|| {
        let names = ["a", "b", "c", "d"];
        let (mut run, mut tenants) = host(&names.map(|name| tenant(name, 0.24, 20)), 5, Costs::default());
        for name in names {
            run.spawn(tenants.thread(name, Hog));
        }
        let program = Periodic::new(800 * US, 17_300 * US);
        let realtime = TaskSpec::new(9_999, UnitId(9), CgroupId::ROOT, program);
        let affinity = Some(Rc::new(CpuMask::of(2, [CpuId(1)])));
        run.spawn(TaskSpec { realtime: Some(50), affinity, ..realtime });
        let seen = run_for(&mut run, 2 * SECOND);
        let claims = names.map(|name| claim(&mut run, &tenants, name));
        let (mut short, turns) = (0, &run.observer.1);
        for (name, claim) in names.iter().zip(claims) {
            for window in claim.windows(seen.clone()) {
                let taken: Vec<Range<u64>> = turns.of(UnitId(9), window.clone()).collect();
                let is_beside = |turn: Range<u64>| {
                    taken.iter().any(|taken| turn.end == taken.start || turn.start == taken.end)
                };
                let may_lose = turns.of(claim.unit, window.clone()).any(is_beside);
                let lost_ns =
                    if may_lose { taken.iter().map(|taken| taken.end - taken.start).sum() } else { 0 };
                let had_ns = turns.had_ns(claim.unit, window.clone());
                assert!(
                    had_ns + lost_ns + GRAIN_NS >= claim.budget_ns,
                    "{name} had {had_ns} in {window:?} of {claim:?}, lost {lost_ns} to {taken:?}"
                );
                short += u64::from(had_ns + GRAIN_NS < claim.budget_ns);
            }
        }
        assert!(short > 10, "{short} budgets were shortened");
    });
}

/// Others come and go, so that there is another table each time: no budget is missed, nor does anybody wait for longer.
#[test]
fn budgets_outlast_a_table() {
    apart(|| {
        let config = [("goes", 20), ("a", 20), ("b", 10), ("c", 50)];
        let config = config.map(|(name, latency_ms)| tenant(name, 0.22, latency_ms));
        let (mut run, mut tenants) = host(&config, 5, Costs::default());
        let goes = tenants.home("goes").clone();
        run.spawn(tenants.thread("a", Hog));
        run.spawn(tenants.thread("b", Periodic::new(300 * US, 200 * US)));
        run.spawn(tenants.thread("c", Hog));
        run.spawn(tenants.thread("goes", Hog));
        run.observer.0.begin(&mut run.machine);
        let from_ns = run.machine.now_ns();
        for round in 0..20 {
            run.run_until(run.machine.now_ns() + 73 * MS);
            run.act(|run| match round % 2 {
                0 => run.policy.vanishes(&mut run.machine, "goes"),
                _ => run.policy.appears(&mut run.machine, "goes", goes.cgroup),
            });
            wait_until_settled(&mut run);
        }
        let seen = from_ns..run.machine.now_ns();
        for name in ["a", "b", "c"] {
            let bound_ns = claim(&mut run, &tenants, name).bound_ns;
            let waited_ns = longest_wait_ns(&mut run, &tenants, name);
            assert!(waited_ns <= bound_ns, "{name} waited for {waited_ns} of {bound_ns}");
        }
        for name in ["a", "c"] {
            has_its_budget(&mut run, &tenants, name, &seen);
        }
    });
}

/// Its turn is over as a window ends, and it sleeps before the timer says so. As it wakes it has lost nothing by that.
#[test]
fn who_sleeps_as_its_turn_is_over_loses_nothing() {
    apart(|| {
        let costs = Costs { timer_slack_ns: 200 * US, ..Costs::default() };
        let config = [("a", 0.32), ("asleep", 0.2)]
            .map(|(name, share)| tenant(name, share, 10).replace("match", "capped = true\nmatch"));
        let (mut run, mut tenants) = host(&config, 5, costs);
        run.spawn(tenants.thread("a", Periodic::new(290 * US, 710 * US)));
        run_for(&mut run, 4 * SECOND);
        let waited_ns = longest_wait_ns(&mut run, &tenants, "a");
        assert!(waited_ns < SOON_NS, "a waited for {waited_ns}");
    });
}

/// One that never sleeps has its budget of a table's first window too, however small, whenever the CPU looks first.
#[test]
fn a_small_budget_outlasts_a_table() {
    apart(|| {
        let config =
            [("goes", 0.2), ("small", 0.002), ("hog", 0.5)].map(|(name, share)| tenant(name, share, 10));
        let (mut run, mut tenants) = host(&config, 25, Costs::default());
        let (goes, small) = (tenants.home("goes").clone(), tenants.home("small").clone());
        run.act(|run| run.policy.vanishes(&mut run.machine, "small"));
        run.spawn(tenants.thread("small", Hog));
        run.act(|run| run.policy.appears(&mut run.machine, "small", small.cgroup));
        wait_until_settled(&mut run);
        run.spawn(tenants.thread("hog", Hog));
        run.spawn(tenants.thread("goes", Hog));
        run.observer.0.begin(&mut run.machine);
        for round in 0..40 {
            run.run_until(run.machine.now_ns() + 73 * MS);
            run.act(|run| match round % 2 {
                0 => run.policy.vanishes(&mut run.machine, "goes"),
                _ => run.policy.appears(&mut run.machine, "goes", goes.cgroup),
            });
            wait_until_settled(&mut run);
        }
        let bound_ns = claim(&mut run, &tenants, "small").bound_ns;
        let waited_ns = longest_wait_ns(&mut run, &tenants, "small");
        assert!(waited_ns <= bound_ns, "small waited for {waited_ns} of {bound_ns}");
    });
}

/// A VM with two vCPUs beside one hog and one tenant that wakes on each CPU. It goes and comes. How often Rota missed a
/// promise.
fn missed_as_a_vm_comes(share: f64, latency_ms: u32, works_us: u64, monitor: Box<dyn Program>) -> u64 {
    let config = [("a", 0.5, 20), ("b", share, latency_ms), ("vm", 0.01, 2)]
        .map(|(name, share, latency_ms)| tenant(name, share, latency_ms).replace("match", "vcpus = 2\nmatch"))
        .concat()
        .replace("cgroup = \"vm\"", "vm = \"qemu:vm\"");
    let host = "[host]\ncpus = \"0-2\"\nhousekeeping = \"0\"\nswitch_cost = \"17us\"\n";
    let (mut run, mut tenants) = start(&format!("{host}{config}"));
    let vcpus = [0, 1].map(|index| tenants.vcpu("vm", index, Hog));
    let threads: BTreeMap<u32, i32> = (0..).zip(vcpus.each_ref().map(|vcpu| vcpu.pid)).collect();
    vcpus.into_iter().for_each(|vcpu| _ = run.spawn(vcpu));
    run.spawn(tenants.thread("vm", monitor));
    for round in 0..2 {
        run.spawn(tenants.thread("a", Hog));
        run.spawn(tenants.thread("b", Periodic::new((works_us + 13 * round) * US, 150 * US)));
    }
    for name in ["a", "b"] {
        let home = tenants.home(name).clone();
        run.act(|run| run.policy.appears(&mut run.machine, name, home.cgroup));
    }
    let vm = tenants.home("vm").clone();
    let mut missed = 0;
    for round in 0..20 {
        run.act(|run| {
            run.policy.appears(&mut run.machine, "vm", vm.cgroup);
            run.policy.vcpu_threads(&mut run.machine, "vm", threads.clone());
        });
        while !run.policy.is_settled() {
            run.run_until(run.machine.now_ns() + MS);
        }
        run.run_until(run.machine.now_ns() + 37 * MS);
        let by_rota = |queue: &QueueAccount| queue.missed_by_cause[Cause::Rota as usize];
        missed += run.policy.queues(&mut run.machine).iter().map(by_rota).sum::<u64>();
        run.act(|run| run.policy.vanishes(&mut run.machine, "vm"));
        run.run_until(run.machine.now_ns() + 13 * MS + round * 37 * US);
    }
    missed
}

/// A VM comes, whose vCPUs have waited for long. Its monitor wakes, or is stopped on one CPU and would go on elsewhere.
/// That is no wake-up of a vCPU: each has its budget from the table's first window on.
#[test]
fn vcpus_that_have_waited_are_served_at_once_beside_their_monitor() {
    apart(|| assert_eq!(missed_as_a_vm_comes(0.3, 5, 2500, Box::new(Hog)), 0));
    apart(|| assert_eq!(missed_as_a_vm_comes(0.3, 5, 100, Box::new(Periodic::new(20 * US, 700 * US))), 0));
    apart(|| assert_eq!(missed_as_a_vm_comes(0.4, 10, 370, Box::new(Periodic::new(5 * US, 313 * US))), 0));
}
