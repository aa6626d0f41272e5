//! The daemon's log: one line an event, on standard error.

use std::io::Write;
use std::time::SystemTime;

/// Writes one line with the time in UTC. A message of several lines becomes one.
pub fn say(message: &str) {
    let time = humantime::format_rfc3339_millis(SystemTime::now());
    // Who reads the log may go away; tenants do not depend on it.
    let _ = writeln!(std::io::stderr(), "{time} {}", message.replace('\n', "; "));
}
