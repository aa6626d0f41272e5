//! Compiles the C of both schedulers, the host's and guests', for this machine, with the model in the kernel's place.

mod compile;

use std::fs;
use std::path::Path;

fn main() {
    let (host, guest) = (Path::new(compile::SCHEDULER), Path::new(compile::GUEST));
    compile::library("rota", "native.c", &[host], "");
    compile::library("guest", "guest.c", &[guest, host], "guest_");
    all_are_listed();
    compile::watch();
}

/// Each guest has all variables of the scheduler for itself. So `guest.c` lists all that change.
fn all_are_listed() {
    let assembly = fs::read_to_string(compile::out().join("guest.ll")).expect("it was just written");
    let list = fs::read_to_string("src/native/guest.c").expect("it was just compiled");
    let variables = assembly.lines().filter(|line| line.contains(" thread_local(localexec) "));
    let names = variables.filter_map(|line| line.strip_prefix('@')?.split(' ').next());
    for name in names.filter(|name| !["_license", "rota_guest"].contains(name)) {
        let is_listed = list.contains(&format!("({name})")) || list.contains(&format!("({name},"));
        assert!(is_listed, "`{name}` is a variable of guests' scheduler: list it in src/native/guest.c");
    }
}
