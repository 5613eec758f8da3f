//! Reads and writes the socket of a connection without blocking, and records whether the socket is ready.
//!
//! The poller watches a socket edge-triggered. The thread starts the watch only after a read has emptied the socket. Therefore
//! the thread answers and closes most connections without keep-alive before it needs a watch. A read that does not fill the
//! buffer means that the socket is empty (epoll(7), question 9). This rule saves one empty read per request. Reads and writes are
//! raw system calls. The functions of the C library are thread cancellation points, so each call would cost about a hundred more
//! instructions.

use std::cell::Cell;
use std::io::{self, ErrorKind};
use std::net::{Shutdown, TcpStream};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use rustix::event::epoll::EventFlags;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use socket2::SockRef;

use crate::connection_table::ConnectionKey;
use crate::epoll::EpollPoller;
use crate::tcp_info;

/// The epoll events that report readable bytes or the end of the stream.
const READABLE: EventFlags =
    EventFlags::IN.union(EventFlags::RDHUP).union(EventFlags::HUP).union(EventFlags::ERR);

/// The epoll events after which epoll reports no more events for the socket.
/// They mean that the client has closed its sending side, or that the connection has failed.
const ENDS: EventFlags = EventFlags::RDHUP.union(EventFlags::HUP).union(EventFlags::ERR);

/// The non-blocking socket of one connection.
#[repr(C)]
pub(super) struct ClientSocket {
    stream: TcpStream,
    /// True if the socket may have bytes to read.
    may_read: Cell<bool>,
    /// True if a short read does not prove that the socket is empty.
    /// There are two cases. In the first case, the client has closed its sending side, and epoll reports this close only once. In
    /// the second case, the client has sent urgent data, and a read stops before the urgent data (tcp(7)).
    is_doubted: Cell<bool>,
    may_write: Cell<bool>,
    /// True after epoll reported the end of the client's stream. There may still be unread bytes before the end.
    has_ended: Cell<bool>,
    is_reset_on_close: Cell<bool>,
    watched: Cell<EventFlags>,
    /// The waker of the task that waits for this socket.
    /// This field is the last field, so that the other fields share a cache line with the data that each turn uses.
    waker: Cell<Option<Waker>>,
}

/// The outcome of a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReadOutcome {
    Bytes(usize),
    /// The socket has no bytes to read yet.
    WouldBlock,
    /// The client closed its sending side, or the connection failed.
    Closed,
}

impl ClientSocket {
    /// True if bytes of earlier answers wait in the kernel's send buffer, because the client does not read.
    pub(super) fn has_unsent_bytes(&self) -> bool {
        tcp_info::unsent_bytes(&self.stream) > 0
    }

    /// True if the client has sent bytes that the agent has not read.
    pub(super) fn has_unread_bytes(&self) -> bool {
        let mut one = [0];
        recv(&self.stream, &mut one, RecvFlags::PEEK | RecvFlags::DONTWAIT).is_ok()
    }

    /// Returns a socket whose readiness is unknown. The first turn therefore tries to read.
    pub(super) fn new(stream: TcpStream) -> Self {
        Self {
            stream,
            may_read: Cell::new(true),
            is_doubted: Cell::new(false),
            may_write: Cell::new(true),
            has_ended: Cell::new(false),
            is_reset_on_close: Cell::new(false),
            watched: Cell::new(EventFlags::empty()),
            waker: Cell::default(),
        }
    }

    /// Records that the socket may have unread bytes that no event has reported yet.
    pub(super) fn mark_readable(&self) {
        self.may_read.set(true);
    }

    /// True if a read may return bytes or the end of the stream.
    pub(super) fn may_read(&self) -> bool {
        self.may_read.get()
    }

    /// Leaves the received bytes unread until the next event or the next call of [`Self::mark_readable`].
    pub(super) fn defer_reading(&self) {
        self.may_read.set(false);
    }

    /// True after epoll reported the end of the client's stream. There may still be unread bytes before the end.
    pub(super) fn has_ended(&self) -> bool {
        self.has_ended.get()
    }

    /// Returns the stream. Attestation needs the stream to query the kernel about the connection.
    pub(super) fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// Records events that the poller reports for the socket.
    pub(super) fn on_event(&self, flags: EventFlags) {
        if flags.intersects(READABLE) {
            self.may_read.set(true);
        }
        if flags.intersects(ENDS | EventFlags::PRI) {
            self.is_doubted.set(true);
        }
        if flags.intersects(EventFlags::OUT | ENDS) {
            self.may_write.set(true);
        }
        if flags.intersects(ENDS) {
            self.has_ended.set(true);
        }
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }

    /// Drops the waker of the task that waited for the socket.
    pub(super) fn forget_waker(&self) {
        self.waker.take();
    }

    /// Starts to watch the socket for input. The poller also reports input that has already arrived.
    ///
    /// # Errors
    /// The kernel refuses the registration.
    pub(super) fn watch(&self, poller: &EpollPoller, key: ConnectionKey) -> io::Result<()> {
        if self.watched.get().is_empty() {
            self.watch_for(poller, key, EventFlags::IN)?;
        }
        Ok(())
    }

    /// Returns ready when a read may return bytes. Otherwise the poller wakes the task later.
    ///
    /// # Errors
    /// The kernel refuses the registration with the poller.
    pub(super) fn poll_readable(
        &self,
        context: &mut Context<'_>,
        poller: &EpollPoller,
        key: ConnectionKey,
    ) -> Poll<io::Result<()>> {
        self.poll_one(&self.may_read, context, || self.watch(poller, key))
    }

    /// Returns ready when the socket accepts more bytes.
    ///
    /// # Errors
    /// The kernel refuses the registration with the poller.
    pub(super) fn poll_writable(
        &self,
        context: &mut Context<'_>,
        poller: &EpollPoller,
        key: ConnectionKey,
    ) -> Poll<io::Result<()>> {
        self.poll_one(&self.may_write, context, || {
            if self.watched.get().contains(EventFlags::OUT) {
                return Ok(());
            }
            self.watch_for(poller, key, EventFlags::IN | EventFlags::OUT)
        })
    }

    fn poll_one(
        &self,
        is_ready: &Cell<bool>,
        context: &Context<'_>,
        watch: impl FnOnce() -> io::Result<()>,
    ) -> Poll<io::Result<()>> {
        if is_ready.get() {
            return Poll::Ready(Ok(()));
        }
        self.waker.set(Some(context.waker().clone()));
        match watch() {
            Ok(()) => Poll::Pending,
            Err(error) => Poll::Ready(Err(error)),
        }
    }

    /// Registers the socket for these events. epoll also reports an event that happened before the registration (epoll_ctl(2)).
    fn watch_for(&self, poller: &EpollPoller, key: ConnectionKey, flags: EventFlags) -> io::Result<()> {
        let all = flags | EventFlags::PRI | EventFlags::RDHUP | EventFlags::ET;
        if self.watched.replace(all).is_empty() {
            poller.add(&self.stream, key as u64, all)
        } else {
            poller.change(&self.stream, key as u64, all)
        }
    }

    /// Reads once without waiting.
    pub(super) fn read(&self, room: &mut [u8]) -> ReadOutcome {
        let most = room.len();
        match recv(&self.stream, room, RecvFlags::empty()) {
            Ok((0, _)) => ReadOutcome::Closed,
            Ok((n, _)) => {
                self.may_read.set(n == most || self.is_doubted.get());
                ReadOutcome::Bytes(n)
            }
            Err(Errno::AGAIN) => {
                self.may_read.set(false);
                ReadOutcome::WouldBlock
            }
            // The socket stays readable, so the next turn reads again.
            Err(Errno::INTR) => ReadOutcome::WouldBlock,
            Err(_) => ReadOutcome::Closed,
        }
    }

    /// Checks whether the socket has bytes to read, and leaves the bytes unread.
    pub(super) fn peek(&self) -> ReadOutcome {
        match self.stream.peek(&mut [0]) {
            Ok(0) => ReadOutcome::Closed,
            Ok(n) => ReadOutcome::Bytes(n),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                self.may_read.set(false);
                ReadOutcome::WouldBlock
            }
            Err(_) => ReadOutcome::Closed,
        }
    }

    /// Writes once without waiting. Returns the number of written bytes, or `None` if the connection failed.
    pub(super) fn send(&self, bytes: &[u8]) -> Option<usize> {
        if bytes.is_empty() {
            return Some(0);
        }
        match send(&self.stream, bytes, SendFlags::NOSIGNAL) {
            Ok(n) => {
                self.may_write.set(n == bytes.len());
                Some(n)
            }
            Err(Errno::AGAIN) => {
                self.may_write.set(false);
                Some(0)
            }
            Err(_) => None,
        }
    }

    /// Closes the sending side.
    ///
    /// # Errors
    /// The connection has failed.
    pub(super) fn close_sending_side(&self) -> io::Result<()> {
        self.stream.shutdown(Shutdown::Write)
    }

    /// Stops watching the socket, whose key another connection can get.
    pub(super) fn unwatch(&self, poller: &EpollPoller) {
        if !self.watched.replace(EventFlags::empty()).is_empty() {
            poller.remove(&self.stream);
        }
    }

    /// True if both sides have closed the connection, or if it has failed ([`tcp_info::is_over`]).
    pub(super) fn is_over(&self) -> bool {
        tcp_info::is_over(&self.stream)
    }

    /// Closes both sides. If the client still sends, the kernel resets the connection, as after a close of the socket.
    ///
    /// # Errors
    /// The connection has failed.
    pub(super) fn close_both_sides(&self) -> io::Result<()> {
        self.stream.shutdown(Shutdown::Both)
    }

    /// True after a call of [`Self::reset_on_close`].
    pub(super) fn is_reset_on_close(&self) -> bool {
        self.is_reset_on_close.get()
    }

    /// Makes the kernel reset the connection when the socket closes. The kernel then discards all unacknowledged bytes.
    pub(super) fn reset_on_close(&self) {
        self.is_reset_on_close.set(true);
        // A failed connection has no bytes left to send, so an error does not matter.
        let _ = SockRef::from(&self.stream).set_linger(Some(Duration::ZERO));
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::io::{Read, Write};
    use std::net::TcpListener;

    use super::*;

    const KEY: ConnectionKey = 7;

    fn pair() -> (ClientSocket, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (stream, _) = listener.accept().unwrap();
        stream.set_nonblocking(true).unwrap();
        (ClientSocket::new(stream), client)
    }

    /// Waits until the poller reports an event of the socket.
    async fn told(poller: &EpollPoller, socket: &ClientSocket) {
        let mut told = 0;
        while told == 0 {
            poll_fn(|context| poller.poll_ready(context)).await.unwrap();
            let tell = |key, flags| {
                assert_eq!(key, KEY as u64);
                socket.on_event(flags);
            };
            told = poller.for_each_event(tell).unwrap();
        }
    }

    /// Waits for an event of the socket, then reads.
    async fn read(poller: &EpollPoller, socket: &ClientSocket, room: &mut [u8]) -> ReadOutcome {
        while !socket.may_read() {
            told(poller, socket).await;
        }
        socket.read(room)
    }

    #[tokio::test]
    async fn what_came_before_the_watch_is_told_as_what_comes_after_it() {
        let (poller, (socket, mut client)) = (EpollPoller::new().unwrap(), pair());
        let mut room = [0; 16];
        assert_eq!(socket.read(&mut room), ReadOutcome::WouldBlock);
        client.write_all(b"before").unwrap();
        socket.watch(&poller, KEY).unwrap();
        assert_eq!(read(&poller, &socket, &mut room).await, ReadOutcome::Bytes(6));
        assert!(!socket.may_read(), "a short read empties it");
        client.write_all(b"after").unwrap();
        assert_eq!(read(&poller, &socket, &mut room).await, ReadOutcome::Bytes(5));
    }

    #[tokio::test]
    async fn an_end_that_is_told_with_the_last_bytes_is_not_missed() {
        let (poller, (socket, mut client)) = (EpollPoller::new().unwrap(), pair());
        let mut room = [0; 16];
        assert_eq!(socket.read(&mut room), ReadOutcome::WouldBlock);
        client.write_all(b"last").unwrap();
        drop(client);
        // The bytes and the end of the stream have arrived before the task wakes.
        while socket.stream.peek(&mut [0; 16]).is_err() {}
        socket.watch(&poller, KEY).unwrap();
        told(&poller, &socket).await;
        assert_eq!(socket.read(&mut room), ReadOutcome::Bytes(4));
        assert_eq!(read(&poller, &socket, &mut room).await, ReadOutcome::Closed);
    }

    #[tokio::test]
    async fn an_end_is_told_behind_bytes_that_nobody_reads() {
        let (poller, (socket, mut client)) = (EpollPoller::new().unwrap(), pair());
        client.write_all(b"next").unwrap();
        while socket.peek() == ReadOutcome::WouldBlock {}
        socket.defer_reading();
        socket.watch(&poller, KEY).unwrap();
        drop(client);
        while !socket.has_ended() {
            told(&poller, &socket).await;
        }
        assert_eq!(socket.read(&mut [0; 16]), ReadOutcome::Bytes(4));
    }

    #[tokio::test]
    async fn a_read_that_fills_its_room_leaves_it_readable() {
        let (_poller, (socket, mut client)) = (EpollPoller::new().unwrap(), pair());
        client.write_all(b"12345678").unwrap();
        while socket.peek() != ReadOutcome::Bytes(1) {}
        assert_eq!(socket.read(&mut [0; 4]), ReadOutcome::Bytes(4));
        assert!(socket.may_read());
    }

    #[tokio::test]
    async fn a_full_socket_is_told_once_it_takes_more() {
        let (poller, (socket, mut client)) = (EpollPoller::new().unwrap(), pair());
        let part = vec![0; 1 << 16];
        let mut written = 0;
        while let Some(n @ 1..) = socket.send(&part) {
            written += n;
        }
        let reader = std::thread::spawn(move || {
            let mut all = vec![0; written];
            client.read_exact(&mut all).unwrap();
            client
        });
        let writable = poll_fn(|context| socket.poll_writable(context, &poller, KEY));
        tokio::select! {
            ready = writable => ready.unwrap(),
            () = async { loop { told(&poller, &socket).await } } => {}
        }
        assert!(socket.send(b"more").is_some_and(|n| n == 4));
        drop(reader.join().unwrap());
    }
}
