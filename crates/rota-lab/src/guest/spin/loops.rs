//! What threads compute, in loops as small as those in which they wait.

use std::hint::black_box;

use super::Kind;
use crate::guest::parallel::execute;

/// Numbers that a loop works on: less than the first level of a cache has.
const COUNT: usize = 1024;
/// Rows and columns.
const SIDE: usize = 16;

/// A thread's own numbers.
pub struct Numbers {
    some: Vec<u32>,
    others: Vec<u32>,
}

impl Numbers {
    /// In an order that each loop finds new.
    pub fn new() -> Numbers {
        let some = (0..COUNT as u32).map(|number| (number * 389 + 7) % COUNT as u32).collect();
        Numbers { some, others: vec![0; COUNT] }
    }

    /// Computes a piece of about so many instructions.
    pub fn piece(&mut self, kind: Kind, instructions: u64) {
        let (mut left, some) = (instructions as i64, &self.some);
        while left > 0 {
            left -= match kind {
                Kind::Sum => {
                    black_box(
                        some.iter().fold(black_box(0u32), |sum, number| black_box(sum.wrapping_add(*number))),
                    );
                    3 * COUNT as i64
                }
                Kind::Copy => {
                    self.others.copy_from_slice(some);
                    black_box(&self.others);
                    COUNT as i64 / 4
                }
                Kind::Crc => {
                    black_box(some.iter().fold(black_box(!0), |sum, number| crc(sum ^ number)));
                    COUNT as i64 * 96
                }
                Kind::Matrix => {
                    multiply(some, &mut self.others);
                    (SIDE * SIDE * SIDE * 5) as i64
                }
                Kind::Chase => {
                    black_box((0..COUNT).fold(black_box(1), |at, _| black_box(some[at] as usize)));
                    4 * COUNT as i64
                }
                Kind::Sort => {
                    self.others[..128].copy_from_slice(&some[..128]);
                    insert(&mut self.others[..128]);
                    128 * 64 * 5 / 2
                }
                Kind::Float => multiply_floats(),
                _ => {
                    execute(left as u64);
                    left
                }
            };
        }
    }
}

fn crc(sum: u32) -> u32 {
    (0..32).fold(sum, |sum, _| sum >> 1 ^ (0xedb8_8320 & 0u32.wrapping_sub(sum & 1)))
}

fn multiply(some: &[u32], product: &mut [u32]) {
    for row in 0..SIDE {
        for column in 0..SIDE {
            let terms = (0..SIDE).map(|k| some[row * SIDE + k].wrapping_mul(some[k * SIDE + column]));
            product[row * SIDE + column] = terms.fold(0, |sum, term| black_box(sum.wrapping_add(term)));
        }
    }
}

fn insert(numbers: &mut [u32]) {
    for end in 1..numbers.len() {
        let mut at = end;
        while at > 0 && numbers[at - 1] > numbers[at] {
            numbers.swap(at - 1, at);
            at -= 1;
        }
    }
}

/// A loop whose integer registers are the same in each of its 700,000 turns. Returns its instructions.
fn multiply_floats() -> i64 {
    // SAFETY: a loop that multiplies a register of its own until that is large.
    unsafe {
        std::arch::asm!(
            "2: mulsd {number}, {by}", "ucomisd {number}, {most}", "jb 2b",
            number = inout(xmm_reg) 1.0f64 => _, by = in(xmm_reg) 1.000_1f64, most = in(xmm_reg) 1e30f64,
            options(nomem, nostack),
        );
    }
    2_100_000
}
