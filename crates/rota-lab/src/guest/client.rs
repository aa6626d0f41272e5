//! An open loop of requests to one server: sent when they are due, whether or not earlier ones are answered, and timed
//! from when they were due. A closed loop, which waits for each answer, would send less just when the server is slow,
//! and so hide it.
//!
//! It stands for clients on other machines, so it runs at real-time priority and waits for nobody's CPU.

use anyhow::{Context, Result, bail, ensure};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::time::TimeSpec;
use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::os::fd::AsFd;
use std::time::Duration;

use super::clock::{Window, now_ns};
use crate::scenario::Protocol;
use crate::scenario::result::Requests;

/// How long after the window answers are waited for.
pub const PATIENCE_NS: u64 = 1_000_000_000;

impl Protocol {
    fn request(self) -> &'static [u8] {
        match self {
            Protocol::Redis => b"*2\r\n$4\r\nINCR\r\n$4\r\nrota\r\n",
            Protocol::Http => b"GET / HTTP/1.1\r\nHost: rota\r\n\r\n",
        }
    }

    /// The length of the first answer in `received` and whether it is a good one; nothing as long as it is not whole.
    fn answer(self, received: &[u8]) -> Result<Option<(usize, bool)>> {
        match self {
            Protocol::Redis => {
                let end = received.windows(2).position(|pair| pair == b"\r\n");
                Ok(end.map(|end| (end + 2, received[0] == b':')))
            }
            Protocol::Http => http_answer(received),
        }
    }
}

fn http_answer(received: &[u8]) -> Result<Option<(usize, bool)>> {
    let mut headers = [httparse::EMPTY_HEADER; 32];
    let mut response = httparse::Response::new(&mut headers);
    let httparse::Status::Complete(head) =
        response.parse(received).context("the server's answer is no HTTP")?
    else {
        return Ok(None);
    };
    let length = response.headers.iter().find(|header| header.name.eq_ignore_ascii_case("content-length"));
    let length = length.context("the server's answer has no Content-Length; serve a plain file")?;
    let length: usize =
        std::str::from_utf8(length.value)?.trim().parse().context("Content-Length is no number")?;
    let whole = received.len() - head >= length;
    Ok(whole.then_some((head + length, response.code == Some(200))))
}

/// The number that a Redis answer gives, of the counter that every request counts up.
fn counter(answer: &[u8]) -> Option<u64> {
    std::str::from_utf8(answer.strip_prefix(b":")?).ok()?.trim_end().parse().ok()
}

/// Requests and answers so far.
struct Loop {
    protocol: Protocol,
    window: Window,
    stream: TcpStream,
    /// When the requests that are not answered were due, oldest first.
    waiting: VecDeque<u64>,
    unsent: VecDeque<u8>,
    received: Vec<u8>,
    /// The counter in the window's first answer.
    first_count: Option<u64>,
    requests: Requests,
}

/// Sends `rate_hz` requests a second to a port of this machine from now to the window's end.
///
/// # Errors
///
/// If the server cannot be reached, closes the connection, or speaks another protocol.
pub fn run(protocol: Protocol, port: u16, rate_hz: u32, window: Window) -> Result<Requests> {
    ensure!((1..=100_000).contains(&rate_hz), "a rate of {rate_hz} Hz is not between 1 and 100000");
    let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))
        .with_context(|| format!("no server answers on port {port}"))?;
    stream.set_nodelay(true)?;
    stream.set_nonblocking(true)?;
    let mut requests = Loop {
        protocol,
        window,
        stream,
        waiting: VecDeque::new(),
        unsent: VecDeque::new(),
        received: Vec::new(),
        first_count: None,
        requests: Requests { rate_hz, ..Requests::default() },
    };
    requests.run(1_000_000_000 / u64::from(rate_hz))?;
    Ok(requests.finish(window.end_ns + PATIENCE_NS))
}

impl Loop {
    fn run(&mut self, interval_ns: u64) -> Result<()> {
        let mut due_ns = now_ns();
        loop {
            let now = now_ns();
            while due_ns <= now && due_ns < self.window.end_ns {
                self.send(due_ns, now)?;
                due_ns += interval_ns;
            }
            let sending = due_ns < self.window.end_ns;
            let next_ns = if sending { due_ns } else { self.window.end_ns + PATIENCE_NS };
            if !sending && (self.waiting.is_empty() || now >= next_ns) {
                return Ok(());
            }
            self.wait(next_ns.saturating_sub(now))?;
            self.receive()?;
            self.flush()?;
        }
    }

    fn send(&mut self, due_ns: u64, now_ns: u64) -> Result<()> {
        if due_ns >= self.window.start_ns {
            self.requests.due += 1;
            self.requests.sent_late_ns = self.requests.sent_late_ns.max(now_ns - due_ns);
        }
        self.waiting.push_back(due_ns);
        self.unsent.extend(self.protocol.request());
        self.flush()
    }

    fn flush(&mut self) -> Result<()> {
        while !self.unsent.is_empty() {
            match self.stream.write(self.unsent.make_contiguous()) {
                Ok(sent) => drop(self.unsent.drain(..sent)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error).context("cannot send to the server"),
            }
        }
        Ok(())
    }

    fn wait(&self, limit_ns: u64) -> Result<()> {
        let unsent = if self.unsent.is_empty() { PollFlags::empty() } else { PollFlags::POLLOUT };
        let mut streams = [PollFd::new(self.stream.as_fd(), PollFlags::POLLIN | unsent)];
        match ppoll(&mut streams, Some(TimeSpec::from_duration(Duration::from_nanos(limit_ns))), None) {
            Ok(_) | Err(Errno::EINTR) => Ok(()),
            Err(error) => Err(error).context("cannot wait for the server"),
        }
    }

    fn receive(&mut self) -> Result<()> {
        let mut chunk = [0; 16384];
        loop {
            match self.stream.read(&mut chunk) {
                Ok(0) => bail!("the server has closed the connection"),
                Ok(length) => self.received.extend(&chunk[..length]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error).context("cannot receive from the server"),
            }
        }
        let now = now_ns();
        let mut taken = 0;
        while let Some((length, good)) = self.protocol.answer(&self.received[taken..])? {
            let count = counter(&self.received[taken..taken + length]);
            if let (Some(count), true) = (count, self.window.overlap_ns(now, now + 1) > 0) {
                self.requests.counted = count - *self.first_count.get_or_insert(count);
            }
            taken += length;
            let due_ns =
                self.waiting.pop_front().context("the server has answered more than it was asked")?;
            self.requests.note(self.window, due_ns, now, Some(good));
        }
        self.received.drain(..taken);
        Ok(())
    }

    /// Counts what was never answered, and sums up.
    fn finish(mut self, given_up_ns: u64) -> Requests {
        for due_ns in self.waiting {
            self.requests.note(self.window, due_ns, given_up_ns, None);
        }
        let quantile =
            |quantile| self.requests.histogram.quantile(quantile).unwrap_or(0).min(self.requests.longest_ns);
        (self.requests.p50_ns, self.requests.p99_ns) = (quantile(0.5), quantile(0.99));
        self.requests
    }
}

impl Requests {
    /// Counts one request, answered well, answered badly, or not at all until `until_ns`.
    fn note(&mut self, window: Window, due_ns: u64, until_ns: u64, good: Option<bool>) {
        if due_ns < window.start_ns {
            return;
        }
        self.answered += u64::from(good == Some(true));
        self.errors += u64::from(good == Some(false));
        self.longest_ns = self.longest_ns.max(until_ns - due_ns);
        self.histogram.add(until_ns - due_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use std::thread;

    #[test]
    fn answers_are_told_apart_and_awaited_whole() {
        let redis = |text: &str| Protocol::Redis.answer(text.as_bytes()).unwrap();
        assert_eq!(redis(":1\r\n:2\r\n"), Some((4, true)));
        assert_eq!(redis("-ERR x\r\n"), Some((8, false)));
        assert_eq!((redis(":1"), redis("")), (None, None));
        assert_eq!((counter(b":17\r\n"), counter(b"-ERR x\r\n")), (Some(17), None));
        let http = |text: &str| Protocol::Http.answer(text.as_bytes()).unwrap();
        assert_eq!(http("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok+"), Some((40, true)));
        assert_eq!(http("HTTP/1.1 404 No\r\ncontent-length: 0\r\n\r\n"), Some((38, false)));
        assert_eq!(http("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\no"), None);
        assert_eq!(http("HTTP/1.1 200"), None);
        assert!(Protocol::Http.answer(b"HTTP/1.1 200 OK\r\n\r\n").is_err());
    }

    /// A server that answers everything it has read, one connection, until it is closed.
    fn server() -> u16 {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut chunk = [0; 4096];
            let mut pending = 0;
            while let Ok(length @ 1..) = stream.read(&mut chunk) {
                pending += length;
                for _ in 0..pending / Protocol::Redis.request().len() {
                    stream.write_all(b":1\r\n").unwrap();
                }
                pending %= Protocol::Redis.request().len();
            }
        });
        port
    }

    #[test]
    fn every_request_due_in_the_window_is_answered_and_counted() {
        let window = Window::after(20_000_000, 100_000_000);
        let requests = run(Protocol::Redis, server(), 1000, window).unwrap();
        assert!((99..=101).contains(&requests.due), "{requests:?}");
        assert_eq!((requests.answered, requests.errors), (requests.due, 0));
        assert_eq!(requests.histogram.total(), requests.due);
        assert!(requests.p50_ns <= requests.p99_ns && requests.p99_ns <= requests.longest_ns);
    }

    #[test]
    fn a_request_never_answered_counts_as_long_as_it_was_waited_for() {
        let silent = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let window = Window::after(0, 50_000_000);
        let requests = run(Protocol::Redis, silent.local_addr().unwrap().port(), 100, window).unwrap();
        assert_eq!((requests.answered, requests.histogram.total()), (0, requests.due));
        assert!(requests.due > 0 && requests.longest_ns >= PATIENCE_NS);
    }

    #[test]
    fn a_server_that_leaves_is_an_error() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        thread::spawn(move || drop(listener.accept()));
        let error = run(Protocol::Redis, port, 100, Window::after(0, 200_000_000)).unwrap_err();
        assert!(error.to_string().contains("server"), "{error}");
    }
}
