//! The arithmetic of P-MQFQ: start and finish tags, the tenants' virtual times and the system's.

use super::{HORIZON_NS, MIN_SLICE_NS};

/// Virtual time: CPU time over weight, in [`TICKS`] of a ns of a tenant whose weight is 100.
pub type Tag = u128;

/// How fine tags are: what rounding loses in a request is nothing in a day of them.
const TICKS: Tag = 1 << 20;

/// So much CPU time of a tenant of this weight as virtual time.
pub fn virtual_time(ns: u64, weight: u32) -> Tag {
    Tag::from(ns) * 100 * TICKS / Tag::from(weight)
}

/// A tenant.
#[derive(Clone, Copy, Debug)]
pub struct Flow {
    /// As `cpu.weight`.
    pub weight: u32,
    /// A minimum slice of it.
    slice: Tag,
    /// The finish tag of its last request, and so the start tag of its next one.
    pub finish: Tag,
    /// Threads that run or would run: it is backlogged if there are any.
    pub runnable: u32,
    /// Requests in service.
    pub serving: u32,
}

impl Flow {
    /// Its virtual time: the largest start tag of its requests in service.
    ///
    /// These follow one another by a slice each, so the largest is one below the last finish tag.
    pub fn virtual_time(&self) -> Option<Tag> {
        (self.serving > 0).then(|| self.finish.saturating_sub(self.slice))
    }
}

/// All tenants' tags.
#[derive(Debug, Default)]
pub struct Tags {
    /// By the tenant's number.
    pub flows: Vec<Flow>,
}

impl Tags {
    /// A tenant's, which is made if it is new, and has this weight from now on.
    pub fn flow(&mut self, tenant: usize, weight: u32) -> &mut Flow {
        let none = Flow { weight, slice: 0, finish: 0, runnable: 0, serving: 0 };
        self.flows.resize(self.flows.len().max(tenant + 1), none);
        let flow = &mut self.flows[tenant];
        (flow.weight, flow.slice) = (weight, virtual_time(MIN_SLICE_NS, weight));
        flow
    }

    /// System virtual time: the largest start tag in service, or the tag of a backlogged tenant of which nothing is in
    /// service if that is larger. While nobody is backlogged it stands where the last one has brought it.
    fn system(&self) -> Tag {
        let reached = |flow: &Flow| flow.virtual_time().unwrap_or(flow.finish);
        let backlogged = self.flows.iter().filter(|flow| flow.runnable > 0).map(reached).max();
        backlogged.unwrap_or_else(|| self.flows.iter().map(|flow| flow.finish).max().unwrap_or(0))
    }

    /// A thread of the tenant would run from now on, on a machine of so many CPUs.
    ///
    /// Who was idle begins at the system's virtual time. Who was not keeps what it is behind, for as long as it may.
    pub fn arrives(&mut self, tenant: usize, cpus: u32) {
        if self.flows[tenant].runnable == 0 {
            let system = self.system();
            let flow = &mut self.flows[tenant];
            flow.finish = flow.finish.max(system);
        }
        self.flows[tenant].runnable += 1;
        self.forget(tenant, cpus);
    }

    /// A thread of the tenant would no longer run.
    pub fn departs(&mut self, tenant: usize) {
        self.flows[tenant].runnable -= 1;
    }

    /// Nobody is further behind than by what its share is in [`HORIZON_NS`]: a tenant that lags more has not the
    /// threads to use its share, and its weight is clamped to what it does use.
    pub fn forget(&mut self, tenant: usize, cpus: u32) {
        let backlogged = self.flows.iter().filter(|flow| flow.runnable > 0);
        let weights: u32 = backlogged.map(|flow| flow.weight).sum();
        let least = virtual_time(HORIZON_NS * u64::from(cpus), weights.max(1));
        let system = self.system();
        let flow = &mut self.flows[tenant];
        flow.finish = flow.finish.max(system.saturating_sub(least));
    }

    /// A request of the tenant is in service from now on, and counts with `sure_ns` of CPU time. Returns its start tag.
    pub fn begins(&mut self, tenant: usize, sure_ns: u64) -> Tag {
        let flow = &mut self.flows[tenant];
        flow.serving += 1;
        let start = flow.finish;
        flow.finish += virtual_time(sure_ns, flow.weight);
        start
    }

    /// A request of the tenant has used `used_ns` instead of the `counted_ns` that it has counted with.
    pub fn corrects(&mut self, tenant: usize, counted_ns: u64, used_ns: u64) {
        let flow = &mut self.flows[tenant];
        let (counted, used) = (virtual_time(counted_ns, flow.weight), virtual_time(used_ns, flow.weight));
        flow.finish = (flow.finish + used).saturating_sub(counted);
    }

    /// A request of the tenant is not in service any more.
    pub fn ends(&mut self, tenant: usize) {
        self.flows[tenant].serving -= 1;
    }

    /// Whether a request of the tenant that begins now would be nobody else's turn before: no backlogged tenant has a
    /// smaller tag, be its threads queued or waiting for each other.
    pub fn is_due(&self, tenant: usize) -> bool {
        let mine = self.flows[tenant].finish;
        self.flows.iter().all(|flow| flow.runnable == 0 || mine <= flow.finish)
    }
}
