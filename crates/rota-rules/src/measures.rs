//! What is measured of tenants and CPUs, in one table. Prometheus' metrics and docs/METRICS.md follow from it, and a
//! test holds the keys of `rota status --json` against it. A new figure is a field of the status and an entry here.

use crate::profile::BySpent;
use crate::status::{
    ByCause, CpuStatus, InterferenceStatus, KubernetesStatus, PlacePressure, SchedulerStatus, TenantStatus,
};

/// Whether a figure goes up and down, or only up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It goes up and down.
    Gauge,
    /// It only grows, from when its tenant or the scheduler began.
    Counter,
}

/// What one tenant or CPU has of a measure.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// It has none.
    None,
    /// A number, in the measure's unit.
    One(f64),
    /// A number for each of several, whose names have this label.
    By(&'static str, Vec<(String, f64)>),
}

/// One figure of each `T`.
#[derive(Debug)]
pub struct Measure<T> {
    /// Its name, without the prefix `rota_` and without its unit.
    pub name: &'static str,
    /// Its key in `rota status --json`.
    pub key: &'static str,
    /// Whether it is a time, in seconds. Otherwise it is a number, or a part between 0 and 1.
    pub in_seconds: bool,
    /// Whether it only grows.
    pub kind: Kind,
    /// What it says, in one sentence without a full stop.
    pub help: &'static str,
    /// The value of a tenant or CPU.
    pub value: fn(&T) -> Value,
}

/// A measure; `seconds` or `number` is its unit.
macro_rules! measure {
    ($kind:ident, $name:literal, $key:literal, seconds, $help:literal, $value:expr) => {
        Measure { name: $name, key: $key, in_seconds: true, kind: Kind::$kind, help: $help, value: $value }
    };
    ($kind:ident, $name:literal, $key:literal, number, $help:literal, $value:expr) => {
        Measure { name: $name, key: $key, in_seconds: false, kind: Kind::$kind, help: $help, value: $value }
    };
}

/// Of the scheduler, since the daemon was started.
pub const SCHEDULER: &[Measure<SchedulerStatus>] = &[measure!(
    Counter,
    "scheduler_lost",
    "lost",
    number,
    "Times that the kernel has ended the scheduler because something was wrong; it was started again each time",
    |scheduler| Value::One(scheduler.lost as f64)
)];

/// Of each tenant that is here.
pub const TENANT: &[Measure<TenantStatus>] = &[
    measure!(
        Gauge,
        "tenant_lag",
        "lag_ns",
        seconds,
        "CPU time that a shared tenant is behind what is fair now; negative if it is ahead",
        |tenant| option(tenant.lag_ns.map(|ns| ns as f64 / 1e9))
    ),
    measure!(Counter, "tenant_cpu", "used_ns", seconds, "CPU time used since the tenant came", |tenant| {
        seconds(tenant.used_ns)
    }),
    measure!(
        Gauge,
        "tenant_promised_cpus",
        "promised",
        number,
        "Guaranteed share of a reserved tenant, in CPUs",
        |tenant| option(tenant.promised)
    ),
    measure!(
        Gauge,
        "tenant_received_cpus",
        "received",
        number,
        "CPUs received in the last seconds",
        |tenant| Value::One(tenant.received)
    ),
    measure!(
        Gauge,
        "tenant_wanted_ratio",
        "wanted",
        number,
        "The part of the last seconds in which the tenant had something to run; of a VM, its busiest vCPU",
        |tenant| Value::One(tenant.wanted)
    ),
    measure!(
        Gauge,
        "tenant_blackout_max",
        "blackout_max_ns",
        seconds,
        "The longest time in which one of the tenant's threads would have run and none did",
        |tenant| seconds(tenant.blackout_max_ns)
    ),
    measure!(Gauge, "tenant_blackout_bound", "bound_ns", seconds, "The promised bound of it", |tenant| {
        tenant.bound_ns.map_or(Value::None, seconds)
    }),
    measure!(
        Counter,
        "tenant_missed_promises",
        "missed_by_cause",
        number,
        "Blackouts beyond the bound, by what took most of the time",
        |tenant| tenant.bound_ns.map_or(Value::None, |_| by_cause(tenant.missed_by_cause, 1.0))
    ),
    measure!(
        Counter,
        "tenant_lost",
        "lost_ns",
        seconds,
        "Time lost in the tenant's slots while it wanted them, by what took it",
        |tenant| tenant.bound_ns.map_or(Value::None, |_| by_cause(tenant.lost_ns, 1e9))
    ),
    measure!(
        Counter,
        "tenant_dispatches",
        "dispatches",
        number,
        "Times that one of the tenant's threads was put on a CPU",
        |tenant| Value::One(tenant.dispatches as f64)
    ),
    measure!(
        Counter,
        "tenant_migrations",
        "migrations",
        number,
        "Times that a thread was put on another CPU than before",
        |tenant| Value::One(tenant.migrations as f64)
    ),
    measure!(
        Counter,
        "tenant_preemptions",
        "preempted",
        number,
        "Times that a thread stopped running that would have gone on",
        |tenant| Value::One(tenant.preempted as f64)
    ),
    measure!(
        Counter,
        "tenant_yields",
        "yields",
        number,
        "Times that a thread said that others may run: `sched_yield(2)`",
        |tenant| Value::One(tenant.yields as f64)
    ),
    measure!(
        Counter,
        "tenant_spins",
        "spins",
        number,
        "Times that a thread was seen to wait busily, and gave way to others of its tenant",
        |tenant| Value::One(tenant.spins as f64)
    ),
    measure!(Counter, "tenant_spinning", "spins_ns", seconds, "CPU time in which that was seen", |tenant| {
        Value::One(tenant.spins_ns as f64 / 1e9)
    }),
    measure!(
        Gauge,
        "tenant_waiting_ratio",
        "waits",
        number,
        "The part of the last seconds in which threads waited for a CPU, of that in which they would have run",
        |tenant| Value::One(tenant.waits)
    ),
    measure!(
        Counter,
        "tenant_thread_time",
        "spent_ns",
        seconds,
        "Time of the tenant's threads, by what it was spent on",
        |tenant| {
            let times = BySpent::NAMES.iter().zip(tenant.spending.spent_ns.values());
            let in_seconds = |(name, ns): (&&str, u64)| ((*name).to_owned(), ns as f64 / 1e9);
            Value::By("on", times.map(in_seconds).collect())
        }
    ),
    measure!(
        Gauge,
        "tenant_waited_for",
        "waited_for_ns",
        seconds,
        "Time that threads waited for a CPU, by the tenant that ran meanwhile where they then ran",
        |tenant| {
            let times = tenant.spending.waited_for_ns.iter();
            Value::By("for", times.map(|(name, ns)| (name.clone(), *ns as f64 / 1e9)).collect())
        }
    ),
    measure!(
        Gauge,
        "tenant_runnable_threads",
        "runnable",
        number,
        "Threads that run or would run now",
        |tenant| Value::One(f64::from(tenant.runnable))
    ),
];

/// Of each CPU that serves tenants.
pub const CPU: &[Measure<CpuStatus>] = &[
    measure!(
        Gauge,
        "cpu_idle_ratio",
        "idle",
        number,
        "The part of the last seconds with nothing to run",
        |cpu| Value::One(cpu.idle)
    ),
    measure!(
        Gauge,
        "cpu_background_ratio",
        "background",
        number,
        "The part of them given to background tenants",
        |cpu| Value::One(cpu.background)
    ),
    measure!(
        Gauge,
        "cpu_second_level_ratio",
        "second_level",
        number,
        "The part of them given to the second level and to shared tenants",
        |cpu| Value::One(cpu.second_level)
    ),
    measure!(
        Counter,
        "cpu_lost",
        "lost_ns",
        seconds,
        "Time taken from tenants since the scheduler was loaded, by what took it",
        |cpu| by_cause(cpu.lost_ns, 1e9)
    ),
    measure!(Gauge, "cpu_table_generation", "generation", number, "The table that the CPU enacts", |cpu| {
        Value::One(cpu.generation as f64)
    }),
    measure!(
        Counter,
        "cpu_mixed_rounds",
        "mixed",
        number,
        "Rounds in which the CPU saw two tables: always 0",
        |cpu| Value::One(cpu.mixed as f64)
    ),
];

/// Of what is done about cache interference, if anything is.
pub const INTERFERENCE: &[Measure<InterferenceStatus>] = &[
    measure!(
        Counter,
        "interference_exchanges",
        "exchanges",
        number,
        "Tables that differed from the one before in who is where, and in nothing else",
        |all| Value::One(all.exchanges as f64)
    ),
    measure!(Counter, "interference_moves", "moves", number, "vCPUs that changed places by that", |all| {
        Value::One(all.moves as f64)
    }),
    measure!(
        Counter,
        "interference_alarms",
        "alarms",
        number,
        "Times that a vCPU was found to have begun to fill caches",
        |all| Value::One(all.alarms as f64)
    ),
    measure!(Gauge, "interference_hungry_vcpus", "hungry", number, "vCPUs that fill caches now", |all| {
        Value::One(f64::from(all.hungry))
    }),
];

/// Of each CPU with reservations, if something is done about cache interference.
pub const PRESSURE: &[Measure<PlacePressure>] = &[measure!(
    Gauge,
    "cpu_fetched_lines",
    "lines_per_ms",
    number,
    "Cache lines that the vCPUs which fill caches fetch there in a millisecond",
    |place| Value::One(place.lines_per_ms as f64)
)];

/// Of the node's pods, if they are tenants.
pub const KUBERNETES: &[Measure<KubernetesStatus>] = &[
    measure!(
        Gauge,
        "kubernetes_runtime_connected",
        "runtime",
        number,
        "1 while the container runtime tells of its pods, else 0",
        |all| Value::One(f64::from(u8::from(all.runtime.is_some())))
    ),
    measure!(
        Gauge,
        "kubernetes_pods",
        "pods",
        number,
        "Pods of which the container runtime has told",
        |all| { Value::One(f64::from(all.pods)) }
    ),
    measure!(
        Gauge,
        "kubernetes_matched_pods",
        "matched",
        number,
        "Pods that are tenants, and whose cgroup was found",
        |all| Value::One(f64::from(all.matched))
    ),
    measure!(
        Gauge,
        "kubernetes_refused_pods",
        "refused_by",
        number,
        "Pods that are not served as they ask, by reason",
        |all| {
            let counts = all.refused_by.iter();
            Value::By("reason", counts.map(|(reason, count)| (reason.clone(), f64::from(*count))).collect())
        }
    ),
];

impl<T> Measure<T> {
    /// Its name in Prometheus.
    pub fn full_name(&self) -> String {
        let unit = if self.in_seconds { "_seconds" } else { "" };
        let total = if self.kind == Kind::Counter { "_total" } else { "" };
        format!("rota_{}{unit}{total}", self.name)
    }
}

fn option(value: Option<f64>) -> Value {
    value.map_or(Value::None, Value::One)
}

fn seconds(ns: u64) -> Value {
    Value::One(ns as f64 / 1e9)
}

fn by_cause(counts: ByCause, divisor: f64) -> Value {
    let counts = ByCause::NAMES.iter().zip(counts.values());
    Value::By("cause", counts.map(|(name, count)| ((*name).to_owned(), count as f64 / divisor)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn rows<T>(of: &str, measures: &[Measure<T>]) -> String {
        let row = |measure: &Measure<T>| {
            format!("| `{}` | `{of}.{}` | {} |\n", measure.full_name(), measure.key, measure.help)
        };
        measures.iter().map(row).collect()
    }

    #[test]
    fn the_page_of_metrics_is_the_table() {
        let page = include_str!("../../../docs/METRICS.md");
        for rows in [
            rows("scheduler", SCHEDULER),
            rows("tenants[]", TENANT),
            rows("cpus[]", CPU),
            rows("kubernetes", KUBERNETES),
            rows("interference", INTERFERENCE) + &rows("interference.cpus[]", PRESSURE),
        ] {
            assert!(
                page.contains(&format!("| --- | --- | --- |\n{rows}\n")),
                "docs/METRICS.md wants\n{rows}"
            );
        }
    }

    /// Of an object in JSON the keys with numbers, alone or by cause.
    fn numbers(json: &serde_json::Value) -> BTreeSet<&str> {
        let fields = json.as_object().expect("an object").iter();
        fields
            .filter(|(_, value)| value.is_number() || value.is_object())
            .map(|(key, _)| key.as_str())
            .collect()
    }

    #[test]
    fn each_number_of_the_status_is_measured() {
        let tenant = rota_model::Tenant {
            name: "web".to_owned(),
            class: rota_model::Class::Background,
            vcpus: 1,
            affinity: None,
            pinned: false,
            exclusive_cores: false,
            oversubscribe: true,
            team: rota_model::Team::default(),
            matcher: None,
        };
        let tenant = TenantStatus {
            promised: Some(0.5),
            lag_ns: Some(1),
            bound_ns: Some(1),
            ..crate::accounts::absent(&tenant)
        };
        let cpu = CpuStatus {
            cpu: 0,
            generation: 1,
            mixed: 0,
            idle: 0.0,
            background: 0.0,
            second_level: 0.0,
            lost_ns: ByCause::default(),
        };
        let (tenant, cpu) = (serde_json::to_value(tenant).unwrap(), serde_json::to_value(cpu).unwrap());
        // What is configured, what is a sum of others, and the CPU's number.
        let others = ["vcpus", "received_total", "missed", "cpu"];
        for (json, keys) in [
            (&tenant, TENANT.iter().map(|measure| measure.key).collect::<BTreeSet<_>>()),
            (&cpu, CPU.iter().map(|measure| measure.key).collect()),
        ] {
            let mut shown = numbers(json);
            shown.retain(|key| !others.contains(key));
            assert_eq!(shown, keys);
        }
    }
}
