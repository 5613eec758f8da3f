//! One HTTP/2 connection and the flights on its streams, driven by hand.
//!
//! The `h2` crate speaks the protocol; there is no runtime under it. Every event of the socket, and every request put
//! on it, polls its connection once; wakers of ours note which streams have news, and only those are looked at.
//! Windows are large, so that flow control of this side never slows an answer down.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use bytes::Bytes;
use h2::client::{Builder, Connection, ResponseFuture, SendRequest};
use h2::{Reason, RecvStream};
use slab::Slab;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::clock::RunClock;
use crate::exchange::Keep;
use crate::fault::Fault;
use crate::flights::{FlightKey, Flights};
use crate::link::Link;
use crate::request::Request;
use crate::socket::Moved;

/// Bytes that the server may send before we say more. Answers are thrown away at once, so this costs nothing.
const STREAM_WINDOW: u32 = 1 << 24;
const CONNECTION_WINDOW: u32 = 1 << 30;

/// A link that the protocol and the poller both look at. The lock is never contended: one thread owns both.
#[derive(Debug, Clone)]
struct Shared(Arc<Mutex<Link>>);

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Link> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An HTTP/2 connection.
pub(crate) struct Session {
    link: Shared,
    state: State,
    streams: Slab<Stream>,
    /// Streams with news, by their place in the table.
    ready: Arc<Mutex<Vec<usize>>>,
    /// A waker per place, made once.
    wakers: Vec<Waker>,
    again: Arc<Again>,
    /// Most streams at once, on this side.
    most: usize,
    /// The server takes no more requests here.
    refuses: bool,
}

type Opening =
    Pin<Box<dyn Future<Output = Result<(SendRequest<Bytes>, Connection<Shared, Bytes>), h2::Error>> + Send>>;

enum State {
    Opening(Opening),
    Open { requests: SendRequest<Bytes>, connection: Box<Connection<Shared, Bytes>> },
    Closed,
}

struct Stream {
    flight: FlightKey,
    progress: Progress,
}

enum Progress {
    Head(ResponseFuture),
    Body(RecvStream),
}

/// What became of a flight on a stream.
pub(crate) type Done = (FlightKey, Result<(), Fault>);

impl Session {
    /// Begins with the preface; whoever calls has done the TLS handshake.
    pub(crate) fn new(link: Link, most: usize) -> Self {
        let link = Shared(Arc::new(Mutex::new(link)));
        let opening = Builder::new()
            .initial_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .initial_max_send_streams(most)
            .enable_push(false)
            .handshake(link.clone());
        Self {
            link,
            state: State::Opening(Box::pin(opening)),
            streams: Slab::new(),
            ready: Arc::default(),
            wakers: Vec::new(),
            again: Arc::default(),
            most,
            refuses: false,
        }
    }

    /// The poller says that there may be something to read, or that the server has closed its side.
    pub(crate) fn note_readable(&self, closed: bool) {
        self.link.lock().note_readable(closed);
    }

    /// Flights on it.
    pub(crate) fn load(&self) -> usize {
        self.streams.len()
    }

    /// Whether another request may be put on it now.
    pub(crate) fn has_room(&self) -> bool {
        match &self.state {
            State::Open { requests, .. } if !self.refuses => {
                self.streams.len() < self.most.min(requests.current_max_send_streams())
            }
            _ => false,
        }
    }

    /// Whether it is still being opened.
    pub(crate) fn is_opening(&self) -> bool {
        matches!(self.state, State::Opening(_))
    }

    pub(crate) fn is_closed(&self) -> bool {
        matches!(self.state, State::Closed)
    }

    /// Puts a request on a new stream. It leaves with the next [`Session::drive`].
    pub(crate) fn start(&mut self, flight: FlightKey, request: &Request) -> Result<(), Fault> {
        if self.is_opening() {
            // The preface fits the empty buffer of a new socket.
            self.poll(&mut Context::from_waker(Waker::noop()));
        }
        let State::Open { requests, .. } = &mut self.state else { return Err(Fault::Http2) };
        let (head, body) = request.http2().ok_or(Fault::Http2)?;
        let Ok((response, mut sending)) = requests.send_request(head, body.is_empty()) else {
            self.refuses = true;
            return Err(Fault::RefusedStream);
        };
        if !body.is_empty() {
            sending.send_data(body, true).map_err(|_| Fault::Http2)?;
        }
        let place = self.streams.insert(Stream { flight, progress: Progress::Head(response) });
        while self.wakers.len() <= place {
            let news = News { place: self.wakers.len(), ready: Arc::clone(&self.ready) };
            self.wakers.push(Waker::from(Arc::new(news)));
        }
        lock(&self.ready).push(place);
        Ok(())
    }

    /// Lets go of a flight whose time is over: the stream is reset, the connection stays.
    pub(crate) fn abandon(&mut self, flight: FlightKey) {
        self.streams.retain(|_, stream| stream.flight != flight);
    }

    /// All flights on it; for when it has broken.
    pub(crate) fn flights(&mut self) -> Vec<FlightKey> {
        let flights = self.streams.iter().map(|(_, stream)| stream.flight).collect();
        self.streams.clear();
        flights
    }

    /// Moves bytes both ways and finishes what can be finished. Afterwards [`Session::is_closed`] tells whether it can
    /// be used any further.
    pub(crate) fn drive(
        &mut self,
        flights: &mut Flights,
        keep: Keep,
        clock: &RunClock,
        done: &mut Vec<Done>,
    ) {
        let waker = Waker::from(Arc::clone(&self.again));
        let mut context = Context::from_waker(&waker);
        loop {
            self.again.0.store(false, Ordering::Relaxed);
            let over = self.poll(&mut context);
            let places = std::mem::take(&mut *lock(&self.ready));
            for &place in &places {
                self.advance(place, flights, keep, clock, done);
            }
            if over {
                self.state = State::Closed;
                return;
            }
            if places.is_empty() && !self.again.0.load(Ordering::Relaxed) {
                return;
            }
        }
    }

    /// True when the connection has ended.
    fn poll(&mut self, context: &mut Context<'_>) -> bool {
        loop {
            match &mut self.state {
                State::Closed => return true,
                State::Open { connection, .. } => {
                    return Pin::new(connection.as_mut()).poll(context).is_ready();
                }
                State::Opening(opening) => match opening.as_mut().poll(context) {
                    Poll::Pending => return false,
                    Poll::Ready(Err(_)) => return true,
                    Poll::Ready(Ok((requests, connection))) => {
                        self.state = State::Open { requests, connection: Box::new(connection) }
                    }
                },
            }
        }
    }

    /// Looks at one stream that has news.
    fn advance(
        &mut self,
        place: usize,
        flights: &mut Flights,
        keep: Keep,
        clock: &RunClock,
        done: &mut Vec<Done>,
    ) {
        let Some(stream) = self.streams.get_mut(place) else { return };
        let Some(flight) = flights.get_mut(stream.flight) else { return };
        let mut context = Context::from_waker(&self.wakers[place]);
        let outcome = loop {
            match &mut stream.progress {
                Progress::Head(response) => match Pin::new(response).poll(&mut context) {
                    Poll::Pending => return,
                    Poll::Ready(Err(error)) => break Err(fault(&error, true)),
                    Poll::Ready(Ok(response)) => {
                        flight.first_byte = Some(clock.now());
                        flight.answer.begin_http2(&response, keep);
                        stream.progress = Progress::Body(response.into_body());
                    }
                },
                Progress::Body(body) => match body.poll_data(&mut context) {
                    Poll::Pending => return,
                    Poll::Ready(None) => break Ok(()),
                    Poll::Ready(Some(Err(error))) => break Err(fault(&error, false)),
                    Poll::Ready(Some(Ok(data))) => {
                        // Fails only if more is released than came.
                        let _ = body.flow_control().release_capacity(data.len());
                        flight.answer.data(&data, keep);
                    }
                },
            }
        };
        let stream = self.streams.remove(place);
        done.push((stream.flight, outcome));
    }

    /// The link, for the poller.
    pub(crate) fn with_link<T>(&self, use_it: impl FnOnce(&Link) -> T) -> T {
        use_it(&self.link.lock())
    }
}

/// A refused stream was not looked at by the server, nor was one beyond the last that its GOAWAY names, which are those
/// that the library gives this error to; one whose connection went before any answer is in the position of a request on an
/// HTTP/1.1 connection that closed.
fn fault(error: &h2::Error, before_answer: bool) -> Fault {
    let unseen = error.is_reset() && error.reason() == Some(Reason::REFUSED_STREAM) || error.is_go_away();
    match before_answer {
        true if error.is_remote() && unseen => Fault::RefusedStream,
        true if error.is_io() => Fault::ClosedEarly,
        _ => Fault::Http2,
    }
}

fn lock(ready: &Mutex<Vec<usize>>) -> MutexGuard<'_, Vec<usize>> {
    ready.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Notes that a stream has news.
struct News {
    place: usize,
    ready: Arc<Mutex<Vec<usize>>>,
}

impl Wake for News {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        lock(&self.ready).push(self.place);
    }
}

/// Notes that the connection wants to be polled again.
#[derive(Default)]
struct Again(AtomicBool);

impl Wake for Again {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The link as the protocol wants it. Nobody has to be woken when it is not ready: the poller's next event polls the
/// connection again.
impl AsyncRead for Shared {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        match self.lock().read(buffer.initialize_unfilled()) {
            Ok(Moved::Bytes(count)) => {
                buffer.advance(count);
                Poll::Ready(Ok(()))
            }
            Ok(Moved::Later) => Poll::Pending,
            Err(fault) => Poll::Ready(Err(std::io::Error::other(fault.to_string()))),
        }
    }
}

impl AsyncWrite for Shared {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<std::io::Result<usize>> {
        match self.lock().write(bytes) {
            Ok(Moved::Bytes(count)) => Poll::Ready(Ok(count)),
            Ok(Moved::Later) => Poll::Pending,
            Err(fault) => Poll::Ready(Err(std::io::Error::other(fault.to_string()))),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        match self.lock().flush() {
            Ok(true) => Poll::Ready(Ok(())),
            Ok(false) => Poll::Pending,
            Err(fault) => Poll::Ready(Err(std::io::Error::other(fault.to_string()))),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        self.poll_flush(context)
    }
}
