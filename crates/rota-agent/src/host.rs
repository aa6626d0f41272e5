//! Timetables from the host itself, over vsock: it sends each when it has changed. Nothing is sent to it.

use std::io::{self, ErrorKind, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use nix::libc::VMADDR_CID_HOST;
use rota_table::{NO_TIMETABLE, Timetable, VSOCK_PORT};
use socket2::{Domain, SockAddr, Socket, Type};

use crate::tables::TEXT_MAX;

/// The host has so long to answer.
const PATIENCE: Duration = Duration::from_millis(200);
/// Between two looks whether it does.
const STEP: Duration = Duration::from_millis(20);
/// Between two attempts to connect: so long at first, twice as long each time, and so long at most.
const PAUSE_MIN: Duration = Duration::from_millis(250);
/// See [`PAUSE_MIN`].
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// A timetable of a host that is not heard of any more counts for so long. The host's scheduler goes on for ten seconds
/// without its daemon, unless it was started to do otherwise.
const KEPT: Duration = Duration::from_secs(30);

/// Makes connections.
type Connect = fn() -> io::Result<Socket>;

/// The host.
#[derive(Debug)]
pub struct Host {
    connect: Connect,
    connection: Option<Connection>,
    pause: Duration,
    next_try: Instant,
    /// A timetable of it is in force; since then it has not been heard of, if it has not.
    has_told: bool,
    lost_at: Option<Instant>,
    /// That it does not answer was said.
    is_silence_told: bool,
}

#[derive(Debug)]
struct Connection {
    socket: Socket,
    /// What has come of a text that is not whole.
    text: Vec<u8>,
    /// Where its last line begins.
    line_at: usize,
}

/// What has come.
type Item = Option<Timetable>;

impl Host {
    /// That of this machine.
    ///
    /// # Errors
    ///
    /// This kernel has no vsock.
    pub fn new() -> Result<Host> {
        Socket::new(Domain::VSOCK, Type::STREAM, None)
            .context("this machine has no vsock; give the VM a vsock device, or name the timetable's file")?;
        Ok(Host::by(connect))
    }

    fn by(connect: Connect) -> Host {
        Host {
            connect,
            connection: None,
            pause: PAUSE_MIN,
            next_try: Instant::now(),
            has_told: false,
            lost_at: None,
            is_silence_told: false,
        }
    }

    /// Whether it sends anything within that time, or keeps the connection at least.
    pub fn answers(&mut self, within: Duration) -> bool {
        let end = Instant::now() + within;
        while Instant::now() < end {
            if self.connection.is_none() && Instant::now() >= self.next_try {
                self.try_to_connect();
            }
            let has_come = self.connection.as_ref().map(|of| of.socket.peek(&mut [MaybeUninit::uninit()]));
            match has_come {
                Some(Ok(1..)) => return true,
                Some(Err(error)) if error.kind() == ErrorKind::WouldBlock => {}
                Some(_) => self.lose(),
                None => {}
            }
            std::thread::sleep(STEP);
        }
        self.connection.is_some()
    }

    /// The newest timetable, or none, if that has changed since the last time. Connects, if it is time to.
    ///
    /// # Errors
    ///
    /// It is lost or does not answer, which is said once; or what it has sent is no timetable.
    pub fn read(&mut self) -> Result<Option<Item>> {
        if self.connection.is_none() && Instant::now() >= self.next_try {
            self.try_to_connect();
        }
        let Some(connection) = &mut self.connection else { return self.without() };
        let taken = connection.take();
        if taken.as_ref().is_ok_and(Option::is_none) {
            return self.without();
        }
        match taken {
            Ok(item) => {
                (self.pause, self.lost_at, self.is_silence_told) = (PAUSE_MIN, None, false);
                self.has_told = matches!(item, Some(Some(_)));
                Ok(item)
            }
            Err(error) => {
                self.lose();
                let is_new = !std::mem::replace(&mut self.is_silence_told, true);
                if is_new { Err(error) } else { self.without() }
            }
        }
    }

    /// Can be read when something has come.
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.connection.as_ref().map(|connection| connection.socket.as_fd())
    }

    fn try_to_connect(&mut self) {
        match (self.connect)() {
            Ok(socket) => self.connection = Some(Connection { socket, text: Vec::new(), line_at: 0 }),
            Err(_) => self.lose(),
        }
    }

    /// There is no connection, and the next attempt is after a pause.
    fn lose(&mut self) {
        self.connection = None;
        self.next_try = Instant::now() + self.pause;
        self.pause = (self.pause * 2).min(PAUSE_MAX);
        self.lost_at.get_or_insert_with(Instant::now);
    }

    /// Nothing has come: what was told before is kept for a while.
    fn without(&mut self) -> Result<Option<Item>> {
        if self.has_told && self.lost_at.is_some_and(|lost_at| lost_at.elapsed() >= KEPT) {
            self.has_told = false;
            return Ok(Some(None));
        }
        if self.lost_at.is_some() && !std::mem::replace(&mut self.is_silence_told, true) {
            bail!(
                "the host does not answer over vsock, at port {VSOCK_PORT}; it is asked again now and then"
            );
        }
        Ok(None)
    }
}

impl Connection {
    /// The last of what has come as a whole.
    fn take(&mut self) -> Result<Option<Item>> {
        let mut newest = None;
        let mut bytes = [0; 4096];
        loop {
            match self.socket.read(&mut bytes) {
                Ok(0) => {
                    return newest
                        .map_or_else(|| Err(lost("it has closed the connection")), |item| Ok(Some(item)));
                }
                Ok(length) => newest = self.feed(&bytes[..length])?.or(newest),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(newest),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(lost(&error.to_string())),
            }
        }
    }

    /// Takes in bytes: a text ends with its line `end`, and `none` is one.
    fn feed(&mut self, bytes: &[u8]) -> Result<Option<Item>> {
        let mut newest = None;
        for line in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.text.extend(line);
            let of_text = &self.text[self.line_at..];
            if of_text == b"end\n" || self.text == NO_TIMETABLE.as_bytes() {
                newest = Some(item(&self.text)?);
                self.text.clear();
            }
            if line.ends_with(b"\n") {
                self.line_at = self.text.len();
            }
        }
        if self.text.len() as u64 > TEXT_MAX {
            bail!("the host sends more than {} MiB as a timetable, which none is", TEXT_MAX >> 20);
        }
        Ok(newest)
    }
}

fn item(text: &[u8]) -> Result<Item> {
    if text == NO_TIMETABLE.as_bytes() {
        return Ok(None);
    }
    let text = std::str::from_utf8(text).context("what the host sends as a timetable is no text")?;
    let timetable = text.parse().map_err(|error| anyhow!("the timetable that the host sends: {error}"))?;
    Ok(Some(timetable))
}

fn lost(why: &str) -> anyhow::Error {
    anyhow!("the host is not heard of any more: {why}; it is asked again now and then")
}

fn connect() -> io::Result<Socket> {
    let socket = Socket::new(Domain::VSOCK, Type::STREAM, None)?;
    socket.connect_timeout(&SockAddr::vsock(VMADDR_CID_HOST, VSOCK_PORT), PATIENCE)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::io::Write;

    use super::*;

    const TEXT: &str = "rota-timetable 1\ngeneration 3\nfrom 0\nclock own\nvcpu 0 of 1000: 0-500\nend\n";

    thread_local! {
        /// The ends that are to be connected to; a Unix socket stands in for vsock.
        static ENDS: RefCell<Vec<Socket>> = const { RefCell::new(Vec::new()) };
    }

    /// A host that has made a connection.
    fn host() -> (Host, Socket) {
        let mut host =
            Host::by(|| ENDS.with_borrow_mut(|ends| ends.pop().ok_or(ErrorKind::ConnectionReset.into())));
        let end = offer();
        assert_eq!(host.read().unwrap(), None, "nothing has come");
        (host, end)
    }

    fn offer() -> Socket {
        let (host, guest) = Socket::pair(Domain::UNIX, Type::STREAM, None).unwrap();
        guest.set_nonblocking(true).unwrap();
        ENDS.with_borrow_mut(|ends| ends.push(guest));
        host
    }

    fn generation(read: Result<Option<Item>>) -> u64 {
        read.unwrap().unwrap().unwrap().generation
    }

    #[test]
    fn each_text_is_taken_when_it_is_whole_and_the_last_one_counts() {
        let (mut host, mut end) = host();
        for byte in &TEXT.as_bytes()[..TEXT.len() - 1] {
            end.write_all(&[*byte]).unwrap();
            assert_eq!(host.read().unwrap(), None);
        }
        end.write_all(b"\n").unwrap();
        assert_eq!(generation(host.read()), 3);
        assert_eq!(host.read().unwrap(), None, "it is told once");
        end.write_all(format!("none\n{TEXT}").as_bytes()).unwrap();
        assert_eq!(generation(host.read()), 3);
        let next = TEXT.replace("generation 3", "generation 4");
        end.write_all(format!("{TEXT}{next}{}", &TEXT[..40]).as_bytes()).unwrap();
        assert_eq!(generation(host.read()), 4);
        end.write_all(&TEXT.as_bytes()[40..]).unwrap();
        end.write_all(NO_TIMETABLE.as_bytes()).unwrap();
        assert_eq!(host.read().unwrap(), Some(None));
    }

    #[test]
    fn a_host_that_is_lost_is_asked_again_and_what_it_told_is_kept_for_a_while() {
        let (mut host, mut end) = host();
        end.write_all(TEXT.as_bytes()).unwrap();
        drop(end);
        assert_eq!(generation(host.read()), 3, "what it has sent before counts");
        let said = host.read().unwrap_err().to_string();
        assert!(
            said.starts_with("the host is not heard of any more: it has closed the connection"),
            "{said}"
        );
        assert_eq!((host.read().unwrap(), host.pause), (None, 2 * PAUSE_MIN), "it is said once");
        for _ in 0..10 {
            host.next_try = Instant::now();
            assert_eq!(host.read().unwrap(), None);
        }
        assert_eq!(host.pause, PAUSE_MAX);
        host.lost_at = Instant::now().checked_sub(KEPT);
        assert_eq!(host.read().unwrap(), Some(None), "it counts no more");
        assert_eq!(host.read().unwrap(), None);
        host.next_try = Instant::now();
        offer().write_all(TEXT.as_bytes()).unwrap();
        assert_eq!((generation(host.read()), host.pause), (3, PAUSE_MIN));
    }

    #[test]
    fn what_is_no_timetable_is_told_once_and_the_connection_closed() {
        let (mut host, mut end) = host();
        end.write_all(TEXT.replace("0-500", "0_5").as_bytes()).unwrap();
        let said = host.read().unwrap_err().to_string();
        assert!(said.starts_with("the timetable that the host sends: line 5: \"0_5\" is no slot"), "{said}");
        assert!(host.connection.is_none() && host.read().unwrap().is_none());

        let (mut host, mut end) = self::host();
        let endless = std::thread::spawn(move || while end.write_all(&[b'x'; 1 << 16]).is_ok() {});
        let said = loop {
            if let Err(error) = host.read() {
                break error.to_string();
            }
        };
        assert!(said.contains("more than 4 MiB"), "{said}");
        endless.join().unwrap();
    }

    #[test]
    fn a_host_that_never_answers_is_told_once() {
        let mut host = Host::by(|| Err(ErrorKind::ConnectionReset.into()));
        assert!(!host.answers(Duration::from_millis(30)));
        let said = host.read().unwrap_err().to_string();
        assert!(said.starts_with("the host does not answer over vsock, at port 987"), "{said}");
        assert_eq!(host.read().unwrap(), None);
    }
}
