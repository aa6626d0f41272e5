//! `rota guest` in guests whose vCPUs are stopped. Copies of it with a mistake in each have to be found by the same
//! scenes: `crates/rota-canaries`.

mod scenes;

use rota_sim::programs::sync::Patience;
use rota_twin::Code;

use scenes::Within::{Agent, Plain};

const REAL: scenes::Within<'_> = Agent(&Code::GUEST);

#[test]
fn nothing_is_found_in_the_guests_scheduler() {
    let found = scenes::findings(&Code::GUEST);
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn the_same_guest_goes_the_same_way() {
    for patience in [Patience::NONE, Patience::ENDLESS] {
        let [one, other] = [(); 2].map(|()| scenes::rounds(REAL, Some(0), patience));
        assert_eq!(one, other);
    }
}

/// They have one thread, and so one of each of the scheduler's variables.
#[test]
fn guests_of_one_host_know_nothing_of_each_other() {
    let [one, other] = scenes::of_two_guests([REAL, REAL]);
    let plain = scenes::of_two_guests([Plain, Plain]);
    assert_eq!(scenes::of_two_guests([REAL, Plain]), [one, plain[1]]);
    assert_eq!(scenes::of_two_guests([Plain, REAL]), [plain[0], other]);
    assert!(one * 100 > plain[0] * 150 && other * 100 > plain[1] * 99, "{one} and {other}, not {plain:?}");
}

#[test]
fn a_guests_server_gets_its_interrupts() {
    let (answered, late) = scenes::answers(REAL);
    assert_eq!((answered, late), scenes::answers(Plain));
    assert!(answered > 390 && late == 0, "{answered} answers, {late} late");
}
