//! A plan for programs.

use rota_model::Model;
use rota_plan::Plan;
use serde::Serialize;

use super::vcpu_name;

#[derive(Serialize)]
struct Table<'a> {
    table_length_ns: u64,
    cpus: Vec<Cpu<'a>>,
    vcpus: Vec<Vcpu<'a>>,
}

#[derive(Serialize)]
struct Cpu<'a> {
    cpu: u32,
    length_ns: u64,
    slots: Vec<Slot<'a>>,
}

#[derive(Serialize)]
struct Slot<'a> {
    start_ns: u64,
    end_ns: u64,
    vcpu: &'a str,
}

#[derive(Serialize)]
struct Vcpu<'a> {
    vcpu: &'a str,
    tenant: &'a str,
    share: f64,
    latency_ns: u64,
    budget_ns: u64,
    period_ns: u64,
    cpus: &'a [u32],
    blackout_ns: u64,
    method: String,
}

/// One line of JSON. Times are in ns from the start of the table, idle time is left out, and a slot's `vcpu` is the
/// name of one of `vcpus`.
pub fn render_json(plan: &Plan, model: &Model) -> serde_json::Result<String> {
    let names: Vec<String> = (0..plan.vcpus.len() as u32).map(|vcpu| vcpu_name(plan, model, vcpu)).collect();
    let slot = |slot: &rota_plan::Slot| Slot {
        start_ns: slot.start_ns,
        end_ns: slot.end_ns,
        vcpu: &names[slot.vcpu as usize],
    };
    let cpus = plan.cpus.iter().map(|cpu| Cpu {
        cpu: cpu.cpu,
        length_ns: cpu.length_ns,
        slots: cpu.slots.iter().map(slot).collect(),
    });
    let vcpus = plan.vcpus.iter().zip(&names).map(|(vcpu, name)| Vcpu {
        vcpu: name,
        tenant: &model.tenants[vcpu.tenant as usize].name,
        share: vcpu.share.fraction(),
        latency_ns: vcpu.latency_ns,
        budget_ns: vcpu.budget_ns,
        period_ns: vcpu.period_ns,
        cpus: &vcpu.cpus,
        blackout_ns: vcpu.blackout_ns,
        method: vcpu.method.to_string(),
    });
    let table = Table { table_length_ns: plan.table_length_ns, cpus: cpus.collect(), vcpus: vcpus.collect() };
    Ok(serde_json::to_string(&table)? + "\n")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::tests::small;
    use super::*;

    #[test]
    fn the_json_is_what_the_documentation_says() {
        let (plan, model) = small();
        let text = render_json(&plan, &model).unwrap();
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
}
