//! What a container runtime sends to the daemon.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| rota_fuzz::runtime::listen(bytes));
