//! What the daemon has the scheduler do, for those who watch from outside: who belongs to whom, and which table holds
//! from when on.

use std::cell::RefCell;
use std::rc::Rc;

use rota_model::TenantId;
use rota_rules::life::Change;
use rota_sched::TenantSpec;
use rota_sim::CgroupId;
use rota_table::Certified;

use crate::rota::native;

/// One thing that the scheduler was told.
#[derive(Clone, Debug)]
pub enum Deed {
    /// A tenant is, or is changed.
    Set(TenantSpec),
    /// A tenant is no more.
    Removed(TenantId),
    /// A cgroup is a tenant's.
    Bound(CgroupId, TenantId),
    /// A cgroup is nobody's any more.
    Unbound(CgroupId),
    /// A thread is a tenant's vCPU of that number.
    Thread(i32, TenantId, u32),
    /// A thread is no vCPU any more.
    NoThread(i32),
    /// A table holds from this time on.
    Table(u64, Rc<Certified>),
    /// The daemon has seen that it does, and everybody is where that table has them.
    Settled,
    /// The daemon has ended, or the next one has taken the scheduler over.
    Away(bool),
}

/// All of them with their times, in order.
pub type Journal = Rc<RefCell<Vec<(u64, Deed)>>>;

impl Deed {
    /// What a change of the daemon's comes to.
    pub(super) fn of(change: &Change) -> Deed {
        match *change {
            Change::Set(ref spec) => Deed::Set(spec.clone()),
            Change::Remove(id) => Deed::Removed(id),
            Change::Bind { cgroup, id } => Deed::Bound(native::cgroup_number(cgroup), id),
            Change::Unbind { cgroup } => Deed::Unbound(native::cgroup_number(cgroup)),
            Change::BindThread { tid, id, index } => Deed::Thread(tid, id, index),
            Change::UnbindThread { tid } => Deed::NoThread(tid),
        }
    }
}
