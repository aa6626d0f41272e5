//! The tenants of a configuration on a simulated machine: each has a cgroup, and units by which it is measured. The
//! same under every policy.

use rota_model::{Class, Match, Model, Tenant};

use crate::ids::UnitId;
use crate::machine::Machine;
use crate::program::Program;
use crate::task::{Cgroup, CgroupId, TaskSpec};

/// What a cgroup says to the kernel's own scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// As `cpu.weight`: 1 ..= 10,000.
    pub weight: u32,
    /// As `cpu.max`: quota and period in ns.
    pub max: Option<(u64, u64)>,
}

/// Where a tenant is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Home {
    /// What the configuration says of it.
    pub tenant: Tenant,
    /// Its cgroup.
    pub cgroup: CgroupId,
    /// Its first unit. A container is one unit; a VM has one for each vCPU, and then one for its monitor's threads.
    pub first_unit: UnitId,
    /// Whether it is a VM.
    pub is_vm: bool,
    /// What its cgroup said where it was recorded; else its class decides.
    pub limits: Option<Limits>,
}

impl Home {
    /// The unit of vCPU `index`, or of all threads of a container.
    pub fn unit(&self, index: u32) -> UnitId {
        if self.is_vm { UnitId(self.first_unit.0 + index) } else { self.first_unit }
    }

    /// The last of its units, counted from its first.
    pub fn last_unit(&self) -> u32 {
        if self.is_vm { self.tenant.vcpus } else { 0 }
    }

    /// Its units, and how many vCPUs' promises each has.
    pub fn units(&self) -> Vec<(UnitId, u32)> {
        match self.is_vm {
            true => (0..self.tenant.vcpus).map(|index| (self.unit(index), 1)).collect(),
            false => vec![(self.first_unit, self.tenant.vcpus)],
        }
    }
}

/// All of them.
#[derive(Clone, Debug)]
pub struct Tenants {
    homes: Vec<Home>,
    next_pid: i32,
}

impl Tenants {
    /// The unit of what belongs to no tenant.
    pub const SYSTEM: UnitId = UnitId(0);

    /// Makes the cgroups, below the root. A shared tenant's has its weight.
    pub fn new(machine: &mut Machine, model: &Model) -> Tenants {
        let mut next_unit = 1;
        let mut homes = Vec::new();
        for tenant in model.tenants.iter().filter(|tenant| tenant.name != Tenant::SYSTEM) {
            let is_vm = matches!(tenant.matcher, Some(Match::Vm { .. }));
            let weight = if let Class::Shared { weight } = tenant.class { weight } else { 100 };
            let cgroup = machine.cgroup_new(Cgroup { parent: Some(CgroupId::ROOT), weight, max: None });
            homes.push(Home {
                tenant: tenant.clone(),
                cgroup,
                first_unit: UnitId(next_unit),
                is_vm,
                limits: None,
            });
            next_unit += if is_vm { tenant.vcpus + 1 } else { 1 };
        }
        Tenants { homes, next_pid: 1000 }
    }

    /// Every tenant but the system's own, in the configuration's order.
    pub fn homes(&self) -> &[Home] {
        &self.homes
    }

    /// Has a tenant's cgroup say what it said elsewhere.
    ///
    /// # Panics
    ///
    /// If there is none of that name.
    pub fn limit(&mut self, name: &str, limits: Limits) {
        let home = self.homes.iter_mut().find(|home| home.tenant.name == name);
        home.unwrap_or_else(|| panic!("no tenant {name:?}")).limits = Some(limits);
    }

    /// A tenant by its name.
    ///
    /// # Panics
    ///
    /// If there is none of that name.
    pub fn home(&self, name: &str) -> &Home {
        self.homes
            .iter()
            .find(|home| home.tenant.name == name)
            .unwrap_or_else(|| panic!("no tenant {name:?}"))
    }

    /// A new thread of a container, or of a VM's monitor.
    pub fn thread(&mut self, name: &str, program: impl Into<Box<dyn Program>>) -> TaskSpec {
        let home = self.home(name);
        let (unit, cgroup) = (home.unit(home.tenant.vcpus), home.cgroup);
        TaskSpec::new(self.pid(), unit, cgroup, program)
    }

    /// The thread that is vCPU `index` of a VM. Its thread id has to be [told](crate::Contender::vcpu_threads).
    pub fn vcpu(&mut self, name: &str, index: u32, program: impl Into<Box<dyn Program>>) -> TaskSpec {
        let (unit, cgroup) = (self.home(name).unit(index), self.home(name).cgroup);
        TaskSpec::new(self.pid(), unit, cgroup, program)
    }

    /// A new thread of no tenant.
    pub fn system(&mut self, program: impl Into<Box<dyn Program>>) -> TaskSpec {
        TaskSpec::new(self.pid(), Tenants::SYSTEM, CgroupId::ROOT, program)
    }

    fn pid(&mut self) -> i32 {
        self.next_pid += 1;
        self.next_pid
    }
}
