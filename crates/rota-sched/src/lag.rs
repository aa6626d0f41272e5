//! How far each tenant without a reservation is behind or ahead of what is fair now: docs/FAIRNESS.md, "Lag".

use std::collections::BTreeMap;

use rota_model::TenantId;

/// The weight with which virtual time is time: `ROTA_WEIGHT_ONE`.
const WEIGHT_ONE: i128 = 100;

/// A shared tenant as it was read.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    /// Whose.
    pub tenant: TenantId,
    /// Above 0.
    pub weight: u32,
    /// Whether one of its threads runs or would run.
    pub backlogged: bool,
    /// Its service by its weight: virtual time, which starts anywhere and may wrap.
    pub at: u64,
}

/// The lag of each, in ns of CPU time: positive if it is owed, negative if it is ahead, and 0 if it is not backlogged.
/// A clock further back than `oldest` will be put forward to there, so it counts as that.
///
/// It is the tenant's weight times how far its clock is behind the mean, by weight, of the clocks of all that are
/// backlogged; so all lags together are 0 but for what is lost in rounding.
pub fn lags(clocks: &[Clock], oldest: u64) -> BTreeMap<TenantId, i64> {
    let at = |clock: &Clock| i128::from((clock.at.wrapping_sub(oldest) as i64).max(0));
    let backlogged = || clocks.iter().filter(|clock| clock.backlogged);
    let weights: i128 = backlogged().map(|clock| i128::from(clock.weight)).sum();
    let sum: i128 = backlogged().map(|clock| i128::from(clock.weight) * at(clock)).sum();
    let lag = |clock: &Clock| match clock.backlogged {
        true => i128::from(clock.weight) * (sum - weights * at(clock)) / (weights * WEIGHT_ONE),
        false => 0,
    };
    clocks.iter().map(|clock| (clock.tenant, lag(clock) as i64)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clock(tenant: TenantId, weight: u32, at: u64) -> Clock {
        Clock { tenant, weight, backlogged: true, at }
    }

    #[test]
    fn a_lag_is_service_and_all_lags_are_nothing() {
        // The mean is 7 ms: the first is 6 ms of virtual time behind it, which its weight makes 6 ms of service.
        let lags = lags(&[clock(1, 100, 1_000_000), clock(2, 300, 9_000_000)], 0);
        assert_eq!(lags, BTreeMap::from([(1, 6_000_000), (2, -6_000_000)]));
    }

    #[test]
    fn who_wants_nothing_neither_lags_nor_counts() {
        let idle = Clock { backlogged: false, ..clock(1, 10_000, 5) };
        assert_eq!(lags(&[idle, clock(2, 100, 9_000)], 0), BTreeMap::from([(1, 0), (2, 0)]));
        assert_eq!(lags(&[idle], 0), BTreeMap::from([(1, 0)]));
        assert_eq!(lags(&[], 0), BTreeMap::new());
    }

    #[test]
    fn nobody_is_owed_what_will_be_forgotten() {
        let lags = lags(&[clock(1, 100, 1), clock(2, 100, 3_000)], 1_000);
        assert_eq!(lags, BTreeMap::from([(1, 1_000), (2, -1_000)]));
    }

    #[test]
    fn virtual_time_may_wrap_and_be_long() {
        let (before, after) = (u64::MAX - 1_000, 3_000);
        let wrapped = lags(&[clock(1, 100, before), clock(2, 100, after)], before);
        assert_eq!(wrapped, BTreeMap::from([(1, 2_000), (2, -2_000)]));
        let long = lags(&[clock(1, 10_000, 0), clock(2, 10_000, 1 << 52)], 0);
        assert_eq!(long, BTreeMap::from([(1, 100 << 51), (2, -(100 << 51))]));
    }
}
