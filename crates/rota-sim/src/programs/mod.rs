//! Programs: what threads do.

mod interference;
mod parallel;
mod probe;
mod server;
mod suites;
pub mod sync;

pub use interference::{Hog, Intermittent, Periodic, Phases};
pub use parallel::{ForkJoin, Led, Limited, Locking, Pipeline, Rounds, Waiting};
pub use probe::Probe;
pub use server::{Load, Server};
pub use suites::{BENCHMARKS, Benchmark};
