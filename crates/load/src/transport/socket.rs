//! Non-blocking stream sockets: TCP from a chosen source address, or a Unix socket.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use super::Stream;
use rustix::fd::{AsFd, BorrowedFd};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send, sockopt};
use socket2::{Domain, Protocol, SockAddr, Socket as Raw, Type};

/// Where a connection goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PeerAddress {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

/// A connected or connecting stream.
#[derive(Debug)]
pub(crate) struct StreamSocket(OwnedFd);

/// What a read or a write came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum IoProgress {
    /// So many bytes; none is the end of the stream.
    Bytes(usize),
    /// Not now.
    WouldBlock,
}

impl StreamSocket {
    /// Begins a connection. True when it stands already, which is usual on loopback.
    ///
    /// The error is the local side's if it comes before `connect`.
    pub(crate) fn connect(
        address: &PeerAddress,
        source: Option<IpAddr>,
    ) -> Result<(Self, bool), ConnectError> {
        let (raw, address) = match address {
            PeerAddress::Tcp(address) => {
                (tcp(*address, source).map_err(ConnectError::Local)?, SockAddr::from(*address))
            }
            PeerAddress::Unix(path) => {
                let raw = Raw::new(Domain::UNIX, Type::STREAM, None).map_err(ConnectError::Local)?;
                (raw, SockAddr::unix(path).map_err(ConnectError::Local)?)
            }
        };
        raw.set_nonblocking(true).map_err(ConnectError::Local)?;
        let connected = match raw.connect(&address) {
            Ok(()) => true,
            Err(error) if error.raw_os_error() == Some(Errno::INPROGRESS.raw_os_error()) => false,
            // No free port for this source and destination.
            Err(error) if error.kind() == io::ErrorKind::AddrNotAvailable => {
                return Err(ConnectError::Local(error));
            }
            Err(error) => return Err(ConnectError::Peer(error)),
        };
        Ok((Self(raw.into()), connected))
    }
}

impl Stream for StreamSocket {
    fn finish_connect(&self) -> io::Result<()> {
        sockopt::socket_error(&self.0)?.map_err(io::Error::from)
    }

    #[inline]
    fn read(&self, buffer: &mut [u8]) -> io::Result<IoProgress> {
        loop {
            match recv(&self.0, &mut *buffer, RecvFlags::empty()) {
                Ok((count, _)) => return Ok(IoProgress::Bytes(count)),
                Err(Errno::AGAIN) => return Ok(IoProgress::WouldBlock),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    #[inline]
    fn write(&self, bytes: &[u8]) -> io::Result<IoProgress> {
        loop {
            match send(&self.0, bytes, SendFlags::NOSIGNAL) {
                Ok(count) => return Ok(IoProgress::Bytes(count)),
                Err(Errno::AGAIN) => return Ok(IoProgress::WouldBlock),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl AsFd for StreamSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Which side is to blame for a connection that never began.
#[derive(Debug)]
pub(crate) enum ConnectError {
    Local(io::Error),
    Peer(io::Error),
}

fn tcp(address: SocketAddr, source: Option<IpAddr>) -> io::Result<Raw> {
    let raw = Raw::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    raw.set_tcp_nodelay(true)?;
    if let Some(source) = source {
        raw.bind(&SocketAddr::new(source, 0).into())?;
    }
    Ok(raw)
}
