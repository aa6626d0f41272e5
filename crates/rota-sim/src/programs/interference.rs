//! Threads that take CPU time from others: persistent, periodic and intermittent interference, after Y. Zhao,
//! *Understanding and optimizing parallel performance in multi-tenant cloud*, dissertation, UT Arlington 2019, section
//! 3.2.4; and computing and sleeping for any times.

use crate::distribution::Distribution;
use crate::program::{Program, Resumed, Step, Why, World};

/// Computes for ever.
#[derive(Clone, Copy, Debug)]
pub struct Hog;

impl Program for Hog {
    fn next(&mut self, _: Resumed, _: &mut World<'_>) -> Step {
        Step::Compute(u64::MAX)
    }
}

/// Computes for a while, sleeps for a while, by the clock.
#[derive(Clone, Copy, Debug)]
pub struct Periodic {
    on_ns: u64,
    off_ns: u64,
}

impl Periodic {
    /// So many ns of computing, then so many of sleep.
    pub fn new(on_ns: u64, off_ns: u64) -> Periodic {
        Periodic { on_ns, off_ns }
    }
}

impl Default for Periodic {
    /// 10 ms each.
    fn default() -> Periodic {
        Periodic::new(10_000_000, 10_000_000)
    }
}

impl Program for Periodic {
    fn next(&mut self, resumed: Resumed, world: &mut World<'_>) -> Step {
        match resumed.why {
            Why::Computed => Step::SleepUntil(world.now_ns + self.off_ns),
            _ => Step::Compute(self.on_ns),
        }
    }
}

/// Computes for a time that is drawn anew each time, and then sleeps for as long.
#[derive(Clone, Copy, Debug)]
pub struct Intermittent {
    least_ns: u64,
    most_ns: u64,
    on_ns: u64,
}

impl Intermittent {
    /// Each time between these.
    pub fn new(least_ns: u64, most_ns: u64) -> Intermittent {
        Intermittent { least_ns, most_ns, on_ns: 0 }
    }
}

impl Default for Intermittent {
    /// 1 to 40 ms.
    fn default() -> Intermittent {
        Intermittent::new(1_000_000, 40_000_000)
    }
}

impl Program for Intermittent {
    fn next(&mut self, resumed: Resumed, world: &mut World<'_>) -> Step {
        if resumed.why == Why::Computed {
            return Step::SleepUntil(world.now_ns + self.on_ns);
        }
        self.on_ns = world.rng.between(self.least_ns, self.most_ns);
        Step::Compute(self.on_ns)
    }
}

/// Computes and sleeps for times that are drawn. Each computation is a piece of work.
#[derive(Clone, Copy, Debug)]
pub struct Phases {
    /// How long each computation is.
    pub compute: Distribution,
    /// How long each sleep is.
    pub sleep: Distribution,
}

impl Program for Phases {
    fn next(&mut self, resumed: Resumed, world: &mut World<'_>) -> Step {
        if resumed.why == Why::Computed {
            world.work(1);
            return Step::SleepUntil(world.now_ns + self.sleep.draw(world.rng));
        }
        Step::Compute(self.compute.draw(world.rng))
    }
}
