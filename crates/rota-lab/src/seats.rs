//! Guests share this machine's CPUs: a guest waits until there are as many free as it keeps busy.
//!
//! A seat is a CPU, and a locked file in the lab's folder, so that guests of different processes know of each other
//! and who is killed leaves no seat taken. Where the lab's folders differ, they do not know of each other.

use std::fs::{self, File};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use crate::folder::lab_folder;

use anyhow::{Context, Result, bail};
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};

/// How often it is looked whether enough seats are free.
const POLL: Duration = Duration::from_millis(100);

/// Before the seconds that a guest has waited.
const WAITED: &str = "lab: waited ";

/// Takes a guest's line in a test. How long the guest has waited is printed as `cargo xtask test` reads it: the wait is
/// no part of the time that the test itself takes.
pub fn tell_wait(line: &str) {
    if let Some(seconds) = line.strip_prefix(WAITED) {
        println!("WAITED: {}: {seconds}", thread::current().name().unwrap_or_default());
    }
}

/// What a guest takes, until this is dropped.
#[derive(Debug)]
pub struct Seats(#[expect(dead_code, reason = "they are locked as long as they are open")] Vec<Flock<File>>);

impl Seats {
    /// Waits until guests leave `wanted` of this machine's CPUs free, and takes these; `on_line` is told of a wait.
    ///
    /// # Errors
    ///
    /// A file in the lab's folder cannot be made or locked.
    pub fn wait_for(wanted: usize, on_line: &mut dyn FnMut(&str)) -> Result<Seats> {
        let all = thread::available_parallelism()?.get();
        let mut waits_since = None;
        let mut on_wait = || {
            waits_since = Some(Instant::now());
            on_line("lab: waits for other guests on this machine to end");
        };
        let seats = Seats::take(&lab_folder().join("seats"), wanted, all, &mut on_wait)?;
        if let Some(since) = waits_since {
            on_line(&format!("{WAITED}{:.1}s", since.elapsed().as_secs_f64()));
        }
        Ok(seats)
    }

    /// Waits for `wanted` of the `all` seats whose files are in `folder`, and takes them; `on_wait` is called once, if
    /// there is a wait. Who wants fewer goes first.
    ///
    /// # Errors
    ///
    /// A file cannot be made or locked.
    fn take(folder: &Path, wanted: usize, all: usize, on_wait: &mut dyn FnMut()) -> Result<Seats> {
        fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
        let mut waits = false;
        loop {
            if let Some(seats) = Seats::try_take(folder, wanted, all)? {
                return Ok(seats);
            }
            if !std::mem::replace(&mut waits, true) {
                on_wait();
            }
            thread::sleep(POLL);
        }
    }

    /// The same without a wait: `None` if too few are free.
    fn try_take(folder: &Path, wanted: usize, all: usize) -> Result<Option<Seats>> {
        let mut taken = Vec::new();
        for seat in 0..all {
            // Not one more than could be of use: of two who want all, one gets them.
            if taken.len() == wanted || taken.len() + (all - seat) < wanted {
                break;
            }
            taken.extend(try_lock(&folder.join(seat.to_string()))?);
        }
        Ok((taken.len() == wanted).then_some(Seats(taken)))
    }
}

/// The file, unless somebody else has it.
fn try_lock(path: &Path) -> Result<Option<Flock<File>>> {
    let file = File::create(path).with_context(|| format!("cannot create {}", path.display()))?;
    match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
        Ok(lock) => Ok(Some(lock)),
        Err((_, Errno::EWOULDBLOCK)) => Ok(None),
        Err((_, error)) => bail!("cannot lock {}: {error}", path.display()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_sits_on_anothers_seat() {
        let folder = tempfile::tempdir().unwrap();
        let try_take = |wanted| Seats::try_take(folder.path(), wanted, 2).unwrap();
        let (one, other) = (try_take(1), try_take(1));
        assert!(one.is_some() && other.is_some());
        assert!(try_take(1).is_none());
        drop(one);
        assert!(try_take(2).is_none());
        assert!(try_take(1).is_some(), "what was taken in vain is free again");
        drop(other);
        assert!(try_take(2).is_some());
    }

    #[test]
    fn who_waits_is_told_and_served() {
        let folder = tempfile::tempdir().unwrap();
        let mut held = Seats::try_take(folder.path(), 1, 2).unwrap();
        assert!(held.is_some());
        let mut told = 0;
        let mut release = || {
            told += 1;
            held = None;
        };
        Seats::take(folder.path(), 2, 2, &mut release).unwrap();
        assert_eq!(told, 1);
    }
}
