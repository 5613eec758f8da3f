//! The source addresses of one thread's connections, used in turn.

use std::io;
use std::net::IpAddr;

use crate::request_fault::RequestFault;
use crate::transport::socket::PeerAddress;

/// Source addresses as the user named them; with none the system chooses.
#[derive(Debug, Clone, Default)]
pub(crate) struct SourceAddresses {
    list: Vec<IpAddr>,
    /// The one whose turn it is.
    turn: usize,
}

impl SourceAddresses {
    /// For a thread: those with a connection or two each begin with one of their own, or the first would get most.
    pub(crate) fn new(list: Vec<IpAddr>, thread: usize) -> Self {
        Self { list, turn: thread }
    }

    /// The address whose turn it is among those of the destination's family. `None` leaves it to the system, but never if
    /// the user named some: traffic from an address that nobody asked for misleads.
    pub(crate) fn next(&mut self, to: &PeerAddress) -> Result<Option<IpAddr>, RequestFault> {
        let (Some(&first), PeerAddress::Tcp(_)) = (self.list.first(), to) else { return Ok(None) };
        for _ in &self.list {
            let source = self.list[self.turn % self.list.len()];
            self.turn = self.turn.wrapping_add(1);
            if fits(source, to) {
                return Ok(Some(source));
            }
        }
        Err(RequestFault::SourceAddress(first, io::ErrorKind::Unsupported))
    }

    /// Those of a host's addresses that can be reached from here. If there are none it keeps all, so that the attempt tells
    /// why.
    pub(crate) fn filter_reachable_destinations(&self, list: Vec<PeerAddress>) -> Vec<PeerAddress> {
        let can = |to: &PeerAddress| self.list.iter().any(|&source| fits(source, to));
        if list.iter().any(can) { list.into_iter().filter(can).collect() } else { list }
    }
}

/// True if a connection to `to` can come from this address.
fn fits(source: IpAddr, to: &PeerAddress) -> bool {
    matches!(to, PeerAddress::Tcp(to) if source.is_ipv4() == to.is_ipv4())
}
