//! Domains: CPUs whose shared tenants wait in one line (docs/FAIRNESS.md).

use std::collections::BTreeMap;

use rota_model::{CpuSet, Topology};

/// A line has a lock, and each CPU asks it once or twice in a millisecond while anyone waits.
const CPUS_OF_A_LINE: usize = 32;

/// The CPUs of each last-level cache, in equal parts of at most 32 CPUs if there are more, none of which divides a
/// core. There is at least one domain.
pub(crate) fn domains(topology: &Topology) -> Vec<CpuSet> {
    let mut caches: BTreeMap<u32, BTreeMap<u32, Vec<u32>>> = BTreeMap::new();
    for place in &topology.places {
        caches.entry(place.cache).or_default().entry(place.core).or_default().push(place.cpu);
    }
    let mut domains = Vec::new();
    for cores in caches.into_values() {
        let cores: Vec<Vec<u32>> = cores.into_values().collect();
        let widest = cores.iter().map(Vec::len).max().unwrap_or(1);
        let parts = cores.len().div_ceil((CPUS_OF_A_LINE / widest).max(1));
        let part = cores.len().div_ceil(parts);
        domains.extend(cores.chunks(part).map(|cores| cores.iter().flatten().copied().collect()));
    }
    if domains.is_empty() {
        domains.push(CpuSet::default());
    }
    domains
}

#[cfg(test)]
mod tests {
    use super::*;
    use rota_model::CpuPlace;

    /// CPUs with two siblings a core, and so many of them a cache.
    fn machine(cpus: u32, of_a_cache: u32) -> Topology {
        let place = |cpu| CpuPlace { cpu, core: cpu / 2, cache: cpu / of_a_cache, node: 0, socket: 0 };
        Topology { places: (0..cpus).map(place).collect() }
    }

    fn sizes(topology: &Topology) -> Vec<usize> {
        domains(topology).iter().map(CpuSet::len).collect()
    }

    #[test]
    fn a_cache_is_a_domain() {
        assert_eq!(sizes(&machine(64, 16)), [16; 4]);
        assert_eq!(sizes(&machine(6, 4)), [4, 2]);
    }

    #[test]
    fn a_large_cache_is_divided_between_cores() {
        assert_eq!(sizes(&machine(120, 120)), [30; 4]);
        assert_eq!(sizes(&machine(34, 34)), [18, 16]);
    }

    #[test]
    fn a_machine_that_is_not_known_is_one_domain() {
        assert_eq!(sizes(&Topology::default()), [0]);
    }
}
