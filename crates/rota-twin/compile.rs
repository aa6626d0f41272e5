//! Compiles the scheduler's C for this machine, with the model in the kernel's place: for build scripts.
//!
//! Every variable of the scheduler becomes thread-local, so that each thread has a scheduler of its own: simulations
//! run in parallel, and a new thread begins with nothing left from another. No C says "all variables are
//! thread-local", but in LLVM's assembly language it is a word in a variable's definition. All names but `native_code`
//! become local, so that they cannot meet those of another library.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The scheduler's files, as any crate beside this one sees them.
pub const SCHEDULER: &str = "../rota-sched/src/bpf";
/// Those of guests' scheduler, which has some of the host's.
pub const GUEST: &str = "../rota-agent/src/bpf";
const NATIVE: &str = "../rota-twin/src/native";
const TABLE: &str = "../rota-table/include";

/// Where a build script may write.
pub fn out() -> PathBuf {
    PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"))
}

/// Has the build script run again when one of these files changes.
pub fn watch() {
    for path in [NATIVE, SCHEDULER, GUEST, &format!("{TABLE}/rota_table.h")] {
        println!("cargo:rerun-if-changed={path}");
    }
    println!("cargo:rerun-if-env-changed=ROTA_CLANG");
}

/// A library of a scheduler's files in `folders`, which `source` includes. The one function that is seen outside gets
/// `prefix` before its name.
pub fn library(name: &str, source: &str, folders: &[&Path], prefix: &str) {
    let clang = env::var_os("ROTA_CLANG").unwrap_or_else(|| "clang-19".into());
    let assembly = out().join(format!("{name}.ll"));
    compile(&clang, source, folders, &assembly);
    let text = fs::read_to_string(&assembly).expect("clang wrote it");
    fs::write(&assembly, renamed(thread_local(&text), prefix)).expect("OUT_DIR is writable");
    // The target is in the assembly; the one that cc would name is spelled differently.
    cc::Build::new()
        .compiler(clang)
        .file(&assembly)
        .opt_level(3)
        .flag("-Wno-override-module")
        .compile(&format!("{name}_native"));
}

/// To LLVM's assembly language, not yet optimised.
fn compile(clang: &OsString, source: &str, folders: &[&Path], assembly: &Path) {
    let mut command = Command::new(clang);
    command.args([
        "-O2",
        "-Xclang",
        "-disable-llvm-passes",
        "-gline-tables-only",
        "-fPIC",
        "-fdebug-compilation-dir=.",
    ]);
    command.args(["-Wall", "-Werror", "-Wno-unused-parameter", "-fno-strict-aliasing"]);
    command.args(["-I", NATIVE, "-I", TABLE]);
    folders.iter().for_each(|folder| _ = command.arg("-I").arg(folder));
    let source = Path::new(NATIVE).join(source);
    let status = command.args(["-S", "-emit-llvm"]).arg(&source).arg("-o").arg(assembly).status();
    let compiled = status.expect("clang 19 is needed: scripts/setup.sh installs it").success();
    assert!(
        compiled,
        "the scheduler does not compile against the model of the kernel: see {}",
        source.display()
    );
}

/// With variables of each thread's own. They are of the program that this library is part of, never of one that is
/// loaded later: that is the shortest way to them.
fn thread_local(assembly: &str) -> String {
    let mut variables = 0;
    let mut lines: Vec<String> = Vec::new();
    for line in assembly.lines() {
        let is_named = line.starts_with('@') && !line.contains(" private ") && !line.contains(" external ");
        let definition = line.split_once(" global ").or_else(|| line.split_once(" constant "));
        match definition.filter(|_| is_named) {
            Some((head, rest)) => {
                let name = head.split(' ').next().unwrap_or(head);
                lines.push(format!("{name} = internal thread_local(localexec) global {rest}"));
                variables += 1;
            }
            None if line.starts_with("define ")
                && !line.contains("@native_code")
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

/// With another name for the function that is seen outside.
fn renamed(assembly: String, prefix: &str) -> String {
    assembly.replace("@native_code(", &format!("@{prefix}native_code("))
}
