//! Reading results while the report can be asked for at any time.
//!
//! A thread reads and adds up; the command's own thread waits for the end, for `-every` and for Ctrl-C. The sum stands
//! behind a lock that is taken once per record: nobody else wants it but a report, so it is free when it is taken.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use seawall_load::record::Record;
use seawall_load::results::{RecordMerge, hdr};

use super::intervals;
use crate::attack::summary::POSSIBLE_SUMMARY_BEGINNINGS;

/// Something that results are added to.
pub(crate) trait RecordSink: Send + 'static {
    /// Adds one result of the input with this index.
    fn add(&mut self, source: usize, record: &Record);
}

/// Any number of inputs as one.
pub(crate) type MergedInputs = RecordMerge<Box<dyn BufRead + Send>>;

/// An opened input. It is opened once and read through one buffer: a pipe has nothing for whoever looks a second time.
pub(crate) struct InputSource {
    /// The name of the input, for messages.
    pub(crate) name: String,
    /// The whole content, including the bytes that were looked at.
    pub(crate) reader: Box<dyn BufRead + Send>,
}

impl InputSource {
    /// `stdin` and `-` stand for standard input, as in vegeta.
    fn open(file: &str) -> anyhow::Result<Self> {
        if is_stdin(file) {
            return Ok(Self { name: "stdin".to_owned(), reader: buffered(io::stdin()) });
        }
        let opened = File::open(file).with_context(|| format!("cannot read {file}"))?;
        Ok(Self { name: file.to_owned(), reader: buffered(opened) })
    }

    /// Returns the first bytes once there are any; consumes nothing.
    pub(crate) fn peek_start(&mut self) -> anyhow::Result<&[u8]> {
        self.reader.fill_buf().with_context(|| format!("cannot read {}", self.name))
    }
}

/// Opens files, or standard input if there are none.
pub(crate) fn open_inputs(files: &[String]) -> anyhow::Result<Vec<InputSource>> {
    if files.is_empty() {
        return Ok(vec![InputSource::open("stdin")?]);
    }
    files.iter().map(|file| InputSource::open(file)).collect()
}

/// Inputs, grouped by content.
#[derive(Default)]
pub(crate) struct ClassifiedInputs {
    /// Results, or unknown content.
    pub(crate) results: Vec<InputSource>,
    /// HDR logs.
    pub(crate) hdr_logs: Vec<InputSource>,
    /// Outputs of `attack --timeseries`.
    pub(crate) intervals: Vec<InputSource>,
}

impl ClassifiedInputs {
    /// Groups inputs by their first bytes.
    pub(crate) fn classify(inputs: Vec<InputSource>) -> anyhow::Result<Self> {
        let mut sorted = Self::default();
        for mut input in inputs {
            let head = input.peek_start()?;
            ensure!(
                !POSSIBLE_SUMMARY_BEGINNINGS.iter().any(|text| head.starts_with(text.as_bytes())),
                "{} contains a summary, not records: add --output - to the attack, as in seawall attack --output - URL | \
                 seawall report",
                input.name
            );
            let kind = if hdr::is_log(head) {
                &mut sorted.hdr_logs
            } else if intervals::is_intervals_file(head) {
                &mut sorted.intervals
            } else {
                &mut sorted.results
            };
            kind.push(input);
        }
        Ok(sorted)
    }

    /// Refuses intervals where single results are wanted.
    pub(crate) fn reject_intervals(self, wanted: &str) -> anyhow::Result<Self> {
        self.intervals
            .first()
            .map_or(Ok(()), |input| Err(intervals::needs_results_error(&input.name, wanted)))?;
        Ok(self)
    }
}

/// Refuses anything else beside intervals: the same requests would be counted twice, or some in part.
pub(crate) fn reject_mixed_inputs(
    intervals: &[InputSource],
    results: &mut [InputSource],
    logs: &[InputSource],
) -> anyhow::Result<()> {
    let (other, held) = match (results, logs) {
        ([result, ..], _) => {
            let nothing = result.peek_start()?.is_empty();
            ensure!(!nothing, "{} is empty", result.name);
            (&*result, "results")
        }
        ([], [log, ..]) => (log, "an HDR log"),
        ([], []) => return Ok(()),
    };
    let name = intervals.first().map_or("", |input| &input.name);
    bail!("{name} contains intervals, but {} contains {held}: give inputs of one kind", other.name)
}

/// Inputs that hold results, as one.
pub(crate) fn merge_inputs(inputs: impl IntoIterator<Item = InputSource>) -> MergedInputs {
    let mut merged = RecordMerge::new();
    for InputSource { name, reader } in inputs {
        merged.add_input(&name, reader);
    }
    merged
}

/// True if any of these names is standard input.
pub(crate) fn reads_stdin(files: &[String]) -> bool {
    files.is_empty() || files.iter().any(|file| is_stdin(file))
}

fn is_stdin(file: &str) -> bool {
    matches!(file, "stdin" | "-")
}

fn buffered(input: impl Read + Send + 'static) -> Box<dyn BufRead + Send> {
    Box::new(BufReader::with_capacity(256 << 10, input))
}

/// A reader at work.
#[derive(Debug)]
pub(crate) struct InputReader<S> {
    sum: Arc<Mutex<S>>,
    events: Receiver<ReaderEvent>,
    waits_for_end: bool,
}

/// An event for the waiting thread.
#[derive(Debug)]
enum ReaderEvent {
    /// All inputs ended; the texts say what was wrong with them.
    Finished(Vec<String>),
    Interrupt,
}

/// The reason why a wait ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum WakeReason {
    /// All inputs were read; the texts say what was wrong with them.
    Finished(Vec<String>),
    /// The user wants to see what there is.
    Interrupted,
    /// The interval has passed.
    Tick,
}

impl<S: RecordSink> InputReader<S> {
    /// Starts reading. `patient`: the first Ctrl-C waits for the end of the input, because the program at the other end
    /// of the pipe got it too and still has answers to come.
    pub(crate) fn start(inputs: MergedInputs, sum: S, patient: bool) -> io::Result<Self> {
        let (sender, events) = channel();
        let sum = Arc::new(Mutex::new(sum));
        forward_interrupts(sender.clone())?;
        let shared = Arc::clone(&sum);
        std::thread::Builder::new().name("reader".to_owned()).spawn(move || {
            let mut last_word = FinishGuard { sender, problems: vec!["the reader failed".to_owned()] };
            last_word.problems = read_all(inputs, &shared);
        })?;
        Ok(Self { sum, events, waits_for_end: patient })
    }

    /// Waits for the end, for Ctrl-C, or for the interval if there is one.
    pub(crate) fn wait(&mut self, every: Option<Duration>) -> WakeReason {
        let event = match every {
            Some(interval) => self.events.recv_timeout(interval),
            None => self.events.recv().map_err(RecvTimeoutError::from),
        };
        match event {
            Ok(ReaderEvent::Finished(problems)) => WakeReason::Finished(problems),
            Ok(ReaderEvent::Interrupt) if self.waits_for_end => {
                self.waits_for_end = false;
                self.wait(every)
            }
            Ok(ReaderEvent::Interrupt) | Err(RecvTimeoutError::Disconnected) => WakeReason::Interrupted,
            Err(RecvTimeoutError::Timeout) => WakeReason::Tick,
        }
    }

    /// The sum so far.
    pub(crate) fn lock_sum(&self) -> MutexGuard<'_, S> {
        self.sum.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn read_all(mut inputs: MergedInputs, sum: &Mutex<impl RecordSink>) -> Vec<String> {
    while let Some((source, record)) = inputs.next_record() {
        sum.lock().unwrap_or_else(PoisonError::into_inner).add(source, record);
    }
    inputs.broken_inputs().iter().map(ToString::to_string).collect()
}

/// Tells the waiting thread that reading is over, even if it ended in a panic.
struct FinishGuard {
    sender: Sender<ReaderEvent>,
    problems: Vec<String>,
}

impl Drop for FinishGuard {
    fn drop(&mut self) {
        // Nobody waits any more once the report is out.
        let _ = self.sender.send(ReaderEvent::Finished(std::mem::take(&mut self.problems)));
    }
}

fn forward_interrupts(sender: Sender<ReaderEvent>) -> io::Result<()> {
    let (mut woken, waker) = UnixStream::pair()?;
    signal_hook::low_level::pipe::register(signal_hook::consts::SIGINT, waker)?;
    std::thread::Builder::new().name("interrupts".to_owned()).spawn(move || {
        let mut byte = [0];
        while woken.read_exact(&mut byte).is_ok() && sender.send(ReaderEvent::Interrupt).is_ok() {}
    })?;
    Ok(())
}
