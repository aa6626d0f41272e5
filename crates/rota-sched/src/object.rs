//! The BPF object: opened with its sizes set, loaded, attached, pinned; its maps and programs by name.

mod heart;
pub mod memory;

use std::collections::BTreeMap;
use std::fs;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use libbpf_rs::{
    Link, MapCore, MapFlags, MapHandle, Object, ObjectBuilder, OpenMapMut, OpenObject, Program, ProgramType,
    libbpf_sys,
};
use nix::time::{ClockId, clock_gettime};
use rota_model::CpuSet;

use crate::kernel::{Kernel, Memory};
use crate::pins::{Kind, Pins, pinned_map};
use crate::shared::{self, NR_BUFFERS, Settings};
use heart::Heart;
use memory::Shared;

/// The compiled scheduler, embedded.
static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/rota.bpf.o"));

/// Which scheduler this is: FNV-1a of the object. Another build's maps and programs are not touched.
fn build() -> u64 {
    OBJECT
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

/// CLOCK_MONOTONIC in ns, the clock of the scheduler.
pub(crate) fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).expect("the clock is there");
    now.tv_sec() as u64 * 1_000_000_000 + now.tv_nsec() as u64
}

/// The scheduler in the running kernel. Dropping it detaches the scheduler, if that is not pinned.
pub struct Loaded {
    maps: BTreeMap<String, MapHandle>,
    programs: BTreeMap<String, OwnedFd>,
    tables: Shared,
    live: Shared,
    exit: Shared,
    link: Option<Link>,
    /// What was loaded, if this process has loaded it.
    object: Option<Object>,
    /// Where the link is pinned, or will be.
    pins: Option<Rc<Pins>>,
    /// While this process lives the scheduler is told so, if it goes on without for some time.
    heart: Option<Heart>,
}

/// Sets the sizes of one map before loading.
fn size_map(map: &mut OpenMapMut<'_>, settings: &Settings) -> Result<()> {
    let name = map.name().to_string_lossy().into_owned();
    if name == SETTINGS {
        let value = map.initial_value_mut().context("settings have a value")?;
        value.copy_from_slice(bytemuck::bytes_of(settings));
    }
    if name == "tables" {
        map.set_value_size(settings.table_bytes)?;
    }
    settings.entries(&name).map_or(Ok(()), |entries| Ok(map.set_max_entries(entries)?))
}

/// The map of what the scheduler was loaded for.
const SETTINGS: &str = ".rodata.settings";
/// The map of what loader and scheduler both touch while it runs.
const LIVE: &str = ".data.live";

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
        let object = open(settings)?.load().context("loading the scheduler into the kernel")?;
        let named = |map: libbpf_rs::Map<'_>| {
            Ok((map.name().to_string_lossy().into_owned(), MapHandle::try_from(&map)?))
        };
        let maps = object.maps().map(named).collect::<Result<_>>()?;
        let called = object.progs().filter(|program| program.prog_type() == ProgramType::Syscall);
        let named = |program: Program<'_>| {
            Ok((program.name().to_string_lossy().into_owned(), program.as_fd().try_clone_to_owned()?))
        };
        let programs = called.map(named).collect::<Result<_>>()?;
        Loaded::of(maps, programs, settings.table_bytes, Some(object))
    }

    fn of(
        maps: BTreeMap<String, MapHandle>,
        programs: BTreeMap<String, OwnedFd>,
        table_bytes: u32,
        object: Option<Object>,
    ) -> Result<Loaded> {
        let page = |length: usize| length.next_multiple_of(4096);
        let memory = |name: &str, length| Shared::new(named(&maps, name)?, length);
        let tables = memory("tables", table_bytes as usize * NR_BUFFERS)?;
        let live = memory(LIVE, page(size_of::<shared::Live>()))?;
        let exit = memory(".data.exit", page(size_of::<shared::Exit>()))?;
        Ok(Loaded { maps, programs, tables, live, exit, link: None, object, pins: None, heart: None })
    }

    /// Tells the scheduler from now on that this process lives, four times in `grace`.
    pub(crate) fn live(&mut self, grace: Duration) -> Result<()> {
        let live = Shared::new(named(&self.maps, LIVE)?, size_of::<shared::Live>().next_multiple_of(4096))?;
        self.heart = Some(Heart::start(live, grace / 4)?);
        Ok(())
    }

    /// Has the scheduler outlive this process, from when it is attached on.
    pub(crate) fn pin(&mut self, pins: &Rc<Pins>) -> Result<()> {
        for (name, map) in &self.maps {
            pins.pin(Kind::Map, name, map.as_fd())?;
        }
        for (name, program) in &self.programs {
            pins.pin(Kind::Program, name, program.as_fd())?;
        }
        self.pins = Some(pins.clone());
        Ok(())
    }

    /// The scheduler that another process has left behind, and what it was loaded for.
    ///
    /// # Errors
    ///
    /// It is of another build, or has ended.
    pub(crate) fn take_over(pins: &Rc<Pins>) -> Result<(Loaded, Settings)> {
        let link = Link::open(pins.link()).context("opening the link to the scheduler")?;
        let maps = pins.all(Kind::Map)?.into_iter();
        let opened = |(name, path)| Ok((name, MapHandle::from_pinned_path(path)?));
        let maps: BTreeMap<String, MapHandle> = maps.map(opened).collect::<Result<_>>()?;
        let settings = settings_of_this_build(named(&maps, SETTINGS)?)?;
        let programs = pins.all(Kind::Program)?.into_iter();
        let opened = |(name, path)| Ok((name, Program::fd_from_pinned_path(path)?));
        let programs = programs.map(opened).collect::<Result<_>>()?;
        let loaded = Loaded::of(maps, programs, settings.table_bytes, None)?;
        Ok((Loaded { link: Some(link), pins: Some(pins.clone()), ..loaded }, settings))
    }

    /// What a scheduler of this build is loaded with.
    pub(crate) fn settings(settings: Settings) -> Settings {
        Settings { build: build(), ..settings }
    }

    /// Where it is pinned.
    pub(crate) fn pins(&self) -> Option<&Rc<Pins>> {
        self.pins.as_ref()
    }

    fn map(&self, name: &str) -> Result<&MapHandle> {
        named(&self.maps, name)
    }

    fn memory(&self, memory: Memory) -> &Shared {
        match memory {
            Memory::Tables => &self.tables,
            Memory::Live => &self.live,
            Memory::Exit => &self.exit,
        }
    }
}

/// What a scheduler was loaded for.
///
/// # Errors
///
/// It is of another build.
fn settings_of_this_build(map: &MapHandle) -> Result<Settings> {
    let other_build = || anyhow!("it is of another build of Rota");
    let settings = map.lookup(&0u32.to_ne_bytes(), MapFlags::ANY)?.context("it has no settings")?;
    let settings: Settings = *bytemuck::try_from_bytes(&settings).map_err(|_| other_build())?;
    ensure!(settings.build == build(), other_build());
    Ok(settings)
}

/// A map of the scheduler that is pinned in the BPF file system at `root`, while another process has it.
///
/// # Errors
///
/// None is pinned, it is of another build, or this process may not look at it.
pub(crate) fn map_of_this_build(root: &Path, name: &str) -> Result<MapHandle> {
    settings_of_this_build(&pinned_map(root, SETTINGS)?)?;
    pinned_map(root, name)
}

fn named<'a>(maps: &'a BTreeMap<String, MapHandle>, name: &str) -> Result<&'a MapHandle> {
    maps.get(name).ok_or_else(|| anyhow!("the scheduler has no map {name}"))
}

/// The CPUs that are online, as a list.
const ONLINE: &str = "/sys/devices/system/cpu/online";

impl Kernel for Loaded {
    fn attach(&mut self) -> Result<()> {
        let object = self.object.as_mut().context("a scheduler is attached once")?;
        let mut rota = object.maps_mut().find(|map| map.name() == "rota").context("it has no operations")?;
        let mut link = rota.attach_struct_ops().context("enabling the scheduler")?;
        if let Some(pins) = &self.pins {
            link.pin(pins.link()).context("pinning the link to the scheduler")?;
        }
        self.link = Some(link);
        Ok(())
    }

    fn is_attached(&self) -> bool {
        self.link.is_some()
    }

    fn now_ns(&self) -> u64 {
        now_ns()
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

    fn entries(&self, map: &str) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let map = self.map(map)?;
        let with_value = |key: Vec<u8>| Ok(map.lookup(&key, MapFlags::ANY)?.map(|value| (key, value)));
        map.keys().filter_map(|key| with_value(key).transpose()).collect()
    }

    fn run(&self, program: &str, argument: &mut [u8]) -> Result<i32> {
        let called = self.programs.get(program);
        let called = called.ok_or_else(|| anyhow!("the scheduler has no program {program}"))?;
        let mut options = libbpf_sys::bpf_test_run_opts {
            sz: size_of::<libbpf_sys::bpf_test_run_opts>() as u64,
            ctx_in: argument.as_mut_ptr().cast(),
            ctx_size_in: argument.len() as u32,
            ..Default::default()
        };
        // SAFETY: the argument outlives the call, and has the length that is given; nothing else is pointed to.
        let error = unsafe { libbpf_sys::bpf_prog_test_run_opts(called.as_raw_fd(), &mut options) };
        ensure!(error == 0, std::io::Error::from_raw_os_error(-error));
        Ok(options.retval as i32)
    }
}
