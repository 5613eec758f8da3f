//! The traffic threads: accept, read, answer, write.
//!
//! Each thread has its own listeners (SO_REUSEPORT) and a current-thread runtime, and shares nothing it writes with
//! the others but the counters of open connections. A connection is a small task. While it waits it holds no
//! buffer: it waits for readiness, reads into the thread's scratch buffer, answers every whole request found there
//! and writes; only a head that arrived in part, or a client that does not read, costs it memory of its own.
//! Why not hyper here: its per-connection buffers do not survive 5,000 connections in 25 MiB (SPECIFICATION.md
//! has the figures). What a request means is decided in `answer`; this module knows bytes, states and limits.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::future::poll_fn;
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use seawall_cloud::Refusal;
use seawall_cloud::gce::{Frame, respond};
use seawall_core::{Backoff, Clock, Moment};
use seawall_wire::request::slots;
use seawall_wire::{Framing, Parsed, RequestHead, Version, parse_request};
use tokio::io::{AsyncRead, AsyncWriteExt, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::LocalSet;

use crate::answer::{Asked, Service, Step};
use crate::callers::{Caller, Callers};
use crate::connections::{Cap, Connections, Key, Permit, Permits, SWEEP, State, Timeouts};
use crate::date::Date;
use crate::held::{Budget, Held};
use crate::later::Later;
use crate::lifecycle::{DRAIN, Stop};
use crate::metrics::{Route, Traffic};

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

/// A connection's place in the table; given up when its task ends, however it ends.
struct Place {
    thread: Rc<Thread>,
    key: Key,
}

impl Place {
    fn note(&self, state: State, now: Moment) {
        self.thread.connections.borrow_mut().note(self.key, state, now);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.thread.connections.borrow_mut().leave(self.key);
    }
}

/// What happens once the answers collected so far are written.
enum After {
    /// Wait for more bytes.
    Read,
    /// Look at the bytes that were kept: whole requests may stand there.
    Look,
    /// A request takes time.
    Later(Box<Pending>),
    /// Who asks is not known yet: wait this long at most, then look at the request, which was kept.
    Settle(Duration),
    /// Close; everything the client sent was understood.
    Close,
    /// Close, but let the client read why: bytes of its are left unread, and closing on them would reset
    /// the connection and destroy the answer on its way.
    Linger,
}

/// The answers to a buffer: how many of its bytes are dealt with, and what comes next.
struct Batch {
    taken: usize,
    after: After,
}

/// A request that takes time, and what its answer needs to know.
struct Pending {
    later: Later,
    version: Version,
    keep_alive: bool,
    head_only: bool,
    since: Moment,
    request: u64,
}

/// A socket and who is at its other end.
struct Line {
    stream: TcpStream,
    caller: Caller,
}

impl Drop for Line {
    /// A pod that is gone is not answered any more, by the kernel neither: what was written and not acknowledged it would
    /// send to the pod's address again and again, where the next pod may be by then, and that one could read it from
    /// the wire (container runtimes grant CAP_NET_RAW by default). A reset throws it away.
    fn drop(&mut self) {
        if matches!(&self.caller, Caller::Pod(pod) if pod.connections.is_closed()) {
            // A socket that is broken already has nothing left to send.
            let _ = self.stream.set_zero_linger();
        }
    }
}

/// One connection from accept to end.
async fn connection(place: Place, stream: TcpStream, peer: SocketAddr, caller: Caller) {
    let mut line = Line { stream, caller };
    // Bytes of a head that has not arrived whole, or of requests behind one that takes time.
    let mut kept = place.thread.held.nothing();
    let mut read = true;
    loop {
        let turn =
            poll_fn(|context| place.poll_turn(context, &mut line.stream, &line.caller, &mut kept, read));
        let Some((unsent, after)) = turn.await else { return };
        if !unsent.is_empty() && !place.flush(&line.stream, &unsent).await {
            return;
        }
        drop(unsent);
        match after {
            After::Read => read = true,
            After::Look => read = false,
            After::Later(pending) => {
                if !place.answer_later(&line.stream, *pending).await {
                    return;
                }
                read = kept.is_empty();
            }
            After::Settle(patience) => {
                line.caller = place.settle(peer, patience).await;
                read = false;
            }
            After::Close => return,
            After::Linger => return place.linger(&mut line.stream).await,
        }
    }
}

impl Place {
    /// Reads once (or looks at what was kept), answers whole requests, writes once. Gives what the socket did not take
    /// and what comes next; nothing when the connection is over.
    ///
    /// A poll function and not a wait for readiness followed by a read: after a short read the runtime knows
    /// that the socket is empty and asks epoll at once, which saves a read of nothing per request. The scratch buffer
    /// is borrowed inside one poll only.
    fn poll_turn(
        &self,
        context: &mut Context<'_>,
        stream: &mut TcpStream,
        caller: &Caller,
        kept: &mut Held,
        read: bool,
    ) -> Poll<Option<(Held, After)>> {
        let mut scratch = self.thread.scratch.borrow_mut();
        let Scratch { read: buffer, write: out } = &mut *scratch;
        let mut filled = kept.len().min(buffer.len());
        if read {
            let mut rest = ReadBuf::new(&mut buffer[filled..]);
            match ready!(Pin::new(&mut *stream).poll_read(context, &mut rest)) {
                Ok(()) if rest.filled().is_empty() => return Poll::Ready(None),
                Ok(()) => filled += rest.filled().len(),
                Err(_) => return Poll::Ready(None),
            }
        }
        buffer[..kept.len()].copy_from_slice(kept);
        Poll::Ready(self.turn(stream, caller, &buffer[..filled], kept, out))
    }

    fn turn(
        &self,
        stream: &TcpStream,
        caller: &Caller,
        bytes: &[u8],
        kept: &mut Held,
        out: &mut Vec<u8>,
    ) -> Option<(Held, After)> {
        out.clear();
        let now = self.thread.shared.clock.now();
        let mut batch = self.thread.answer_all(caller, bytes, now, out);
        if !kept.replace(&bytes[batch.taken..]) {
            batch.after = self.thread.refuse_to_hold(&batch.after, out)?;
        }
        if batch.taken > 0 && !kept.is_empty() {
            // Whole requests came, so the head behind them is another one and has a time of its own.
            self.note(State::Idle, now);
        }
        self.note(batch.state(!kept.is_empty()), now);
        let sent = send(stream, out)?;
        let mut unsent = self.thread.held.nothing();
        unsent.replace(&out[sent..]).then_some((unsent, batch.after))
    }

    /// Writes what the socket did not take at once. False when the client is gone.
    async fn flush(&self, stream: &TcpStream, mut unsent: &[u8]) -> bool {
        while !unsent.is_empty() {
            self.note(State::Write, self.thread.shared.clock.now());
            if stream.writable().await.is_err() {
                return false;
            }
            match send(stream, unsent) {
                Some(n) => unsent = &unsent[n..],
                None => return false,
            }
        }
        self.note(State::Idle, self.thread.shared.clock.now());
        true
    }

    /// Ends the sending side and discards what the client still sends, up to a bound; the table's head timeout ends it too.
    async fn linger(&self, stream: &mut TcpStream) {
        const MOST: usize = 256 * 1024;
        // Writing the refusal may have left the connection noted as idle, which is allowed far longer.
        self.note(State::Head, self.thread.shared.clock.now());
        if stream.shutdown().await.is_err() {
            return;
        }
        let mut discarded = 0;
        while discarded < MOST {
            match poll_fn(|context| self.poll_discard(context, stream)).await {
                0 => return,
                n => discarded += n,
            }
        }
    }

    /// Reads into the thread's buffer and forgets it: one of its own would be part of every connection's task. A failed
    /// read gives nothing, as the end does.
    fn poll_discard(&self, context: &mut Context<'_>, stream: &mut TcpStream) -> Poll<usize> {
        let mut scratch = self.thread.scratch.borrow_mut();
        let mut room = ReadBuf::new(&mut scratch.read);
        let _ = ready!(Pin::new(stream).poll_read(context, &mut room));
        Poll::Ready(room.filled().len())
    }

    /// Waits until it is known who asks; whoever is not known by then is nobody, and is told why.
    async fn settle(&self, peer: SocketAddr, patience: Duration) -> Caller {
        let thread = &*self.thread;
        self.note(State::Busy, thread.shared.clock.now());
        let callers = &thread.shared.callers;
        let settled = tokio::time::timeout(patience, async {
            match callers.currently_at(peer).await {
                Some(pod) => pod,
                None => {
                    let pod = callers.settled(peer).await;
                    thread.metrics.held_and_settled();
                    pod
                }
            }
        })
        .await;
        let permit = settled.as_ref().ok().and_then(|pod| {
            let most = thread.shared.limits.connections_per_caller;
            thread.permit(&pod.connections, most, Some(&pod.connections))
        });
        match (settled, permit) {
            (Ok(pod), Some(permit)) => {
                thread.connections.borrow_mut().settle(self.key, permit);
                Caller::Pod(pod)
            }
            (Ok(_), None) => Caller::Nobody(FULL),
            (Err(_), _) => {
                thread.metrics.held_in_vain();
                Caller::Nobody(callers.why_nobody(peer))
            }
        }
    }

    /// Waits for a slow answer and writes it. False when the connection is over.
    async fn answer_later(&self, stream: &TcpStream, pending: Pending) -> bool {
        let Pending { later, version, keep_alive, head_only, since, request } = pending;
        self.note(State::Busy, since);
        let route = later.route;
        let outcome = tokio::select! {
            outcome = later.outcome => outcome,
            () = gone(stream), if later.is_poll => return false,
        };
        let thread = &*self.thread;
        // The stop itself may be what ended the wait, before this thread has turned to it.
        let keep_alive = keep_alive && !thread.stop.has_begun();
        let now = thread.shared.clock.now();
        let mut out = Vec::new();
        let status = {
            let mut date = thread.date.borrow_mut();
            let server = thread.service.server();
            let frame =
                Frame { date: date.at(&thread.shared.clock, now), server, version, keep_alive, head_only };
            outcome.write(&frame, request, now, &mut out)
        };
        thread.metrics.answered(route, status, now.since(since));
        self.flush(stream, &out).await && keep_alive
    }
}

/// How long a client waits before it gives up, and so how long a pod that is not known yet is waited for. The tightest of
/// Go's clients takes 500 ms for an answer, others a second (SDK study, section 4.4).
fn patience_of(head: &RequestHead<'_, '_>) -> Duration {
    // `gcloud-golang/0.1` is cloud.google.com/go/compute/metadata; the others are net/http and aws-sdk-go-v2.
    let is_go = |agent: &[u8]| {
        ["Go-http-client/", "gcloud-golang/", "aws-sdk-go"]
            .iter()
            .any(|known| agent.starts_with(known.as_bytes()))
    };
    let millis = if head.header("user-agent").is_some_and(is_go) { 400 } else { 900 };
    Duration::from_millis(millis)
}

/// Writes once: how much the socket took, or nothing if the client is gone.
fn send(stream: &TcpStream, bytes: &[u8]) -> Option<usize> {
    if bytes.is_empty() {
        return Some(0);
    }
    match stream.try_write(bytes) {
        Ok(n) => Some(n),
        Err(error) if error.kind() == ErrorKind::WouldBlock => Some(0),
        Err(_) => None,
    }
}

/// Returns when the client has closed its side; never, once it has sent more instead.
async fn gone(stream: &TcpStream) {
    match stream.peek(&mut [0]).await {
        Ok(0) | Err(_) => {}
        Ok(_) => std::future::pending().await,
    }
}

impl Batch {
    /// What the connection waits for next.
    fn state(&self, kept: bool) -> State {
        match self.after {
            After::Later(_) | After::Settle(_) => State::Busy,
            After::Linger => State::Head,
            _ if kept => State::Head,
            _ => State::Idle,
        }
    }
}

impl Thread {
    /// Answers the whole requests at the start of `bytes`.
    fn answer_all(&self, caller: &Caller, bytes: &[u8], now: Moment, out: &mut Vec<u8>) -> Batch {
        let mut taken = 0;
        loop {
            if out.len() > BATCH {
                return Batch { taken, after: After::Look };
            }
            let mut slots = slots();
            match parse_request(&bytes[taken..], &mut slots, &self.shared.limits.wire) {
                Ok(Parsed::Partial) => return Batch { taken, after: After::Read },
                Ok(Parsed::Complete(head, _)) if matches!(caller, Caller::Unsettled) => {
                    return Batch { taken, after: After::Settle(patience_of(&head)) };
                }
                Ok(Parsed::Complete(head, used)) => {
                    taken += used;
                    if let Some(after) = self.answer_one(caller, &head, now, out) {
                        return Batch { taken, after };
                    }
                }
                Err(error) => {
                    let refusal = Refusal::from(error);
                    self.write_refusal(&refusal, out);
                    self.metrics.answered(Route::Refused, refusal.status, Duration::ZERO);
                    return Batch { taken: bytes.len(), after: After::Linger };
                }
            }
        }
    }

    /// What becomes of bytes for which there is no room. A head in part is refused; a pipeline behind a request that is not
    /// answered yet cannot be, so its connection ends.
    fn refuse_to_hold(&self, after: &After, out: &mut Vec<u8>) -> Option<After> {
        const FULL: Refusal = Refusal::new(
            503,
            "half_requests",
            "Too many requests have arrived in part; send each in one piece, or try again shortly.",
        );
        if !matches!(after, After::Read) {
            return None;
        }
        self.write_refusal(&FULL, out);
        self.metrics.answered(Route::Refused, FULL.status, Duration::ZERO);
        Some(After::Linger)
    }

    /// Answers one request; says what comes next unless it is simply the next request.
    fn answer_one(
        &self,
        caller: &Caller,
        head: &RequestHead<'_, '_>,
        now: Moment,
        out: &mut Vec<u8>,
    ) -> Option<After> {
        let request = self.next_request();
        let mut date = self.date.borrow_mut();
        // No metadata request has a body. One that announces a body is refused by the dialect, and as
        // the body's bytes would be taken for the next request, its connection ends. A length of zero announces none.
        let bodiless = matches!(head.framing, Framing::None | Framing::Length(0));
        // Whoever sends another method speaks another protocol, and every dialect refuses it.
        let reads = matches!(head.method, "GET" | "HEAD");
        let keep_alive = head.keep_alive && bodiless && reads && !self.draining.get() && !caller.is_passing();
        let date = date.at(&self.shared.clock, now);
        let frame = Frame { keep_alive, ..Frame::of(head, self.service.server(), date) };
        match self.service.answer(caller, Asked { head, frame: &frame, request, now }, out) {
            Step::Answered { route, status } => {
                self.metrics.answered(route, status, self.shared.clock.now().since(now));
                if status == 200 && matches!(route, Route::Token | Route::Identity) {
                    self.metrics.warm();
                }
                let end = if bodiless { After::Close } else { After::Linger };
                (!keep_alive).then_some(end)
            }
            Step::Later(later) => {
                let Frame { version, head_only, .. } = frame;
                Some(After::Later(Box::new(Pending {
                    later,
                    version,
                    keep_alive,
                    head_only,
                    since: now,
                    request,
                })))
            }
        }
    }
}
