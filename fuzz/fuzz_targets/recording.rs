//! Recordings: what is in the file behind its first bytes is anything at all.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|body: &[u8]| rota_fuzz::recording::read(body));
