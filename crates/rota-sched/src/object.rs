//! The BPF object: opened with its sizes set, loaded, attached; its maps and programs by name.

use std::ffi::c_void;
use std::fs;
use std::num::NonZeroUsize;
use std::os::fd::AsFd;
use std::ptr::NonNull;

use anyhow::{Context, Result, anyhow};
use libbpf_rs::{
    Link, MapCore, MapFlags, MapMut, Object, ObjectBuilder, OpenMapMut, OpenObject, ProgramInput,
};
use nix::sys::mman::{MapFlags as MmapFlags, ProtFlags, mmap, munmap};
use nix::time::{ClockId, clock_gettime};
use rota_model::CpuSet;

use crate::kernel::{Kernel, Memory};
use crate::shared::{NR_BUFFERS, Settings};

/// The compiled scheduler, embedded.
static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/rota.bpf.o"));

/// Memory that the kernel and this program share: a map's values.
struct Shared {
    address: NonNull<c_void>,
    length: usize,
}

impl Shared {
    /// Maps the values of an array map into this program.
    fn new(map: &MapMut<'_>, length: usize) -> Result<Shared> {
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
    fn write(&self, offset: usize, bytes: &[u8]) {
        assert!(offset.checked_add(bytes.len()).is_some_and(|end| end <= self.length), "outside of the map");
        // SAFETY: within the mapping, which lives as long as `self`; source and target are different memory.
        unsafe {
            let target = self.address.as_ptr().cast::<u8>().add(offset);
            target.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
        }
    }

    /// Reads bytes at `offset`, which is a multiple of 8.
    fn read(&self, offset: usize, bytes: &mut [u8]) {
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

/// The loaded and attached scheduler. Dropping it detaches.
pub struct Loaded {
    object: Object,
    tables: Shared,
    live: Shared,
    exit: Shared,
    link: Option<Link>,
}

/// Sets the sizes of one map before loading.
fn size_map(map: &mut OpenMapMut<'_>, settings: &Settings) -> Result<()> {
    let name = map.name().to_string_lossy().into_owned();
    if name == ".rodata.settings" {
        let value = map.initial_value_mut().context("settings have a value")?;
        value.copy_from_slice(bytemuck::bytes_of(settings));
    }
    if name == "tables" {
        map.set_value_size(settings.table_bytes)?;
    }
    settings.entries(&name).map_or(Ok(()), |entries| Ok(map.set_max_entries(entries)?))
}

fn open(settings: &Settings) -> Result<OpenObject> {
    let mut object =
        ObjectBuilder::default().open_memory(OBJECT).context("reading the scheduler's object")?;
    for mut map in object.maps_mut() {
        size_map(&mut map, settings)?;
    }
    Ok(object)
}

impl Loaded {
    /// Loads the object. The scheduler is not attached yet, so that its maps can be filled first.
    ///
    /// # Errors
    ///
    /// The kernel has no sched_ext, lacks a call that is needed, or this process may not load programs.
    pub fn load(settings: &Settings) -> Result<Loaded> {
        let mut object = open(settings)?.load().context("loading the scheduler into the kernel")?;
        let tables =
            Shared::new(&map_mut(&mut object, "tables")?, settings.table_bytes as usize * NR_BUFFERS)?;
        let page = |length: usize| length.next_multiple_of(4096);
        let live = Shared::new(&map_mut(&mut object, ".data.live")?, page(size_of::<crate::shared::Live>()))?;
        let exit = Shared::new(&map_mut(&mut object, ".data.exit")?, page(size_of::<crate::shared::Exit>()))?;
        Ok(Loaded { object, tables, live, exit, link: None })
    }

    fn map(&self, name: &str) -> Result<impl MapCore + '_> {
        self.object
            .maps()
            .find(|map| map.name() == name)
            .ok_or_else(|| anyhow!("the scheduler has no map {name}"))
    }

    fn memory(&self, memory: Memory) -> &Shared {
        match memory {
            Memory::Tables => &self.tables,
            Memory::Live => &self.live,
            Memory::Exit => &self.exit,
        }
    }
}

/// The CPUs that are online, as a list.
const ONLINE: &str = "/sys/devices/system/cpu/online";

impl Kernel for Loaded {
    fn attach(&mut self) -> Result<()> {
        let link =
            map_mut(&mut self.object, "rota")?.attach_struct_ops().context("enabling the scheduler")?;
        self.link = Some(link);
        Ok(())
    }

    fn is_attached(&self) -> bool {
        self.link.is_some()
    }

    fn now_ns(&self) -> u64 {
        let now = clock_gettime(ClockId::CLOCK_MONOTONIC).expect("the clock is there");
        now.tv_sec() as u64 * 1_000_000_000 + now.tv_nsec() as u64
    }

    fn online(&self) -> Result<CpuSet> {
        let online = fs::read_to_string(ONLINE).with_context(|| format!("reading {ONLINE}"))?;
        online.trim().parse().with_context(|| format!("{ONLINE}: {online}"))
    }

    fn write(&self, memory: Memory, offset: usize, bytes: &[u8]) {
        self.memory(memory).write(offset, bytes);
    }

    fn read(&self, memory: Memory, offset: usize, bytes: &mut [u8]) {
        self.memory(memory).read(offset, bytes);
    }

    fn put_bytes(&self, map: &str, key: &[u8], value: &[u8]) -> Result<()> {
        let entry = self.map(map)?;
        let mut whole = value.to_vec();
        whole.resize(entry.value_size() as usize, 0);
        let written = entry.update(key, &whole, MapFlags::ANY);
        written.map_err(|error| anyhow!(error).context(format!("writing an entry of {map}; it may be full")))
    }

    fn remove_bytes(&self, map: &str, key: &[u8]) -> Result<()> {
        match self.map(map)?.delete(key) {
            Err(error) if error.kind() == libbpf_rs::ErrorKind::NotFound => Ok(()),
            result => result.with_context(|| format!("removing an entry of {map}")),
        }
    }

    fn entry(&self, map: &str, index: u32) -> Result<Vec<u8>> {
        let value = self.map(map)?.lookup(bytemuck::bytes_of(&index), MapFlags::ANY)?;
        value.with_context(|| format!("{map} has no entry {index}"))
    }

    fn run(&self, program: &str, argument: &mut [u8]) -> Result<i32> {
        let handle = self
            .object
            .progs_mut()
            .find(|candidate| candidate.name() == program)
            .ok_or_else(|| anyhow!("the scheduler has no program {program}"))?;
        let input = ProgramInput { context_in: Some(argument), ..Default::default() };
        Ok(handle.test_run(input)?.return_value as i32)
    }
}

fn map_mut<'a>(object: &'a mut Object, name: &str) -> Result<MapMut<'a>> {
    object.maps_mut().find(|map| map.name() == name).ok_or_else(|| anyhow!("the scheduler has no map {name}"))
}
