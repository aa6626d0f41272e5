//! What a change of task costs by the caches that threads take from each other: figure 4.

use anyhow::Result;

use super::super::{Case, Figure, Published, Row, Study, Table, Unit, called};
use super::rate;
use Published::{About, Below, Nothing, Said};

/// Both threads' arrays together, in KiB.
const ARRAYS_KIB: [u32; 9] = [128, 256, 512, 1024, 4096, 16_384, 32_768, 65_536, 131_072];

/// Lines to which a thread refers in a microsecond that finds all at hand, 4 ns for each. Assumed.
const REFERENCES: u32 = 250;

/// A way to go through an array, and how many lines are under way at a time then.
struct Pattern {
    name: &'static str,
    overlap: u32,
    published: fn(u32) -> Published,
}

const PATTERNS: [Pattern; 2] = [
    Pattern {
        name: "in sequence",
        overlap: 8,
        published: |kib| match kib {
            512 => Said("begins to rise"),
            131_072 => Below(0.06),
            _ => Nothing,
        },
    },
    Pattern {
        name: "at random",
        overlap: 1,
        published: |kib| match kib {
            256 | 512 => Said("negative"),
            1024 | 4096 => Said("positive"),
            _ if kib > 4096 => Said("negative"),
            _ => Nothing,
        },
    },
];

/// Threads on one CPU of which each goes once through its part, and then waits for the other.
fn case(pattern: &Pattern, kib: u32, threads: u32) -> Case {
    let part = kib / threads;
    let pass_ns = u64::from(part) * 1024 / 64 * 1000 / u64::from(REFERENCES);
    let scenario = format!(
        "duration = \"20s\"\nwarm_up = \"2s\"\n[host]\ncpus = \"0-1\"\nhousekeeping = \"1\"\n\
         [[tenant]]\nname = \"program\"\nclass = \"shared\"\n\
         [[workload]]\ntenant = \"program\"\nthreads = {threads}\nprogram = \"barrier\"\ncompute = \"{pass_ns}ns\"\n\
         working_set = {part}\nreferences = {REFERENCES}\noverlap = {}\n",
        pattern.overlap
    );
    Case { policy: called("cfs", "CFS"), scenario }
}

fn study(study: &Study) -> Result<Vec<Table>> {
    let settings = PATTERNS.iter().flat_map(|pattern| ARRAYS_KIB.map(|kib| (pattern, kib)));
    let settings: Vec<(&Pattern, u32)> = settings.collect();
    let cases = settings.iter().flat_map(|(pattern, kib)| [1, 2].map(|threads| case(pattern, *kib, threads)));
    let outcomes = study.run(&cases.collect::<Vec<Case>>())?;
    let (mut costs, mut passes) = (Vec::new(), Vec::new());
    let mut direct_ns = None;
    for ((pattern, kib), runs) in settings.into_iter().zip(outcomes.chunks(2)) {
        let [serial, over] = runs else { continue };
        // What each thread does counts: a round of two is two passes, and a change of task for each.
        let [serial_ns, over_ns] = [1e9 / rate(serial), 2e9 / rate(over)];
        // Both halves of the smallest array have room in the private cache: what they lose is the change itself.
        let direct_ns = *direct_ns.get_or_insert(over_ns - serial_ns);
        let row = |published, ours| Row {
            setting: format!("{}, {kib} KiB", pattern.name),
            policy: "CFS",
            published,
            ours,
        };
        costs.push(row((pattern.published)(kib), (over_ns - direct_ns) / serial_ns - 1.0));
        let published = if (pattern.overlap, kib) == (8, 131_072) { About(17.5e6) } else { Nothing };
        passes.push(row(published, over_ns / 2.0));
    }
    Ok(vec![
        Table::new(
            "What two threads take longer than one for the same, but for the changes themselves",
            Unit::Part,
            costs,
        ),
        Table::new("A thread's time between two changes", Unit::Time, passes),
    ])
}

pub const SWITCHED: Figure = Figure {
    name: "002-fig4",
    title: "what a change of task costs by the caches that two threads take from each other",
    source: "Huang et al., HPDC 2021, section 2.3 and figure 4; the text gives one value and the signs",
    setting: &[
        "There: two threads on a core, each of which goes through its half of an array between two changes, against \
         one thread and the whole array; Xeon E5-2695, 256 KiB of second-level cache. Here: the same with the \
         simulator's caches, of 256 KiB and 20 MiB.",
        "In sequence: eight lines under way at a time, since a prefetcher fetches ahead. At random: one.",
    ],
    differs: &[
        "In sequence the cost begins where the halves outgrow the private cache, as there. Beyond some MiB none is \
         left here: a prefetcher that loses its way at each change is not in the model.",
        "At random two threads lose where their halves are a little larger than the private cache, as there, and gain \
         next to nothing elsewhere. There they gain by the TLB, which is not in the model.",
    ],
    study,
};
