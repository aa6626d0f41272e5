//! Texts that are configurations: random hosts with random tenants, odd values included, many of them all but full.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|host: rota_fuzz::host::Host| rota_fuzz::check(&host.text()));
