//! Why a thread is woken, as recordings and the simulator say it.

use serde::{Deserialize, Serialize};

/// What wakes a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Cause {
    /// A thread that runs.
    Thread(u32),
    /// A timer.
    Timer,
    /// A device, or whatever else comes from outside.
    Outside,
}
