//! Tables that break one rule about vCPUs whose slots come together.

use rota_table::layout::CPU_WINDOWS;
use rota_table::{VcpuName, Violation};

use crate::made::{Made, Task, cpu, together};
use crate::parts::{broken_parts, broken_source};

fn vcpu(tenant: u32, index: u32) -> VcpuName {
    VcpuName { tenant, index }
}

/// Two vCPUs with every second half of 420 ns, on CPUs that repeat after 210 and after 420 ns.
fn two() -> Made {
    let task = |index| Task { name: (1, index), budget: 50, period: 210, capped: false };
    let cpus = vec![cpu(0, 210, &[(0, 60, 0)]), cpu(1, 420, &[(0, 60, 1), (210, 270, 1)])];
    Made::new(420, cpus, &[task(0), task(1)]).with_together(1)
}

#[test]
fn tables_whose_slots_come_together_pass() {
    for made in [two(), together(), two().patient(), together().patient()] {
        let bytes = made.bytes();
        assert_eq!(made.judge(&bytes), Ok(()));
        assert!(made.certify(&bytes).is_ok());
    }
}

/// One ns at either end of a slot, at the wrap or within, is told.
#[test]
fn every_ns_is_together() {
    let apart = |at_ns| Violation::NotTogether { vcpu: vcpu(1, 1), with: vcpu(1, 0), at_ns };
    for (slot, start_ns, end_ns, at_ns) in
        [(0, 0, 59, 59), (0, 0, 61, 60), (1, 211, 270, 210), (1, 209, 270, 209), (1, 210, 280, 270)]
    {
        let violation = broken_source(two(), |made| {
            let slot = &mut made.source.cpus[1].slots[slot];
            (slot.start_ns, slot.end_ns) = (start_ns, end_ns);
        });
        assert_eq!(violation, apart(at_ns), "{start_ns} to {end_ns}");
    }
    let violation = broken_source(two(), |made| {
        let last = rota_table::SlotSource { start_ns: 400, end_ns: 420, vcpu: 1 };
        made.source.cpus[1].slots.push(last);
    });
    assert_eq!(violation, apart(400));
}

#[test]
fn only_those_of_one_tenant_that_are_promised_it_are_together() {
    let apart = |made: &mut Made| made.source.cpus[1].slots[0].end_ns = 59;
    let one = |made: Made| made.certify(&made.bytes()).map(|_| ());
    let mut made = two();
    apart(&mut made);
    assert!(one(made.clone()).is_err());
    made.promises[1].together = false;
    assert_eq!(one(made), Ok(()));
    let mut others = two();
    apart(&mut others);
    (others.source.vcpus[1].tenant, others.promises[1].tenant) = (2, 2);
    assert_eq!(one(others), Ok(()));
}

#[test]
fn slots_that_come_together_are_walls() {
    let mut made = two().patient();
    made.source.vcpus.iter_mut().for_each(|vcpu| vcpu.walls = false);
    assert_eq!(made.in_windows(), 2);
    let violation = made.certify(&made.bytes()).unwrap_err();
    assert_eq!(violation, Violation::TogetherInWindows { vcpu: vcpu(1, 0), cpu: 0 });
    let violation = broken_parts(&two().patient(), |parts| parts.cpus[1].flags |= CPU_WINDOWS);
    assert!(matches!(violation, Violation::WindowTime { .. }), "{violation}");
}
