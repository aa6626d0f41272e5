//! A plan for people, for programs and as a picture.

mod diff;
mod explain;
mod json;
mod svg;
mod tableau;
mod text;

use rota_model::Model;
use rota_plan::{CpuPlan, Plan, SlotsAlone, WINDOW_VCPUS_MAX};

pub use diff::Diff;
pub use explain::{reason_texts, render_reasons};
pub use json::{Table, names, render_json};
pub use svg::render_svg;
pub use tableau::render_tableau;
pub use text::render_text;

/// `tenant/index` of a vCPU, by its place in the plan.
fn vcpu_name(plan: &Plan, model: &Model, vcpu: u32) -> String {
    let vcpu = &plan.vcpus[vcpu as usize];
    format!("{}/{}", model.tenants[vcpu.tenant as usize].name, vcpu.index)
}

/// A duration in its natural unit, to three decimals, without zeros at the end.
fn duration(ns: u64) -> String {
    let (unit, name) = match ns {
        0..1_000 => (1, "ns"),
        1_000..1_000_000 => (1_000, "us"),
        _ => (1_000_000, "ms"),
    };
    let number = format!("{:.3}", ns as f64 / unit as f64);
    format!("{} {name}", number.trim_end_matches('0').trim_end_matches('.'))
}

/// How much of a CPU is in slots, in percent.
fn used_percent(cpu: &CpuPlan) -> f64 {
    let used: u64 = cpu.slots.iter().map(|slot| slot.len_ns()).sum();
    used as f64 * 100.0 / cpu.length_ns as f64
}

/// Why a CPU goes by its slots alone: `db/0 migrates`.
fn why_slots_alone(plan: &Plan, model: &Model, why: SlotsAlone) -> String {
    match why {
        SlotsAlone::Migrates(vcpu) => format!("{} migrates", vcpu_name(plan, model, vcpu)),
        SlotsAlone::Together(vcpu) => {
            format!("the slots of {} come together with others", vcpu_name(plan, model, vcpu))
        }
        SlotsAlone::Shown(vcpu) => format!("{} is shown its slots", vcpu_name(plan, model, vcpu)),
        SlotsAlone::Many(count) => format!("{count} vCPUs, more than {WINDOW_VCPUS_MAX}"),
        SlotsAlone::Changes => "no time for more changes of task than slots make".to_owned(),
    }
}

/// `1 CPU`, `2 CPUs`.
fn count(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use rota_model::{
        Class, Costs, CpuSet, Host, Model, Placement, Reservation, Share, Team, Tenant, Topology,
    };
    use rota_plan::{Options, Plan, plan};

    use super::*;

    /// Two CPUs for tenants: one for a database alone, one for two vCPUs of a name that no markup may take literally.
    pub fn small() -> (Plan, Model) {
        let cpus: CpuSet = "0-2".parse().unwrap();
        let tenant = |name: &str, vcpus, share, latency_ns| Tenant {
            name: name.to_owned(),
            class: Class::Reserved(Reservation {
                share: Share::from_fraction(share).unwrap(),
                latency_ns,
                capped: false,
            }),
            vcpus,
            affinity: None,
            pinned: false,
            exclusive_cores: false,
            oversubscribe: true,
            team: Team::default(),
            matcher: None,
        };
        let model = Model {
            host: Host {
                topology: Topology::flat(&cpus),
                cpus,
                housekeeping: "0".parse().unwrap(),
                floor_ppb: Host::FLOOR_PPB,
                slot_min_ns: Host::SLOT_MIN_NS,
                placement: Placement::WorstFit,
                costs: Costs::default(),
                spares: Vec::new(),
                interference: rota_model::Interference::Off,
                branch_records: false,
            },
            tenants: vec![tenant("db", 1, 1.0, 1_000_000), tenant("a<&>\"b", 2, 0.25, 20_000_000)],
        };
        (plan(&model, &Options::default()).unwrap(), model)
    }

    /// Three vCPUs of 0.6 on two CPUs.
    pub fn migrating() -> (Plan, Model) {
        planned_with(vec![("web", 3, 0.6, 50)])
    }

    /// Beside a vCPU that has a CPU to itself, 17 on the other.
    pub fn of_many() -> (Plan, Model) {
        planned_with(vec![("db", 1, 1.0, 50), ("web", 17, 0.05, 50)])
    }

    /// Beside a vCPU that has a CPU to itself, three with different periods that leave the other next to nothing.
    pub fn of_changes() -> (Plan, Model) {
        planned_with(vec![("db", 1, 1.0, 50), ("a", 1, 0.3, 1), ("b", 1, 0.3, 2), ("c", 1, 0.374, 50)])
    }

    /// Name, vCPUs, share and latency in ms of each tenant. Changes of task take time.
    fn planned_with(tenants: Vec<(&str, u32, f64, u64)>) -> (Plan, Model) {
        let (_, mut model) = small();
        let like = model.tenants.pop().unwrap();
        let tenant = |(name, vcpus, share, latency_ms): (&str, u32, f64, u64)| {
            let share = Share::from_fraction(share).unwrap();
            let latency_ns = latency_ms * 1_000_000;
            let class = Class::Reserved(Reservation { share, latency_ns, capped: false });
            Tenant { name: name.to_owned(), class, vcpus, ..like.clone() }
        };
        model.tenants = tenants.into_iter().map(tenant).collect();
        model.host.costs = Costs::DEFAULT;
        (plan(&model, &Options::default()).unwrap(), model)
    }

    #[test]
    fn durations_have_their_unit() {
        for (ns, text) in [
            (0, "0 ns"),
            (999, "999 ns"),
            (50_000, "50 us"),
            (20_000_000, "20 ms"),
            (12_837_825, "12.838 ms"),
            (100_100, "100.1 us"),
        ] {
            assert_eq!(duration(ns), text);
        }
    }
}
