//! A connection's socket: what is known of its readiness, and reading and writing without waiting.
//!
//! It is watched edge-triggered and only once it has nothing to read: most connections without keep-alive are answered and closed
//! before the poller ever hears of them. A read that does not fill its room is the sign that the socket is empty (epoll(7),
//! question 9), which saves a read of nothing for each request. Reads and writes are the bare system calls: those of the C library
//! are places where a thread may be cancelled, and preparing for that is a hundred instructions of each.

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

/// What tells that there is something to read, be it the end.
const READABLE: EventFlags =
    EventFlags::IN.union(EventFlags::RDHUP).union(EventFlags::HUP).union(EventFlags::ERR);

/// What tells that the client has ended its side, or all is over: nothing is told after it.
const ENDS: EventFlags = EventFlags::RDHUP.union(EventFlags::HUP).union(EventFlags::ERR);

/// A socket that does not block, of one thread.
#[repr(C)]
pub(super) struct ClientSocket {
    stream: TcpStream,
    /// There may be something to read.
    may_read: Cell<bool>,
    /// A short read is no sign that it is empty: the client has ended its side, which is told once, or has sent urgent data, at
    /// which a read stops (tcp(7)).
    is_doubted: Cell<bool>,
    may_write: Cell<bool>,
    /// The client's end was told, behind whatever is still to be read.
    has_ended: Cell<bool>,
    watched: Cell<EventFlags>,
    /// Whoever waits for it. The last of all: what comes before it stands in one line of memory with what a turn touches.
    waker: Cell<Option<Waker>>,
}

/// What a read found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReadOutcome {
    Bytes(usize),
    /// Nothing yet.
    WouldBlock,
    /// The client's end, or a connection that failed.
    Closed,
}

impl ClientSocket {
    /// Nothing is known of it yet, so it may be read.
    pub(super) fn new(stream: TcpStream) -> Self {
        Self {
            stream,
            may_read: Cell::new(true),
            is_doubted: Cell::new(false),
            may_write: Cell::new(true),
            has_ended: Cell::new(false),
            watched: Cell::new(EventFlags::empty()),
            waker: Cell::default(),
        }
    }

    /// Something may have come of which nothing was told yet.
    pub(super) fn mark_readable(&self) {
        self.may_read.set(true);
    }

    /// Whether a read may find something.
    pub(super) fn may_read(&self) -> bool {
        self.may_read.get()
    }

    /// What is there is left there: the next thing that comes is waited for, and [`Self::mark_readable`] comes back to this.
    pub(super) fn ignore_unread(&self) {
        self.may_read.set(false);
    }

    /// Whether the client's end is known, which may stand behind bytes that nobody has read.
    pub(super) fn has_ended(&self) -> bool {
        self.has_ended.get()
    }

    /// For attestation, which asks the kernel about it.
    pub(super) fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// The poller tells this of it.
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

    /// Whoever waited for it does so no longer.
    pub(super) fn forget_waker(&self) {
        self.waker.take();
    }

    /// From now on the poller tells when there is something to read. What came before is told, too.
    ///
    /// # Errors
    /// The kernel does not take it.
    pub(super) fn watch(&self, poller: &EpollPoller, key: ConnectionKey) -> io::Result<()> {
        if self.watched.get().is_empty() {
            self.watch_for(poller, key, EventFlags::IN)?;
        }
        Ok(())
    }

    /// Ready once a read may find something; or it is told of.
    ///
    /// # Errors
    /// The kernel does not take it into the poller.
    pub(super) fn poll_readable(
        &self,
        context: &mut Context<'_>,
        poller: &EpollPoller,
        key: ConnectionKey,
    ) -> Poll<io::Result<()>> {
        self.poll_one(&self.may_read, context, || self.watch(poller, key))
    }

    /// Ready once it takes more.
    ///
    /// # Errors
    /// The kernel does not take it into the poller.
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

    /// An edge that came before is told by this again (epoll_ctl(2)).
    fn watch_for(&self, poller: &EpollPoller, key: ConnectionKey, flags: EventFlags) -> io::Result<()> {
        let all = flags | EventFlags::PRI | EventFlags::RDHUP | EventFlags::ET;
        if self.watched.replace(all).is_empty() {
            poller.add(&self.stream, key as u64, all)
        } else {
            poller.change(&self.stream, key as u64, all)
        }
    }

    /// Reads once.
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
            // It stays readable, and is read again.
            Err(Errno::INTR) => ReadOutcome::WouldBlock,
            Err(_) => ReadOutcome::Closed,
        }
    }

    /// Looks whether there is something to read, and leaves it there.
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

    /// Writes once: how much the socket took, or nothing if the client is gone.
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

    /// Ends the sending side.
    ///
    /// # Errors
    /// The connection is over.
    pub(super) fn finish(&self) -> io::Result<()> {
        self.stream.shutdown(Shutdown::Write)
    }

    /// When it is closed, the client hears a reset, and what was written and not acknowledged is thrown away.
    pub(super) fn reset_at_end(&self) {
        // A socket that is broken already has nothing left to send.
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

    /// Waits until the poller tells something of the socket.
    async fn told(poller: &EpollPoller, socket: &ClientSocket) {
        let mut told = 0;
        while told == 0 {
            poll_fn(|context| poller.poll_ready(context)).await.unwrap();
            let tell = |key, flags| {
                assert_eq!(key, KEY as u64);
                socket.on_event(flags);
            };
            told = poller.collect_events(tell).unwrap();
        }
    }

    /// Reads as soon as the poller tells of something.
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
        // Both have arrived before anybody is told.
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
        socket.ignore_unread();
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
