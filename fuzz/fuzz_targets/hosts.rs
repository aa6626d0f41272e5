//! Texts that are configurations: random hosts with random tenants, odd values included.

#![no_main]

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;

#[derive(Arbitrary, Debug)]
struct Host {
    cpus: u8,
    housekeeping: Option<u8>,
    /// In parts of 10,000.
    floor: Option<u16>,
    slot_min_us: Option<u16>,
    switch_cost_ns: Option<u16>,
    /// Threads of a core: 1, 2 or 4.
    siblings: u8,
    tenants: Vec<Tenant>,
}

#[derive(Arbitrary, Debug)]
struct Tenant {
    vcpus: u8,
    share: Share,
    latency_us: Latency,
    capped: bool,
    affinity: Option<(u8, u8)>,
}

#[derive(Arbitrary, Debug)]
enum Share {
    /// Parts of 12, of 100, of a billion.
    Twelfths(u8),
    Hundredths(u8),
    Billionths(u32),
    /// What 17 vCPUs of 0.94 are to 16 CPUs.
    Nearly,
    Whole,
}

#[derive(Arbitrary, Debug)]
enum Latency {
    Common(u8),
    Any(u32),
}

impl Host {
    fn text(&self) -> String {
        let cpus = u32::from(self.cpus % 16) + 1;
        let mut text = format!("[host]\ncpus = \"0-{}\"\n", cpus - 1);
        if let Some(housekeeping) = self.housekeeping {
            text += &format!("housekeeping = \"0-{}\"\n", u32::from(housekeeping) % cpus);
        }
        if let Some(floor) = self.floor {
            text += &format!("floor = {}\n", f64::from(floor % 5000) / 10_000.0);
        }
        if let Some(slot_min_us) = self.slot_min_us {
            text += &format!("slot_min = \"{slot_min_us}us\"\n");
        }
        if let Some(switch_cost_ns) = self.switch_cost_ns {
            text += &format!("switch_cost = \"{switch_cost_ns}ns\"\n");
        }
        let threads = [1, 2, 4][usize::from(self.siblings % 3)];
        if threads > 1 {
            let cores = (0..cpus).step_by(threads as usize);
            let lists: Vec<String> =
                cores.map(|first| format!("\"{first}-{}\"", (first + threads).min(cpus) - 1)).collect();
            text += &format!("siblings = [{}]\n", lists.join(", "));
        }
        for (number, tenant) in self.tenants.iter().take(64).enumerate() {
            text += &tenant.text(number, cpus);
        }
        text
    }
}

impl Tenant {
    fn text(&self, number: usize, cpus: u32) -> String {
        let share = match self.share {
            Share::Twelfths(parts) => f64::from(parts % 12 + 1) / 12.0,
            Share::Hundredths(parts) => f64::from(parts % 100 + 1) / 100.0,
            Share::Billionths(parts) => f64::from(parts % 1_000_000_000 + 1) / 1e9,
            Share::Nearly => 0.94,
            Share::Whole => 1.0,
        };
        let latency_us = match self.latency_us {
            Latency::Common(which) => [1_000, 5_000, 20_000, 30_000, 60_000, 100_000][usize::from(which % 6)],
            Latency::Any(latency_us) => latency_us % 400_000 + 1,
        };
        let mut text = format!(
            "[[tenant]]\nname = \"t{number}\"\nclass = \"reserved\"\nshare = {share}\nlatency = \"{latency_us}us\"\n\
             vcpus = {}\ncapped = {}\n",
            self.vcpus % 8 + 1,
            self.capped
        );
        if let Some((from, length)) = self.affinity {
            let first = u32::from(from) % cpus;
            text += &format!("affinity = \"{first}-{}\"\n", (first + u32::from(length)).min(cpus - 1));
        }
        text
    }
}

fuzz_target!(|host: Host| rota_fuzz::check(&host.text()));
