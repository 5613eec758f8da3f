//! HTTP/2 on an open stream: one request per HTTP/2 stream.
//!
//! The `h2` crate implements the protocol, without a runtime. Each event of the socket, and each turn that began a request, polls
//! the connection. Our wakers note the HTTP/2 streams that have news, and only those are polled. Windows are large, so that flow
//! control of this side never slows a response down. The turn's budget bounds the data that is read before it is handled, and so
//! the memory of a connection.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker, ready};
use std::time::Duration;

use bytes::Bytes;
use h2::client::{Builder, Connection, ResponseFuture, SendRequest};
use h2::{Reason, RecvStream, SendStream};
use slab::Slab;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::maybe_tls_stream::MaybeTlsStream;
use super::socket::IoProgress;
use super::{
    ConnectionTurn, FailureStage, RequestEvent, Stream, TimeSource, TransportContext, TransportFailure,
};
use crate::clock::{KernelReceiveWallTime, Nanos};
use crate::in_flight::InFlightKey;
use crate::request::PreparedRequest;
use crate::request_failure_reason::RequestFault;

/// The number of bytes that the server may send before a window update. Response bodies are thrown away at once, so a large
/// window costs nothing.
const STREAM_WINDOW: u32 = 1 << 24;
const CONNECTION_WINDOW: u32 = 1 << 30;

/// The limit is the same as that of HTTP/1.1.
const LARGEST_HEAD: u32 = super::response_parser::HEAD_LIMITS.max_head_bytes as u32;

/// The number of cancelled streams that are remembered, and the time for which: late responses to them are ignored. A stream
/// takes some 500 bytes, 50 MB in all at 10,000 timeouts per second. The library's default of 50 for a second is too small for an
/// overload.
const REMEMBERED: usize = 1 << 14;
const REMEMBERED_FOR: Duration = Duration::from_secs(10);

/// The number of responses to forgotten streams, and of the server's stream errors, after which the library ends the connection.
/// The library counts from the beginning, and late responses soon reach its default of 1,024. Each may cost a frame that the
/// server does not read, so there is a limit: some 400 MB.
const LATE: usize = 1 << 20;

/// An HTTP/2 connection.
pub(crate) struct Http2Connection<S: 'static> {
    wire: LinkHandle<S>,
    state: State<S>,
    streams: Slab<Call>,
    /// Streams with data that must still be sent.
    leaving: Vec<usize>,
    /// Streams with news, by their index in the table.
    ready: Arc<Mutex<Vec<usize>>>,
    /// The spare memory for the list of streams that are being handled.
    spare: Vec<usize>,
    /// One waker per index, which is made once.
    wakers: Vec<Waker>,
    again: Arc<ConnectionWaker>,
    /// The maximum number of streams at once, on this side.
    most: usize,
}

type Opening<S> = Pin<
    Box<
        dyn Future<Output = Result<(SendRequest<Bytes>, Connection<LinkHandle<S>, Bytes>), h2::Error>> + Send,
    >,
>;

enum State<S: 'static> {
    Opening(Opening<S>),
    Open { requests: SendRequest<Bytes>, connection: Box<Connection<LinkHandle<S>, Bytes>> },
    Closed,
}

/// A request and its response.
struct Call {
    key: InFlightKey,
    /// True if the head was sent.
    sent: bool,
    body: Body,
    answer: Awaited,
}

/// The part of a request's body that the library does not have yet.
enum Body {
    Nothing,
    Rest(SendStream<Bytes>, Bytes),
    /// The server does not want the rest.
    Unwanted,
}

enum Awaited {
    Head(ResponseFuture),
    Body(RecvStream),
}

impl<S: 'static> std::fmt::Debug for Http2Connection<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Http2").field("streams", &self.streams.len()).finish_non_exhaustive()
    }
}

impl<S: Stream> Http2Connection<S> {
    /// Sends the preface, which fits the empty buffer of a new socket. The caller has completed the TLS handshake.
    pub(crate) fn new(link: MaybeTlsStream<S>, most: usize) -> Self {
        let wire = LinkHandle(Arc::new(Mutex::new(LinkState {
            link,
            left: 0,
            spent: false,
            stamped: false,
            heard: ReadableState::Some,
            blocked: false,
            broken: None,
            is_first: true,
        })));
        let opening = Builder::new()
            .initial_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .initial_max_send_streams(most)
            .max_header_list_size(LARGEST_HEAD)
            .max_concurrent_reset_streams(REMEMBERED)
            .reset_stream_duration(REMEMBERED_FOR)
            .max_local_error_reset_streams(Some(LATE))
            .enable_push(false)
            .handshake(wire.clone());
        let mut http2 = Self {
            wire,
            state: State::Opening(Box::pin(opening)),
            streams: Slab::new(),
            leaving: Vec::new(),
            ready: Arc::default(),
            spare: Vec::new(),
            wakers: Vec::new(),
            again: Arc::default(),
            most,
        };
        http2.poll(&mut Context::from_waker(Waker::noop()));
        http2
    }

    /// Notes that the poller reported data, or that the server has closed its side.
    pub(crate) fn note_readable(&self, closed: bool, late: bool) {
        self.wire.lock().note_readable(closed, late);
    }

    /// Returns the time when the kernel received the data that was read last, if the kernel was asked.
    pub(crate) fn receive_stamp(&self) -> Option<KernelReceiveWallTime> {
        self.wire.lock().link.receive_stamp()
    }

    /// Returns the number of requests on the connection.
    pub(crate) fn active_requests(&self) -> usize {
        self.streams.len()
    }

    /// Returns the number of requests that the connection can take now.
    pub(crate) fn free_capacity(&self) -> usize {
        match &self.state {
            State::Open { requests, .. } => {
                self.most.min(requests.current_max_send_streams()).saturating_sub(self.streams.len())
            }
            State::Opening(_) | State::Closed => 0,
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        matches!(self.state, State::Closed)
    }

    /// Begins a request on a new stream. The request is sent with the next [`Http2Connection::drive`].
    pub(crate) fn begin_request(
        &mut self,
        key: InFlightKey,
        request: &PreparedRequest,
    ) -> Result<(), (RequestFault, FailureStage)> {
        let unseen = (RequestFault::RefusedStream, FailureStage::NotProcessed);
        let State::Open { requests, .. } = &mut self.state else { return Err(unseen) };
        let (head, body) = request.http2_request().ok_or((RequestFault::Http2, FailureStage::Answering))?;
        let (answer, sending) = requests.send_request(head, body.is_empty()).map_err(|_| unseen)?;
        let body = if body.is_empty() { Body::Nothing } else { Body::Rest(sending, body) };
        let call = Call { key, sent: false, body, answer: Awaited::Head(answer) };
        let place = self.streams.insert(call);
        while self.wakers.len() <= place {
            let news = StreamWaker { place: self.wakers.len(), ready: Arc::clone(&self.ready) };
            self.wakers.push(Waker::from(Arc::new(news)));
        }
        self.streams[place].body.go_on(&mut Context::from_waker(&self.wakers[place]));
        self.leaving.push(place);
        lock(&self.ready).push(place);
        Ok(())
    }

    /// Cancels a request: the stream is reset with the next [`Http2Connection::drive`], and the connection stays open.
    pub(crate) fn cancel(&mut self, key: InFlightKey) {
        let place = self.streams.iter().find_map(|(place, call)| (call.key == key).then_some(place));
        if let Some(place) = place {
            self.remove(place);
        }
    }

    fn remove(&mut self, place: usize) -> Call {
        self.leaving.retain(|&leaving| leaving != place);
        self.streams.remove(place)
    }

    /// Moves bytes both ways and reports events. Returns the number of complete responses; then [`Http2Connection::is_closed`]
    /// tells if the connection has ended.
    pub(crate) fn drive<T: TimeSource>(
        &mut self,
        reused: bool,
        turn: &mut ConnectionTurn<'_, T>,
        desk: &mut TransportContext<'_>,
    ) -> u64 {
        let waker = Waker::from(Arc::clone(&self.again));
        let mut context = Context::from_waker(&waker);
        let mut served = 0;
        let mut places = std::mem::take(&mut self.spare);
        self.wire.lock().allow(turn.budget.bytes());
        loop {
            self.again.0.store(false, Ordering::Relaxed);
            self.wire.lock().stamped = false;
            let before = turn.time.now();
            let over = self.poll(&mut context);
            self.tell_what_left(before, turn);
            let (stamp, more) = self.wire.lock().last_read();
            places.clear();
            std::mem::swap(&mut places, &mut *lock(&self.ready));
            for &place in &places {
                served += u64::from(self.advance(place, (before, stamp), reused, turn, desk));
            }
            if over {
                self.end(reused, turn);
                break;
            }
            if !more && places.is_empty() && !self.again.0.load(Ordering::Relaxed) {
                break;
            }
        }
        self.spare = places;
        turn.budget.is_spent |= std::mem::take(&mut self.wire.lock().spent);
        served
    }

    /// Polls the connection. Returns true if it has ended.
    fn poll(&mut self, context: &mut Context<'_>) -> bool {
        loop {
            match &mut self.state {
                State::Closed => return true,
                State::Open { connection, .. } => {
                    return Pin::new(connection.as_mut()).poll(context).is_ready();
                }
                State::Opening(opening) => match opening.as_mut().poll(context) {
                    Poll::Pending => return false,
                    Poll::Ready(Err(_)) => {
                        self.state = State::Closed;
                        return true;
                    }
                    Poll::Ready(Ok((requests, connection))) => {
                        self.state = State::Open { requests, connection: Box::new(connection) }
                    }
                },
            }
        }
    }

    /// Ends the connection and all its requests with a fault.
    pub(crate) fn break_off<T: TimeSource>(
        &mut self,
        cause: RequestFault,
        reused: bool,
        turn: &mut ConnectionTurn<'_, T>,
    ) {
        self.wire.lock().broken.get_or_insert(cause);
        self.end(reused, turn);
    }

    fn end<T: TimeSource>(&mut self, reused: bool, turn: &mut ConnectionTurn<'_, T>) {
        self.state = State::Closed;
        self.leaving.clear();
        let at = turn.time.now();
        for (_, Call { key, sent, answer, .. }) in std::mem::take(&mut self.streams) {
            let (cause, progress) = self.lost(sent, matches!(answer, Awaited::Body(_)));
            turn.tell(RequestEvent::Failed(TransportFailure { key, cause, stage: progress, reused, at }));
        }
    }

    /// Reports the requests that left, unless the stream accepted no more data.
    fn tell_what_left<T: TimeSource>(&mut self, before: Nanos, turn: &mut ConnectionTurn<'_, T>) {
        if self.leaving.is_empty() || self.wire.lock().blocked {
            return;
        }
        let (after, streams) = (turn.time.now(), &mut self.streams);
        self.leaving.retain(|&place| {
            let call = &mut streams[place];
            call.leave(before, turn);
            if matches!(call.body, Body::Nothing) {
                turn.tell(RequestEvent::Wrote(call.key, after));
            }
            matches!(call.body, Body::Rest(..))
        });
    }

    /// Handles a stream that has news. Returns true if its response is complete.
    fn advance<T: TimeSource>(
        &mut self,
        place: usize,
        (before, stamp): (Nanos, Option<KernelReceiveWallTime>),
        reused: bool,
        turn: &mut ConnectionTurn<'_, T>,
        desk: &mut TransportContext<'_>,
    ) -> bool {
        let Some(call) = self.streams.get_mut(place) else { return false };
        let mut context = Context::from_waker(&self.wakers[place]);
        call.body.go_on(&mut context);
        let Poll::Ready(outcome) = call.receive((before, stamp), &mut context, turn, desk) else {
            return false;
        };
        let answering = matches!(call.answer, Awaited::Body(_));
        let Call { key, sent, .. } = self.remove(place);
        let at = turn.time.now();
        match &outcome {
            Ok(()) => turn.tell(RequestEvent::Done(key, turn.arrival(stamp, at))),
            Err(error) => {
                let (cause, progress) = self.failure(error, sent, answering);
                turn.tell(RequestEvent::Failed(TransportFailure { key, cause, stage: progress, reused, at }));
            }
        }
        outcome.is_ok()
    }

    /// Returns the fault of a request and its stage. The server did not process a refused stream, or a stream after the last one
    /// that its GOAWAY names; the library reports this error for both. A request whose connection ended before a response is
    /// treated like one on an HTTP/1.1 connection that closed.
    fn failure(&self, error: &h2::Error, sent: bool, answering: bool) -> (RequestFault, FailureStage) {
        let unseen = error.is_reset() && error.reason() == Some(Reason::REFUSED_STREAM) || error.is_go_away();
        if !answering && error.is_remote() && unseen {
            return (RequestFault::RefusedStream, FailureStage::NotProcessed);
        }
        if error.is_io() {
            self.lost(sent, answering)
        } else {
            (RequestFault::Http2, FailureStage::Answering)
        }
    }

    /// Returns the outcome of a request whose connection ended.
    fn lost(&self, sent: bool, answering: bool) -> (RequestFault, FailureStage) {
        let broken = self.wire.lock().broken;
        match (answering, sent) {
            (true, _) => (broken.unwrap_or(RequestFault::Truncated), FailureStage::Answering),
            (false, true) => (broken.unwrap_or(RequestFault::ClosedEarly), FailureStage::Sent),
            (false, false) => (broken.unwrap_or(RequestFault::ClosedEarly), FailureStage::NotProcessed),
        }
    }
}

impl Call {
    /// Reports that the head was sent, unless it was reported before.
    fn leave<T: TimeSource>(&mut self, at: Nanos, turn: &mut ConnectionTurn<'_, T>) {
        if !std::mem::replace(&mut self.sent, true) {
            turn.tell(RequestEvent::Sent(self.key, at));
        }
    }

    /// Handles the received parts of the response.
    fn receive<T: TimeSource>(
        &mut self,
        (before, stamp): (Nanos, Option<KernelReceiveWallTime>),
        context: &mut Context<'_>,
        turn: &mut ConnectionTurn<'_, T>,
        desk: &mut TransportContext<'_>,
    ) -> Poll<Result<(), h2::Error>> {
        loop {
            match &mut self.answer {
                Awaited::Head(response) => {
                    let response = ready!(Pin::new(response).poll(context))?;
                    self.leave(before, turn);
                    turn.tell(RequestEvent::FirstResponseByte(
                        self.key,
                        turn.arrival(stamp, turn.time.now()),
                    ));
                    desk.call(self.key).1.receive_http2_head(&response, turn.capture);
                    self.answer = Awaited::Body(response.into_body());
                }
                Awaited::Body(body) => match ready!(body.poll_data(context)) {
                    None => {
                        if desk.call(self.key).1.is_grpc()
                            && let Some(trailers) = ready!(body.poll_trailers(context))?
                        {
                            desk.call(self.key).1.receive_http2_trailers(&trailers);
                        }
                        return Poll::Ready(Ok(()));
                    }
                    Some(data) => {
                        let data = data?;
                        // This fails only if more is released than was received.
                        let _ = body.flow_control().release_capacity(data.len());
                        desk.call(self.key).1.receive_body_data(&data, turn.capture);
                    }
                },
            }
        }
    }
}

impl Body {
    /// Sends as much of the body as the server's window allows.
    fn go_on(&mut self, context: &mut Context<'_>) {
        while let Self::Rest(sending, rest) = self {
            sending.reserve_capacity(rest.len());
            let room = match sending.poll_capacity(context) {
                Poll::Pending => return,
                Poll::Ready(Some(Ok(room))) => room,
                Poll::Ready(Some(Err(_)) | None) => return *self = Self::Unwanted,
            };
            let part = rest.split_to(room.min(rest.len()));
            let last = rest.is_empty();
            match sending.send_data(part, last) {
                Ok(()) if last => *self = Self::Nothing,
                Ok(()) => {}
                Err(_) => *self = Self::Unwanted,
            }
        }
    }
}

/// A stream that both the protocol and the poller use. The lock is never contended: one thread owns both.
#[derive(Debug)]
struct LinkHandle<S>(Arc<Mutex<LinkState<S>>>);

#[derive(Debug)]
struct LinkState<S> {
    link: MaybeTlsStream<S>,
    /// The number of bytes that may still be read in this turn.
    left: usize,
    /// True if reading stopped because the limit was reached.
    spent: bool,
    /// True if a read of this poll has a stamp. The next poll reads the rest, so that each response has the stamp of its own
    /// read.
    stamped: bool,
    heard: ReadableState,
    /// True if the stream accepted no more data at the last write.
    blocked: bool,
    /// The fault of a broken connection.
    broken: Option<RequestFault>,
    /// True if nothing has been read yet.
    is_first: bool,
}

/// The knowledge about unread data. The protocol reads until there is no more data, and is polled for every write; without this
/// knowledge each poll would cost a system call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReadableState {
    /// The last read took all data, and the poller has reported nothing since.
    Nothing,
    /// There may be unread data.
    Some,
    /// The server has closed its side: after the last bytes comes the end, which the poller does not report again.
    End,
}

impl<S> LinkHandle<S> {
    fn lock(&self) -> MutexGuard<'_, LinkState<S>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<S> Clone for LinkHandle<S> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<S: Stream> Http2Connection<S> {
    /// Passes the stream to a function of the network.
    pub(crate) fn with_stream<R>(&self, use_it: impl FnOnce(&S) -> R) -> R {
        use_it(self.wire.lock().link.stream())
    }
}

impl<S: Stream> LinkState<S> {
    fn note_readable(&mut self, closed: bool, late: bool) {
        self.link.note_readable(closed, late);
        if self.heard != ReadableState::End {
            self.heard = if closed { ReadableState::End } else { ReadableState::Some };
        }
    }

    /// Returns the stamp of the last read, and true if the protocol was kept from reading more.
    fn last_read(&self) -> (Option<KernelReceiveWallTime>, bool) {
        (self.link.receive_stamp(), self.stamped)
    }

    fn read(&mut self, buffer: &mut [u8]) -> Result<IoProgress, RequestFault> {
        let moved = self.link.read(buffer)?;
        if let IoProgress::Bytes(count @ 1..) = moved
            && std::mem::take(&mut self.is_first)
            && buffer[..count].starts_with(b"HTTP/1")
        {
            return Err(RequestFault::NotHttp2);
        }
        self.stamped = self.link.receive_stamp().is_some() && matches!(moved, IoProgress::Bytes(_));
        let drained = match moved {
            IoProgress::Bytes(count) => !self.link.may_have_more(count, buffer.len()),
            IoProgress::WouldBlock => true,
        };
        if drained && self.heard == ReadableState::Some {
            self.heard = ReadableState::Nothing;
        }
        Ok(moved)
    }
}

impl<S> LinkState<S> {
    /// Begins a turn in which this number of bytes may be read.
    fn allow(&mut self, bytes: usize) {
        (self.left, self.spent) = (bytes, false);
    }

    fn lost<R>(&mut self, fault: RequestFault) -> Poll<std::io::Result<R>> {
        self.broken = Some(fault);
        Poll::Ready(Err(std::io::Error::other(fault.to_string())))
    }
}

fn lock(ready: &Mutex<Vec<usize>>) -> MutexGuard<'_, Vec<usize>> {
    ready.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A waker that notes a stream with news.
struct StreamWaker {
    place: usize,
    ready: Arc<Mutex<Vec<usize>>>,
}

impl Wake for StreamWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        lock(&self.ready).push(self.place);
    }
}

/// A waker that notes that the connection must be polled again.
#[derive(Default)]
struct ConnectionWaker(AtomicBool);

impl Wake for ConnectionWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The stream as the protocol reads it. It needs no waker: the poller's next event polls the connection again.
impl<S: Stream> AsyncRead for LinkHandle<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let mut line = self.lock();
        if line.heard == ReadableState::Nothing || line.stamped {
            return Poll::Pending;
        }
        if line.left == 0 {
            line.spent = true;
            return Poll::Pending;
        }
        match line.read(buffer.initialize_unfilled()) {
            Ok(IoProgress::Bytes(count)) => {
                line.left = line.left.saturating_sub(count);
                buffer.advance(count);
                Poll::Ready(Ok(()))
            }
            Ok(IoProgress::WouldBlock) => Poll::Pending,
            Err(fault) => line.lost(fault),
        }
    }
}

impl<S: Stream> AsyncWrite for LinkHandle<S> {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<std::io::Result<usize>> {
        let mut line = self.lock();
        let moved = line.link.write(bytes);
        line.blocked = matches!(moved, Ok(IoProgress::WouldBlock));
        match moved {
            Ok(IoProgress::Bytes(count)) => Poll::Ready(Ok(count)),
            Ok(IoProgress::WouldBlock) => Poll::Pending,
            Err(fault) => line.lost(fault),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        let mut line = self.lock();
        let flushed = line.link.flush();
        line.blocked = matches!(flushed, Ok(false));
        match flushed {
            Ok(true) => Poll::Ready(Ok(())),
            Ok(false) => Poll::Pending,
            Err(fault) => line.lost(fault),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        self.poll_flush(context)
    }
}
