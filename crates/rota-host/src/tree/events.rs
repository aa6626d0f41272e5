//! What inotify tells of the tree. How much is taken in at one time has a bound.

use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use inotify::EventMask;

use super::Tree;

/// A turn reads so many buffers; what is left waits for the next one.
const READS_MAX: usize = 4;
/// Dropped events have the whole tree read anew, no more often than this.
const RESCAN: Duration = Duration::from_secs(1);

impl Tree {
    /// Takes in a bounded part of what inotify has reported. Says whether the tree may have changed.
    pub fn refresh(&mut self) -> bool {
        let touched = self.touched();
        if self.is_stale && self.scanned.elapsed() >= RESCAN {
            self.rescan();
            return true;
        }
        let changed = !touched.is_empty();
        for path in touched {
            self.forget(&path);
            self.add(path);
        }
        changed
    }

    /// The directories that came or went, each once however often.
    fn touched(&mut self) -> BTreeSet<PathBuf> {
        let mut touched = BTreeSet::new();
        let mut buffer = [0; 16384];
        for _ in 0..READS_MAX {
            let Some(inotify) = &mut self.inotify else { break };
            let events = match inotify.read_events(&mut buffer) {
                Ok(events) => events,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => {
                    let line = || format!("inotify fails ({error}); {}", super::POLLED);
                    self.notes.say("inotify", line);
                    self.inotify = None;
                    self.watched.clear();
                    break;
                }
            };
            for event in events {
                if event.mask.contains(EventMask::Q_OVERFLOW) {
                    self.is_stale = true;
                } else if event.mask.contains(EventMask::IGNORED) {
                    self.watched.remove(&event.wd);
                } else if event.mask.contains(EventMask::ISDIR)
                    && let (Some(parent), Some(name)) = (self.watched.get(&event.wd), event.name)
                {
                    touched.insert(parent.join(name));
                }
            }
        }
        touched.retain(|path| path.parent().is_some_and(|parent| self.is_wanted(parent, path)));
        touched
    }
}
