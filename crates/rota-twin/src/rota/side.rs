//! The loader's view of the scheduler in the model: [`rota_sched::Kernel`].
//!
//! Its calls are made within [`enter`](crate::rota::calls::enter), as system calls on one of the machine's CPUs.

use std::cell::Cell;
use std::ffi::c_void;
use std::panic::resume_unwind;
use std::ptr;
use std::rc::Rc;

use anyhow::{Context as _, Result, anyhow, ensure};
use rota_model::CpuSet;
use rota_sched::{Kernel, Memory, Settings};
use rota_sim::CpuId;

use crate::rota::calls::context;
use crate::rota::maps::Maps;
use crate::rota::native::{self, Code};

/// A program of the scheduler's.
type Program = extern "C" fn(*mut c_void) -> i32;

/// This thread's scheduler, for the loader.
#[derive(Clone)]
pub struct Side {
    programs: Vec<(&'static str, Program)>,
    live: Variable,
    exit: Variable,
    attached: bool,
    /// After so many more changes the daemon ends, in the middle of what it does.
    changes_left: Rc<Cell<Option<u64>>>,
}

/// What a daemon that ends unwinds with.
pub struct Ended;

/// A variable of the scheduler's.
#[derive(Clone)]
struct Variable {
    address: *mut u8,
    size: usize,
}

impl Variable {
    fn named(code: &Code, name: &str) -> Variable {
        let (address, size) = native::variable(code, name);
        Variable { address: address.cast(), size: size as usize }
    }

    fn write(&self, offset: usize, bytes: &[u8]) {
        assert!(offset + bytes.len() <= self.size, "outside of the variable");
        // SAFETY: within a variable of this thread's, of which there are no references in Rust.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), self.address.add(offset), bytes.len()) };
    }

    fn read(&self, offset: usize, bytes: &mut [u8]) {
        assert!(offset + bytes.len() <= self.size, "outside of the variable");
        // SAFETY: as in `write`.
        unsafe { ptr::copy_nonoverlapping(self.address.add(offset), bytes.as_mut_ptr(), bytes.len()) };
    }
}

/// Loads this thread's scheduler: its settings and its maps.
pub fn load(code: &Code, settings: &Settings) -> (Side, Maps) {
    Variable::named(code, "settings").write(0, bytemuck::bytes_of(settings));
    let maps = Maps::new(native::maps(code), |name| {
        (settings.entries(name).expect("a map of known size"), settings.table_bytes)
    });
    let (live, exit) = (Variable::named(code, "live"), Variable::named(code, "exit_info"));
    let programs = native::programs(code);
    (Side { programs, live, exit, attached: false, changes_left: Rc::default() }, maps)
}

impl Side {
    /// The same scheduler, as the next daemon finds it.
    pub fn found(&self) -> Side {
        Side { attached: true, changes_left: Rc::default(), ..self.clone() }
    }

    /// The daemon that has this ends when it has made so many changes.
    pub fn ends_after(&self, changes: u64) {
        self.changes_left.set(Some(changes));
    }

    /// One more change is made, or the daemon ends before it.
    fn changes(&self) {
        match self.changes_left.get() {
            Some(0) => resume_unwind(Box::new(Ended)),
            left => self.changes_left.set(left.map(|left| left - 1)),
        }
    }
}

impl Kernel for Side {
    fn attach(&mut self) -> Result<()> {
        self.attached = true;
        Ok(())
    }

    fn is_attached(&self) -> bool {
        self.attached
    }

    fn now_ns(&self) -> u64 {
        context().kernel.machine.now_ns()
    }

    fn online(&self) -> Result<CpuSet> {
        let machine = &context().kernel.machine;
        Ok((0..machine.nr_cpus()).filter(|&cpu| machine.cpu(CpuId(cpu)).online).collect())
    }

    fn write(&self, memory: Memory, offset: usize, bytes: &[u8]) {
        self.changes();
        match memory {
            Memory::Tables => context().model.maps.write("tables", offset, bytes),
            Memory::Live => self.live.write(offset, bytes),
            Memory::Exit => self.exit.write(offset, bytes),
        }
    }

    fn read(&self, memory: Memory, offset: usize, bytes: &mut [u8]) {
        match memory {
            Memory::Tables => context().model.maps.read("tables", offset, bytes),
            Memory::Live => self.live.read(offset, bytes),
            Memory::Exit => self.exit.read(offset, bytes),
        }
    }

    fn put_bytes(&self, map: &str, key: &[u8], value: &[u8]) -> Result<()> {
        self.changes();
        ensure!(context().model.maps.put(map, key, value), "no room in {map}, or no such map");
        Ok(())
    }

    fn remove_bytes(&self, map: &str, key: &[u8]) -> Result<()> {
        self.changes();
        context().model.maps.remove(map, key);
        Ok(())
    }

    fn entry(&self, map: &str, index: u32) -> Result<Vec<u8>> {
        context().model.maps.entry(map, index).with_context(|| format!("{map} has no entry {index}"))
    }

    fn entries(&self, map: &str) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        context().model.maps.entries(map).with_context(|| format!("there is no map {map} of that kind"))
    }

    fn run(&self, program: &str, argument: &mut [u8]) -> Result<i32> {
        self.changes();
        let found = self.programs.iter().find(|(name, _)| *name == program);
        let (_, run) = found.ok_or_else(|| anyhow!("the scheduler has no program {program}"))?;
        Ok(run(argument.as_mut_ptr().cast()))
    }
}
