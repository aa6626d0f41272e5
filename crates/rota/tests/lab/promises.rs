//! The promises, kept exactly: on one CPU, in instruction-counted time, with everybody wanting all of it.

use rota_lab::scenario::result::Gaps;
use rota_rules::status::{State, TenantStatus};

use crate::guest::{Guest, NEWEST, OLDER, script, tenant};

const CONFIG: &str = r#"
[host]
branch_records = true
cpus = "0"
switch_cost = "20us" # in an emulated guest

[[tenant]]
name = "steady"
class = "reserved"
share = 0.30
latency = "20ms"
match = { cgroup = "steady" }

[[tenant]]
name = "quick"
class = "reserved"
share = 0.15
latency = "10ms"
match = { cgroup = "quick" }

[[tenant]]
name = "capped"
class = "reserved"
share = 0.20
latency = "20ms"
capped = true
match = { cgroup = "capped" }

[[tenant]]
name = "spare"
class = "background"
match = { cgroup = "spare" }
"#;

/// What CONFIG's `switch_cost` keeps back for a change of tasks.
const SWITCH_NS: u64 = 20_000;

/// An interrupt or a kernel thread beside a switch is in the gap that the tenant sees, and not in the blackout that the
/// scheduler counts.
const DISTURBANCE_NS: u64 = 500_000;

/// The floor gives background work 5 ms after each second of waiting; it takes them in pieces, which may last, and what
/// it takes to change to each is the background's own.
const FLOOR_NS: u64 = 5_000_000;
const FLOOR_CYCLE_NS: u64 = 1_200_000_000;

#[test]
#[ignore = "boots a guest"]
fn promises_are_kept_on_the_newest_kernel() {
    promises_are_kept(Guest::exact(NEWEST));
}

#[test]
#[ignore = "boots a guest"]
fn promises_are_kept_on_an_older_kernel() {
    promises_are_kept(Guest::exact(OLDER).file("/lab/outlives", ""));
}

/// At the speed for which CONFIG's `switch_cost` is. At half of it a change of tasks takes twice as long.
fn promises_are_kept(guest: Guest) {
    let results = guest.halved(0).run(CONFIG, &script!("promises.sh"));
    let (during, after) = (results.status("during"), results.status("after"));
    // Emulated processors have none: that is said, and changes nothing.
    for status in [&during, &after] {
        let off = status.scheduler.branch_records_off.as_deref();
        assert!(off.is_some_and(|why| why.contains("keeps no branch records")), "{off:?}");
    }
    for name in ["steady", "quick", "capped"] {
        let gaps = results.gaps(name);
        let [during, after] = [&during, &after].map(|status| tenant(status, name));
        is_served(during, after, &gaps);
        has_no_blackout_beyond_its_bound(after, &gaps);
    }
    is_capped(tenant(&during, "capped"), &results.gaps("capped"));
    // The shell and the daemon are the system's too, so its probe does not see all that it gets.
    let system = tenant(&after, "system");
    assert!(system.missed == 0 && system.received >= 0.05, "{system:?}");
    let spare = results.gaps("spare");
    let changes_ns = spare.count * SWITCH_NS;
    assert!(
        received_ns(&spare) + changes_ns >= spare.window_ns / FLOOR_CYCLE_NS * FLOOR_NS,
        "{} lost by its probe",
        spare.lost_ns
    );
    assert!(after.cpus.iter().all(|cpu| cpu.generation == 1 && cpu.mixed == 0), "{:?}", after.cpus);
    assert!(results.logged("beyond its bound").is_empty());
}

/// Time in which the probe ran.
fn received_ns(gaps: &Gaps) -> u64 {
    gaps.window_ns - gaps.lost_ns
}

/// The tenant has at least what it was promised, net of what it takes to change to it, and the two who say so agree.
/// What it has not is accounted for as lost.
fn is_served(during: &TenantStatus, after: &TenantStatus, gaps: &Gaps) {
    assert_eq!(during.state, State::Served);
    let promised_ns = during.promised.unwrap() * (gaps.window_ns - during.bound_ns.unwrap()) as f64;
    let accounted_ns = received_ns(gaps) + after.lost_ns.total();
    assert!(accounted_ns as f64 >= promised_ns, "{accounted_ns} of {promised_ns}: {after:?}");
    let share = received_ns(gaps) as f64 / gaps.window_ns as f64;
    assert!((during.received - share).abs() < 0.01, "{share} by its probe: {during:?}");
}

fn has_no_blackout_beyond_its_bound(tenant: &TenantStatus, gaps: &Gaps) {
    let bound_ns = tenant.bound_ns.unwrap();
    assert!(tenant.missed == 0 && tenant.blackout_max_ns <= bound_ns, "{tenant:?}");
    assert!(gaps.longest_ns <= bound_ns, "{} by its probe: {tenant:?}", gaps.longest_ns);
    assert!(
        gaps.longest_ns <= tenant.blackout_max_ns + DISTURBANCE_NS,
        "{} by its probe: {tenant:?}",
        gaps.longest_ns
    );
}

/// No more than its share, the slot that the window cuts (C = U T, with 2 (T - C) <= L), and in each period what a
/// change of tasks may cost and did not.
fn is_capped(tenant: &TenantStatus, gaps: &Gaps) {
    let (share, bound_ns) = (tenant.promised.unwrap(), tenant.bound_ns.unwrap() as f64);
    let slot_ns = share * bound_ns / 2.0 / (1.0 - share);
    let kept_back_ns = gaps.window_ns as f64 / (slot_ns / share) * 2.0 * SWITCH_NS as f64;
    assert!(
        received_ns(gaps) as f64 <= share * gaps.window_ns as f64 + slot_ns + kept_back_ns,
        "{} lost by its probe",
        gaps.lost_ns
    );
}
