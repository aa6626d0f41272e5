//! Stand-ins for the programs of PARSEC, SPLASH-2 and the NAS parallel benchmarks: as parallel as these, and
//! synchronising as often. What they compute, and on how much memory, is not modelled.
//!
//! Sources: Shan, Jia and Ding, *Rethinking multicore application scalability on big virtual machines* (there: types),
//! table I and section III.B; Huang et al., *Towards exploiting CPU elasticity via efficient thread oversubscription*,
//! HPDC 2021 (there: utilisations), table 1, section 2.3 with figure 3, and section 4.3.

use super::parallel::ForkJoin;
use super::sync::Patience;
use crate::distribution::Distribution;

/// A program's parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Benchmark {
    /// Suite and name.
    pub name: &'static str,
    /// How many of its threads compute on average, where each has a CPU, in thousandths of all.
    pub parallelism: u32,
    /// Between two synchronisations of a thread, on average, in ns.
    pub interval_ns: u64,
    /// It waits by a loop of its own instead of sleeping.
    pub spins: bool,
}

/// Most programs do not synchronise more often (utilisations, section 2.3); taken for all that do so often.
const OFTEN_NS: u64 = 1_000_000;
/// Of facesim, the one that does so most often (same place).
const MOST_OFTEN_NS: u64 = 160_000;
/// Of those that use up their time slices, which with CFS are 3 ms and more. Assumed.
const SELDOM_NS: u64 = 10_000_000;

/// The parallelism of each type: its average speedup on 16 cores over 16 (types, section III.B).
const TYPES: [u32; 4] = [869, 406, 544, 394];

/// A program of a type.
const fn typed(name: &'static str, kind: usize) -> Benchmark {
    let interval_ns = if kind == 2 || kind == 3 { OFTEN_NS } else { SELDOM_NS };
    Benchmark { name, parallelism: TYPES[kind - 1], interval_ns, spins: false }
}

/// A program whose CPU utilisation with 8 threads on 8 cores is known, in percent of one CPU.
const fn used(name: &'static str, percent: u32, interval_ns: u64) -> Benchmark {
    Benchmark { name, parallelism: percent * 10 / 8, interval_ns, spins: false }
}

/// All there are.
pub const BENCHMARKS: &[Benchmark] = &[
    used("parsec.freqmine", 759, SELDOM_NS),
    typed("parsec.swaptions", 1),
    typed("parsec.x264", 1),
    typed("parsec.ferret", 1),
    typed("parsec.vips", 1),
    typed("parsec.bodytrack", 2),
    typed("parsec.dedup", 2),
    Benchmark { interval_ns: MOST_OFTEN_NS, ..typed("parsec.facesim", 2) },
    used("parsec.fluidanimate", 734, OFTEN_NS),
    used("parsec.streamcluster", 725, OFTEN_NS),
    typed("parsec.canneal", 4),
    typed("parsec.raytrace", 4),
    typed("parsec.blackscholes", 4),
    typed("splash.water_nsquared", 1),
    typed("splash.barnes", 1),
    typed("splash.lu_ncb", 1),
    typed("splash.raytrace", 1),
    used("splash.radix", 694, SELDOM_NS),
    typed("splash.ocean_cp", 2),
    Benchmark { spins: true, ..typed("splash.volrend", 2) },
    typed("splash.cholesky", 2),
    typed("splash.ocean_ncp", 3),
    typed("splash.fmm", 4),
    typed("splash.radiosity", 4),
    typed("splash.water_spatial", 4),
    typed("splash.fft", 4),
    used("splash.lu_cb", 567, SELDOM_NS),
    used("npb.is", 757, OFTEN_NS),
    used("npb.cg", 667, OFTEN_NS),
    used("npb.mg", 677, OFTEN_NS),
    used("npb.ft", 754, OFTEN_NS),
    used("npb.sp", 796, OFTEN_NS),
    used("npb.bt", 786, OFTEN_NS),
    used("npb.ua", 776, OFTEN_NS),
];

impl Benchmark {
    /// The one of that name.
    pub fn find(name: &str) -> Option<Benchmark> {
        BENCHMARKS.iter().find(|benchmark| benchmark.name == name).copied()
    }

    /// It with so many threads. A time round has two synchronisations of each thread, and so takes twice the interval
    /// R; all n threads compute for a time c of it, and one alone for the rest, so that n c + (R - c) is the
    /// parallelism times n R.
    pub fn with_threads(&self, threads: u32) -> ForkJoin {
        let (round_ns, count) = (2 * self.interval_ns, u64::from(threads));
        let active = (u64::from(self.parallelism) * count).max(1_000);
        let together_ns =
            if threads == 1 { round_ns } else { round_ns * (active - 1_000) / (1_000 * (count - 1)) };
        ForkJoin {
            threads,
            parallel: Distribution::Constant(together_ns * count),
            sequential: Distribution::Constant(round_ns - together_ns),
            balanced: true,
            patience: if self.spins { Patience::ENDLESS } else { Patience::NONE },
        }
    }
}
