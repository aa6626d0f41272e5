//! How much the scheduler has to have room for.

use rota_model::Model;
use rota_sched::Options;

/// What the scheduler is loaded for, on a machine of so many CPU numbers.
pub fn capacity(model: &Model, nr_cpus: u32) -> Options {
    let vcpus: u32 = model.tenants.iter().map(|tenant| tenant.vcpus).sum();
    // Twice what is configured: tenants that go keep their numbers for a while, and edits bring new ones.
    let queues = 2 * (vcpus + model.tenants.len() as u32) + 256;
    Options {
        nr_cpus,
        topology: model.host.topology.clone(),
        housekeeping: model.host.housekeeping.clone(),
        queues,
        table_bytes: Options::TABLE_BYTES.max(1024 * queues),
    }
}
