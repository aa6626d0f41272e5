//! Copies of the scheduler with a mistake in each. What watches over the scheduler has to find them.

use crate::rota::native::Code;
use crate::rota::patches::PATCHES;
pub use crate::rota::patches::Patch;

/// A copy of the scheduler, and what is wrong with it.
#[derive(Clone, Copy)]
pub struct Canary {
    /// What is wrong.
    pub patch: &'static Patch,
    /// The copy.
    pub code: Code,
}

/// All of them.
pub static CANARIES: [Canary; PATCHES.len()] = {
    let ([slice, wake, budget, count, weight], [one, two, three, four, five]) = (Code::SPOILT, &PATCHES);
    [
        Canary { patch: one, code: slice },
        Canary { patch: two, code: wake },
        Canary { patch: three, code: budget },
        Canary { patch: four, code: count },
        Canary { patch: five, code: weight },
    ]
};
