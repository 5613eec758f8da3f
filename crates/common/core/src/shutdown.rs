//! Shutdown of the threads: a [`Stopper`] begins it, a [`StopSignal`] reports it, a [`ThreadWaitGroup`] waits for the last thread.
//!
//! The module knows neither OS signals nor what a stop means to a thread. Every part of the agent that runs a thread uses it.

use std::convert::Infallible;
use std::sync::Arc;

use tokio::sync::{mpsc, watch};

/// Tells every part of the program that it is time to stop.
#[derive(Clone, Debug)]
pub struct StopSignal(watch::Receiver<Stage>);

/// The stage of the shutdown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    GoesOn,
    Ends,
    /// The agent stops, and another agent has taken over.
    IsSucceeded,
}

/// Begins the shutdown. Dropping the last one begins it, too: a control thread that dies must not leave
/// traffic running.
#[derive(Clone, Debug)]
pub struct Stopper(Arc<watch::Sender<Stage>>);

/// Creates a [`Stopper`] and the [`StopSignal`] that it controls.
pub fn stop_channel() -> (Stopper, StopSignal) {
    let (sender, receiver) = watch::channel(Stage::GoesOn);
    (Stopper(Arc::new(sender)), StopSignal(receiver))
}

/// A thread holds it while it lives. Dropping it, in a panic too, stops all other threads: a listener without a thread behind
/// it would be worse than an agent that restarts.
#[derive(Debug)]
pub struct ThreadGuard {
    stopper: Stopper,
    _gone: mpsc::Sender<Infallible>,
}

/// Waits for every [`ThreadGuard`] to be dropped.
#[derive(Debug)]
pub struct ThreadWaitGroup(mpsc::Receiver<Infallible>);

/// Creates `n` guards, one for each thread, and the group that waits until all are dropped.
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
    /// Returns when all threads have ended.
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

    /// Begins the stop of an agent that another agent has replaced: new connections go to the other one.
    pub fn stop_as_replaced(&self) {
        self.begin(Stage::IsSucceeded);
    }

    /// Records the stage if none is recorded yet; later calls change nothing.
    fn begin(&self, end: Stage) {
        self.0.send_if_modified(|stage| {
            let goes_on = *stage == Stage::GoesOn;
            *stage = if goes_on { end } else { *stage };
            goes_on
        });
    }
}

impl StopSignal {
    /// True once the shutdown has begun.
    pub fn has_begun(&self) -> bool {
        *self.0.borrow() != Stage::GoesOn
    }

    /// True once the shutdown has begun because another agent has taken over.
    pub fn is_replaced(&self) -> bool {
        *self.0.borrow() == Stage::IsSucceeded
    }

    /// Returns when the shutdown has begun.
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
