//! The vsock context id of a VM: the address by which the kernel knows who connects.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::vm::context_of_command;

/// A command line is no longer where a monitor's name is looked for.
const COMMAND_MAX: usize = 32 << 10;

/// A process's command line, which can be read again. It is that process's alone: what gets its number later is another
/// one.
#[derive(Debug)]
pub struct CommandLine {
    path: PathBuf,
    file: File,
    bytes: Vec<u8>,
}

impl CommandLine {
    /// That of a process, by its directory in `/proc`; none if it has ended.
    pub fn open(process: &Path) -> Option<CommandLine> {
        let path = process.join("cmdline");
        let file = File::open(&path).ok()?;
        let bytes = read(&file)?;
        Some(CommandLine { path, file, bytes })
    }

    /// Its words, as they were when it was opened.
    pub fn arguments(&self) -> Vec<&str> {
        arguments(&self.bytes)
    }
}

fn read(file: &File) -> Option<Vec<u8>> {
    let mut bytes = vec![0; COMMAND_MAX];
    let mut length = 0;
    loop {
        match file.read_at(&mut bytes[length..], length as u64).ok()? {
            0 => break,
            more => length += more,
        }
    }
    bytes.truncate(length);
    Some(bytes)
}

fn arguments(line: &[u8]) -> Vec<&str> {
    line.split(|&byte| byte == 0).filter_map(|part| std::str::from_utf8(part).ok()).collect()
}

/// Whether a process of `proc` has the same context ids as this one: since Linux 7 a network namespace may have ids of
/// its own, and only from inside it is known whether it does.
pub fn shares_ids(proc: &Path, process: &Path) -> bool {
    let namespace = |of: &Path| of.join("ns/net").read_link().ok();
    !proc.join("sys/net/vsock/ns_mode").exists() || namespace(process) == namespace(&proc.join("self"))
}

/// The context id of a VM, and its monitor's process.
#[derive(Clone, Debug)]
pub struct Context {
    id: u32,
    path: PathBuf,
    file: Arc<File>,
    bytes: Arc<[u8]>,
}

impl Context {
    /// That of the VM of this monitor; none if it has none, or none that the host sees.
    pub fn of(process: CommandLine) -> Option<Context> {
        let id = context_of_command(&process.arguments())?;
        let CommandLine { path, file, bytes } = process;
        Some(Context { id, path, file: file.into(), bytes: bytes.into() })
    }

    /// The id, from 3 on.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// Whether the monitor still runs. While it does the kernel gives its VM's id to no other one.
    pub fn is_there(&self) -> bool {
        // The kernel takes a process's memory, with its command line, before it closes its files.
        read(&self.file).is_some_and(|bytes| *bytes == *self.bytes)
    }
}

/// By the id and the process's number.
impl PartialEq for Context {
    fn eq(&self, other: &Context) -> bool {
        (self.id, &self.path) == (other.id, &other.path)
    }
}

impl Eq for Context {}
