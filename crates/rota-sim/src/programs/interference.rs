//! Threads that take CPU time from others: persistent, periodic and intermittent interference, after Y. Zhao,
//! *Understanding and optimizing parallel performance in multi-tenant cloud*, dissertation, UT Arlington 2019, section
//! 3.2.4; and computing and sleeping for any times.

use crate::distribution::Distribution;
use crate::program::{Program, Resumed, Step, Why, World};
use crate::rng::Rng;

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

/// Computes for a time that is drawn anew each time, and then sleeps for a time in proportion to it.
#[derive(Clone, Copy, Debug)]
pub struct Intermittent {
    least_ns: u64,
    most_ns: u64,
    demand_percent: u64,
    on_ns: u64,
}

impl Intermittent {
    /// Each computation between these, and then as long a sleep.
    pub fn new(least_ns: u64, most_ns: u64) -> Intermittent {
        Intermittent { least_ns, most_ns, demand_percent: 50, on_ns: 0 }
    }

    /// The same with so much of a CPU's time, 1 ..= 99 %: a longer sleep, or a shorter one.
    #[must_use]
    pub fn with_demand(self, percent: u32) -> Intermittent {
        assert!((1..100).contains(&percent), "it computes for a part of the time");
        Intermittent { demand_percent: percent.into(), ..self }
    }

    /// How long it computes, and then sleeps, in ns.
    pub fn draw(&self, rng: &mut Rng) -> (u64, u64) {
        let on_ns = rng.between(self.least_ns, self.most_ns);
        (on_ns, self.off_ns(on_ns))
    }

    fn off_ns(&self, on_ns: u64) -> u64 {
        let off_ns = u128::from(on_ns) * u128::from(100 - self.demand_percent);
        u64::try_from(off_ns / u128::from(self.demand_percent)).unwrap_or(u64::MAX)
    }
}

impl Default for Intermittent {
    /// 1 to 40 ms, and half of the time.
    fn default() -> Intermittent {
        Intermittent::new(1_000_000, 40_000_000)
    }
}

impl Program for Intermittent {
    fn next(&mut self, resumed: Resumed, world: &mut World<'_>) -> Step {
        if resumed.why == Why::Computed {
            return Step::SleepUntil(world.now_ns.saturating_add(self.off_ns(self.on_ns)));
        }
        self.on_ns = self.draw(world.rng).0;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn demand_is_kept_however_long_it_computes() {
        let mut rng = Rng::new(1, 1);
        for demand in [1, 5, 50, 80, 99] {
            let intermittent = Intermittent::default().with_demand(demand);
            for _ in 0..100 {
                let (on_ns, off_ns) = intermittent.draw(&mut rng);
                assert!((1_000_000..=40_000_000).contains(&on_ns));
                let percent = 100 * on_ns / (on_ns + off_ns);
                assert!(percent.abs_diff(u64::from(demand)) <= 1, "{percent} and not {demand}");
            }
        }
    }
}
