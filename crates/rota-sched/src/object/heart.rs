//! Tells the scheduler that this process lives. A thread of its own does so: what the daemon does may wait for locks of
//! the kernel, which a tenant can hold for as long as its own threads wait for their turns.

use std::convert::Infallible;
use std::mem::offset_of;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result};

use super::memory::Shared;
use super::now_ns;
use crate::shared::Live;

/// Beats until it is dropped, or its process ends.
pub struct Heart {
    /// Nothing is ever sent: the thread ends as this is dropped.
    alive: Option<Sender<Infallible>>,
    thread: Option<JoinHandle<()>>,
}

impl Heart {
    /// Writes the time into [`Live::alive_ns`] of `live` now, and again after `pause` each.
    ///
    /// # Errors
    ///
    /// There can be no more threads.
    pub fn start(live: Shared, pause: Duration) -> Result<Heart> {
        beat(&live);
        let (alive, ended) = mpsc::channel();
        let body = move || {
            while ended.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
                beat(&live);
            }
        };
        let thread = thread::Builder::new().name("heart".to_owned()).spawn(body);
        let thread = thread.context("starting the thread that tells the scheduler of the daemon")?;
        Ok(Heart { alive: Some(alive), thread: Some(thread) })
    }
}

fn beat(live: &Shared) {
    live.write(offset_of!(Live, alive_ns), &now_ns().to_ne_bytes());
}

impl Drop for Heart {
    fn drop(&mut self) {
        drop(self.alive.take());
        // A panic of the thread has been told.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}
