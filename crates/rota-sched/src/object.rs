//! The BPF object: opened with its sizes set, loaded, attached; its maps and programs by name.

use std::ffi::c_void;
use std::num::NonZeroUsize;
use std::os::fd::AsFd;
use std::ptr::NonNull;

use anyhow::{Context, Result, anyhow};
use bytemuck::{Pod, Zeroable};
use libbpf_rs::{
    Link, MapCore, MapFlags, MapMut, Object, ObjectBuilder, OpenMapMut, OpenObject, ProgramInput,
};
use nix::sys::mman::{MapFlags as MmapFlags, ProtFlags, mmap, munmap};

use crate::shared::{CpuView, NR_BUFFERS, Settings};

/// The compiled scheduler, embedded.
static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/rota.bpf.o"));

/// How many cgroups and vCPU threads can be bound at once.
const BINDINGS_MAX: u32 = 1 << 16;

/// Memory that the kernel and this program share: a map's values.
pub struct Shared {
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
    pub fn write(&self, offset: usize, bytes: &[u8]) {
        assert!(offset.checked_add(bytes.len()).is_some_and(|end| end <= self.length), "outside of the map");
        // SAFETY: within the mapping, which lives as long as `self`; source and target are different memory.
        unsafe {
            let target = self.address.as_ptr().cast::<u8>().add(offset);
            target.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
        }
    }

    /// Reads a value at `offset`, which is a multiple of 8.
    pub fn read<T: Pod>(&self, offset: usize) -> T {
        assert!(
            offset.checked_add(size_of::<T>()).is_some_and(|end| end <= self.length),
            "outside of the map"
        );
        // SAFETY: within the mapping and aligned (pages, and offsets of 8); any bytes are a value of a Pod type; the
        // kernel changes them by whole words, and volatile reads each word anew.
        unsafe { self.address.as_ptr().cast::<u8>().add(offset).cast::<T>().read_volatile() }
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
    /// Both table buffers.
    pub tables: Shared,
    /// What loader and scheduler both touch.
    pub live: Shared,
    /// How the scheduler ended.
    pub exit: Shared,
    link: Option<Link>,
}

/// Sets the sizes of one map before loading.
fn size_map(map: &mut OpenMapMut<'_>, settings: &Settings) -> Result<()> {
    let name = map.name().to_string_lossy().into_owned();
    let entries = match name.as_str() {
        "views" => settings.nr_cpus * NR_BUFFERS as u32,
        "cpus" => settings.nr_cpus,
        "queues" => settings.nr_queues,
        "tenants" => settings.nr_tenants,
        "cgroups" | "vcpu_threads" => BINDINGS_MAX,
        "tables" => return Ok(map.set_value_size(settings.table_bytes)?),
        ".rodata.settings" => {
            let value = map.initial_value_mut().context("settings have a value")?;
            value.copy_from_slice(bytemuck::bytes_of(settings));
            return Ok(());
        }
        _ => return Ok(()),
    };
    Ok(map.set_max_entries(entries)?)
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

    /// Hands the CPUs over to the scheduler.
    pub fn attach(&mut self) -> Result<()> {
        let link =
            map_mut(&mut self.object, "rota")?.attach_struct_ops().context("enabling the scheduler")?;
        self.link = Some(link);
        Ok(())
    }

    /// Whether the scheduler was attached and not yet detached by this program.
    pub fn is_attached(&self) -> bool {
        self.link.is_some()
    }

    fn map(&self, name: &str) -> Result<impl MapCore + '_> {
        self.object
            .maps()
            .find(|map| map.name() == name)
            .ok_or_else(|| anyhow!("the scheduler has no map {name}"))
    }

    /// Writes a map's entry.
    pub fn put<K: Pod, V: Pod>(&self, map: &str, key: K, value: &V) -> Result<()> {
        let entry = self.map(map)?;
        entry
            .update(bytemuck::bytes_of(&key), bytemuck::bytes_of(value), MapFlags::ANY)
            .map_err(|error| anyhow!(error).context(format!("writing an entry of {map}; it may be full")))
    }

    /// Removes a map's entry, if it is there.
    pub fn remove<K: Pod>(&self, map: &str, key: K) -> Result<()> {
        match self.map(map)?.delete(bytemuck::bytes_of(&key)) {
            Err(error) if error.kind() == libbpf_rs::ErrorKind::NotFound => Ok(()),
            result => result.with_context(|| format!("removing an entry of {map}")),
        }
    }

    /// A map's entry as bytes.
    pub fn entry(&self, map: &str, key: u32) -> Result<Vec<u8>> {
        let value = self.map(map)?.lookup(bytemuck::bytes_of(&key), MapFlags::ANY)?;
        value.with_context(|| format!("{map} has no entry {key}"))
    }

    /// Writes a map's entry whose type only the kernel side knows.
    pub fn put_bytes<K: Pod>(&self, map: &str, key: K, value: &[u8]) -> Result<()> {
        Ok(self.map(map)?.update(bytemuck::bytes_of(&key), value, MapFlags::ANY)?)
    }

    /// Writes the view of one CPU in one buffer.
    pub fn put_view(&self, settings: &Settings, buffer: u32, cpu: u32, view: &CpuView) -> Result<()> {
        self.put("views", buffer * settings.nr_cpus + cpu, view)
    }

    /// Runs one of the scheduler's programs on `argument`, which it may change.
    pub fn call<T: Pod + Zeroable>(&self, program: &str, argument: &mut T) -> Result<()> {
        let program_handle = self
            .object
            .progs_mut()
            .find(|candidate| candidate.name() == program)
            .ok_or_else(|| anyhow!("the scheduler has no program {program}"))?;
        let input = ProgramInput { context_in: Some(bytemuck::bytes_of_mut(argument)), ..Default::default() };
        let output = program_handle.test_run(input).with_context(|| format!("running {program}"))?;
        match output.return_value as i32 {
            0 => Ok(()),
            error => Err(anyhow!("the scheduler's program {program} failed: error {error}")),
        }
    }
}

fn map_mut<'a>(object: &'a mut Object, name: &str) -> Result<MapMut<'a>> {
    object.maps_mut().find(|map| map.name() == name).ok_or_else(|| anyhow!("the scheduler has no map {name}"))
}
