//! Asks for memory before it is needed: nothing changes but how long that takes.

/// The bytes of a cache line.
const LINE: usize = 64;

/// Has all of it come.
pub fn fetch<T>(of: &T) {
    fetch_bytes((&raw const *of).cast(), size_of::<T>());
}

/// Has the beginning come of something whose size is not known.
pub fn fetch_start<T: ?Sized>(of: *const T) {
    fetch_bytes(of.cast(), 2 * LINE);
}

/// Has so many bytes come. The address may be any.
pub fn fetch_bytes(at: *const u8, bytes: usize) {
    for offset in (0..bytes).step_by(LINE) {
        hint(at.wrapping_add(offset));
    }
}

#[cfg(target_arch = "x86_64")]
fn hint(at: *const u8) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    // SAFETY: it reads nothing, and an address where nothing is does no harm.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) };
}

#[cfg(not(target_arch = "x86_64"))]
fn hint(_: *const u8) {}
