//! A seed's run, from start to end.

use rota_sim::{Rng, State};
use rota_twin::Code;

use super::faults::Faults;
use super::finding::{Fault, Finding};
use super::late;
use super::scene::{START_NS, Scene};
use super::swarm::{Deal, MS, S, Swarm};

/// Within this time after the last change the daemon has a table for everybody.
const SETTLE_MAX_NS: u64 = 5 * S;
/// Who was late or moved when the faults stopped is where it belongs after this.
const GRACE_NS: u64 = 200 * MS;

/// What came of it.
pub struct Ran {
    pub slots: u64,
    pub events: u64,
    pub simulated_ns: u64,
    pub digest: u64,
    pub finding: Option<Finding>,
    pub last: Vec<String>,
}

/// Runs a seed with a copy of the scheduler.
pub fn run(swarm: Swarm, text: &str, rng: Rng, code: &Code) -> Ran {
    let mut scene = Scene::new(swarm, text, rng, code);
    let finding = play(&mut scene).err();
    let last = if finding.is_some() { scene.last() } else { Vec::new() };
    let ((service, _), _, (digest, _)) = &scene.run.observer;
    Ran {
        slots: service.slots(),
        events: scene.run.events(),
        simulated_ns: scene.run.machine.now_ns() - START_NS,
        digest: digest.value(),
        finding,
        last,
    }
}

/// Faults first, then none.
fn play(scene: &mut Scene) -> Result<(), Finding> {
    for place in 0..scene.guests.len() {
        if !scene.swarm.has(Deal::Churn) || scene.rng.chance(3, 4) {
            scene.appears(place);
        }
    }
    settle(scene)?;
    let mut faults = Faults::new(scene);
    let until_ns = scene.now_ns() + scene.swarm.safety_ns;
    while let Some(at_ns) = faults.next_ns(until_ns) {
        scene.advance(at_ns)?;
        faults.happen(scene);
        scene.look()?;
    }
    scene.advance(until_ns)?;
    faults.stop(scene);
    while is_taken(scene) {
        scene.advance(scene.now_ns() + 10 * MS)?;
    }
    settle(scene)?;
    scene.advance(scene.now_ns() + GRACE_NS)?;
    scene.begin_liveness(late::usual_ns(scene.run.machine.costs()));
    scene.advance(scene.now_ns() + scene.swarm.liveness_ns)
}

/// Until the daemon has done what is to be done.
fn settle(scene: &mut Scene) -> Result<(), Finding> {
    // A daemon that came back looks for tenants that have gone meanwhile.
    let looks = if scene.swarm.has(Deal::Daemon) { 2 } else { 1 };
    let end_ns = scene.now_ns() + looks * SETTLE_MAX_NS;
    while !scene.is_over() && !scene.run.policy.is_settled() {
        if scene.now_ns() > end_ns {
            let said = scene.run.policy.said().pop().unwrap_or_default();
            return scene.fail(Fault::Unsettled(said));
        }
        scene.advance(scene.now_ns() + 10 * MS)?;
    }
    Ok(())
}

/// Whether interrupts, or threads that no scheduler can stop, are left over from the faults, as they had too little
/// time.
fn is_taken(scene: &Scene) -> bool {
    if scene.run.observer.0.0.is_stolen(scene.now_ns()) {
        return true;
    }
    let mut tasks = scene.run.machine.tasks();
    tasks.any(|(_, task)| {
        task.state != State::Dead && (task.realtime.is_some() || task.kernel_thread) && !scene.is_over()
    })
}
