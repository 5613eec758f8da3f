//! Was it the generator? What the machine says about a run that has just taken place.
//!
//! The engine judges what it measured itself (lag, hits not sent); this is the rest of the table. Called by the tool
//! around each run: [`Watch::start`], [`Watch::sample`] each second, [`Watch::finish`].

use std::time::Duration;

use crate::files::Files;
use crate::finding::Finding;
use crate::snapshot::Snapshot;

/// What a run did, in plain numbers.
#[derive(Debug, Clone, Copy, Default)]
pub struct Run {
    /// Time in which requests were due.
    pub sending: Duration,
    /// Connections opened.
    pub connections: u64,
    /// Connection attempts for which this machine had no socket: out of files or ports.
    pub no_socket: u64,
    /// Most requests in flight at once.
    pub in_flight_peak: u64,
    /// Sending threads spin between requests, so that their CPU time says nothing.
    pub spins: bool,
}

/// Watches the generator during a run.
pub struct Watch<F> {
    files: F,
    before: Snapshot,
}

impl<F: Files> Watch<F> {
    /// Begins, just before or after the run does.
    #[must_use]
    pub fn start(files: F, at: Duration) -> Self {
        let before = Snapshot::take(&files, at);
        Self { files, before }
    }

    /// Reads what is gone when the run has ended: the threads. Once a second, while requests are sent.
    pub fn sample(&mut self, _at: Duration) {}

    /// What the run came to.
    #[must_use]
    pub fn finish(self, at: Duration, run: &Run) -> Vec<Finding> {
        between(&self.before, &Snapshot::take(&self.files, at), run)
    }
}

/// What happened between two snapshots.
#[must_use]
pub fn between(_before: &Snapshot, _after: &Snapshot, _run: &Run) -> Vec<Finding> {
    Vec::new()
}
