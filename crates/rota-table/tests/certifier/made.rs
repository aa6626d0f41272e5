//! Tables that keep their promises: one made by hand and any number made at random.

use rota_model::{Costs, CpuSet, Reservation, Share};
use rota_table::layout::CPU_WINDOWS;
use rota_table::{
    Certified, CpuSource, Promise, SlotSource, TableSource, VcpuSource, Violation, certify, encode,
};

use crate::brute;
use crate::parts::Parts;

/// A table with the promises that it keeps, all as tight as can be.
#[derive(Clone)]
pub struct Made {
    pub source: TableSource,
    pub promises: Vec<Promise>,
    pub costs: Costs,
}

/// A vCPU to make promises for: it must get `budget` in every `period`.
#[derive(Clone, Copy)]
pub struct Task {
    pub name: (u32, u32),
    pub budget: u32,
    pub period: u32,
    pub capped: bool,
}

impl Made {
    /// Promises to each task what its slots keep: the largest share, the least latency, its CPUs only.
    pub fn new(length_ns: u32, cpus: Vec<CpuSource>, tasks: &[Task]) -> Made {
        let source = TableSource { length_ns, switch_ns: 0, cpus, vcpus: Vec::new() };
        let mut made = Made { source, promises: Vec::new(), costs: Costs::default() };
        for (vcpu, task) in (0..).zip(tasks) {
            let share = u64::from(task.budget) * 1_000_000_000 / u64::from(task.period);
            let share = Share::from_ppb(share as u32).unwrap();
            let on = made.source.cpus.iter().filter(|cpu| cpu.slots.iter().any(|slot| slot.vcpu == vcpu));
            let cpus = on.map(|cpu| cpu.cpu).collect();
            let (tenant, index) = task.name;
            let latency_ns = least_latency(&made.source, vcpu);
            let reservation = Reservation { share, latency_ns, capped: task.capped };
            let (budget_ns, period_ns) = (task.budget, task.period);
            let together = false;
            made.source.vcpus.push(VcpuSource {
                tenant,
                index,
                reservation,
                budget_ns,
                period_ns,
                walls: together,
            });
            made.promises.push(Promise { tenant, index, reservation, cpus, unshared: [].into(), together });
        }
        made
    }

    /// The same with a core that a tenant has to itself: it promises so, and marks its CPUs.
    pub fn with_core(mut self, tenant: u32, core: &CpuSet) -> Made {
        for promise in self.promises.iter_mut().filter(|promise| promise.tenant == tenant) {
            promise.unshared = promise.unshared.iter().chain([core]).cloned().collect();
        }
        for number in core.iter() {
            match self.source.cpus.iter_mut().find(|cpu| cpu.cpu == number) {
                Some(cpu) => cpu.exclusive = true,
                None => self.source.cpus.push(CpuSource { exclusive: true, ..cpu(number, 0, &[]) }),
            }
        }
        self
    }

    /// The same with slots of a tenant's vCPUs that come together.
    pub fn with_together(mut self, tenant: u32) -> Made {
        for (vcpu, promise) in self.source.vcpus.iter_mut().zip(&mut self.promises) {
            vcpu.walls |= vcpu.tenant == tenant;
            promise.together |= promise.tenant == tenant;
        }
        self
    }

    /// The same with latencies that leave free when in its window each vCPU is served, so that CPUs serve in windows.
    pub fn patient(mut self) -> Made {
        for vcpu in 0..self.promises.len() {
            let VcpuSource { budget_ns, period_ns, .. } = self.source.vcpus[vcpu];
            let wait_ns = 2 * u64::from(period_ns - budget_ns);
            self.promise(vcpu, |reservation| reservation.latency_ns = wait_ns.max(reservation.latency_ns));
        }
        self
    }

    /// How many of its CPUs serve their vCPUs in windows.
    pub fn in_windows(&self) -> usize {
        let parts = Parts::of(&self.bytes());
        parts.cpus.iter().filter(|cpu| cpu.flags & CPU_WINDOWS != 0).count()
    }

    /// The same table where tasks change at a cost: budgets, shares and latencies are what it keeps then. None if some
    /// vCPU would get nothing in some period.
    pub fn costing(mut self, costs: Costs) -> Option<Made> {
        self.costs = costs;
        self.source.switch_ns = costs.switch_ns as u32;
        let timelines = brute::run(&self.bytes(), costs).ok()?;
        for (vcpu, timeline) in timelines.iter().enumerate() {
            let period = self.source.vcpus[vcpu].period_ns;
            let budget =
                timeline.chunks(period as usize).map(|window| brute::net_and_lost(window).0).min()?;
            self.source.vcpus[vcpu].budget_ns = budget as u32;
            let share = Share::from_ppb((budget * 1_000_000_000 / u64::from(period)) as u32)?;
            let latency_ns = brute::longest_gap(timeline).max(2 * brute::longest_edge(timeline)).max(1);
            self.promise(vcpu, |reservation| {
                (reservation.share, reservation.latency_ns) = (share, latency_ns);
            });
        }
        Some(self)
    }

    pub fn bytes(&self) -> Vec<u8> {
        encode(&self.source).unwrap()
    }

    /// What the certifier says to these bytes.
    pub fn certify(&self, bytes: &[u8]) -> Result<Certified, Violation> {
        certify(bytes, &self.promises, self.costs)
    }

    /// What the judge says to these bytes.
    pub fn judge(&self, bytes: &[u8]) -> Result<(), String> {
        brute::judge(bytes, &self.promises, self.costs)
    }

    /// Changes what a vCPU is promised, in its record and in its promise.
    pub fn promise(&mut self, vcpu: usize, change: impl Fn(&mut Reservation)) {
        change(&mut self.source.vcpus[vcpu].reservation);
        change(&mut self.promises[vcpu].reservation);
    }
}

/// The vCPU's longest gap in ns over two tables end to end, or twice the longer of those at a table's start and end; 1
/// at least.
fn least_latency(source: &TableSource, vcpu: u32) -> u64 {
    let mut spans = Vec::new();
    for cpu in &source.cpus {
        for round in (0..2 * source.length_ns).step_by(cpu.length_ns.max(1) as usize) {
            let own = cpu.slots.iter().filter(|slot| slot.vcpu == vcpu);
            spans.extend(own.map(|slot| (round + slot.start_ns, round + slot.end_ns)));
        }
    }
    spans.sort_unstable();
    let gap = spans.windows(2).map(|pair| pair[1].0 - pair[0].1).max().unwrap_or(0);
    let edges =
        spans.first().zip(spans.last()).map_or(0, |(first, last)| first.0.max(2 * source.length_ns - last.1));
    u64::from(gap.max(2 * edges).max(1))
}

pub fn cpu(cpu: u32, length_ns: u32, slots: &[(u32, u32, u32)]) -> CpuSource {
    let slots = slots.iter().map(|&(start_ns, end_ns, vcpu)| SlotSource { start_ns, end_ns, vcpu }).collect();
    CpuSource { cpu, length_ns, slots, exclusive: false }
}

/// Seven vCPUs on four of five CPUs, with everything there is: an idle CPU, several slots a window and several windows
/// a CPU, a capped vCPU, one that is split over CPUs of different lengths, and one with a core to itself, of whose two
/// CPUs it needs one.
pub fn by_hand() -> Made {
    let cpus = vec![
        cpu(1, 420, &[(0, 60, 0), (100, 200, 1), (200, 260, 2), (300, 360, 0), (380, 420, 2)]),
        cpu(2, 210, &[(0, 50, 3), (60, 150, 4)]),
        cpu(3, 420, &[(0, 20, 5), (60, 115, 3), (200, 222, 5), (300, 355, 3)]),
        cpu(4, 105, &[(0, 105, 6)]),
    ];
    let task = |name, budget, period, capped| Task { name, budget, period, capped };
    let tasks = [
        task((10, 0), 60, 210, false),
        task((10, 1), 100, 420, true),
        task((11, 0), 100, 420, false),
        task((12, 0), 105, 210, false),
        task((12, 1), 90, 210, true),
        task((13, 0), 42, 420, true),
        task((14, 0), 105, 105, true),
    ];
    Made::new(840, cpus, &tasks).with_core(14, &"0,4".parse().unwrap())
}

/// Two tenants whose slots come together: three vCPUs on CPUs of different lengths, of which one is cut into slots that
/// touch and one migrates, and two beside the third. Others fill the rest.
pub fn together() -> Made {
    let cpus = vec![
        cpu(0, 210, &[(0, 60, 0), (100, 130, 0), (130, 200, 5)]),
        cpu(1, 420, &[(0, 40, 1), (40, 60, 1), (60, 90, 3), (100, 130, 1), (210, 270, 1), (310, 340, 1)]),
        cpu(2, 420, &[(0, 60, 2), (60, 90, 4), (100, 130, 2), (210, 270, 2), (350, 400, 6)]),
        cpu(3, 420, &[(310, 340, 2)]),
    ];
    let task = |name, budget, period, capped| Task { name, budget, period, capped };
    let tasks = [
        task((20, 0), 90, 210, true),
        task((20, 1), 90, 210, true),
        task((20, 2), 90, 210, true),
        task((21, 0), 30, 420, false),
        task((21, 1), 30, 420, false),
        task((22, 0), 70, 210, false),
        task((23, 0), 50, 420, false),
    ];
    Made::new(840, cpus, &tasks).with_together(20).with_together(21)
}

/// A small generator of numbers (SplitMix64, Steele et al. 2014).
pub struct Dice(pub u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number in [0, limit).
    pub fn below(&mut self, limit: u32) -> u32 {
        (self.next() % u64::from(limit)) as u32
    }

    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u32) as usize]
    }

    fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last as u32 + 1) as usize);
        }
    }
}

/// A table of up to nine CPUs that keeps its promises, one for each seed.
///
/// Groups of CPUs share their vCPUs and a window length. In each window the budgets are laid out end to end, idle time
/// strewn between, and cut where a CPU's window ends (McNaughton's wrap-around rule), so that no vCPU overlaps itself.
pub fn at_random(seed: u64) -> Made {
    let mut dice = Dice(seed);
    let length = dice.pick(&[360, 420, 504, 600, 840, 1260]);
    let (mut cpus, mut tasks) = (Vec::new(), Vec::new());
    let mut number = 0;
    for tenant in 0..=dice.below(2) {
        number += dice.below(2);
        let group = Group::draw(&mut dice, length, number, tenant, tasks.len() as u32);
        number += group.cpus;
        let (group_cpus, group_tasks) = group.lay_out(&mut dice, length);
        cpus.extend(group_cpus);
        tasks.extend(group_tasks);
    }
    dice.shuffle(&mut cpus);
    let mut made = Made::new(length, cpus, &tasks);
    if dice.below(2) == 0 {
        // Each group of CPUs is one tenant's.
        let place = dice.below(made.promises.len() as u32) as usize;
        let Promise { tenant, cpus, .. } = made.promises[place].clone();
        made = made.with_core(tenant, &cpus);
    }
    let costs = Costs { switch_ns: dice.pick(&[0, 0, 1, 2, 5]), migration_ns: dice.pick(&[0, 0, 1, 4]) };
    let mut made = made.clone().costing(costs).unwrap_or(made);
    if dice.below(2) == 0 {
        made = made.patient();
    }
    loosen(&mut dice, &mut made);
    made
}

/// Makes some promises weaker than what is kept.
fn loosen(dice: &mut Dice, made: &mut Made) {
    for vcpu in 0..made.promises.len() {
        let more_ns = dice.pick(&[0, 0, 1, 30]);
        made.promise(vcpu, |reservation| reservation.latency_ns += more_ns);
        if dice.below(3) == 0 && !made.promises[vcpu].reservation.capped {
            made.promise(vcpu, |reservation| {
                reservation.share = Share::from_ppb(reservation.share.ppb() / 2 + 1).unwrap();
            });
        }
        if dice.below(2) == 0 {
            let cpus = &mut made.promises[vcpu].cpus;
            *cpus = cpus.iter().chain([dice.below(4)]).collect();
        }
    }
}

struct Group {
    first_cpu: u32,
    cpus: u32,
    window: u32,
    first_vcpu: u32,
    tenant: u32,
    budgets: Vec<u32>,
}

impl Group {
    fn draw(dice: &mut Dice, length: u32, first_cpu: u32, tenant: u32, first_vcpu: u32) -> Group {
        let window = length / dice.pick(&[1, 2, 3, 4, 6]);
        let cpus = 1 + dice.below(3);
        let mut left = cpus * window;
        let mut budgets = Vec::new();
        for _ in 0..1 + dice.below(4 * cpus) {
            let budget = (1 + dice.below(window)).min(1 + dice.below(window)).min(left);
            if budget > 0 {
                budgets.push(budget);
                left -= budget;
            }
        }
        Group { first_cpu, cpus, window, first_vcpu, tenant, budgets }
    }

    /// Either every window of the group looks the same, and each CPU may repeat sooner or later, or each is different.
    fn lay_out(&self, dice: &mut Dice, length: u32) -> (Vec<CpuSource>, Vec<Task>) {
        let windows = length / self.window;
        let rounds: Vec<u32> = (1..=windows).filter(|rounds| windows.is_multiple_of(*rounds)).collect();
        let mut cpus: Vec<CpuSource> =
            (0..self.cpus).map(|cpu| CpuSource { cpu: self.first_cpu + cpu, ..Default::default() }).collect();
        if dice.below(2) == 0 {
            let window = self.window(dice);
            for (cpu, slots) in cpus.iter_mut().zip(window) {
                (0..dice.pick(&rounds)).for_each(|_| self.append(cpu, &slots));
            }
        } else {
            for _ in 0..dice.pick(&rounds) {
                let window = self.window(dice);
                cpus.iter_mut().zip(window).for_each(|(cpu, slots)| self.append(cpu, &slots));
            }
        }
        let tasks = (0..).zip(&self.budgets).map(|(index, &budget)| {
            let periods = dice.pick(&rounds);
            let (budget, period) = (budget * periods, self.window * periods);
            Task { name: (self.tenant, index), budget, period, capped: dice.below(3) == 0 }
        });
        (cpus, tasks.collect())
    }

    /// Each CPU's slots of one window.
    fn window(&self, dice: &mut Dice) -> Vec<Vec<SlotSource>> {
        let mut slots = vec![Vec::new(); self.cpus as usize];
        let mut idle = self.cpus * self.window - self.budgets.iter().sum::<u32>();
        let mut vcpus: Vec<usize> = (0..self.budgets.len()).collect();
        dice.shuffle(&mut vcpus);
        let mut at = 0;
        for place in vcpus {
            let gap = dice.below(idle + 1).min(dice.below(idle + 1));
            idle -= gap;
            at += gap;
            let end = at + self.budgets[place];
            while at < end {
                let cpu = at / self.window;
                let until = end.min((cpu + 1) * self.window);
                let (start_ns, end_ns) = (at - cpu * self.window, until - cpu * self.window);
                let vcpu = self.first_vcpu + place as u32;
                slots[cpu as usize].push(SlotSource { start_ns, end_ns, vcpu });
                at = until;
            }
        }
        slots
    }

    fn append(&self, cpu: &mut CpuSource, window: &[SlotSource]) {
        let offset = cpu.length_ns;
        cpu.slots.extend(window.iter().map(|slot| SlotSource {
            start_ns: offset + slot.start_ns,
            end_ns: offset + slot.end_ns,
            vcpu: slot.vcpu,
        }));
        cpu.length_ns += self.window;
    }
}
