//! The source addresses of one thread's connections, used in turn.

use std::io;
use std::net::IpAddr;

use crate::request_failure_reason::RequestFault;
use crate::transport::socket::PeerAddress;

/// The source addresses that the user named; if empty, the system chooses.
#[derive(Debug, Clone, Default)]
pub(crate) struct SourceAddresses {
    list: Vec<IpAddr>,
    /// The number of the next address to use.
    turn: usize,
}

impl SourceAddresses {
    /// Makes the source addresses of a thread. Each thread begins with another address, or the first address would get most
    /// connections.
    pub(crate) fn new(list: Vec<IpAddr>, thread: usize) -> Self {
        Self { list, turn: thread }
    }

    /// Returns the next address of the destination's family. `None` leaves the choice to the system, but never if the user named
    /// addresses: traffic from another address would mislead.
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

    /// Returns the destinations that these sources can reach. If there are none, returns all, so that the attempt to connect
    /// gives the reason.
    pub(crate) fn filter_reachable_destinations(&self, list: Vec<PeerAddress>) -> Vec<PeerAddress> {
        let can = |to: &PeerAddress| self.list.iter().any(|&source| fits(source, to));
        if list.iter().any(can) { list.into_iter().filter(can).collect() } else { list }
    }
}

/// True if a connection to `to` can come from this address.
fn fits(source: IpAddr, to: &PeerAddress) -> bool {
    matches!(to, PeerAddress::Tcp(to) if source.is_ipv4() == to.is_ipv4())
}
