//! What is done to a host while it runs: each deal of the swarm again and again, at random times.

use std::rc::Rc;

use rota_model::{Class, Reservation, Share};
use rota_sim::{
    CgroupId, Costs, CpuId, CpuMask, Program, Resumed, Rng, State, Step, TaskId, TaskSpec, Theft, Why, World,
};

use super::late::{KICK_LATE_MAX_NS, TIMER_LATE_MAX_NS};
use super::scene::Scene;
use super::swarm::{DAEMON_STREAM, Deal, MS, US, spread};

/// No more threads than this, and a few for each CPU. More than 2,560 in one line of the floor have their turns out of
/// slots, and then a bound of a few ms may not hold.
const CROWD_MAX: u32 = 2_000;
/// One in so many crowds has thousands of threads; the others have a hundred at most.
const THOUSANDS_IN: u64 = 16;

/// What no scheduler can stop has half of a CPU's time at most, and so much more at once: kernels too leave ordinary
/// threads something beside real-time ones, or else all of them starve.
const TAKEN_AT_ONCE_NS: u64 = 100 * MS;

/// Computes and sleeps a few times, and is over.
struct Burst {
    on_ns: u64,
    off_ns: u64,
    rounds: u64,
}

impl Burst {
    fn computes_ns(&self) -> u64 {
        self.on_ns * self.rounds
    }
}

impl Program for Burst {
    fn next(&mut self, resumed: Resumed, world: &mut World<'_>) -> Step {
        if resumed.why != Why::Computed {
            return Step::Compute(self.on_ns);
        }
        self.rounds -= 1;
        match self.rounds {
            0 => Step::Exit,
            _ => Step::SleepUntil(world.now_ns + self.off_ns),
        }
    }
}

/// What is done next, and what was done that has to be undone.
pub struct Faults {
    /// Each deal, how far apart on average, and when next.
    due: Vec<(Deal, u64, u64)>,
    /// Of chance, for when the daemon is killed.
    daemon: Rng,
    usual: Costs,
    late_until_ns: u64,
    moved: Vec<(TaskId, CgroupId)>,
    bound: Vec<TaskId>,
    began_ns: u64,
    /// What each CPU was given to do that no scheduler can stop; the first one's is all CPUs' if CPUs may go.
    taken_ns: Vec<u64>,
}

impl Faults {
    pub fn new(scene: &mut Scene) -> Faults {
        let now_ns = scene.now_ns();
        let deals = scene.swarm.deals.clone().into_iter();
        let mut daemon = Rng::new(scene.swarm.seed, DAEMON_STREAM + 1);
        let due = deals.map(|(deal, every_ns)| {
            let rng = if deal == Deal::Daemon { &mut daemon } else { &mut scene.rng };
            (deal, every_ns, now_ns + wait_ns(rng, every_ns))
        });
        let (due, usual) = (due.collect(), scene.run.machine.costs().clone());
        let taken_ns = vec![0; scene.swarm.cpus as usize];
        let (moved, bound) = (Vec::new(), Vec::new());
        let late_until_ns = u64::MAX;
        Faults { due, daemon, usual, late_until_ns, moved, bound, began_ns: now_ns, taken_ns }
    }

    /// When the next one is due, if before then.
    pub fn next_ns(&self, until_ns: u64) -> Option<u64> {
        let next = self.due.iter().map(|due| due.2).chain([self.late_until_ns]).min();
        next.filter(|next_ns| *next_ns < until_ns)
    }

    /// Does what is due.
    pub fn happen(&mut self, scene: &mut Scene) {
        let now_ns = scene.now_ns();
        if self.late_until_ns <= now_ns {
            self.late_until_ns = u64::MAX;
            *scene.run.machine.costs_mut() = self.usual.clone();
        }
        for place in 0..self.due.len() {
            let (deal, every_ns, at_ns) = self.due[place];
            if at_ns > now_ns {
                continue;
            }
            // What a program does is done on a CPU that is there.
            let (_, there_ns) = scene.run.machine.first_there();
            if there_ns > now_ns && !matches!(deal, Deal::Theft | Deal::Late) {
                self.due[place].2 = there_ns;
                continue;
            }
            let rng = if deal == Deal::Daemon { &mut self.daemon } else { &mut scene.rng };
            self.due[place].2 = now_ns + wait_ns(rng, every_ns);
            self.deal(scene, deal);
        }
    }

    fn deal(&mut self, scene: &mut Scene, deal: Deal) {
        match deal {
            Deal::Churn => churn(scene),
            Deal::Edit => edit(scene),
            Deal::Crowd => crowd(scene),
            Deal::Move => self.move_thread(scene),
            Deal::Affinity => self.bind_thread(scene),
            Deal::Realtime => self.realtime(scene),
            Deal::Theft => self.theft(scene),
            Deal::Kthread => self.kernel_thread(scene),
            Deal::Late => self.be_late(scene),
            Deal::Hotplug => hotplug(scene),
            Deal::Daemon => daemon(scene),
        }
    }

    /// Undoes what does not end by itself.
    pub fn stop(&mut self, scene: &mut Scene) {
        if scene.run.policy.is_left() {
            daemon(scene);
        }
        *scene.run.machine.costs_mut() = self.usual.clone();
        for (task, cgroup) in std::mem::take(&mut self.moved) {
            if scene.run.machine.task(task).state != State::Dead {
                scene.run.set_cgroup(task, cgroup);
                scene.run.observer.0.0.changed(&scene.run.machine, task);
            }
        }
        for task in std::mem::take(&mut self.bound) {
            if scene.run.machine.task(task).state != State::Dead {
                let everywhere = scene.run.machine.everywhere().clone();
                scene.run.set_affinity(task, everywhere);
                scene.run.observer.0.0.changed(&scene.run.machine, task);
            }
        }
    }

    fn move_thread(&mut self, scene: &mut Scene) {
        let Some(task) = some_thread(scene) else { return };
        let to = scene.rng.below(scene.guests.len() as u64 + 1) as usize;
        let cgroup = scene.tenants.homes().get(to).map_or(CgroupId::ROOT, |home| home.cgroup);
        let before = scene.run.machine.task(task).cgroup;
        if !self.moved.iter().any(|(moved, _)| *moved == task) {
            self.moved.push((task, before));
        }
        scene.run.set_cgroup(task, cgroup);
        scene.run.observer.0.0.changed(&scene.run.machine, task);
    }

    fn bind_thread(&mut self, scene: &mut Scene) {
        let Some(task) = some_thread(scene) else { return };
        let mask = match scene.rng.chance(1, 3) {
            true => scene.run.machine.everywhere().clone(),
            false => some_cpus(scene),
        };
        self.bound.push(task);
        scene.run.set_affinity(task, mask);
        scene.run.observer.0.0.changed(&scene.run.machine, task);
    }

    /// Whether a CPU can be taken for so long, which then is counted.
    fn takes(&mut self, scene: &Scene, cpu: CpuId, ns: u64) -> bool {
        let most_ns = (scene.now_ns() - self.began_ns) / 2 + TAKEN_AT_ONCE_NS;
        // Where CPUs go, what was to be done there is done on those that are left, be it one.
        let account = if scene.swarm.has(Deal::Hotplug) { 0 } else { cpu.index() };
        let taken_ns = &mut self.taken_ns[account];
        let fits = *taken_ns + ns <= most_ns;
        *taken_ns += if fits { ns } else { 0 };
        fits
    }

    fn realtime(&mut self, scene: &mut Scene) {
        let program = burst(&mut scene.rng, 10 * MS);
        let cpu = match scene.rng.chance(1, 2) {
            true => some_cpu(scene),
            false => scene.run.machine.this_cpu(),
        };
        let priority = scene.rng.between(1, 99) as u8;
        if self.takes(scene, cpu, program.computes_ns()) {
            let (spec, affinity) = (scene.tenants.system(program), Some(scene.run.machine.mask([cpu])));
            scene.run.spawn(TaskSpec { realtime: Some(priority), affinity, ..spec });
        }
    }

    fn theft(&mut self, scene: &mut Scene) {
        let (cpu, ns) = (some_cpu(scene), spread(&mut scene.rng, 10 * US, 20 * MS));
        let theft = [Theft::Interrupt, Theft::SoftInterrupt, Theft::Steal][scene.rng.below(3) as usize];
        if self.takes(scene, cpu, ns) {
            scene.run.steal(cpu, ns, theft);
        }
    }

    fn kernel_thread(&mut self, scene: &mut Scene) {
        let (cpu, program) = (some_cpu(scene), burst(&mut scene.rng, 5 * MS));
        if self.takes(scene, cpu, program.computes_ns()) {
            let (spec, affinity) = (scene.tenants.system(program), Some(scene.run.machine.mask([cpu])));
            scene.run.spawn(TaskSpec { kernel_thread: true, affinity, ..spec });
        }
    }

    fn be_late(&mut self, scene: &mut Scene) {
        let costs = scene.run.machine.costs_mut();
        costs.timer_slack_ns = spread(&mut scene.rng, 100 * US, TIMER_LATE_MAX_NS);
        costs.kick_ns = spread(&mut scene.rng, US, KICK_LATE_MAX_NS);
        self.late_until_ns = scene.now_ns() + spread(&mut scene.rng, MS, 100 * MS);
    }
}

/// Around `mean_ns`.
fn wait_ns(rng: &mut Rng, mean_ns: u64) -> u64 {
    rng.between(1, 2 * mean_ns)
}

fn some_cpu(scene: &mut Scene) -> CpuId {
    CpuId(scene.rng.below(scene.run.machine.nr_cpus().into()) as u32)
}

fn some_cpus(scene: &mut Scene) -> Rc<CpuMask> {
    let count = spread(&mut scene.rng, 1, 8);
    let cpus: Vec<CpuId> = (0..count).map(|_| some_cpu(scene)).collect();
    scene.run.machine.mask(cpus)
}

/// An ordinary thread that is not the kernel's.
fn some_thread(scene: &mut Scene) -> Option<TaskId> {
    let Scene { run, rng, .. } = scene;
    let threads = || {
        let all = run.machine.tasks();
        all.filter(|(_, task)| task.state != State::Dead && task.realtime.is_none() && !task.kernel_thread)
    };
    let count = threads().count() as u64;
    let chosen = (count > 0).then(|| rng.below(count) as usize)?;
    threads().nth(chosen).map(|(task, _)| task)
}

fn churn(scene: &mut Scene) {
    let place = scene.rng.below(scene.guests.len() as u64) as usize;
    match scene.guests[place].present {
        true => scene.vanishes(place),
        false => scene.appears(place),
    }
}

fn edit(scene: &mut Scene) {
    let place = scene.rng.below(scene.guests.len() as u64) as usize;
    let name = scene.home(place).tenant.name.clone();
    let is_vm = scene.home(place).is_vm;
    let cpus = scene.model.host.tenant_cpus().len() as u64;
    let rng = &mut scene.rng;
    let tenant = scene.model.tenants.iter_mut().find(|tenant| tenant.name == name).expect("it is configured");
    let share = Share::from_ppb(spread(rng, 10_000_000, 640_000_000) as u32).expect("less than one CPU");
    let latency_ns = spread(rng, 2, 64) * MS;
    match (&mut tenant.class, rng.below(8)) {
        (Class::Reserved(reservation), 0..2) => reservation.share = share,
        (Class::Reserved(reservation), 2..4) => reservation.latency_ns = latency_ns,
        (Class::Reserved(reservation), 4) => reservation.capped ^= true,
        (Class::Reserved(_), 5) if !is_vm => tenant.vcpus = rng.between(1, cpus.min(4)) as u32,
        (class @ Class::Reserved(_), 6) if !tenant.exclusive_cores => *class = Class::Shared { weight: 100 },
        (class @ Class::Reserved(_), _) if !tenant.exclusive_cores => *class = Class::Background,
        (Class::Reserved(_), _) => {}
        (Class::Shared { weight }, 0..3) => *weight = rng.between(1, 1000) as u32,
        (class, 3) => *class = Class::Shared { weight: 100 },
        (class, 4) => *class = Class::Background,
        (class, _) => *class = Class::Reserved(Reservation { share, latency_ns, capped: false }),
    }
    let model = scene.model.clone();
    scene.run.act(|run| run.policy.configure(&mut run.machine, model));
}

fn crowd(scene: &mut Scene) {
    let alive = scene.run.machine.tasks().filter(|(_, task)| task.state != State::Dead).count() as u32;
    let room = (CROWD_MAX + 8 * scene.swarm.cpus).saturating_sub(alive);
    if room < 2 {
        return;
    }
    let place = scene.rng.below(scene.guests.len() as u64) as usize;
    let name = scene.home(place).tenant.name.clone();
    scene.guests[place].monitored |= scene.home(place).is_vm;
    let most = if scene.rng.below(THOUSANDS_IN) == 0 { CROWD_MAX } else { 128 };
    for _ in 0..spread(&mut scene.rng, 2, u64::from(most.min(room))) {
        let program = burst(&mut scene.rng, 2 * MS);
        let spec = scene.tenants.thread(&name, program);
        scene.run.spawn(spec);
    }
}

fn burst(rng: &mut Rng, most_ns: u64) -> Burst {
    let (on_ns, off_ns) = (spread(rng, 5 * US, most_ns), spread(rng, 5 * US, 10 * MS));
    Burst { on_ns, off_ns, rounds: rng.between(1, 8) }
}

/// The daemon is killed as it waits; or the next one comes, and finds who is here.
fn daemon(scene: &mut Scene) {
    if scene.run.policy.exited().is_some() {
        return;
    }
    if !scene.run.policy.is_left() {
        scene.run.act(|run| run.policy.ends(&run.machine));
        return;
    }
    let found = scene.run.act(|run| run.policy.comes_back(&mut run.machine));
    found.expect("what a daemon left is sound");
    for place in 0..scene.guests.len() {
        if scene.guests[place].present {
            scene.appears(place);
        }
    }
}

fn hotplug(scene: &mut Scene) {
    let cpu = some_cpu(scene);
    let online = (0..scene.run.machine.nr_cpus()).filter(|&cpu| scene.run.machine.cpu(CpuId(cpu)).online);
    match scene.run.machine.cpu(cpu).online {
        true if online.count() > 1 => scene.run.offline(cpu),
        true => {}
        false => scene.run.online(cpu),
    }
}
