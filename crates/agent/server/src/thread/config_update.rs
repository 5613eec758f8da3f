//! Defines the settings of a thread that a reload can change: the dialects of its listeners, and the limits per client.
//!
//! The thread applies an update between two turns, so it answers each request under exactly one configuration. Open connections use
//! the new dialects from their next turn on, like new connections ([`ActiveDialects`](crate::handler::ActiveDialects)). If an
//! answer is not ready yet, it still uses the configuration under which its request arrived. The agent's `reload` module sends
//! the updates and waits until every thread has applied them.

use std::fmt;

use tokio::sync::{mpsc, oneshot};

use super::limits::ClientLimits;
use crate::handler::ListenerDialects;

/// The receiver from which a thread takes its updates.
pub type UpdateReceiver<P> = mpsc::UnboundedReceiver<ThreadUpdate<P>>;

/// A function that builds the dialects of each listener. It runs on the thread that uses the dialects.
pub type BuildDialectsFn<P> = Box<dyn FnOnce() -> Option<Vec<ListenerDialects<P>>> + Send>;

/// One update.
pub struct ThreadUpdate<P> {
    /// Builds the new dialects of the listeners.
    pub build_dialects: BuildDialectsFn<P>,
    /// The new limits per client.
    pub client_limits: ClientLimits,
    /// The thread sends a message on this channel after it has applied the update. If the thread has ended, the channel closes without a
    /// message.
    pub applied_sender: oneshot::Sender<()>,
}

impl<P> fmt::Debug for ThreadUpdate<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ThreadUpdate({:?})", self.client_limits)
    }
}
