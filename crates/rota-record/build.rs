//! Compiles the recorder's BPF program.

use libbpf_cargo::SkeletonBuilder;
use std::env;
use std::path::PathBuf;

const FOLDER: &str = "src/recorder";

/// The object is the same wherever it is built.
const ANYWHERE: &str = "-fdebug-compilation-dir=.";

fn main() {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    SkeletonBuilder::new()
        .source(format!("{FOLDER}/recorder.bpf.c"))
        .obj(out.join("recorder.bpf.o"))
        .clang("clang-19")
        .clang_args(["-mcpu=v3", "-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter", ANYWHERE])
        .build()
        .unwrap_or_else(|error| {
            panic!("clang-19 (Debian package clang-19) cannot compile the recorder: {error:#}")
        });
    println!("cargo::rerun-if-changed={FOLDER}");
}
