//! The last events, to see what went before something.

use std::collections::VecDeque;

use crate::machine::Machine;
use crate::observe::{Event, Observer};

/// The last events with their times, as many as are kept.
#[derive(Clone, Debug)]
pub struct Tail {
    events: VecDeque<(u64, Event)>,
    most: usize,
}

impl Tail {
    /// Keeps so many.
    pub fn new(most: usize) -> Tail {
        Tail { events: VecDeque::with_capacity(most), most }
    }

    /// In order of time.
    pub fn events(&self) -> impl Iterator<Item = &(u64, Event)> {
        self.events.iter()
    }
}

impl Observer for Tail {
    fn observe(&mut self, machine: &Machine, event: Event) {
        if self.events.len() == self.most {
            self.events.pop_front();
        }
        self.events.push_back((machine.now_ns(), event));
    }
}
