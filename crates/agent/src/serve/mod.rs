//! The traffic threads: accept, read, answer, write.
//!
//! Here is the thread: it accepts, decides who may come in, sweeps and drains. [`connection`] is one connection from accept
//! to end, [`turn`] what one turn of it makes of the bytes that it read.
//!
//! Each thread has its own listeners (SO_REUSEPORT) and a current-thread runtime, and shares nothing it writes with
//! the others but the counters of open connections. A connection is a small task. While it waits it holds no
//! buffer: it waits for readiness, reads into the thread's scratch buffer, answers every whole request found there
//! and writes; only a head that arrived in part, or a client that does not read, costs it memory of its own.
//! Why not hyper here: its per-connection buffers do not survive 5,000 connections in 25 MiB (SPECIFICATION.md
//! has the figures). What a request means is decided in `answer`; this module knows bytes, states and limits.

mod connection;
mod turn;

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use seawall_cloud::Refusal;
use seawall_cloud::gce::{Frame, respond};
use seawall_core::{Backoff, Clock};
use seawall_wire::Version;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::LocalSet;

use crate::answer::Service;
use crate::callers::{Caller, Callers};
use crate::connections::{Cap, Connections, Permit, Permits, SWEEP, Timeouts};
use crate::date::Date;
use crate::held::Budget;
use crate::lifecycle::{DRAIN, Stop};
use crate::metrics::Traffic;
use connection::{Place, connection};

/// What every traffic thread has in common.
#[derive(Debug, Clone)]
pub(crate) struct Shared {
    pub(crate) clock: Clock,
    pub(crate) callers: Arc<Callers>,
    pub(crate) open: Arc<Cap>,
    pub(crate) limits: Limits,
}

/// What clients may hold open.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) connections: u32,
    pub(crate) connections_per_caller: u32,
    pub(crate) timeouts: Timeouts,
    pub(crate) wire: seawall_wire::Limits,
}

const FULL: Refusal = Refusal::new(503, "connections", "Too many connections are open; try again shortly.");

/// Answers collected before they are written; a client that pipelines more waits for its turn.
const BATCH: usize = 32 * 1024;

/// One traffic thread.
pub(crate) struct Thread {
    shared: Shared,
    service: Service,
    metrics: Arc<Traffic>,
    stop: Stop,
    connections: RefCell<Connections>,
    scratch: RefCell<Scratch>,
    date: RefCell<Date>,
    held: Budget,
    /// Caps of callers that are no pod, by address; those with nothing open are swept.
    strangers: RefCell<HashMap<IpAddr, Arc<Cap>>>,
    /// Follows `stop`, for the many who ask; it may be a moment late.
    draining: Cell<bool>,
    requests: Cell<u64>,
}

/// The thread's buffers, borrowed only between two waits.
struct Scratch {
    read: Vec<u8>,
    write: Vec<u8>,
}

impl Thread {
    /// A thread that has not begun. `number` makes its request ids distinct from those of other threads.
    pub(crate) fn new(
        shared: Shared,
        service: Service,
        metrics: Arc<Traffic>,
        stop: Stop,
        number: u64,
    ) -> Self {
        // Larger than the largest head by the empty line that may stand before one: a full buffer must never hold a head
        // of which the parser still wants more, or reading into no room would look like the client's end.
        let read = vec![0; shared.limits.wire.head + 2];
        let scratch = Scratch { read, write: Vec::with_capacity(BATCH) };
        Self {
            shared,
            service,
            metrics,
            stop,
            connections: RefCell::default(),
            scratch: RefCell::new(scratch),
            date: RefCell::default(),
            held: Budget::default(),
            strangers: RefCell::default(),
            draining: Cell::new(false),
            requests: Cell::new(number << 48),
        }
    }

    /// Serves these listeners until the stop has begun and the drain is over.
    pub(crate) async fn run(self, listeners: Vec<TcpListener>) {
        let thread = Rc::new(self);
        let mut stop = thread.stop.clone();
        let local = LocalSet::new();
        for listener in listeners {
            local.spawn_local(thread.clone().accept(listener, stop.clone()));
        }
        local.spawn_local(thread.clone().sweep());
        local
            .run_until(async {
                stop.begun().await;
                thread.drain().await;
            })
            .await;
    }

    /// Accepts until the stop. An error never ends the listener: most (a reset client, no more descriptors) pass.
    async fn accept(self: Rc<Self>, listener: TcpListener, mut stop: Stop) {
        let mut backoff = Backoff::doubling(Duration::from_millis(5), Duration::from_secs(1));
        loop {
            let accepted = tokio::select! {
                biased;
                () = stop.begun() => return,
                accepted = listener.accept() => accepted,
            };
            match accepted {
                Ok((stream, peer)) => {
                    backoff.reset();
                    self.admit(stream, peer);
                }
                Err(error) => {
                    self.metrics.connections.accept_errors.fetch_add(1, Ordering::Relaxed);
                    // At the descriptor limit an idle connection is worth less than a new caller.
                    self.connections.borrow_mut().end_oldest_idle(None);
                    tracing::debug!(%error, "accept failed");
                    tokio::time::sleep(backoff.next(fastrand::f64())).await;
                }
            }
        }
    }

    /// Decides who this is and whether there is room, and starts the connection's task.
    fn admit(self: &Rc<Self>, stream: TcpStream, peer: SocketAddr) {
        self.metrics.connections.accepted.fetch_add(1, Ordering::Relaxed);
        let caller = self.shared.callers.at(peer, stream.local_addr().ok());
        let Some(permits) = self.permits(&caller, peer.ip()) else {
            self.metrics.connections.refused_at_cap.fetch_add(1, Ordering::Relaxed);
            return self.refuse_at_cap(&stream);
        };
        let now = self.shared.clock.now();
        let key = self.connections.borrow_mut().enter(permits, now);
        let place = Place { thread: self.clone(), key };
        let task = tokio::task::spawn_local(connection(place, stream, peer, caller));
        self.connections.borrow_mut().started(key, task.abort_handle());
    }

    /// Room in both caps, made by closing the oldest idle connection where that helps: of those that this thread accepted.
    /// The other's table is not this one's to touch. The kernel deals connections out by a hash of the addresses, so each
    /// has about half of any caller's; who is refused while only the other has idle ones tries again and is dealt anew.
    fn permits(&self, caller: &Caller, ip: IpAddr) -> Option<Permits> {
        let limits = &self.shared.limits;
        let own = match caller {
            Caller::Pod(pod) => pod.connections.clone(),
            _ => self.strangers.borrow_mut().entry(ip.to_canonical()).or_default().clone(),
        };
        let caller = self.permit(&own, limits.connections_per_caller, Some(&own))?;
        let process = self.permit(&self.shared.open, limits.connections, None)?;
        Some(Permits { process, caller })
    }

    fn permit(&self, cap: &Arc<Cap>, most: u32, evict_of: Option<&Arc<Cap>>) -> Option<Permit> {
        cap.take(most).or_else(|| {
            let made_room = self.connections.borrow_mut().end_oldest_idle(evict_of);
            if made_room {
                self.metrics.connections.evicted_idle.fetch_add(1, Ordering::Relaxed);
            }
            cap.take(most)
        })
    }

    /// Says 503. What the client has sent already is read first: closing on unread bytes resets the connection, and the
    /// reset can overtake the answer.
    fn refuse_at_cap(&self, stream: &TcpStream) {
        let mut out = Vec::with_capacity(512);
        self.write_refusal(&FULL, &mut out);
        let _ = stream.try_read(&mut self.scratch.borrow_mut().read);
        // The socket's buffer is empty, so this is written whole or the client is gone.
        let _ = stream.try_write(&out);
    }

    fn write_refusal(&self, refusal: &Refusal, out: &mut Vec<u8>) {
        let mut date = self.date.borrow_mut();
        let frame = Frame {
            date: date.at(&self.shared.clock, self.shared.clock.now()),
            server: self.service.server(),
            version: Version::Http11,
            keep_alive: false,
            head_only: false,
        };
        respond::refusal(out, &frame, refusal, self.next_request());
    }

    fn next_request(&self) -> u64 {
        self.requests.replace(self.requests.get() + 1)
    }

    /// Ends what is overdue and whose pod is gone, four times a second.
    async fn sweep(self: Rc<Self>) {
        loop {
            tokio::time::sleep(SWEEP).await;
            let now = self.shared.clock.now();
            let ended = self.connections.borrow_mut().end_overdue(&self.shared.limits.timeouts, now);
            self.metrics.connections.timed_out.fetch_add(ended as u64, Ordering::Relaxed);
            let gone = self.connections.borrow_mut().end_closed();
            self.metrics.connections.ended_with_pod.fetch_add(gone as u64, Ordering::Relaxed);
            self.strangers.borrow_mut().retain(|_, cap| cap.open() > 0);
        }
    }

    /// Lets requests under way finish; everything else is closed.
    async fn drain(&self) {
        self.draining.set(true);
        self.connections.borrow_mut().end_idle();
        let all_gone = async {
            while self.connections.borrow().len() > 0 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        if tokio::time::timeout(DRAIN, all_gone).await.is_err() {
            tracing::warn!(open = self.connections.borrow().len(), "cutting connections that did not finish");
        }
    }
}
