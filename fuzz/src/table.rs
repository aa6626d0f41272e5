//! Tables that somebody has changed.

use rota_model::{Class, Costs, Model, TenantId};
use rota_rules::planning::{promises, propose};
use rota_table::{Promise, TableView, certify};

/// Changes words of the table of this host, each by its place, and has it certified. Its checksum fits: a certifier
/// that trusts it would learn nothing from bytes that no encoder writes.
///
/// # Panics
///
/// If a reader goes beyond the table, or the certifier passes what it has not passed before.
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

/// Everything that reads a table's bytes, on these, with the checksum that fits them.
///
/// # Panics
///
/// See [`changed`].
pub fn withstand(mut bytes: Vec<u8>, promises: &[Promise], costs: Costs) {
    let checksum = checksum(&bytes);
    if let Some(field) = bytes.get_mut(16..24) {
        field.copy_from_slice(&checksum.to_le_bytes());
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

/// FNV-1a by folded words, as `rota-table`'s layout defines it: checksum and generation (bytes 16 to 31) taken as zero.
fn checksum(bytes: &[u8]) -> u64 {
    let byte =
        |at: usize| bytes.get(at).filter(|_| !(16..32).contains(&at)).map_or(0, |&byte| u64::from(byte));
    let word = |at: usize| (0..8).map(|place| byte(at + place) << (8 * place)).sum::<u64>();
    (0..bytes.len()).step_by(8).fold(0xcbf29ce484222325, |hash, at| {
        let product = (hash ^ word(at)).wrapping_mul(0x100000001b3);
        product ^ (product >> 32)
    })
}
