//! A parallel program that goes through stages, with other memory in each: as the NAS benchmark CG does, by Zhao's
//! dissertation (3.4, "sources of inaccuracy").

use std::cell::Cell;
use std::rc::Rc;

use super::sync::{Barrier, Patience};
use crate::distribution::Distribution;
use crate::thread::Script;

/// Threads that compute and then wait for each other, as [`super::Rounds`] are; after so many rounds they work on
/// memory of another size, and so on in turn. Each thread's round is a piece of work.
#[derive(Clone, Copy, Debug)]
pub struct Staged {
    /// How many.
    pub threads: u32,
    /// Between two barriers.
    pub compute: Distribution,
    /// At the barrier.
    pub patience: Patience,
    /// Of each stage.
    pub rounds: u32,
    /// In KiB, at least 1: what each thread works on in one stage and in the next. It begins with the first.
    pub working_sets_kib: [u32; 2],
}

impl Staged {
    /// The threads.
    pub fn programs(&self) -> Vec<Script> {
        let Staged { threads, compute, patience, rounds, working_sets_kib } = *self;
        let barrier = Rc::new(Barrier::new(threads, patience));
        let script = |_| {
            let (barrier, stage) = (barrier.clone(), Cell::new(0));
            Script::new(move |thread| async move {
                loop {
                    for _ in 0..rounds {
                        thread.compute_drawn(compute).await;
                        barrier.come(&thread).await;
                        thread.work(1);
                    }
                    stage.set(1 - stage.get());
                    thread.working_set(working_sets_kib[stage.get()]);
                }
            })
        };
        (0..threads).map(script).collect()
    }
}
