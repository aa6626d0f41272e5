//! Small plans, as text.

use std::fmt::Write as _;

use rota_model::{Class, Costs, Host, Model, Tenant};
use rota_plan::{Options, Placement, Plan, plan};

use crate::checker::check;
use crate::models::{MS, host, model, reserved};

/// A CPU and its length, then its slots; then the vCPUs. All in ns.
fn draw(model: &Model, plan: &Plan) -> String {
    let name = |vcpu: u32| {
        let vcpu = &plan.vcpus[vcpu as usize];
        format!("{}/{}", model.tenants[vcpu.tenant as usize].name, vcpu.index)
    };
    let mut text = String::new();
    for cpu in &plan.cpus {
        writeln!(text, "CPU {}, {}", cpu.cpu, cpu.length_ns).unwrap();
        for slot in &cpu.slots {
            writeln!(text, "  {:>8} {:>8} {}", slot.start_ns, slot.end_ns, name(slot.vcpu)).unwrap();
        }
    }
    for (place, vcpu) in (0..).zip(&plan.vcpus) {
        let (budget, period, blackout) = (vcpu.budget_ns, vcpu.period_ns, vcpu.blackout_ns);
        writeln!(text, "{}: {budget} in {period}, blackout {blackout}, {}", name(place), vcpu.method)
            .unwrap();
    }
    text
}

#[track_caller]
fn snapshot(model: &Model, options: &Options, expected: &str) {
    let plan = plan(model, options).unwrap();
    check(model, &plan).unwrap();
    assert_eq!(draw(model, &plan).trim_end(), expected.trim_matches('\n'));
}

/// Four quarters fill a CPU to the last ns: a period that 4 divides is taken, not the longest (12,837,825 ns).
#[test]
fn four_quarters() {
    snapshot(
        &model(host("0", ""), [reserved("vm", 4, 0.25, 20 * MS)]),
        &Options::default(),
        "
CPU 0, 11411400
         0  2852850 vm/0
   2852850  5705700 vm/1
   5705700  8558550 vm/2
   8558550 11411400 vm/3
vm/0: 2852850 in 11411400, blackout 8558550, partitioned
vm/1: 2852850 in 11411400, blackout 8558550, partitioned
vm/2: 2852850 in 11411400, blackout 8558550, partitioned
vm/3: 2852850 in 11411400, blackout 8558550, partitioned
",
    );
}

#[test]
fn a_dedicated_cpu_beside_a_shared_one() {
    let tenants = [reserved("db", 1, 1.0, MS), reserved("web", 2, 0.3, 10 * MS)];
    snapshot(
        &model(host("0-3", "0"), tenants),
        &Options::default(),
        "
CPU 0, 6846840
CPU 1, 6846840
         0  6846840 db/0
CPU 2, 6846840
         0  2054052 web/0
CPU 3, 6846840
         0  2054052 web/1
db/0: 6846840 in 6846840, blackout 0, dedicated
web/0: 2054052 in 6846840, blackout 4792788, partitioned
web/1: 2054052 in 6846840, blackout 4792788, partitioned
",
    );
}

#[test]
fn best_fit_leaves_cpus_empty() {
    let options = Options { placement: Placement::BestFit };
    snapshot(
        &model(host("0-1", ""), [reserved("vm", 2, 0.3, 30 * MS)]),
        &options,
        "
CPU 0, 20540520
         0  6162156 vm/0
   6162156 12324312 vm/1
CPU 1, 20540520
vm/0: 6162156 in 20540520, blackout 14378364, partitioned
vm/1: 6162156 in 20540520, blackout 14378364, partitioned
",
    );
}

/// EDF alone preempts `slow` for `fast` and leaves a slot of less than 100 us for later. An exchange with `fast`
/// joins it to the slot before, and nobody's windows change.
#[test]
fn a_short_slot_is_dissolved() {
    let tenants = [reserved("fast", 1, 0.15, 5 * MS), reserved("slow", 1, 0.35, 10 * MS)];
    let undissolved = model(Host { slot_min_ns: 0, ..host("0", "") }, tenants);
    snapshot(
        &undissolved,
        &Options::default(),
        "
CPU 0, 14671800
         0   440154 fast/0
    440154  2934360 slow/0
   2934360  3374514 fast/0
   3374514  3447873 slow/0
   5868720  6308874 fast/0
   7335900  8803080 slow/0
   8803080  9243234 fast/0
   9243234 10343619 slow/0
  11737440 12177594 fast/0
fast/0: 440154 in 2934360, blackout 2494206, partitioned
slow/0: 2567565 in 7335900, blackout 4768335, partitioned
",
    );
    let host = Host { slot_min_ns: 100_000, ..host("0", "") };
    snapshot(
        &Model { host, ..undissolved },
        &Options::default(),
        "
CPU 0, 14671800
         0   440154 fast/0
    440154  3007719 slow/0
   3007719  3447873 fast/0
   5868720  6308874 fast/0
   7335900  8803080 slow/0
   8803080  9243234 fast/0
   9243234 10343619 slow/0
  11737440 12177594 fast/0
fast/0: 440154 in 2934360, blackout 2567565, partitioned
slow/0: 2567565 in 7335900, blackout 4768335, partitioned
",
    );
}

/// The system's own tenant has one vCPU a CPU, each on its CPU, whatever else is there.
#[test]
fn pinned_vcpus_stay_where_they_belong() {
    let pinned = Tenant { pinned: true, ..reserved(Tenant::SYSTEM, 2, 0.05, 50 * MS) };
    let tenants = [reserved("vm", 2, 0.9, 20 * MS), pinned];
    snapshot(
        &model(host("0-1", ""), tenants),
        &Options::default(),
        "
CPU 0, 51351300
         0  1283783 system/0
   1283783 47499953 vm/0
  47499953 48783736 system/0
CPU 1, 51351300
         0  1283783 system/1
   1283783 47499953 vm/1
  47499953 48783736 system/1
vm/0: 46216170 in 51351300, blackout 5135130, partitioned
vm/1: 46216170 in 51351300, blackout 5135130, partitioned
system/0: 1283783 in 25675650, blackout 46216170, partitioned
system/1: 1283783 in 25675650, blackout 46216170, partitioned
",
    );
}

#[test]
fn a_host_without_reservations_idles() {
    let batch = Tenant { class: Class::Shared { weight: 100 }, ..reserved("batch", 4, 0.5, MS) };
    snapshot(
        &model(host("0-1", "0"), [batch]),
        &Options::default(),
        "
CPU 0, 102702600
CPU 1, 102702600
",
    );
}

/// Each change of tasks takes 5 us: one in each window of the vCPU with the short period, two of the other, which is
/// preempted. Their slots are longer than their budgets by so much, and their blackouts longer than the gaps by 5 us.
#[test]
fn budgets_are_net_of_changes() {
    let host = Host { costs: Costs::DEFAULT, ..host("0", "") };
    snapshot(
        &model(host, [reserved("short", 1, 0.5, 6_900_000), reserved("long", 1, 0.4, 25 * MS)]),
        &Options::default(),
        "
CPU 0, 20540520
         0  3428420 short/0
   3428420  6846840 long/0
   6846840 10275260 short/0
  10275260 15083048 long/0
  15083048 18511468 short/0
short/0: 3423420 in 6846840, blackout 4812788, partitioned
long/0: 8216208 in 20540520, blackout 8890892, partitioned
",
    );
}
