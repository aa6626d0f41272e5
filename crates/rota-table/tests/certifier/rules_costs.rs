//! What changes of task and migrations take of a promise.

use rota_model::{Costs, Share};
use rota_table::{SlotSource, VcpuName, Violation};

use crate::made::{Made, Task, cpu};

fn task(index: u32, budget: u32, period: u32) -> Task {
    Task { name: (1, index), budget, period, capped: false }
}

/// What the certifier says if each vCPU is to have these budgets net.
fn certify(mut made: Made, costs: Costs, budgets: &[u32]) -> Result<(), Violation> {
    for (vcpu, &budget) in budgets.iter().enumerate() {
        made.source.vcpus[vcpu].budget_ns = budget;
        made.promise(vcpu, |reservation| reservation.share = Share::from_ppb(1).unwrap());
    }
    made.costs = costs;
    made.source.switch_ns = costs.switch_ns as u32;
    made.certify(&made.bytes()).map(|_| ())
}

/// The budgets are kept, and none could be a ns more.
#[track_caller]
fn keeps_exactly(made: &Made, costs: Costs, budgets: &[u32]) {
    assert_eq!(certify(made.clone(), costs, budgets), Ok(()));
    for vcpu in 0..budgets.len() {
        let mut more = budgets.to_vec();
        more[vcpu] += 1;
        let violation = certify(made.clone(), costs, &more).unwrap_err();
        let name = VcpuName { tenant: 1, index: vcpu as u32 };
        assert!(matches!(violation, Violation::Window { vcpu, .. } if vcpu == name), "{violation}");
    }
}

/// CPUs with a length of 420 ns, whose vCPUs may wait for as long as they will.
fn loose(cpus: &[&[(u32, u32, u32)]], tasks: &[Task]) -> Made {
    let cpus = (0..).zip(cpus).map(|(number, slots)| cpu(number, 420, slots)).collect();
    let mut made = Made::new(840, cpus, tasks);
    (0..tasks.len()).for_each(|vcpu| made.promise(vcpu, |reservation| reservation.latency_ns = 840));
    made
}

fn switch(switch_ns: u64) -> Costs {
    Costs { switch_ns, migration_ns: 0 }
}

/// After another's slot, after idle time and at the start of the CPU's length, even if the owner has its end, too; but
/// not where two slots of one owner touch.
#[test]
fn each_stretch_begins_with_a_change() {
    let slots = [(0, 100, 0), (100, 150, 0), (150, 250, 1), (300, 350, 1), (350, 420, 0)];
    let made = loose(&[&slots], &[task(0, 220, 420), task(1, 150, 420)]);
    keeps_exactly(&made, switch(0), &[220, 150]);
    keeps_exactly(&made, switch(10), &[200, 130]);
}

/// Nobody else is ever there.
#[test]
fn a_cpu_with_one_owner_changes_nothing() {
    let made = loose(&[&[(0, 100, 0), (100, 420, 0)]], &[task(0, 420, 420)]);
    keeps_exactly(&made, switch(50), &[420]);
    let idle = loose(&[&[(0, 419, 0)]], &[task(0, 419, 420)]);
    keeps_exactly(&idle, switch(50), &[369]);
}

/// 1/1 has 6 ns, where changing to it takes 10: the other 4, and 10 of its own, are taken from 1/2.
#[test]
fn what_a_slot_is_too_short_for_the_next_one_loses() {
    let slots = [(0, 100, 0), (100, 106, 1), (106, 200, 2), (210, 300, 1)];
    let made = loose(&[&slots], &[task(0, 100, 420), task(1, 96, 420), task(2, 94, 420)]);
    keeps_exactly(&made, switch(10), &[90, 80, 80]);
    // As well over idle time, and over the end of the CPU's length.
    let slots = [(0, 60, 0), (400, 406, 1), (413, 419, 2), (60, 160, 2), (160, 260, 1)];
    let mut slots = slots;
    slots.sort_unstable();
    let made = loose(&[&slots], &[task(0, 60, 420), task(1, 106, 420), task(2, 106, 420)]);
    keeps_exactly(&made, switch(10), &[47, 90, 90]);
}

/// Two windows of 210 ns; the stretch from 200 to 260 ns loses 10 ns in the first of them and 5 in the second.
#[test]
fn a_change_is_lost_where_it_takes_place() {
    let made = loose(&[&[(0, 100, 0), (200, 260, 0)]], &[task(0, 50, 210)]);
    keeps_exactly(&made, switch(10), &[50]);
    keeps_exactly(&made, switch(15), &[45]);
}

/// 1/0 goes from CPU 0 to CPU 1 and back; what it loses by that delays nobody else.
#[test]
fn migrations_are_lost_as_well() {
    let (first, second) = ([(0, 100, 0), (300, 400, 1)], [(100, 200, 0), (200, 300, 1)]);
    let made = loose(&[&first, &second], &[task(0, 200, 420), task(1, 200, 420)]);
    keeps_exactly(&made, Costs { switch_ns: 10, migration_ns: 7 }, &[166, 166]);
    // Not where it comes back to the same CPU.
    let made = loose(&[&[(0, 100, 0), (150, 250, 0)]], &[task(0, 200, 420)]);
    keeps_exactly(&made, Costs { switch_ns: 10, migration_ns: 7 }, &[180]);
}

#[test]
fn gaps_end_when_the_change_is_over() {
    let costs = Costs { switch_ns: 10, migration_ns: 0 };
    let made = loose(&[&[(0, 100, 0), (210, 310, 0)]], &[task(0, 90, 210)]);
    let mut made = made.costing(costs).unwrap();
    assert_eq!(made.promises[0].reservation.latency_ns, 220);
    made.promise(0, |reservation| reservation.latency_ns = 119);
    let violation = made.certify(&made.bytes()).unwrap_err();
    let (vcpu, latency_ns) = (VcpuName { tenant: 1, index: 0 }, 119);
    assert_eq!(violation, Violation::Blackout { vcpu, from_ns: 100, until_ns: 220, latency_ns });
}

/// What costs take of one window, a capped vCPU may have in another.
#[test]
fn caps_are_net() {
    let slots = [(0, 50, 0), (60, 110, 0), (210, 310, 0)];
    let capped = Task { capped: true, ..task(0, 100, 210) };
    let made = loose(&[&slots], &[capped]).costing(switch(10)).unwrap();
    assert_eq!((made.source.vcpus[0].budget_ns, made.certify(&made.bytes()).map(|_| ())), (80, Ok(())));
    // 80 + 120 net are what two windows may have: twice the share, and twice the 20 ns lost in the first.
    let with_end = |end_ns| {
        let mut made = made.clone();
        made.source.cpus[0].slots[2] = SlotSource { start_ns: 210, end_ns, vcpu: 0 };
        made.certify(&made.bytes()).map(|_| ())
    };
    assert_eq!(with_end(340), Ok(()));
    let (vcpu, got_ns, most_ns) = (VcpuName { tenant: 1, index: 0 }, 402, 400);
    assert_eq!(with_end(341), Err(Violation::Cap { vcpu, got_ns, most_ns }));
}

#[test]
fn changes_that_take_longer_than_there_is() {
    let made = loose(&[&[(0, 50, 0), (50, 420, 1)]], &[task(0, 50, 420), task(1, 370, 420)]);
    let violation = certify(made, switch(211), &[1, 1]).unwrap_err();
    assert_eq!(violation, Violation::Changes { cpu: 0, changes: 2, switch_ns: 211, length_ns: 420 });
}
