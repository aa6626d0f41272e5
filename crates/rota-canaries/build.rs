//! Compiles a copy of the scheduler with each mistake of `patches.rs`.

use std::fs;
use std::path::PathBuf;
use std::thread;

#[path = "../rota-twin/compile.rs"]
mod compile;
mod patches;

use patches::{PATCHES, Patch};

fn main() {
    thread::scope(|scope| {
        for patch in &PATCHES {
            scope.spawn(|| compile::library(patch.name, &spoilt(patch), &format!("{}_", patch.name)));
        }
    });
    fs::write(compile::out().join("copies.rs"), list()).expect("OUT_DIR is writable");
    compile::watch();
    println!("cargo:rerun-if-changed=patches.rs");
}

/// All copies, each with what is wrong with it, as the test includes them.
fn list() -> String {
    let declare = |patch: &Patch| format!("    fn {}_native_code() -> Parts;\n", patch.name);
    let name = |patch: &Patch| format!("    ({:?}, {}_native_code),\n", patch.about, patch.name);
    format!(
        "unsafe extern \"C\" {{\n{}}}\n\nstatic COPIES: [(&str, unsafe extern \"C\" fn() -> Parts); {}] = [\n{}];\n",
        PATCHES.iter().map(declare).collect::<String>(),
        PATCHES.len(),
        PATCHES.iter().map(name).collect::<String>(),
    )
}

/// A copy of the scheduler's files with a mistake in it.
fn spoilt(patch: &Patch) -> PathBuf {
    let folder = compile::out().join(patch.name);
    fs::create_dir_all(&folder).expect("OUT_DIR is writable");
    for file in fs::read_dir(compile::SCHEDULER).expect("the scheduler's files are there") {
        let path = file.expect("a file").path();
        let name = path.file_name().expect("a file has a name");
        let mut text = fs::read_to_string(&path).expect("a file of text");
        if name == patch.file {
            let Patch { name, about, file, text: place, .. } = patch;
            let found = text.matches(place).count();
            assert!(
                found == 1,
                "the canary `{name}` ({about}) wants this in {file} once, not {found} times: {place:?}\nGive it \
                 another text in crates/rota-canaries/patches.rs"
            );
            text = text.replace(place, patch.spoilt);
        }
        fs::write(folder.join(name), text).expect("OUT_DIR is writable");
    }
    folder
}
