//! Compiles the scheduler's C for this machine, with the model in the kernel's place.

mod compile;

use std::path::Path;

fn main() {
    compile::library("rota", Path::new(compile::SCHEDULER), "");
    compile::watch();
}
