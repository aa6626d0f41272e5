//! Slots that are too short to be worth a context switch, removed without a promise broken.
//!
//! The thesis (section 5.5.1) gives a short slot to its neighbour, and so may take from a vCPU what it was promised.
//! Here time only changes hands in closed chains: if A gives x ns to B, then somewhere else in the *same period
//! windows* B gives x ns to A, or to C who gives them to A, or to whom idle time is on the way. All of it happens at
//! boundaries between slots that touch, so no slot is added, and every vCPU keeps exactly its time in every one of
//! its windows. A short slot either vanishes into a neighbour or grows to the minimum at a neighbour's cost. One for
//! which no chain is found stays.

use std::ops::Range;

use crate::Slot;
use crate::piece::Piece;

/// The owner of idle time.
const IDLE: u32 = u32::MAX;
/// How many boundaries may move for one short slot, after the first.
const CHAIN_MAX: u32 = 3;
/// How many slots to either side of a short one are looked at. Further away there is a chain too rarely to be worth the
/// search.
const REACH: usize = 24;
const _: () = assert!(2 * REACH < u64::BITS as usize, "a bit for each");
/// One slot's chain may push another below the minimum's reach or free it, so all are tried again; more rounds than
/// these find next to nothing.
const ROUNDS_MAX: usize = 3;

/// Slots of `pieces` in [0, `length_ns`), with as few as possible shorter than `min_ns`. A change of tasks takes
/// `switch_ns`.
pub(crate) fn dissolve(
    pieces: &[Piece],
    length_ns: u64,
    slots: Vec<Slot>,
    min_ns: u64,
    switch_ns: u64,
) -> Vec<Slot> {
    if slots.iter().all(|slot| slot.len_ns() >= min_ns) {
        return slots;
    }
    let mut line = Line {
        owners: pieces,
        min_ns,
        switch_ns,
        pieces: with_idle(&slots, length_ns),
        reach: 0..0,
        masks: vec![0; pieces.len() + 1],
    };
    let mut before = None;
    for _ in 0..ROUNDS_MAX {
        let changes = line.round(before.as_deref());
        if changes.is_empty() {
            break;
        }
        before = Some(changes);
    }
    line.pieces.retain(|piece| piece.vcpu != IDLE);
    line.pieces
}

/// The slots and the idle time between them, without a hole.
fn with_idle(slots: &[Slot], length_ns: u64) -> Vec<Slot> {
    let mut pieces = Vec::with_capacity(slots.len() * 2 + 1);
    let mut now = 0;
    let end = Slot { start_ns: length_ns, end_ns: length_ns, vcpu: IDLE };
    for &slot in slots.iter().chain([&end]) {
        if slot.start_ns > now {
            pieces.push(Slot { start_ns: now, end_ns: slot.start_ns, vcpu: IDLE });
        }
        if slot.vcpu != IDLE {
            pieces.push(slot);
        }
        now = slot.end_ns;
    }
    pieces
}

/// Who has time too much or too little, and in which of its period windows; idle time has one window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Account {
    vcpu: u32,
    window: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Left,
    Right,
}

struct Line<'a> {
    /// What each owner has to do, and when it may be done.
    owners: &'a [Piece],
    min_ns: u64,
    switch_ns: u64,
    /// Cover the CPU's length without a hole; idle time is a piece as well.
    pieces: Vec<Slot>,
    /// The pieces that may change now.
    reach: Range<usize>,
    /// Which of these each owner has, a bit for each.
    masks: Vec<u64>,
}

/// Pieces that have changed: those within reach of a short one, which were this stretch of time.
struct Touched {
    short_ns: u64,
    start_ns: u64,
    end_ns: u64,
}

impl Line<'_> {
    /// Tries every short slot once, but not those for which nothing has changed since the round `before` tried them.
    /// What has changed now, in order.
    fn round(&mut self, before: Option<&[Touched]>) -> Vec<Touched> {
        let mut touched: Vec<Touched> = Vec::new();
        let mut at = 0;
        while at < self.pieces.len() {
            let Slot { start_ns: short_ns, vcpu, .. } = self.pieces[at];
            if vcpu == IDLE || self.pieces[at].len_ns() >= self.min_ns {
                at += 1;
                continue;
            }
            self.reach = at.saturating_sub(REACH)..(at + REACH + 1).min(self.pieces.len());
            let (start_ns, end_ns) =
                (self.pieces[self.reach.start].start_ns, self.pieces[self.reach.end - 1].end_ns);
            let is_new = before.is_none_or(|before| {
                let later = before.partition_point(|touched| touched.short_ns < short_ns);
                before.get(later).is_some_and(|touched| touched.start_ns < end_ns)
                    || touched.last().is_some_and(|touched| touched.end_ns > start_ns)
            });
            if is_new && self.settle_piece(at) {
                touched.push(Touched { short_ns, start_ns, end_ns });
                at = self.tidy(at);
            } else {
                at += 1;
            }
        }
        touched
    }

    /// Makes the short piece `at` vanish or grow.
    fn settle_piece(&mut self, at: usize) -> bool {
        self.mark();
        let short = self.pieces[at].len_ns();
        let vanish = |line: &mut Self, side| {
            let Some(neighbour) = line.neighbour(at, side) else { return false };
            line.transfer(neighbour, opposite(side), short, |line, loser, winner| {
                line.close(loser, winner, short, CHAIN_MAX)
            })
        };
        let grow = |line: &mut Self, side| {
            let missing = line.min_ns - short;
            line.transfer(at, side, missing, |line, loser, winner| {
                line.close(loser, winner, missing, CHAIN_MAX)
            })
        };
        vanish(self, Side::Left)
            || vanish(self, Side::Right)
            || grow(self, Side::Left)
            || grow(self, Side::Right)
    }

    /// Lets piece `at` take `amount` from its neighbour on `side`, if the neighbour can give it, and keeps that if
    /// `then` (told who lost and who won) agrees.
    fn transfer(
        &mut self,
        at: usize,
        side: Side,
        amount: u64,
        then: impl FnOnce(&mut Self, Account, Account) -> bool,
    ) -> bool {
        let Some(other) = self.neighbour(at, side) else { return false };
        let (winner, loser) = (self.pieces[at], self.pieces[other]);
        // What has vanished stays vanished, or the slot under repair could come back by its own chain.
        if winner.len_ns() == 0 || !self.may_lose(&loser, amount) {
            return false;
        }
        let start_ns = if side == Side::Left { loser.end_ns - amount } else { loser.start_ns };
        let accounts =
            (self.account(loser.vcpu, start_ns, amount), self.account(winner.vcpu, start_ns, amount));
        let (Some(loses), Some(wins)) = accounts else { return false };
        let (old_ns, new_ns) = match side {
            Side::Left => (winner.start_ns, winner.start_ns - amount),
            Side::Right => (loser.start_ns, loser.start_ns + amount),
        };
        let begins = if side == Side::Left { winner.vcpu } else { loser.vcpu };
        if !self.may_begin(begins, old_ns, new_ns) {
            return false;
        }
        match side {
            Side::Left => {
                self.pieces[other].end_ns -= amount;
                self.pieces[at].start_ns -= amount;
            }
            Side::Right => {
                self.pieces[other].start_ns += amount;
                self.pieces[at].end_ns += amount;
            }
        }
        if then(self, loses, wins) {
            return true;
        }
        (self.pieces[at], self.pieces[other]) = (winner, loser);
        false
    }

    /// Moves `amount` back from who has it too much to who misses it, over at most `moves` boundaries.
    fn close(&mut self, misses: Account, has: Account, amount: u64, moves: u32) -> bool {
        if misses == has {
            return true;
        }
        if moves == 0 {
            return false;
        }
        // Idle time is everywhere; the search starts at the other end then.
        let from_misses = misses.vcpu != IDLE;
        let (seeker, other) = if from_misses { (misses, has) } else { (has, misses) };
        let (window, last_window) = (self.window(seeker), self.window(other));
        let ends = self.ends(other, &last_window, if from_misses { amount } else { 0 });
        if ends == 0 {
            return false;
        }
        // The last boundary is one with whom it has to end.
        let mut open = self.mask(seeker.vcpu);
        if moves == 1 {
            open &= ends << 1 | ends >> 1;
        }
        while open != 0 {
            let at = self.reach.start + open.trailing_zeros() as usize;
            open &= open - 1;
            let piece = self.pieces[at];
            if piece.len_ns() == 0 || !touches(&piece, &window) {
                continue;
            }
            for side in [Side::Left, Side::Right] {
                let Some(neighbour) = self.neighbour(at, side) else { continue };
                let start_ns = sought_ns(&piece, side, from_misses, amount);
                let is_within =
                    |window: &Range<u64>| window.start <= start_ns && start_ns + amount <= window.end;
                let next = self.pieces[neighbour].vcpu;
                let leads_on = match moves {
                    1 => next == other.vcpu && is_within(&last_window),
                    2 => next == other.vcpu || self.touch(next, ends),
                    _ => true,
                };
                if !leads_on || !is_within(&window) {
                    continue;
                }
                let done = if from_misses {
                    self.transfer(at, side, amount, |line, loses, wins| {
                        wins == misses && line.close(loses, has, amount, moves - 1)
                    })
                } else {
                    self.transfer(neighbour, opposite(side), amount, |line, loses, wins| {
                        loses == has && line.close(misses, wins, amount, moves - 1)
                    })
                };
                if done {
                    return true;
                }
            }
        }
        false
    }

    /// Notes which pieces within reach are whose.
    fn mark(&mut self) {
        self.masks.fill(0);
        for (place, piece) in self.pieces[self.reach.clone()].iter().enumerate() {
            let owner = (piece.vcpu as usize).min(self.owners.len());
            self.masks[owner] |= 1 << place;
        }
    }

    fn mask(&self, vcpu: u32) -> u64 {
        self.masks[(vcpu as usize).min(self.owners.len())]
    }

    /// The pieces of an account that can give away `amount` in its `window`, or get some where that is nothing.
    fn ends(&self, account: Account, window: &Range<u64>, amount: u64) -> u64 {
        let mut ends = self.mask(account.vcpu);
        let mut open = ends;
        while open != 0 {
            let piece = &self.pieces[self.reach.start + open.trailing_zeros() as usize];
            if piece.len_ns() == 0 || !touches(piece, window) || !self.may_lose(piece, amount) {
                ends &= !(open & open.wrapping_neg());
            }
            open &= open - 1;
        }
        ends
    }

    /// Whether one of the vCPU's pieces is next to one of `others`.
    fn touch(&self, vcpu: u32, others: u64) -> bool {
        self.mask(vcpu) & (others << 1 | others >> 1) != 0
    }

    /// When an account's window is.
    fn window(&self, account: Account) -> Range<u64> {
        if account.vcpu == IDLE {
            return 0..u64::MAX;
        }
        let Piece { period, offset, deadline, .. } = self.owners[account.vcpu as usize];
        let start_ns = account.window * period + offset;
        start_ns..start_ns + deadline
    }

    /// The next piece on that side within reach.
    fn neighbour(&self, at: usize, side: Side) -> Option<usize> {
        let other = match side {
            Side::Left => at.checked_sub(1)?,
            Side::Right => at + 1,
        };
        self.reach.contains(&other).then_some(other)
    }

    /// A slot may vanish, or keep the minimum; one that is short already may only vanish. Idle time may be of any
    /// length.
    fn may_lose(&self, piece: &Slot, amount: u64) -> bool {
        let left = piece.len_ns().checked_sub(amount);
        left.is_some_and(|left| left == 0 || left >= self.min_ns || piece.vcpu == IDLE)
    }

    /// Whether the change of tasks at the start of a slot stays in the period windows that it is in when the start
    /// moves, so that what it takes is taken from the same budgets.
    fn may_begin(&self, vcpu: u32, old_ns: u64, new_ns: u64) -> bool {
        if vcpu == IDLE || self.switch_ns == 0 {
            return true;
        }
        let period = self.owners[vcpu as usize].period;
        let windows = |start_ns: u64| (start_ns / period, (start_ns + self.switch_ns - 1) / period);
        windows(old_ns) == windows(new_ns)
    }

    /// Whose window [start, start + amount) lies in; none if a window of that vCPU ends within.
    fn account(&self, vcpu: u32, start_ns: u64, amount: u64) -> Option<Account> {
        if vcpu == IDLE {
            return Some(Account { vcpu, window: 0 });
        }
        let window = self.owners[vcpu as usize].window(start_ns, start_ns + amount)?;
        Some(Account { vcpu, window })
    }

    /// Drops pieces of no length within reach and joins neighbours of one owner; the next piece to look at.
    fn tidy(&mut self, at: usize) -> usize {
        let now = self.pieces[at].start_ns;
        let mut kept = self.reach.start;
        for from in self.reach.clone() {
            let piece = self.pieces[from];
            if piece.len_ns() == 0 {
                continue;
            }
            match kept.checked_sub(1).map(|last| &mut self.pieces[last]) {
                Some(last) if last.vcpu == piece.vcpu => last.end_ns = piece.end_ns,
                _ => {
                    self.pieces[kept] = piece;
                    kept += 1;
                }
            }
        }
        self.pieces.drain(kept..self.reach.end);
        // The piece after the reach cannot be joined to it unnoticed: it keeps its owner, and so does the last within,
        // unless that one vanished.
        if kept > 0 && kept < self.pieces.len() && self.pieces[kept - 1].vcpu == self.pieces[kept].vcpu {
            self.pieces[kept - 1].end_ns = self.pieces[kept].end_ns;
            self.pieces.remove(kept);
        }
        self.pieces.partition_point(|piece| piece.end_ns <= now)
    }
}

/// Whether a piece is in a window or touches it.
fn touches(piece: &Slot, window: &Range<u64>) -> bool {
    window.start <= piece.end_ns && piece.start_ns <= window.end
}

/// Where `amount` of a piece's time begins that who seeks it would get from the neighbour at `side`, or give to it.
fn sought_ns(piece: &Slot, side: Side, gets: bool, amount: u64) -> u64 {
    match (side, gets) {
        (Side::Left, true) => piece.start_ns.saturating_sub(amount),
        (Side::Left, false) => piece.start_ns,
        (Side::Right, true) => piece.end_ns,
        (Side::Right, false) => piece.end_ns.saturating_sub(amount),
    }
}

fn opposite(side: Side) -> Side {
    match side {
        Side::Left => Side::Right,
        Side::Right => Side::Left,
    }
}
