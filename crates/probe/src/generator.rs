//! Judges from the machine's counters whether the load generator was the limit of a run.
//!
//! The load engine judges its own measurements (lag, unsent requests), and this module judges the machine. The caller uses
//! [`GeneratorMonitor::start`] at the start of a run, [`GeneratorMonitor::sample`] while requests are sent, and
//! [`GeneratorMonitor::finish`].
//!
//! A finding is worse than `Info` only if the generator itself was delayed. A busy machine, a nearly full table, or ports that a longer run
//! would exhaust are only `Info`, because they do not change the results. Each check has its threshold with its source.

mod cpu;
mod limits;
mod network;

pub use limits::{SOCKETS_CHECK, TIME_WAIT_SECONDS};

use std::time::Duration;

use crate::file_reader::{HostFiles, ProbeResult};
use crate::finding::MachineFinding;
use crate::snapshot::MachineSnapshot;
use crate::threads::{ThreadTracker, ThreadUsage};

/// The activity of a run in numbers.
#[derive(Debug, Clone, Default)]
pub struct RunActivity {
    /// The time in which requests were due.
    pub sending_duration: Duration,
    /// True if more than 1 % of the due requests were not sent.
    pub has_unsent_requests: bool,
    /// The opened connections.
    pub opened_connection_count: u64,
    /// The connection attempts that failed because this machine had no file descriptor or port.
    pub socket_failures: u64,
    /// The most requests in flight.
    pub in_flight_peak: u64,
    /// The CPU time that each sending thread spent on busy polling between the first and the last sample. The index is the number at the
    /// end of the thread's name. A thread without an entry did not busy-poll.
    pub busy_poll_times: Vec<Duration>,
}

/// Monitors the generator during a run.
#[derive(Debug)]
pub struct GeneratorMonitor<F> {
    files: F,
    before: MachineSnapshot,
    /// The last snapshot while requests were sent.
    sent: Option<MachineSnapshot>,
    seen: SampledUsage,
}

/// The resource use that is only visible during a run.
#[derive(Debug)]
pub struct SampledUsage {
    /// The sending threads.
    pub sender_thread_tracker: ThreadTracker,
    /// The most open files; 0 if the kernel does not report them (Linux before 6.2).
    pub peak_open_files: u64,
}

impl SampledUsage {
    fn new(senders: &'static str) -> Self {
        Self { sender_thread_tracker: ThreadTracker::named(senders), peak_open_files: 0 }
    }

    fn sample(&mut self, files: &dyn HostFiles, at: Duration) {
        self.sender_thread_tracker.sample(files, at);
        self.peak_open_files = self.peak_open_files.max(files.size("/proc/self/fd").unwrap_or(0));
    }
}

impl<F: HostFiles> GeneratorMonitor<F> {
    /// Starts to monitor. The names of sending threads start with `senders`.
    #[must_use]
    pub fn start(files: F, senders: &'static str, at: Duration) -> Self {
        let before = MachineSnapshot::take(&files, at);
        let mut watch = Self { files, before, sent: None, seen: SampledUsage::new(senders) };
        watch.seen.sample(&watch.files, at);
        watch
    }

    /// Starts again and forgets earlier samples.
    pub fn restart(&mut self, at: Duration) {
        (self.before, self.sent) = (MachineSnapshot::take(&self.files, at), None);
        self.seen = SampledUsage::new(self.seen.sender_thread_tracker.prefix());
        self.seen.sample(&self.files, at);
    }

    /// Takes a sample during the run. It must be called only while requests are sent: the wait for the last responses would lower the
    /// shares.
    pub fn sample(&mut self, at: Duration) {
        self.seen.sample(&self.files, at);
        self.sent = Some(MachineSnapshot::take(&self.files, at));
    }

    /// Ends the monitoring and judges the run.
    #[must_use]
    pub fn finish(self, at: Duration, run: &RunActivity) -> Vec<MachineFinding> {
        let after = MachineSnapshot::take(&self.files, at);
        judge(&self.before, self.sent.as_ref().unwrap_or(&after), &after, &self.seen, run)
    }
}

/// Judges the snapshots. Shares of time count up to `sent`, when the last request was sent; counts and levels count up to `after`. Every
/// check has a finding.
#[must_use]
pub fn judge(
    before: &MachineSnapshot,
    sent: &MachineSnapshot,
    after: &MachineSnapshot,
    seen: &SampledUsage,
    run: &RunActivity,
) -> Vec<MachineFinding> {
    let senders = seen.sender_thread_tracker.usage();
    vec![
        cpu::check_thread_cpu(&senders, run),
        cpu::check_cpu_queueing(&senders),
        cpu::check_throttling(before, sent),
        cpu::check_cpu_pressure(before, sent, counted_queue(&senders)),
        limits::check_memory_pressure(before, sent),
        limits::check_cgroup_memory_limit(after),
        limits::check_open_files(after, seen.peak_open_files.max(run.in_flight_peak)),
        limits::check_socket_failures(run),
        limits::check_projected_port_use(before, after, run),
        limits::check_conntrack(before, after),
        network::check_packet_backlog(before, after),
        network::check_tcp(before, after),
        network::check_bandwidth(before, sent),
    ]
}

fn counted_queue(senders: &ProbeResult<Vec<ThreadUsage>>) -> bool {
    senders.as_ref().is_ok_and(|senders| senders.iter().all(|sender| sender.waited.is_some()))
}

/// Returns the percentage that `part` is of `whole`.
fn percent(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole * 100.0 } else { 0.0 }
}

/// Returns the seconds between two snapshots.
fn seconds(before: &MachineSnapshot, after: &MachineSnapshot) -> f64 {
    after.at.saturating_sub(before.at).as_secs_f64()
}

#[cfg(test)]
mod tests;
