//! What cannot be planned is refused in words that an operator can act on.

use rota_model::{Costs, Host, Model, Tenant};
use rota_plan::{Figures, Infeasible, Options, plan};

use crate::models::{MS, host, model, on, pinned, reserved};

fn refusal(model: &Model) -> String {
    plan(model, &Options::default()).unwrap_err().to_string()
}

#[test]
fn an_over_utilised_host_says_by_how_much() {
    let full = Host { floor_ppb: Host::FLOOR_PPB, ..host("0-3", "0") };
    let model = model(full, [reserved("web", 9, 0.3, 20 * MS), reserved("db", 1, 1.0, MS)]);
    assert_eq!(
        refusal(&model),
        "over-utilised: the reservations need 3.7 CPUs and the 3 CPUs that may carry them have 2.99 to give, 0.71 too \
         few; lower shares, remove tenants or add CPUs"
    );
}

#[test]
fn a_latency_too_small_is_told_the_smallest() {
    let model = model(host("0", ""), [reserved("rt", 1, 0.25, 100_000)]);
    assert_eq!(
        refusal(&model),
        "tenant `rt`: share 0.25 cannot have a latency of 100us; the smallest it can have is 150.15us"
    );
    let Tenant { class, .. } = reserved("rt", 1, 0.25, 150_150);
    let tenants = vec![Tenant { class, ..model.tenants[0].clone() }];
    assert!(plan(&Model { tenants, ..model }, &Options::default()).is_ok());
}

#[test]
fn affinity_is_honoured_or_refused() {
    let tenants = |cpus| vec![on(cpus, reserved("a", 2, 0.6, 20 * MS)), reserved("b", 1, 0.3, 20 * MS)];
    let options = Options::default();
    let free = plan(&model(host("0-3", "0"), tenants("2-3")), &options).unwrap();
    assert_eq!(free.vcpus.iter().map(|vcpu| vcpu.cpus[0]).collect::<Vec<_>>(), [2, 3, 1]);
    assert_eq!(
        refusal(&model(host("0-3", "0"), tenants("3"))),
        "bottleneck: 2 vCPUs of tenant `a` may only use CPU 3; 1.2 CPUs are needed there and 1 can be had, 0.2 too \
         few; lower a share, widen an affinity or remove a tenant"
    );
    assert_eq!(
        refusal(&model(host("0-3", "0"), tenants("0"))),
        "tenant `a`: none of the CPUs 0 may carry reservations (those are 1-3); change its affinity or the \
         housekeeping CPUs"
    );
}

#[test]
fn a_whole_cpu_needs_an_empty_one() {
    let whole = |vcpus| model(host("0-1", ""), [on("1", reserved("db", vcpus, 1.0, MS))]);
    assert!(plan(&whole(1), &Options::default()).is_ok());
    assert_eq!(
        refusal(&whole(2)),
        "bottleneck: 2 vCPUs of tenant `db` may only use CPU 1; 2 CPUs are needed there and 1 can be had, 1 too few; \
         lower a share, widen an affinity or remove a tenant"
    );
    let beside = model(host("0-1", ""), [pinned("all", "0-1", 0.01), reserved("db", 1, 1.0, MS)]);
    assert_eq!(
        refusal(&beside),
        "tenant `db`: vCPU 0 wants a CPU to itself, and of CPUs 0-1 none was found that the others can do without; \
         lower a share, widen an affinity or add a CPU"
    );
}

#[test]
fn a_bottleneck_names_who_and_where_and_by_how_much() {
    let tenants = [
        reserved("roams", 2, 0.9, 20 * MS),
        on("2-3", reserved("a", 3, 0.6, 20 * MS)),
        on("2-3", reserved("b", 1, 0.3, 20 * MS)),
        pinned("each", "1-7", 0.05),
    ];
    let model = model(Host { floor_ppb: 5_000_000, ..host("0-7", "0") }, tenants);
    assert_eq!(
        refusal(&model),
        "bottleneck: 6 vCPUs of tenants `a`, `b`, `each` may only use CPUs 2-3; 2.2 CPUs are needed there and 1.99 can \
         be had, 0.21 too few; lower a share, widen an affinity or remove a tenant"
    );
}

/// 17 of a 17th are less than one CPU, but not in whole ns.
#[test]
fn what_rounding_takes_is_told_too() {
    let seventeenth = on("0", reserved("a", 17, 0.058_823_529, 20 * MS));
    assert_eq!(
        refusal(&model(host("0-1", ""), [seventeenth])),
        "bottleneck: 17 vCPUs of tenant `a` may only use CPU 0; 1.000000098 CPUs are needed there and 1 can be had, \
         0.000000098 too few; lower a share, widen an affinity or remove a tenant"
    );
}

/// What fits by its shares alone, but not with 5 us for each change.
#[test]
fn what_costs_take_is_told_with_the_key_to_change() {
    let host = |cpus| Host { costs: Costs::DEFAULT, ..host(cpus, "") };
    assert_eq!(
        refusal(&model(host("0"), [reserved("vm", 4, 0.25, 20 * MS)])),
        "over-utilised: the reservations need 1 CPUs and changes of task 0.00155813 (host.switch_cost) and the 1 CPUs \
         that may carry them have 1 to give, 0.00155813 too few; lower shares, remove tenants or add CPUs"
    );
    assert_eq!(
        refusal(&model(host("0-1"), [on("1", reserved("vm", 4, 0.25, 20 * MS))])),
        "bottleneck: 4 vCPUs of tenant `vm` may only use CPU 1; 1 CPUs are needed there and changes of task 0.00155813 \
         (host.switch_cost) and 1 can be had, 0.00155813 too few; lower a share, widen an affinity or remove a tenant"
    );
}

#[test]
fn a_change_of_tasks_needs_room_in_a_period() {
    let host = || Host { costs: Costs::DEFAULT, ..host("0", "") };
    assert_eq!(
        refusal(&model(host(), [reserved("rt", 1, 0.99, 5_000)])),
        "tenant `rt`: share 0.99 cannot have a latency of 5us; the smallest it can have, where a change of tasks takes \
         5us (host.switch_cost), is 10.27us"
    );
    assert_eq!(
        refusal(&model(host(), [reserved("rt", 1, 0.99999, 20 * MS)])),
        "tenant `rt`: share 0.99999 leaves no time to change tasks, which takes 5us (host.switch_cost) of a period of \
         102.7026ms at most; write a share of 1, which has a CPU to itself, or a lower one"
    );
}

/// Seldom met: where vCPUs were placed again and again.
#[test]
fn cpus_without_a_timetable_are_named() {
    let figures = Figures { needed_ppb: 1_950_000_000, costs_ppb: 40_000_000, available_ppb: 1_990_000_000 };
    let refusal = Infeasible::Crowded { cpus: "3,5".parse().unwrap(), figures, tenants: "a, b".to_owned() };
    assert_eq!(
        refusal.to_string(),
        "no timetable was found for CPUs 3,5: the vCPUs there need 1.95 CPUs and changes of task 0.04 \
         (host.switch_cost), of 1.99 to give; give these tenants longer or equal latencies, or lower shares: a, b"
    );
}

#[test]
fn shares_too_small_for_any_table_are_refused() {
    let tiny = reserved("tiny", 1, 0.000_001, 210_000);
    let model = model(host("0", ""), [tiny, reserved("big", 1, 0.5, 20 * MS)]);
    assert_eq!(
        refusal(&model),
        "CPU 0: its shortest slot would be 1ns in a length of 17.1171ms, more than 65536 slices; give its tenants \
         equal latencies or larger shares: tiny, big"
    );
}
