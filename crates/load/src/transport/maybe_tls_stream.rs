//! A stream of bytes with or without TLS, with the same functions to read and write.
//!
//! TLS is driven by hand over the non-blocking socket; nothing here waits. This module hides the differences between a plain and
//! a TLS stream, above all how to detect that no data is left to read.

use std::io::{self, Read, Write};
use std::sync::Arc;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection};

use crate::clock::KernelReceiveWallTime;
use crate::request_failure_reason::{RequestFault, TlsFault};
use crate::transport::Stream;
use crate::transport::socket::IoProgress;

/// A stream of bytes, with or without TLS.
#[derive(Debug)]
pub(crate) struct MaybeTlsStream<S> {
    stream: S,
    secure: Option<Box<Secure>>,
    arrivals: LinkArrivals,
}

/// The arrival times of the data that is read.
#[derive(Debug, Default)]
struct LinkArrivals {
    /// True to ask the kernel for arrival times, because the reader may be late.
    asked: bool,
    /// The stamp of the last read that returned data.
    last: Option<KernelReceiveWallTime>,
}

impl LinkArrivals {
    /// Reads from the stream once.
    #[inline]
    fn read(&mut self, stream: &impl Stream, buffer: &mut [u8]) -> io::Result<IoProgress> {
        let (moved, stamp) =
            if self.asked { stream.read_stamped(buffer)? } else { (stream.read(buffer)?, None) };
        if matches!(moved, IoProgress::Bytes(_)) {
            self.last = stamp;
        }
        Ok(moved)
    }
}

#[derive(Debug)]
struct Secure {
    session: ClientConnection,
    /// True if the last read from the socket was short: there is no more data until the poller reports some.
    drained: bool,
    /// True if the peer has closed its side: after a short read comes the end, which the poller does not report again.
    closed: bool,
}

impl<S: Stream> MaybeTlsStream<S> {
    pub(crate) fn new(stream: S) -> Self {
        Self { stream, secure: None, arrivals: LinkArrivals::default() }
    }

    pub(crate) fn stream(&self) -> &S {
        &self.stream
    }

    /// Notes that the poller reported data, or that the peer has closed its side. `late` means that the data may have waited for
    /// long.
    #[inline]
    pub(crate) fn note_readable(&mut self, closed: bool, late: bool) {
        self.arrivals.asked = late;
        if let Some(secure) = &mut self.secure {
            secure.closed |= closed;
            secure.drained = false;
        }
    }

    /// Begins a TLS handshake.
    pub(crate) fn begin_tls(
        &mut self,
        config: &Arc<ClientConfig>,
        name: &ServerName<'static>,
    ) -> Result<(), RequestFault> {
        let session = ClientConnection::new(Arc::clone(config), name.clone());
        let session = session.map_err(|error| RequestFault::Tls((&error).into()))?;
        self.secure = Some(Box::new(Secure { session, drained: false, closed: false }));
        Ok(())
    }

    /// Continues the handshake. Returns true when it is complete.
    pub(crate) fn handshake(&mut self) -> Result<bool, RequestFault> {
        match &mut self.secure {
            None => Ok(true),
            Some(secure) => secure.handshake(&self.stream, &mut self.arrivals),
        }
    }

    /// True if the server chose HTTP/2.
    pub(crate) fn chose_h2(&self) -> bool {
        self.secure.as_ref().is_some_and(|secure| secure.session.alpn_protocol() == Some(b"h2"))
    }

    /// Returns the time when the kernel received the last of the data that was read, if the kernel was asked. For TLS, this is
    /// the last record of the read.
    #[inline]
    pub(crate) fn receive_stamp(&self) -> Option<KernelReceiveWallTime> {
        self.arrivals.last
    }

    #[inline]
    pub(crate) fn read(&mut self, buffer: &mut [u8]) -> Result<IoProgress, RequestFault> {
        match &mut self.secure {
            None => self.arrivals.read(&self.stream, buffer).map_err(broken),
            Some(secure) => secure.read(&self.stream, &mut self.arrivals, buffer),
        }
    }

    /// True if another read can return more data, after a read of `count` of at most `room` bytes.
    #[inline]
    pub(crate) fn may_have_more(&self, count: usize, room: usize) -> bool {
        self.secure.is_some() || count == room
    }

    #[inline]
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<IoProgress, RequestFault> {
        match &mut self.secure {
            None => self.stream.write(bytes).map_err(broken),
            Some(secure) => secure.write(&self.stream, bytes),
        }
    }

    /// Writes the bytes after the first `written` and updates `written`. Returns true if all bytes were handed to the system.
    #[inline]
    pub(crate) fn write_all(&mut self, bytes: &[u8], written: &mut usize) -> Result<bool, RequestFault> {
        while *written < bytes.len() {
            match self.write(&bytes[*written..])? {
                IoProgress::Bytes(count) => *written += count,
                IoProgress::WouldBlock => return Ok(false),
            }
        }
        self.flush()
    }

    /// Writes all pending data to the system. Returns true if no data is left.
    #[inline]
    pub(crate) fn flush(&mut self) -> Result<bool, RequestFault> {
        match &mut self.secure {
            None => Ok(true),
            Some(secure) => secure.flush(&self.stream),
        }
    }
}

#[expect(clippy::needless_pass_by_value, reason = "map_err passes the error by value")]
fn broken(error: io::Error) -> RequestFault {
    RequestFault::ConnectionIoError(error.kind())
}

fn refused(error: &rustls::Error) -> RequestFault {
    RequestFault::Tls(error.into())
}

impl Secure {
    fn handshake(&mut self, stream: &impl Stream, arrivals: &mut LinkArrivals) -> Result<bool, RequestFault> {
        loop {
            let flushed = self.flush(stream)?;
            if !self.session.is_handshaking() {
                return Ok(flushed);
            }
            if self.drained {
                return Ok(false);
            }
            if self.pull(stream, arrivals)? == 0 && !self.drained {
                return Err(RequestFault::Tls(TlsFault::Closed));
            }
        }
    }

    fn read(
        &mut self,
        stream: &impl Stream,
        arrivals: &mut LinkArrivals,
        buffer: &mut [u8],
    ) -> Result<IoProgress, RequestFault> {
        loop {
            match self.session.reader().read(buffer) {
                Ok(count) => return Ok(IoProgress::Bytes(count)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // The stream ended without a close_notify. The framing of the response decides if it is complete.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    return Ok(IoProgress::Bytes(0));
                }
                Err(error) => return Err(broken(error)),
            }
            if self.drained {
                return Ok(IoProgress::WouldBlock);
            }
            self.pull(stream, arrivals)?;
        }
    }

    /// Reads once from the socket into the TLS session.
    fn pull(&mut self, stream: &impl Stream, arrivals: &mut LinkArrivals) -> Result<usize, RequestFault> {
        let mut source = Source { stream, arrivals, short: false };
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
            // The alert tells the server the reason; the server may have closed already.
            let _ = self.flush(stream);
            return Err(refused(&error));
        }
        self.flush(stream)?;
        Ok(pulled)
    }

    fn write(&mut self, stream: &impl Stream, bytes: &[u8]) -> Result<IoProgress, RequestFault> {
        let count = self.session.writer().write(bytes).map_err(broken)?;
        let flushed = self.flush(stream)?;
        Ok(if count == 0 && !flushed { IoProgress::WouldBlock } else { IoProgress::Bytes(count) })
    }

    fn flush(&mut self, stream: &impl Stream) -> Result<bool, RequestFault> {
        while self.session.wants_write() {
            match self.session.write_tls(&mut Sink(stream)) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(broken(error)),
            }
        }
        Ok(true)
    }
}

/// The socket as the TLS library reads it; notices a read that did not fill the buffer.
struct Source<'s, S> {
    stream: &'s S,
    arrivals: &'s mut LinkArrivals,
    short: bool,
}

impl<S: Stream> Read for Source<'_, S> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.arrivals.read(self.stream, buffer)? {
            IoProgress::Bytes(count) => {
                self.short = count < buffer.len();
                Ok(count)
            }
            IoProgress::WouldBlock => Err(io::ErrorKind::WouldBlock.into()),
        }
    }
}

/// The socket as the TLS library writes it.
struct Sink<'s, S>(&'s S);

impl<S: Stream> Write for Sink<'_, S> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.0.write(bytes)? {
            IoProgress::Bytes(count) => Ok(count),
            IoProgress::WouldBlock => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use seawall_testkit::closure_server::Server;
    use seawall_testkit::tls::CertificateAuthority;
    use socket2::SockRef;

    use super::*;
    use crate::tls::TlsOptions;
    use crate::transport::socket::{PeerAddress, StreamSocket};

    /// The data is smaller than TLS accepts at once, and larger than the buffers of the system.
    static LONG: [u8; 60_000] = [b'x'; 60_000];

    fn until(mut done: impl FnMut() -> bool) {
        while !done() {
            std::thread::yield_now();
        }
    }

    #[test]
    fn what_tls_had_taken_when_the_system_took_no_more_was_never_sent() {
        let slow = Arc::new(Barrier::new(2));
        let waits = Arc::clone(&slow);
        let config = CertificateAuthority::new().unwrap().server_config(&[], false).unwrap();
        let server = Server::start_tls(config, move |mut peer, _| {
            peer.set_receive_buffer(4096)?;
            peer.read_request_head()?;
            waits.wait();
            peer.read_body(LONG.len())?;
            waits.wait();
            Ok(())
        });
        let server = server.unwrap();
        let (socket, _) = StreamSocket::connect(&PeerAddress::Tcp(server.address()), None).unwrap();
        SockRef::from(&socket).set_send_buffer_size(4096).unwrap();
        let mut link = MaybeTlsStream::new(socket);
        until(|| link.stream().finish_connect().is_ok());
        let tls = TlsOptions { insecure: true, ..TlsOptions::default() }.config().unwrap();
        link.begin_tls(&tls, &ServerName::try_from("localhost").unwrap()).unwrap();
        until(|| {
            link.note_readable(false, false);
            link.handshake().unwrap()
        });
        let mut written = 0;
        until(|| link.write_all(b"GET / HTTP/1.1\r\n\r\n", &mut written).unwrap());
        let mut written = 0;
        assert!(!link.write_all(&LONG, &mut written).unwrap(), "TLS holds the end");
        assert_eq!(written, LONG.len());
        slow.wait();
        until(|| link.write_all(&LONG, &mut written).unwrap());
        slow.wait();
    }
}
