//! Adds up the figures that the threads of a run report, interval by interval.
//!
//! The threads report at the same instants, each when it gets there. The collector reports an interval when all threads have
//! reported. A thread that has no empty [`LoadStats`] at such an instant reports more at the next one: that interval is longer,
//! and its end says so.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::Duration;

use crate::clock::Nanos;
use crate::interval::IntervalStats;
use crate::request_accounting::SenderReport;
use crate::stats::LoadStats;

/// The result of waiting for an interval.
#[derive(Debug)]
pub enum NextIntervalResult<'r> {
    /// The next interval.
    Interval(&'r IntervalStats),
    /// No interval was complete within the given time.
    Timeout,
    /// The run has ended and all intervals were reported.
    Ended,
}

/// The collector of a run.
#[derive(Debug)]
pub(crate) struct Collector {
    harvest: Receiver<SenderReport>,
    threads: Vec<Thread>,
    /// CPU time that each thread has spent on busy polling, since the start.
    busy_poll: Vec<Nanos>,
    total: LoadStats,
    current: IntervalStats,
    /// True if `current` was reported and must be cleared.
    told: bool,
    /// True if nothing was added to `current` yet.
    untouched: bool,
}

/// The state of a thread.
#[derive(Debug)]
struct Thread {
    spare: Sender<Box<LoadStats>>,
    /// The end of the last interval that the thread has reported.
    to: Nanos,
    ended: bool,
    /// The maximum number of requests in flight, in the current interval (`peak`) and in all intervals (`highest`).
    peak: u64,
    highest: u64,
}

impl Collector {
    /// Makes a collector that sends each empty [`LoadStats`] back through `spares`, one sender per thread.
    pub(crate) fn new(
        harvest: Receiver<SenderReport>,
        spares: Vec<Sender<Box<LoadStats>>>,
        total: LoadStats,
    ) -> Self {
        let thread = |spare| Thread { spare, to: 0, ended: false, peak: 0, highest: 0 };
        let current = IntervalStats { from: 0, to: 0, stats: *LoadStats::preallocated() };
        let busy_poll = vec![0; spares.len()];
        let threads = spares.into_iter().map(thread).collect();
        Self { harvest, threads, busy_poll, total, current, told: false, untouched: true }
    }

    /// Waits for the next interval, at most `patience` for each thread.
    pub(crate) fn next(&mut self, patience: Duration) -> NextIntervalResult<'_> {
        self.begin();
        let to = loop {
            if self.threads.is_empty() {
                return NextIntervalResult::Ended;
            }
            match self.harvest.recv_timeout(patience) {
                Ok(harvest) => self.add_sender_report(harvest),
                Err(RecvTimeoutError::Timeout) => return NextIntervalResult::Timeout,
                // Threads have panicked; the figures of the others are reported.
                Err(RecvTimeoutError::Disconnected) => {
                    self.threads.iter_mut().for_each(|one| one.ended = true);
                }
            }
            if let Some(to) = self.complete() {
                break to;
            }
        };
        self.close_interval(to)
    }

    /// Takes the sum of all reported intervals and leaves an empty one.
    pub(crate) fn take_total(&mut self) -> LoadStats {
        std::mem::take(&mut self.total)
    }

    /// Returns the sum of the intervals that were reported so far.
    pub(crate) fn reported_total(&self) -> &LoadStats {
        &self.total
    }

    /// Returns the interval that [`Self::next`] reported last; after a timeout the value is incomplete.
    pub(crate) fn last_interval(&self) -> &IntervalStats {
        &self.current
    }

    /// Returns the CPU time that each thread had spent on busy polling at the end of the last interval.
    pub(crate) fn busy_poll_times(&self) -> &[Nanos] {
        &self.busy_poll
    }

    /// True if all intervals were reported.
    pub(crate) fn is_over(&self) -> bool {
        self.threads.is_empty()
    }

    /// Returns the time when the last thread ended.
    pub(crate) fn end_time(&self) -> Nanos {
        self.current.to
    }

    fn begin(&mut self) {
        if std::mem::take(&mut self.told) {
            self.current.from = self.current.to;
            self.current.stats.clear();
            self.threads.iter_mut().for_each(|thread| thread.peak = 0);
            self.untouched = true;
        }
    }

    /// Adds the report of a thread to the current interval. This work takes CPU time that the target may need, so the first
    /// report is swapped with the cleared figures instead of added to them.
    fn add_sender_report(
        &mut self,
        SenderReport { sender_index: sender, interval_stats: mut stats, interval_end: to, ended }: SenderReport,
    ) {
        let Some((thread, busy_poll)) = self.threads.get_mut(sender).zip(self.busy_poll.get_mut(sender))
        else {
            return;
        };
        thread.peak = thread.peak.max(stats.in_flight_peak);
        thread.highest = thread.highest.max(thread.peak);
        (thread.to, thread.ended) = (to, ended);
        *busy_poll += stats.busy_poll_time;
        if std::mem::take(&mut self.untouched) {
            std::mem::swap(&mut self.current.stats, &mut *stats);
        } else {
            self.current.stats.merge(&stats);
            self.current.stats.completed_requests.append(&mut stats.completed_requests);
            stats.clear();
        }
        // A thread that has ended needs no empty figures, so that an error does not matter.
        let _ = thread.spare.send(stats);
    }

    /// Returns the instant up to which all threads have reported, if it is the same instant.
    fn complete(&self) -> Option<Nanos> {
        let last = |threads: &mut dyn Iterator<Item = &Thread>| threads.map(|thread| thread.to).max();
        let ended = last(&mut self.threads.iter().filter(|thread| thread.ended)).unwrap_or(0);
        let Some(to) = last(&mut self.threads.iter().filter(|thread| !thread.ended)) else {
            return Some(ended);
        };
        let all = self.threads.iter().all(|thread| thread.ended || thread.to == to);
        // Figures that a thread counted just before it ended must not be reported with an earlier interval.
        (all && ended <= to).then_some(to)
    }

    fn close_interval(&mut self, to: Nanos) -> NextIntervalResult<'_> {
        self.current.to = to.max(self.current.from);
        self.current.stats.in_flight_peak = self.threads.iter().map(|thread| thread.peak).sum();
        self.total.merge(&self.current.stats);
        self.total.in_flight_peak = self.threads.iter().map(|thread| thread.highest).sum();
        self.told = true;
        if self.threads.iter().all(|thread| thread.ended) {
            self.threads.clear();
        }
        NextIntervalResult::Interval(&self.current)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;
    use crate::clock::SECOND;

    /// Returns a collector, and the sender for the reports of its threads.
    fn of(threads: usize) -> (Collector, Sender<SenderReport>) {
        let (sender, harvest) = channel();
        let spares = (0..threads).map(|_| channel().0).collect();
        (Collector::new(harvest, spares, LoadStats::default()), sender)
    }

    /// Returns the report of a thread at the end of a second, with this number of sent requests, which are all in flight.
    fn harvest(sender: usize, second: Nanos, sent: u64) -> SenderReport {
        let stats = LoadStats { sent, in_flight_peak: sent, ..LoadStats::default() };
        SenderReport {
            sender_index: sender,
            interval_stats: Box::new(stats),
            interval_end: second * SECOND,
            ended: false,
        }
    }

    /// Returns start, end and counts of each interval that can be reported now.
    fn told(collector: &mut Collector) -> Vec<(Nanos, Nanos, u64, u64)> {
        let mut told = Vec::new();
        while let NextIntervalResult::Interval(IntervalStats { from, to, stats }) =
            collector.next(Duration::ZERO)
        {
            told.push((from / SECOND, to / SECOND, stats.sent, stats.in_flight_peak));
        }
        told
    }

    #[test]
    fn an_interval_is_told_when_every_thread_has_handed_it_over() {
        let (mut collector, threads) = of(2);
        threads.send(harvest(0, 1, 5)).unwrap();
        assert_eq!(told(&mut collector), []);
        threads.send(harvest(1, 1, 7)).unwrap();
        assert_eq!(told(&mut collector), [(0, 1, 12, 12)]);
        [harvest(1, 2, 1), harvest(0, 2, 1)].into_iter().for_each(|harvest| threads.send(harvest).unwrap());
        assert_eq!(told(&mut collector), [(1, 2, 2, 2)]);
        assert_eq!((collector.reported_total().sent, collector.reported_total().in_flight_peak), (14, 12));
    }

    #[test]
    fn a_thread_that_could_not_hand_over_makes_a_longer_interval_and_not_a_wrong_one() {
        let (mut collector, threads) = of(2);
        [harvest(0, 1, 5), harvest(0, 2, 5)].into_iter().for_each(|harvest| threads.send(harvest).unwrap());
        assert_eq!(told(&mut collector), []);
        threads.send(harvest(1, 2, 9)).unwrap();
        assert_eq!(told(&mut collector), [(0, 2, 19, 14)]);
    }

    /// A thread that busy-polled most of the time excused another one that worked.
    #[test]
    fn what_threads_spun_away_is_told_of_each_until_the_end_of_the_interval() {
        let (mut collector, threads) = of(2);
        let spinning = |sender, second, busy_poll, ended| {
            let mut harvest = harvest(sender, second, 1);
            harvest.interval_stats.busy_poll_time = busy_poll;
            SenderReport { ended, ..harvest }
        };
        [spinning(0, 1, 8, false), spinning(1, 1, 0, false)]
            .into_iter()
            .for_each(|harvest| threads.send(harvest).unwrap());
        assert!(matches!(collector.next(Duration::ZERO), NextIntervalResult::Interval(_)));
        assert_eq!((collector.busy_poll_times(), collector.last_interval().to), (&[8, 0][..], SECOND));
        [spinning(0, 2, 7, true), spinning(1, 2, 1, true)]
            .into_iter()
            .for_each(|harvest| threads.send(harvest).unwrap());
        assert!(matches!(collector.next(Duration::ZERO), NextIntervalResult::Interval(_)));
        assert_eq!((collector.busy_poll_times(), collector.last_interval().to), (&[15, 1][..], 2 * SECOND));
        assert!(matches!(collector.next(Duration::ZERO), NextIntervalResult::Ended));
        assert_eq!(collector.busy_poll_times(), [15, 1], "and stays known");
    }

    #[test]
    fn what_a_thread_counted_before_it_ended_is_in_the_interval_in_which_it_did() {
        let (mut collector, threads) = of(2);
        threads.send(harvest(0, 1, 1)).unwrap();
        threads.send(SenderReport { interval_end: 2 * SECOND, ended: true, ..harvest(0, 2, 10) }).unwrap();
        threads.send(harvest(1, 1, 1)).unwrap();
        assert_eq!(told(&mut collector), [], "of the first second one thread's is mixed with its last");
        threads.send(SenderReport { ended: true, ..harvest(1, 3, 1) }).unwrap();
        assert_eq!(told(&mut collector), [(0, 3, 13, 11)]);
        assert!(matches!(collector.next(Duration::ZERO), NextIntervalResult::Ended));
        assert_eq!((collector.end_time(), collector.take_total().sent), (3 * SECOND, 13));
    }

    #[test]
    fn threads_that_are_gone_without_a_word_end_the_run() {
        let (mut collector, threads) = of(2);
        threads.send(harvest(0, 1, 5)).unwrap();
        drop(threads);
        assert_eq!(told(&mut collector), [(0, 1, 5, 5)]);
        assert!(matches!(collector.next(Duration::ZERO), NextIntervalResult::Ended));
    }
}
