//! A plan for programs, and read back from them.

use std::borrow::Cow;

use rota_model::Model;
use rota_plan::{Plan, slots_alone};
use rota_rules::status::SpareStatus;
use serde::{Deserialize, Serialize};

use super::{vcpu_name, why_slots_alone};

/// A plan by names, so that it means the same beside another configuration. Times are in ns from the start of the
/// table, idle time is left out, and a slot's `vcpu` is the name of one of `vcpus`.
#[derive(Debug, Serialize, Deserialize)]
pub struct Table<'a> {
    pub table_length_ns: u64,
    #[serde(borrow)]
    pub cpus: Vec<Cpu<'a>>,
    #[serde(borrow)]
    pub vcpus: Vec<Vcpu<'a>>,
    /// Their time is in no slot.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub spares: Vec<SpareStatus>,
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cpu<'a> {
    pub cpu: u32,
    pub length_ns: u64,
    #[serde(borrow)]
    pub slots: Vec<Slot<'a>>,
    /// The tenant that has the CPU's core to itself, if one has.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub exclusive_to: Option<Cow<'a, str>>,
    /// Why its vCPUs wait for their slots when they wake, if they do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slots_alone: Option<String>,
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Slot<'a> {
    pub start_ns: u64,
    pub end_ns: u64,
    #[serde(borrow)]
    pub vcpu: Cow<'a, str>,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct Vcpu<'a> {
    #[serde(borrow)]
    pub vcpu: Cow<'a, str>,
    #[serde(borrow)]
    pub tenant: Cow<'a, str>,
    pub share: f64,
    pub latency_ns: u64,
    pub budget_ns: u64,
    pub period_ns: u64,
    pub cpus: Vec<u32>,
    pub blackout_ns: u64,
    pub method: String,
    /// Why it is where it is, if that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// The name of each of a plan's vCPUs.
pub fn names(plan: &Plan, model: &Model) -> Vec<String> {
    (0..plan.vcpus.len() as u32).map(|vcpu| vcpu_name(plan, model, vcpu)).collect()
}

impl Table<'_> {
    /// A plan by the [`names`] of its vCPUs.
    pub fn new<'a>(plan: &Plan, model: &'a Model, names: &'a [String]) -> Table<'a> {
        let tenant_name = |tenant: u32| Cow::from(&model.tenants[tenant as usize].name);
        let slot = |slot: &rota_plan::Slot| Slot {
            start_ns: slot.start_ns,
            end_ns: slot.end_ns,
            vcpu: Cow::from(&names[slot.vcpu as usize]),
        };
        let cpus = plan.cpus.iter().map(|cpu| Cpu {
            cpu: cpu.cpu,
            length_ns: cpu.length_ns,
            slots: cpu.slots.iter().map(slot).collect(),
            exclusive_to: cpu.exclusive_to.map(tenant_name),
            slots_alone: slots_alone(plan, cpu, model.host.costs.switch_ns)
                .map(|why| why_slots_alone(plan, model, why)),
        });
        let vcpus = plan.vcpus.iter().zip(names).map(|(vcpu, name)| Vcpu {
            vcpu: Cow::from(name),
            tenant: tenant_name(vcpu.tenant),
            share: vcpu.share.fraction(),
            latency_ns: vcpu.latency_ns,
            budget_ns: vcpu.budget_ns,
            period_ns: vcpu.period_ns,
            cpus: vcpu.cpus.clone(),
            blackout_ns: vcpu.blackout_ns,
            method: vcpu.method.to_string(),
            reason: None,
        });
        Table {
            table_length_ns: plan.table_length_ns,
            cpus: cpus.collect(),
            vcpus: vcpus.collect(),
            spares: SpareStatus::all(&model.host, &plan.spares),
        }
    }
}

/// One line of JSON; with the reasons of all vCPUs, or of none if `reasons` is empty.
pub fn render_json(plan: &Plan, model: &Model, reasons: Vec<String>) -> serde_json::Result<String> {
    let names = names(plan, model);
    let mut table = Table::new(plan, model, &names);
    for (vcpu, reason) in table.vcpus.iter_mut().zip(reasons) {
        vcpu.reason = Some(reason);
    }
    Ok(serde_json::to_string(&table)? + "\n")
}

#[cfg(test)]
mod tests {
    use rota_model::{Share, Spare};
    use serde_json::json;

    use super::super::tests::{migrating, of_changes, of_many, small};
    use super::*;

    #[test]
    fn the_json_is_what_the_documentation_says() {
        let (plan, model) = small();
        let text = render_json(&plan, &model, Vec::new()).unwrap();
        let shared =
            |name, start_ns| json!({"start_ns": start_ns, "end_ns": start_ns + 3_209_457, "vcpu": name});
        let vcpu = |index: u32| {
            json!({
                "vcpu": format!("a<&>\"b/{index}"), "tenant": "a<&>\"b", "share": 0.25, "latency_ns": 20_000_000,
                "budget_ns": 3_209_457, "period_ns": 12_837_825, "cpus": [2], "blackout_ns": 9_628_368,
                "method": "partitioned"
            })
        };
        let expected = json!({
            "table_length_ns": 12_837_825,
            "cpus": [
                {"cpu": 0, "length_ns": 12_837_825, "slots": []},
                {"cpu": 1, "length_ns": 12_837_825,
                 "slots": [{"start_ns": 0, "end_ns": 12_837_825, "vcpu": "db/0"}]},
                {"cpu": 2, "length_ns": 12_837_825,
                 "slots": [shared("a<&>\"b/0", 0), shared("a<&>\"b/1", 3_209_457)]}
            ],
            "vcpus": [
                {"vcpu": "db/0", "tenant": "db", "share": 1.0, "latency_ns": 1_000_000, "budget_ns": 12_837_825,
                 "period_ns": 12_837_825, "cpus": [1], "blackout_ns": 0, "method": "dedicated"},
                vcpu(0), vcpu(1)
            ]
        });
        assert_eq!(serde_json::from_str::<serde_json::Value>(&text).unwrap(), expected);
        assert!(
            text.starts_with("{\"table_length_ns\":12837825,\"cpus\":[{\"cpu\":0,\"length_ns\":"),
            "{text}"
        );
    }

    /// Nothing is said of the others: CPU 0 idles, and one vCPU has all of CPU 1.
    #[test]
    fn cpus_that_go_by_their_slots_alone_say_why() {
        let why = |(plan, model): (Plan, Model)| {
            let text = render_json(&plan, &model, Vec::new()).unwrap();
            let table = serde_json::from_str::<Table>(&text).unwrap();
            table.cpus.into_iter().map(|cpu| cpu.slots_alone).collect::<Vec<_>>()
        };
        let migrates = Some("web/2 migrates".to_owned());
        assert_eq!(why(migrating()), [None, migrates.clone(), migrates]);
        assert_eq!(why(of_many()), [None, None, Some("17 vCPUs, more than 16".to_owned())]);
        let changes = Some("no time for more changes of task than slots make".to_owned());
        assert_eq!(why(of_changes()), [None, None, changes]);
    }

    #[test]
    fn spares_are_counted() {
        let (mut plan, mut model) = small();
        let share = Share::from_fraction(0.25).unwrap();
        model.host.spares = vec![Spare { share, latency_ns: 20_000_000, count: 2 }];
        plan.spares = vec![1];
        let text = render_json(&plan, &model, Vec::new()).unwrap();
        let json: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(
            json["spares"],
            json!([{"share": 0.25, "latency_ns": 20_000_000, "count": 2, "ready": 1}])
        );
        assert_eq!(serde_json::from_str::<Table>(&text).unwrap().spares, SpareStatus::all(&model.host, &[1]));
    }
}
