//! Was it the generator? What the machine says about a run that has just taken place.
//!
//! The load engine judges what the engine measured itself (lag, hits not sent); this is the rest. Who runs a trial calls
//! it for each run: [`GeneratorMonitor::start`], [`GeneratorMonitor::sample`] while requests are sent, [`GeneratorMonitor::finish`].
//!
//! A grade must not be wrong, so a finding is worse than noted only when the generator itself was held up. A
//! machine that is busy with other work, a table that is nearly full, a port range that a longer run would use up are
//! noted: they explain figures and colour none. Thresholds stand at the checks, each with its source.

mod cpu;
mod limits;
mod network;

pub use limits::{SOCKETS, TIME_WAIT};

use std::time::Duration;

use crate::files::{HostFiles, ProbeResult};
use crate::finding::MachineFinding;
use crate::snapshot::MachineSnapshot;
use crate::threads::{ThreadTracker, ThreadUsage};

/// What a run did, in plain numbers.
#[derive(Debug, Clone, Default)]
pub struct RunActivity {
    /// Time in which requests were due.
    pub sending: Duration,
    /// More than 1 % of the requests due were not sent, for whatever reason.
    pub missed_sends: bool,
    /// Connections opened.
    pub connections: u64,
    /// Connection attempts for which this machine had no socket: out of files or ports.
    pub socket_failures: u64,
    /// Most requests in flight at once.
    pub in_flight_peak: u64,
    /// CPU time that each sending thread spent on busy polling between the first and the last sample, by the number at the end of its
    /// name. A thread without an entry did not busy-poll.
    pub busy_poll: Vec<Duration>,
}

/// Watches the generator during a run.
#[derive(Debug)]
pub struct GeneratorMonitor<F> {
    files: F,
    before: MachineSnapshot,
    /// The last one taken while requests were sent.
    sent: Option<MachineSnapshot>,
    seen: SampledUsage,
}

/// What is gone, or lower, when the run has ended.
#[derive(Debug)]
pub struct SampledUsage {
    /// The threads that send.
    pub senders: ThreadTracker,
    /// The most files that were open; zero where the kernel does not say (Linux before 6.2).
    pub open_files: u64,
}

impl SampledUsage {
    fn new(senders: &'static str) -> Self {
        Self { senders: ThreadTracker::named(senders), open_files: 0 }
    }

    fn sample(&mut self, files: &dyn HostFiles, at: Duration) {
        self.senders.sample(files, at);
        self.open_files = self.open_files.max(files.size("/proc/self/fd").unwrap_or(0));
    }
}

impl<F: HostFiles> GeneratorMonitor<F> {
    /// Begins, as soon as the run has; the names of the threads that send begin with `senders`.
    #[must_use]
    pub fn start(files: F, senders: &'static str, at: Duration) -> Self {
        let before = MachineSnapshot::take(&files, at);
        let mut watch = Self { files, before, sent: None, seen: SampledUsage::new(senders) };
        watch.seen.sample(&watch.files, at);
        watch
    }

    /// Begins anew: what was before says nothing about the run.
    pub fn restart(&mut self, at: Duration) {
        (self.before, self.sent) = (MachineSnapshot::take(&self.files, at), None);
        self.seen = SampledUsage::new(self.seen.senders.prefix());
        self.seen.sample(&self.files, at);
    }

    /// Reads what is gone when the run has ended, and what shares of its time are made of. Only while requests are sent: the
    /// wait for the last answers, and for who reads the results, would dilute the shares.
    pub fn sample(&mut self, at: Duration) {
        self.seen.sample(&self.files, at);
        self.sent = Some(MachineSnapshot::take(&self.files, at));
    }

    /// What the run came to.
    #[must_use]
    pub fn finish(self, at: Duration, run: &RunActivity) -> Vec<MachineFinding> {
        let after = MachineSnapshot::take(&self.files, at);
        judge(&self.before, self.sent.as_ref().unwrap_or(&after), &after, &self.seen, run)
    }
}

/// Judges what happened between the first snapshot and the others: shares of time until the last request was `sent`, counts and
/// levels until `after` the run. Every check answers, whatever it found.
#[must_use]
pub fn judge(
    before: &MachineSnapshot,
    sent: &MachineSnapshot,
    after: &MachineSnapshot,
    seen: &SampledUsage,
    run: &RunActivity,
) -> Vec<MachineFinding> {
    let senders = seen.senders.usage();
    vec![
        cpu::thread_cpu(&senders, run),
        cpu::queueing(&senders),
        cpu::throttling(before, sent),
        cpu::pressure(before, sent, counted_queue(&senders)),
        limits::memory_pressure(before, sent),
        limits::memory(after),
        limits::open_files(after, seen.open_files.max(run.in_flight_peak)),
        limits::sockets(run),
        limits::ports(before, after, run),
        limits::conntrack(before, after),
        network::backlog(before, after),
        network::tcp(before, after),
        network::bandwidth(before, sent),
    ]
}

fn counted_queue(senders: &ProbeResult<Vec<ThreadUsage>>) -> bool {
    senders.as_ref().is_ok_and(|senders| senders.iter().all(|sender| sender.waited.is_some()))
}

/// `part` of `whole` in percent.
fn percent(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole * 100.0 } else { 0.0 }
}

/// The time between two snapshots in seconds.
fn seconds(before: &MachineSnapshot, after: &MachineSnapshot) -> f64 {
    after.at.saturating_sub(before.at).as_secs_f64()
}

#[cfg(test)]
mod tests;
