//! Compiles a copy of a scheduler with each mistake of `patches.rs`.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;

#[path = "../rota-twin/compile.rs"]
mod compile;
mod patches;

use patches::{GUEST_PATCHES, PATCHES, Patch};

fn main() {
    let host = Path::new(compile::SCHEDULER);
    thread::scope(|scope| {
        for patch in &PATCHES {
            scope.spawn(|| copy(patch, "native.c", &[&spoilt(patch, compile::SCHEDULER)]));
        }
        for patch in &GUEST_PATCHES {
            scope.spawn(|| copy(patch, "guest.c", &[&spoilt(patch, compile::GUEST), host]));
        }
    });
    fs::write(compile::out().join("copies.rs"), list(&PATCHES)).expect("OUT_DIR is writable");
    fs::write(compile::out().join("guests.rs"), list(&GUEST_PATCHES)).expect("OUT_DIR is writable");
    compile::watch();
    println!("cargo:rerun-if-changed=patches.rs");
}

fn copy(patch: &Patch, source: &str, folders: &[&Path]) {
    compile::library(patch.name, source, folders, &format!("{}_", patch.name));
}

/// All copies of a scheduler, each with what is wrong with it, as a test includes them.
fn list(patches: &[Patch]) -> String {
    let declare = |patch: &Patch| format!("    fn {}_native_code() -> Parts;\n", patch.name);
    let name = |patch: &Patch| format!("    ({:?}, {}_native_code),\n", patch.about, patch.name);
    format!(
        "unsafe extern \"C\" {{\n{}}}\n\nstatic COPIES: [(&str, unsafe extern \"C\" fn() -> Parts); {}] = [\n{}];\n",
        patches.iter().map(declare).collect::<String>(),
        patches.len(),
        patches.iter().map(name).collect::<String>(),
    )
}

/// A copy of a scheduler's files with a mistake in it.
fn spoilt(patch: &Patch, files: &str) -> PathBuf {
    let folder = compile::out().join(patch.name);
    fs::create_dir_all(&folder).expect("OUT_DIR is writable");
    for file in fs::read_dir(files).expect("the scheduler's files are there") {
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
