//! The certifier against tables that keep their promises, tables that do not, and bytes that were never tables.

#![allow(clippy::unwrap_used)] // a failed helper is a failed test

mod brute;
mod hostile;
mod lost;
mod made;
mod mutations;
mod parts;
mod rules_cores;
mod rules_costs;
mod rules_cpus;
mod rules_format;
mod rules_together;
mod rules_vcpus;
mod rules_windows;
mod sound;
mod windowed;
