//! The limits of one client. Another configuration may change them while the thread runs.

use crate::connection_table::ConnectionTimeouts;

/// The limits of one client, and the time limits of its connections.
#[derive(Debug, Clone, Copy)]
pub struct ClientLimits {
    /// The maximum number of connections of one client.
    pub connections: u32,
    /// The longest time that a connection may stay in each state.
    pub timeouts: ConnectionTimeouts,
}
