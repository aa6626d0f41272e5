//! Tables that somebody has changed.

use rota_model::{Class, Costs, Model, TenantId};
use rota_rules::planning::{promises, propose};
use rota_table::{Promise, TableView, Violation, certify};

/// Changes words of the table of this host, each by its place, and has it read.
///
/// # Panics
///
/// See [`withstand`].
pub fn changed(text: &str, changes: &[(u16, u32)]) {
    let Some(Model { host, tenants }) = crate::read(text) else { return };
    let reserved = |(_, tenant): &(TenantId, rota_model::Tenant)| matches!(tenant.class, Class::Reserved(_));
    let grants = (0..).zip(tenants.clone()).filter(reserved).collect();
    let Ok(proposal) = propose(&host, &grants) else { return };
    let ids: Vec<TenantId> = grants.keys().copied().collect();
    let model = Model { host, tenants: grants.into_values().collect() };
    let (promises, costs) = (promises(&model, &ids), model.host.costs);
    let mut bytes = proposal.table.bytes().to_vec();
    for (place, value) in changes {
        let place = 4 * (usize::from(*place) % (bytes.len() / 4));
        bytes[place..place + 4].copy_from_slice(&value.to_le_bytes());
    }
    withstand(bytes, &promises, costs);
}

/// Everything that reads a table's bytes, on these. Their checksum is made to fit: with a wrong one nothing is read.
///
/// # Panics
///
/// If a reader goes beyond the table, or a table is certified that cannot be read.
pub fn withstand(mut bytes: Vec<u8>, promises: &[Promise], costs: Costs) {
    if let Err(Violation::Checksum { computed, .. }) = certify(&bytes[..], promises, costs) {
        bytes[16..24].copy_from_slice(&computed.to_le_bytes());
    }
    let certified = certify(&bytes[..], promises, costs);
    let Ok(view) = TableView::new(&bytes) else {
        assert!(certified.is_err(), "what cannot be read is certified");
        return;
    };
    for vcpu in view.vcpus().iter() {
        let homes = view.homes(&vcpu);
        assert!(homes.is_none_or(|homes| homes.len() == vcpu.nr_cpus as usize));
    }
    for (number, cpu) in (0..).zip(view.cpus()) {
        for now_ns in [0, 97, u64::from(cpu.record.length_ns), u64::MAX] {
            assert!(view.lookup(number, now_ns).is_none_or(|owner| owner.until_ns >= now_ns));
        }
    }
}
