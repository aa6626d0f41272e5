//! What a tenant's threads spend their time on, and which tenants run while they wait.

use std::collections::BTreeMap;

use rota_sim::observe::Spent;
use rota_sim::{Home, Tenants, UnitId};

/// Of a tenant's threads, in ns of their time; a VM's are its vCPUs and its monitor's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TimeSpent {
    /// By what it was spent on. Whom threads waited for is [below](TimeSpent::waited_for).
    pub spent: Spent,
    /// Of the waits that are over: which tenant ran meanwhile on the CPU where the thread then ran. What belongs to no
    /// tenant has no name.
    pub waited_for: BTreeMap<String, u64>,
}

impl TimeSpent {
    /// Of a tenant, from what the threads of each unit spent.
    pub(crate) fn of(home: &Home, units: &[Spent], tenants: &Tenants) -> TimeSpent {
        let mut spent = Spent::default();
        let own = (0..=home.last_unit()).filter_map(|index| units.get(home.unit(index).index()));
        own.for_each(|of_unit| spent.join(of_unit));
        let mut waited_for = BTreeMap::new();
        for (unit, ns) in std::mem::take(&mut spent.waited_for) {
            *waited_for.entry(name(unit, tenants)).or_default() += ns;
        }
        TimeSpent { spent, waited_for }
    }

    /// Takes in what the same tenant's threads spent in another run.
    pub fn join(&mut self, other: &TimeSpent) {
        self.spent.join(&other.spent);
        for (name, ns) in &other.waited_for {
            *self.waited_for.entry(name.clone()).or_default() += ns;
        }
    }
}

/// Whose a unit is.
fn name(unit: UnitId, tenants: &Tenants) -> String {
    let has = |home: &&Home| (home.unit(0)..=home.unit(home.last_unit())).contains(&unit);
    tenants.homes().iter().find(has).map_or_else(String::new, |home| home.tenant.name.clone())
}
