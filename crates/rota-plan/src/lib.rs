//! The planner: a model in, a timetable out.
//!
//! The stages, one module each (thesis: M. Vanga, TU Kaiserslautern 2020, chapter 5):
//!
//! 1. `demand` lists the vCPUs that have a reservation and the CPUs that each may use.
//! 2. `period` turns a reservation into a periodic task (budget C, period T).
//! 3. `partition` gives every task one CPU.
//! 4. `edf` simulates earliest-deadline-first on each CPU until its slots repeat.
//! 5. `dissolve` removes slots that are too short, moving work only where every promise stays kept.
//!
//! `single` runs stages 4 and 5 for one CPU, `plan` runs them all.
//!
//! **Invariant:** no I/O, no clock, no floating point: the same model gives the same plan everywhere. What comes out
//! is a proposal; whether it keeps its promises is for the certifier to say, which shares no code with this crate.

mod demand;
mod dissolve;
mod edf;
mod infeasible;
mod partition;
mod period;
mod plan;
mod single;
mod timetable;

pub use infeasible::Infeasible;
pub use partition::Placement;
pub use period::{CANDIDATES, HYPERPERIOD_NS, PERIOD_MIN_NS};
pub use plan::{Options, plan};
pub use timetable::{CpuPlan, Method, Plan, PlannedVcpu, SLICES_MAX, SLOT_MIN_NS, Slot};
