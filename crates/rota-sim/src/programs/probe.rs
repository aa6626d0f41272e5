//! The intrinsic latency probe: asks the clock in a loop how long it was not let run, as `redis-cli
//! --intrinsic-latency` does (Vanga, thesis section 6.2.1).

use crate::program::{Program, Resumed, Step, World};

/// Looks at the clock whenever it has computed for a while; reports what is missing as latency.
#[derive(Clone, Copy, Debug)]
pub struct Probe {
    every_ns: u64,
    looked_ns: Option<u64>,
}

impl Probe {
    /// A look at the clock every so many ns of computing: the shortest wait that is seen as one.
    pub fn new(every_ns: u64) -> Probe {
        Probe { every_ns, looked_ns: None }
    }
}

impl Program for Probe {
    fn next(&mut self, _: Resumed, world: &mut World<'_>) -> Step {
        let expected_ns = self.looked_ns.map_or(world.now_ns, |looked_ns| looked_ns + self.every_ns);
        if world.now_ns > expected_ns {
            world.latency(world.now_ns - expected_ns);
        }
        self.looked_ns = Some(world.now_ns);
        Step::Compute(self.every_ns)
    }
}
