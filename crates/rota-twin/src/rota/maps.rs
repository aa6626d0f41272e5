//! The scheduler's maps: memory of ours that its variables point to.

use std::collections::BTreeMap;
use std::ptr;

use rota_sim::fetch::fetch_bytes;

use crate::rota::memory::Memory;
use crate::rota::native::{MapDefinition, NativeMap, kind};

#[derive(Debug)]
struct Hash {
    definition: MapDefinition,
    values: BTreeMap<u64, Memory>,
}

#[derive(Debug)]
struct Array {
    definition: MapDefinition,
    values: Memory,
    entries: u32,
    /// Bytes from one entry to the next, and of one entry.
    stride: usize,
    size: usize,
}

/// This thread's maps.
#[derive(Debug)]
pub struct Maps {
    arrays: Vec<Array>,
    hashes: Vec<Hash>,
    /// Which of the arrays has the state of each CPU.
    cpus: Option<usize>,
    /// Bytes of a task's value in the task storage map.
    pub storage_size: usize,
}

/// Of `struct cpu_ctx` so many bytes are looked at again and again; the rest is room for a second level of many.
const CPU_HEAD: usize = 544;

/// Keys are integers of up to 8 bytes.
fn key_of(bytes: &[u8]) -> u64 {
    let mut key = [0; 8];
    key[..bytes.len()].copy_from_slice(bytes);
    u64::from_le_bytes(key)
}

impl Maps {
    /// Makes the maps. `sizes` says of an array how many entries it has, and how large one is if the map does not say.
    pub fn new(definitions: Vec<MapDefinition>, sizes: impl Fn(&str) -> (u32, u32)) -> Maps {
        let mut maps = Maps { arrays: Vec::new(), hashes: Vec::new(), cpus: None, storage_size: 0 };
        for definition in definitions {
            match definition.kind {
                kind::ARRAY => maps.arrays.push(Array::new(definition, sizes(definition.name))),
                kind::HASH => maps.hashes.push(Hash { definition, values: BTreeMap::new() }),
                kind::PERF_EVENT_ARRAY => {} // the calls that read it ask the model
                kind::TASK_STORAGE => maps.storage_size = definition.value_size as usize,
                other => panic!("{}: the model has no maps of type {other}", definition.name),
            }
        }
        maps.cpus = maps.arrays.iter().position(|array| array.definition.name == "cpus");
        maps
    }

    fn array(&mut self, name: &str) -> Option<&mut Array> {
        self.arrays.iter_mut().find(|array| array.definition.name == name)
    }

    /// An array's entry as bytes.
    pub fn entry(&mut self, name: &str, index: u32) -> Option<Vec<u8>> {
        let array = self.array(name)?;
        (index < array.entries).then(|| array.values.read(index as usize * array.stride, array.size))
    }

    /// Writes an entry, as the kernel does: whole, with zeros where `value` ends before it. False if there is no room
    /// for it, or no such map.
    pub fn put(&mut self, name: &str, key: &[u8], value: &[u8]) -> bool {
        let mut whole = value.to_vec();
        if let Some(array) = self.array(name) {
            let index = key_of(key);
            let fits = index < u64::from(array.entries) && value.len() <= array.size;
            if fits {
                whole.resize(array.size, 0);
                array.values.write(index as usize * array.stride, &whole);
            }
            return fits;
        }
        let Some(hash) = self.hashes.iter_mut().find(|hash| hash.definition.name == name) else {
            return false;
        };
        let size = hash.definition.value_size as usize;
        whole.resize(size, 0);
        hash.values.entry(key_of(key)).or_insert_with(|| Memory::new(size)).write(0, &whole);
        true
    }

    /// Has what is looked at of a CPU's state come.
    pub fn foresee_cpu(&self, cpu: u32) {
        if let Some(Array { values, stride, .. }) = self.cpus.map(|place| &self.arrays[place]) {
            fetch_bytes(values.address().wrapping_add(cpu as usize * stride), CPU_HEAD);
        }
    }

    /// Removes a hash map's entry.
    pub fn remove(&mut self, name: &str, key: &[u8]) {
        if let Some(hash) = self.hashes.iter_mut().find(|hash| hash.definition.name == name) {
            hash.values.remove(&key_of(key));
        }
    }

    /// All entries of a hash map: key and value.
    pub fn entries(&self, name: &str) -> Option<Vec<(Vec<u8>, Vec<u8>)>> {
        let hash = self.hashes.iter().find(|hash| hash.definition.name == name)?;
        let (key_size, value_size) = (hash.definition.key_size as usize, hash.definition.value_size as usize);
        let entry = |(key, value): (&u64, &Memory)| {
            (key.to_le_bytes()[..key_size].to_vec(), value.read(0, value_size))
        };
        Some(hash.values.iter().map(entry).collect())
    }

    /// Writes bytes anywhere in an array, as a program does that has mapped it.
    pub fn write(&mut self, name: &str, offset: usize, bytes: &[u8]) {
        self.array(name).expect("a map of that name").values.write(offset, bytes);
    }

    /// `bpf_map_lookup_elem` of a hash map: the value's address, or null.
    ///
    /// # Safety
    ///
    /// `key` is the address of a key of the map `map`.
    pub unsafe fn find(&self, map: *const NativeMap, key: *const u8) -> *mut u8 {
        let hash = self.hashes.iter().find(|hash| ptr::eq(hash.definition.map, map));
        let hash = hash.expect("the scheduler looks into its maps only");
        let mut bytes = [0; 8];
        // SAFETY: the caller's promise; no key is longer than 8 bytes.
        unsafe { ptr::copy_nonoverlapping(key, bytes.as_mut_ptr(), hash.definition.key_size as usize) };
        hash.values.get(&u64::from_le_bytes(bytes)).map_or(ptr::null_mut(), Memory::address)
    }

    /// Reads bytes anywhere in an array.
    pub fn read(&mut self, name: &str, offset: usize, bytes: &mut [u8]) {
        let values = &self.array(name).expect("a map of that name").values;
        bytes.copy_from_slice(&values.read(offset, bytes.len()));
    }

    /// The address of the array's entry in which `inside` points, and its index.
    pub fn entry_at(&self, map: *const NativeMap, inside: *const u8) -> Option<(*mut u8, u32)> {
        let array = self.arrays.iter().find(|array| ptr::eq(array.definition.map, map))?;
        let offset = (inside as usize).checked_sub(array.values.address() as usize)?;
        let index = offset / array.stride;
        let address = array.values.address().wrapping_add(index * array.stride);
        (index < array.entries as usize).then_some((address, index as u32))
    }
}

impl Array {
    fn new(definition: MapDefinition, (entries, value_size): (u32, u32)) -> Array {
        let size = if definition.value_size > 0 { definition.value_size } else { value_size };
        let stride = size.next_multiple_of(8);
        let values = Memory::new(stride as usize * entries as usize);
        // SAFETY: a variable of this thread's scheduler, larger than this, which it does not look into yet.
        unsafe { *definition.map = NativeMap { values: values.address(), entries, value_size: stride } };
        Array { definition, values, entries, stride: stride as usize, size: size as usize }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_written_whole() {
        let map = ptr::null_mut();
        let hash = MapDefinition { name: "hash", map, kind: kind::HASH, key_size: 4, value_size: 8 };
        let mut native = NativeMap { values: ptr::null_mut(), entries: 0, value_size: 0 };
        let array =
            MapDefinition { name: "array", map: &mut native, kind: kind::ARRAY, key_size: 4, value_size: 8 };
        let mut maps = Maps::new(vec![hash, array], |_| (2, 0));
        for name in ["hash", "array"] {
            assert!(maps.put(name, &[1], &[1; 8]) && maps.put(name, &[1], &[2; 4]), "{name}");
        }
        let whole = vec![2, 2, 2, 2, 0, 0, 0, 0];
        assert_eq!(maps.entry("array", 1).as_ref(), Some(&whole));
        assert_eq!(maps.hashes[0].values[&1].read(0, 8), whole);
    }
}
