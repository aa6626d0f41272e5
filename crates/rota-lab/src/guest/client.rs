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
            Protocol::Memcached => b"get rota\r\n",
        }
    }

    /// The length of the first answer in `received` and whether it is a good one; nothing as long as it is not whole.
    fn answer(self, received: &[u8]) -> Result<Option<(usize, bool)>> {
        match self {
            Protocol::Redis => Ok(line(received).map(|line| (line.len(), line[0] == b':'))),
            Protocol::Http => http_answer(received),
            Protocol::Memcached => Ok(line(received).map(|line| (line.len(), line == b"END\r\n"))),
        }
    }
}

/// The first line, with its end.
fn line(received: &[u8]) -> Option<&[u8]> {
    let end = received.windows(2).position(|pair| pair == b"\r\n")?;
    Some(&received[..end + 2])
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

/// One connection to the server.
struct Connection {
    stream: TcpStream,
    /// When the requests that are not answered were due, oldest first.
    waiting: VecDeque<u64>,
    unsent: VecDeque<u8>,
    received: Vec<u8>,
}

impl Connection {
    fn open(port: u16) -> Result<Connection> {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))
            .with_context(|| format!("no server answers on port {port}"))?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        Ok(Connection { stream, waiting: VecDeque::new(), unsent: VecDeque::new(), received: Vec::new() })
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

    /// Takes what has come.
    fn receive(&mut self) -> Result<()> {
        let mut chunk = [0; 16384];
        loop {
            match self.stream.read(&mut chunk) {
                Ok(0) => bail!("the server has closed the connection"),
                Ok(length) => self.received.extend(&chunk[..length]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error).context("cannot receive from the server"),
            }
        }
    }
}

/// Requests and answers so far.
struct Loop {
    protocol: Protocol,
    window: Window,
    connections: Vec<Connection>,
    /// The place of the connection that has the next request.
    next: usize,
    /// The counter in the window's first answer.
    first_count: Option<u64>,
    requests: Requests,
}

/// Whom to ask, and how.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct Asking {
    /// What the server speaks
    pub protocol: Protocol,
    /// Where it listens on this machine
    #[arg(long)]
    pub port: u16,
    /// Requests a second, 1 to 100,000
    #[arg(long)]
    pub rate_hz: u32,
    /// On so many connections in turn
    #[arg(long, default_value_t = 1)]
    pub connections: u32,
}

/// Sends requests from now to the window's end.
///
/// # Errors
///
/// If the server cannot be reached, closes a connection, or speaks another protocol.
pub fn run(asking: Asking, window: Window) -> Result<Requests> {
    let Asking { protocol, port, rate_hz, connections } = asking;
    ensure!((1..=100_000).contains(&rate_hz), "a rate of {rate_hz} Hz is not between 1 and 100000");
    ensure!(connections > 0, "without a connection nothing can be asked");
    let mut requests = Loop {
        protocol,
        window,
        connections: (0..connections).map(|_| Connection::open(port)).collect::<Result<_>>()?,
        next: 0,
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
            let is_over = self.connections.iter().all(|connection| connection.waiting.is_empty());
            if !sending && (is_over || now >= next_ns) {
                return Ok(());
            }
            self.wait(next_ns.saturating_sub(now))?;
        }
    }

    fn send(&mut self, due_ns: u64, now_ns: u64) -> Result<()> {
        if due_ns >= self.window.start_ns {
            self.requests.due += 1;
            self.requests.sent_late_ns = self.requests.sent_late_ns.max(now_ns - due_ns);
        }
        let next = (self.next + 1) % self.connections.len();
        let connection = &mut self.connections[std::mem::replace(&mut self.next, next)];
        connection.waiting.push_back(due_ns);
        connection.unsent.extend(self.protocol.request());
        connection.flush()
    }

    /// Waits for answers, and takes them.
    fn wait(&mut self, limit_ns: u64) -> Result<()> {
        let watched = |connection: &Connection| {
            let unsent = if connection.unsent.is_empty() { PollFlags::empty() } else { PollFlags::POLLOUT };
            PollFlags::POLLIN | unsent
        };
        let connections = self.connections.iter();
        let mut streams: Vec<PollFd> = connections
            .map(|connection| PollFd::new(connection.stream.as_fd(), watched(connection)))
            .collect();
        match ppoll(&mut streams, Some(TimeSpec::from_duration(Duration::from_nanos(limit_ns))), None) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => return Err(error).context("cannot wait for the server"),
        }
        let ready = streams.iter().enumerate().filter(|(_, stream)| stream.any().unwrap_or(true));
        let ready: Vec<usize> = ready.map(|(index, _)| index).collect();
        for index in ready {
            self.connections[index].flush()?;
            self.answered(index)?;
        }
        Ok(())
    }

    /// Counts the answers that a connection has received.
    fn answered(&mut self, index: usize) -> Result<()> {
        let connection = &mut self.connections[index];
        connection.receive()?;
        let now = now_ns();
        let mut taken = 0;
        while let Some((length, good)) = self.protocol.answer(&connection.received[taken..])? {
            let count = counter(&connection.received[taken..taken + length]);
            if let (Some(count), true) = (count, self.window.overlap_ns(now, now + 1) > 0) {
                self.requests.counted = count - *self.first_count.get_or_insert(count);
            }
            taken += length;
            let due_ns =
                connection.waiting.pop_front().context("the server has answered more than it was asked")?;
            self.requests.note(self.window, due_ns, now, Some(good));
        }
        connection.received.drain(..taken);
        Ok(())
    }

    /// Counts what was never answered, and sums up.
    fn finish(mut self, given_up_ns: u64) -> Requests {
        for due_ns in self.connections.iter().flat_map(|connection| &connection.waiting) {
            self.requests.note(self.window, *due_ns, given_up_ns, None);
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
        let memcached = |text: &str| Protocol::Memcached.answer(text.as_bytes()).unwrap();
        assert_eq!(memcached("END\r\nEND\r\n"), Some((5, true)));
        assert_eq!((memcached("ERROR\r\n"), memcached("EN")), (Some((7, false)), None));
        let http = |text: &str| Protocol::Http.answer(text.as_bytes()).unwrap();
        assert_eq!(http("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok+"), Some((40, true)));
        assert_eq!(http("HTTP/1.1 404 No\r\ncontent-length: 0\r\n\r\n"), Some((38, false)));
        assert_eq!(http("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\no"), None);
        assert_eq!(http("HTTP/1.1 200"), None);
        assert!(Protocol::Http.answer(b"HTTP/1.1 200 OK\r\n\r\n").is_err());
    }

    /// A server that answers everything it has read on each connection until that is closed.
    fn server() -> u16 {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        thread::spawn(move || {
            for stream in listener.incoming() {
                thread::spawn(move || answer_all(stream.unwrap()));
            }
        });
        port
    }

    fn answer_all(mut stream: TcpStream) {
        let mut chunk = [0; 4096];
        let mut pending = 0;
        while let Ok(length @ 1..) = stream.read(&mut chunk) {
            pending += length;
            for _ in 0..pending / Protocol::Redis.request().len() {
                stream.write_all(b":1\r\n").unwrap();
            }
            pending %= Protocol::Redis.request().len();
        }
    }

    fn asking(port: u16, rate_hz: u32, connections: u32) -> Asking {
        Asking { protocol: Protocol::Redis, port, rate_hz, connections }
    }

    #[test]
    fn every_request_due_in_the_window_is_answered_and_counted() {
        for connections in [1, 7] {
            let window = Window::after(20_000_000, 100_000_000);
            let requests = run(asking(server(), 1000, connections), window).unwrap();
            assert!((99..=101).contains(&requests.due), "{requests:?}");
            assert_eq!((requests.answered, requests.errors), (requests.due, 0));
            assert_eq!(requests.histogram.total(), requests.due);
            assert!(requests.p50_ns <= requests.p99_ns && requests.p99_ns <= requests.longest_ns);
        }
    }

    #[test]
    fn a_request_never_answered_counts_as_long_as_it_was_waited_for() {
        let silent = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let window = Window::after(0, 50_000_000);
        let requests = run(asking(silent.local_addr().unwrap().port(), 100, 2), window).unwrap();
        assert_eq!((requests.answered, requests.histogram.total()), (0, requests.due));
        assert!(requests.due > 0 && requests.longest_ns >= PATIENCE_NS);
    }

    #[test]
    fn a_server_that_leaves_is_an_error() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        thread::spawn(move || drop(listener.accept()));
        let error = run(asking(port, 100, 1), Window::after(0, 200_000_000)).unwrap_err();
        assert!(error.to_string().contains("server"), "{error}");
    }
}
