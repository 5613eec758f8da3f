//! What of a thread changes while it runs: what its listeners speak, and what one caller may.
//!
//! A change is made between two turns, so a request is read and answered by one configuration or by the other and never by both; kept
//! connections speak as new ones do from their next turn on ([`Spoken`](crate::handler::Spoken)). What takes time goes on by the
//! configuration by which it was asked. Who orders changes (`reload`) waits until each thread has made its own.

use std::fmt;

use tokio::sync::{mpsc, oneshot};

use super::limits::Allowance;
use crate::handler::Dialects;

/// Where a thread hears of them.
pub type Changes<P> = mpsc::UnboundedReceiver<Change<P>>;

/// What makes the dialects of each listener, on the thread that speaks them.
pub type Speak<P> = Box<dyn FnOnce() -> Option<Vec<Dialects<P>>> + Send>;

/// One change.
pub struct Change<P> {
    /// Makes what the listeners speak from then on.
    pub speak: Speak<P>,
    /// What one client may from then on.
    pub allowance: Allowance,
    /// Told once it is made; dropped by a thread that has ended and answers nobody.
    pub made: oneshot::Sender<()>,
}

impl<P> fmt::Debug for Change<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Change({:?})", self.allowance)
    }
}
