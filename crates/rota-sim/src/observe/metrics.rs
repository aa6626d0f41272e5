//! What each unit got, and how: received time, blackouts, wake-up latencies, preemptions, migrations.

use rota_model::histogram::Histogram;

use crate::ids::{CpuId, TaskId, UnitId};
use crate::machine::Machine;
use crate::observe::{Event, Observer};

/// One unit, since the measurement began.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnitMetrics {
    /// CPU time, costs included, interrupts left out.
    pub received_ns: u64,
    /// Time in which one of its tasks would have run, or ran.
    pub wanted_ns: u64,
    /// The part of it with one task that would have run or ran, with two at a time, and so on.
    pub runnable_ns: Vec<u64>,
    /// The longest time in which one of its tasks would have run and none did.
    pub blackout_max_ns: u64,
    /// When that ended.
    pub blackout_at_ns: u64,
    /// The sum of all such times.
    pub blackout_ns: u64,
    /// All such times.
    pub blackouts: Histogram,
    /// From waking up to running, of each of its tasks.
    pub wakeups: Histogram,
    /// How often one of its tasks was put on a CPU.
    pub dispatches: u64,
    /// How often one was taken from a CPU that would have gone on.
    pub preemptions: u64,
    /// How often one was put on another CPU than before.
    pub migrations: u64,
    /// Useful work, as its programs count it.
    pub work: u64,
    /// Latencies, as its programs see them.
    pub latencies: Histogram,
}

impl UnitMetrics {
    /// Takes another unit's in. Times in which both wanted to run count twice, as both received.
    pub fn join(&mut self, other: &UnitMetrics) {
        if other.blackout_max_ns > self.blackout_max_ns {
            (self.blackout_max_ns, self.blackout_at_ns) = (other.blackout_max_ns, other.blackout_at_ns);
        }
        self.received_ns += other.received_ns;
        self.wanted_ns += other.wanted_ns;
        self.runnable_ns.resize(self.runnable_ns.len().max(other.runnable_ns.len()), 0);
        for (mine, theirs) in self.runnable_ns.iter_mut().zip(&other.runnable_ns) {
            *mine += theirs;
        }
        self.blackout_ns += other.blackout_ns;
        self.dispatches += other.dispatches;
        self.preemptions += other.preemptions;
        self.migrations += other.migrations;
        self.work += other.work;
        self.blackouts.join(&other.blackouts);
        self.wakeups.join(&other.wakeups);
        self.latencies.join(&other.latencies);
    }
}

#[derive(Clone, Debug, Default)]
struct Unit {
    metrics: UnitMetrics,
    runnable: u32,
    running: u32,
    /// Since when there are as many runnable as now.
    runnable_since_ns: u64,
    blackout_since_ns: Option<u64>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Task {
    woken_ns: Option<u64>,
    /// Its CPU time when it was counted last.
    counted_ns: u64,
    ran_on: Option<CpuId>,
    runnable: bool,
}

/// Which of a unit's histograms.
#[derive(Clone, Copy, Debug)]
enum Of {
    Blackouts,
    Wakeups,
    Latencies,
}

/// A time that is to be counted in a unit's histogram.
#[derive(Clone, Copy, Debug)]
struct Time {
    unit: u32,
    of: Of,
    ns: u64,
}

/// So many times are counted at once. Together all histograms are larger than a processor's caches, and of each a time
/// needs one line, which takes as long to come as all else that an event does in here; those of many come together.
const COUNTED_AT_ONCE: usize = 128;

/// Measures every unit.
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    units: Vec<Unit>,
    tasks: Vec<Task>,
    /// Times that are not counted yet.
    times: Vec<Time>,
    began_ns: u64,
}

impl Metrics {
    /// Forgets what was measured so far: the measurement begins now.
    pub fn begin(&mut self, machine: &mut Machine) {
        self.count_running(machine);
        self.times.clear();
        self.began_ns = machine.now_ns();
        for unit in &mut self.units {
            unit.metrics = UnitMetrics::default();
            unit.runnable_since_ns = self.began_ns;
            unit.blackout_since_ns = unit.blackout_since_ns.map(|_| self.began_ns);
        }
    }

    /// What was measured up to now, by unit; blackouts that go on included.
    pub fn finish(&mut self, machine: &mut Machine) -> Vec<UnitMetrics> {
        self.count_running(machine);
        self.count_times();
        let now_ns = machine.now_ns();
        let finished = self.units.iter().map(|unit| {
            let mut unit = unit.clone();
            unit.count_runnable(now_ns);
            if let Some(lasted_ns) = unit.blackout_ends(now_ns) {
                unit.metrics.blackouts.add(lasted_ns);
            }
            unit.metrics
        });
        finished.collect()
    }

    /// What each unit has received and wanted so far.
    pub fn so_far(&mut self, machine: &mut Machine) -> Vec<(u64, u64)> {
        self.count_running(machine);
        let now_ns = machine.now_ns();
        let wanted_ns = |unit: &Unit| match unit.runnable {
            0 => unit.metrics.wanted_ns,
            _ => unit.metrics.wanted_ns + now_ns - unit.runnable_since_ns,
        };
        self.units.iter().map(|unit| (unit.metrics.received_ns, wanted_ns(unit))).collect()
    }

    /// What a unit has been counted for so far: work, dispatches, migrations. Times that go on are not in it.
    pub fn counted(&self, unit: UnitId) -> Option<&UnitMetrics> {
        Some(&self.units.get(unit.index())?.metrics)
    }

    /// Since when the measurement goes on.
    pub fn began_ns(&self) -> u64 {
        self.began_ns
    }

    /// Counts the time of what runs now.
    fn count_running(&mut self, machine: &mut Machine) {
        for cpu in (0..machine.nr_cpus()).map(CpuId) {
            machine.settle(cpu);
            if let Some(task) = machine.cpu(cpu).current {
                self.count(machine, task);
            }
        }
    }

    fn count(&mut self, machine: &Machine, id: TaskId) {
        let used_ns = machine.task(id).used_ns;
        let task = &mut self.tasks[id.index()];
        let received_ns = used_ns - std::mem::replace(&mut task.counted_ns, used_ns);
        self.units[machine.task(id).unit.index()].metrics.received_ns += received_ns;
    }

    /// A time to be counted.
    fn time(&mut self, unit: UnitId, of: Of, ns: u64) {
        self.times.push(Time { unit: unit.0, of, ns });
        if self.times.len() >= COUNTED_AT_ONCE {
            self.count_times();
        }
    }

    fn count_times(&mut self) {
        for Time { unit, of, ns } in self.times.drain(..) {
            let metrics = &mut self.units[unit as usize].metrics;
            let histogram = match of {
                Of::Blackouts => &mut metrics.blackouts,
                Of::Wakeups => &mut metrics.wakeups,
                Of::Latencies => &mut metrics.latencies,
            };
            histogram.add(ns);
        }
    }

    fn born(&mut self, machine: &Machine, id: TaskId) {
        self.tasks.resize(self.tasks.len().max(id.index() + 1), Task::default());
        let units = machine.task(id).unit.index() + 1;
        self.units.resize(self.units.len().max(units), Unit::default());
    }

    fn woken(&mut self, machine: &Machine, id: TaskId) {
        let now_ns = machine.now_ns();
        let task = &mut self.tasks[id.index()];
        task.woken_ns = Some(now_ns);
        if std::mem::replace(&mut task.runnable, true) {
            return;
        }
        let unit = &mut self.units[machine.task(id).unit.index()];
        unit.count_runnable(now_ns);
        unit.runnable += 1;
        if unit.running == 0 {
            unit.blackout_since_ns.get_or_insert(now_ns);
        }
    }

    fn runs(&mut self, machine: &Machine, cpu: CpuId, id: TaskId) {
        let now_ns = machine.now_ns();
        let of = machine.task(id).unit;
        let task = &mut self.tasks[id.index()];
        let unit = &mut self.units[of.index()];
        unit.running += 1;
        unit.metrics.dispatches += 1;
        unit.metrics.migrations += u64::from(task.ran_on.is_some_and(|before| before != cpu));
        task.ran_on = Some(cpu);
        let (woken_ns, blackout_ns) = (task.woken_ns.take(), unit.blackout_ends(now_ns));
        if let Some(lasted_ns) = blackout_ns {
            self.time(of, Of::Blackouts, lasted_ns);
        }
        if let Some(woken_ns) = woken_ns {
            self.time(of, Of::Wakeups, now_ns - woken_ns);
        }
    }

    fn stops(&mut self, machine: &Machine, id: TaskId, runnable: bool) {
        self.count(machine, id);
        let now_ns = machine.now_ns();
        let unit = &mut self.units[machine.task(id).unit.index()];
        unit.running -= 1;
        unit.metrics.preemptions += u64::from(runnable);
        if !runnable {
            self.tasks[id.index()].runnable = false;
            unit.count_runnable(now_ns);
            unit.runnable -= 1;
        }
        if unit.running == 0 && unit.runnable > 0 {
            unit.blackout_since_ns = Some(now_ns);
        }
    }
}

impl Unit {
    /// Counts the time in which as many tasks were runnable as are now, before that changes.
    fn count_runnable(&mut self, now_ns: u64) {
        let lasted_ns = now_ns - std::mem::replace(&mut self.runnable_since_ns, now_ns);
        let others = match self.runnable {
            0 => return,
            runnable => runnable as usize - 1,
        };
        let metrics = &mut self.metrics;
        metrics.wanted_ns += lasted_ns;
        if metrics.runnable_ns.len() <= others {
            metrics.runnable_ns.resize(others + 1, 0);
        }
        metrics.runnable_ns[others] += lasted_ns;
    }

    /// How long it was, which is still to be counted; nothing if it was no time at all.
    fn blackout_ends(&mut self, now_ns: u64) -> Option<u64> {
        let lasted_ns = now_ns - self.blackout_since_ns.take()?;
        if lasted_ns == 0 {
            return None;
        }
        self.metrics.blackout_ns += lasted_ns;
        if lasted_ns > self.metrics.blackout_max_ns {
            self.metrics.blackout_max_ns = lasted_ns;
            self.metrics.blackout_at_ns = now_ns;
        }
        Some(lasted_ns)
    }
}

impl Observer for Metrics {
    #[inline(always)]
    fn observe(&mut self, machine: &Machine, event: Event) {
        match event {
            Event::Born(task) => self.born(machine, task),
            Event::Woken(task) => self.woken(machine, task),
            Event::Runs(cpu, task) => self.runs(machine, cpu, task),
            Event::Stops(_, task, runnable) => self.stops(machine, task, runnable),
            Event::Work(task, amount) => self.units[machine.task(task).unit.index()].metrics.work += amount,
            Event::Latency(task, ns) => self.time(machine.task(task).unit, Of::Latencies, ns),
            Event::Died(_) | Event::Stolen(..) | Event::Hotplug(..) => {}
        }
    }
}
