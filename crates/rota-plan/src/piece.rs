//! What one CPU does of a task, and of all of its tasks.

use crate::period::{HYPERPERIOD_NS, lcm};

/// `budget` ns within [k*T + O, k*T + O + D) for every k, with C <= D and O + D <= T: all of it lies within the task's
/// period window, so what is released in a round of the CPU is due in it, and rounds repeat from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Piece {
    /// T in ns.
    pub period: u64,
    /// O in ns.
    pub offset: u64,
    /// D in ns, from the release.
    pub deadline: u64,
    /// C in ns.
    pub budget: u64,
}

impl Piece {
    /// All of a task, whenever it suits within its period.
    pub fn whole(period: u64, budget: u64) -> Piece {
        Piece { period, offset: 0, deadline: period, budget }
    }

    /// What runs at once and without a break from its release on.
    pub fn fixed(period: u64, offset: u64, budget: u64) -> Piece {
        Piece { period, offset, deadline: budget, budget }
    }

    /// What it takes of a CPU in [`HYPERPERIOD_NS`], in ns.
    pub fn load(&self) -> u64 {
        self.budget * (HYPERPERIOD_NS / self.period)
    }

    /// Which window the interval lies in, if in one.
    pub fn window(&self, start_ns: u64, end_ns: u64) -> Option<u64> {
        let window = start_ns.checked_sub(self.offset)? / self.period;
        (end_ns <= window * self.period + self.offset + self.deadline).then_some(window)
    }

    /// How many of its windows lie within an interval.
    pub fn windows_within(&self, start_ns: u64, end_ns: u64) -> u64 {
        let first = start_ns.saturating_sub(self.offset).div_ceil(self.period);
        match end_ns.checked_sub(self.offset + self.deadline) {
            Some(last_start) => (last_start / self.period + 1).saturating_sub(first),
            None => 0,
        }
    }
}

/// What one CPU has to do.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Load {
    pub pieces: Vec<Piece>,
    /// Whose they are, by the task's place in a list.
    pub tasks: Vec<u32>,
    /// A multiple of all periods, in ns.
    pub length_ns: u64,
    /// What may be added, in ns of [`HYPERPERIOD_NS`].
    pub free: u64,
}

impl Load {
    /// Nothing yet.
    pub fn new(capacity: u64) -> Load {
        Load { pieces: Vec::new(), tasks: Vec::new(), length_ns: 1, free: capacity }
    }

    /// Adds a piece, if there is so much free; whether it can be served in its windows is another question.
    pub fn add(&mut self, task: u32, piece: Piece) -> Option<()> {
        let has_room = piece.load() <= self.free;
        has_room.then(|| self.put(task as usize, piece))
    }

    /// Adds a piece that there is room for.
    pub fn put(&mut self, task: usize, piece: Piece) {
        debug_assert!(piece.load() <= self.free, "no room for {piece:?}");
        self.free = self.free.saturating_sub(piece.load());
        self.length_ns = lcm(self.length_ns, piece.period);
        self.pieces.push(piece);
        self.tasks.push(task as u32);
    }

    /// The shortest period in ns.
    pub fn shortest(&self) -> u64 {
        self.pieces.iter().map(|piece| piece.period).min().unwrap_or(HYPERPERIOD_NS)
    }
}
