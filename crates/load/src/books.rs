//! What one thread writes down of a trial's hits: figures, the tally for the error budget, and records if anybody wants them.
//!
//! The loop says what happened and when; what of it counts is decided here. At the end of each interval the figures go to
//! the collector, which hands an empty box back, so that no thread waits for another.

use std::sync::mpsc::{Receiver, Sender};

use crate::clock::{Nanos, RunClock};
use crate::fate::Fate;
use crate::fault::{Class, Fault};
use crate::flights::Flight;
use crate::outcomes::TARGETS;
use crate::record::{Carriage, Carrier, Record, Timestamp, Zone};
use crate::recorder::Recorder;
use crate::request::Request;
use crate::schedule::Hit;
use crate::stats::{Finished, Stats};
use crate::supply::Supply;

/// What counts, the same for all threads of a trial. Instants are the session's.
#[derive(Debug, Clone)]
pub(crate) struct Counting {
    /// When the trial began.
    pub(crate) begins: Nanos,
    /// Hits due before this are sent and not counted.
    pub(crate) warm_up: Nanos,
    /// When the schedule ends, as far as that is planned.
    pub(crate) end: Nanos,
    /// A closed loop has no lag.
    pub(crate) closed: bool,
    /// Outcomes are told apart by status, too.
    pub(crate) by_outcome: bool,
    /// Bytes of each body that a record says.
    pub(crate) max_body: usize,
    /// Answers of each outcome that are kept.
    pub(crate) evidence: usize,
    /// Each hit is handed over with the interval in which it ended.
    pub(crate) by_hit: bool,
    /// Records say what carried them.
    pub(crate) carriage: bool,
    /// Name of the attack in the records.
    pub(crate) name: String,
}

impl Counting {
    /// What became of a hit, in the time of the trial.
    fn fate(&self, finished: &Finished, own_lag: Nanos, retries: u32, carrier: Option<Carrier>) -> Fate {
        let since = |at: Nanos| at.saturating_sub(self.begins);
        Fate {
            target: finished.target,
            due: since(finished.due),
            sent: finished.sent.map(since),
            own_lag,
            end: since(finished.end),
            outcome: finished.outcome,
            bytes_in: finished.bytes_in,
            retries,
            carrier,
        }
    }

    fn carriage_of(&self, carrier: Option<Carrier>) -> Carriage {
        let told = carrier.map_or(Carriage::None, Carriage::By);
        if self.carriage { told } else { Carriage::Untold }
    }
}

/// What a thread hands to the collector.
#[derive(Debug)]
pub(crate) struct Harvest {
    pub(crate) shard: usize,
    pub(crate) stats: Box<Stats>,
    /// What was counted before this instant is in them, or was handed over earlier.
    pub(crate) to: Nanos,
    /// The thread has ended then.
    pub(crate) ended: bool,
}

/// The way to the collector and back.
#[derive(Debug)]
pub(crate) struct Collection {
    pub(crate) shard: usize,
    pub(crate) harvest: Sender<Harvest>,
    pub(crate) spare: Receiver<Box<Stats>>,
}

/// The books of one thread.
pub(crate) struct Books {
    /// Figures since they were last handed over.
    pub(crate) stats: Box<Stats>,
    counting: Counting,
    clock: RunClock,
    tally: Tally,
    lengths: Lengths,
    recorder: Option<Recorder>,
    collection: Collection,
}

/// Outcomes so far, and those that are not good.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Tally {
    pub(crate) done: u64,
    pub(crate) errors: u64,
}

impl Books {
    pub(crate) fn new(
        counting: Counting,
        clock: RunClock,
        recorder: Option<Recorder>,
        collection: Collection,
    ) -> Self {
        Self {
            stats: Stats::reserved(),
            counting,
            clock,
            tally: Tally::default(),
            lengths: Lengths::default(),
            recorder,
            collection,
        }
    }

    pub(crate) fn tally(&self) -> Tally {
        self.tally
    }

    /// The schedule is over, by then at the latest.
    pub(crate) fn schedule_ends(&mut self, at: Nanos) {
        self.counting.end = self.counting.end.min(at);
    }

    /// A hit is sent; there has been room since then, and with it so many are in flight. Returns its own lag: [`Fate::own_lag`].
    #[inline]
    pub(crate) fn launched(&mut self, hit: Hit, now: Nanos, room_since: Nanos, in_flight: usize) -> Nanos {
        if !self.counts(hit) {
            return 0;
        }
        self.stats.in_flight_peak = self.stats.in_flight_peak.max(in_flight as u64);
        if self.counting.closed || hit.due < room_since {
            return 0;
        }
        let own_lag = now.saturating_sub(hit.due);
        self.stats.own_lag.record(own_lag);
        own_lag
    }

    /// The warm-up is over when it is due.
    #[inline]
    fn counts(&self, hit: Hit) -> bool {
        hit.due >= self.counting.warm_up
    }

    /// The in-flight bound has been reached since then.
    pub(crate) fn was_busy(&mut self, since: Nanos, now: Nanos) {
        self.stats.busy += now.saturating_sub(since.max(self.counting.warm_up));
    }

    /// The transport has done something, and so many connections had been opened before.
    #[inline]
    pub(crate) fn travelled(&mut self, connections: u64, now: Nanos) {
        if now < self.counting.warm_up {
            self.stats.connections = connections;
        }
    }

    /// A hit is sent where a redirect leads.
    pub(crate) fn redirected(&mut self, hit: Hit) {
        self.stats.redirects += u64::from(self.counts(hit));
    }

    /// A hit is sent again.
    pub(crate) fn retried(&mut self, hit: Hit) {
        self.stats.retried += u64::from(self.counts(hit));
    }

    /// The clock is looked at that should have been looked at then, and each `every` since.
    pub(crate) fn looked_at_clock(&mut self, due: Nanos, now: Nanos, every: Nanos) {
        let all = (due..=now).step_by(usize::try_from(every).unwrap_or(usize::MAX));
        for due in all.filter(|&due| due >= self.counting.warm_up) {
            self.stats.clock_lag.record(now - due);
        }
    }

    /// The first byte of a flight's request leaves.
    #[inline]
    pub(crate) fn sent(&mut self, flight: &Flight, at: Nanos) {
        if self.counts(flight.hit) {
            self.stats.sent += 1;
            self.late(flight.hit, at);
        }
    }

    #[inline]
    fn late(&mut self, hit: Hit, at: Nanos) {
        if !self.counting.closed {
            self.stats.lag.record(at.saturating_sub(hit.due));
        }
    }

    /// The last byte of a flight's request was handed to the system.
    #[inline]
    pub(crate) fn written(&mut self, flight: &Flight, now: Nanos) {
        if self.counts(flight.hit) {
            self.stats.write.record(now.saturating_sub(flight.sent.unwrap_or(now)));
        }
    }

    /// A flight has ended.
    pub(crate) fn finished(
        &mut self,
        flight: &mut Flight,
        outcome: Result<u16, Fault>,
        end: Nanos,
        supply: &Supply,
    ) {
        if !self.counts(flight.hit) {
            return;
        }
        // As with vegeta, a result is about what was asked for, wherever the answer came from.
        let request = supply.request(flight.first.as_ref().unwrap_or(&flight.which));
        let finished = finished(flight, request, outcome, end);
        if finished.sent.is_none() {
            self.stats.unconnected += 1;
            self.late(flight.hit, end);
        }
        let other = outcome.is_ok() && self.lengths.is_other(flight.target, finished.bytes_in);
        self.stats.other_length += u64::from(other);
        self.count(&finished);
        if let Some(variant) = &request.origin.variant {
            self.stats.variants.count(&variant.name, &finished);
        }
        if self.counting.evidence > 0 {
            let at = end.saturating_sub(self.counting.begins);
            self.stats.evidence.keep(self.counting.evidence, outcome, at, &flight.answer);
        }
        if self.counting.by_hit {
            let (lag, retries) = (flight.own_lag, flight.retries);
            self.stats.fates.push(self.counting.fate(&finished, lag, retries, carrier(flight)));
        }
        if let Some(recorder) = &mut self.recorder {
            let carriage = self.counting.carriage_of(carrier(flight));
            let max_body = self.counting.max_body;
            let (seq, kept) = (flight.hit.seq, &mut flight.answer.kept);
            recorder.record(|record| {
                fill(record, &finished, seq, &self.clock, &self.counting.name);
                name_request(record, request);
                kept.move_into(record, outcome);
                record.body.truncate(max_body);
                record.carriage = carriage;
            });
        }
    }

    /// A hit has ended without a flight: counted and recorded, so that nothing goes missing in silence.
    pub(crate) fn never_sent(&mut self, hit: Hit, fault: Fault, now: Nanos, supply: &Supply) {
        if !self.counts(hit) {
            return;
        }
        let finished = Finished {
            target: supply.target(hit.seq),
            outcome: Err(fault),
            due: hit.due,
            sent: None,
            first_byte: None,
            end: now,
            bytes_in: 0,
            bytes_out: 0,
        };
        self.count(&finished);
        if let Some(variant) = supply.variant(hit.seq) {
            self.stats.variants.count(variant, &finished);
        }
        if self.counting.by_hit {
            self.stats.fates.push(self.counting.fate(&finished, 0, 0, None));
        }
        if let Some(recorder) = &mut self.recorder {
            let picked = supply.pick(hit.seq);
            let carriage = self.counting.carriage_of(None);
            recorder.record(|record| {
                fill(record, &finished, hit.seq, &self.clock, &self.counting.name);
                record.carriage = carriage;
                if let Some((which, _)) = &picked {
                    name_request(record, supply.request(which));
                }
                record.error.push_str(&fault.to_string());
            });
        }
    }

    #[inline]
    fn count(&mut self, finished: &Finished) {
        self.stats.finish(finished);
        self.tally.count(finished);
        if finished.end > self.counting.end {
            self.stats.finish_after(finished);
        }
        if self.counting.by_outcome {
            self.stats.outcomes.count(finished);
        }
    }

    /// Lets the records out that there are.
    pub(crate) fn flush(&mut self) {
        if let Some(recorder) = &mut self.recorder {
            recorder.flush();
        }
    }

    /// Figures go to the collector when it has an empty box to put in their place; otherwise they wait.
    pub(crate) fn hand_over(&mut self, to: Nanos, ended: bool) {
        if let Some(recorder) = &mut self.recorder {
            recorder.flush();
            self.stats.stalled += std::mem::take(&mut recorder.stalled);
            self.stats.unrecorded += std::mem::take(&mut recorder.lost);
        }
        let Collection { shard, harvest, spare } = &self.collection;
        let empty = if ended { Some(Box::default()) } else { spare.try_recv().ok() };
        if let Some(empty) = empty {
            let stats = std::mem::replace(&mut self.stats, empty);
            // The collector outlives the threads; without it nobody asks for figures.
            let _ = harvest.send(Harvest { shard: *shard, stats, to, ended });
        }
    }
}

impl Tally {
    #[inline]
    fn count(&mut self, finished: &Finished) {
        let good = finished.outcome.is_ok_and(|status| Class::of_status(status) == Class::Good);
        self.done += 1;
        self.errors += u64::from(!good);
    }
}

/// Body lengths by target, to notice answers that differ from the first.
#[derive(Debug, Default)]
struct Lengths(Vec<Option<u64>>);

impl Lengths {
    #[inline]
    fn is_other(&mut self, target: usize, length: u64) -> bool {
        if target >= TARGETS {
            return false;
        }
        if target >= self.0.len() {
            self.0.resize(target + 1, None);
        }
        *self.0[target].get_or_insert(length) != length
    }
}

fn finished(flight: &Flight, request: &Request, outcome: Result<u16, Fault>, end: Nanos) -> Finished {
    Finished {
        target: flight.target,
        outcome,
        due: flight.hit.due,
        sent: flight.sent,
        first_byte: flight.first_byte,
        end,
        bytes_in: flight.answer.bytes_in,
        bytes_out: request.body_length,
    }
}

/// What a record says whatever came back. The record comes empty.
fn fill(record: &mut Record, finished: &Finished, seq: u64, clock: &RunClock, name: &str) {
    record.attack.push_str(name);
    record.seq = seq;
    record.timestamp = Timestamp::from_unix_ns(clock.unix_ns(finished.due), Zone::Utc);
    record.latency_ns = i64::try_from(finished.end.saturating_sub(finished.due)).unwrap_or(i64::MAX);
    record.bytes_out = finished.bytes_out;
    record.bytes_in = finished.bytes_in;
}

/// What carried a flight in the end.
fn carrier(flight: &Flight) -> Option<Carrier> {
    let first_byte = flight.first_byte.zip(flight.sent).map(|(first, sent)| first.saturating_sub(sent));
    flight.carrier.map(|carrier| Carrier { first_byte, ..carrier })
}

fn name_request(record: &mut Record, request: &Request) {
    record.method.push_str(&request.method);
    record.url.push_str(&request.url);
}
