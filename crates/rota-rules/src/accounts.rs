//! What the scheduler has counted, turned into what an operator asks: who got what, against which promise, and what was
//! lost to whom.

use std::collections::{BTreeMap, VecDeque};

use rota_model::{Class, TenantId};
use rota_sched::{Cause, CpuAccount, QueueAccount, SYSTEM, Spent};

use crate::life::TenantView;
use crate::matching::Load;
use crate::profile::{QueueStatus, Spending};
use crate::status::{ByCause, CpuStatus, State, TenantStatus};

/// What is called now is measured over this time, in ns.
const WINDOW_NS: u64 = 5_000_000_000;

/// A reading that follows another this soon replaces it, so that asking often does not fill the memory.
const READING_MIN_NS: u64 = 500_000_000;

/// All counters at one time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// CLOCK_MONOTONIC.
    pub at_ns: u64,
    /// Every queue.
    pub queues: Vec<QueueAccount>,
    /// Every CPU.
    pub cpus: Vec<CpuAccount>,
    /// How far each shared tenant is behind what is fair, in ns of CPU time.
    pub lags: BTreeMap<TenantId, i64>,
}

/// The readings of the last [`WINDOW_NS`]; the first and the last make the window.
#[derive(Clone, Debug, Default)]
pub struct Accounts {
    readings: VecDeque<Reading>,
}

/// A tenant's queues together.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Sum {
    used_ns: u64,
    /// Of the busiest queue: those of a container's one, or of a VM's busiest vCPU.
    wanted_ns: u64,
    blackout_max_ns: u64,
    missed: u64,
    missed_by_cause: [u64; 6],
    lost_ns: [u64; 6],
    dispatches: u64,
    migrations: u64,
    preempted: u64,
    yields: u64,
    spins: u64,
    spins_ns: u64,
    runnable: u32,
}

impl Reading {
    fn sum(&self, id: TenantId) -> Sum {
        let mut sum = Sum::default();
        for queue in self.queues.iter().filter(|queue| queue.tenant == id) {
            sum.used_ns += queue.used_ns;
            sum.wanted_ns = sum.wanted_ns.max(queue.wanted_ns);
            sum.blackout_max_ns = sum.blackout_max_ns.max(queue.blackout_max_ns);
            sum.missed += queue.missed;
            add(&mut sum.missed_by_cause, &queue.missed_by_cause);
            add(&mut sum.lost_ns, &queue.lost_ns);
            sum.dispatches += queue.dispatches;
            sum.migrations += queue.migrations;
            sum.preempted += queue.profile.preempted;
            sum.yields += queue.profile.yields;
            sum.spins += queue.spins;
            sum.spins_ns += queue.spins_ns;
            sum.runnable += queue.runnable;
        }
        sum
    }

    /// Where the time went in each of the tenant's queues.
    fn spending(&self, id: TenantId, names: &BTreeMap<TenantId, &str>) -> Vec<QueueStatus> {
        let own = self.queues.iter().filter(|queue| queue.tenant == id);
        let status = |queue: &QueueAccount| {
            let spending = Spending::new(&queue.profile, names);
            QueueStatus { vcpu: queue.vcpu, spending }
        };
        own.map(status).collect()
    }
}

/// Of a tenant's queues together.
fn all_of(queues: &[QueueStatus]) -> Spending {
    let mut all = Spending::default();
    queues.iter().for_each(|queue| all.add(&queue.spending));
    all
}

fn add(total: &mut [u64; 6], part: &[u64; 6]) {
    total.iter_mut().zip(part).for_each(|(total, part)| *total += part);
}

/// How much a counter has grown. One that has started anew (another tenant has the number) has grown by what it shows.
fn growth(after: u64, before: u64) -> u64 {
    after.checked_sub(before).unwrap_or(after)
}

/// A part of a time, 0 if there was no time.
fn part(part_ns: u64, whole_ns: u64) -> f64 {
    if whole_ns == 0 { 0.0 } else { part_ns as f64 / whole_ns as f64 }
}

impl Accounts {
    /// Takes in a reading. Returns what to say about promises missed since the one before, one line a tenant; nothing
    /// of the first, as a scheduler that was taken over has counted before.
    pub fn update<'a>(
        &mut self,
        reading: Reading,
        tenants: impl Iterator<Item = TenantView<'a>>,
    ) -> Vec<String> {
        let before = self.readings.back();
        let lines = tenants
            .filter_map(|tenant| missed_line(&tenant, &before?.sum(tenant.id), &reading.sum(tenant.id)));
        let lines = lines.collect();
        let since_ns = reading.at_ns.saturating_sub(WINDOW_NS);
        if let [.., last_but_one, last] = self.readings.make_contiguous()
            && last.at_ns - last_but_one.at_ns < READING_MIN_NS
        {
            self.readings.pop_back();
        }
        self.readings.push_back(reading);
        while self.readings.get(1).is_some_and(|second| second.at_ns <= since_ns) {
            self.readings.pop_front();
        }
        lines
    }

    /// The last reading and the one that the window begins with; the same, and all zero, before there are two.
    fn window(&self) -> (Reading, Reading) {
        let last = self.readings.back().cloned().unwrap_or_default();
        (self.readings.front().cloned().unwrap_or_default(), last)
    }

    /// How long the window is, in ns.
    pub fn window_ns(&self) -> u64 {
        let (first, last) = self.window();
        last.at_ns - first.at_ns
    }

    /// Each CPU's idle and background time in the window, in ns.
    pub fn left(&self) -> Vec<(u32, u64)> {
        let (first, last) = self.window();
        let before: BTreeMap<u32, &CpuAccount> = first.cpus.iter().map(|cpu| (cpu.cpu, cpu)).collect();
        let left = |cpu: &CpuAccount| {
            let time = |cpu: &CpuAccount| cpu.idle_ns + cpu.background_ns;
            (cpu.cpu, growth(time(cpu), before.get(&cpu.cpu).map_or(0, |cpu| time(cpu))))
        };
        last.cpus.iter().map(left).collect()
    }

    /// When the window begins.
    pub fn since_ns(&self) -> u64 {
        self.readings.front().map_or(0, |first| first.at_ns)
    }

    /// What each of a VM's vCPUs did in the window; none if some have no thread of their own.
    pub fn loads(&self, id: TenantId, vcpus: u32) -> Option<Vec<Load>> {
        let (first, last) = (self.readings.front()?, self.readings.back()?);
        let of = |reading: &Reading, vcpu: u32| {
            let its = |queue: &&QueueAccount| queue.tenant == id && queue.vcpu == Some(vcpu);
            reading.queues.iter().find(its).map(|queue| queue.profile.spent_ns)
        };
        let grown = |vcpu: u32| {
            let (then, now) = (of(first, vcpu)?, of(last, vcpu)?);
            let grown = |kind: Spent| growth(now[kind as usize], then[kind as usize]);
            Some(Load { running_ns: grown(Spent::Running), waiting_ns: grown(Spent::Waiting) })
        };
        (0..vcpus).map(grown).collect()
    }

    /// The tenants, as `rota status` shows them.
    pub fn tenants<'a>(&self, tenants: impl Iterator<Item = TenantView<'a>>) -> Vec<TenantStatus> {
        let (first, last) = self.window();
        let tenants: Vec<TenantView> = tenants.collect();
        let mut names = BTreeMap::from([(SYSTEM, rota_model::Tenant::SYSTEM)]);
        names.extend(tenants.iter().map(|tenant| (tenant.id, tenant.tenant.name.as_str())));
        tenants.iter().map(|tenant| tenant_status(tenant, &first, &last, &names)).collect()
    }

    /// The CPUs, as `rota status` shows them.
    pub fn cpus(&self) -> Vec<CpuStatus> {
        let (first, last) = self.window();
        let window_ns = last.at_ns - first.at_ns;
        let before: BTreeMap<u32, &CpuAccount> = first.cpus.iter().map(|cpu| (cpu.cpu, cpu)).collect();
        let status = |cpu: &CpuAccount| {
            let grown = |field: fn(&CpuAccount) -> u64| {
                part(growth(field(cpu), before.get(&cpu.cpu).map_or(0, |cpu| field(cpu))), window_ns)
            };
            CpuStatus {
                cpu: cpu.cpu,
                generation: cpu.generation,
                mixed: cpu.mixed,
                idle: grown(|cpu| cpu.idle_ns),
                background: grown(|cpu| cpu.background_ns),
                second_level: grown(|cpu| cpu.second_level_ns),
                lost_ns: ByCause::from(cpu.lost_ns),
            }
        };
        last.cpus.iter().map(status).collect()
    }
}

fn tenant_status(
    tenant: &TenantView,
    first: &Reading,
    last: &Reading,
    names: &BTreeMap<TenantId, &str>,
) -> TenantStatus {
    let (then, now) = (first.sum(tenant.id), last.sum(tenant.id));
    // A tenant may have come within the window.
    let window_ns = last.at_ns.saturating_sub(first.at_ns.max(tenant.since_ns));
    let queues = last.spending(tenant.id, names);
    let spending = all_of(&queues);
    let lately = spending.since(&all_of(&first.spending(tenant.id, names)));
    TenantStatus {
        name: tenant.tenant.name.clone(),
        id: Some(tenant.id),
        class: class_name(&tenant.tenant.class).to_owned(),
        state: tenant.state,
        refused: tenant.refused.map(str::to_owned),
        cgroup: tenant.cgroup.map(|found| found.path.display().to_string()),
        kind: if tenant.is_vm { "vm" } else { "container" }.to_owned(),
        vcpus: tenant.tenant.vcpus,
        promised: tenant.promised.map(|promise| promise.share.fraction() * f64::from(tenant.tenant.vcpus)),
        together: tenant.tenant.team.together,
        matching: tenant.tenant.team.matching,
        monitor: tenant.tenant.team.monitor.name().map(str::to_owned),
        parts: tenant.parts.iter().map(|part| part.fraction()).collect(),
        received: part(growth(now.used_ns, then.used_ns), window_ns),
        used_ns: now.used_ns,
        received_total: part(now.used_ns, last.at_ns.saturating_sub(tenant.since_ns)),
        wanted: part(growth(now.wanted_ns, then.wanted_ns), window_ns).min(1.0),
        lag_ns: last.lags.get(&tenant.id).copied(),
        blackout_max_ns: now.blackout_max_ns,
        bound_ns: tenant.promised.map(|promise| promise.latency_ns),
        missed: now.missed,
        missed_by_cause: ByCause::from(now.missed_by_cause),
        lost_ns: ByCause::from(now.lost_ns),
        dispatches: now.dispatches,
        migrations: now.migrations,
        preempted: now.preempted,
        yields: now.yields,
        spins: now.spins,
        spins_ns: now.spins_ns,
        runnable: now.runnable,
        waits: lately.spent_ns.waiting_part(),
        waits_for: lately.waited_for().first().map(|(name, _)| (*name).to_owned()),
        spending,
        queues,
    }
}

/// A tenant that is configured and not here.
pub fn absent(tenant: &rota_model::Tenant) -> TenantStatus {
    TenantStatus {
        name: tenant.name.clone(),
        id: None,
        class: class_name(&tenant.class).to_owned(),
        state: State::Absent,
        refused: None,
        cgroup: None,
        kind: "container".to_owned(),
        vcpus: tenant.vcpus,
        promised: None,
        together: tenant.team.together,
        matching: tenant.team.matching,
        monitor: tenant.team.monitor.name().map(str::to_owned),
        parts: Vec::new(),
        received: 0.0,
        used_ns: 0,
        received_total: 0.0,
        wanted: 0.0,
        lag_ns: None,
        blackout_max_ns: 0,
        bound_ns: None,
        missed: 0,
        missed_by_cause: ByCause::default(),
        lost_ns: ByCause::default(),
        dispatches: 0,
        migrations: 0,
        preempted: 0,
        yields: 0,
        spins: 0,
        spins_ns: 0,
        runnable: 0,
        waits: 0.0,
        waits_for: None,
        spending: Spending::default(),
        queues: Vec::new(),
    }
}

fn class_name(class: &Class) -> &'static str {
    match class {
        Class::Reserved(_) => "reserved",
        Class::Shared { .. } => "shared",
        Class::Background => "background",
    }
}

/// `web-0: 2 blackouts beyond its bound of 20 ms (longest 25.3 ms): kernel threads 1, host steal 1`.
fn missed_line(tenant: &TenantView, then: &Sum, now: &Sum) -> Option<String> {
    let missed = growth(now.missed, then.missed);
    if missed == 0 {
        return None;
    }
    let mut causes = Vec::new();
    for ((name, now), then) in ByCause::NAMES.iter().zip(now.missed_by_cause).zip(then.missed_by_cause) {
        match growth(now, then) {
            0 => {}
            count => causes.push(format!("{name} {count}")),
        }
    }
    let bound = tenant
        .promised
        .map_or_else(String::new, |promise| format!(" of {} ms", promise.latency_ns as f64 / 1e6));
    Some(format!(
        "{}: {missed} blackout{} beyond its bound{bound} (longest so far {:.1} ms): {}",
        tenant.tenant.name,
        if missed == 1 { "" } else { "s" },
        now.blackout_max_ns as f64 / 1e6,
        causes.join(", ")
    ))
}

const _: () = assert!(Cause::ALL.len() == ByCause::NAMES.len());

#[cfg(test)]
mod tests {
    use super::*;
    use rota_model::{Reservation, Share, Team, Tenant};
    use rota_sched::Profile;

    fn queue(tenant: TenantId, vcpu: Option<u32>, used_ns: u64, wanted_ns: u64) -> QueueAccount {
        QueueAccount {
            tenant,
            vcpu,
            used_ns,
            used_in_slots_ns: used_ns,
            wanted_ns,
            blackout_max_ns: 0,
            missed: 0,
            missed_by_cause: [0; 6],
            lost_ns: [0; 6],
            dispatches: 1,
            migrations: 0,
            spins: 0,
            spins_ns: 0,
            runnable: 1,
            profile: Profile::default(),
        }
    }

    fn cpu(cpu: u32, idle_ns: u64, background_ns: u64) -> CpuAccount {
        CpuAccount {
            cpu,
            generation: 1,
            mixed: 0,
            idle_ns,
            background_ns,
            second_level_ns: 0,
            lost_ns: [0; 6],
        }
    }

    fn tenant() -> Tenant {
        let share = Share::from_fraction(0.25).unwrap();
        Tenant {
            name: "web".into(),
            class: Class::Reserved(Reservation { share, latency_ns: 20_000_000, capped: false }),
            vcpus: 2,
            affinity: None,
            pinned: false,
            exclusive_cores: false,
            oversubscribe: true,
            team: Team::default(),
            matcher: None,
        }
    }

    fn view(tenant: &Tenant, since_ns: u64) -> TenantView<'_> {
        TenantView {
            id: 3,
            tenant,
            cgroup: None,
            state: State::Served,
            refused: None,
            is_vm: true,
            since_ns,
            parts: &[],
            promised: tenant.reservation(),
        }
    }

    #[test]
    fn shares_are_measured_over_the_window_and_since_the_tenant_came() {
        let tenant = tenant();
        let mut accounts = Accounts::default();
        for second in 0..10 {
            let at_ns = second * 1_000_000_000;
            let (used, wanted) = (second * 200_000_000, second * 500_000_000);
            let queues = vec![
                queue(3, Some(0), used, wanted),
                queue(3, Some(1), used, wanted / 2),
                queue(4, None, 1, 1),
            ];
            let cpus = vec![cpu(0, second * 100, second * 10), cpu(1, 0, 0)];
            let said = accounts.update(
                Reading { at_ns, queues, cpus, ..Reading::default() },
                std::iter::once(view(&tenant, 8_000_000_000)),
            );
            assert!(said.is_empty());
        }
        assert_eq!(accounts.window_ns(), 5_000_000_000);
        let status = &accounts.tenants(std::iter::once(view(&tenant, 0)))[0];
        assert!((status.received - 0.4).abs() < 1e-9 && (status.wanted - 0.5).abs() < 1e-9);
        assert!((status.received_total - 0.4).abs() < 1e-9);
        assert_eq!(status.promised, Some(0.5));
        assert_eq!(accounts.left(), [(0, 550), (1, 0)]);
        assert!((accounts.cpus()[0].idle - 1e-7).abs() < 1e-12);
    }

    #[test]
    fn every_newly_missed_promise_is_said_once_with_its_cause() {
        let tenant = tenant();
        let mut accounts = Accounts::default();
        let mut reading = Reading { at_ns: 1, queues: vec![queue(3, None, 0, 0)], ..Reading::default() };
        let mut say = |reading: &Reading| accounts.update(reading.clone(), std::iter::once(view(&tenant, 0)));
        assert!(say(&reading).is_empty());
        reading.queues[0].missed = 2;
        reading.queues[0].missed_by_cause[1] = 2;
        reading.queues[0].blackout_max_ns = 25_300_000;
        let line = "web: 2 blackouts beyond its bound of 20 ms (longest so far 25.3 ms): \
                    higher scheduling classes 2";
        assert_eq!(say(&reading), [line]);
        assert!(say(&reading).is_empty());
        // The number has another owner now, whose counters begin at 0.
        reading.queues[0].missed = 1;
        reading.queues[0].missed_by_cause = [0, 0, 0, 1, 0, 0];
        assert!(say(&reading)[0].ends_with("host steal 1"));
    }

    #[test]
    fn asking_often_neither_fills_the_memory_nor_shortens_the_window() {
        let mut accounts = Accounts::default();
        for millisecond in 0..20_000 {
            let reading = Reading { at_ns: millisecond * 1_000_000, ..Reading::default() };
            accounts.update(reading, std::iter::empty());
        }
        assert!(accounts.readings.len() <= 12, "{}", accounts.readings.len());
        assert!((WINDOW_NS..WINDOW_NS + 2 * READING_MIN_NS).contains(&accounts.window_ns()));
    }

    #[test]
    fn a_lag_is_the_last_readings() {
        let tenant = tenant();
        let mut accounts = Accounts::default();
        for (at_ns, lags) in [(1, BTreeMap::from([(3, 7)])), (2, BTreeMap::from([(3, -5), (4, 5)]))] {
            let reading = Reading { at_ns, lags, ..Reading::default() };
            accounts.update(reading, std::iter::once(view(&tenant, 0)));
        }
        let lag_ns = |id| {
            let tenant = TenantView { id, ..view(&tenant, 0) };
            accounts.tenants(std::iter::once(tenant))[0].lag_ns
        };
        assert_eq!([3, 5].map(lag_ns), [Some(-5), None]);
    }

    #[test]
    fn before_any_reading_there_is_nothing_to_divide() {
        let tenant = tenant();
        let status = &Accounts::default().tenants(std::iter::once(view(&tenant, 5)))[0];
        assert_eq!((status.received, status.received_total, status.wanted), (0.0, 0.0, 0.0));
    }
}
