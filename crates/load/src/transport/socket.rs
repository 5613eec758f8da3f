//! Non-blocking stream sockets: TCP from a chosen source address, or a Unix socket.

use std::io::{self, IoSliceMut};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;

use super::Stream;
use crate::clock::KernelStamp;
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

    /// Of TCP, the kernel tells when it received the last of the bytes that a read brings (`tcp_recv_timestamp` in Linux' net/ipv4/tcp.c),
    /// not when the end came.
    #[cold]
    fn read_stamped(&self, buffer: &mut [u8]) -> io::Result<(IoProgress, Option<KernelStamp>)> {
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

/// Room for what the kernel tells beside the bytes, where a header of it may lie.
#[repr(align(8))]
struct ControlBuffer([u8; 64]);

fn received_at(told: &ControlMessageOwned) -> Option<KernelStamp> {
    match told {
        ControlMessageOwned::ScmTimestampns(at) => KernelStamp::new(at.tv_sec(), at.tv_nsec()),
        _ => None,
    }
}

/// A socket that does nothing: as long as it is open, the kernel stamps what it receives. It begins that and ends it late, in code that it
/// changes while it runs, which the first and the last connection of a program would have it do each time. None where it does not.
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
    // Where there are no stamps, answers are dated when they are read.
    let _ = setsockopt(&raw, ReceiveTimestampns, &true);
    if let Some(source) = source {
        raw.bind(&SocketAddr::new(source, 0).into())?;
    }
    Ok(raw)
}
