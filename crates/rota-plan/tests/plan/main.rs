//! The planner from outside: models in, plans and refusals out.

#![allow(
    clippy::unwrap_used,
    reason = "a test fails by panic; helpers are not covered by allow-unwrap-in-tests"
)]

mod checker;
mod edits;
mod exclusive;
mod fluid;
mod full_hosts;
mod gangs;
mod models;
mod outlook;
mod parts;
mod properties;
mod refusals;
mod small_hosts;
mod snapshots;
mod spread;
mod swaps;
