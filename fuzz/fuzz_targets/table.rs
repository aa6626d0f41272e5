//! Tables of random hosts with words of them changed, and any bytes: the certifier and the readers take them.

#![no_main]

use libfuzzer_sys::fuzz_target;
use rota_fuzz::host::Host;
use rota_fuzz::table::{changed, withstand};

fuzz_target!(|input: (Host, Vec<(u16, u32)>, Vec<u8>)| {
    let (host, changes, noise) = input;
    withstand(noise, &[], Default::default());
    changed(&host.text(), &changes);
});
