//! What of a thread changes while it runs: what its listeners speak, and what one caller may.
//!
//! A change is made between two turns, so a request is read and answered by one configuration or by the other and never by both; kept
//! connections speak as new ones do from their next turn on ([`Spoken`](crate::server::handler::Spoken)). What takes time goes on by the
//! configuration by which it was asked. Who orders changes (`reload`) waits until each thread has made its own.

use std::fmt;
use std::io;
use std::rc::Rc;

use tokio::sync::{mpsc, oneshot};

use super::{Allowance, Thread};
use crate::server::handler::Dialects;

/// Where a thread hears of them.
pub(crate) type Changes = mpsc::UnboundedReceiver<Change>;

/// What makes the dialects of each listener, on the thread that speaks them.
pub(crate) type Speak = Box<dyn FnOnce() -> Option<Vec<Dialects>> + Send>;

/// One change.
pub(crate) struct Change {
    pub(crate) speak: Speak,
    pub(crate) allowance: Allowance,
    /// Told once it is made; dropped by a thread that has ended and answers nobody.
    pub(crate) made: oneshot::Sender<()>,
}

impl fmt::Debug for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Change({:?})", self.allowance)
    }
}

impl Thread {
    /// Makes each change as it comes. Ends only if one cannot be made: the thread must not go on by a configuration that is not in force.
    pub(super) async fn make(self: Rc<Self>, mut changes: Changes) -> io::Result<()> {
        while let Some(Change { speak, allowance, made }) = changes.recv().await {
            let spoken = speak().filter(|spoken| spoken.len() == self.listeners.len());
            let spoken = spoken.ok_or_else(|| io::Error::other("a listener has nothing to speak"))?;
            self.listeners.iter().zip(spoken).for_each(|(listener, dialects)| listener.replace(dialects));
            self.allowance.set(allowance);
            // Who ordered it may not wait any more.
            let _ = made.send(());
        }
        std::future::pending().await
    }
}
