//! That the scenes of guests can fail: they find each mistake that is planted into a copy of guests' scheduler. In the
//! scheduler as it is they find nothing: `crates/rota-twin/tests/it/guest`.

#[path = "../../rota-sim/tests/it/round_robin.rs"]
mod round_robin;
#[path = "../../rota-twin/tests/it/guest/scenes.rs"]
#[allow(dead_code, reason = "what they have in common with other tests")]
mod scenes;

use std::panic::catch_unwind;

use rota_twin::{Code, Parts, apart};

include!(concat!(env!("OUT_DIR"), "/guests.rs"));

#[test]
fn mistakes_in_guests_are_found() {
    let mut missed = Vec::new();
    for (about, parts) in COPIES {
        // SAFETY: `build.rs` compiles each from a copy of `guest.c`.
        let code = unsafe { Code::copy(parts) };
        // A guest whose kernel ends its scheduler ends the simulation.
        let ended = || vec!["the guest's kernel has ended the scheduler".to_owned()];
        let found = catch_unwind(|| apart(|| scenes::findings(&code))).unwrap_or_else(|_| ended());
        println!("{about}: {found:#?}");
        missed.extend(Some(about).filter(|_| found.is_empty()));
    }
    assert!(missed.is_empty(), "not found: {missed:#?}");
}
