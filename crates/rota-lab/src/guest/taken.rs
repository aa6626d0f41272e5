//! CPUs that are taken away between their slots: what a host does to a guest's vCPUs, done by real-time threads.

use std::thread;

use anyhow::Result;
use rota_table::{OwnSlots, Timetable};

use super::clock::{Window, now_ns, sleep_until};
use super::realtime::{pin, set_fifo};

/// Below those that measure, above all that sched_ext has.
const PRIORITY: i32 = 1;

/// Takes each CPU of a timetable that has slots, from the window's start to its end, whenever it has none. Says how
/// often.
///
/// # Errors
///
/// Without root, or without such a CPU.
pub fn run(timetable: &Timetable, window: Window) -> Result<u64> {
    thread::scope(|scope| {
        let started: Vec<_> =
            timetable.vcpus.iter().map(|own| scope.spawn(move || take(own, window))).collect();
        let ended = started.into_iter().map(|thread| thread.join().unwrap_or(Ok(0)));
        ended.sum()
    })
}

fn take(own: &OwnSlots, window: Window) -> Result<u64> {
    pin(own.index)?;
    set_fifo(PRIORITY)?;
    sleep_until(window.start_ns);
    let mut taken = 0;
    while now_ns() < window.end_ns {
        let now_ns = now_ns();
        let place = now_ns % own.length_ns;
        let slot = own.slots.iter().find(|(start_ns, end_ns)| (*start_ns..*end_ns).contains(&place));
        if let Some((_, end_ns)) = slot {
            sleep_until(now_ns - place + end_ns);
            taken += 1;
        }
    }
    Ok(taken)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_window_nothing_is_taken() {
        let timetable = "rota-timetable 1\ngeneration 1\nfrom 0\nclock own\nend\n".parse().unwrap();
        assert_eq!(run(&timetable, Window { start_ns: 0, end_ns: 0 }).unwrap(), 0);
    }
}
