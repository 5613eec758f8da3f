//! What of a thread changes while it runs: what its listeners speak, and what one caller may.
//!
//! A change is made between two turns, so a request is read and answered by one configuration or by the other and never by both; kept
//! connections speak as new ones do from their next turn on ([`ActiveDialects`](crate::handler::ActiveDialects)). What takes time goes on by the
//! configuration by which it was asked. Who orders changes (`reload`) waits until each thread has made its own.

use std::fmt;

use tokio::sync::{mpsc, oneshot};

use super::limits::ClientLimits;
use crate::handler::ListenerDialects;

/// Where a thread hears of them.
pub type UpdateReceiver<P> = mpsc::UnboundedReceiver<ThreadUpdate<P>>;

/// What makes the dialects of each listener, on the thread that speaks them.
pub type BuildDialectsFn<P> = Box<dyn FnOnce() -> Option<Vec<ListenerDialects<P>>> + Send>;

/// One change.
pub struct ThreadUpdate<P> {
    /// Makes what the listeners speak from then on.
    pub build_dialects: BuildDialectsFn<P>,
    /// What one client may from then on.
    pub client_limits: ClientLimits,
    /// Told once it is made; dropped by a thread that has ended and answers nobody.
    pub applied: oneshot::Sender<()>,
}

impl<P> fmt::Debug for ThreadUpdate<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Change({:?})", self.client_limits)
    }
}
