//! Small machines to test policies on.

use std::rc::Rc;

use rota_model::{CpuSet, Topology};
use rota_sim::observe::{Metrics, Sanity, UnitMetrics};
use rota_sim::{
    Cgroup, CgroupId, Costs, CpuId, CpuMask, Policy, Program, Script, Simulation, TaskId, TaskSpec, Thread,
    UnitId,
};

pub const US: u64 = 1_000;
pub const MS: u64 = 1_000_000;

/// A machine under a policy, watched.
pub type Run<P> = Simulation<P, (Metrics, Sanity)>;

/// So many CPUs that share a cache; nothing costs anything.
pub fn machine<P: Policy>(cpus: u32, policy: P) -> Run<P> {
    machine_with(cpus, Costs::FREE, policy)
}

pub fn machine_with<P: Policy>(cpus: u32, costs: Costs, policy: P) -> Run<P> {
    let topology = Topology::flat(&(0..cpus).collect::<CpuSet>());
    Simulation::new(topology, costs, 1, 0, policy, (Metrics::default(), Sanity::new(30_000 * MS)))
}

/// What to do with any of them.
pub trait Machines {
    /// A cgroup below the root.
    fn cgroup(&mut self, weight: u32, max: Option<(u64, u64)>) -> CgroupId;
    /// A task of unit `unit` that may run anywhere.
    fn task(&mut self, unit: u32, cgroup: CgroupId, program: impl Program + 'static) -> TaskId;
    /// The same as a script.
    fn script<F: Future<Output = ()> + 'static>(
        &mut self,
        unit: u32,
        cgroup: CgroupId,
        body: impl FnOnce(Thread) -> F,
    ) -> TaskId;
    /// A task that may run on these CPUs only.
    fn pinned(
        &mut self,
        unit: u32,
        cgroup: CgroupId,
        cpus: &[u32],
        program: impl Program + 'static,
    ) -> TaskId;
    /// What units received so far; and nothing insane has happened.
    fn units(&mut self) -> Vec<UnitMetrics>;
    /// A mask of these CPUs.
    fn cpus(&self, cpus: &[u32]) -> Rc<CpuMask>;
    /// Forgets what was measured so far.
    fn measure_from_now(&mut self);
}

impl<P: Policy> Machines for Run<P> {
    fn cgroup(&mut self, weight: u32, max: Option<(u64, u64)>) -> CgroupId {
        self.machine.cgroup_new(Cgroup { parent: Some(CgroupId::ROOT), weight, max })
    }

    fn task(&mut self, unit: u32, cgroup: CgroupId, program: impl Program + 'static) -> TaskId {
        self.spawn(TaskSpec::new(100, UnitId(unit), cgroup, program))
    }

    fn script<F: Future<Output = ()> + 'static>(
        &mut self,
        unit: u32,
        cgroup: CgroupId,
        body: impl FnOnce(Thread) -> F,
    ) -> TaskId {
        self.task(unit, cgroup, Script::new(body))
    }

    fn pinned(
        &mut self,
        unit: u32,
        cgroup: CgroupId,
        cpus: &[u32],
        program: impl Program + 'static,
    ) -> TaskId {
        let affinity = Some(self.cpus(cpus));
        self.spawn(TaskSpec { affinity, ..TaskSpec::new(100, UnitId(unit), cgroup, program) })
    }

    fn units(&mut self) -> Vec<UnitMetrics> {
        assert_eq!(self.observer.1.finish(&self.machine), []);
        self.observer.0.finish(&mut self.machine)
    }

    fn cpus(&self, cpus: &[u32]) -> Rc<CpuMask> {
        self.machine.mask(cpus.iter().map(|&cpu| CpuId(cpu)))
    }

    fn measure_from_now(&mut self) {
        self.observer.0.begin(&mut self.machine);
    }
}

/// Whether `part` of `whole` is `percent`, give or take `within` percent of the whole.
#[track_caller]
pub fn assert_share(part: u64, whole: u64, percent: u64, within: u64) {
    let tenths = part * 1000 / whole;
    assert!(
        tenths.abs_diff(percent * 10) <= within * 10,
        "{}.{} % instead of {percent} % +- {within} %",
        tenths / 10,
        tenths % 10
    );
}
