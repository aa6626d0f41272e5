//! A server: threads that wait for requests by epoll, each with connections of its own, as nginx and memcached have;
//! and what is behind the network: clients that come as they like, or such as wait for their answer.

use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::rc::Rc;

use crate::distribution::Distribution;
use crate::ids::TaskId;
use crate::program::{Device, Interrupt, Site};
use crate::rng::Rng;
use crate::thread::{Script, Thread};

/// When requests come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Load {
    /// One after the other with such times between, whether those before are answered or not: an open loop. Each comes
    /// on a connection of any thread.
    Open(Distribution),
    /// From so many clients, each of which waits for its answer and then for a while: a closed loop. Client k has a
    /// connection of thread k modulo the number of threads.
    Closed(u32, Distribution),
}

/// The server. Each answer is a piece of work; its latency counts from when the request came.
#[derive(Clone, Copy, Debug)]
pub struct Server {
    /// How many.
    pub threads: u32,
    /// Computing for one answer.
    pub service: Distribution,
    /// Who asks.
    pub load: Load,
}

/// A request, and whose it is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Request {
    due_ns: u64,
    client: u32,
}

/// What has come on a thread's connections.
#[derive(Default)]
struct Inbox {
    requests: RefCell<VecDeque<Request>>,
    waits: Cell<Option<TaskId>>,
}

/// Requests on their way.
type Pending = Rc<RefCell<BinaryHeap<Reverse<Request>>>>;

/// The network card with all that is behind it.
struct Network {
    load: Load,
    begun: bool,
    pending: Pending,
    inboxes: Rc<Vec<Inbox>>,
}

impl Network {
    fn begin(&mut self, now_ns: u64, rng: &mut Rng) {
        let mut first = |client, after: Distribution| {
            let due_ns = now_ns + after.draw(rng);
            self.pending.borrow_mut().push(Reverse(Request { due_ns, client }));
        };
        match self.load {
            Load::Open(between) => first(0, between),
            Load::Closed(clients, think) => (0..clients).for_each(|client| first(client, think)),
        }
    }

    fn deliver(&self, request: Request, interrupt: &mut Interrupt<'_>) {
        let threads = self.inboxes.len() as u64;
        let thread = match self.load {
            Load::Open(between) => {
                let next = Request { due_ns: request.due_ns + between.draw(interrupt.rng), client: 0 };
                self.pending.borrow_mut().push(Reverse(next));
                interrupt.rng.below(threads)
            }
            Load::Closed(..) => u64::from(request.client) % threads,
        };
        let inbox = &self.inboxes[thread as usize];
        inbox.requests.borrow_mut().push_back(request);
        if let Some(task) = inbox.waits.take() {
            interrupt.wake(task);
        }
    }
}

impl Device for Network {
    fn interrupt(&mut self, interrupt: &mut Interrupt<'_>) -> Option<u64> {
        if !std::mem::replace(&mut self.begun, true) {
            self.begin(interrupt.now_ns, interrupt.rng);
        }
        loop {
            let Reverse(next) = *self.pending.borrow().peek()?;
            if next.due_ns > interrupt.now_ns {
                return Some(next.due_ns);
            }
            self.pending.borrow_mut().pop();
            self.deliver(next, interrupt);
        }
    }
}

impl Inbox {
    async fn next(&self, thread: &Thread) -> Request {
        loop {
            let first = self.requests.borrow_mut().pop_front();
            match first {
                Some(request) => return request,
                None => {
                    self.waits.set(Some(thread.task()));
                    thread.wait_for_device().await;
                }
            }
        }
    }
}

impl Server {
    /// The threads; what is behind the network is attached to `site`.
    pub fn programs(&self, site: &mut dyn Site) -> Vec<Script> {
        let Server { threads, service, load } = *self;
        let inboxes: Rc<Vec<Inbox>> = Rc::new((0..threads).map(|_| Inbox::default()).collect());
        let pending = Pending::default();
        let network = Network { load, begun: false, pending: pending.clone(), inboxes: inboxes.clone() };
        let device = site.attach(Box::new(network));
        let script = |number: usize| {
            let (inboxes, pending) = (inboxes.clone(), pending.clone());
            Script::new(move |thread| async move {
                loop {
                    let request = inboxes[number].next(&thread).await;
                    thread.compute_drawn(service).await;
                    thread.work(1);
                    thread.latency(thread.now_ns() - request.due_ns);
                    if let Load::Closed(_, think) = load {
                        let due_ns = thread.now_ns() + thread.draw(|rng| think.draw(rng));
                        pending.borrow_mut().push(Reverse(Request { due_ns, ..request }));
                        thread.ask(device, due_ns);
                    }
                }
            })
        };
        (0..threads as usize).map(script).collect()
    }
}
