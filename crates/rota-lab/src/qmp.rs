//! Speaks with QEMU over its standard input and output: QMP, docs/interop/qmp-spec.rst in its sources.

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

/// A connection.
pub struct Qmp {
    to: ChildStdin,
    from: Receiver<Value>,
    /// When to give up.
    end: Instant,
}

impl Qmp {
    /// Speaks with `qemu`, whose standard input and output are pipes, for so long as `patience`.
    ///
    /// # Errors
    ///
    /// It is not there or does not answer.
    pub fn open(qemu: &mut Child, patience: Duration) -> Result<Qmp> {
        let (to, out) = (qemu.stdin.take(), qemu.stdout.take());
        let (to, out) = (to.context("no standard input")?, out.context("no standard output")?);
        let (sender, from) = channel();
        thread::spawn(move || {
            let lines = BufReader::new(out).lines().map_while(std::result::Result::ok);
            let messages = lines.filter_map(|line| serde_json::from_str(&line).ok());
            // An error means that nobody listens any more.
            let _ = messages.map(|message: Value| sender.send(message)).find(std::result::Result::is_err);
        });
        let mut qmp = Qmp { to, from, end: Instant::now() + patience };
        qmp.ask("qmp_capabilities", &json!({}))?;
        Ok(qmp)
    }

    /// Has it execute a command, and returns the answer.
    ///
    /// # Errors
    ///
    /// It refuses, or does not answer in time.
    pub fn ask(&mut self, command: &str, arguments: &Value) -> Result<Value> {
        writeln!(self.to, "{}", json!({ "execute": command, "arguments": arguments }))?;
        loop {
            let message = self.next()?;
            if let Some(error) = message.get("error") {
                bail!("QEMU refuses {command}: {error}");
            }
            if let Some(answer) = message.get("return") {
                return Ok(answer.clone());
            }
        }
    }

    /// Waits for an event.
    ///
    /// # Errors
    ///
    /// It does not come in time.
    pub fn event(&mut self, name: &str) -> Result<()> {
        while self.next()?["event"] != name {}
        Ok(())
    }

    fn next(&mut self) -> Result<Value> {
        let left = self.end.saturating_duration_since(Instant::now());
        self.from.recv_timeout(left).context("QEMU says nothing more")
    }
}
