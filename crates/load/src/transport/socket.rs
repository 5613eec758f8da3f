//! Non-blocking stream sockets: TCP from a chosen source address, or a Unix socket.

use std::io::{self, IoSliceMut};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;

use super::Stream;
use crate::clock::KernelReceiveWallTime;
use nix::sys::socket::sockopt::ReceiveTimestampns;
use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg, setsockopt};
use rustix::fd::{AsFd, BorrowedFd};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send, sockopt};
use socket2::{Domain, Protocol, SockAddr, Socket as Raw, Type};

/// The address to which a connection goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PeerAddress {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

/// A connected or connecting stream.
#[derive(Debug)]
pub(crate) struct StreamSocket(OwnedFd);

/// The result of a read or a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum IoProgress {
    /// This number of bytes; 0 is the end of the stream.
    Bytes(usize),
    /// Nothing can be read or written now.
    WouldBlock,
}

impl StreamSocket {
    /// Begins a connection. Returns true if it is already open, which is usual on loopback.
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
            // There is no free port for this source and destination.
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

    /// For TCP, the kernel reports the time when it received the last of the bytes of a read (`tcp_recv_timestamp` in Linux'
    /// net/ipv4/tcp.c), not the time of the end of the stream.
    #[cold]
    fn read_stamped(&self, buffer: &mut [u8]) -> io::Result<(IoProgress, Option<KernelReceiveWallTime>)> {
        let mut control = ControlBuffer([0; 64]);
        let mut into = [IoSliceMut::new(buffer)];
        loop {
            let read = recvmsg::<()>(self.0.as_raw_fd(), &mut into, Some(&mut control.0), MsgFlags::empty());
            match read {
                Ok(message) => {
                    let stamp = message
                        .cmsgs()
                        .ok()
                        .and_then(|mut told| told.find_map(|message| received_at(&message)));
                    return Ok((IoProgress::Bytes(message.bytes), stamp));
                }
                Err(nix::Error::EAGAIN) => return Ok((IoProgress::WouldBlock, None)),
                Err(nix::Error::EINTR) => {}
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

/// A buffer for the control messages of a read, with the alignment of their header.
#[repr(align(8))]
struct ControlBuffer([u8; 64]);

fn received_at(told: &ControlMessageOwned) -> Option<KernelReceiveWallTime> {
    match told {
        ControlMessageOwned::ScmTimestampns(at) => KernelReceiveWallTime::new(at.tv_sec(), at.tv_nsec()),
        _ => None,
    }
}

/// Opens an unused socket with timestamps. While it is open, the kernel stamps received data. Turning the stamps on or off takes
/// the kernel long, because it changes running code; without this socket, the first and the last connection of a program would do
/// that each time. Returns `None` if the kernel has no stamps.
pub(crate) fn keep_kernel_timestamping() -> Option<OwnedFd> {
    let raw = Raw::new(Domain::IPV4, Type::DGRAM, None).ok()?;
    setsockopt(&raw, ReceiveTimestampns, &true).ok()?;
    Some(raw.into())
}

/// The side that caused the failure of a connection attempt.
#[derive(Debug)]
pub(crate) enum ConnectError {
    Local(io::Error),
    Peer(io::Error),
}

fn tcp(address: SocketAddr, source: Option<IpAddr>) -> io::Result<Raw> {
    let raw = Raw::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    raw.set_tcp_nodelay(true)?;
    // Without stamps, responses get the time of their read.
    let _ = setsockopt(&raw, ReceiveTimestampns, &true);
    if let Some(source) = source {
        raw.bind(&SocketAddr::new(source, 0).into())?;
    }
    Ok(raw)
}
