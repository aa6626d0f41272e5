//! Rota on real kernels: what it promises, and what it does when things go wrong.
//!
//! Each test boots a guest, in which a script of the folder `guest` starts `rota up` and real load; what it leaves is
//! judged here. The guests need the lab's own programs: `cargo build -p rota-lab`.

#![allow(clippy::unwrap_used)] // as in every test; here also in what the tests share

mod adversary;
mod aware;
mod calls;
mod churn;
mod crowd;
mod edits;
mod fidelity;
mod guest;
mod handover;
mod hog;
mod hotplug;
mod interference;
mod monitor;
mod operator;
mod outlive;
mod package;
mod profile;
mod programs;
mod promises;
mod replay;
mod saturation;
mod shares;
mod spin;
mod starve;
mod vms;
