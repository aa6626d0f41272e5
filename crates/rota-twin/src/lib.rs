//! Rota's own scheduler on the simulator, from its source: the C that the kernel runs, compiled for this machine, on a
//! model of what it calls.
//!
//! [`ext`] is sched_ext as a policy of [`rota_sim`]; [`Rota`] puts the scheduler into it, with its loader and the
//! daemon's rules. [`GuestAgent`] is the same of the scheduler for guests that know their timetable.
//!
//! **Invariant:** the model may know less than the kernel does, but it calls a scheduler in no order in which the
//! kernel could not. No clock, no I/O, and no order that depends on an address or a hash.

pub mod ext;
mod rota;

pub use rota::{Code, Deed, GuestAgent, Journal, Parts, Rota, Side};
pub use rota_agent::Account as GuestAccount;

/// Runs `call` in a thread of its own, and waits for it: in there is a scheduler of Rota's as nobody has used it yet.
/// Several at once run beside each other.
///
/// # Panics
///
/// If `call` does.
pub fn apart<T: Send>(call: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| match scope.spawn(call).join() {
        Ok(result) => result,
        Err(panic) => std::panic::resume_unwind(panic),
    })
}
