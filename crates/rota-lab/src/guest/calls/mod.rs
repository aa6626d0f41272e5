//! Which operations of a sched_ext scheduler the kernel calls, in their order: what the simulator's order is held
//! against.

use std::cell::{Cell, RefCell};
use std::io::{Read, Write, copy, sink};
use std::os::fd::AsRawFd;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use bytemuck::{Pod, Zeroable};
use libbpf_rs::query::ProgInfoIter;
use libbpf_rs::{Link, MapCore, MapFlags, Object, ObjectBuilder, Program, RingBufferBuilder};

/// `calls.bpf.c`, compiled by the build script.
#[repr(align(8))]
struct Aligned<T: ?Sized>(T);
static PROGRAM: &Aligned<[u8]> = &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/calls.bpf.o")));

/// `enum call` of `calls.h`, the operations' names, by which the programs are called too.
const CALLS: [&str; 6] = ["select_cpu", "enqueue", "dispatch", "running", "stopping", "update_idle"];

/// What the kernel keeps of a program's name.
const NAME_BYTES: usize = 15;

/// How often the ring is read.
const PACE: Duration = Duration::from_millis(20);

/// `struct record` of `calls.h`.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct Record {
    call: u32,
    task: i32,
    cpu: u32,
    goes_on: u32,
}

impl Record {
    /// As `rota_sim::ext::Order` reads it; of no call that it does not know.
    fn line(&self) -> Option<String> {
        let call = *CALLS.get(self.call as usize)?;
        let (task, cpu) = (self.task, self.cpu);
        Some(
            match call {
                "running" => format!("running {task} on {cpu}"),
                "stopping" if self.goes_on == 0 => format!("stopping {task} blocked"),
                "dispatch" if task == 0 => format!("dispatch {cpu} after nobody"),
                "dispatch" => format!("dispatch {cpu} after {task}"),
                "update_idle" => format!("update_idle {cpu} {}", self.goes_on != 0),
                call => format!("{call} {task}"),
            } + "\n",
        )
    }
}

/// Writes every call of the operations of the loaded scheduler whose programs are called `prefix` and the operation's
/// name, a line each, until there is nothing more to read from `until`.
///
/// # Errors
///
/// There is no such scheduler, a call was lost, or `out` fails.
pub fn trace(prefix: &str, mut until: impl Read + Send + 'static, out: &mut impl Write) -> Result<()> {
    let (object, links) = attach(prefix)?;
    let (lines, keeps) = (RefCell::new(String::new()), Cell::new(false));
    let ring = map(&object, "ring")?;
    let mut reader = RingBufferBuilder::new();
    reader.add(&ring, |bytes| {
        let record = bytemuck::try_pod_read_unaligned(bytes).ok().filter(|_| keeps.get());
        lines.borrow_mut().extend(record.and_then(|record: Record| record.line()));
        0
    })?;
    let reader = reader.build().context("reading the ring")?;
    reader.consume()?; // from when not all were in place
    keeps.set(true);
    let until = thread::spawn(move || copy(&mut until, &mut sink()));
    while !until.is_finished() {
        thread::sleep(PACE);
        reader.consume()?;
        out.write_all(lines.take().as_bytes()).context("writing the calls")?;
    }
    drop(links);
    let lost = map(&object, ".bss")?.lookup(&0u32.to_ne_bytes(), MapFlags::ANY)?;
    ensure!(
        lost.is_some_and(|bytes| bytes.iter().all(|&byte| byte == 0)),
        "calls were lost: they were too many"
    );
    Ok(())
}

/// Each program is put before its operation.
fn attach(prefix: &str) -> Result<(Object, Vec<Link>)> {
    let mut open = ObjectBuilder::default().open_memory(&PROGRAM.0)?;
    let mut targets = Vec::new();
    for mut program in open.progs_mut() {
        let operation = format!("{prefix}{}", program.name().to_string_lossy());
        let short = &operation[..operation.len().min(NAME_BYTES)];
        let found = ProgInfoIter::default().find(|loaded| loaded.name.to_string_lossy() == short);
        let Some(found) = found else { bail!("no {operation} is loaded") };
        let target = Program::fd_from_id(found.id).with_context(|| format!("asking for {operation}"))?;
        program.set_attach_target(target.as_raw_fd(), Some(operation))?;
        targets.push(target);
    }
    let object = open.load().context("loading what stands before the operations")?;
    let links: Result<Vec<Link>, _> = object.progs_mut().map(|program| program.attach()).collect();
    Ok((object, links.context("putting it there")?))
}

/// A map by the end of its name: that of `.bss` begins with the object's.
fn map<'o>(object: &'o Object, name: &str) -> Result<libbpf_rs::Map<'o>> {
    let found = object.maps().find(|map| map.name().to_string_lossy().ends_with(name));
    found.with_context(|| format!("the program has no map {name}"))
}
