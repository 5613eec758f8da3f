//! From the first signal to the last byte: one value that says "stop", and one that says "all gone".
//!
//! The first SIGTERM or SIGINT starts the drain: listeners close, idle connections close (where another agent has taken over, after one
//! more answer, if they ask in time), requests under way are answered and then their connections close. After [`DRAIN`] what is left is cut. A second signal cuts at
//! once. Kubernetes sends SIGTERM, waits for the grace period and then kills; 5 s fits inside any grace period.
//!
//! Signals whose default would end the process without a drain are taken, named in the log and otherwise ignored.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{mpsc, watch};

/// How long requests under way may take once stopping has begun. With the rest of the shutdown it stays below 5 s.
pub(crate) const DRAIN: Duration = Duration::from_secs(4);

/// How long idle connections may ask once more where whoever comes anew reaches another agent: it is part of [`DRAIN`].
pub(crate) const LAST_ANSWERS: Duration = Duration::from_secs(3);

/// Tells every part of the program that it is time to stop.
#[derive(Clone, Debug)]
pub(crate) struct Stop(watch::Receiver<Stage>);

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
pub(crate) struct Stopper(Arc<watch::Sender<Stage>>);

/// A switch and what it switches.
pub(crate) fn switch() -> (Stopper, Stop) {
    let (sender, receiver) = watch::channel(Stage::GoesOn);
    (Stopper(Arc::new(sender)), Stop(receiver))
}

/// Held by a thread while it lives. Dropping it, in a panic too, stops all others: a listener without a thread behind
/// it would be worse than an agent that restarts.
#[derive(Debug)]
pub(crate) struct Alive {
    stopper: Stopper,
    _gone: mpsc::Sender<Infallible>,
}

/// Waits for every [`Alive`] to be dropped.
#[derive(Debug)]
pub(crate) struct AllGone(mpsc::Receiver<Infallible>);

/// `n` threads to hold and the wait for their end.
pub(crate) fn threads(n: usize, stopper: &Stopper) -> (Vec<Alive>, AllGone) {
    let (gone, all_gone) = mpsc::channel(1);
    let alive = (0..n).map(|_| Alive { stopper: stopper.clone(), _gone: gone.clone() }).collect();
    (alive, AllGone(all_gone))
}

impl Drop for Alive {
    fn drop(&mut self) {
        self.stopper.stop();
    }
}

impl AllGone {
    /// Returns when no thread is left.
    pub(crate) async fn wait(&mut self) {
        // Nothing can be sent, so this ends when the last sender is dropped.
        let _ = self.0.recv().await;
    }
}

impl Stopper {
    /// Begins the stop.
    pub(crate) fn stop(&self) {
        self.begin(Stage::Ends);
    }

    /// Begins the stop of an agent to which nobody comes anew any more, but to another.
    pub(crate) fn stop_succeeded(&self) {
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

impl Stop {
    /// Whether the stop has begun.
    pub(crate) fn has_begun(&self) -> bool {
        *self.0.borrow() != Stage::GoesOn
    }

    /// Whether it has, and another agent has taken over.
    pub(crate) fn is_succeeded(&self) -> bool {
        *self.0.borrow() == Stage::IsSucceeded
    }

    /// Returns when the stop has begun.
    pub(crate) async fn begun(&mut self) {
        // A closed channel is a stop, too.
        let _ = self.0.wait_for(|stage| *stage != Stage::GoesOn).await;
    }
}

/// What a signal asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    /// The end, by the signal of this name.
    End(&'static str),
    /// That the configuration is looked at now.
    Look,
}

/// SIGTERM and SIGINT, SIGHUP, and those that are ignored: the USRs, by which other servers are told to read their files
/// again, and SIGQUIT, which prints the threads of a Go program and would end this one. (The standard library ignores SIGPIPE.)
#[derive(Debug)]
pub(crate) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hang_up: Signal,
    user: [Signal; 2],
    quit: Signal,
}

impl Signals {
    /// Takes them over from their default, which would end the process at once.
    ///
    /// # Errors
    /// The handlers cannot be installed.
    pub(crate) fn new() -> std::io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hang_up: signal(SignalKind::hangup())?,
            user: [signal(SignalKind::user_defined1())?, signal(SignalKind::user_defined2())?],
            quit: signal(SignalKind::quit())?,
        })
    }

    /// The next one that asks for the end.
    pub(crate) async fn end(&mut self) -> &'static str {
        loop {
            if let Asked::End(signal) = self.next().await {
                return signal;
            }
        }
    }

    /// The next one that asks for something.
    pub(crate) async fn next(&mut self) -> Asked {
        let [first, second] = &mut self.user;
        loop {
            let ignored = tokio::select! {
                _ = self.terminate.recv() => return Asked::End("SIGTERM"),
                _ = self.interrupt.recv() => return Asked::End("SIGINT"),
                _ = self.hang_up.recv() => return Asked::Look,
                _ = first.recv() => "SIGUSR1",
                _ = second.recv() => "SIGUSR2",
                _ = self.quit.recv() => "SIGQUIT",
            };
            tracing::warn!(
                signal = ignored,
                "ignored; SIGTERM ends the agent, and SIGHUP has it look at its configuration"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_thread_that_dies_stops_the_others() {
        let (stopper, mut stop) = switch();
        let (mut alive, mut all_gone) = threads(2, &stopper);
        let dying = std::thread::spawn({
            let alive = alive.pop();
            move || {
                let _alive = alive;
                std::panic::resume_unwind(Box::new("died"));
            }
        });
        assert!(dying.join().is_err());
        stop.begun().await;
        drop(alive);
        all_gone.wait().await;
    }
}
