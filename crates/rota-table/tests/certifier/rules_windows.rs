//! Tables that break one rule about CPUs that serve their vCPUs in windows.

use rota_model::{Costs, Share};
use rota_table::layout::CPU_WINDOWS;
use rota_table::{VcpuName, Violation};

use crate::made::{Made, Task, at_random, by_hand, cpu};
use crate::parts::{Parts, broken_parts, broken_source};

fn name(tenant: u32, index: u32) -> VcpuName {
    VcpuName { tenant, index }
}

/// The vCPUs 1/0, 1/1, ... with `budget` in every 420 ns, in slots of `slot` ns that follow each other on CPU 0.
fn beside(count: u32, slot: u32, budget: u32) -> Made {
    let slots: Vec<_> = (0..count).map(|vcpu| (slot * vcpu, slot * vcpu + slot, vcpu)).collect();
    let tasks: Vec<_> =
        (0..count).map(|index| Task { name: (1, index), budget, period: 420, capped: false }).collect();
    Made::new(840, vec![cpu(0, 420, &slots)], &tasks).patient()
}

/// The same, where a change of tasks takes 10 ns.
fn costly(count: u32, slot: u32) -> Made {
    let made = beside(count, slot, slot).costing(Costs { switch_ns: 10, migration_ns: 0 }).unwrap().patient();
    assert_eq!((made.in_windows(), made.judge(&made.bytes())), (1, Ok(())));
    made
}

/// CPU 0 alone serves in windows, whatever its vCPUs are.
fn opened(parts: &mut Parts) {
    parts.cpus[0].flags |= CPU_WINDOWS;
    for vcpu in &mut parts.vcpus {
        vcpu.window_ns = vcpu.budget_ns;
    }
}

#[test]
fn tables_in_windows_pass() {
    let made = by_hand().patient();
    assert_eq!((made.in_windows(), made.certify(&made.bytes()).map(|_| ())), (1, Ok(())));
    // CPU 1 does so, the others have a vCPU that migrates or one with all of the time.
    let windows: Vec<u32> = Parts::of(&made.bytes()).vcpus.iter().map(|vcpu| vcpu.window_ns).collect();
    assert_eq!(windows, [60, 100, 100, 0, 0, 0, 0]);
    let opened: usize = (0..100).map(|seed| at_random(seed).in_windows()).sum();
    assert!(opened > 30, "{opened}");
}

/// Nothing is said against slots alone.
#[test]
fn a_cpu_need_not_serve_in_windows() {
    let made = costly(2, 100);
    let mut parts = Parts::of(&made.bytes());
    (parts.cpus[0].flags, parts.cpus[0].switch_ns) = (0, 0);
    parts.vcpus.iter_mut().for_each(|vcpu| vcpu.window_ns = 0);
    assert!(made.certify(&parts.bytes()).is_ok());
}

#[test]
fn what_a_change_takes() {
    let made = costly(2, 100);
    let wrong = |found, expected| Violation::SwitchTime { cpu: 0, found, expected };
    assert_eq!(broken_parts(&made, |parts| parts.cpus[0].switch_ns = 9), wrong(9, 10));
    assert_eq!(broken_parts(&made, |parts| parts.cpus[0].switch_ns = 11), wrong(11, 10));
    let closed = broken_parts(&made, |parts| {
        parts.cpus[0].flags = 0;
        parts.vcpus.iter_mut().for_each(|vcpu| vcpu.window_ns = 0);
    });
    assert_eq!(closed, wrong(10, 0));
}

#[test]
fn vcpus_are_few() {
    assert_eq!((beside(16, 20, 20).in_windows(), beside(17, 20, 20).in_windows()), (1, 0));
    let many = broken_parts(&beside(17, 20, 20), opened);
    assert_eq!(many, Violation::WindowVcpus { cpu: 0, count: 17 });
    let none = broken_parts(&by_hand(), |parts| parts.cpus[0].flags |= CPU_WINDOWS);
    assert_eq!(none, Violation::WindowVcpus { cpu: 0, count: 0 });
}

#[test]
fn no_vcpu_has_all_of_the_time() {
    let made = beside(1, 420, 100);
    assert_eq!(made.in_windows(), 0);
    assert_eq!(broken_parts(&made, opened), Violation::WindowWhole { cpu: 0 });
}

#[test]
fn no_vcpu_migrates() {
    let cpus = vec![cpu(0, 420, &[(0, 50, 0), (100, 150, 1)]), cpu(1, 420, &[(50, 100, 0)])];
    let task = |index, budget| Task { name: (1, index), budget, period: 420, capped: false };
    let made = Made::new(840, cpus, &[task(0, 100), task(1, 50)]).patient();
    assert_eq!(made.in_windows(), 0);
    let (cpu, vcpu) = (0, name(1, 0));
    assert_eq!(broken_parts(&made, opened), Violation::WindowMigrates { cpu, vcpu });
}

/// Slots may lie closer than a budget at one window's start and a budget at the next one's end.
#[test]
fn the_latency_has_room_for_waits_in_windows() {
    let slots = [(0, 50, 0), (210, 260, 0), (300, 400, 1)];
    let task = |index, budget, period| Task { name: (1, index), budget, period, capped: false };
    let made = Made::new(840, vec![cpu(0, 420, &slots)], &[task(0, 100, 420), task(1, 100, 420)]);
    let mut made = made.patient();
    assert_eq!(made.in_windows(), 1);
    made.promise(0, |promised| promised.latency_ns = 639);
    assert_eq!((made.in_windows(), made.certify(&made.bytes()).map(|_| ())), (0, Ok(())));
    let (wait_ns, latency_ns) = (640, 639);
    let violation = broken_parts(&made, opened);
    assert_eq!(violation, Violation::WindowWait { vcpu: name(1, 0), wait_ns, latency_ns });
}

#[test]
fn a_claim_has_room_for_a_change_beside_the_budget() {
    let made = costly(2, 100);
    let short = broken_parts(&made, |parts| parts.vcpus[1].window_ns = 99);
    assert_eq!(short, Violation::WindowTime { vcpu: name(1, 1), found_ns: 99, least_ns: 100 });
    let nothing = broken_parts(&made, |parts| parts.vcpus[0].window_ns = 0);
    assert_eq!(nothing, Violation::WindowTime { vcpu: name(1, 0), found_ns: 0, least_ns: 100 });
    // Nobody else may claim anything.
    let stranger = broken_parts(&by_hand(), |parts| parts.vcpus[4].window_ns = 1);
    assert_eq!(stranger, Violation::WindowTime { vcpu: name(12, 1), found_ns: 1, least_ns: 0 });
}

/// One vCPU with a window of 840 ns beside one with windows of 210 ns and one with windows of 280 ns, which begin
/// within it three times and twice.
fn mixed(costs: Costs) -> Made {
    let slots = [(0, 50, 1), (50, 100, 2), (100, 140, 0), (210, 260, 1), (280, 330, 2), (420, 470, 1)];
    let slots: Vec<_> = slots.into_iter().chain([(560, 610, 2), (630, 680, 1)]).collect();
    let task = |index, budget, period| Task { name: (1, index), budget, period, capped: index == 0 };
    let tasks = [task(0, 40, 840), task(1, 50, 210), task(2, 50, 280)];
    Made::new(840, vec![cpu(0, 840, &slots)], &tasks).costing(costs).unwrap().patient()
}

#[test]
fn a_claim_has_room_for_every_cut() {
    let made = mixed(Costs { switch_ns: 10, migration_ns: 0 });
    assert_eq!((made.in_windows(), made.judge(&made.bytes())), (1, Ok(())));
    // Windows of 280 ns can be cut once by one of 210 ns.
    let claims: Vec<u32> = Parts::of(&made.bytes()).vcpus.iter().map(|vcpu| vcpu.window_ns).collect();
    assert_eq!(claims, [30 + 60, 50, 40 + 20]);
    let short = broken_parts(&made, |parts| parts.vcpus[0].window_ns = 89);
    assert_eq!(short, Violation::WindowTime { vcpu: name(1, 0), found_ns: 89, least_ns: 90 });
    let short = broken_parts(&made, |parts| parts.vcpus[2].window_ns = 59);
    assert_eq!(short, Violation::WindowTime { vcpu: name(1, 2), found_ns: 59, least_ns: 60 });
    let free = mixed(Costs::default());
    let claims: Vec<u32> = Parts::of(&free.bytes()).vcpus.iter().map(|vcpu| vcpu.window_ns).collect();
    assert_eq!((free.in_windows(), claims), (1, vec![40, 50, 50]));
}

#[test]
fn claims_fit_into_the_table() {
    let made = mixed(Costs { switch_ns: 10, migration_ns: 0 });
    let with = |window_ns| {
        let mut parts = Parts::of(&made.bytes());
        parts.vcpus[1].window_ns = window_ns;
        (made.judge(&parts.bytes()).is_ok(), made.certify(&parts.bytes()).map(|_| ()))
    };
    // The others leave 840 - 90 - 3 * 60 ns for four windows.
    assert_eq!(with(142), (true, Ok(())));
    let (cpu, length_ns) = (0, 840);
    assert_eq!(with(143), (false, Err(Violation::WindowClaims { cpu, claimed_ns: 842, length_ns })));
}

/// Slots make three changes to vCPU 1/0, windows up to four.
#[test]
fn a_cpu_without_time_for_all_changes_goes_by_its_slots() {
    let slots = [(0, 100, 0), (100, 210, 1), (210, 320, 1), (320, 520, 0), (520, 630, 1), (630, 740, 1)];
    let slots: Vec<_> = slots.into_iter().chain([(740, 840, 0)]).collect();
    let task = |index, budget, period| Task { name: (1, index), budget, period, capped: false };
    let made = Made::new(840, vec![cpu(0, 840, &slots)], &[task(0, 400, 840), task(1, 110, 210)]);
    let mut made = made.costing(Costs { switch_ns: 10, migration_ns: 0 }).unwrap().patient();
    assert_eq!((made.source.vcpus[0].budget_ns, made.source.vcpus[1].budget_ns), (370, 100));
    assert_eq!((made.in_windows(), made.certify(&made.bytes()).map(|_| ())), (0, Ok(())));
    let opened = broken_parts(&made, |parts| {
        parts.cpus[0].flags |= CPU_WINDOWS;
        parts.cpus[0].switch_ns = 10;
        (parts.vcpus[0].window_ns, parts.vcpus[1].window_ns) = (370 + 40, 100 + 10);
    });
    assert_eq!(opened, Violation::WindowClaims { cpu: 0, claimed_ns: 850, length_ns: 840 });
    // With 10 ns less all changes fit.
    made.source.vcpus[0].budget_ns -= 10;
    made.promise(0, |promised| promised.share = Share::from_ppb(100_000_000).unwrap());
    let made = made.patient();
    assert_eq!((made.in_windows(), made.judge(&made.bytes())), (1, Ok(())));
    assert!(made.certify(&made.bytes()).is_ok());
}

#[test]
fn a_capped_vcpu_claims_no_more_than_is_due_or_in_slots() {
    let made = mixed(Costs { switch_ns: 10, migration_ns: 0 });
    let more = broken_parts(&made, |parts| parts.vcpus[0].window_ns += 1);
    assert_eq!(more, Violation::WindowBeyond { vcpu: name(1, 0), found_ns: 91, most_ns: 90 });
    // One whose slots make more changes than windows can may claim what they come to.
    let task = Task { name: (1, 0), budget: 100, period: 420, capped: true };
    let made = Made::new(840, vec![cpu(0, 420, &[(0, 50, 0), (100, 150, 0)])], &[task]);
    let made = made.costing(Costs { switch_ns: 10, migration_ns: 0 }).unwrap().patient();
    let with = |window_ns| {
        let mut parts = Parts::of(&made.bytes());
        parts.vcpus[0].window_ns = window_ns;
        (made.judge(&parts.bytes()).is_ok(), made.certify(&parts.bytes()).map(|_| ()))
    };
    assert_eq!(Parts::of(&made.bytes()).vcpus[0].window_ns, 100);
    assert_eq!([with(90), with(100)], [(true, Ok(())), (true, Ok(()))]);
    let (vcpu, found_ns, most_ns) = (name(1, 0), 101, 100);
    assert_eq!(with(101), (false, Err(Violation::WindowBeyond { vcpu, found_ns, most_ns })));
}

/// A cost that is not what the table was written for.
#[test]
fn costs_that_are_not_the_tables() {
    let violation = broken_source(costly(2, 100), |made| made.source.switch_ns = 9);
    assert_eq!(violation, Violation::SwitchTime { cpu: 0, found: 9, expected: 10 });
}

#[test]
fn messages_name_place_and_extent() {
    let text = |violation: Violation| violation.to_string();
    let vcpu = name(3, 1);
    assert_eq!(
        text(Violation::WindowVcpus { cpu: 4, count: 17 }),
        "CPU 4 serves 17 vCPUs in windows; from 1 to 16 are allowed"
    );
    assert_eq!(
        text(Violation::WindowWait { vcpu, wait_ns: 640, latency_ns: 600 }),
        "vCPU 3/1 can wait for 640 ns where it is served in windows, 40 ns longer than its latency of 600 ns"
    );
    assert_eq!(
        text(Violation::WindowBeyond { vcpu, found_ns: 60, most_ns: 50 }),
        "vCPU 3/1 is capped, but may claim 60 ns of each window, where 50 ns are due to it"
    );
    assert_eq!(
        text(Violation::WindowClaims { cpu: 4, claimed_ns: 850, length_ns: 840 }),
        "CPU 4: its vCPUs may claim 850 ns in windows, but the table has 840 ns"
    );
}
