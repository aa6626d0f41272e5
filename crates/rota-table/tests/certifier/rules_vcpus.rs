//! Tables that break one rule about vCPU records or promises and no other.

use rota_model::Share;
use rota_table::layout::{HYPERPERIOD_NS, Vcpu};
use rota_table::{EncodeError, Promise, SlotSource, VcpuName, VcpuSource, Violation, encode};

use crate::made::{Made, Task, by_hand, cpu};
use crate::parts::{broken_parts, broken_source};

fn name(tenant: u32, index: u32) -> VcpuName {
    VcpuName { tenant, index }
}

fn one(length_ns: u32, cpu_ns: u32, slots: &[(u32, u32, u32)], budget: u32, period: u32) -> Made {
    let task = Task { name: (1, 0), budget, period, capped: false };
    Made::new(length_ns, vec![cpu(0, cpu_ns, slots)], &[task])
}

#[test]
fn flags() {
    let violation = broken_parts(&by_hand(), |parts| parts.vcpus[0].flags |= 2);
    assert_eq!(violation, Violation::Flags { vcpu: name(10, 0), flags: 2 });
}

#[test]
fn records_and_promises_are_one_to_one() {
    let twice = broken_source(by_hand(), |made| made.promises.push(made.promises[2].clone()));
    assert_eq!(twice, Violation::PromisedTwice { vcpu: name(11, 0) });
    let extra = broken_source(by_hand(), |made| {
        made.promises.push(Promise { tenant: 9, ..made.promises[2].clone() });
    });
    assert_eq!(extra, Violation::Missing { vcpu: name(9, 0) });
    let fewer = broken_source(by_hand(), |made| drop(made.promises.remove(5)));
    assert_eq!(fewer, Violation::NotPromised { vcpu: name(13, 0) });

    let cpus = vec![cpu(0, 420, &[(0, 60, 0), (60, 120, 1)])];
    let tasks = [1, 2].map(|tenant| Task { name: (tenant, 0), budget: 60, period: 420, capped: false });
    let double = broken_source(Made::new(420, cpus, &tasks), |made| {
        made.source.vcpus[1].tenant = 1;
        made.promises.pop();
    });
    assert_eq!(double, Violation::RecordedTwice { vcpu: name(1, 0) });
}

#[test]
fn what_is_promised_is_recorded() {
    let half = Share::from_ppb(500_000_000).unwrap();
    let share = broken_source(by_hand(), |made| made.source.vcpus[0].reservation.share = half);
    let least_ns = 105;
    assert_eq!(
        share,
        Violation::Share {
            vcpu: name(10, 0),
            promised: by_hand().promises[0].reservation.share,
            found_ppb: 500_000_000
        }
    );
    // The same share in the promise too leaves the budget too small for it.
    let budget = broken_source(by_hand(), |made| made.promise(0, |reservation| reservation.share = half));
    assert_eq!(budget, Violation::Budget { vcpu: name(10, 0), budget_ns: 60, least_ns });

    let latency = broken_source(by_hand(), |made| made.source.vcpus[0].reservation.latency_ns += 1);
    let (promised_ns, found_ns) = (240, 241);
    assert_eq!(latency, Violation::Latency { vcpu: name(10, 0), promised_ns, found_ns });

    let capped = broken_source(by_hand(), |made| made.source.vcpus[0].reservation.capped = true);
    assert_eq!(capped, Violation::Capped { vcpu: name(10, 0), promised: false, found: true });
    let uncapped = broken_source(by_hand(), |made| made.source.vcpus[1].reservation.capped = false);
    assert_eq!(uncapped, Violation::Capped { vcpu: name(10, 1), promised: true, found: false });
}

#[test]
fn periods() {
    let made = one(840, 105, &[(0, 105, 0)], 16, 16);
    let odd = made.certify(&made.bytes()).unwrap_err();
    assert_eq!(odd, Violation::Period { vcpu: name(1, 0), period_ns: 16, table_ns: 840 });
    let none = broken_source(made, |made| made.source.vcpus[0].period_ns = 0);
    assert_eq!(none, Violation::Period { vcpu: name(1, 0), period_ns: 0, table_ns: 840 });
}

#[test]
fn budgets() {
    let violation = broken_source(by_hand(), |made| made.source.vcpus[0].budget_ns -= 1);
    assert_eq!(violation, Violation::Budget { vcpu: name(10, 0), budget_ns: 59, least_ns: 60 });
}

#[test]
fn vcpus_without_slots() {
    let mut made = by_hand();
    made.promises.push(Promise { tenant: 20, ..made.promises[0].clone() });
    let violation = broken_parts(&made, |parts| parts.vcpus.push(Vcpu { tenant: 20, ..parts.vcpus[0] }));
    assert_eq!(violation, Violation::NoSlot { vcpu: name(20, 0) });
}

#[test]
fn affinity() {
    let violation = broken_source(by_hand(), |made| made.promises[3].cpus = "2,4".parse().unwrap());
    let allowed = "2,4".parse().unwrap();
    assert_eq!(violation, Violation::Affinity { vcpu: name(12, 0), cpu: 3, start_ns: 60, allowed });
}

#[test]
fn home_and_number_of_cpus() {
    let home = broken_parts(&by_hand(), |parts| parts.vcpus[3].home_cpu = 3);
    assert_eq!(home, Violation::HomeCpu { vcpu: name(12, 0), found: 3, expected: 2 });
    let count = broken_parts(&by_hand(), |parts| parts.vcpus[3].nr_cpus = 1);
    assert_eq!(count, Violation::CpuCount { vcpu: name(12, 0), found: 1, expected: 2 });
}

#[test]
fn homes() {
    let made = by_hand();
    // Seven vCPUs; 12/0, the fourth, has two homes and all others one.
    let late = broken_parts(&made, |parts| parts.vcpus[4].first_home = 4);
    assert_eq!(late, Violation::HomeRun { vcpu: name(12, 1), found: 4, expected: 5 });
    let swapped = broken_parts(&made, |parts| parts.homes.swap(3, 4));
    assert_eq!(swapped, Violation::Homes { vcpu: name(12, 0), found: 3, expected: 2 });
    let stranger = broken_parts(&made, |parts| parts.homes[4] = u32::MAX);
    assert_eq!(stranger, Violation::Homes { vcpu: name(12, 0), found: u32::MAX, expected: 3 });
    let fewer = broken_parts(&made, |parts| {
        parts.homes.pop();
    });
    assert_eq!(fewer, Violation::HomesBeyond { vcpu: name(14, 0), count: 1, total: 7 });
    let more = broken_parts(&made, |parts| parts.homes.push(4));
    assert_eq!(more, Violation::RunTotal { whose: "vCPUs", what: "homes", claimed: 8, total: 9 });
}

/// On each of 65 CPUs one slot, one after the other, of the same vCPU.
#[test]
fn more_homes_than_a_record_may_have() {
    let spread = |cpus: u32| {
        let slots = (0..cpus).map(|number| cpu(number, 840, &[(10 * number, 10 * number + 10, 0)]));
        let task = Task { name: (1, 0), budget: 10 * cpus, period: 840, capped: false };
        Made::new(840, slots.collect(), &[task])
    };
    let most = spread(64);
    assert!(most.certify(&most.bytes()).is_ok());
    let refused = EncodeError::Scattered { tenant: 1, index: 0, cpus: 65 };
    assert_eq!(encode(&spread(65).source), Err(refused));
    // What the encoder does not write, somebody else might: two vCPUs of adjoining slots, taken together.
    let mut made = spread(64);
    made.source.cpus.push(cpu(64, 840, &[(640, 650, 1)]));
    made.source.vcpus.push(VcpuSource { index: 1, budget_ns: 10, ..made.source.vcpus[0] });
    made.promises[0].cpus = "0-64".parse().unwrap();
    let violation = broken_parts(&made, |parts| {
        parts.slots[64].vcpu = 0;
        parts.locals[64] = 0;
        parts.vcpus.pop();
        parts.vcpus[0].nr_cpus = 65;
    });
    assert_eq!(violation, Violation::Scattered { vcpu: name(1, 0), cpus: 65 });
}

/// vCPU 12/0 has [0, 50) of every 210 ns on CPU 2; on CPU 3 its second slot is put into the second of these.
#[test]
fn two_cpus_at_once() {
    let violation = broken_source(by_hand(), |made| {
        let slots = &mut made.source.cpus[2].slots;
        slots[3].start_ns = 259;
        slots[3].end_ns = 314;
    });
    let (first, second, from_ns, until_ns) = (2, 3, 259, 260);
    assert_eq!(violation, Violation::TwoCpus { vcpu: name(12, 0), first, second, from_ns, until_ns });
}

#[test]
fn windows() {
    let more = broken_source(by_hand(), |made| made.source.vcpus[3].budget_ns += 1);
    let (from_ns, until_ns, got_ns, budget_ns) = (0, 210, 105, 106);
    assert_eq!(
        more,
        Violation::Window { vcpu: name(12, 0), from_ns, until_ns, got_ns, lost_ns: 0, budget_ns }
    );
    // As much in the whole table, but one ns of it in the wrong window.
    let moved = broken_source(by_hand(), |made| {
        made.source.cpus[0].slots[3] = SlotSource { start_ns: 209, end_ns: 269, vcpu: 0 };
        made.source.cpus[0].slots[2] = SlotSource { start_ns: 269, end_ns: 329, vcpu: 2 };
        made.source.cpus[0].slots.swap(2, 3);
    });
    let (from_ns, until_ns, got_ns, budget_ns) = (210, 420, 59, 60);
    assert_eq!(
        moved,
        Violation::Window { vcpu: name(10, 0), from_ns, until_ns, got_ns, lost_ns: 0, budget_ns }
    );
}

/// The periods of a vCPU need not fit its CPU's length.
#[test]
fn windows_of_periods_that_drift_over_the_slots() {
    let slots = [(0, 30, 0), (35, 65, 0), (70, 105, 0)];
    let made = one(840, 105, &slots, 30, 40);
    assert!(made.certify(&made.bytes()).is_ok());
    let violation = broken_source(made, |made| made.source.vcpus[0].budget_ns = 31);
    let (from_ns, until_ns, got_ns, budget_ns) = (240, 280, 30, 31);
    assert_eq!(
        violation,
        Violation::Window { vcpu: name(1, 0), from_ns, until_ns, got_ns, lost_ns: 0, budget_ns }
    );
}

#[test]
fn blackouts() {
    // Over the wrap.
    let less = broken_source(by_hand(), |made| made.promise(1, |reservation| reservation.latency_ns = 319));
    let (from_ns, until_ns, latency_ns) = (200, 520, 319);
    assert_eq!(less, Violation::Blackout { vcpu: name(10, 1), from_ns, until_ns, latency_ns });
    // Between slots on different CPUs.
    let split = broken_source(by_hand(), |made| made.promise(3, |reservation| reservation.latency_ns = 94));
    let (from_ns, until_ns, latency_ns) = (115, 210, 94);
    assert_eq!(split, Violation::Blackout { vcpu: name(12, 0), from_ns, until_ns, latency_ns });
}

/// No gap is too long, but the next table may begin with one, or the one before may have ended with one.
#[test]
fn edges() {
    for (slot, before_ns, after_ns) in [((0, 100, 0), 0, 320), ((320, 420, 0), 320, 0)] {
        let made = one(840, 420, &[slot], 100, 420);
        let violation =
            broken_source(made, |made| made.promise(0, |reservation| reservation.latency_ns = 639));
        assert_eq!(violation, Violation::Edges { vcpu: name(1, 0), before_ns, after_ns, latency_ns: 639 });
    }
}

#[test]
fn caps() {
    let violation = broken_source(by_hand(), |made| made.source.cpus[1].slots[1].end_ns += 1);
    let (got_ns, most_ns) = (364, 360);
    assert_eq!(violation, Violation::Cap { vcpu: name(12, 1), got_ns, most_ns });
}

/// Two CPUs that repeat together only after 12 million rounds of one of them.
#[test]
fn rings_too_long_to_look_at() {
    let mut made = one(8, 8, &[(0, 1, 0), (2, 3, 0)], 2, 8);
    made.source.length_ns = HYPERPERIOD_NS;
    assert!(made.certify(&made.bytes()).is_ok());
    let violation = broken_source(made, |made| {
        made.source.cpus.push(cpu(1, HYPERPERIOD_NS / 4, &[(1, 2, 0)]));
        made.promises[0].cpus = "0-1".parse().unwrap();
    });
    let rounds = u64::from(HYPERPERIOD_NS) / 8;
    let (pieces, windows) = (2 * rounds + 4, rounds);
    assert_eq!(violation, Violation::Unwieldy { vcpu: name(1, 0), pieces, windows });
}

/// Each of two vCPUs could be looked at, but not both.
#[test]
fn windows_too_many_to_look_at() {
    let length_ns = HYPERPERIOD_NS;
    let cpus = [0, 1].map(|number| cpu(number, length_ns, &[(0, length_ns, number)]));
    let tasks = [0, 1].map(|index| Task { name: (1, index), budget: 3, period: 3, capped: true });
    let violation = broken_source(Made::new(length_ns, cpus.to_vec(), &tasks), |_| ());
    let windows = u64::from(length_ns) / 3;
    assert_eq!(violation, Violation::Unwieldy { vcpu: name(1, 1), pieces: 1, windows });
}

#[test]
fn messages_name_place_and_extent() {
    let window = Violation::Window {
        vcpu: name(3, 1),
        from_ns: 0,
        until_ns: 210,
        got_ns: 99,
        lost_ns: 4,
        budget_ns: 105,
    };
    assert_eq!(
        window.to_string(),
        "vCPU 3/1 has 99 ns in [0, 210) ns, without the 4 ns that changing to it takes, 6 ns short of its budget \
         of 105 ns"
    );
    let blackout = Violation::Blackout { vcpu: name(3, 1), from_ns: 200, until_ns: 520, latency_ns: 300 };
    let text = "vCPU 3/1 is not served for 320 ns from 200 ns on, 20 ns longer than its latency of 300 ns";
    assert_eq!(blackout.to_string(), text);
    let cap = Violation::Cap { vcpu: name(3, 1), got_ns: 364, most_ns: 360 };
    let text = "vCPU 3/1 is capped, but has 364 ns in the whole table, 4 ns more than its share of 360 ns";
    assert_eq!(cap.to_string(), text);
}
