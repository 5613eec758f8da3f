//! Addresses as the configuration writes them, and those that hold where it says none.

use std::net::SocketAddr;

pub(super) const ADDRESS: &str = "an address and port such as 127.0.0.1:8988";
pub(super) const OWN_ADDRESS: &str = "an address and port such as 127.0.0.1:8988 or node:0";

/// Stands for the node's address among those of `listen`, so that one file serves all nodes.
pub(super) const NODE: &str = "node";

/// The port of the admin address, if nothing is said.
pub(super) const ADMIN_PORT: u16 = 8989;

/// This port at the machine itself.
pub(super) fn loopback(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}
