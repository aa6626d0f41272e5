//! Compiles the scheduler's C for this machine, with the model in the kernel's place.
//!
//! Every variable of the scheduler becomes thread-local, so that each thread has a scheduler of its own: simulations
//! run in parallel, and a new thread begins with nothing left from another. No C says "all variables are thread-local",
//! but in LLVM's assembly language it is a word in a variable's definition. All names but `native_*` become local, so
//! that they cannot meet those of another library.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const SOURCE: &str = "src/native/native.c";
const SCHEDULER: &str = "../rota-sched/src/bpf";
const TABLE: &str = "../rota-table/include";

fn main() {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let clang = env::var_os("ROTA_CLANG").unwrap_or_else(|| "clang-19".into());
    let assembly = out.join("rota.ll");
    compile(&clang, &assembly);
    let text = fs::read_to_string(&assembly).expect("clang wrote it");
    fs::write(&assembly, thread_local(&text)).expect("OUT_DIR is writable");
    // The target is in the assembly; the one that cc would name is spelled differently.
    cc::Build::new()
        .compiler(clang)
        .file(&assembly)
        .opt_level(2)
        .flag("-Wno-override-module")
        .compile("rota_native");
    for path in ["src/native", SCHEDULER, &format!("{TABLE}/rota_table.h")] {
        println!("cargo:rerun-if-changed={path}");
    }
    println!("cargo:rerun-if-env-changed=ROTA_CLANG");
}

/// To LLVM's assembly language, not yet optimised.
fn compile(clang: &OsString, assembly: &Path) {
    let mut command = Command::new(clang);
    command.args(["-O2", "-Xclang", "-disable-llvm-passes", "-gline-tables-only", "-fPIC"]);
    command.args(["-Wall", "-Werror", "-Wno-unused-parameter", "-fno-strict-aliasing"]);
    command.args(["-I", "src/native", "-I", SCHEDULER, "-I", TABLE, "-S", "-emit-llvm", SOURCE, "-o"]);
    let status = command.arg(assembly).status();
    let compiled = status.expect("clang 19 is needed: scripts/setup.sh installs it").success();
    assert!(compiled, "the scheduler does not compile against the model of the kernel: see {SOURCE}");
}

fn thread_local(assembly: &str) -> String {
    let mut variables = 0;
    let mut lines: Vec<String> = Vec::new();
    for line in assembly.lines() {
        let is_named = line.starts_with('@') && !line.contains(" private ") && !line.contains(" external ");
        let definition = line.split_once(" global ").or_else(|| line.split_once(" constant "));
        match definition.filter(|_| is_named) {
            Some((head, rest)) => {
                let name = head.split(' ').next().unwrap_or(head);
                lines.push(format!("{name} = internal thread_local(initialexec) global {rest}"));
                variables += 1;
            }
            None if line.starts_with("define ")
                && !line.contains("@native_")
                && !line.contains(" internal ") =>
            {
                lines.push(line.replacen("define ", "define internal ", 1));
            }
            None => lines.push(line.to_owned()),
        }
    }
    assert!(
        variables > 10,
        "{variables} variables found: clang writes them in another form than is known here"
    );
    lines.join("\n") + "\n"
}
