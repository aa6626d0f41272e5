//! The planner: a model in, a timetable out.
//!
//! The stages, one module each (thesis: M. Vanga, TU Kaiserslautern 2020, chapter 5):
//!
//! 1. `demand` lists the vCPUs that have a reservation and the CPUs that each may use.
//! 2. `flow` asks whether the CPUs have enough for them, however their loads are divided, and chooses the CPUs that go
//!    to one vCPU whole; `shortage` says who is short of what.
//! 3. `exclusive` chooses cores for tenants that share none.
//! 4. `period` turns a reservation into a periodic task (budget C, period T).
//! 5. `partition` gives every task one CPU, and `apart` keeps those of one tenant on different ones where that can be.
//!    If that fails, `flow` divides the loads, and `divide` says how each vCPU that it divides is served: in pieces
//!    that run one after another (`split`), or in a cluster of CPUs (`cluster`, `wrap`). `gather` keeps each within the
//!    CPUs that a table can name for it.
//!    `gang` gives vCPUs whose slots come together CPUs and slots at the same times.
//! 6. `edf` simulates earliest-deadline-first on each CPU until its slots repeat.
//! 7. `dissolve` removes slots that are too short, moving work only where every promise stays kept.
//!
//! Changing from one task to another takes time. A budget is therefore larger than its share, and by how much shows
//! only when the slots are known: `net` counts what they give net of costs, and `settle` has budgets follow until it is
//! enough. If CPUs have too little for that, all are placed anew with that known (`lay_out`).
//!
//! `reason` keeps what was decided and why, if that is asked for: [`explain`].
//!
//! `single` makes the timetable of one CPU, `joint` that of CPUs with vCPUs in common, `known` makes many at once in
//! threads, `plan` runs all.
//!
//! **Invariant:** no I/O, no clock, no floating point: the same model gives the same plan everywhere, in however many
//! threads. What comes out is a proposal; whether it keeps its promises is for the certifier to say, which shares no
//! code with this crate.

mod apart;
mod cluster;
mod demand;
mod dissolve;
mod divide;
mod edf;
mod edit;
mod exclusive;
mod flow;
mod gang;
mod gather;
mod infeasible;
mod joint;
mod known;
mod lay_out;
mod net;
mod network;
mod partition;
mod period;
mod piece;
mod plan;
mod planner;
mod reason;
mod roster;
mod settle;
mod shortage;
mod single;
mod split;
mod swap;
mod timetable;
mod whole;
mod windows;
mod wrap;

pub use infeasible::{Figures, Infeasible};
pub use period::{CANDIDATES, HYPERPERIOD_NS, PERIOD_MIN_NS};
pub use plan::{Options, plan};
pub use planner::{Change, Edits, Outlook, Planner};
pub use reason::{Period, Place, Reason, SlotsAlone, Together, explain, slots_alone};
pub use rota_model::Placement;
pub use swap::{Seat, Unequal, VcpuKey};
pub use timetable::{
    CpuPlan, Method, Plan, PlannedVcpu, SLICES_MAX, SLOT_MIN_NS, Slot, VCPU_CPUS_MAX, WINDOW_VCPUS_MAX,
};
