//! The traffic threads: accept, read, answer, write.
//!
//! Here is the thread: it accepts, decides who may come in, sweeps and drains. [`mod@connection`] is one connection from accept
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
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use seawall_cloud::Refusal;
use seawall_cloud::gce::{Frame, respond};
use seawall_core::{Clock, clock};
use tokio::net::TcpStream;
use tokio::task::LocalSet;

use crate::answer::Service;
use crate::callers::{Caller, Callers};
use crate::connections::{Cap, Connections, Permit, Permits, SWEEP, Timeouts};
use crate::date::Date;
use crate::lanes::Lanes;
use crate::lifecycle::{DRAIN, Stop};
use crate::metrics::Traffic;
use crate::pace::Pace;
use crate::tenants::{Tenant, Tenants};
use crate::turns::Turns;
use connection::{Place, connection};

/// What every traffic thread has in common.
#[derive(Debug, Clone)]
pub(crate) struct Shared {
    pub(crate) clock: Clock,
    pub(crate) callers: Arc<Callers>,
    pub(crate) open: Arc<Cap>,
    /// Connections of those whom nothing is given to.
    pub(crate) strangers: Arc<Cap>,
    pub(crate) limits: Limits,
}

/// What clients may hold open.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) connections: u32,
    pub(crate) connections_per_caller: u32,
    /// Bytes that this thread's connections may hold together.
    pub(crate) held: usize,
    /// Cores of CPU quota.
    pub(crate) cores: Option<f64>,
    pub(crate) timeouts: Timeouts,
    pub(crate) wire: seawall_wire::Limits,
}

const FULL: Refusal = Refusal::new(503, "connections", "Too many connections are open; try again shortly.");

/// Bytes read in one turn. A metadata request has some 200; a head that is longer comes in several turns.
const READ: usize = 4 * 1024;

/// Requests answered in one turn, and bytes of answers after which it ends; a client that pipelines more waits for its next turn.
const REQUESTS: usize = 16;
const BATCH: usize = 16 * 1024;

/// Connections accepted in one round, and of lanes in which nobody known was accepted for a while.
const ACCEPTED: usize = 32;
const ACCEPTED_OF_STRANGERS: usize = 8;

/// Connections that are ended in one round for being too slow or idle.
const ENDED_AT_ONCE: usize = 8;

/// How long the keeper of rounds waits after an `accept` that failed for want of something that others have to give back.
const ACCEPT_PAUSE: Duration = Duration::from_millis(5);

/// One traffic thread.
pub(crate) struct Thread {
    shared: Shared,
    service: Service,
    metrics: Arc<Traffic>,
    stop: Stop,
    connections: RefCell<Connections>,
    scratch: RefCell<Scratch>,
    date: RefCell<Date>,
    turns: Turns,
    tenants: RefCell<Tenants>,
    known: RefCell<KnownLanes>,
    /// Looks at the lanes, for their order.
    looks: Cell<usize>,
    /// An `accept` has failed since the last round.
    is_accept_failing: Cell<bool>,
    /// Follows `stop`, for the many who ask; it may be a moment late.
    draining: Cell<bool>,
    requests: Cell<u64>,
}

/// The lanes in which somebody known was accepted lately. Time is counted in sweeps: a look at the clock for each connection would
/// cost more than the whole list.
#[derive(Default)]
struct KnownLanes {
    /// For each lane the sweep after which that was; zero is never.
    last: Vec<u32>,
    sweeps: u32,
}

impl KnownLanes {
    /// A minute of sweeps.
    const LATELY: u32 = 240;

    fn note(&mut self, lane: usize) {
        if self.last.len() <= lane {
            self.last.resize(lane + 1, 0);
        }
        self.last[lane] = self.sweeps + 1;
    }

    fn is_known(&self, lane: usize) -> bool {
        self.last.get(lane).is_some_and(|last| *last > 0 && self.sweeps - (last - 1) < Self::LATELY)
    }
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
        let tenants = RefCell::new(Tenants::new(shared.limits.held, shared.strangers.clone()));
        let scratch = Scratch { read, write: Vec::with_capacity(BATCH) };
        Self {
            shared,
            service,
            metrics,
            stop,
            connections: RefCell::default(),
            scratch: RefCell::new(scratch),
            date: RefCell::default(),
            turns: Turns::default(),
            tenants,
            known: RefCell::default(),
            looks: Cell::new(0),
            is_accept_failing: Cell::new(false),
            draining: Cell::new(false),
            requests: Cell::new(number << 48),
        }
    }

    /// Serves these lanes until the stop has begun and the drain is over.
    pub(crate) async fn run(self, lanes: Lanes) {
        let thread = Rc::new(self);
        let mut stop = thread.stop.clone();
        let local = LocalSet::new();
        let accepting = local.spawn_local(thread.clone().accept(lanes));
        local.spawn_local(thread.clone().keep_rounds());
        local.spawn_local(thread.clone().sweep());
        local
            .run_until(async {
                stop.begun().await;
                // Its listeners close with it.
                accepting.abort();
                thread.drain().await;
            })
            .await;
    }

    /// Accepts until it is aborted: in each round a few connections of each lane that has some. An error never ends it: most (a
    /// reset client, no more descriptors) pass.
    async fn accept(self: Rc<Self>, mut lanes: Lanes) {
        let mut ready = Vec::new();
        loop {
            let found = lanes.ready(&mut ready).await;
            match found.and_then(|()| self.accept_some(&lanes, &mut ready)) {
                Ok(true) => continue,
                Ok(false) => {}
                Err(error) => {
                    self.metrics.connections.accept_errors.fetch_add(1, Ordering::Relaxed);
                    tracing::debug!(%error, "accept failed");
                    // Out of descriptors: a connection that nobody waits at is worth less than a new caller.
                    self.connections.borrow_mut().end_least_of_the_largest(0);
                    self.is_accept_failing.set(true);
                }
            }
            lanes.leave_some();
            // Asked for and waited for without a pause between, or the round would begin unheard.
            self.turns.want();
            self.turns.next().await;
        }
    }

    /// Accepts from these lanes, the more of each the fewer there are; whether that was all there was. Lanes in which somebody
    /// known was accepted lately come first, and the others share what strangers may have: they are one caller together,
    /// however many addresses they come from.
    ///
    /// Bounded in all, and not only for each lane: what makes room for a new connection is closed only when this thread turns to
    /// it, so without a bound a burst from hundreds of addresses would open several times as many as may be open.
    fn accept_some(self: &Rc<Self>, lanes: &Lanes, ready: &mut [usize]) -> std::io::Result<bool> {
        if let [lane] = ready {
            return self.accept_of(lanes, *lane, ACCEPTED);
        }
        // Not always the same strangers first.
        self.looks.set(self.looks.get().wrapping_add(1));
        ready.rotate_left(self.looks.get() % ready.len().max(1));
        let is_known = |lane: &usize| self.known.borrow().is_known(*lane);
        let (known, strangers): (Vec<usize>, Vec<usize>) = ready.iter().partition(|lane| is_known(lane));
        let share = |lanes: &[usize], most: usize| (most / lanes.len().max(1)).max(1);
        let mut is_all = true;
        for lane in &known {
            is_all &= self.accept_of(lanes, *lane, share(&known, ACCEPTED))?;
        }
        let most = if known.is_empty() { ACCEPTED } else { ACCEPTED_OF_STRANGERS };
        is_all &= strangers.len() <= most;
        for lane in strangers.iter().take(most) {
            is_all &= self.accept_of(lanes, *lane, share(&strangers, most))?;
        }
        Ok(is_all)
    }

    fn accept_of(self: &Rc<Self>, lanes: &Lanes, lane: usize, most: usize) -> std::io::Result<bool> {
        for _ in 0..most {
            match lanes.accept(lane) {
                Ok(Some((stream, peer))) => {
                    if self.admit(stream, peer)? {
                        self.known.borrow_mut().note(lane);
                    }
                }
                Ok(None) => return Ok(true),
                // The client went away before it was accepted (accept(2)).
                Err(error) if error.kind() == ErrorKind::ConnectionAborted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(false)
    }

    /// Begins round after round while somebody waits for one: when all that were ready have been looked at, and not faster than
    /// the CPU quota allows while others are there.
    async fn keep_rounds(self: Rc<Self>) {
        let mut pace = self.shared.limits.cores.map(Pace::new);
        loop {
            self.turns.wanted().await;
            tokio::task::yield_now().await;
            if self.is_accept_failing.take() {
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
            let rest = pace.as_mut().map(|pace| pace.rest(self.shared.clock.now(), clock::cpu_time()));
            if let Some(rest) = rest.filter(|rest| !rest.is_zero() && self.turns.are_shared()) {
                tokio::time::sleep(rest).await;
            }
            self.turns.begin(|key, of| self.connections.borrow_mut().unpark(key, of));
        }
    }

    /// Decides who this is and whether there is room, and starts the connection's task. Whether it is somebody known.
    fn admit(self: &Rc<Self>, mut stream: std::net::TcpStream, peer: SocketAddr) -> std::io::Result<bool> {
        self.metrics.connections.accepted.fetch_add(1, Ordering::Relaxed);
        let caller = self.shared.callers.at(peer, || stream.local_addr().ok());
        let tenant = self.tenant(&caller, peer.ip());
        let is_known = !Arc::ptr_eq(&tenant.connections, &self.shared.strangers);
        let Some(permits) = self.permits(&tenant) else {
            self.metrics.connections.refused_at_cap.fetch_add(1, Ordering::Relaxed);
            self.refuse_at_cap(&mut stream);
            return Ok(is_known);
        };
        let stream = TcpStream::from_std(stream)?;
        let now = self.shared.clock.now();
        let key = self.connections.borrow_mut().enter(permits, now);
        let place = Place { thread: self.clone(), key, tenant, came: Cell::new(None) };
        let task = tokio::task::spawn_local(connection(place, stream, peer, caller));
        self.connections.borrow_mut().started(key, task.abort_handle());
        Ok(is_known)
    }

    /// Whose shares a connection takes. While a pod is not proven to be at its address, it is that pod's all the same: shares
    /// are no credentials, and a known pod must not wait among strangers each time that the proof is renewed.
    fn tenant(&self, caller: &Caller, ip: IpAddr) -> Rc<Tenant> {
        let likely = matches!(caller, Caller::Unsettled).then(|| self.shared.callers.likely_at(ip)).flatten();
        self.tenants.borrow_mut().of(caller, likely.as_ref(), ip)
    }

    /// Room in both caps. A caller that has its share makes room by its own connections; where the process has no room, the caller
    /// that has most makes it. Of those that this thread accepted: the other's table is not this one's to touch, and all
    /// connections of an address are one thread's (`listen`).
    fn permits(&self, tenant: &Tenant) -> Option<Permits> {
        let (limits, open, own) = (&self.shared.limits, &self.shared.open, &tenant.connections);
        let had = own.open();
        let caller = self.permit(own)?;
        let process = open.take(limits.connections).or_else(|| {
            let mut connections = self.connections.borrow_mut();
            self.count_evicted(connections.end_least_of_the_largest(had) || connections.end_least_of(own));
            open.take(limits.connections)
        })?;
        Some(Permits { process, caller })
    }

    /// Room in a caller's own cap.
    fn permit(&self, own: &Arc<Cap>) -> Option<Permit> {
        let (limits, open) = (&self.shared.limits, &self.shared.open);
        let take = || own.may_take(open, limits.connections).then(|| own.take(limits.connections_per_caller));
        take().flatten().or_else(|| {
            let made_room = self.connections.borrow_mut().end_least_of(own);
            self.count_evicted(made_room);
            // Its own place that it just gave up is its own to take, whatever others have by now.
            if made_room { own.take(limits.connections_per_caller) } else { None }
        })
    }

    fn count_evicted(&self, evicted: bool) {
        self.metrics.connections.evicted_idle.fetch_add(u64::from(evicted), Ordering::Relaxed);
    }

    /// Says 503. What the client has sent already is read first: closing on unread bytes resets the connection, and the
    /// reset can overtake the answer.
    fn refuse_at_cap(&self, stream: &mut std::net::TcpStream) {
        let mut out = Vec::with_capacity(512);
        self.write_refusal(&FULL, &mut out);
        let _ = stream.read(&mut self.scratch.borrow_mut().read);
        // The socket's buffer is empty, so this is written whole or the client is gone.
        let _ = stream.write(&out);
    }

    fn write_refusal(&self, refusal: &Refusal, out: &mut Vec<u8>) {
        let mut date = self.date.borrow_mut();
        let date = date.at(&self.shared.clock, self.shared.clock.now());
        let frame = Frame::closing(self.service.server(), date);
        respond::refusal(out, &frame, refusal, self.next_request());
    }

    fn next_request(&self) -> u64 {
        self.requests.replace(self.requests.get() + 1)
    }

    /// Ends what is overdue and whose pod is gone, four times a second: a few in each round, because the kernel frees what a
    /// client still had to send while we close (0.2 ms each, measured), and hundreds at once would be everybody's wait.
    async fn sweep(self: Rc<Self>) {
        loop {
            tokio::time::sleep(SWEEP).await;
            self.known.borrow_mut().sweeps += 1;
            let gone = self.connections.borrow_mut().end_closed();
            self.metrics.connections.ended_with_pod.fetch_add(gone as u64, Ordering::Relaxed);
            while self.end_overdue() == ENDED_AT_ONCE {
                self.turns.want();
                self.turns.next().await;
            }
            self.tenants.borrow_mut().sweep();
            self.turns.look_anew();
        }
    }

    /// Ends a few of those that waited longer than they may; how many.
    fn end_overdue(&self) -> usize {
        let now = self.shared.clock.now();
        let ended =
            self.connections.borrow_mut().end_overdue(&self.shared.limits.timeouts, now, ENDED_AT_ONCE);
        self.metrics.connections.timed_out.fetch_add(ended as u64, Ordering::Relaxed);
        ended
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
