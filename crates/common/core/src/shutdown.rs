//! Coordinates the shutdown of threads. A [`Stopper`] begins the shutdown, a [`StopSignal`] reports the shutdown to the threads,
//! and a [`ThreadWaitGroup`] waits for the last thread.
//!
//! The module does not handle OS signals. Each thread decides how it stops. Every part of the agent that runs a thread uses this
//! module.

use std::convert::Infallible;
use std::sync::Arc;

use tokio::sync::{mpsc, watch};

/// Reports the shutdown to a part of the program.
#[derive(Clone, Debug)]
pub struct StopSignal(watch::Receiver<Stage>);

/// The stages of the shutdown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Running,
    ShuttingDown,
    /// The agent stops, and another agent has replaced it.
    ShuttingDownAsReplaced,
}

/// Begins the shutdown. Dropping the last stopper also begins the shutdown, so a panic of the control thread also stops the
/// traffic threads.
#[derive(Clone, Debug)]
pub struct Stopper(Arc<watch::Sender<Stage>>);

/// Creates a [`Stopper`] and the [`StopSignal`] that it controls.
pub fn stop_channel() -> (Stopper, StopSignal) {
    let (sender, receiver) = watch::channel(Stage::Running);
    (Stopper(Arc::new(sender)), StopSignal(receiver))
}

/// A guard that each thread keeps while it runs. Dropping a guard, even in a panic, stops all other threads. A restart of the
/// agent is better than an agent that leaves a listener unserved because one thread is missing.
#[derive(Debug)]
pub struct ThreadGuard {
    stopper: Stopper,
    _gone: mpsc::Sender<Infallible>,
}

/// Waits until every [`ThreadGuard`] is dropped.
#[derive(Debug)]
pub struct ThreadWaitGroup(mpsc::Receiver<Infallible>);

/// Creates `n` guards, one per thread, and the group that waits until all guards are dropped.
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
        // The channel carries no messages, so this call returns when the last sender is dropped.
        let _ = self.0.recv().await;
    }
}

impl Stopper {
    /// Begins the shutdown.
    pub fn stop(&self) {
        self.begin(Stage::ShuttingDown);
    }

    /// Begins the shutdown of an agent that another agent has replaced. The other agent accepts the new connections.
    pub fn stop_as_replaced(&self) {
        self.begin(Stage::ShuttingDownAsReplaced);
    }

    /// Begins the shutdown with this stage. If the shutdown has already begun, the call has no effect.
    fn begin(&self, end: Stage) {
        self.0.send_if_modified(|stage| {
            let goes_on = *stage == Stage::Running;
            *stage = if goes_on { end } else { *stage };
            goes_on
        });
    }
}

impl StopSignal {
    /// True once the shutdown has begun.
    pub fn has_begun(&self) -> bool {
        *self.0.borrow() != Stage::Running
    }

    /// True once the shutdown has begun because another agent has replaced this agent.
    pub fn is_agent_replaced(&self) -> bool {
        *self.0.borrow() == Stage::ShuttingDownAsReplaced
    }

    /// Returns when the shutdown has begun.
    pub async fn wait(&mut self) {
        // A closed channel also means shutdown.
        let _ = self.0.wait_for(|stage| *stage != Stage::Running).await;
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
