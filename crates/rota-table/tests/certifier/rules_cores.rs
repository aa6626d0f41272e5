//! Tables that break one rule about cores that one tenant has to itself.

use rota_model::CpuSet;
use rota_table::layout::CPU_EXCLUSIVE;
use rota_table::{CpuSource, VcpuName, Violation};

use crate::made::{Made, Task, cpu};
use crate::parts::{broken_parts, broken_source};

/// Tenants 1 and 2 on CPUs 0 to 3, a core of two CPUs each, of which the second idles.
fn two_cores() -> Made {
    let tasks = [1, 2].map(|tenant| Task { name: (tenant, 0), budget: 60, period: 420, capped: false });
    let cpus = vec![cpu(0, 420, &[(0, 60, 0)]), cpu(2, 420, &[(0, 60, 1)]), cpu(3, 420, &[])];
    Made::new(420, cpus, &tasks).with_core(1, &core("0-1")).with_core(2, &core("2-3"))
}

fn core(cpus: &str) -> CpuSet {
    cpus.parse().unwrap()
}

#[test]
fn flags() {
    let violation = broken_parts(&two_cores(), |parts| parts.cpus[3].flags |= 4);
    assert_eq!(violation, Violation::CpuFlags { cpu: 3, flags: 5 });
}

#[test]
fn marks_are_where_cores_are_unshared() {
    for number in 0..4 {
        let violation = broken_parts(&two_cores(), |parts| parts.cpus[number].flags &= !CPU_EXCLUSIVE);
        assert_eq!(violation, Violation::Exclusive { cpu: number as u32, found: false, expected: true });
    }
    let unmarked = broken_source(two_cores(), |made| made.promises[1].unshared = [].into());
    assert_eq!(unmarked, Violation::Exclusive { cpu: 2, found: true, expected: false });
}

#[test]
fn nobody_else_is_on_the_core() {
    for wanting in [vec![0], vec![1], vec![0, 1]] {
        let violation = broken_source(two_cores(), |made| {
            for &vcpu in &wanting {
                made.promises[vcpu].unshared = [core("0,2"), core("1,3")].into();
            }
        });
        // Whoever comes first in the table has it, if it wants it.
        let (vcpu, owner) = if wanting[0] == 0 { (1, 0) } else { (0, 1) };
        let name = VcpuName { tenant: [1, 2][vcpu], index: 0 };
        let expected = Violation::Neighbour {
            vcpu: name,
            cpu: [0, 2][vcpu],
            start_ns: 0,
            owner: [1, 2][owner],
            core: core("0,2"),
        };
        assert_eq!(violation, expected, "{wanting:?}");
    }
}

#[test]
fn a_core_is_all_in_the_table() {
    let violation = broken_source(two_cores(), |made| made.promises[0].unshared = [core("0,9")].into());
    assert_eq!(violation, Violation::Core { cpu: 9, core: core("0,9") });
}

#[test]
fn one_cpu_too_can_be_unshared() {
    let task = |tenant| Task { name: (tenant, 0), budget: 60, period: 420, capped: false };
    let cpus = vec![CpuSource { exclusive: true, ..cpu(0, 420, &[(0, 60, 0), (100, 160, 1)]) }];
    let made = Made::new(420, cpus, &[task(1), task(2)]).with_core(1, &core("0"));
    let name = VcpuName { tenant: 2, index: 0 };
    let expected = Violation::Neighbour { vcpu: name, cpu: 0, start_ns: 100, owner: 1, core: core("0") };
    assert_eq!(broken_source(made, |_| ()), expected);
}
