//! What of a table a tenant may be shown: when its own vCPUs have slots. Nothing of anybody else, nor which CPUs.

use crate::view::TableView;

/// The slots of one vCPU, on whichever CPUs they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnSlots {
    /// The vCPU's number within its tenant.
    pub index: u32,
    /// Its slots repeat after so long, from CLOCK_MONOTONIC's zero on, in ns. It divides the table's length.
    pub length_ns: u64,
    /// From when to when, ascending, in ns. They do not overlap, since nobody has two CPUs at once; slots that touch
    /// are one.
    pub slots: Vec<(u64, u64)>,
}

impl TableView<'_> {
    /// The slots of a tenant's vCPUs, by their numbers. A tenant without a slot has none.
    pub fn own_slots(&self, tenant: u32) -> Vec<OwnSlots> {
        let vcpus = self.vcpus();
        let own = (0..).zip(vcpus.iter()).filter(|(_, vcpu)| vcpu.tenant == tenant);
        let mut found: Vec<OwnSlots> = own
            .map(|(place, vcpu)| self.slots_of(place, vcpu.index))
            .filter(|own| !own.slots.is_empty())
            .collect();
        found.sort_unstable_by_key(|own| own.index);
        found
    }

    fn slots_of(&self, place: u32, index: u32) -> OwnSlots {
        let homes = self.vcpus().get(place as usize).and_then(|vcpu| self.homes(&vcpu));
        let homes = homes.into_iter().flat_map(|homes| homes.iter().collect::<Vec<u32>>());
        let cpus: Vec<_> = homes.filter_map(|cpu| self.cpu(cpu)).collect();
        let lengths = cpus.iter().map(|cpu| u64::from(cpu.record.length_ns));
        // Each CPU's length divides the table's, so the least common multiple does too.
        let length_ns = lengths.reduce(common_multiple).unwrap_or(1);
        let mut slots = Vec::new();
        for cpu in &cpus {
            let own = cpu.slots.iter().filter(|slot| slot.vcpu == place);
            let own: Vec<(u64, u64)> = own.map(|slot| (slot.start_ns.into(), slot.end_ns.into())).collect();
            for round_ns in (0..length_ns).step_by(cpu.record.length_ns as usize) {
                slots.extend(own.iter().map(|(start_ns, end_ns)| (round_ns + start_ns, round_ns + end_ns)));
            }
        }
        slots.sort_unstable();
        slots.dedup_by(|next, slot| {
            let touches = slot.1 == next.0;
            if touches {
                slot.1 = next.1;
            }
            touches
        });
        OwnSlots { index, length_ns, slots }
    }
}

fn common_multiple(one: u64, other: u64) -> u64 {
    let (mut divisor, mut rest) = (one, other);
    while rest > 0 {
        (divisor, rest) = (rest, divisor % rest);
    }
    one / divisor * other
}

#[cfg(test)]
mod tests {
    use rota_model::{Reservation, Share};

    use super::*;
    use crate::{CpuSource, SlotSource, TableSource, VcpuSource, encode};

    fn cpu(cpu: u32, length_ns: u32, slots: &[(u32, u32, u32)]) -> CpuSource {
        let slots = slots.iter().map(|&(start_ns, end_ns, vcpu)| SlotSource { start_ns, end_ns, vcpu });
        CpuSource { cpu, length_ns, slots: slots.collect(), exclusive: false }
    }

    /// Tenant 7 has vCPUs 1 and 0, tenant 8 has one; in this order.
    fn table(cpus: Vec<CpuSource>) -> Vec<u8> {
        let reservation = Reservation { share: Share::ONE, latency_ns: 1, capped: false };
        let vcpu = |&(tenant, index): &(u32, u32)| VcpuSource {
            tenant,
            index,
            reservation,
            budget_ns: 1,
            period_ns: 840,
            walls: false,
        };
        let vcpus = [(7, 1), (8, 0), (7, 0)].iter().map(vcpu).collect();
        encode(&TableSource { length_ns: 840, switch_ns: 0, cpus, vcpus }).unwrap()
    }

    #[test]
    fn a_tenant_is_shown_its_own_slots_alone() {
        let bytes = table(vec![
            cpu(0, 420, &[(0, 60, 0), (60, 120, 1), (120, 180, 2)]),
            cpu(1, 840, &[(60, 100, 0), (480, 500, 0), (600, 700, 1)]),
        ]);
        let view = TableView::new(&bytes).unwrap();
        let own =
            |index, length_ns, slots: &[(u64, u64)]| OwnSlots { index, length_ns, slots: slots.to_vec() };
        let first = own(0, 420, &[(120, 180)]);
        let second = own(1, 840, &[(0, 100), (420, 500)]);
        assert_eq!(
            view.own_slots(7),
            [first, second],
            "by number, over both CPUs, and where they touch as one"
        );
        assert_eq!(view.own_slots(8), [own(0, 840, &[(60, 120), (480, 540), (600, 700)])]);
        assert_eq!(view.own_slots(9), []);
    }
}
