//! What the fuzzers drive: here all from a configuration's text to a certified table, as the daemon goes. Each other
//! module is of something that strangers can make.

pub mod host;
pub mod machine;
pub mod recording;
pub mod runtime;
pub mod table;

use rota_model::config::{Source, parse};
use rota_model::{Class, Model, TenantId, Topology};
use rota_rules::planning::{Refusal, propose};

/// Larger hosts teach nothing that small ones do not, at the price of fewer of them.
const CPUS_MAX: u32 = 48;
/// See [`CPUS_MAX`].
const VCPUS_MAX: u32 = 256;

/// Reads, plans, encodes and certifies.
///
/// # Panics
///
/// If the planner's table does not fit the format, or breaks a promise: a plan that cannot be had must be refused by
/// the planner, with its reason.
pub fn check(text: &str) {
    let Some(Model { host, tenants }) = read(text) else { return };
    let reserved = |(_, tenant): &(TenantId, rota_model::Tenant)| matches!(tenant.class, Class::Reserved(_));
    let grants = (0..).zip(tenants).filter(reserved).collect();
    match propose(&host, &grants) {
        Ok(_) | Err(Refusal::Infeasible(_)) => {}
        Err(error) => panic!("{error}"),
    }
}

/// The model, if it is one and not too large.
pub fn read(text: &str) -> Option<Model> {
    let source = Source { path: "rota.toml".into(), text: text.into() };
    let model = parse(&[source], &Topology::default()).ok()?;
    let vcpus = model.tenants.iter().map(|tenant| tenant.vcpus).fold(0, u32::saturating_add);
    (model.host.cpus.len() <= CPUS_MAX as usize && vcpus <= VCPUS_MAX).then_some(model)
}
