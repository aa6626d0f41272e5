//! How the host's CLOCK_MONOTONIC follows from the guest's.
//!
//! A timetable says what the host's CLOCK_REALTIME was at its CLOCK_MONOTONIC's zero. KVM shows a guest the host's
//! CLOCK_REALTIME as a clock device (the kernel's `ptp_kvm`). It is read between two readings of the guest's own clock;
//! of several such exchanges the shortest counts, and the error is half of it.

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::path::Path;

use anyhow::{Context, Result, bail};
use nix::time::{ClockId, clock_gettime};
use rota_table::HostClock;

/// Where the kernel lists its clock devices.
const CLASS: &str = "/sys/class/ptp";
/// What `ptp_kvm` calls its own.
const NAME: &str = "KVM virtual PTP";
/// So many exchanges, of which one counts.
const EXCHANGES: u32 = 8;

/// What the host's CLOCK_MONOTONIC is beyond the guest's, and by how much this may be wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offset {
    /// To be added to the guest's, in ns.
    pub ns: i64,
    /// In ns, either way.
    pub error_ns: i64,
}

/// A clock device that shows the host's CLOCK_REALTIME, once it was needed.
#[derive(Debug, Default)]
pub struct Clocks {
    host: Option<File>,
}

impl Clocks {
    /// Compares the clocks.
    ///
    /// # Errors
    ///
    /// The host's clock cannot be seen from here.
    pub fn offset(&mut self, clock: HostClock) -> Result<Offset> {
        let HostClock::Realtime(zero_ns) = clock else {
            return Ok(Offset { ns: 0, error_ns: 0 });
        };
        let device = match &mut self.host {
            Some(device) => device,
            none => none.insert(open(Path::new(CLASS), Path::new("/dev"))?),
        };
        // FD_TO_CLOCKID of clock_gettime(2).
        let host = ClockId::from_raw((!device.as_raw_fd() << 3) | 3);
        shortest(|| Ok(read(ClockId::CLOCK_MONOTONIC)?), || Ok(read(host)? - zero_ns))
    }
}

/// The host's time of several exchanges that took the least of the guest's.
fn shortest(mut guest: impl FnMut() -> Result<i64>, mut host: impl FnMut() -> Result<i64>) -> Result<Offset> {
    let mut best: Option<Offset> = None;
    for _ in 0..EXCHANGES {
        let before_ns = guest()?;
        let host_ns = host().context("reading the host's clock")?;
        let error_ns = (guest()? - before_ns + 1) / 2;
        if best.is_none_or(|best| error_ns < best.error_ns) {
            best = Some(Offset { ns: host_ns - before_ns - error_ns, error_ns });
        }
    }
    best.context("no exchange")
}

fn read(clock: ClockId) -> nix::Result<i64> {
    let time = clock_gettime(clock)?;
    Ok(time.tv_sec() * 1_000_000_000 + time.tv_nsec())
}

/// Opens the device that KVM has made, of those that are listed in `class`.
fn open(class: &Path, devices: &Path) -> Result<File> {
    for entry in fs::read_dir(class).into_iter().flatten().flatten() {
        let name = fs::read_to_string(entry.path().join("clock_name")).unwrap_or_default();
        if name.trim_end() == NAME {
            let path = devices.join(entry.file_name());
            return File::open(&path).with_context(|| format!("opening {}", path.display()));
        }
    }
    bail!("the host's clock is not seen here: load ptp_kvm (modprobe ptp_kvm), which needs a host with KVM")
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn the_shortest_exchange_counts_and_its_half_is_the_error() {
        let (now, call) = (Cell::new(1_000), Cell::new(0));
        let guest = || {
            // One exchange in eight takes 20, the others 500.
            call.set(call.get() + 1);
            now.set(now.get() + if call.get() % 2 == 1 || call.get() == 8 { 10 } else { 250 });
            Ok(now.get())
        };
        let host = || {
            now.set(now.get() + 10);
            Ok(now.get() + 7_000)
        };
        let offset = shortest(guest, host).unwrap();
        assert_eq!(offset.error_ns, 10);
        assert!((offset.ns - 7_000).abs() <= offset.error_ns, "{offset:?}");
    }

    #[test]
    fn only_kvms_clock_is_the_hosts() {
        let folder = tempfile::tempdir().unwrap();
        for (device, name) in [("ptp0", "intel"), ("ptp1", NAME)] {
            fs::create_dir_all(folder.path().join("class").join(device)).unwrap();
            fs::write(folder.path().join("class").join(device).join("clock_name"), format!("{name}\n"))
                .unwrap();
        }
        let error = open(&folder.path().join("class"), folder.path()).unwrap_err().to_string();
        assert!(error.contains("ptp1"), "{error}");
        let error = open(folder.path(), folder.path()).unwrap_err().to_string();
        assert!(error.contains("modprobe ptp_kvm"), "{error}");
    }

    #[test]
    fn a_machines_own_timetable_needs_no_clock() {
        assert_eq!(Clocks::default().offset(HostClock::Own).unwrap(), Offset { ns: 0, error_ns: 0 });
    }
}
