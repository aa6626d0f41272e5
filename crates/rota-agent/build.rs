//! Compiles the guest's scheduler, with what the host's says of the kernel and of tables.

use libbpf_cargo::SkeletonBuilder;
use std::env;
use std::path::PathBuf;

const FOLDER: &str = "src/bpf";
const HOST: &str = "../rota-sched/src/bpf";
const TABLE: &str = "../rota-table/include";

/// The object is the same wherever it is built.
const ANYWHERE: &str = "-fdebug-compilation-dir=.";

fn main() {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    SkeletonBuilder::new()
        .source(format!("{FOLDER}/guest.bpf.c"))
        .obj(out.join("guest.bpf.o"))
        .clang(env::var_os("ROTA_CLANG").unwrap_or_else(|| "clang-19".into()))
        .clang_args(["-mcpu=v3", "-Wall", "-Werror", "-I", HOST, "-I", TABLE, ANYWHERE])
        .build()
        .expect("the guest's scheduler compiles (clang 19 is needed: scripts/setup.sh installs it)");
    for header in ["kernel", "buffers", "table"] {
        println!("cargo::rerun-if-changed={HOST}/{header}.bpf.h");
    }
    println!("cargo::rerun-if-changed={HOST}/shared.h");
    println!("cargo::rerun-if-changed={TABLE}/rota_table.h");
    println!("cargo::rerun-if-changed={FOLDER}");
    println!("cargo::rerun-if-env-changed=ROTA_CLANG");
}
