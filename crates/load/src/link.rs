//! A socket, secured or not: the same two moves, read and write.
//!
//! TLS is driven by hand over the non-blocking socket; nothing here waits. What a plain socket and a secured one do
//! differently, above all how one knows that nothing is left to read, ends here.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection};

use crate::fault::{Fault, TlsFault};
use crate::socket::{Moved, Socket};

/// A stream of bytes.
#[derive(Debug)]
pub(crate) struct Link {
    socket: Socket,
    secure: Option<Box<Secure>>,
}

#[derive(Debug)]
struct Secure {
    session: ClientConnection,
    /// The last read from the socket was short: nothing more until the poller says so.
    drained: bool,
    /// The peer has said all it will say: after a short read comes the end, and no word of the poller.
    closed: bool,
}

impl Link {
    pub(crate) fn new(socket: Socket) -> Self {
        Self { socket, secure: None }
    }

    pub(crate) fn socket(&self) -> &Socket {
        &self.socket
    }

    /// The poller says that there may be something to read, or that the peer has closed its side.
    #[inline]
    pub(crate) fn note_readable(&mut self, closed: bool) {
        if let Some(secure) = &mut self.secure {
            secure.closed |= closed;
            secure.drained = false;
        }
    }

    /// Begins a TLS handshake.
    pub(crate) fn secure(
        &mut self,
        config: &Arc<ClientConfig>,
        name: &ServerName<'static>,
    ) -> Result<(), Fault> {
        let session = ClientConnection::new(Arc::clone(config), name.clone());
        let session = session.map_err(|error| Fault::Tls((&error).into()))?;
        self.secure = Some(Box::new(Secure { session, drained: false, closed: false }));
        Ok(())
    }

    /// Goes on with the handshake. True when it is done.
    pub(crate) fn handshake(&mut self) -> Result<bool, Fault> {
        match &mut self.secure {
            None => Ok(true),
            Some(secure) => secure.handshake(&self.socket),
        }
    }

    /// Whether the server chose HTTP/2.
    pub(crate) fn chose_h2(&self) -> bool {
        self.secure.as_ref().is_some_and(|secure| secure.session.alpn_protocol() == Some(b"h2"))
    }

    #[inline]
    pub(crate) fn read(&mut self, buffer: &mut [u8]) -> Result<Moved, Fault> {
        match &mut self.secure {
            None => self.socket.read(buffer).map_err(broken),
            Some(secure) => secure.read(&self.socket, buffer),
        }
    }

    /// Whether another read may bring more, after one that brought `count` of at most `room` bytes.
    #[inline]
    pub(crate) fn may_have_more(&self, count: usize, room: usize) -> bool {
        self.secure.is_some() || count == room
    }

    #[inline]
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<Moved, Fault> {
        match &mut self.secure {
            None => self.socket.write(bytes).map_err(broken),
            Some(secure) => secure.write(&self.socket, bytes),
        }
    }

    /// Whether something that was written has not left for the system yet.
    #[inline]
    pub(crate) fn has_unsent(&self) -> bool {
        self.secure.as_ref().is_some_and(|secure| secure.session.wants_write())
    }

    /// Whether everything that was written has left for the system; tries to make it so.
    #[inline]
    pub(crate) fn flush(&mut self) -> Result<bool, Fault> {
        match &mut self.secure {
            None => Ok(true),
            Some(secure) => secure.flush(&self.socket),
        }
    }
}

impl AsFd for Link {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[expect(clippy::needless_pass_by_value, reason = "the shape that map_err wants")]
fn broken(error: io::Error) -> Fault {
    Fault::Broken(error.kind())
}

fn refused(error: &rustls::Error) -> Fault {
    Fault::Tls(error.into())
}

impl Secure {
    fn handshake(&mut self, socket: &Socket) -> Result<bool, Fault> {
        loop {
            let flushed = self.flush(socket)?;
            if !self.session.is_handshaking() {
                return Ok(flushed);
            }
            if self.drained {
                return Ok(false);
            }
            if self.pull(socket)? == 0 && !self.drained {
                return Err(Fault::Tls(TlsFault::Closed));
            }
        }
    }

    fn read(&mut self, socket: &Socket, buffer: &mut [u8]) -> Result<Moved, Fault> {
        loop {
            match self.session.reader().read(buffer) {
                Ok(count) => return Ok(Moved::Bytes(count)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // The end without a close_notify. Whether it cuts an answer off is for its framing to say.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(Moved::Bytes(0)),
                Err(error) => return Err(broken(error)),
            }
            if self.drained {
                return Ok(Moved::Later);
            }
            self.pull(socket)?;
        }
    }

    /// One read from the socket into the session.
    fn pull(&mut self, socket: &Socket) -> Result<usize, Fault> {
        let mut source = Source { socket, short: false };
        let pulled = match self.session.read_tls(&mut source) {
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.drained = true;
                return Ok(0);
            }
            Err(error) => return Err(broken(error)),
        };
        self.drained = source.short && pulled > 0 && !self.closed;
        if let Err(error) = self.session.process_new_packets() {
            // The alert that tells the server why; it may be gone already.
            let _ = self.flush(socket);
            return Err(refused(&error));
        }
        self.flush(socket)?;
        Ok(pulled)
    }

    fn write(&mut self, socket: &Socket, bytes: &[u8]) -> Result<Moved, Fault> {
        let count = self.session.writer().write(bytes).map_err(broken)?;
        let flushed = self.flush(socket)?;
        Ok(if count == 0 && !flushed { Moved::Later } else { Moved::Bytes(count) })
    }

    fn flush(&mut self, socket: &Socket) -> Result<bool, Fault> {
        while self.session.wants_write() {
            match self.session.write_tls(&mut Sink(socket)) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(broken(error)),
            }
        }
        Ok(true)
    }
}

/// The socket as the library wants to read it; notices a read that did not fill the buffer.
struct Source<'s> {
    socket: &'s Socket,
    short: bool,
}

impl Read for Source<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.socket.read(buffer)? {
            Moved::Bytes(count) => {
                self.short = count < buffer.len();
                Ok(count)
            }
            Moved::Later => Err(io::ErrorKind::WouldBlock.into()),
        }
    }
}

/// The socket as the library wants to write it.
struct Sink<'s>(&'s Socket);

impl Write for Sink<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.0.write(bytes)? {
            Moved::Bytes(count) => Ok(count),
            Moved::Later => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
