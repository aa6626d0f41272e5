//! What cannot be planned is refused in words that an operator can act on.

use rota_model::{Host, Model, Tenant};
use rota_plan::{Options, plan};

use crate::models::{MS, host, model, on, reserved};

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

/// The thesis' running example (section 5.1): it takes splitting.
#[test]
fn three_of_0_6_do_not_fit_on_two_cpus() {
    let model = model(host("0-1", ""), [25, 50, 100].map(|l| reserved(&format!("vm-{l}"), 1, 0.6, l * MS)));
    assert_eq!(
        refusal(&model),
        "tenant `vm-100`: vCPU 0 with share 0.6 fits on none of its 2 CPUs, of which none has more than 0.4 left; \
         it needs splitting over CPUs, which this version does not do; lower a share, widen its affinity or add a CPU"
    );
}

#[test]
fn affinity_is_honoured_or_refused() {
    let tenants = |cpus| vec![on(cpus, reserved("a", 2, 0.6, 20 * MS)), reserved("b", 1, 0.3, 20 * MS)];
    let options = Options::default();
    let free = plan(&model(host("0-3", "0"), tenants("2-3")), &options).unwrap();
    assert_eq!(free.vcpus.iter().map(|vcpu| vcpu.cpus[0]).collect::<Vec<_>>(), [2, 3, 1]);
    assert_eq!(
        refusal(&model(host("0-3", "0"), tenants("3"))),
        "tenant `a`: vCPU 1 with share 0.6 fits on none of its 1 CPUs, which have 0.4 left between them; lower a \
         share, widen its affinity or add a CPU"
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
        "tenant `db`: vCPU 1 with share 1 fits on none of its 1 CPUs: it wants one to itself, and none is empty; \
         lower a share, widen its affinity or add a CPU"
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
