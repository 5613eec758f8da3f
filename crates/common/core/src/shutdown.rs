//! From "stop" to the last thread's end: one value that says the one, and one that waits for the other.
//!
//! Knows neither signals nor what a stop means to whom: who is stopped reads [`StopSignal`], who stops holds a [`Stopper`]. Whoever runs a
//! thread of the agent uses this.

use std::convert::Infallible;
use std::sync::Arc;

use tokio::sync::{mpsc, watch};

/// Tells every part of the program that it is time to stop.
#[derive(Clone, Debug)]
pub struct StopSignal(watch::Receiver<Stage>);

/// Whether the agent goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    GoesOn,
    Ends,
    /// Ends, and another one has taken over.
    IsSucceeded,
}

/// The hand on the switch. When the last one is dropped that stops, too: a control thread that dies must not leave
/// traffic running.
#[derive(Clone, Debug)]
pub struct Stopper(Arc<watch::Sender<Stage>>);

/// A switch and what it switches.
pub fn stop_channel() -> (Stopper, StopSignal) {
    let (sender, receiver) = watch::channel(Stage::GoesOn);
    (Stopper(Arc::new(sender)), StopSignal(receiver))
}

/// Held by a thread while it lives. Dropping it, in a panic too, stops all others: a listener without a thread behind
/// it would be worse than an agent that restarts.
#[derive(Debug)]
pub struct ThreadGuard {
    stopper: Stopper,
    _gone: mpsc::Sender<Infallible>,
}

/// Waits for every [`ThreadGuard`] to be dropped.
#[derive(Debug)]
pub struct ThreadWaitGroup(mpsc::Receiver<Infallible>);

/// `n` threads to hold and the wait for their end.
pub fn thread_guards(n: usize, stopper: &Stopper) -> (Vec<ThreadGuard>, ThreadWaitGroup) {
    let (gone, all_gone) = mpsc::channel(1);
    let alive = (0..n).map(|_| ThreadGuard { stopper: stopper.clone(), _gone: gone.clone() }).collect();
    (alive, ThreadWaitGroup(all_gone))
}

impl Drop for ThreadGuard {
    fn drop(&mut self) {
        self.stopper.stop();
    }
}

impl ThreadWaitGroup {
    /// Returns when no thread is left.
    pub async fn wait(&mut self) {
        // Nothing can be sent, so this ends when the last sender is dropped.
        let _ = self.0.recv().await;
    }
}

impl Stopper {
    /// Begins the stop.
    pub fn stop(&self) {
        self.begin(Stage::Ends);
    }

    /// Begins the stop of an agent to which nobody comes anew any more, but to another.
    pub fn stop_as_replaced(&self) {
        self.begin(Stage::IsSucceeded);
    }

    /// The first word counts.
    fn begin(&self, end: Stage) {
        self.0.send_if_modified(|stage| {
            let goes_on = *stage == Stage::GoesOn;
            *stage = if goes_on { end } else { *stage };
            goes_on
        });
    }
}

impl StopSignal {
    /// Whether the stop has begun.
    pub fn has_begun(&self) -> bool {
        *self.0.borrow() != Stage::GoesOn
    }

    /// Whether it has, and another agent has taken over.
    pub fn is_replaced(&self) -> bool {
        *self.0.borrow() == Stage::IsSucceeded
    }

    /// Returns when the stop has begun.
    pub async fn wait(&mut self) {
        // A closed channel is a stop, too.
        let _ = self.0.wait_for(|stage| *stage != Stage::GoesOn).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_thread_that_dies_stops_the_others() {
        let (stopper, mut stop) = stop_channel();
        let (mut alive, mut all_gone) = thread_guards(2, &stopper);
        let dying = std::thread::spawn({
            let alive = alive.pop();
            move || {
                let _alive = alive;
                std::panic::resume_unwind(Box::new("died"));
            }
        });
        assert!(dying.join().is_err());
        stop.wait().await;
        drop(alive);
        all_gone.wait().await;
    }
}
