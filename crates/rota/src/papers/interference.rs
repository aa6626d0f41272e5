//! Zhao, *Parallel performance in multi-tenant clouds*, dissertation, UT Arlington 2019: figures 4.5 and 4.6.

use anyhow::Result;
use rota_scenario::Outcome;
use rota_scenario::policies::Entry;

use super::{Case, Figure, Published, Row, Study, Table, Unit, called};

/// A program for four threads.
struct Program {
    name: &'static str,
    keys: &'static str,
}

const BLOCKING: [Program; 4] = [
    Program { name: "streamcluster", keys: "program = \"benchmark\"\nname = \"parsec.streamcluster\"" },
    Program { name: "facesim", keys: "program = \"benchmark\"\nname = \"parsec.facesim\"" },
    Program { name: "canneal", keys: "program = \"benchmark\"\nname = \"parsec.canneal\"" },
    Program { name: "mutex", keys: "program = \"mutex\"\noutside = \"50us\"\ninside = \"10us\"" },
];

const SPINNING: [Program; 3] = [
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

/// So many of the four CPUs have a hog.
const LEVELS: [u32; 4] = [0, 1, 2, 4];

impl Program {
    /// In a VM of four vCPUs beside VMs of one vCPU each that compute.
    fn beside(&self, hogs: u32, together: bool) -> String {
        let mut text = format!(
            "duration = \"8s\"\nwarm_up = \"1s\"\n[host]\ncpus = \"0-4\"\nhousekeeping = \"4\"\n\
             [[tenant]]\nname = \"vm\"\nvcpus = 4\nclass = \"reserved\"\nshare = 0.48\nlatency = \"20ms\"\n\
             together = {together}\nmatch = {{ vm = \"qemu:vm\" }}\n\
             [[workload]]\ntenant = \"vm\"\nthreads = 4\n{}\n",
            self.keys
        );
        for hog in 0..hogs {
            text += &format!(
                "[[tenant]]\nname = \"hog-{hog}\"\nclass = \"reserved\"\nshare = 0.48\nlatency = \"20ms\"\n\
                 match = {{ vm = \"qemu:hog-{hog}\" }}\n[[workload]]\ntenant = \"hog-{hog}\"\nprogram = \"hog\"\n"
            );
        }
        text
    }
}

fn ways() -> [(Entry, bool); 5] {
    [
        (called("pin-credit", "Credit, pinned"), false),
        (called("cfs", "CFS"), false),
        (called("relaxed-co", "Relaxed-Co"), false),
        (called("rota", "Rota"), false),
        (called("rota", "Rota, together"), true),
    ]
}

pub const GUESTS: Figure = Figure {
    name: "000-fig4.5",
    title: "what a VM's program does beside hogs, and what helps it",
    source: "Zhao, dissertation, figures 4.5 and 4.6 and section 4.5.2; the text gives that interference-resilient \
        scheduling improves PARSEC by up to 42 %, relaxed co-scheduling less, and little where all vCPUs have hogs",
    setting: &[
        "There: PARSEC, which blocks, and the NAS parallel benchmarks, which spin, in a Xen VM of four vCPUs, each \
         pinned to a CPU, of which 1, 2 or 4 have a hog as well. Here: the simulator's stand-ins for some, and \
         programs that spin at a barrier or a lock. Under Rota the VM and each hog are reserved, 48 % of a CPU for \
         each vCPU within 20 ms, uncapped, and the VM's slots come together or not.",
        "The VM's fair share is half of each CPU with a hog, and all of the others. 1 is that part of what the program \
         does without hogs under pinned Credit.",
    ],
    differs: &[
        "Interference-resilient scheduling itself, and pause-loop exits, are not simulated. Relaxed co-scheduling lies \
         over CFS here, over Credit there.",
        "A program that spins is hurt most by vCPUs that stop one at a time. Where each CPU has a hog, slots that come \
         together leave it nearly all of its share. Beside fewer hogs they change little: what the VM has beyond its \
         slots does not come together.",
        "A program that blocks loses by slots that come together: they are walls, and what a vCPU does not use in its \
         slot it cannot have later in the period.",
        "Hogs are bound to their CPUs under pinned Credit alone. Elsewhere they take what the program leaves on any \
         CPU: one hog is worth more than half of a CPU then, and programs that block have less than their share.",
    ],
    study: |study| {
        let tables = [
            ("Work of programs that block, of the fair share", &BLOCKING[..]),
            ("Work of programs that spin, of the fair share", &SPINNING),
        ];
        tables.into_iter().map(|(caption, programs)| one_table(study, caption, programs)).collect()
    },
};

fn one_table(study: &Study, caption: &str, programs: &[Program]) -> Result<Table> {
    let ways = ways();
    let settings = programs.iter().flat_map(|program| LEVELS.map(|hogs| (program, hogs)));
    let settings: Vec<(&Program, u32)> = settings.collect();
    let cases = settings.iter().flat_map(|(program, hogs)| {
        let case = |(policy, together): &(Entry, bool)| Case {
            policy: *policy,
            scenario: program.beside(*hogs, *together),
        };
        ways.iter().map(case).collect::<Vec<Case>>()
    });
    let outcomes = study.run(&cases.collect::<Vec<Case>>())?;
    let work = |outcome: &Outcome| outcome.tenants[0].metrics.work as f64;
    let mut rows = Vec::new();
    for ((program, hogs), of_setting) in settings.iter().zip(outcomes.chunks(ways.len())) {
        let of_program =
            settings.iter().position(|(other, _)| other.name == program.name).unwrap_or_default();
        let fair = work(&outcomes[of_program * ways.len()]) * (1.0 - f64::from(*hogs) / 8.0);
        rows.extend(ways.iter().zip(of_setting).map(|((policy, _), outcome)| Row {
            setting: format!("{}, {hogs} CPU{} with hogs", program.name, if *hogs == 1 { "" } else { "s" }),
            policy: policy.label,
            published: Published::Nothing,
            ours: work(outcome) / fair.max(1.0),
        }));
    }
    Ok(Table::by_policy(caption, Unit::Times, rows))
}
