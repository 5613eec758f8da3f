//! What one client may. Another configuration may say otherwise while the thread runs.

use crate::connection_table::ConnectionTimeouts;

/// What one client may, and for how long.
#[derive(Debug, Clone, Copy)]
pub struct ClientLimits {
    /// Connections of one client.
    pub connections: u32,
    /// How long one of them may wait.
    pub timeouts: ConnectionTimeouts,
}
