//! What tenants and users make of `/proc` and of their cgroups.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|machine: rota_fuzz::machine::Machine| machine.discover());
