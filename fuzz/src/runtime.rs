//! A container runtime that says anything.

use std::io::{self, Read, Write};

use rota_nri::follow;

/// It says this, and hears nothing.
struct Runtime<'a>(&'a [u8]);

impl Read for Runtime<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.0.read(into)
    }
}

impl Write for Runtime<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Listens to a runtime that says this and hangs up, which is an error in the end, whatever it was.
///
/// # Panics
///
/// If it is not an error.
pub fn listen(bytes: &[u8]) {
    let error = follow(Runtime(bytes), true, |_| ()).expect_err("it has hung up");
    assert!(!error.to_string().is_empty());
}
