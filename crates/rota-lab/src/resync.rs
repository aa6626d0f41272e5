//! Keeps QEMU's translations in step with kernels that patch their own code; `resync.c` says why and how.

use crate::accel::{Accel, write_at_once};
use crate::folder::RunFolder;
use crate::image::Image;
use crate::vm::Vm;
use anyhow::{Context, Result};
use std::fs;
use std::time::Duration;

/// The plugin, a shared library.
const PLUGIN: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/resync.so"));

/// The function in which each CPU of a kernel synchronises after its text was patched.
const SYNC: &str = "do_sync_core";

const TIMEOUT: Duration = Duration::from_secs(120);

/// QEMU's option that loads the plugin, whose file is put into `folder`.
///
/// A guest with one CPU needs none.
pub fn option(vm: &Vm, folder: &RunFolder) -> Result<Option<String>> {
    if vm.cpus == 1 {
        return Ok(None);
    }
    let file = folder.path("resync.so");
    fs::write(&file, PLUGIN)?;
    Ok(Some(format!("file={},sync={}", file.display(), sync_address(vm)?)))
}

/// Where the guest's kernel has [`SYNC`], in hexadecimal.
///
/// Debian's kernels come without a symbol table, so a guest with one CPU is asked once for each kernel. The
/// address holds for every later guest because the lab boots with `nokaslr`.
fn sync_address(vm: &Vm) -> Result<String> {
    let known = vm.kernel.vmlinux.with_file_name(SYNC);
    if let Ok(address) = fs::read_to_string(&known) {
        return Ok(address);
    }
    let vm = Vm { cpus: 1, nested: false, append: Vec::new(), ..vm.clone() };
    let mut image = Image::new(&vm.kernel)?;
    image.command(&format!("grep -w {SYNC} /proc/kallsyms >/results/address"));
    let folder = RunFolder::create()?;
    let outcome = vm.run_with(Accel::Tcg, &image, &folder, TIMEOUT, &mut |_| {})?;
    folder.remove();
    let line = outcome.results.get("address").map(|line| String::from_utf8_lossy(line).into_owned());
    let address = line.as_deref().and_then(|line| line.split_whitespace().next());
    let address = address.with_context(|| format!("kernel {} has no function {SYNC}", vm.kernel.version))?;
    write_at_once(&known, address)?;
    Ok(address.to_owned())
}
