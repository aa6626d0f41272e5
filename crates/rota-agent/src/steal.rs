//! How much of each CPU's time the host has given to others, as `/proc/stat` shows it: what there is to go by without a
//! timetable.

/// Of a CPU: all of its time, and what was stolen of it, in ticks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Ticks {
    all: u64,
    stolen: u64,
}

/// Of each CPU what was stolen of late.
#[derive(Debug, Default)]
pub struct Steal {
    before: Vec<Ticks>,
    /// In thousandths.
    stolen: Vec<u32>,
}

impl Steal {
    /// Takes in `/proc/stat`, and says how much of each CPU's time was stolen, in thousandths. An earlier figure counts
    /// half: a CPU that is avoided has nothing stolen, and is not asked again at once.
    pub fn update(&mut self, stat: &str) -> &[u32] {
        for (cpu, now) in stat.lines().filter_map(ticks) {
            if self.before.len() <= cpu {
                self.before.resize(cpu + 1, Ticks::default());
                self.stolen.resize(cpu + 1, 0);
            }
            let before = std::mem::replace(&mut self.before[cpu], now);
            let (all, stolen) =
                (now.all.saturating_sub(before.all), now.stolen.saturating_sub(before.stolen));
            let of_late = (stolen * 1_000).checked_div(all).unwrap_or(0);
            self.stolen[cpu] = u32::try_from(of_late).unwrap_or(0).max(self.stolen[cpu] / 2);
        }
        &self.stolen
    }
}

/// A CPU's line: user, nice, system, idle, iowait, irq, softirq, steal; guests' time is in the first two.
fn ticks(line: &str) -> Option<(usize, Ticks)> {
    let (cpu, times) = line.strip_prefix("cpu")?.split_once(' ')?;
    let times: Vec<u64> = times.split_whitespace().take(8).map_while(|time| time.parse().ok()).collect();
    let cpu = cpu.parse().ok().filter(|cpu| *cpu < crate::shared::CPUS_MAX)?;
    Some((cpu, Ticks { all: times.iter().sum(), stolen: *times.get(7)? }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_stolen_of_late_is_seen_and_forgotten() {
        let mut steal = Steal::default();
        let stat = |stolen: u64, idle: u64| {
            format!(
                "cpu  9 9 9 9 9 9 9 9 0 0\ncpu0 100 0 0 {idle} 0 0 0 {stolen} 50 0\ncpu1 5 0 0 0 0 0 0 0\nintr 5\n"
            )
        };
        steal.update(&stat(0, 0));
        assert_eq!(steal.update(&stat(25, 75)), [250, 0]);
        assert_eq!(steal.update(&stat(25, 175)), [125, 0]);
        assert_eq!(steal.update(&stat(25, 175)), [62, 0], "no tick has passed");
    }
}
