//! Compiles the observer's BPF program and QEMU's plugin.

use libbpf_cargo::SkeletonBuilder;
use std::env;
use std::path::{Path, PathBuf};

const OBSERVER: &str = "src/guest/observer";
const PLUGIN: &str = "src/resync.c";

fn main() {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    observer(&out.join("observer.bpf.o"));
    plugin(&out.join("resync.so"));
}

fn observer(object: &Path) {
    SkeletonBuilder::new()
        .source(format!("{OBSERVER}/observer.bpf.c"))
        .obj(object)
        .clang("clang-19")
        .clang_args(["-mcpu=v3", "-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter"])
        .build()
        .unwrap_or_else(|error| {
            panic!("clang-19 (Debian package clang-19) cannot compile the observer: {error:#}")
        });
    println!("cargo::rerun-if-changed={OBSERVER}");
}

/// A shared library whose undefined symbols are QEMU's, resolved when QEMU loads it.
fn plugin(library: &Path) {
    let mut compiler = cc::Build::new().warnings(true).extra_warnings(true).get_compiler().to_command();
    compiler
        .args(["-O2", "-Werror", "-shared", "-fPIC", "-fvisibility=hidden", "-o"])
        .arg(library)
        .arg(PLUGIN);
    let status = compiler.status().unwrap_or_else(|error| panic!("cannot run the C compiler: {error}"));
    assert!(status.success(), "the C compiler cannot compile {PLUGIN}");
    println!("cargo::rerun-if-changed={PLUGIN}");
}
