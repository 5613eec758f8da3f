//! Asks the kernel in which control group the other end's socket was made, for a connection within one network namespace: this process's. For who may
//! not use the programs' notes, or has none.
//!
//! It takes no right and 3 µs. What it says is of the moment of the question: nothing of a socket that has been closed. Who is told by it: the
//! group of the task that made the socket, whoever holds it by now.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;

use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, connect, netlink, recv, send, socket_with,
};

use crate::error::Error;
use crate::prerequisites;
use crate::sock_diag::{self, Ends, Nameless};

/// Larger than any answer about one socket (its attributes are counted, and end with the congestion control's).
const LARGEST: usize = 4096;

/// What this is called in errors.
const KERNEL: &str = "sock_diag";

/// The kernel, to be asked. One question at a time.
#[derive(Debug)]
pub struct Sockets {
    kernel: OwnedFd,
    number: u32,
}

impl Sockets {
    /// Opens it, and has the kernel tell of a connection of this process's own.
    ///
    /// # Errors
    /// It cannot be asked, or does not tell groups.
    pub fn open() -> Result<Self, Error> {
        prerequisites::kernel()?;
        let opened = socket_with(
            AddressFamily::NETLINK,
            SocketType::RAW,
            SocketFlags::CLOEXEC,
            Some(netlink::SOCK_DIAG),
        );
        let kernel = opened.map_err(io::Error::from).map_err(Error::system("open", KERNEL))?;
        // Another process that may (CAP_NET_ADMIN in this network namespace) could send answers of its own: to one that is connected
        // to the kernel only the kernel can (`netlink_getsockbyportid`).
        connect(&kernel, &netlink::SocketAddrNetlink::new(0, 0))
            .map_err(io::Error::from)
            .map_err(Error::system("reach", KERNEL))?;
        let mut sockets = Self { kernel, number: 0 };
        sockets.try_out()?;
        Ok(sockets)
    }

    fn try_out(&mut self) -> Result<(), Error> {
        let meet = || {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
            let client = TcpStream::connect(listener.local_addr()?)?;
            let ends = Ends { own: client.local_addr()?, other: client.peer_addr()? };
            io::Result::Ok((listener, client, ends))
        };
        let (_listener, _client, ends) = meet().map_err(Error::system("meet itself at", "127.0.0.1"))?;
        self.ask(ends)?.map(drop).ok_or(Error::SocketsUntold)
    }

    /// The group that the socket was made in of which these are the ends, `peer` its own; nothing where there is none.
    ///
    /// # Errors
    /// The kernel does not answer, which is no statement about the socket.
    pub fn group(&mut self, peer: SocketAddr, local: SocketAddr) -> Result<Option<u64>, Error> {
        self.ask(Ends { own: peer, other: local })
    }

    fn ask(&mut self, ends: Ends) -> Result<Option<u64>, Error> {
        self.number = self.number.wrapping_add(1);
        let Some(question) = sock_diag::question(ends, self.number) else { return Ok(None) };
        let asking = |error: rustix::io::Errno| Error::system("ask", KERNEL)(error.into());
        send(&self.kernel, &question, SendFlags::empty()).map_err(asking)?;
        let mut answer = [0; LARGEST];
        loop {
            // The kernel answers before `send` returns. What came late to an earlier question has another number.
            let (length, _) = recv(&self.kernel, &mut answer, RecvFlags::DONTWAIT).map_err(asking)?;
            match sock_diag::group(answer.get(..length).unwrap_or_default(), ends, self.number) {
                Ok(group) => return Ok(Some(group)),
                Err(Nameless::NoSocket) => return Ok(None),
                Err(Nameless::NoGroup) => return Err(Error::SocketsUntold),
                Err(Nameless::Refused(errno)) => {
                    return Err(Error::system("ask", KERNEL)(io::Error::from_raw_os_error(errno)));
                }
                Err(Nameless::Misfit) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv6Addr;

    use super::*;

    /// Each is of the group that this process is in; nobody is at the other end of what is closed, and the listener is never taken for one.
    #[test]
    fn a_connections_other_end_is_found_and_one_that_is_closed_is_not() {
        let mut sockets = Sockets::open().unwrap();
        let mut groups = Vec::new();
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let listener = TcpListener::bind(address).unwrap();
            let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (served, peer) = listener.accept().unwrap();
            let local = served.local_addr().unwrap();
            groups.push(sockets.group(peer, local).unwrap().unwrap());
            assert_eq!(sockets.group(local, SocketAddr::new(peer.ip(), 1)).unwrap(), None, "the listener");
            drop(served);
            drop(client);
            assert_eq!(sockets.group(peer, local).unwrap(), None, "{address}");
        }
        assert_eq!(groups[0], groups[1]);
    }

    /// A client of IPv6 at a mapped address, a listener of either family.
    #[test]
    fn mapped_addresses_are_found_whichever_form_they_are_asked_in() {
        let mut sockets = Sockets::open().unwrap();
        let listener = TcpListener::bind((Ipv6Addr::UNSPECIFIED, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        for to in [Ipv4Addr::LOCALHOST.into(), std::net::IpAddr::from(Ipv4Addr::LOCALHOST.to_ipv6_mapped())] {
            let _client = TcpStream::connect((to, port)).unwrap();
            let (served, peer) = listener.accept().unwrap();
            let local = served.local_addr().unwrap();
            let plain = |at: SocketAddr| SocketAddr::new(at.ip().to_canonical(), at.port());
            assert!(sockets.group(peer, local).unwrap().is_some(), "{peer}");
            assert!(sockets.group(plain(peer), plain(local)).unwrap().is_some(), "{peer}");
        }
    }
}
