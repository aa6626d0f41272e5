//! The programs that a workload can have, and their keys.
//!
//! A time that is drawn each time is written as a duration, `"2ms"`, if it is always the same; or
//! `{ uniform = ["1ms", "3ms"] }`, each of these as likely as any; or `{ exponential = "2ms" }`, with this mean.
//!
//! | program | keys | what it does |
//! | --- | --- | --- |
//! | `hog` | | computes for ever |
//! | `periodic` | `on`, `off`: durations, `"10ms"` each by default | computes, sleeps |
//! | `intermittent` | `least`, `most`: durations, `"1ms"` and `"40ms"` by default | computes for a time between these, sleeps for as long |
//! | `phases` | `compute`, `sleep`: drawn | computes, sleeps |
//! | `probe` | `every`: a duration, `"100us"` by default | computes, and looks at the clock that often: how long was it not let run? |

use std::fmt::Debug;

use rota_model::config::{Errors, Table, value};

use super::read::{distribution, some_duration};
use crate::program::Program;
use crate::programs::{Hog, Intermittent, Periodic, Phases, Probe};

/// What the threads of a workload do.
pub trait Work: Debug {
    /// The programs of one tenant's threads.
    fn programs(&self) -> Vec<Box<dyn Program>>;
}

/// So many threads of the same kind, that have nothing to do with each other.
#[derive(Clone, Copy, Debug)]
struct Alike<T> {
    threads: u32,
    program: T,
}

impl<T: Program + Clone + Debug + 'static> Work for Alike<T> {
    fn programs(&self) -> Vec<Box<dyn Program>> {
        (0..self.threads).map(|_| Box::new(self.program.clone()) as Box<dyn Program>).collect()
    }
}

/// A program: its name, its keys, and what they mean.
pub(super) struct Kind {
    pub name: &'static str,
    pub keys: &'static [&'static str],
    pub read: fn(&Keys, &mut Errors) -> Option<Box<dyn Work>>,
}

/// All programs.
pub(super) const KINDS: [Kind; 5] = [
    Kind { name: "hog", keys: &["threads"], read: |keys, errors| keys.alike(Hog, errors) },
    Kind {
        name: "periodic",
        keys: &["threads", "on", "off"],
        read: |keys, errors| {
            let on_ns = keys.duration("on", 10_000_000, errors);
            let off_ns = keys.duration("off", 10_000_000, errors);
            keys.alike(Periodic::new(on_ns, off_ns), errors)
        },
    },
    Kind {
        name: "intermittent",
        keys: &["threads", "least", "most"],
        read: |keys, errors| {
            let least_ns = keys.duration("least", 1_000_000, errors);
            let most_ns = keys.duration("most", 40_000_000, errors);
            if least_ns > most_ns {
                errors.push(keys.table.error("least", "is more than \"most\"; exchange the two"));
                return None;
            }
            keys.alike(Intermittent::new(least_ns, most_ns), errors)
        },
    },
    Kind {
        name: "phases",
        keys: &["threads", "compute", "sleep"],
        read: |keys, errors| {
            let compute = keys.distribution("compute", errors);
            let sleep = keys.distribution("sleep", errors);
            keys.alike(Phases { compute: compute?, sleep: sleep? }, errors)
        },
    },
    Kind {
        name: "probe",
        keys: &["threads", "every"],
        read: |keys, errors| {
            let every_ns = keys.duration("every", 100_000, errors);
            keys.alike(Probe::new(every_ns), errors)
        },
    },
];

/// The keys of a program.
pub(super) struct Keys<'k> {
    pub table: &'k Table<'k>,
    /// All that there may be.
    pub known: &'k [&'k str],
}

impl Keys<'_> {
    fn alike(
        &self,
        program: impl Program + Clone + Debug + 'static,
        errors: &mut Errors,
    ) -> Option<Box<dyn Work>> {
        let threads = self.whole("threads", 1, errors);
        Some(Box::new(Alike { threads, program }))
    }

    /// A number of things, at least one.
    fn whole(&self, key: &str, default: u32, errors: &mut Errors) -> u32 {
        self.table.read(key, errors, |value| value::whole(value, 1..=100_000)).unwrap_or(default)
    }

    /// A duration of at least 1 ns.
    fn duration(&self, key: &str, default_ns: u64, errors: &mut Errors) -> u64 {
        self.table.read(key, errors, some_duration).unwrap_or(default_ns)
    }

    /// A time that is drawn, and has no default.
    fn distribution(&self, key: &str, errors: &mut Errors) -> Option<crate::Distribution> {
        self.table.require(key, self.known, &format!("e.g. {key} = \"2ms\""), errors);
        self.table.read(key, errors, distribution)
    }
}
