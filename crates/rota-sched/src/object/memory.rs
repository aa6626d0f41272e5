//! Memory that the kernel and this program see at once.

use std::ffi::c_void;
use std::num::NonZeroUsize;
use std::os::fd::AsFd;
use std::ptr::NonNull;

use anyhow::{Context, Result};
use libbpf_rs::{MapCore, MapHandle};
use nix::sys::mman::{MapFlags as MmapFlags, ProtFlags, mmap, munmap};

/// Memory that the kernel and this program share: a map's values.
pub struct Shared {
    address: NonNull<c_void>,
    length: usize,
}

// SAFETY: the mapping belongs to the process and to no thread, and to this value alone.
unsafe impl Send for Shared {}

impl Shared {
    /// Maps the values of an array map into this program.
    pub fn new(map: &MapHandle, length: usize) -> Result<Shared> {
        let size = NonZeroUsize::new(length).context("an empty map")?;
        let access = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory of ours.
        let address = unsafe { mmap(None, size, access, MmapFlags::MAP_SHARED, map.as_fd(), 0) }
            .with_context(|| format!("mapping {}", map.name().to_string_lossy()))?;
        Ok(Shared { address, length })
    }

    /// Writes `bytes` at `offset`.
    ///
    /// The kernel may read them at any time; the caller writes only what nothing in the kernel uses yet.
    pub fn write(&self, offset: usize, bytes: &[u8]) {
        assert!(offset.checked_add(bytes.len()).is_some_and(|end| end <= self.length), "outside of the map");
        // SAFETY: within the mapping, which lives as long as `self`; source and target are different memory.
        unsafe {
            let target = self.address.as_ptr().cast::<u8>().add(offset);
            target.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
        }
    }

    /// Reads bytes at `offset`, which is a multiple of 8.
    pub fn read(&self, offset: usize, bytes: &mut [u8]) {
        assert!(offset.checked_add(bytes.len()).is_some_and(|end| end <= self.length), "outside of the map");
        for (place, chunk) in bytes.chunks_mut(8).enumerate() {
            // SAFETY: within the mapping, which is whole pages, and aligned; the kernel changes it by whole words, and
            // volatile reads each word anew.
            let word: u64 = unsafe {
                self.address.as_ptr().cast::<u8>().add(offset + place * 8).cast::<u64>().read_volatile()
            };
            chunk.copy_from_slice(&word.to_ne_bytes()[..chunk.len()]);
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: the mapping made in `new`, used by nobody else.
        unsafe { munmap(self.address, self.length) }.expect("unmapping what was mapped");
    }
}
