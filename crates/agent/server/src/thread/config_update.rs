//! The settings of a thread that change while it runs: the dialects of its listeners, and the limits of one client.
//!
//! The thread applies an update between two turns, so one configuration answers each request, never both. Kept connections use the
//! new dialects from their next turn on, as new connections do ([`ActiveDialects`](crate::handler::ActiveDialects)). Work that takes
//! time continues under the configuration of its request. The `reload` module sends updates and waits until each thread has applied
//! its own.

use std::fmt;

use tokio::sync::{mpsc, oneshot};

use super::limits::ClientLimits;
use crate::handler::ListenerDialects;

/// The receiver from which a thread takes its updates.
pub type UpdateReceiver<P> = mpsc::UnboundedReceiver<ThreadUpdate<P>>;

/// Builds the dialects of each listener, on the thread that uses them.
pub type BuildDialectsFn<P> = Box<dyn FnOnce() -> Option<Vec<ListenerDialects<P>>> + Send>;

/// One update.
pub struct ThreadUpdate<P> {
    /// Builds the dialects that the listeners use from then on.
    pub build_dialects: BuildDialectsFn<P>,
    /// The limits of one client from then on.
    pub client_limits: ClientLimits,
    /// Notified once the update is applied; dropped by a thread that has ended and answers no client.
    pub applied: oneshot::Sender<()>,
}

impl<P> fmt::Debug for ThreadUpdate<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Change({:?})", self.client_limits)
    }
}
