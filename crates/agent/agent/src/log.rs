//! Writes the log as JSON lines to standard error, on a separate thread.
//!
//! The program that reads standard error can stall, for example because of a full disk or a paused terminal. A pipe holds 64 KiB. When the
//! pipe is full, each write blocks, and a blocked thread serves no client. Pods can cause enough lines to fill the pipe. When
//! this happened, an earlier version of the agent hung forever and ignored SIGTERM. Therefore only the log thread writes to
//! standard error. Every other thread puts its line into a queue. If the queue is full, the thread drops the line and counts the
//! dropped line. As soon as the reader continues, the log thread reports the number of dropped lines.
//!
//! The queue is one byte buffer with a limit. The channel of the crate `tracing-appender` would limit only the number of lines.
//! It would also allocate memory for each line, and it could not report that the reader continues. While the reader keeps up, the
//! queue is empty.

use std::io::{self, Write};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::thread::CapabilitySet;
use tracing::{Level, Subscriber};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::fmt::format::{Format, Json, JsonFields};
use tracing_subscriber::layer::{Layered, SubscriberExt};
use tracing_subscriber::{Registry, fmt as fmt_layer, reload};

use crate::sandbox;

/// The maximum number of bytes in the queue. This equals the size of a pipe, or about 250 lines.
/// The batch that the log thread writes can have the same size.
const ROOM: usize = 64 * 1024;

/// The maximum number of lines in the queue.
const LINES: usize = 1024;

/// The maximum capacity, in bytes, of an empty queue. Because of this capacity, occasional lines need no new memory.
const KEPT: usize = 4 * 1024;

/// The interval at which [`AgentLog::flush_with_timeout`] checks whether the log thread has written the last lines.
const LOOK: Duration = Duration::from_millis(50);

/// The number of checks after which [`AgentLog::flush_with_timeout`] stops waiting if no program reads standard error (0.5 s).
///
/// The drain (`DRAIN` and `REPLACED_DRAIN` in `seawall_server::thread`) and these checks together take less than 5 s, or less than 9 s if another
/// agent already serves.
const LOOKS_UNREAD: usize = 10;

/// The number of checks after which [`AgentLog::flush_with_timeout`] always stops waiting (3 s).
/// The log thread can be slow, for example because it gets no CPU time.
const LOOKS: usize = 60;

/// The longest time that [`print_error`] waits until standard error accepts text.
/// The wait may be long, because users need these errors, and because the process does no drain before the wait.
const COMPLAINT: Timespec = Timespec { tv_sec: 3, tv_nsec: 0 };

/// The pause before the next write if standard error is non-blocking and full.
/// Another process that shares standard error can set it to non-blocking.
const AGAIN: Duration = Duration::from_millis(20);

/// The prefix of the log targets of Seawall's crates.
const OWN: &str = "seawall_";

/// The handle of the log. The handle writes text, counts dropped lines, and waits for the last lines. A clone is cheap.
#[derive(Clone, Debug)]
pub(crate) struct AgentLog(Arc<Queue>);

/// The handle that sets the log level while the agent runs.
#[derive(Clone, Debug)]
pub(crate) struct LogLevelHandle(reload::Handle<Targets, Lines>);

/// The `tracing` layers below the filter. These layers write the lines.
type Lines = Layered<fmt_layer::Layer<Registry, JsonFields, Format<Json>, AgentLog>, Registry>;

impl LogLevelHandle {
    /// Sets the log level for later events.
    pub(crate) fn set(&self, level: Level) {
        // This call fails only if the log no longer exists.
        let _ = self.0.reload(heard(level));
    }

    /// Returns a handle of no log.
    #[cfg(test)]
    pub(crate) fn of_no_log() -> Self {
        Self(reload::Layer::new(heard(Level::INFO)).1)
    }
}

/// Returns the filter for a log level. Events of Seawall's crates pass if they are at least as severe as the level. Events of
/// libraries pass only if they are also warnings or errors ([`AgentLog::subscriber`]).
fn heard(level: Level) -> Targets {
    Targets::new().with_default(level.min(Level::WARN)).with_target(OWN, level)
}

#[derive(Debug, Default)]
struct Queue {
    /// The lines that the log thread has not taken yet. A lock guards the lines, because every thread adds lines. A thread holds
    /// the lock while it copies one line. The log thread does not hold the lock while it writes to standard error.
    waiting: Mutex<Waiting>,
    changed: Condvar,
    dropped: AtomicU64,
}

#[derive(Debug, Default)]
struct Waiting {
    bytes: Vec<u8>,
    lines: usize,
    /// True if the log thread has taken a batch but has not written the batch yet.
    is_writing: bool,
}

impl AgentLog {
    /// Starts the log thread. After this call, the log contains every panic and every `tracing` event that passes this level's
    /// filter.
    ///
    /// # Errors
    /// The thread cannot start, or a log already exists.
    pub(crate) fn start(level: Level) -> io::Result<(Self, LogLevelHandle)> {
        let log = Self(Arc::default());
        let writing = log.clone();
        std::thread::Builder::new().name("log".into()).spawn(move || writing.write_for_ever())?;
        let (subscriber, loudness) = log.subscriber(level);
        tracing::subscriber::set_global_default(subscriber).map_err(io::Error::other)?;
        // The default hook writes directly to standard error. With that hook, a panicking thread would wait for the reader of
        // standard error and would not end.
        std::panic::set_hook(Box::new(|panic| {
            let thread = std::thread::current();
            tracing::error!(thread = thread.name(), %panic, "a thread panicked");
        }));
        Ok((log, loudness))
    }

    /// Returns a subscriber that queues a line for each event that passes this level's filter.
    ///
    /// Only warnings and errors of libraries pass. At the level `debug`, libraries log a dozen lines for each call to a cloud
    /// (measured: 41,600 lines from the library hyper in 5 s). A client that causes such calls would fill the log. The log would
    /// then lose the lines that the operator wants to see.
    fn subscriber(&self, level: Level) -> (impl Subscriber + Send + Sync + 'static, LogLevelHandle) {
        let lines = fmt_layer::layer()
            .json()
            .with_writer(self.clone())
            // For internal errors, the layer would use a macro that panics if the macro cannot write to standard error.
            .log_internal_errors(false);
        let (heard, loudness) = reload::Layer::new(heard(level));
        (Registry::default().with(lines).with(heard), LogLevelHandle(loudness))
    }

    /// Returns the number of dropped lines so far.
    pub(crate) fn dropped_lines(&self) -> u64 {
        self.0.dropped.load(Ordering::Relaxed)
    }

    /// Writes text that is not a `tracing` event, such as the error that ends the program.
    pub(crate) fn write_text(&self, text: &str) {
        self.0.put(text.as_bytes());
    }

    /// Waits until the log thread has written all lines, but only for a limited time ([`LOOKS_UNREAD`], [`LOOKS`]).
    pub(crate) fn flush_with_timeout(&self) {
        let mut unread = 0;
        for _ in 0..LOOKS {
            if self.is_written_within(LOOK) || unread >= LOOKS_UNREAD {
                return;
            }
            unread += usize::from(!is_writable(&NOW));
        }
    }

    fn is_written_within(&self, span: Duration) -> bool {
        let is_under_way = |waiting: &mut Waiting| waiting.is_writing || !waiting.bytes.is_empty();
        let waited = self.0.changed.wait_timeout_while(self.0.waiting(), span, is_under_way);
        waited.is_ok_and(|(_, result)| !result.timed_out())
    }

    fn write_for_ever(&self) {
        // This thread started before the agent enabled the sandbox, so this thread must drop its privileges itself.
        if let Err(error) = sandbox::drop_privileges(CapabilitySet::empty()) {
            tracing::error!(%error, "the log thread cannot give up privileges");
        }
        let mut told = 0;
        loop {
            let (batch, lines) = self.0.take();
            // The queue now has room for the report on dropped lines. The thread writes the batch before the report, because the
            // dropped lines are newer than the batch.
            told = self.tell(told);
            if write_all(&batch).is_err() {
                // Standard error no longer has a reader. A log line about this error would also be lost.
                told += self.0.lose(lines as u64);
            }
            self.0.written();
        }
    }
}

impl AgentLog {
    /// Logs the number of lines that the log dropped since the last report.
    /// `told` is the total number of dropped lines at the last report. Returns the current total.
    fn tell(&self, told: u64) -> u64 {
        let dropped_in_all = self.dropped_lines();
        if let dropped @ 1.. = dropped_in_all - told {
            tracing::error!(
                dropped,
                dropped_in_all,
                "log lines were dropped because the reader of standard error was too slow"
            );
        }
        dropped_in_all
    }
}

impl Queue {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues a whole line. If the queue is full, drops the line and counts the dropped line.
    fn put(&self, line: &[u8]) {
        let mut waiting = self.waiting();
        if waiting.lines >= LINES || waiting.bytes.len() + line.len() > ROOM {
            self.lose(1);
            return;
        }
        waiting.bytes.extend_from_slice(line);
        waiting.lines += 1;
        drop(waiting);
        self.changed.notify_all();
    }

    fn lose(&self, lines: u64) -> u64 {
        self.dropped.fetch_add(lines, Ordering::Relaxed);
        lines
    }

    /// Waits until the queue contains lines, and then takes all lines.
    fn take(&self) -> (Vec<u8>, usize) {
        let is_empty = |waiting: &mut Waiting| waiting.bytes.is_empty();
        let mut waiting =
            self.changed.wait_while(self.waiting(), is_empty).unwrap_or_else(PoisonError::into_inner);
        waiting.is_writing = true;
        let room = Vec::with_capacity(waiting.bytes.len().min(KEPT));
        (std::mem::replace(&mut waiting.bytes, room), std::mem::take(&mut waiting.lines))
    }

    fn written(&self) {
        self.waiting().is_writing = false;
        self.changed.notify_all();
    }
}

/// Writes to standard error without `std`'s lock, because all other threads would wait for that lock while a write is blocked.
fn write_all(mut bytes: &[u8]) -> rustix::io::Result<()> {
    let stderr = io::stderr();
    while !bytes.is_empty() {
        match rustix::io::write(stderr.as_fd(), bytes) {
            Ok(written) => bytes = bytes.get(written..).unwrap_or_default(),
            Err(rustix::io::Errno::INTR) => {}
            Err(rustix::io::Errno::AGAIN) => std::thread::park_timeout(AGAIN),
            // Standard error no longer has a reader.
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

impl Write for &AgentLog {
    /// Queues the line of one event.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0.put(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for AgentLog {
    type Writer = &'a Self;

    fn make_writer(&'a self) -> Self::Writer {
        self
    }
}

/// Prints text to standard error while there is no log. Stops if standard error accepts no text for [`COMPLAINT`] (3 s).
pub(crate) fn print_error(text: &str) {
    // If `poll` reports a pipe as writable, the pipe accepts this number of bytes without blocking (PIPE_BUF, pipe(7)).
    const AT_ONCE: usize = 4096;
    for part in text.as_bytes().chunks(AT_ONCE) {
        // Standard error is closed or has no reader, so the error cannot be reported.
        if !is_writable(&COMPLAINT) || write_all(part).is_err() {
            return;
        }
    }
}

const NOW: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

/// True if standard error accepts a write within this time.
fn is_writable(within: &Timespec) -> bool {
    let stderr = io::stderr();
    let mut asked = [PollFd::new(&stderr, PollFlags::OUT)];
    poll(&mut asked, Some(within)).is_ok_and(|ready| ready > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// At `debug`, hyper alone once logged a line for nearly every step of a call to a cloud.
    #[test]
    fn below_a_warning_only_the_product_itself_is_heard() {
        for (level, lines) in [
            (Level::DEBUG, &["own debug", "own info", "own error", "hyper warns", "rustls errs"][..]),
            (Level::INFO, &["own info", "own error", "hyper warns", "rustls errs"]),
            (Level::WARN, &["own error", "hyper warns", "rustls errs"]),
            (Level::ERROR, &["own error", "rustls errs"]),
        ] {
            let log = AgentLog(Arc::default());
            // The level is changed at run time, starting from a different level.
            let (subscriber, loudness) =
                log.subscriber(if level == Level::DEBUG { Level::ERROR } else { Level::DEBUG });
            tracing::subscriber::with_default(subscriber, || {
                loudness.set(level);
                tracing::trace!(target: "h2::client", "h2 traces");
                tracing::debug!(target: "hyper_util::client::legacy::connect::http", "hyper debugs");
                tracing::info!(target: "rustls::client", "rustls informs");
                tracing::debug!(target: "seawall_broker::fetch_log", "own debug");
                tracing::info!("own info");
                tracing::error!(target: "seawall_cluster", "own error");
                tracing::warn!(target: "hyper", "hyper warns");
                tracing::error!(target: "rustls", "rustls errs");
            });
            let (batch, count) = log.0.take();
            let said = String::from_utf8(batch).unwrap();
            assert_eq!(count, lines.len(), "{level}: {said}");
            assert!(lines.iter().all(|line| said.contains(line)), "{level}: {said}");
        }
    }

    #[test]
    fn what_waits_is_bounded_in_bytes_and_in_lines_and_the_rest_is_counted() {
        let queue = Queue::default();
        let line = [b'x'; 1000];
        for _ in 0..100 {
            queue.put(&line);
        }
        assert_eq!((queue.waiting().lines, queue.dropped.load(Ordering::Relaxed)), (65, 35));
        let (batch, lines) = queue.take();
        assert_eq!((batch.len(), lines), (65_000, 65));
        assert!(queue.waiting().bytes.capacity() <= KEPT);
        for _ in 0..2000 {
            queue.put(b"\n");
        }
        assert_eq!((queue.waiting().lines, queue.dropped.load(Ordering::Relaxed)), (LINES, 35 + 2000 - 1024));
        queue.put(&[b'x'; ROOM + 1]);
        assert_eq!(queue.waiting().lines, LINES, "the queue takes a whole line or drops it");
    }
}
