//! Any text at all.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| rota_fuzz::check(text));
