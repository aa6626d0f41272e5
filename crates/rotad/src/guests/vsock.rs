//! Timetables over vsock: a VM that connects is sent its own, by the context id that the kernel says it has.
//!
//! A thread of its own does all of this, so nothing here holds the daemon up. What guests send is not read.

use std::collections::BTreeMap;
use std::io::{Error, ErrorKind, Result};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use nix::libc::{MSG_DONTWAIT, MSG_NOSIGNAL, POLLRDHUP, VMADDR_CID_ANY};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use rota_table::VSOCK_PORT;
use socket2::{Domain, SockAddr, Socket, Type};

use crate::log::say;

/// A VM has so many connections at a time; the oldest ones are closed.
const EACH_MAX: usize = 4;
/// All VMs have so many together; later ones are closed.
const ALL_MAX: usize = 4096;
/// So many are taken in at a time.
const BATCH: usize = 16;
/// After each turn of the thread, whatever guests do.
const PAUSE: Duration = Duration::from_millis(10);
/// After a failure to take a connection in.
const REST: Duration = Duration::from_secs(1);

/// What a VM is to be told.
pub struct Told {
    /// Sent when it is another one than before; nothing is sent while it is empty.
    pub text: Arc<str>,
    /// Whether the VM that has the context id is still the one that this is for.
    pub is_there: Box<dyn Fn() -> bool + Send + Sync>,
}

/// By context id.
pub type AllTold = BTreeMap<u32, Told>;

/// Says which context id a connection has.
pub type IdOf = fn(&SockAddr) -> Option<u32>;

/// Listens at [`VSOCK_PORT`], by a socket that the service manager has passed, or by one of its own.
///
/// # Errors
///
/// If this kernel has no vsock, or another process has the port.
pub fn listen() -> Result<Socket> {
    if let Some(listener) = passed(Domain::VSOCK) {
        return Ok(listener);
    }
    let listener = Socket::new(Domain::VSOCK, Type::STREAM, None)?;
    listener.bind(&SockAddr::vsock(VMADDR_CID_ANY, VSOCK_PORT))?;
    listener.listen(128)?;
    Ok(listener)
}

/// A socket of this domain that the service manager has opened for this process (`packaging/rota.socket`): then the
/// process needs no right to do so. It stays open for the next time.
fn passed(domain: Domain) -> Option<Socket> {
    sd_notify::listen_fds().ok()?.find_map(|number| {
        // SAFETY: the manager has opened these for the process, and nothing here closes them.
        let passed = unsafe { BorrowedFd::borrow_raw(number) };
        let socket = Socket::from(passed.try_clone_to_owned().ok()?);
        (socket.domain().ok()? == domain).then_some(socket)
    })
}

/// The context id of a connection's other end.
pub fn context_id(peer: &SockAddr) -> Option<u32> {
    peer.as_vsock_address().map(|(id, _)| id)
}

/// Tells VMs. Dropped, it sends what is still to be sent and can be, and closes all connections.
pub struct Teller {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    orders: Mutex<Orders>,
    wake: EventFd,
}

#[derive(Clone, Default)]
struct Orders {
    told: Arc<AllTold>,
    ends: bool,
}

impl Teller {
    /// Starts the thread, with nobody to be told.
    ///
    /// # Errors
    ///
    /// Without a free file or thread.
    pub fn start(listener: Socket, id_of: IdOf) -> Result<Teller> {
        listener.set_nonblocking(true)?;
        let wake = EventFd::from_flags(EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC)?;
        let shared = Arc::new(Shared { orders: Mutex::default(), wake });
        let connections = Connections { listener, id_of, open: Vec::new(), rests_until: None };
        let of_thread = shared.clone();
        let thread = thread::Builder::new().name("vsock".to_owned());
        let thread = thread.spawn(move || connections.run(&of_thread))?;
        Ok(Teller { shared, thread: Some(thread) })
    }

    /// From now on these are told, and nobody else.
    pub fn tell(&self, told: AllTold) {
        self.order(|orders| orders.told = told.into());
    }

    fn order(&self, change: impl FnOnce(&mut Orders)) {
        change(&mut self.shared.orders.lock().unwrap_or_else(PoisonError::into_inner));
        // It cannot fail but with 2^64 orders that nobody has taken.
        let _ = self.shared.wake.write(1);
    }
}

impl Drop for Teller {
    fn drop(&mut self) {
        self.order(|orders| orders.ends = true);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// What the thread has.
struct Connections {
    listener: Socket,
    id_of: IdOf,
    open: Vec<Connection>,
    rests_until: Option<Instant>,
}

struct Connection {
    peer: Socket,
    id: u32,
    /// What is being sent, and how much of it was.
    text: Arc<str>,
    sent: usize,
}

impl Connections {
    fn run(mut self, shared: &Shared) {
        loop {
            if let Err(error) = self.wait(&shared.wake) {
                return say(&format!("VMs are not told their timetables over vsock any more: {error}"));
            }
            let Orders { told, ends } = shared.orders.lock().unwrap_or_else(PoisonError::into_inner).clone();
            self.take_in(&told);
            let tell = |connection: &mut Connection| {
                told.get(&connection.id).is_some_and(|told| connection.send(&told.text).is_ok())
            };
            self.open.retain_mut(tell);
            if ends {
                return;
            }
            thread::sleep(PAUSE);
        }
    }

    /// Waits for something to do, and forgets connections whose other end has gone.
    fn wait(&mut self, wake: &EventFd) -> Result<()> {
        let rest = self.rests_until.map(|until| until.saturating_duration_since(Instant::now()));
        let rest = rest.filter(|rest| !rest.is_zero());
        let timeout = rest.map_or(PollTimeout::NONE, |rest| {
            PollTimeout::try_from(rest.as_millis() + 1).unwrap_or(PollTimeout::MAX)
        });
        let mut fds = vec![PollFd::new(wake.as_fd(), PollFlags::POLLIN)];
        fds.extend(self.open.iter().map(|connection| {
            let sends = if connection.is_done() { PollFlags::empty() } else { PollFlags::POLLOUT };
            PollFd::new(connection.peer.as_fd(), sends | PollFlags::from_bits_retain(POLLRDHUP))
        }));
        if rest.is_none() {
            fds.push(PollFd::new(self.listener.as_fd(), PollFlags::POLLIN));
        }
        match poll(&mut fds, timeout) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
        // What nix has no name for is POLLRDHUP.
        let has_gone = |fd: &PollFd<'_>| fd.revents().is_none_or(|events| events.intersects(GONE));
        let gone: Vec<bool> = fds[1..=self.open.len()].iter().map(has_gone).collect();
        drop(fds);
        let _ = wake.read();
        let mut gone = gone.into_iter();
        self.open.retain(|_| gone.next() == Some(false));
        Ok(())
    }

    /// Takes in who connects and is to be told. All others are closed at once.
    fn take_in(&mut self, told: &AllTold) {
        if self.rests_until.is_some_and(|until| Instant::now() < until) {
            return;
        }
        self.rests_until = None;
        for _ in 0..BATCH {
            let (peer, address) = match self.listener.accept() {
                Ok(accepted) => accepted,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == ErrorKind::ConnectionAborted => continue,
                Err(error) => {
                    say(&format!("no VM can be told its timetable over vsock for a second: {error}"));
                    self.rests_until = Some(Instant::now() + REST);
                    return;
                }
            };
            let id = (self.id_of)(&address);
            let Some(id) = id.filter(|id| told.get(id).is_some_and(|told| (told.is_there)())) else {
                continue;
            };
            let mut own = (0..self.open.len()).filter(|place| self.open[*place].id == id);
            if let (Some(oldest), EACH_MAX..) = (own.next(), own.count() + 1) {
                self.open.remove(oldest);
            }
            if self.open.len() < ALL_MAX {
                self.open.push(Connection { peer, id, text: "".into(), sent: 0 });
            }
        }
    }
}

/// What is always told of a connection.
const GONE: PollFlags = PollFlags::POLLHUP.union(PollFlags::POLLERR).union(PollFlags::POLLNVAL);

impl Connection {
    fn is_done(&self) -> bool {
        self.sent == self.text.len()
    }

    /// Sends as much as the guest takes now: what was begun, and then `text`.
    fn send(&mut self, text: &Arc<str>) -> Result<()> {
        loop {
            if self.is_done() {
                if self.text == *text {
                    return Ok(());
                }
                (self.text, self.sent) = (text.clone(), 0);
            }
            let rest = &self.text.as_bytes()[self.sent..];
            match self.peer.send_with_flags(rest, MSG_DONTWAIT | MSG_NOSIGNAL) {
                Ok(0) if !rest.is_empty() => return Err(Error::from(ErrorKind::WriteZero)),
                Ok(sent) => self.sent += sent,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::io::Read;
    use std::os::fd::OwnedFd;
    use std::path::Path;
    use std::process::{Command, Stdio};
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    /// A Unix socket in a folder stands in for vsock, and the name of a client's own file for its context id. Connects
    /// as `ID-ANYTHING`.
    pub fn unix(folder: &Path) -> (Teller, impl Fn(&str) -> Socket + use<>) {
        let path = |name: &str| SockAddr::unix(folder.join(name)).unwrap();
        let listener = Socket::new(Domain::UNIX, Type::STREAM, None).unwrap();
        listener.bind(&path("host")).unwrap();
        listener.listen(128).unwrap();
        let id_of: IdOf = |peer| peer.as_pathname()?.file_name()?.to_str()?.split('-').next()?.parse().ok();
        let folder = folder.to_owned();
        let connect = move |name: &str| {
            let client = Socket::new(Domain::UNIX, Type::STREAM, None).unwrap();
            client.bind(&SockAddr::unix(folder.join(name)).unwrap()).unwrap();
            client.connect(&SockAddr::unix(folder.join("host")).unwrap()).unwrap();
            client
        };
        (Teller::start(listener, id_of).unwrap(), connect)
    }

    /// A service manager's protocol speaks of the process, so another one is passed a socket, and answers on it.
    #[test]
    fn a_socket_that_was_passed_is_used() {
        if std::env::var_os("ROTA_PASSED").is_some() {
            assert!(passed(Domain::VSOCK).is_none());
            for _ in 0..2 {
                let (peer, _) = passed(Domain::UNIX).unwrap().accept().unwrap();
                peer.send(b"hello").unwrap();
            }
            return;
        }
        assert!(passed(Domain::UNIX).is_none());
        let folder = tempfile::tempdir().unwrap();
        let path = SockAddr::unix(folder.path().join("host")).unwrap();
        let listener = Socket::new(Domain::UNIX, Type::STREAM, None).unwrap();
        listener.bind(&path).unwrap();
        listener.listen(2).unwrap();
        let test = "guests::vsock::tests::a_socket_that_was_passed_is_used";
        let child = Command::new("sh")
            .args(["-c", "LISTEN_PID=$$ LISTEN_FDS=1 ROTA_PASSED=1 exec \"$0\" --exact \"$1\" 3<&0"])
            .arg(std::env::current_exe().unwrap())
            .arg(test)
            .stdin(Stdio::from(OwnedFd::from(listener)))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        for _ in 0..2 {
            let mut answer = String::new();
            let mut client = Socket::new(Domain::UNIX, Type::STREAM, None).unwrap();
            client.connect(&path).unwrap();
            client.read_to_string(&mut answer).unwrap();
            assert_eq!(answer, "hello");
        }
        let done = child.wait_with_output().unwrap();
        assert!(done.status.success(), "{done:?}");
    }

    struct Fake {
        _folder: tempfile::TempDir,
        teller: Teller,
        connect: Box<dyn Fn(&str) -> Socket>,
    }

    impl Fake {
        fn new() -> Fake {
            let folder = tempfile::tempdir().unwrap();
            let (teller, connect) = unix(folder.path());
            Fake { _folder: folder, teller, connect: Box::new(connect) }
        }

        fn connect(&self, name: &str) -> Socket {
            (self.connect)(name)
        }

        fn tell(&self, told: &[(u32, &str)]) {
            let one =
                |(id, text): &(u32, &str)| (*id, Told { text: (*text).into(), is_there: Box::new(|| true) });
            self.teller.tell(told.iter().map(one).collect());
        }
    }

    /// So many bytes of what is sent next.
    pub fn next(client: &mut Socket, length: usize) -> String {
        client.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let mut bytes = vec![0; length];
        client.read_exact(&mut bytes).unwrap();
        String::from_utf8(bytes).unwrap()
    }

    /// Whether it is closed without another byte.
    pub fn is_closed(client: &mut Socket) -> bool {
        client.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        client
            .read(&mut [0; 64])
            .map_or_else(|error| error.kind() == ErrorKind::ConnectionReset, |read| read == 0)
    }

    #[test]
    fn a_vm_is_told_its_own_when_it_changes_and_nothing_else() {
        let fake = Fake::new();
        fake.tell(&[(3, "three"), (4, "four")]);
        let (mut three, mut four) = (fake.connect("3"), fake.connect("4"));
        assert!(is_closed(&mut fake.connect("5")) && is_closed(&mut fake.connect("x")));
        assert_eq!((next(&mut three, 5), next(&mut four, 4)), ("three".into(), "four".into()));
        fake.tell(&[(3, "three"), (4, "FOUR")]);
        assert_eq!(next(&mut four, 4), "FOUR");
        fake.tell(&[(3, "THREE")]);
        assert_eq!(next(&mut three, 5), "THREE", "nothing was between the two");
        assert!(is_closed(&mut four), "it is not to be told any more");
        drop(fake.teller);
        assert!(is_closed(&mut three));
    }

    #[test]
    fn what_is_told_at_the_end_is_sent() {
        let fake = Fake::new();
        fake.tell(&[(3, "")]);
        let mut three = fake.connect("3");
        fake.tell(&[(3, "none")]);
        drop(fake.teller);
        assert_eq!(next(&mut three, 4), "none");
    }

    /// A context id may be given to another VM before the daemon has seen that the first one has ended.
    #[test]
    fn who_has_a_former_vms_id_is_told_nothing() {
        let (fake, runs) = (Fake::new(), Arc::new(AtomicBool::new(false)));
        let is_there = {
            let runs = runs.clone();
            move || runs.load(Ordering::Relaxed)
        };
        fake.teller.tell(BTreeMap::from([(3, Told { text: "three".into(), is_there: Box::new(is_there) })]));
        assert!(is_closed(&mut fake.connect("3-a")));
        runs.store(true, Ordering::Relaxed);
        assert_eq!(next(&mut fake.connect("3-b"), 5), "three");
    }

    #[test]
    fn a_vm_that_connects_without_end_or_does_not_read_harms_only_itself() {
        let fake = Fake::new();
        let long = "x".repeat(4 << 20);
        fake.tell(&[(3, &long), (4, "four")]);
        let mut many: Vec<Socket> = (0..40).map(|number| fake.connect(&format!("3-{number}"))).collect();
        assert_eq!(next(&mut fake.connect("4"), 4), "four");
        for client in &mut many[..40 - EACH_MAX] {
            client.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
            let mut begun = Vec::new();
            let ended = client.read_to_end(&mut begun).map_or(true, |_| begun.len() < long.len());
            assert!(ended, "a later one has its place");
        }
        // A slow reader gets what was begun to its end, and then the newest.
        fake.tell(&[(3, "second"), (4, "four")]);
        fake.tell(&[(3, "third"), (4, "four")]);
        let last = many.last_mut().unwrap();
        assert!(next(last, long.len()) == long);
        assert_eq!(next(last, 5), "third");
    }

    #[test]
    fn what_a_guest_sends_is_not_read() {
        let fake = Fake::new();
        fake.tell(&[(3, "three")]);
        let mut three = fake.connect("3");
        three.set_nonblocking(true).unwrap();
        let junk = vec![b'x'; 1 << 16];
        let sent: usize = std::iter::from_fn(|| three.send(&junk).ok()).sum();
        assert!((1..64 << 20).contains(&sent), "the kernel takes some: {sent}");
        three.set_nonblocking(false).unwrap();
        assert_eq!(next(&mut three, 5), "three");
        fake.tell(&[(3, "THREE")]);
        assert_eq!(next(&mut three, 5), "THREE");
    }
}
