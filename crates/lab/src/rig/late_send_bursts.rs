//! Finds requests that this machine sent late and at once, and the errors in and right after these bursts. This type is pure and
//! uses the time of the trial.
//!
//! A thread that got no CPU for a while sends all requests that came due meanwhile in one burst. A small token bucket or a cap
//! refuses some of them, although it would have served them one by one. These errors are caused by this machine. They count
//! neither as errors nor as ended requests. Bursts of the arrival process are due together and not late, so they belong to the
//! load.
//!
//! The exclusion must not make a trial better than it was. If requests that were sent in time fail as often, the target fails by
//! itself. If too many requests are excluded, the trial is invalid.

use seawall_load::clock::{Nanos, SECOND};
use seawall_load::completed_request::CompletedRequest;
use seawall_load::request_failure_reason::RequestFault;

use super::validity::MIN_LAG_LIMIT;

/// The additional requests that come due during a lag that makes a burst. A bucket with room for one request refuses the second.
const MORE: f64 = 1.0;
/// The share of ended requests above which the exclusion changes the load too much.
const MUCH: f64 = 0.1;
/// The ratio of failure shares from which late bursts do not explain the failures of requests that were sent in time.
const ALIKE: f64 = 0.5;

/// The late bursts of this machine, and the outcomes of the requests around them.
#[derive(Debug)]
pub(super) struct LateSendBursts {
    /// The least lag that makes a burst.
    least: Nanos,
    /// The spans of the bursts, in order and without overlaps. A span begins with the first request of the burst and lasts as
    /// long as that request was late.
    spans: Vec<(Nanos, Nanos)>,
    tally: LateBurstErrorTally,
}

/// The ended requests near bursts and apart from them, and the number of them without a good response.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct LateBurstErrorTally {
    beside: EndCounts,
    apart: EndCounts,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct EndCounts {
    all: u64,
    errors: u64,
}

impl LateSendBursts {
    /// Creates a detector for a load of this many requests per second.
    pub(super) fn new(rate: f64) -> Self {
        let least = (MORE * SECOND as f64 / rate.max(f64::MIN_POSITIVE)) as Nanos;
        let usual = MIN_LAG_LIMIT.as_nanos() as Nanos;
        Self { least: least.max(usual), spans: Vec::new(), tally: LateBurstErrorTally::default() }
    }

    /// Records the lags of requests. The caller records all requests of a report before it judges any of them, because any
    /// request of a burst can reveal it.
    pub(super) fn record(&mut self, fates: &[CompletedRequest]) {
        let late = fates.iter().filter(|fate| fate.generator_lag >= self.least);
        let spans: Vec<_> =
            late.map(|fate| (fate.launch_time(), fate.launch_time() + fate.generator_lag)).collect();
        spans.into_iter().for_each(|span| self.enter(span));
    }

    /// Adds a span and merges it with all spans that it touches.
    fn enter(&mut self, (from, to): (Nanos, Nanos)) {
        let begin = self.spans.partition_point(|span| span.1 < from);
        let end = self.spans.partition_point(|span| span.0 <= to);
        let touched = &self.spans[begin..end];
        let from = touched.first().map_or(from, |first| first.0.min(from));
        let to = touched.last().map_or(to, |last| last.1.max(to));
        self.spans.splice(begin..end, [(from, to)]);
    }

    /// Returns true if an ended request is excluded, because it failed and was sent in a late burst or right after one. The
    /// method counts the request unless it never left this machine.
    pub(super) fn excludes(&mut self, fate: &CompletedRequest) -> bool {
        if matches!(fate.outcome, Err(RequestFault::Local(_) | RequestFault::SourceAddress(..))) {
            return false;
        }
        let (is_beside, failed) = (self.has(fate.sent_at.unwrap_or(fate.launch_time())), !fate.is_good());
        let ends = if is_beside { &mut self.tally.beside } else { &mut self.tally.apart };
        ends.all += 1;
        ends.errors += u64::from(failed);
        is_beside && failed
    }

    fn has(&self, at: Nanos) -> bool {
        let next = self.spans.partition_point(|span| span.0 <= at);
        next.checked_sub(1).is_some_and(|last| at <= self.spans[last].1)
    }

    /// Returns the outcomes so far.
    pub(super) fn tally(&self) -> LateBurstErrorTally {
        self.tally
    }
}

impl EndCounts {
    fn share(self) -> f64 {
        if self.all > 0 { self.errors as f64 / self.all as f64 } else { 0.0 }
    }
}

impl LateBurstErrorTally {
    /// Returns the reason, in words, why a load is invalid although some errors were left out. `fails` means that the remaining
    /// errors make it bad.
    pub(super) fn invalid_reason(self, fails: bool) -> Option<String> {
        let Self { beside, apart } = self;
        let is_most = beside.errors > apart.errors && apart.share() < ALIKE * beside.share();
        let all = beside.all + apart.all;
        let is_much = beside.errors as f64 > MUCH * all as f64;
        (is_most && (is_much || fails)).then(|| {
            let errors = beside.errors + apart.errors;
            format!(
                "{} of the {errors} errors among {all} requests came during or right after a burst of requests that this machine sent late",
                beside.errors
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Nanos = SECOND / 1000;

    fn fate(due: Nanos, generator_lag: Nanos, status: u16) -> CompletedRequest {
        let sent = due + generator_lag;
        CompletedRequest {
            target_index: 0,
            due,
            sent_at: Some(sent),
            generator_lag,
            end: sent + MS,
            outcome: Ok(status),
            response_body_bytes: 0,
            retries: 0,
            connection_timings: None,
        }
    }

    /// Returns for each of these requests whether it is excluded, at a hundred requests per second.
    fn excused(fates: &[CompletedRequest]) -> Vec<bool> {
        let mut bunches = LateSendBursts::new(100.0);
        bunches.record(fates);
        fates.iter().map(|fate| bunches.excludes(fate)).collect()
    }

    #[test]
    fn errors_of_a_bunch_and_right_after_it_are_left_out_and_no_others() {
        // The thread got no CPU from 100 to 140 ms. Requests are due every 10 ms and leave at 140 ms.
        let late = [100, 110, 120, 130, 140].map(|due| fate(due * MS, (140 - due) * MS, 429));
        assert_eq!(excused(&late), [true; 5], "the last of it was not late");
        let after = [fate(100 * MS, 40 * MS, 200), fate(180 * MS, 0, 429), fate(181 * MS, 0, 429)];
        assert_eq!(excused(&after), [false, true, false], "as long after it as it was late");
        assert_eq!(excused(&[fate(100 * MS, 40 * MS, 200), fate(139 * MS, 0, 429)]), [false, false]);
    }

    #[test]
    fn a_lag_in_which_nothing_else_came_due_makes_no_bunch() {
        assert_eq!(excused(&[fate(100 * MS, 9 * MS, 429)]), [false]);
        assert_eq!(excused(&[fate(100 * MS, 10 * MS, 429)]), [true]);
        let mut fast = LateSendBursts::new(100_000.0);
        fast.record(&[fate(0, MS - 1, 429)]);
        assert!(fast.spans.is_empty(), "a lag that is usual");
    }

    #[test]
    fn what_is_due_at_once_by_chance_is_the_load() {
        assert_eq!(excused(&[fate(MS, 0, 429), fate(MS, MS / 10, 429), fate(MS, MS / 5, 429)]), [false; 3]);
    }

    #[test]
    fn what_waited_for_a_connection_counts_when_it_was_sent() {
        let waited = CompletedRequest { sent_at: Some(150 * MS), ..fate(50 * MS, 0, 429) };
        let refused = CompletedRequest { sent_at: None, ..fate(120 * MS, 20 * MS, 429) };
        assert_eq!(excused(&[fate(100 * MS, 40 * MS, 200), waited, refused]), [false, true, true]);
    }

    #[test]
    fn what_found_no_port_is_no_matter_of_bunches() {
        let lacking = RequestFault::Local(std::io::ErrorKind::AddrNotAvailable);
        let late = CompletedRequest { sent_at: None, outcome: Err(lacking), ..fate(0, 50 * MS, 200) };
        let mut bunches = LateSendBursts::new(100.0);
        bunches.record(&[late]);
        assert!(!bunches.excludes(&late) && bunches.tally() == LateBurstErrorTally::default());
    }

    #[test]
    fn bunches_that_touch_are_one_in_whatever_order_they_are_told() {
        let mut bunches = LateSendBursts::new(100.0);
        for (from, to) in [(50, 60), (10, 20), (30, 40), (15, 32), (70, 80)] {
            bunches.enter((from, to));
        }
        assert_eq!(bunches.spans, [(10, 40), (50, 60), (70, 80)]);
        let has: Vec<_> = [9, 10, 40, 41, 55, 81].map(|at| bunches.has(at)).into();
        assert_eq!(has, [false, true, true, false, true, false]);
    }

    fn tally(beside: (u64, u64), apart: (u64, u64)) -> LateBurstErrorTally {
        let ends = |(all, errors)| EndCounts { all, errors };
        LateBurstErrorTally { beside: ends(beside), apart: ends(apart) }
    }

    #[test]
    fn a_load_is_not_believed_where_most_errors_were_left_out_and_what_is_left_would_be_another() {
        let doubt = |beside, apart, fails| tally(beside, apart).invalid_reason(fails).is_some();
        assert!(!doubt((20, 12), (1000, 0), false), "few, and without them it held");
        assert!(doubt((20, 12), (1000, 8), true), "those that are left may be their echo");
        assert!(doubt((300, 120), (700, 5), false), "more than a tenth");
        let said = tally((300, 120), (700, 5)).invalid_reason(false);
        assert!(said.is_some_and(|said| said.starts_with("120 of the 125 errors among 1000 requests")));
    }

    #[test]
    fn a_target_that_fails_without_bunches_as_well_is_believed_however_late_this_machine_was() {
        let doubt = |beside, apart| tally(beside, apart).invalid_reason(true).is_some();
        assert!(!doubt((40, 30), (960, 300)), "an overload");
        assert!(!doubt((900, 400), (100, 40)), "most was sent late, and what was not fails alike");
        assert!(!doubt((0, 0), (100, 40)) && !doubt((0, 0), (0, 0)));
    }
}
