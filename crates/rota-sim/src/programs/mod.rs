//! Programs: what threads do.

mod interference;
mod probe;

pub use interference::{Hog, Intermittent, Periodic, Phases};
pub use probe::Probe;
