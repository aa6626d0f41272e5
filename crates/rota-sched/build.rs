//! Compiles the scheduler's C source to a BPF object, which the library embeds.

use std::env;
use std::path::PathBuf;

use libbpf_cargo::SkeletonBuilder;

/// The object has the names of its source files in it, without the folder that they are built in: it is the same
/// wherever it is built.
const ANYWHERE: &str = "-fdebug-compilation-dir=.";

fn main() {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR")).join("rota.bpf.o");
    let header_folder = "../rota-table/include";
    SkeletonBuilder::new()
        .source("src/bpf/main.bpf.c")
        .obj(&out)
        .clang(env::var_os("ROTA_CLANG").unwrap_or_else(|| "clang-19".into()))
        .clang_args(["-mcpu=v3", "-Wall", "-Werror", "-I", header_folder, ANYWHERE])
        .build()
        .expect("the scheduler compiles (clang 19 is needed: scripts/setup.sh installs it)");
    println!("cargo:rerun-if-changed=src/bpf");
    println!("cargo:rerun-if-changed={header_folder}/rota_table.h");
    println!("cargo:rerun-if-env-changed=ROTA_CLANG");
}
