//! A policy that can be compared with others: it is told of the same tenants.

use std::collections::BTreeMap;

use crate::guest::Timetable;
use crate::ids::{CpuId, TaskId};
use crate::machine::Machine;
use crate::policy::{Arrival, Departure, Idle, Next, Policy};
use crate::tenants::Home;

/// A policy that knows what a tenant is.
pub trait Contender: Policy {
    /// A tenant of the configuration is here. Told once of each, in the configuration's order, before it has a thread.
    fn appears(&mut self, machine: &mut Machine, home: &Home);

    /// The threads that are a VM's vCPUs, by the vCPU's number. Told once they are there.
    fn vcpu_threads(&mut self, _: &mut Machine, _: &Home, _: BTreeMap<u32, i32>) {}

    /// When a VM's vCPUs have their slots, as its guest may know it; nothing of a policy without a table.
    fn timetable(&self, _: &Home) -> Option<Timetable> {
        None
    }

    /// Whether it has done with every tenant what is to be done. Nothing is measured before.
    fn is_settled(&mut self) -> bool {
        true
    }

    /// Whether it keeps tenants to their CPUs by itself. If not, their threads' affinities do.
    fn confines(&self) -> bool {
        false
    }

    /// How many vCPUs it has had change places so far, so that their caches suffer less.
    fn moved(&mut self, _: &Machine) -> u64 {
        0
    }

    /// Why it is no longer in charge, if it is not.
    fn failed(&self) -> Option<String> {
        None
    }
}

/// Passes on to whichever it is.
impl Policy for Box<dyn Contender> {
    fn foresee(&self, cpu: CpuId, task: Option<TaskId>) {
        (**self).foresee(cpu, task);
    }

    fn start(&mut self, machine: &mut Machine) {
        (**self).start(machine);
    }

    fn task_new(&mut self, machine: &mut Machine, task: TaskId) {
        (**self).task_new(machine, task);
    }

    fn task_dead(&mut self, machine: &mut Machine, task: TaskId) {
        (**self).task_dead(machine, task);
    }

    fn select_cpu(&mut self, machine: &mut Machine, task: TaskId, arrival: Arrival) -> CpuId {
        (**self).select_cpu(machine, task, arrival)
    }

    fn enqueue(&mut self, machine: &mut Machine, task: TaskId, arrival: Arrival) {
        (**self).enqueue(machine, task, arrival);
    }

    fn dequeue(&mut self, machine: &mut Machine, task: TaskId, departure: Departure) {
        (**self).dequeue(machine, task, departure);
    }

    fn pick(&mut self, machine: &mut Machine, cpu: CpuId) -> Option<TaskId> {
        (**self).pick(machine, cpu)
    }

    fn put_prev(&mut self, machine: &mut Machine, cpu: CpuId, task: TaskId, next: Next) {
        (**self).put_prev(machine, cpu, task, next);
    }

    fn set_next(&mut self, machine: &mut Machine, cpu: CpuId, task: TaskId) {
        (**self).set_next(machine, cpu, task);
    }

    fn yielded(&mut self, machine: &mut Machine, cpu: CpuId, task: TaskId) {
        (**self).yielded(machine, cpu, task);
    }

    fn tick(&mut self, machine: &mut Machine, cpu: CpuId, task: TaskId) {
        (**self).tick(machine, cpu, task);
    }

    fn idle(&mut self, machine: &mut Machine, cpu: CpuId, idle: Idle) {
        (**self).idle(machine, cpu, idle);
    }

    fn timer(&mut self, machine: &mut Machine, cpu: CpuId, key: u64) {
        (**self).timer(machine, cpu, key);
    }

    fn overtaken(&mut self, machine: &mut Machine, cpu: CpuId) {
        (**self).overtaken(machine, cpu);
    }

    fn deferred(&mut self, machine: &mut Machine, cpu: CpuId) {
        (**self).deferred(machine, cpu);
    }

    fn hotplug(&mut self, machine: &mut Machine, cpu: CpuId, online: bool) {
        (**self).hotplug(machine, cpu, online);
    }
}
