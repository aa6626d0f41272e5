//! The last minutes, one sample for each answer of the daemon.

use std::collections::{BTreeMap, VecDeque};

use rota_rules::status::{CpuStatus, Status, TenantStatus};

/// How many samples are kept: at one a second, ten minutes.
pub const SAMPLES: usize = 600;

/// What happened to a tenant between two answers, and what it had then.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TenantSample {
    /// In CPUs.
    pub received: f64,
    pub lost_ns: u64,
    pub missed: u64,
}

/// The parts of a CPU's time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CpuSample {
    pub idle: f64,
    pub background: f64,
    pub second_level: f64,
}

impl CpuSample {
    /// The part that is not idle.
    pub fn busy(&self) -> f64 {
        (1.0 - self.idle).clamp(0.0, 1.0)
    }
}

/// The samples, the newest last.
#[derive(Debug, Default)]
pub struct History {
    tenants: BTreeMap<String, VecDeque<TenantSample>>,
    cpus: BTreeMap<u32, VecDeque<CpuSample>>,
}

impl History {
    /// Takes in an answer; `before` is the one before it, if that was of the same daemon.
    pub fn add(&mut self, status: &Status, before: Option<&Status>) {
        self.tenants.retain(|name, _| status.tenants.iter().any(|tenant| tenant.name == *name));
        self.cpus.retain(|number, _| status.cpus.iter().any(|cpu| cpu.cpu == *number));
        let earlier: BTreeMap<&str, &TenantStatus> = before
            .iter()
            .flat_map(|status| &status.tenants)
            .map(|tenant| (tenant.name.as_str(), tenant))
            .collect();
        for tenant in &status.tenants {
            // One that has come anew counts from its start, as its first sample does.
            let earlier =
                earlier.get(tenant.name.as_str()).filter(|earlier| earlier.used_ns <= tenant.used_ns);
            let since = |total: u64, of: fn(&TenantStatus) -> u64| {
                earlier.map_or(0, |earlier| total.saturating_sub(of(earlier)))
            };
            let sample = TenantSample {
                received: tenant.received,
                lost_ns: since(tenant.lost_ns.total(), |tenant| tenant.lost_ns.total()),
                missed: since(tenant.missed, |tenant| tenant.missed),
            };
            push(self.tenants.entry(tenant.name.clone()).or_default(), sample);
        }
        for &CpuStatus { cpu, idle, background, second_level, .. } in &status.cpus {
            push(self.cpus.entry(cpu).or_default(), CpuSample { idle, background, second_level });
        }
    }

    /// A tenant's samples, the newest first.
    pub fn tenant(&self, name: &str) -> impl Iterator<Item = &TenantSample> {
        self.tenants.get(name).into_iter().flatten().rev()
    }

    /// A CPU's samples, the newest first.
    pub fn cpu(&self, number: u32) -> impl Iterator<Item = &CpuSample> {
        self.cpus.get(&number).into_iter().flatten().rev()
    }
}

fn push<T>(samples: &mut VecDeque<T>, sample: T) {
    if samples.len() == SAMPLES {
        samples.pop_front();
    }
    samples.push_back(sample);
}
