//! The programs that a workload can have, and their keys.
//!
//! A time that is drawn each time is written as a duration, `"2ms"`, if it is always the same; or
//! `{ uniform = ["1ms", "3ms"] }`, each of these as likely as any; or `{ exponential = "2ms" }`, with this mean.
//!
//! | program | keys | what it does |
//! | --- | --- | --- |
//! | `hog` | | computes for ever: persistent interference |
//! | `periodic` | `on`, `off`: durations, `"10ms"` each by default | computes, sleeps |
//! | `intermittent` | `least`, `most`: durations, `"1ms"` and `"40ms"` by default; `demand`: of a CPU, in percent, 50 by default | computes for a time between these, sleeps in proportion |
//! | `phases` | `compute`, `sleep`: drawn | computes, sleeps |
//! | `probe` | `every`: a duration, `"100us"` by default | computes, and looks at the clock that often: how long was it not let run? |
//! | `mutex` | `outside`, `inside`: drawn; `spin` | computes, and then does so with a lock that one thread can have |
//! | `spinlock` | `outside`, `inside`: drawn; `ordered`: whether the lock goes round in the order of asking, `false` by default | the same with a lock that is waited for busily |
//! | `semaphore` | `outside`, `inside`: drawn; `permits`: a number, 1 by default | the same where so many threads can be inside |
//! | `barrier` | `compute`: drawn; `spin` | computes, waits for all other threads |
//! | `stages` | as `barrier`, and `rounds`: 1000 by default; `then`: memory in KiB | after so many rounds works on other memory, of that size instead of `working_set`; after as many on that again, and so on |
//! | `condition` | `compute`, `between`: drawn | the first thread has the others compute once, waits for them, and computes a while |
//! | `fork-join` | `parallel`, `sequential`: drawn, `"8ms"` and `"1ms"` by default; `balanced`: whether the threads take turns with what one does alone, `false` by default; `spin` | computes what is divided among all threads, then has one compute alone |
//! | `pipeline` | `stages`: a number, 2 by default; `compute`: drawn; `room`: a number, 1 by default | `threads` threads for each stage pass pieces on, of which so many can wait before a stage |
//! | `server` | `service`: drawn; either `arrival`: drawn, the time between two requests; or `clients`: a number, and `think`: drawn | waits for requests and computes for each: they come all the same, or each client waits for its answer and then for a while |
//! | `benchmark` | `name`: of a program of PARSEC, SPLASH-2 or the NAS parallel benchmarks, e.g. `"parsec.facesim"`; `spin`, the program's own by default | is as parallel as that and synchronises as often: see [`rota_sim::programs::BENCHMARKS`] |
//!
//! `spin` is how long a thread that has to wait looks in a loop before it sleeps: a duration, `"0ns"` by default, or
//! `"forever"`.

use std::fmt::Debug;

use rota_model::config::{Errors, Table, value};
use rota_model::quote;
use rota_sim::programs::sync::Patience;
use rota_sim::programs::{
    BENCHMARKS, Benchmark, ForkJoin, Hog, Intermittent, Led, Limited, Load, Locking, Periodic, Phases,
    Pipeline, Probe, Rounds, Server, Staged, Waiting,
};
use rota_sim::{Distribution, Program, Script, Site};
use toml::de::DeValue;

use super::read::{distribution, some_duration};

/// What the threads of a workload do.
pub trait Work: Debug + Send + Sync {
    /// The programs of one tenant's threads. What else belongs to them is attached to `site`.
    fn programs(&self, site: &mut dyn Site) -> Vec<Box<dyn Program>>;
}

/// So many threads of the same kind, that have nothing to do with each other.
#[derive(Clone, Copy, Debug)]
struct Alike<T> {
    threads: u32,
    program: T,
}

impl<T: Program + Clone + Debug + Send + Sync + 'static> Work for Alike<T> {
    fn programs(&self, _: &mut dyn Site) -> Vec<Box<dyn Program>> {
        (0..self.threads).map(|_| Box::new(self.program.clone()) as Box<dyn Program>).collect()
    }
}

fn boxed(scripts: Vec<Script>) -> Vec<Box<dyn Program>> {
    scripts.into_iter().map(Box::from).collect()
}

macro_rules! work_of_scripts {
    ($($group:ty)*) => {
        $(impl Work for $group {
            fn programs(&self, _: &mut dyn Site) -> Vec<Box<dyn Program>> {
                boxed(<$group>::programs(self))
            }
        })*
    };
}

work_of_scripts! { Locking Limited Rounds Staged Led ForkJoin Pipeline }

impl Work for Server {
    fn programs(&self, site: &mut dyn Site) -> Vec<Box<dyn Program>> {
        boxed(Server::programs(self, site))
    }
}

/// A program: its name, its keys, and what they mean.
pub(super) struct Kind {
    pub name: &'static str,
    pub keys: &'static [&'static str],
    pub read: fn(&Keys, &mut Errors) -> Option<Box<dyn Work>>,
}

/// All programs.
pub(super) const KINDS: &[Kind] = &[
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
        keys: &["threads", "least", "most", "demand"],
        read: |keys, errors| {
            let least_ns = keys.duration("least", 1_000_000, errors);
            let most_ns = keys.duration("most", 40_000_000, errors);
            let demand = keys.table.read("demand", errors, |value| value::whole(value, 1..=99));
            if least_ns > most_ns {
                errors.push(keys.table.error("least", "is more than \"most\"; exchange the two"));
                return None;
            }
            keys.alike(Intermittent::new(least_ns, most_ns).with_demand(demand.unwrap_or(50)), errors)
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
    Kind {
        name: "mutex",
        keys: &["threads", "outside", "inside", "spin"],
        read: |keys, errors| {
            let patience = keys.patience(errors);
            keys.locking(Waiting::Unordered(patience), errors)
        },
    },
    Kind {
        name: "spinlock",
        keys: &["threads", "outside", "inside", "ordered"],
        read: |keys, errors| {
            let unordered = Waiting::Unordered(Patience::ENDLESS);
            let waiting = if keys.truth("ordered", errors) { Waiting::Ordered } else { unordered };
            keys.locking(waiting, errors)
        },
    },
    Kind {
        name: "semaphore",
        keys: &["threads", "outside", "inside", "permits"],
        read: |keys, errors| {
            let (threads, permits) = (keys.threads(errors), keys.whole("permits", 1, errors));
            let outside = keys.distribution("outside", errors);
            let inside = keys.distribution("inside", errors);
            Some(Box::new(Limited { threads, permits, outside: outside?, inside: inside? }))
        },
    },
    Kind {
        name: "barrier",
        keys: &["threads", "compute", "spin"],
        read: |keys, errors| {
            let (threads, patience) = (keys.threads(errors), keys.patience(errors));
            let compute = keys.distribution("compute", errors)?;
            Some(Box::new(Rounds { threads, compute, patience }))
        },
    },
    Kind {
        name: "stages",
        keys: &["threads", "compute", "spin", "rounds", "then"],
        read: |keys, errors| {
            let (threads, patience) = (keys.threads(errors), keys.patience(errors));
            let rounds = keys.whole("rounds", 1_000, errors);
            let compute = keys.distribution("compute", errors);
            let needs = "how many KiB, e.g. then = 16384";
            keys.table.require("then", keys.known, needs, errors);
            let then = keys.table.read("then", errors, |value| value::whole(value, 1..=u32::MAX));
            if !keys.table.has("references") {
                errors.push(keys.table.error("then", "is of no effect without \"references\"; write both"));
                return None;
            }
            // What is wrong with it is told where every workload's is read.
            let first = keys
                .table
                .read("working_set", &mut Errors::default(), |value| value::whole(value, 1..=u32::MAX));
            let working_sets_kib = [first.unwrap_or(1), then?];
            Some(Box::new(Staged { threads, compute: compute?, patience, rounds, working_sets_kib }))
        },
    },
    Kind {
        name: "condition",
        keys: &["threads", "compute", "between"],
        read: |keys, errors| {
            let threads = keys.threads(errors);
            let compute = keys.distribution("compute", errors);
            let between = keys.distribution("between", errors);
            Some(Box::new(Led { threads, compute: compute?, between: between? }))
        },
    },
    Kind {
        name: "fork-join",
        keys: &["threads", "parallel", "sequential", "balanced", "spin"],
        read: |keys, errors| {
            Some(Box::new(ForkJoin {
                threads: keys.threads(errors),
                parallel: keys.distribution_or("parallel", 8_000_000, errors),
                sequential: keys.distribution_or("sequential", 1_000_000, errors),
                balanced: keys.truth("balanced", errors),
                patience: keys.patience(errors),
            }))
        },
    },
    Kind {
        name: "pipeline",
        keys: &["threads", "stages", "compute", "room"],
        read: |keys, errors| {
            let (threads, room) = (keys.threads(errors), keys.whole("room", 1, errors));
            let stages = keys.table.read("stages", errors, |value| value::whole(value, 2..=1_000));
            let compute = keys.distribution("compute", errors)?;
            Some(Box::new(Pipeline { stages: stages.unwrap_or(2), threads, compute, room }))
        },
    },
    Kind {
        name: "server",
        keys: &["threads", "service", "arrival", "clients", "think"],
        read: |keys, errors| {
            let threads = keys.threads(errors);
            let service = keys.distribution("service", errors);
            let load = keys.load(errors);
            Some(Box::new(Server { threads, service: service?, load: load? }))
        },
    },
    Kind {
        name: "benchmark",
        keys: &["threads", "name", "spin"],
        read: |keys, errors| {
            let threads = keys.threads(errors);
            keys.table.require("name", keys.known, "e.g. name = \"parsec.facesim\"", errors);
            let benchmark = keys.table.read("name", errors, benchmark)?;
            let own = benchmark.with_threads(threads);
            let patience = if keys.table.has("spin") { keys.patience(errors) } else { own.patience };
            Some(Box::new(ForkJoin { patience, ..own }))
        },
    },
];

fn benchmark(value: &DeValue) -> Result<Benchmark, String> {
    let name = value::text(value, "e.g. \"parsec.facesim\"")?;
    Benchmark::find(name).ok_or_else(|| {
        let suite = name.split_once('.').map_or("", |(suite, _)| suite);
        let of_suite = BENCHMARKS.iter().filter(|benchmark| benchmark.name.starts_with(&format!("{suite}.")));
        let names: Vec<&str> = of_suite.map(|benchmark| benchmark.name).collect();
        let mend = match names[..] {
            [] => "begin with parsec., splash. or npb.".to_owned(),
            _ => format!("write one of {}", names.join(", ")),
        };
        format!("{} is none that is known; {mend}", quote(name))
    })
}

/// The keys of a program.
pub(super) struct Keys<'k> {
    pub table: &'k Table<'k>,
    /// All that there may be.
    pub known: &'k [&'k str],
}

impl Keys<'_> {
    fn alike(
        &self,
        program: impl Program + Clone + Debug + Send + Sync + 'static,
        errors: &mut Errors,
    ) -> Option<Box<dyn Work>> {
        let threads = self.threads(errors);
        Some(Box::new(Alike { threads, program }))
    }

    fn locking(&self, waiting: Waiting, errors: &mut Errors) -> Option<Box<dyn Work>> {
        let threads = self.threads(errors);
        let outside = self.distribution("outside", errors);
        let inside = self.distribution("inside", errors);
        Some(Box::new(Locking { threads, outside: outside?, inside: inside?, waiting }))
    }

    /// A server's requests.
    fn load(&self, errors: &mut Errors) -> Option<Load> {
        let closed = ["clients", "think"];
        match (self.table.has("arrival"), closed.iter().find(|key| self.table.has(key))) {
            (true, Some(key)) => {
                errors.push(self.table.error(key, "does not go with \"arrival\"; leave one of them out"));
                None
            }
            (false, Some(_)) => {
                let clients = self.whole("clients", 1, errors);
                Some(Load::Closed(clients, self.distribution("think", errors)?))
            }
            _ => Some(Load::Open(self.distribution("arrival", errors)?)),
        }
    }

    fn threads(&self, errors: &mut Errors) -> u32 {
        self.whole("threads", 1, errors)
    }

    fn truth(&self, key: &str, errors: &mut Errors) -> bool {
        self.table.read(key, errors, value::truth).unwrap_or(false)
    }

    /// How long who has to wait looks before it sleeps.
    fn patience(&self, errors: &mut Errors) -> Patience {
        self.spin(errors).unwrap_or(Patience::NONE)
    }

    /// The same, if it is said.
    fn spin(&self, errors: &mut Errors) -> Option<Patience> {
        let patience = |value: &DeValue| match value.as_str() {
            Some("forever") => Ok(Patience::ENDLESS),
            _ => value::duration(value).map(Patience),
        };
        self.table.read("spin", errors, patience)
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
    fn distribution(&self, key: &str, errors: &mut Errors) -> Option<Distribution> {
        self.table.require(key, self.known, &format!("e.g. {key} = \"2ms\""), errors);
        self.table.read(key, errors, distribution)
    }

    /// A time that is drawn, and is always the same by default.
    fn distribution_or(&self, key: &str, default_ns: u64, errors: &mut Errors) -> Distribution {
        self.table.read(key, errors, distribution).unwrap_or(Distribution::Constant(default_ns))
    }
}
