//! Random hosts as configurations.

use arbitrary::Arbitrary;

/// A host and its reserved tenants. What no configuration may say is not said, so that no input is wasted.
#[derive(Arbitrary, Debug)]
pub struct Host {
    cpus: u8,
    housekeeping: Option<u8>,
    /// In parts of 10,000.
    floor: Option<u16>,
    slot_min_us: Option<u16>,
    switch_cost_ns: Option<u16>,
    migration_cost_ns: Option<u16>,
    /// Threads of a core: 1, 2 or 4.
    siblings: u8,
    is_best_fit: bool,
    /// How full shares are scaled to make the host, in percent from 90 on; as they are if absent.
    fill: Option<u8>,
    tenants: Vec<Tenant>,
}

#[derive(Arbitrary, Debug)]
struct Tenant {
    vcpus: u8,
    share: Share,
    latency_us: Latency,
    capped: bool,
    place: Place,
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

#[derive(Arbitrary, Debug)]
enum Place {
    Anywhere,
    /// The first CPU and how many more.
    Cpus(u8, u8),
    Node(u8),
    Exclusive,
}

/// What of the host its tenants have to know.
struct Machine {
    cpus: u32,
    /// CPUs below this are for the system.
    housekeeping: u32,
    /// CPUs of a core.
    threads: u32,
    /// CPUs of a node.
    node: u32,
}

impl Host {
    /// As `rota.toml` has it.
    pub fn text(&self) -> String {
        let cpus = u32::from(self.cpus % 16) + 1;
        let housekeeping = self.housekeeping.map_or(0, |count| u32::from(count) % cpus);
        let threads = [1, 2, 4][usize::from(self.siblings % 3)];
        let machine = Machine { cpus, housekeeping, threads, node: 4 };
        let mut text = format!("[host]\ncpus = \"0-{}\"\n", cpus - 1);
        if housekeeping > 0 {
            text += &format!("housekeeping = \"0-{}\"\n", housekeeping - 1);
        }
        let floor = self.floor.map(|floor| f64::from(floor % 5_000) / 10_000.0);
        text += &floor.map_or(String::new(), |floor| format!("floor = {floor}\n"));
        for (key, value, unit) in [
            ("slot_min", self.slot_min_us, "us"),
            ("switch_cost", self.switch_cost_ns, "ns"),
            ("migration_cost", self.migration_cost_ns, "ns"),
        ] {
            text += &value.map_or(String::new(), |value| format!("{key} = \"{value}{unit}\"\n"));
        }
        text += if self.is_best_fit { "placement = \"best-fit\"\n" } else { "" };
        for (key, size) in [("siblings", threads), ("nodes", machine.node)] {
            let lists: Vec<String> = (0..cpus)
                .step_by(size as usize)
                .map(|first| format!("\"{first}-{}\"", (first + size).min(cpus) - 1))
                .collect();
            text += &format!("{key} = [{}]\n", lists.join(", "));
        }
        let factor = self.factor(&machine, floor.unwrap_or(0.005));
        for (number, tenant) in self.tenants.iter().take(64).enumerate() {
            text += &tenant.text(number, &machine, factor);
        }
        text
    }

    /// By what the shares that are not whole have to be multiplied.
    fn factor(&self, machine: &Machine, floor: f64) -> f64 {
        let Some(fill) = self.fill else { return 1.0 };
        let (mut divided, mut wholes) = (0.0, 0.0);
        for tenant in self.tenants.iter().take(64) {
            let (share, vcpus) = (tenant.share.fraction(), tenant.vcpus());
            *(if share < 1.0 { &mut divided } else { &mut wholes }) += share * f64::from(vcpus);
        }
        // Where there is no housekeeping, the system's tasks have a part of every CPU.
        let each = 1.0 - floor - if machine.housekeeping == 0 { 0.05 } else { 0.0 };
        let left = f64::from(machine.cpus - machine.housekeeping) - wholes;
        (left * each * f64::from(900 + u32::from(fill) % 101) / 1_000.0 / divided).max(0.0)
    }
}

impl Share {
    fn fraction(&self) -> f64 {
        match *self {
            Share::Twelfths(parts) => f64::from(parts % 12 + 1) / 12.0,
            Share::Hundredths(parts) => f64::from(parts % 100 + 1) / 100.0,
            Share::Billionths(parts) => f64::from(parts % 1_000_000_000 + 1) / 1e9,
            Share::Nearly => 0.94,
            Share::Whole => 1.0,
        }
    }
}

impl Tenant {
    fn vcpus(&self) -> u8 {
        self.vcpus % 8 + 1
    }

    fn text(&self, number: usize, machine: &Machine, factor: f64) -> String {
        let share = self.share.fraction();
        // To a billionth, and nothing else than a whole CPU is one.
        let share =
            if share < 1.0 { ((share * factor * 1e9).floor() / 1e9).clamp(1e-9, 0.999_999_999) } else { 1.0 };
        let latency_us = match self.latency_us {
            Latency::Common(which) => [1_000, 5_000, 20_000, 30_000, 60_000, 100_000][usize::from(which % 6)],
            Latency::Any(latency_us) => latency_us % 400_000 + 1,
        };
        let mut text = format!(
            "[[tenant]]\nname = \"t{number}\"\nclass = \"reserved\"\nshare = {share:.9}\nlatency = \"{latency_us}us\"\n\
             vcpus = {}\ncapped = {}\n",
            self.vcpus(),
            self.capped
        );
        let Machine { cpus, housekeeping, threads, node } = *machine;
        match self.place {
            Place::Cpus(from, length) => {
                let first = housekeeping + u32::from(from) % (cpus - housekeeping);
                text += &format!("affinity = \"{first}-{}\"\n", (first + u32::from(length)).min(cpus - 1));
            }
            Place::Node(seed) => {
                let (first, end) = (housekeeping / node, cpus.div_ceil(node));
                text += &format!("node = {}\n", first + u32::from(seed) % (end - first));
            }
            // A core for tenants only has to be left.
            Place::Exclusive if housekeeping.next_multiple_of(threads) < cpus && (housekeeping > 0 || threads == 1) => {
                text += "exclusive_cores = true\n";
            }
            Place::Anywhere | Place::Exclusive => {}
        }
        text
    }
}
