//! The recorder of a host: what its threads do, seen through the kernel's tracepoints and so under any scheduler alike.

mod gather;
mod host;
mod load;

use std::cell::RefCell;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use bytemuck::{Pod, Zeroable};
use libbpf_rs::{Link, MapCore, MapFlags, Object, ProgramInput, RingBuffer, RingBufferBuilder};
use nix::time::{ClockId, clock_gettime};
use nix::unistd::Uid;
use rota_model::Model;

use crate::recording::Recording;
use gather::Gathered;
use host::Tenants;
pub use host::{is_rota_in_force, unconfigured};

/// `recorder.bpf.c`, compiled by the build script.
#[repr(align(8))]
struct Aligned<T: ?Sized>(T);
static PROGRAM: &Aligned<[u8]> = &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/recorder.bpf.o")));

/// Of the program that is run by hand, and attached to nothing.
const LOOK: &str = "look";

/// `BPF_F_TEST_RUN_ON_CPU`.
const RUN_ON_CPU: u32 = 1;

/// The kernel's types, by which the program is fitted to it.
const BTF: &str = "/sys/kernel/btf/vmlinux";

/// `struct event` of `recorder.h`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
struct RawEvent {
    at_ns: u64,
    kind: u32,
    cpu: u32,
    tid: i32,
    other: i32,
    how: u32,
    padding: u32,
}

/// `NAME_BYTES` and `MASK_WORDS` of `recorder.h`.
const NAME_BYTES: usize = 16;
const MASK_WORDS: usize = 64;

/// `struct thread` of `recorder.h`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
struct RawThread {
    event: RawEvent,
    cgroup: u64,
    name: [u8; NAME_BYTES],
    is_kernel: u32,
    policy: u32,
    static_prio: i32,
    rt_priority: u32,
    nr_cpus: u32,
    padding: u32,
    cpus: [u64; MASK_WORDS],
}

/// A recorder at work. Dropped, it stops.
pub struct Recorder {
    object: Object,
    links: Vec<Link>,
    ring: RingBuffer<'static>,
    gathered: Rc<RefCell<Gathered>>,
    tenants: Tenants,
    began_ns: u64,
}

impl Recorder {
    /// Begins to record. With a `configured` model its tenants are those of the recording, wherever they are found;
    /// without, each cgroup with threads is one.
    ///
    /// # Errors
    ///
    /// Without root, without cgroups of version 2, without something in the kernel, which is named.
    pub fn start(model: &Model, configured: bool) -> Result<Recorder> {
        ensure!(Uid::effective().is_root(), "only root can record; use sudo");
        ensure!(
            Path::new(BTF).exists(),
            "the kernel does not describe its types: {BTF} is missing; boot one built with CONFIG_DEBUG_INFO_BTF"
        );
        let tenants = Tenants::find(model, configured)?;
        let object = load::load(&PROGRAM.0)?;
        let mut links = Vec::new();
        for program in object.progs_mut().filter(|program| program.name() != LOOK) {
            let name = program.name().to_string_lossy().into_owned();
            links.push(program.attach().with_context(|| format!("attaching the recorder's {name}"))?);
        }
        let gathered = Rc::new(RefCell::new(Gathered::default()));
        let ring = reader(&object, gathered.clone())?;
        let recorder = Recorder { object, links, ring, gathered, tenants, began_ns: now_ns() };
        recorder.look()?;
        Ok(recorder)
    }

    /// Takes what has happened since the last time. To be called often: the kernel keeps 16 MiB.
    ///
    /// # Errors
    ///
    /// If the kernel does not hand it over.
    pub fn read(&mut self) -> Result<()> {
        self.tenants.refresh();
        self.ring.consume().context("reading the recorder's events")
    }

    /// How many events there were so far.
    pub fn events(&self) -> usize {
        self.gathered.borrow().len()
    }

    /// How many of them could not be kept.
    ///
    /// # Errors
    ///
    /// If the kernel does not say.
    pub fn lost(&self) -> Result<u64> {
        let value = map(&self.object, ".bss")?.lookup(&0u32.to_ne_bytes(), MapFlags::ANY)?;
        let value = value.context("the recorder does not count what it loses")?;
        bytemuck::try_pod_read_unaligned(&value).ok().context("a count is a number")
    }

    /// Stops, and returns what was recorded.
    ///
    /// # Errors
    ///
    /// If the kernel does not hand it over, or nothing at all has happened.
    pub fn finish(mut self) -> Result<Recording> {
        self.look()?;
        let duration_ns = now_ns() - self.began_ns;
        self.links.clear();
        self.read()?;
        let lost = self.lost()?;
        let gathered = self.gathered.take();
        if gathered.is_empty() {
            bail!("nothing has happened: not one thread was switched to in {duration_ns} ns");
        }
        self.tenants.recording(gathered, self.began_ns, duration_ns, lost)
    }

    /// Has each CPU say what it runs: a thread that runs alone is never switched from.
    fn look(&self) -> Result<()> {
        let program = self.object.progs_mut().find(|program| program.name() == LOOK);
        let program = program.context("the recorder has no program look")?;
        for place in &self.tenants.host().cpus {
            let input = ProgramInput { cpu: place.cpu, flags: RUN_ON_CPU, ..Default::default() };
            // A CPU that has just gone offline runs nothing.
            let _ = program.test_run(input);
        }
        Ok(())
    }
}

/// Reads the ring into `gathered`.
fn reader(object: &Object, gathered: Rc<RefCell<Gathered>>) -> Result<RingBuffer<'static>> {
    let ring = map(object, "ring")?;
    let mut reader = RingBufferBuilder::new();
    reader.add(&ring, move |bytes| {
        gathered.borrow_mut().take(bytes);
        0
    })?;
    reader.build().context("mapping the recorder's events")
}

/// A map by the end of its name: that of `.bss` begins with the object's.
fn map<'o>(object: &'o Object, name: &str) -> Result<libbpf_rs::Map<'o>> {
    let found = object.maps().find(|map| map.name().to_string_lossy().ends_with(name));
    found.with_context(|| format!("the recorder's BPF program has no map {name}"))
}

/// CLOCK_MONOTONIC, as the BPF program reads it.
fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).expect("the clock is there");
    Duration::from(now).as_nanos() as u64
}
