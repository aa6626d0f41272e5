//! Scenarios, recordings that are run again, and all policies on the same hosts.

mod fair;
mod fairness;
mod interference;
mod matching;
mod policies;
mod replay;
mod sampling;
mod scenario;
mod together;
