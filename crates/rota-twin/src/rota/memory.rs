//! Memory that the scheduler's C reads and writes by address.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr;

/// The largest alignment that the scheduler's structures ask for: a cache line.
const ALIGN: usize = 64;

/// Bytes, zero at first, at an address that stays. No reference to them is ever made: C changes them behind our back.
#[derive(Debug)]
pub struct Memory {
    address: *mut u8,
    layout: Layout,
}

impl Memory {
    /// So many zeros.
    pub fn new(bytes: usize) -> Memory {
        let layout =
            Layout::from_size_align(bytes.max(1), ALIGN).expect("less than half of the address space");
        // SAFETY: the layout has a size above zero.
        let address = unsafe { alloc_zeroed(layout) };
        if address.is_null() {
            handle_alloc_error(layout);
        }
        Memory { address, layout }
    }

    /// Where they are.
    pub fn address(&self) -> *mut u8 {
        self.address
    }

    /// Copies `size` bytes at `offset`.
    pub fn read(&self, offset: usize, size: usize) -> Vec<u8> {
        assert!(offset.checked_add(size).is_some_and(|end| end <= self.layout.size()), "outside of the map");
        let mut bytes = vec![0; size];
        // SAFETY: within our memory; the target is another one; this thread is in no call of the scheduler's.
        unsafe { ptr::copy_nonoverlapping(self.address.add(offset), bytes.as_mut_ptr(), size) };
        bytes
    }

    /// Writes `bytes` at `offset`.
    pub fn write(&mut self, offset: usize, bytes: &[u8]) {
        let end = offset.checked_add(bytes.len());
        assert!(end.is_some_and(|end| end <= self.layout.size()), "outside of the map");
        // SAFETY: as in `read`.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), self.address.add(offset), bytes.len()) };
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout.
        unsafe { dealloc(self.address, self.layout) };
    }
}
