//! Compiles the guest's BPF programs and QEMU's plugin.

use libbpf_cargo::SkeletonBuilder;
use std::env;
use std::path::{Path, PathBuf};

const OBSERVER: &str = "src/guest/observer";
const FIFO: &str = "src/guest/fifo";
const CALLS: &str = "src/guest/calls";
/// What the scheduler says of the kernel, for the FIFO too.
const KERNEL: &str = "../rota-sched/src/bpf";
const PLUGIN: &str = "src/resync.c";

/// An object is the same wherever it is built.
const ANYWHERE: &str = "-fdebug-compilation-dir=.";

fn main() {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    bpf("observer", OBSERVER, &out);
    bpf("fifo", FIFO, &out);
    bpf("calls", CALLS, &out);
    println!("cargo::rerun-if-changed={KERNEL}/kernel.bpf.h");
    plugin(&out.join("resync.so"));
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

/// A shared library whose undefined symbols are QEMU's, resolved when QEMU loads it.
fn plugin(library: &Path) {
    // Without debug information there is no folder in it.
    let mut compiler =
        cc::Build::new().debug(false).warnings(true).extra_warnings(true).get_compiler().to_command();
    compiler
        .args(["-O2", "-Werror", "-shared", "-fPIC", "-fvisibility=hidden", "-o"])
        .arg(library)
        .arg(PLUGIN);
    let status = compiler.status().unwrap_or_else(|error| panic!("cannot run the C compiler: {error}"));
    assert!(status.success(), "the C compiler cannot compile {PLUGIN}");
    println!("cargo::rerun-if-changed={PLUGIN}");
}
