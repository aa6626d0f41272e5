//! Zhao, *Parallel performance in multi-tenant clouds*, dissertation, UT Arlington 2019: figures 4.5, 4.6 and 4.10.

use anyhow::Result;
use rota_scenario::Outcome;
use rota_scenario::policies::Entry;

use super::{Case, Figure, Published, Row, Study, Table, Unit, called};
use Published::{About, Nothing, Said, UpTo};

/// A program with a thread for each vCPU.
struct Program {
    name: &'static str,
    keys: &'static str,
}

const BLOCKING: [Program; 5] = [
    Program { name: "streamcluster", keys: "program = \"benchmark\"\nname = \"parsec.streamcluster\"" },
    Program { name: "facesim", keys: "program = \"benchmark\"\nname = \"parsec.facesim\"" },
    Program { name: "canneal", keys: "program = \"benchmark\"\nname = \"parsec.canneal\"" },
    Program { name: "x264", keys: "program = \"benchmark\"\nname = \"parsec.x264\"" },
    Program { name: "mutex", keys: "program = \"mutex\"\noutside = \"50us\"\ninside = \"10us\"" },
];

const SPINNING: [Program; 5] = [
    Program { name: "npb.cg", keys: "program = \"benchmark\"\nname = \"npb.cg\"\nspin = \"forever\"" },
    Program { name: "npb.ua", keys: "program = \"benchmark\"\nname = \"npb.ua\"\nspin = \"forever\"" },
    Program {
        name: "barrier",
        keys: "program = \"barrier\"\ncompute = { uniform = [\"900us\", \"1100us\"] }\nspin = \"forever\"",
    },
    Program { name: "lock", keys: "program = \"spinlock\"\noutside = \"50us\"\ninside = \"10us\"" },
    Program {
        name: "lock, in turn",
        keys: "program = \"spinlock\"\noutside = \"50us\"\ninside = \"10us\"\nordered = true",
    },
];

/// A host's policy, what helps the guest, and whether its slots come together.
struct Way {
    policy: Entry,
    help: &'static str,
    together: bool,
}

impl Way {
    fn new(policy: &str, label: &'static str, help: &'static str, together: bool) -> Way {
        Way { policy: called(policy, label), help, together }
    }
}

fn ways() -> [Way; 10] {
    [
        Way::new("pin-credit", "Credit", "none", false),
        Way::new("pin-credit", "PLE", "pause-exits", false),
        Way::new("pin-relaxed-co", "Relaxed", "none", false),
        Way::new("irs", "IRS", "upcalls", false),
        Way::new("pin-cfs", "CFS", "none", false),
        Way::new("irs-cfs", "IRS/CFS", "upcalls", false),
        Way::new("rota", "Rota", "none", false),
        Way::new("rota", "together", "none", true),
        Way::new("rota", "guest", "timetable", false),
        Way::new("rota", "both", "timetable", true),
    ]
}

/// Each way that helps, and the one without help on the same host.
const HELPED: [(&str, &str); 7] = [
    ("PLE", "Credit"),
    ("Relaxed", "Credit"),
    ("IRS", "Credit"),
    ("IRS/CFS", "CFS"),
    ("together", "Rota"),
    ("guest", "Rota"),
    ("both", "Rota"),
];

/// Who did less than this part of its fair share without help is not compared: any help is many times as much.
const COMPARED_FROM: f64 = 0.05;

/// So many runs with different chance are averaged, if no seed is given: the paper has five.
const SEEDS: u64 = 3;

/// A figure's VM, and how many VMs interfere with it.
struct Scene {
    vcpus: u32,
    levels: [u32; 4],
}

/// One program at one level, under each way: its work, and the CPU time of those that interfere, each as part of what
/// is fair.
struct Found {
    program: &'static str,
    interfering: u32,
    /// Work without interference and help, in the program's unit, over work here.
    slowdowns: Vec<f64>,
    work: Vec<f64>,
    others: Vec<f64>,
}

impl Scene {
    /// A program in the VM beside VMs of one vCPU each that compute.
    fn text(&self, program: &Program, interfering: u32, way: &Way, seed: u64) -> String {
        let Scene { vcpus, .. } = self;
        let Way { help, together, .. } = way;
        let mut text = format!(
            "duration = \"4s\"\nwarm_up = \"1s\"\nseed = {seed}\n[host]\ncpus = \"0-{vcpus}\"\n\
             housekeeping = \"{vcpus}\"\n[[guest]]\ntenant = \"vm\"\nhelp = \"{help}\"\n\
             [[tenant]]\nname = \"vm\"\nvcpus = {vcpus}\nclass = \"reserved\"\nshare = 0.48\nlatency = \"20ms\"\n\
             together = {together}\ntimetable = {}\nmatch = {{ vm = \"qemu:vm\" }}\n\
             [[workload]]\ntenant = \"vm\"\nthreads = {vcpus}\n{}\n",
            *help == "timetable",
            program.keys
        );
        for other in 0..interfering {
            text += &format!(
                "[[tenant]]\nname = \"other-{other}\"\nclass = \"reserved\"\nshare = 0.48\nlatency = \"20ms\"\n\
                 affinity = \"{other}\"\nmatch = {{ vm = \"qemu:other-{other}\" }}\n\
                 [[workload]]\ntenant = \"other-{other}\"\nprogram = \"hog\"\n"
            );
        }
        text
    }

    fn run(&self, study: &Study, programs: &[Program]) -> Result<Vec<Found>> {
        let (ways, seeds) = (ways(), study.seed.map_or(SEEDS, |_| 1));
        let settings = programs.iter().flat_map(|program| self.levels.map(|level| (program, level)));
        let settings: Vec<(&Program, u32)> = settings.collect();
        let mut cases = Vec::new();
        for (program, interfering) in &settings {
            for way in &ways {
                cases.extend((1..=seeds).map(|seed| Case {
                    policy: way.policy,
                    scenario: self.text(program, *interfering, way, seed),
                }));
            }
        }
        let outcomes = study.run(&cases)?;
        let per_setting = outcomes.chunks(ways.len() * seeds as usize);
        let per_way = |outcomes: &[Outcome], of: &dyn Fn(&Outcome) -> f64| -> Vec<f64> {
            let runs = outcomes.chunks(seeds as usize);
            runs.map(|runs| runs.iter().map(of).sum::<f64>() / runs.len() as f64).collect()
        };
        let mut alone = 1.0;
        let found = settings.iter().zip(per_setting).map(|(&(program, interfering), outcomes)| {
            let done = per_way(outcomes, &|outcome| outcome.tenants[0].metrics.work as f64);
            if interfering == 0 {
                alone = done[0].max(1.0);
            }
            let fair = 1.0 - f64::from(interfering) / f64::from(2 * self.vcpus);
            let others = per_way(outcomes, &|outcome| {
                let received = outcome.tenants[1..].iter().map(|other| other.metrics.received_ns as f64);
                received.sum::<f64>() / (outcome.window_ns as f64 * f64::from(interfering.max(1)) / 2.0)
            });
            let slowdowns = done.iter().map(|done| alone / done.max(1.0)).collect();
            let work = done.iter().map(|done| done / (alone * fair)).collect();
            Found { program: program.name, interfering, slowdowns, work, others }
        });
        Ok(found.collect())
    }

    fn tables(&self, study: &Study, published: &dyn Fn(bool, &str) -> Published) -> Result<Vec<Table>> {
        let (blocking, spinning) = (self.run(study, &BLOCKING)?, self.run(study, &SPINNING)?);
        let table = |caption: &str, found: &[Found], of: &dyn Fn(&Found) -> &[f64]| {
            Table::by_policy(
                caption,
                Unit::Times,
                found.iter().flat_map(|found| found.rows(of(found))).collect(),
            )
        };
        let beside = |found: Vec<Found>| -> Vec<Found> {
            found.into_iter().filter(|found| found.interfering > 0).collect()
        };
        let mut tables = vec![
            table("Work of programs that block, of the fair share", &blocking, &|found| &found.work),
            table("Work of programs that spin, of the fair share", &spinning, &|found| &found.work),
            improvements(
                "Programs that block: improvement over the same host without help",
                &blocking,
                &|label| published(false, label),
            ),
            improvements(
                "Programs that spin: improvement over the same host without help",
                &spinning,
                &|label| published(true, label),
            ),
        ];
        let (blocking, spinning) = (beside(blocking), beside(spinning));
        tables.extend([
            table("Slowdown of programs that block", &blocking, &|found| &found.slowdowns),
            table("Slowdown of programs that spin", &spinning, &|found| &found.slowdowns),
            table("CPU time of VMs beside programs that block, of the fair share", &blocking, &|found| {
                &found.others
            }),
            table("CPU time of VMs beside programs that spin, of the fair share", &spinning, &|found| {
                &found.others
            }),
        ]);
        Ok(tables)
    }
}

impl Found {
    fn rows(&self, values: &[f64]) -> Vec<Row> {
        let row = |(way, value): (Way, &f64)| Row {
            setting: format!(
                "{}, {} VM{}",
                self.program,
                self.interfering,
                if self.interfering == 1 { "" } else { "s" }
            ),
            policy: way.policy.label,
            published: Nothing,
            ours: *value,
        };
        ways().into_iter().zip(values).map(row).collect()
    }

    /// How much more a way that helps does than the one without help; none if that does next to nothing.
    fn improvement(&self, helped: &str, without: &str) -> Option<f64> {
        let work = |label| self.work[ways().iter().position(|way| way.policy.label == label)?].into();
        let (helped, without): (Option<f64>, Option<f64>) = (work(helped), work(without));
        without
            .filter(|without| *without >= COMPARED_FROM)
            .zip(helped)
            .map(|(without, helped)| helped / without - 1.0)
    }
}

/// The best, average and worst of each way that helps, beside VMs that interfere; and without any.
fn improvements(caption: &str, found: &[Found], published: &dyn Fn(&str) -> Published) -> Table {
    let mut rows = Vec::new();
    for (label, without) in HELPED {
        let of = |is_alone: bool| -> Vec<f64> {
            let chosen = found.iter().filter(|found| (found.interfering == 0) == is_alone);
            chosen.filter_map(|found| found.improvement(label, without)).collect()
        };
        let (beside, alone) = (of(false), of(true));
        let most = |of: &[f64]| of.iter().copied().fold(f64::MIN, f64::max);
        let least = |of: &[f64]| of.iter().copied().fold(f64::MAX, f64::min);
        let average = beside.iter().sum::<f64>() / beside.len().max(1) as f64;
        for (setting, published, ours) in [
            ("the best", published(label), most(&beside)),
            ("on average", Nothing, average),
            ("the worst", Nothing, least(&beside)),
            ("without interference, the worst", Nothing, least(&alone)),
        ] {
            let ours = rounded(ours);
            rows.push(Row { setting: setting.to_owned(), policy: label, published, ours });
        }
    }
    Table { third: Some(("over", base_of)), ..Table::new(caption, Unit::Part, rows) }
}

/// To a thousandth, and never less than nothing by less than that.
fn rounded(part: f64) -> f64 {
    (part * 1e3).round() / 1e3 + 0.0
}

/// The host without help that a way is compared with.
fn base_of(row: &Row) -> String {
    let helped = HELPED.iter().find(|(helped, _)| *helped == row.policy);
    helped.map_or_else(String::new, |(_, without)| (*without).to_owned())
}

const SETTING: [&str; 3] = [
    "Columns: Credit and CFS are these schedulers with each vCPU pinned to a CPU, without help. PLE: a vCPU exits \
     when its thread has waited busily for 4,096 cycles, and yields. Relaxed: relaxed co-scheduling over pinned \
     Credit. IRS: interference-resilient scheduling over pinned Credit, and IRS/CFS over pinned CFS. The host \
     tells a vCPU before it stops it; 20 to 26 us later the guest has given the CPU up and moves the thread. \
     Rota: the VM and each other one are reserved, 48 % of a CPU for each vCPU within 20 ms, uncapped. together: \
     the VM's slots come together. guest: `rota guest` runs in the VM, from its own source, and the VM has \
     `timetable = true`, so its slots are walls. both: the two.",
    "The VM's fair share is half of each CPU with another VM, and all of the others. 1 is that part of what the \
     program does alone under pinned Credit. Slowdown is how many times less than alone. The other VMs' fair \
     share is half of their CPUs.",
    "Each value is the average of three runs. An improvement is left out where the program without help does less \
     than 5 % of its fair share.",
];

const DIFFERS: [&str; 8] = [
    "IRS over Credit does more here than was published, and takes it from the other VMs: they keep as little as \
     12 % of their half. A vCPU that the guest has emptied wakes up at the guest's next tick, and Credit boosts \
     who wakes. There, no VM had more than its fair share.",
    "CFS boosts nobody. It gives each VM the same weight, however many vCPUs it has, so a VM of one vCPU has more \
     than half of its CPU.",
    "Programs that block lose little under pinned Credit here, since they wake up boosted. So IRS has little to \
     mend.",
    "Pause-loop exits do nothing for programs that sleep: the stand-ins do not spin before they do. Programs that \
     spin leave their CPUs to the other VMs, which have up to twice their half.",
    "Relaxed co-scheduling stops the vCPU that is ahead for 30 ms. There, it changed places with the one behind. \
     Pinned vCPUs cannot; the one behind goes first on its own CPU here.",
    "A guest that knows its timetable gains where some vCPUs run while others are stopped. Where each CPU has \
     another VM, its slots are walls at the same times on all of them here, even without `together`. That is what \
     programs that spin gain by there.",
    "Threads that share a vCPU take turns, and a lock in turn waits for each of them. A thread that spins is seen \
     after 100 us at best. So such locks may lose by a guest that moves threads: up to 6 % on eight vCPUs beside \
     one VM.",
    "Programs that block lose by slots that come together, and by a timetable: both are walls. What a vCPU does \
     not use in its slot it cannot have later in the period. The guest changes nothing about that.",
];

pub const GUESTS: Figure = Figure {
    name: "000-fig4.5",
    title: "a VM of four vCPUs beside VMs that interfere, and what helps it",
    source: "Zhao, dissertation, figures 4.5 and 4.6 and section 4.5.2; the text gives the best improvement by \
        interference-resilient scheduling (IRS), and for the others that they are less",
    setting: &[
        "There: PARSEC, which blocks, and the NAS parallel benchmarks, which spin, in a Xen VM of four vCPUs, each \
         pinned to a CPU, of which 1, 2 or 4 are shared with a VM that computes. Here: the simulator's stand-ins for \
         some, and programs that wait at a barrier or a lock.",
        SETTING[0],
        SETTING[1],
        SETTING[2],
    ],
    differs: &DIFFERS,
    study: |study| {
        let published = |spins: bool, label: &str| match (spins, label) {
            (false, "IRS") => UpTo(0.42),
            (true, "IRS") => UpTo(0.43),
            (false, "PLE" | "Relaxed") => Said("less than IRS, mostly"),
            (true, "PLE" | "Relaxed") => Said("close to IRS, mostly"),
            _ => Nothing,
        };
        Scene { vcpus: 4, levels: [0, 1, 2, 4] }.tables(study, &published)
    },
};

pub const LARGER_GUESTS: Figure = Figure {
    name: "000-fig4.10",
    title: "a VM of eight vCPUs beside VMs that interfere, and what helps it",
    source: "Zhao, dissertation, figure 4.10 and section 4.5.5; the text gives that IRS' improvement is less the more \
        vCPUs are interfered with, and 4 % on average where all are",
    setting: &[
        "There: x264, blackscholes, EP and MG in a VM of eight vCPUs on eight CPUs, of which 1 to 8 are shared with a \
         VM that computes or runs such a program. Here: as for 000-fig4.5, beside 1, 4 and 8 VMs that compute.",
        SETTING[0],
        SETTING[1],
        SETTING[2],
    ],
    differs: &DIFFERS,
    study: |study| {
        let scene = Scene { vcpus: 8, levels: [0, 1, 4, 8] };
        let mut tables = scene.tables(study, &|_, _| Nothing)?;
        for (spins, caption) in [(false, "block"), (true, "spin")] {
            let work = &tables[usize::from(spins)];
            tables.push(where_all_are(
                &format!("Programs that {caption} beside 8 VMs: average improvement"),
                work,
            ));
        }
        Ok(tables)
    },
};

/// The average improvement of each way beside as many VMs as vCPUs, from a table of work.
fn where_all_are(caption: &str, work: &Table) -> Table {
    let ours = |label: &str| -> Vec<f64> {
        let rows = work.rows.iter().filter(|row| row.policy == label && row.setting.ends_with(" 8 VMs"));
        rows.map(|row| row.ours).collect()
    };
    let row = |(label, without): (&'static str, &str)| {
        let pairs =
            ours(label).into_iter().zip(ours(without)).filter(|(_, without)| *without >= COMPARED_FROM);
        let gains: Vec<f64> = pairs.map(|(helped, without)| helped / without - 1.0).collect();
        Row {
            setting: "on average".to_owned(),
            policy: label,
            published: if label == "IRS" { About(0.04) } else { Nothing },
            ours: rounded(gains.iter().sum::<f64>() / gains.len().max(1) as f64),
        }
    };
    Table::new(caption, Unit::Part, HELPED.into_iter().map(row).collect())
}
