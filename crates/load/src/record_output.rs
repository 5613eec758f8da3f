//! Carries records from the senders to the results output: batches that are reused, and one thread that writes.
//!
//! A sender fills a [`Record`] in place and never touches the output. All batches are made before the run and circulate, so that
//! memory does not grow when the output stalls and no sender allocates while requests are due. The [`SlowOutputPolicy`] of the
//! run decides what a sender does when the writer holds all batches. Once the run is to end at once, no thread waits longer than
//! its [`WriterTimeout`].

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::time::Duration;

use crate::clock::{Nanos, RunClock, SECOND};
use crate::control::{Control, ControlState, RunCommand};
use crate::plan::ResultsOutput;
use crate::record::Record;
use crate::results::{EncodeError, Encoder, ResultFormat};

/// The number of records in a batch, and the number of body bytes after which a batch is full anyway.
const BATCH: usize = 256;
const BATCH_BODIES: usize = 1 << 20;

/// The number of batches per sender: 8192 records. At 20,000/s the writer may stall for 0.4 s before the sender notices. A record
/// takes some 700 bytes, which bounds the extra memory of a run with results.
const BATCHES: usize = 32;

/// A buffer larger than this is freed after use.
const LARGE: usize = 64 << 10;

/// The behaviour of a sender when every batch waits for the writer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SlowOutputPolicy {
    /// Waits. No record is lost; the wait counts as lag of the requests that are sent late, and is also counted on its own.
    #[default]
    Wait,
    /// Goes on without the record. The schedule is kept, and lost records are counted.
    Drop,
}

/// The time for which a thread waits for the results output. There is no limit until the run is to end at once; then a little
/// time remains. A reader that reads gets all records in that time, and a reader that has stopped does not block the program.
#[derive(Debug, Clone)]
pub(crate) struct WriterTimeout {
    shared: Arc<ControlState>,
    clock: RunClock,
    until: Option<Nanos>,
}

impl WriterTimeout {
    /// The interval at which the remaining time is checked.
    pub(crate) const CHECK_INTERVAL: Duration = Duration::from_millis(20);

    /// The time that remains when the run is to end at once. The senders have this time, and then the writer has it again.
    const REST: Nanos = SECOND / 2;

    pub(crate) fn new(shared: Arc<ControlState>, clock: RunClock) -> Self {
        Self { shared, clock, until: None }
    }

    /// True if there is time to wait.
    pub(crate) fn is_left(&mut self) -> bool {
        if self.shared.current_command() != RunCommand::Abort {
            return true;
        }
        let now = self.clock.now();
        now < *self.until.get_or_insert(now + Self::REST)
    }
}

/// A batch of records of one sender.
#[derive(Debug)]
pub(crate) struct RecordBatch {
    records: Vec<Record>,
    used: usize,
    bodies: usize,
    home: Sender<RecordBatch>,
}

/// The sender's end of the recording.
#[derive(Debug)]
pub(crate) struct Recorder {
    current: Option<RecordBatch>,
    full: Sender<RecordBatch>,
    empty: Receiver<RecordBatch>,
    on_slow_output: SlowOutputPolicy,
    patience: WriterTimeout,
    /// The time that this sender waited for the writer.
    pub(crate) output_blocked_time: Nanos,
    /// The number of records that were dropped.
    pub(crate) lost: u64,
}

impl Recorder {
    pub(crate) fn new(
        full: Sender<RecordBatch>,
        on_slow_output: SlowOutputPolicy,
        patience: WriterTimeout,
    ) -> Self {
        let (home, empty) = channel();
        for _ in 0..BATCHES {
            let records = std::iter::repeat_with(Record::default).take(BATCH).collect();
            // The other end is in this function.
            let _ = home.send(RecordBatch { records, used: 0, bodies: 0, home: home.clone() });
        }
        Self { current: None, full, empty, on_slow_output, patience, output_blocked_time: 0, lost: 0 }
    }

    /// Fills the next record.
    #[inline]
    pub(crate) fn record(&mut self, fill: impl FnOnce(&mut Record)) {
        if self.current.is_none() {
            self.current = self.batch();
        }
        let Some(batch) = &mut self.current else {
            self.lost += 1;
            return;
        };
        let record = &mut batch.records[batch.used];
        fill(record);
        batch.used += 1;
        batch.bodies += record.response_body.len();
        if batch.used == BATCH || batch.bodies >= BATCH_BODIES {
            self.flush();
        }
    }

    /// Hands over the records so far, so that a reader of the results need not wait for a full batch.
    pub(crate) fn flush(&mut self) {
        if let Some(batch) = self.current.take_if(|batch| batch.used > 0) {
            // The writer outlives the senders; if it is gone, so are the batches, and records are counted as lost.
            let _ = self.full.send(batch);
        }
    }

    fn batch(&mut self) -> Option<RecordBatch> {
        match self.empty.try_recv() {
            Ok(batch) => return Some(batch),
            Err(TryRecvError::Empty) if self.on_slow_output == SlowOutputPolicy::Wait => {}
            Err(_) => return None,
        }
        let clock = self.patience.clock;
        let since = clock.now();
        let batch = self.next_empty();
        self.output_blocked_time += clock.now() - since;
        batch
    }

    /// Returns the next batch that comes back, or `None` after the timeout.
    fn next_empty(&mut self) -> Option<RecordBatch> {
        while self.patience.is_left() {
            match self.empty.recv_timeout(WriterTimeout::CHECK_INTERVAL) {
                Err(RecvTimeoutError::Timeout) => {}
                batch => return batch.ok(),
            }
        }
        None
    }
}

/// The thread that writes records.
pub(crate) struct RecordWriter {
    pub(crate) batch_sender: Sender<RecordBatch>,
    pub(crate) on_slow_output: SlowOutputPolicy,
    /// The writer's result.
    pub(crate) result_receiver: Receiver<Result<u64, EncodeError>>,
}

impl RecordWriter {
    pub(crate) fn spawn(results: ResultsOutput, control: Control) -> io::Result<Self> {
        let ((batches, receiver), (sender, written)) = (channel(), channel());
        let on_slow_output = results.on_slow_output;
        std::thread::Builder::new().name("results".into()).spawn(move || {
            // The reader of the results has gone, so the run ends.
            let failed = || control.end_without_reader();
            // An error means that the run did not wait for the result.
            let _ = sender.send(write_all(&receiver, results.format, results.output, failed));
        })?;
        Ok(Self { batch_sender: batches, on_slow_output, result_receiver: written })
    }
}

/// Waits for the writer's result. If the run is to end at once, a blocked `write` cannot be cancelled, so the writer's thread is
/// left running.
pub(crate) fn await_writer(
    writer: &Receiver<Result<u64, EncodeError>>,
    mut patience: WriterTimeout,
) -> Result<u64, EncodeError> {
    while patience.is_left() {
        match writer.recv_timeout(WriterTimeout::CHECK_INTERVAL) {
            Ok(written) => return written,
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                return Err(io::Error::other("the results thread panicked").into());
            }
        }
    }
    Err(EncodeError::EndedWhileOutputBlocked)
}
/// Writes batches until the last sender is gone. A failed output is reported once, and later batches are dropped, so that no
/// sender waits.
fn write_all(
    batches: &Receiver<RecordBatch>,
    format: ResultFormat,
    output: Box<dyn Write + Send>,
    failed: impl FnOnce(),
) -> Result<u64, EncodeError> {
    let mut encoder = Encoder::new(format, io::BufWriter::with_capacity(LARGE, output));
    let mut failed = Some(failed);
    let mut outcome = Ok(0);
    while let Ok(batch) = next(batches, &mut encoder) {
        if let Ok(written) = &mut outcome {
            match write(&mut encoder, &batch) {
                Ok(()) => *written += batch.used as u64,
                Err(error) => {
                    outcome = Err(error);
                    failed.take().into_iter().for_each(|failed| failed());
                }
            }
        }
        give_back(batch);
    }
    encoder.flush()?;
    outcome
}

/// Returns the next batch; buffered bytes are flushed before waiting for it.
fn next(
    batches: &Receiver<RecordBatch>,
    encoder: &mut Encoder<impl Write>,
) -> Result<RecordBatch, TryRecvError> {
    match batches.try_recv() {
        Err(TryRecvError::Empty) => {
            // An error comes back with the next write.
            let _ = encoder.flush();
            batches.recv().map_err(|_| TryRecvError::Disconnected)
        }
        other => other,
    }
}

fn write(encoder: &mut Encoder<impl Write>, batch: &RecordBatch) -> Result<(), EncodeError> {
    batch.records[..batch.used].iter().try_for_each(|record| encoder.encode(record))
}

fn give_back(mut batch: RecordBatch) {
    for record in &mut batch.records[..batch.used] {
        record.clear();
        if record.response_body.capacity() > LARGE {
            record.response_body = Vec::new();
        }
    }
    (batch.used, batch.bodies) = (0, 0);
    let home = batch.home.clone();
    // An error means that the sender has ended.
    let _ = home.send(batch);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::RunStopReason;
    use crate::plan::LoadSpec;
    use crate::schedule::ArrivalModel;

    fn patience() -> WriterTimeout {
        let clock = RunClock::start();
        let load = LoadSpec::new(ArrivalModel::Closed, 1);
        WriterTimeout::new(Arc::new(ControlState::new(&load, Vec::new(), clock)), clock)
    }

    #[test]
    fn every_record_is_written_when_the_sender_waits() {
        let (full, batches) = channel();
        let mut recorder = Recorder::new(full, SlowOutputPolicy::Wait, patience());
        let writer = std::thread::spawn(move || {
            write_all(&batches, ResultFormat::Csv, Box::new(io::sink()), || ()).unwrap()
        });
        let more_than_memory_holds = (BATCH * BATCHES * 3 + 7) as u64;
        for seq in 0..more_than_memory_holds {
            recorder.record(|record| record.seq = seq);
        }
        recorder.flush();
        assert_eq!(recorder.lost, 0);
        drop(recorder);
        assert_eq!(writer.join().unwrap(), more_than_memory_holds);
    }

    #[test]
    fn records_beyond_the_bound_are_counted_when_nobody_writes() {
        let (full, _batches) = channel();
        let mut recorder = Recorder::new(full, SlowOutputPolicy::Drop, patience());
        let room = (BATCH * BATCHES) as u64;
        for seq in 0..room + 5 {
            recorder.record(|record| record.seq = seq);
        }
        assert_eq!(recorder.lost, 5);
    }

    #[test]
    fn a_run_that_is_to_end_at_once_does_not_wait_for_a_writer_that_stands_still() {
        let (full, _batches) = channel();
        let patience = patience();
        patience.shared.issue_command(RunCommand::Abort, RunStopReason::Commanded);
        let mut recorder = Recorder::new(full, SlowOutputPolicy::Wait, patience);
        let room = (BATCH * BATCHES) as u64;
        for seq in 0..room + 5 {
            recorder.record(|record| record.seq = seq);
        }
        assert_eq!(recorder.lost, 5);
    }

    #[test]
    fn a_broken_output_is_reported_once_and_senders_go_on() {
        struct Broken;
        impl Write for Broken {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(io::ErrorKind::BrokenPipe.into())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let (full, batches) = channel();
        let mut reported = false;
        let mut recorder = Recorder::new(full, SlowOutputPolicy::Wait, patience());
        let sender = std::thread::spawn(move || {
            for seq in 0..(BATCH * BATCHES * 2) as u64 {
                recorder.record(|record| record.seq = seq);
            }
        });
        let outcome = write_all(&batches, ResultFormat::Gob, Box::new(Broken), || reported = true);
        sender.join().unwrap();
        assert!(outcome.is_err() && reported);
    }
}
