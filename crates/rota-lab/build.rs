//! Compiles the guest's BPF programs, the program that has it saved, and QEMU's plugin.

use libbpf_cargo::SkeletonBuilder;
use std::env;
use std::path::{Path, PathBuf};

const OBSERVER: &str = "src/guest/observer";
const FIFO: &str = "src/guest/fifo";
const CALLS: &str = "src/guest/calls";
/// What the scheduler says of the kernel, for the FIFO too.
const KERNEL: &str = "../rota-sched/src/bpf";
const PLUGIN: &str = "src/resync.c";
const WAKE: &str = "src/wake.c";

/// An object is the same wherever it is built.
const ANYWHERE: &str = "-fdebug-compilation-dir=.";

fn main() {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    bpf("observer", OBSERVER, &out);
    bpf("fifo", FIFO, &out);
    bpf("calls", CALLS, &out);
    println!("cargo::rerun-if-changed={KERNEL}/kernel.bpf.h");
    // The plugin's undefined symbols are QEMU's, resolved when QEMU loads it.
    compile(PLUGIN, &["-shared", "-fPIC", "-fvisibility=hidden"], &out.join("resync.so"));
    compile(WAKE, &["-static", "-s"], &out.join("wake"));
}

fn bpf(name: &str, folder: &str, out: &Path) {
    SkeletonBuilder::new()
        .source(format!("{folder}/{name}.bpf.c"))
        .obj(out.join(format!("{name}.bpf.o")))
        .clang("clang-19")
        .clang_args([
            "-mcpu=v3",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-Wno-unused-parameter",
            "-I",
            KERNEL,
            ANYWHERE,
        ])
        .build()
        .unwrap_or_else(|error| {
            panic!("clang-19 (Debian package clang-19) cannot compile {name}.bpf.c: {error:#}")
        });
    println!("cargo::rerun-if-changed={folder}");
}

/// Compiles C for this machine.
fn compile(source: &str, how: &[&str], to: &Path) {
    // Without debug information there is no folder in it.
    let mut compiler =
        cc::Build::new().debug(false).warnings(true).extra_warnings(true).get_compiler().to_command();
    compiler.args(["-O2", "-Werror"]).args(how).arg("-o").arg(to).arg(source);
    let status = compiler.status().unwrap_or_else(|error| panic!("cannot run the C compiler: {error}"));
    assert!(status.success(), "the C compiler cannot compile {source}");
    println!("cargo::rerun-if-changed={source}");
}
