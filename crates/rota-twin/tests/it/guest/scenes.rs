//! A guest beside a real-time task that takes its first CPU away by the host's timetable.

use std::cell::Cell;
use std::rc::Rc;

use rota_model::Topology;
use rota_sim::observe::{Metrics, UnitMetrics};
use rota_sim::programs::sync::Patience;
use rota_sim::programs::{Hog, Load, Probe, Rounds, Server};
use rota_sim::{
    CgroupId, Costs, CpuId, Device, DeviceId, Distribution, Guest, Rng, Script, Simulation, Site, TaskSpec,
    Timetable, UnitId,
};
use rota_twin::{Code, GuestAccount, GuestAgent};

use crate::round_robin::RoundRobin;

const US: u64 = 1_000;
const MS: u64 = 1_000_000;
/// The host's timetable: the real-time task has CPU 0 for the second half of each.
const ROUND_NS: u64 = 20 * MS;
/// For so long a guest is simulated.
const RUN_NS: u64 = 2_000 * MS;
/// So many rounds.
const ROUNDS: u64 = RUN_NS / ROUND_NS;

type Host = Simulation<RoundRobin, Metrics>;

/// What is in a guest.
#[derive(Clone, Copy)]
pub enum Within<'c> {
    /// A plain kernel.
    Plain,
    /// `rota guest`.
    Agent(&'c Code),
}

/// A guest that is being made.
struct Scene {
    guest: Guest,
    account: Rc<Cell<GuestAccount>>,
    vcpus: u32,
}

impl Scene {
    fn new(vcpus: u32, within: Within<'_>) -> Scene {
        let rng = Rng::new(1, 1);
        let (guest, account) = match within {
            Within::Plain => (Guest::new(vcpus, rng), Rc::default()),
            Within::Agent(code) => GuestAgent::guest(code, vcpus, rng),
        };
        Scene { guest, account, vcpus }
    }

    /// The slots of vCPU 0 begin so late in each round; the other vCPUs have CPUs of their own.
    #[must_use]
    fn published(self, from_ns: u64) -> Scene {
        let mut timetable = Timetable::new(self.vcpus);
        let until_ns = from_ns + ROUND_NS / 2;
        let slots = match until_ns.checked_sub(ROUND_NS).filter(|wrapped_ns| *wrapped_ns > 0) {
            Some(wrapped_ns) => vec![(0, wrapped_ns), (from_ns, ROUND_NS)],
            None => vec![(from_ns, until_ns)],
        };
        timetable.set(0, ROUND_NS, slots);
        self.guest.publish(Some(timetable));
        self
    }

    /// What it gets and does in 2 s, while the real-time task is there for so many rounds.
    fn run(&self, rounds: u64) -> UnitMetrics {
        let mut host = host(self.vcpus, Costs::default());
        self.enter(&mut host, 0, 0);
        taken_away(&mut host, rounds);
        host.run_until(RUN_NS);
        host.observer.finish(&mut host.machine).remove(0)
    }

    /// Its vCPUs are a unit of a host's, each on a CPU of its own from the first on.
    fn enter(&self, host: &mut Host, first: u32, unit: u32) {
        for (cpu, vcpu) in (first..).zip(self.guest.vcpus()) {
            let affinity = Some(host.machine.mask([CpuId(cpu)]));
            host.spawn(TaskSpec { affinity, ..TaskSpec::new(100, UnitId(unit), CgroupId::ROOT, vcpu) });
        }
    }

    /// It has a thread for each vCPU, which wait for each other every ms.
    fn waits_for_each_other(&self, patience: Patience) {
        let compute = Distribution::Constant(MS);
        let programs = Rounds { threads: self.vcpus, compute, patience }.programs();
        programs.into_iter().for_each(|script| self.guest.thread(script));
    }
}

fn host(cpus: u32, costs: Costs) -> Host {
    let topology = Topology::flat(&(0..cpus).collect());
    Simulation::new(topology, costs, 1, 0, RoundRobin::default(), Metrics::default())
}

/// The real-time task has CPU 0.
fn taken_away(host: &mut Host, rounds: u64) {
    let script = Script::new(async move |thread| {
        for round in 1..=rounds {
            thread.compute(ROUND_NS / 2 - 20 * US).await;
            thread.sleep((round * ROUND_NS + ROUND_NS / 2).saturating_sub(thread.now_ns())).await;
        }
    });
    let affinity = Some(host.machine.mask([CpuId(0)]));
    let spec =
        TaskSpec { affinity, realtime: Some(50), ..TaskSpec::new(200, UnitId(9), CgroupId::ROOT, script) };
    host.at(ROUND_NS / 2, |host| _ = host.spawn(spec));
}

/// How often a thread that computes was kept from it for more than 1 ms, with an idle vCPU beside its own.
fn stops(within: Within<'_>, is_published: bool) -> u64 {
    let scene = Scene::new(2, within);
    let scene = if is_published { scene.published(0) } else { scene };
    scene.guest.thread(Probe::new(100 * US));
    scene.run(ROUNDS).latencies.above(MS)
}

/// What two threads that compute get beside a real-time task that goes after half a second, in ms of 3,750.
fn left_over_ms(within: Within<'_>) -> u64 {
    let scene = Scene::new(2, within).published(0);
    (0..2).for_each(|_| scene.guest.thread(Hog));
    scene.run(25).received_ns / MS
}

/// What four threads on four vCPUs do that wait for each other, and what is counted in the first second.
pub fn rounds(within: Within<'_>, published_ns: Option<u64>, patience: Patience) -> (u64, GuestAccount) {
    let scene = Scene::new(4, within);
    let scene = match published_ns {
        Some(from_ns) => scene.published(from_ns),
        None => scene,
    };
    scene.waits_for_each_other(patience);
    (scene.run(ROUNDS).work, scene.account.get())
}

/// A thread that computes is at home on vCPU 0, and one that is bound to vCPU 1 computes there. What both get, in ms of
/// 3,000.
fn beside_one_that_is_bound_ms(within: Within<'_>) -> u64 {
    let scene = Scene::new(2, within).published(0);
    scene.guest.bound_thread(Script::new(async |_| ()));
    scene.guest.bound_thread(Hog);
    scene.guest.thread(Hog);
    scene.run(ROUNDS).received_ns / MS
}

/// The same with one on vCPU 1 that sleeps for 1 ms and then computes for 100 us. How often it began more than 100 us
/// late.
fn late_beside_a_guest(within: Within<'_>) -> u64 {
    let scene = Scene::new(2, within).published(0);
    scene.guest.bound_thread(Script::new(async |_| ()));
    scene.guest.bound_thread(Script::new(async |thread| {
        loop {
            let due_ns = thread.now_ns() + MS;
            thread.sleep(MS).await;
            thread.latency(thread.now_ns() - due_ns);
            thread.compute(100 * US).await;
        }
    }));
    scene.guest.thread(Hog);
    scene.run(ROUNDS).latencies.above(100 * US)
}

/// How often one of six threads that compute began on a vCPU that was stopped, or about to be, in the first second.
fn strays_of_six(within: Within<'_>) -> u64 {
    let scene = Scene::new(2, within).published(0);
    (0..6).for_each(|_| scene.guest.thread(Hog));
    scene.run(ROUNDS);
    scene.account.get().strays
}

/// Two guests of one host, of which only the first one's CPU is taken away: what each one's threads do. No timer is
/// late by chance, which they would have in common.
pub fn of_two_guests(within: [Within<'_>; 2]) -> [u64; 2] {
    let mut host = host(8, Costs { timer_slack_ns: 0, ..Costs::default() });
    let scenes = within.map(|within| Scene::new(4, within).published(0));
    for (number, scene) in (0..).zip(&scenes) {
        scene.waits_for_each_other(Patience::NONE);
        scene.enter(&mut host, 4 * number, number);
    }
    taken_away(&mut host, ROUNDS);
    host.run_until(RUN_NS);
    let metrics = host.observer.finish(&mut host.machine);
    [metrics[0].work, metrics[1].work]
}

struct Here<'s>(&'s mut Host);

impl Site for Here<'_> {
    fn attach(&mut self, device: Box<dyn Device>) -> DeviceId {
        self.0.attach(device, CpuId(1), Some(0))
    }
}

/// A server answers in 2 ms, every 5 ms, on a CPU that nobody takes away. How often it did, and how often that took
/// longer by 200 us.
pub fn answers(within: Within<'_>) -> (u64, u64) {
    let (scene, mut host) = (Scene::new(1, within), host(2, Costs::default()));
    let (service, between) = (Distribution::Constant(2 * MS), Distribution::Constant(5 * MS));
    let server = Server { threads: 1, service, load: Load::Open(between) };
    for script in server.programs(&mut scene.guest.site(&mut Here(&mut host))) {
        scene.guest.thread(script);
    }
    scene.enter(&mut host, 0, 0);
    host.run_until(RUN_NS);
    let metrics = host.observer.finish(&mut host.machine).remove(0);
    (metrics.work, metrics.latencies.above(2 * MS + 200 * US))
}

/// What is seen to be wrong with a guest's scheduler.
pub fn findings(code: &Code) -> Vec<String> {
    let (plain, agent) = (Within::Plain, Within::Agent(code));
    let mut found = Vec::new();
    let mut hold = |is_right: bool, what: String| found.extend(Some(what).filter(|_| !is_right));
    let kept = stops(agent, true);
    hold(kept == 1, format!("a thread is stopped {kept} times, and not once, by which it finds out"));
    let kept = stops(agent, false);
    hold(kept <= ROUNDS / 2, format!("without a timetable a thread is stopped {kept} times"));
    let left_ms = left_over_ms(agent);
    hold((3_450..3_760).contains(&left_ms), format!("{left_ms} ms are used of a CPU that others have left"));
    for patience in [Patience::NONE, Patience::ENDLESS] {
        let without = rounds(plain, None, patience).0;
        let (with, account) = rounds(agent, Some(0), patience);
        hold(with * 100 > without * 152, format!("{with} rounds instead of {without}, {patience:?}"));
        let GuestAccount { moved, back, .. } = account;
        hold(back <= moved, format!("{back} threads came back of {moved}, {patience:?}"));
        for part in 1..4 {
            let (wrong, account) = rounds(agent, Some(ROUND_NS * part / 4), patience);
            let what = format!(
                "{wrong} rounds instead of {without} by a wrong timetable, {patience:?}, {account:?}"
            );
            hold(wrong * 100 > without * 97 && account.distrusted == 1, what);
        }
    }
    let both_ms = beside_one_that_is_bound_ms(agent);
    hold(both_ms > 2_950, format!("{both_ms} ms beside a thread that is bound"));
    let strays = strays_of_six(agent);
    hold(strays == 0, format!("{strays} threads began where they could not stay"));
    let late = late_beside_a_guest(agent);
    hold(late <= 1, format!("a thread at home waits for a guest {late} times"));
    found
}
