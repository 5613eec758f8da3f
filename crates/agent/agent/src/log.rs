//! The log: JSON lines on standard error, written by a thread of their own.
//!
//! Whoever reads standard error may stall: a full disk behind the container runtime, a paused terminal. A pipe holds 64 KiB; after
//! that each write waits, and a thread that waits there answers nobody (the agent used to stop for good, SIGTERM and all,
//! and a pod could fill the pipe). So nobody but this thread writes: a line goes into a queue, or is lost and counted where the queue
//! is full. The reader is told how many were lost as soon as it reads again.
//!
//! The queue is one run of bytes with a bound, not `tracing-appender`'s channel of lines: that one bounds their number only,
//! allocates each, and cannot say when reading goes on. While everybody reads, it holds nothing.

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

/// What may wait to be written, in bytes: a pipe's worth, some 250 lines. As much again may be with the thread that writes.
const ROOM: usize = 64 * 1024;

/// What may wait in lines, so that short ones cannot make a batch that takes long to count.
const LINES: usize = 1024;

/// Room that is kept between batches: what an agent says now and then.
const KEPT: usize = 4 * 1024;

/// How often the end looks whether the last lines are written: ten looks at a pipe that nobody reads are its patience (half a
/// second, which with `serve::DRAIN` stays below 5 s), sixty where somebody reads and the writing thread lacks only CPU.
const LOOK: Duration = Duration::from_millis(50);
const LOOKS_UNREAD: usize = 10;
const LOOKS: usize = 60;

/// How long a complaint waits for its reader: there is no drain before it, and people are told of mistakes by it.
const COMPLAINT: Timespec = Timespec { tv_sec: 3, tv_nsec: 0 };

/// Pause before another try where standard error is non-blocking, which is the choice of whoever shares it.
const AGAIN: Duration = Duration::from_millis(20);

/// What the targets of the product's own crates begin with.
const OWN: &str = "seawall_";

/// The log, to be said to, counted and ended. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct AgentLog(Arc<Queue>);

/// Who sets how much is heard, while it runs.
#[derive(Clone, Debug)]
pub(crate) struct LogLevelHandle(reload::Handle<Targets, Lines>);

/// Beneath it, the lines of all that is heard.
type Lines = Layered<fmt_layer::Layer<Registry, JsonFields, Format<Json>, AgentLog>, Registry>;

impl LogLevelHandle {
    /// Hears this level from now on.
    pub(crate) fn set(&self, level: Level) {
        // It fails only where there is no log any more.
        let _ = self.0.reload(heard(level));
    }
}

/// What is heard at a level: what the product says itself; of libraries, what they warn of ([`AgentLog::subscriber`]).
fn heard(level: Level) -> Targets {
    Targets::new().with_default(level.min(Level::WARN)).with_target(OWN, level)
}

#[derive(Debug, Default)]
struct Queue {
    /// A lock, because lines come from every thread; it is held for the copy of one line, never while writing.
    waiting: Mutex<Waiting>,
    changed: Condvar,
    lost: AtomicU64,
}

#[derive(Debug, Default)]
struct Waiting {
    bytes: Vec<u8>,
    lines: usize,
    /// Whether a batch has been taken and is not written yet.
    is_writing: bool,
}

impl AgentLog {
    /// Starts the thread that writes, and makes every `tracing` event that is to be heard at this level, and every panic, a line.
    ///
    /// # Errors
    /// The thread cannot be started, or there is a log already.
    pub(crate) fn start(level: Level) -> io::Result<(Self, LogLevelHandle)> {
        let log = Self(Arc::default());
        let writing = log.clone();
        std::thread::Builder::new().name("log".into()).spawn(move || writing.write_for_ever())?;
        let (subscriber, loudness) = log.subscriber(level);
        tracing::subscriber::set_global_default(subscriber).map_err(io::Error::other)?;
        // The usual hook writes to standard error itself: a panic would wait there for its reader instead of ending the thread.
        std::panic::set_hook(Box::new(|panic| {
            let thread = std::thread::current();
            tracing::error!(thread = thread.name(), %panic, "a thread panicked");
        }));
        Ok((log, loudness))
    }

    /// Makes lines of events that are of this level and are said by the product itself. What libraries say is heard from warnings on:
    /// below, each says a dozen lines of each call to a cloud (41,600 of hyper's in five seconds were measured), so whoever has calls
    /// made would fill the log, and what it is turned up for would be lost.
    fn subscriber(&self, level: Level) -> (impl Subscriber + Send + Sync + 'static, LogLevelHandle) {
        let lines = fmt_layer::layer()
            .json()
            .with_writer(self.clone())
            // It would complain about a line that cannot be written by a macro that panics when it cannot write.
            .log_internal_errors(false);
        let (heard, loudness) = reload::Layer::new(heard(level));
        (Registry::default().with(lines).with(heard), LogLevelHandle(loudness))
    }

    /// Lines lost so far.
    pub(crate) fn lost_lines(&self) -> u64 {
        self.0.lost.load(Ordering::Relaxed)
    }

    /// Says what is no event: the error that ends the program.
    pub(crate) fn write_text(&self, text: &str) {
        self.0.put(text.as_bytes());
    }

    /// Waits until everything is written, or for as long as a reader is waited for.
    pub(crate) fn finish(&self) {
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
        // This thread is older than the sandbox, and what that gives up is each thread's own.
        if let Err(error) = sandbox::drop_privileges(CapabilitySet::empty()) {
            tracing::error!(%error, "the log's thread cannot give up privileges");
        }
        let mut told = 0;
        loop {
            let (batch, lines) = self.0.take();
            // There is room for it now, and its place is behind the lines that waited: those lost are younger.
            told = self.tell(told);
            if write_all(&batch).is_err() {
                // Nobody will ever read. To tell of that would be another line, for ever.
                told += self.0.lose(lines as u64);
            }
            self.0.written();
        }
    }
}

impl AgentLog {
    /// Says how many lines were lost beyond those told of; returns how many are told of now.
    fn tell(&self, told: u64) -> u64 {
        let lost_in_all = self.lost_lines();
        if let lost @ 1.. = lost_in_all - told {
            tracing::error!(lost, lost_in_all, "log lines were lost, because nobody read them");
        }
        lost_in_all
    }
}

impl Queue {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a line whole, or counts it as lost.
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
        self.lost.fetch_add(lines, Ordering::Relaxed);
        lines
    }

    /// Everything that waits, once something does.
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

/// Writes to standard error without the lock that `std` has for it, which a write that waits would keep from everybody.
fn write_all(mut bytes: &[u8]) -> rustix::io::Result<()> {
    let stderr = io::stderr();
    while !bytes.is_empty() {
        match rustix::io::write(stderr.as_fd(), bytes) {
            Ok(written) => bytes = bytes.get(written..).unwrap_or_default(),
            Err(rustix::io::Errno::INTR) => {}
            Err(rustix::io::Errno::AGAIN) => std::thread::park_timeout(AGAIN),
            // The reader is gone for good.
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

impl Write for &AgentLog {
    /// One event is one call.
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

/// Says on standard error what is wrong before there is a log, and waits for its reader for as long as somebody who types would.
pub(crate) fn print_error(text: &str) {
    // A pipe that is said to be writable takes as much as this without waiting (PIPE_BUF, pipe(7)).
    const AT_ONCE: usize = 4096;
    for part in text.as_bytes().chunks(AT_ONCE) {
        // Where standard error is closed, or nobody reads, there is nowhere left to complain.
        if !is_writable(&COMPLAINT) || write_all(part).is_err() {
            return;
        }
    }
}

const NOW: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

/// Whether standard error takes something without waiting, or does so before the time is over.
fn is_writable(within: &Timespec) -> bool {
    let stderr = io::stderr();
    let mut asked = [PollFd::new(&stderr, PollFlags::OUT)];
    poll(&mut asked, Some(within)).is_ok_and(|ready| ready > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// At `debug`, hyper alone used to say a line of nearly everything that it did.
    #[test]
    fn below_a_warning_only_the_product_itself_is_heard() {
        for (level, lines) in [
            (Level::DEBUG, &["own debug", "own info", "own error", "hyper warns", "rustls errs"][..]),
            (Level::INFO, &["own info", "own error", "hyper warns", "rustls errs"]),
            (Level::WARN, &["own error", "hyper warns", "rustls errs"]),
            (Level::ERROR, &["own error", "rustls errs"]),
        ] {
            let log = AgentLog(Arc::default());
            // Set while it runs, from the other end.
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
        assert_eq!((queue.waiting().lines, queue.lost.load(Ordering::Relaxed)), (65, 35));
        let (batch, lines) = queue.take();
        assert_eq!((batch.len(), lines), (65_000, 65));
        assert!(queue.waiting().bytes.capacity() <= KEPT);
        for _ in 0..2000 {
            queue.put(b"\n");
        }
        assert_eq!((queue.waiting().lines, queue.lost.load(Ordering::Relaxed)), (LINES, 35 + 2000 - 1024));
        queue.put(&[b'x'; ROOM + 1]);
        assert_eq!(queue.waiting().lines, LINES, "a line is taken whole or not at all");
    }
}
