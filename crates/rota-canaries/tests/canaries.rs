//! That the farm can fail: it finds each mistake that is planted into a copy of the scheduler.

use rota_twin::{Code, Parts};

include!(concat!(env!("OUT_DIR"), "/copies.rs"));

/// Within few seeds, in which nothing is found in the scheduler as it is.
#[test]
fn canaries_are_found() {
    for (about, parts) in COPIES {
        // SAFETY: `build.rs` compiles each from a copy of `native.c`.
        let code = unsafe { Code::copy(parts) };
        let found = (0..160).map(|seed| rota_farm::run(seed, &code)).find(|run| run.finding.is_some());
        let found = found.unwrap_or_else(|| panic!("{about} is not found"));
        let real = rota_farm::run(found.seed, &Code::REAL);
        let shown = &real.shown;
        assert!(real.finding.is_none(), "{shown}\nseed {}: {:?}", real.seed, real.finding);
    }
}
