//! Which CPUs idle, by the kernel's own tracking (`kernel/sched/ext_idle.c`, without masks of each node).

use std::collections::BTreeMap;

use rota_model::Topology;
use rota_sim::{CpuId, CpuMask};

/// Idle CPUs, and idle cores: all of their CPUs idle.
#[derive(Debug)]
pub struct IdleMasks {
    cpus: CpuMask,
    cores: CpuMask,
    /// Of each CPU, the CPUs of its core, itself among them.
    siblings: Vec<Vec<CpuId>>,
    has_siblings: bool,
    /// Of each CPU that asks, what it was given last.
    last: Vec<CpuId>,
}

impl IdleMasks {
    /// All CPUs of `online` idle.
    pub fn new(topology: &Topology, nr_cpus: u32, online: &CpuMask) -> IdleMasks {
        let mut cores: BTreeMap<u32, Vec<CpuId>> = BTreeMap::new();
        for place in &topology.places {
            cores.entry(place.core).or_default().push(CpuId(place.cpu));
        }
        let core = |cpu: u32| topology.place(cpu).and_then(|place| cores.get(&place.core));
        let siblings: Vec<Vec<CpuId>> =
            (0..nr_cpus).map(|cpu| core(cpu).cloned().unwrap_or_default()).collect();
        let has_siblings = cores.values().any(|siblings| siblings.len() > 1);
        let last = vec![CpuId(0); nr_cpus as usize];
        IdleMasks { cpus: online.clone(), cores: online.clone(), siblings, has_siblings, last }
    }

    /// A CPU begins or ends to idle.
    pub fn update(&mut self, cpu: CpuId, idle: bool) {
        self.cpus.set(cpu, idle);
        if !self.has_siblings {
            return;
        }
        let siblings = &self.siblings[cpu.index()];
        let whole = idle && siblings.iter().all(|&sibling| self.cpus.has(sibling));
        if whole || !idle {
            siblings.iter().for_each(|&sibling| self.cores.set(sibling, whole));
        }
    }

    /// An idle CPU of `allowed` for `asker`, which counts as busy from now on; one of an idle core if there is one, or
    /// else none if only a `whole_core` will do. Without siblings every idle CPU is one.
    pub fn pick(&mut self, allowed: &CpuMask, asker: CpuId, whole_core: bool) -> Option<CpuId> {
        let last = self.last[asker.index()];
        let whole = if self.has_siblings { self.cores.next_common_after(allowed, last) } else { None };
        let any = || self.cpus.next_common_after(allowed, last);
        let cpu = if whole.is_some() || (whole_core && self.has_siblings) { whole? } else { any()? };
        self.last[asker.index()] = cpu;
        self.claim(cpu);
        Some(cpu)
    }

    /// A CPU of both masks for `asker`, another one each time.
    pub fn distribute(&mut self, one: &CpuMask, other: &CpuMask, asker: CpuId) -> Option<CpuId> {
        let cpu = one.next_common_after(other, self.last[asker.index()])?;
        self.last[asker.index()] = cpu;
        Some(cpu)
    }

    /// The CPUs that idle.
    pub fn cpus(&self) -> &CpuMask {
        &self.cpus
    }

    /// Counts a CPU as busy; whether it idled.
    pub fn claim(&mut self, cpu: CpuId) -> bool {
        if self.has_siblings {
            self.siblings[cpu.index()].iter().for_each(|&sibling| self.cores.set(sibling, false));
        }
        self.cpus.take(cpu)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rota_model::CpuPlace;

    /// CPUs 0 and 2 are one core, 1 and 3 the other.
    fn masks() -> IdleMasks {
        let place = |cpu: u32| CpuPlace { cpu, core: cpu % 2, cache: 0, node: 0, socket: 0 };
        let topology = Topology { places: (0..4).map(place).collect() };
        IdleMasks::new(&topology, 4, &CpuMask::of(4, (0..4).map(CpuId)))
    }

    #[test]
    fn whole_cores_first() {
        let mut idle = masks();
        let all = CpuMask::of(4, (0..4).map(CpuId));
        let picked: Vec<u32> =
            (0..4).filter_map(|_| idle.pick(&all, CpuId(0), false)).map(|cpu| cpu.0).collect();
        assert_eq!(picked, [1, 2, 3, 0]);
        assert_eq!(idle.pick(&all, CpuId(0), false), None);
    }

    #[test]
    fn a_core_is_idle_when_its_last_cpu_is() {
        let mut idle = masks();
        idle.update(CpuId(0), false);
        idle.update(CpuId(1), false);
        idle.update(CpuId(0), true);
        let others = CpuMask::of(4, [CpuId(1), CpuId(3)]);
        assert_eq!(idle.pick(&others, CpuId(0), true), None);
        assert_eq!(idle.pick(&others, CpuId(0), false), Some(CpuId(3)));
        assert_eq!(idle.pick(&CpuMask::of(4, [CpuId(2), CpuId(3)]), CpuId(0), true), Some(CpuId(2)));
        assert!(!idle.claim(CpuId(2)) && idle.claim(CpuId(0)));
    }
}
