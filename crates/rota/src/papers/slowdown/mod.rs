//! Zhao, *Parallel performance in multi-tenant clouds*, dissertation, UT Arlington 2019, chapter 3: how much others
//! slow a parallel program down, and whether a short sample foretells it.

mod interfered;
mod optimised;
mod predicted;

use anyhow::{Result, anyhow};
use rota_model::config::Source;
use rota_scenario::policies::Entry;
use rota_scenario::{Options, Scenario};

use super::{Study, called};

pub use interfered::INTERFERED;
pub use optimised::{DELAYED, DIFFERENT};
pub use predicted::PREDICTED;

/// A program of four threads, and what runs beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Workload {
    name: &'static str,
    /// Its keys, but for tenant and threads.
    keys: &'static str,
}

/// A stand-in that blocks, and one that waits in a loop, as the NAS benchmarks do with `OMP_WAIT_POLICY=active`. The
/// rest is what its threads refer to: KiB each, lines in each microsecond, misses at a time.
macro_rules! stand_in {
    (@$before:literal, $name:literal, $benchmark:literal, $kib:literal, $references:literal, $overlap:literal) => {
        Workload {
            name: $name,
            keys: concat!(
                $before,
                "program = \"benchmark\"\nname = \"",
                $benchmark,
                "\"\nworking_set = ",
                $kib,
                "\nreferences = ",
                $references,
                "\noverlap = ",
                $overlap
            ),
        }
    };
    ($name:literal, $benchmark:literal, $kib:literal, $references:literal, $overlap:literal) => {
        stand_in!(@"", $name, $benchmark, $kib, $references, $overlap)
    };
    ($name:literal, $benchmark:literal, $kib:literal, $references:literal, $overlap:literal, spins) => {
        stand_in!(@"spin = \"forever\"\n", $name, $benchmark, $kib, $references, $overlap)
    };
}

/// The programs that are slowed down. How much memory they use is assumed: the text has streamcluster, sp, bt, lu and
/// ua bound by memory, and cg with stages that differ in it.
const PROGRAMS: [Workload; 14] = [
    stand_in!("streamcluster", "parsec.streamcluster", 16384, 20, 4),
    stand_in!("facesim", "parsec.facesim", 8192, 10, 2),
    stand_in!("canneal", "parsec.canneal", 32768, 10, 1),
    stand_in!("fluidanimate", "parsec.fluidanimate", 8192, 10, 2),
    stand_in!("bodytrack", "parsec.bodytrack", 1024, 10, 2),
    stand_in!("raytrace", "parsec.raytrace", 6144, 10, 2),
    stand_in!("swaptions", "parsec.swaptions", 64, 10, 2),
    stand_in!("dedup", "parsec.dedup", 8192, 10, 4),
    stand_in!("sp", "npb.sp", 8192, 30, 2, spins),
    stand_in!("bt", "npb.bt", 8192, 20, 2, spins),
    stand_in!("ua", "npb.ua", 8192, 20, 2, spins),
    stand_in!("is", "npb.is", 16384, 10, 4, spins),
    Workload {
        name: "lu",
        keys: "program = \"barrier\"\ncompute = { uniform = [\"900us\", \"1100us\"] }\nspin = \"forever\"\n\
               working_set = 8192\nreferences = 30\noverlap = 2",
    },
    Workload {
        name: "cg",
        keys: "program = \"stages\"\ncompute = { uniform = [\"900us\", \"1100us\"] }\nspin = \"forever\"\n\
               rounds = 2000\nworking_set = 128\nthen = 16384\nreferences = 20\noverlap = 1",
    },
];

const PERSISTENT: Workload = Workload { name: "persistent", keys: "program = \"hog\"" };

/// By section 3.5.1 its threads synchronise every 20 to 30 ms.
const STREAMCLUSTER: Workload = Workload {
    name: "stcluster",
    keys: "program = \"barrier\"\ncompute = { uniform = [\"20ms\", \"30ms\"] }\n\
           working_set = 16384\nreferences = 20\noverlap = 4",
};

/// By the same section every 6 s.
const FLUIDANIMATE: Workload = Workload {
    name: "fluidanimate",
    keys: "program = \"barrier\"\ncompute = { uniform = [\"5500ms\", \"6500ms\"] }\n\
           working_set = 4096\nreferences = 10\noverlap = 2",
};

/// What runs beside a program: nothing, or some threads.
type Beside = Option<(Workload, u32)>;

/// As there, and Rota; Linux' own for comparison.
fn policies() -> [Entry; 3] {
    [called("pin-credit", "Credit, pinned"), called("cfs", "CFS"), called("rota", "Rota")]
}

impl Workload {
    /// Its first tenant is the program. Each has the same weight, and a CPU for each of its threads.
    fn beside(&self, beside: Beside, duration_ms: u64, warm_up_ms: u64) -> String {
        let mut text = format!(
            "duration = \"{duration_ms}ms\"\nwarm_up = \"{warm_up_ms}ms\"\n[host]\ncpus = \"0-4\"\n\
             housekeeping = \"4\"\n"
        );
        let others = beside.map(|(other, threads)| ("others", other, threads));
        for (tenant, workload, threads) in [("program", *self, 4)].into_iter().chain(others) {
            text += &format!(
                "[[tenant]]\nname = \"{tenant}\"\nclass = \"shared\"\nvcpus = {threads}\n\
                 [[workload]]\ntenant = \"{tenant}\"\nthreads = {threads}\n{}\n",
                workload.keys
            );
        }
        text
    }
}

/// A program under a policy.
#[derive(Clone, Copy)]
struct Setting {
    policy: Entry,
    program: Workload,
    beside: Beside,
}

/// How long a program runs if nothing is beside it, in ms.
const ALONE_MS: u64 = 30_000;
/// It is given up if it takes so many times longer beside others.
const SLOWER_MAX: u64 = 200;

impl Setting {
    fn scenario(&self, beside: Beside, duration_ms: u64, warm_up_ms: u64) -> Result<Scenario> {
        let text = self.program.beside(beside, duration_ms, warm_up_ms);
        let source = Source { path: "the figure's scenario".to_owned(), text };
        Scenario::parse(&source).map_err(|errors| anyhow!("{errors}"))
    }

    /// How many times longer the program takes for what it does alone in [`ALONE_MS`].
    fn slowdown(&self, study: &Study) -> Result<f64> {
        let alone_ms = ALONE_MS / study.hurry;
        let options = Options { seed: study.seed, trace: false };
        let alone = self.scenario(None, alone_ms, 0)?.run(&self.policy, options, &|_| ())?;
        let (work, alone_ns) = (alone.tenants[0].metrics.work, alone.window_ns);
        let beside = self.scenario(self.beside, alone_ms, 0)?;
        let most_ns = SLOWER_MAX * alone_ns;
        let beside_ns = beside.time_for(&self.policy, study.seed, PROGRAM, work, most_ns)?;
        Ok(beside_ns as f64 / alone_ns as f64)
    }
}

/// The program's tenant, which is the first beside the system's own.
const PROGRAM: u32 = 0;
