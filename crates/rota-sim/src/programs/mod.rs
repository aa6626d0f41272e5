//! Programs: what threads do.

mod freezer;
mod interference;
mod parallel;
mod probe;
mod server;
mod staged;
mod suites;
pub mod sync;

pub use freezer::Freezer;
pub use interference::{Hog, Intermittent, Periodic, Phases};
pub use parallel::{ForkJoin, Led, Limited, Locking, Pipeline, Rounds, Waiting};
pub use probe::Probe;
pub use server::{Load, Server};
pub use staged::Staged;
pub use suites::{BENCHMARKS, Benchmark};
