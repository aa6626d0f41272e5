//! Scenarios, recordings that are run again, and all policies on the same hosts.

mod fair;
mod fairness;
mod policies;
mod replay;
mod scenario;
