//! Defines the limits per client. A reload can change these limits while the thread runs.

use crate::connection_table::ConnectionTimeouts;

/// The connection limit of one client, and the time limits for each connection of the client.
#[derive(Debug, Clone, Copy)]
pub struct ClientLimits {
    /// The maximum number of connections of one client.
    pub connections: u32,
    /// The longest time that a connection may stay in each state.
    pub timeouts: ConnectionTimeouts,
}
