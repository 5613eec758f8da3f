//! Sorts requests into time buckets by variant, and judges whether this machine was the limit. These functions are pure.

use seawall_isolate::cell::{CellStats, CellStatsByVariant, SendLateness};
use seawall_load::clock::{Nanos, SECOND};
use seawall_load::completed_request::CompletedRequest;
use seawall_load::request_failure_reason::RequestFault;
use seawall_load::stats::LatencyHistogram;
use serde::{Deserialize, Serialize};

use super::failure_counts::RequestCounts;

/// The share of the median time from which the 90th percentile of the send lag counts as a delay of this machine, if it also
/// exceeds [`LEAST_LAG`]. Response times count from the send, so a small lag does not change them, and a lag of all variants
/// alike is noise.
const LAG: f64 = 0.25;
/// The least lag in seconds that counts as late.
const LEAST_LAG: f64 = 1e-3;
/// The lag above which the load differs from the intended one, even if all variants are as late: in seconds, and as a multiple of
/// the median time. Both must be exceeded.
const FAR: (f64, f64) = (20e-3, 10.0);
/// The share of requests without a port or descriptor above which this machine is the limit.
const LACK: f64 = 0.01;

/// The requests of one variant in one time bucket.
#[derive(Debug, Clone, Default)]
pub(super) struct CellSamples {
    /// The seconds that each answered or timed-out request took.
    times: Vec<f64>,
    /// The seconds by which this machine sent each request late.
    lags: Vec<f64>,
    requests: usize,
    failed: usize,
    lacking: usize,
}

impl CellSamples {
    /// Adds an ended request. An aborted or timed-out request took at least the time that was waited for it. A timeout also
    /// counts as a failure.
    pub(super) fn add(&mut self, fate: &CompletedRequest) {
        self.requests += 1;
        self.lags.push(seconds(fate.generator_lag));
        let waited = matches!(fate.outcome, Err(RequestFault::Timeout | RequestFault::Aborted));
        if fate.is_good() || waited {
            self.times.push(seconds(time(fate)));
        }
        self.failed += usize::from(!fate.is_good() && fate.outcome != Err(RequestFault::Aborted));
        self.lacking += usize::from(matches!(
            fate.outcome,
            Err(RequestFault::Local(_) | RequestFault::SourceAddress(..))
        ));
    }

    pub(super) fn requests(&self) -> usize {
        self.requests
    }

    /// Returns the lateness of this machine, and true if this machine was the limit.
    fn lateness(&self) -> (SendLateness, bool) {
        let quantile = |values: &[f64], share: f64| {
            let mut sorted = values.to_vec();
            sorted.sort_unstable_by(f64::total_cmp);
            sorted.get((sorted.len() as f64 * share) as usize).copied().unwrap_or(0.0)
        };
        let (middle, lag) = (quantile(&self.times, 0.5), quantile(&self.lags, 0.9));
        let is_late = lag > LEAST_LAG.max(LAG * middle);
        let limited = lag > FAR.0.max(FAR.1 * middle) || self.lacking as f64 > LACK * self.requests as f64;
        (SendLateness { p90_lag_seconds: lag, is_late }, limited)
    }

    /// Returns the statistics; none without requests.
    pub(super) fn into_stats(self, limited: bool) -> Option<CellStats> {
        let (lateness, own) = self.lateness();
        let stats = |times| CellStats::from_response_times(times, self.requests, self.failed, limited || own);
        (self.requests > 0).then(|| stats(self.times).with_lateness(lateness))
    }

    /// Returns the share to be merged with those of other generators; none without requests.
    pub(super) fn to_cell_share(&self, limited: bool) -> Option<CellShare> {
        let mut times = LatencyHistogram::default();
        self.times.iter().for_each(|time| times.record((time * SECOND as f64) as Nanos));
        let (SendLateness { p90_lag_seconds: lag, is_late }, own) = self.lateness();
        let (requests, failed, limited) = (self.requests, self.failed, limited || own);
        let times = CompactTimes::from_histogram(&times);
        (requests > 0).then_some(CellShare { requests, failed, limited, lag, is_late, times })
    }
}

/// Times to a thousandth, in nanoseconds, with their counts. A full histogram would take a hundred times as much memory.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CompactTimes(Vec<(Nanos, u64)>);

impl CompactTimes {
    /// Returns the times of a histogram.
    #[must_use]
    pub fn from_histogram(times: &LatencyHistogram) -> Self {
        Self(times.distribution().buckets().collect())
    }

    /// Returns each time as often as it occurs.
    pub fn each(&self) -> impl Iterator<Item = Nanos> {
        let often = |count| usize::try_from(count).unwrap_or(usize::MAX);
        self.0.iter().flat_map(move |&(time, count)| std::iter::repeat_n(time, often(count)))
    }
}

/// The part of a time bucket that one of several generators sent.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CellShare {
    /// The requests that were due here, including failed ones.
    pub requests: usize,
    /// The requests without a good response.
    pub failed: usize,
    /// True if this generator was the limit.
    pub limited: bool,
    /// The 90th percentile of the send lag, in seconds.
    pub lag: f64,
    /// True if this lag exceeds the limit of one time bucket.
    pub is_late: bool,
    /// The times of answered and timed-out requests.
    pub times: CompactTimes,
}

impl CellShare {
    /// Returns the lateness of the requests.
    #[must_use]
    pub fn lateness(&self) -> SendLateness {
        SendLateness { p90_lag_seconds: self.lag, is_late: self.is_late }
    }

    /// Merges the shares of several generators into the statistics of one time bucket; none without requests.
    #[must_use]
    pub fn merge_into_stats(shares: &[&Self], limited: bool) -> Option<CellStats> {
        let sum = |of: fn(&Self) -> usize| shares.iter().map(|share| of(share)).sum::<usize>();
        let (requests, failed) = (sum(|share| share.requests), sum(|share| share.failed));
        let times = shares.iter().flat_map(|share| share.times.each().map(seconds));
        let latest = shares.iter().max_by(|one, other| one.lag.total_cmp(&other.lag));
        let lateness = latest.map_or_else(SendLateness::default, |share| share.lateness());
        let stats =
            |times| CellStats::from_response_times(times, requests, failed, limited).with_lateness(lateness);
        (requests > 0).then(|| stats(times.collect()))
    }
}

/// Returns the time from when this machine was ready to send the request to its end.
fn time(fate: &CompletedRequest) -> Nanos {
    fate.end.saturating_sub(fate.launch_time())
}

fn seconds(nanos: Nanos) -> f64 {
    nanos as f64 / SECOND as f64
}

/// The time buckets of one load, one after the other.
#[derive(Debug)]
pub(super) struct CellCollector {
    /// The settling time. Requests that are due before its end do not count.
    settle: Nanos,
    each: Nanos,
    hits: Vec<Vec<CellSamples>>,
    times: Vec<LatencyHistogram>,
    counts: Vec<RequestCounts>,
}

impl CellCollector {
    /// Creates this many empty time buckets for this many variants.
    pub(super) fn new(settle: Nanos, each: Nanos, cells: usize, variants: usize) -> Self {
        let hits = vec![vec![CellSamples::default(); variants]; cells];
        let times = vec![LatencyHistogram::default(); variants];
        Self { settle, each: each.max(1), hits, times, counts: vec![RequestCounts::default(); variants] }
    }

    /// Adds a request of a variant.
    pub(super) fn add(&mut self, fate: &CompletedRequest, variant: usize) {
        let Some(since) = fate.due.checked_sub(self.settle) else { return };
        let cell = usize::try_from(since / self.each).unwrap_or(usize::MAX);
        let Some(hits) = self.hits.get_mut(cell).and_then(|cell| cell.get_mut(variant)) else { return };
        hits.add(fate);
        if fate.is_good() {
            self.times[variant].record(time(fate));
        }
        self.counts[variant].add(fate);
    }

    /// Returns the outcomes of the requests of each variant.
    pub(super) fn counts(&self) -> Vec<RequestCounts> {
        self.counts.clone()
    }

    /// Returns the start of a time bucket and the start of the next time bucket.
    fn window(&self, cell: usize) -> [Nanos; 2] {
        [cell, cell + 1].map(|cell| self.settle.saturating_add(self.each.saturating_mul(cell as u64)))
    }

    /// Returns the time buckets whose due requests have all ended, and the times of all good responses.
    pub(super) fn into_complete(
        self,
        due_before: impl Fn(Nanos) -> u64,
    ) -> (Vec<Vec<CellSamples>>, Vec<LatencyHistogram>) {
        let is_complete = |(at, cell): &(usize, &Vec<CellSamples>)| {
            let [from, to] = self.window(*at).map(&due_before);
            cell.iter().map(CellSamples::requests).sum::<usize>() as u64 >= to - from
        };
        let complete = self.hits.iter().enumerate().take_while(is_complete).count();
        let Self { mut hits, times, .. } = self;
        hits.truncate(complete);
        (hits, times)
    }
}

/// Returns the statistics of each time bucket. `limited` says that this machine was the limit of all of them.
pub(super) fn cell_stats(cells: Vec<Vec<CellSamples>>, limited: bool) -> Vec<CellStatsByVariant> {
    let slots = |cell: Vec<CellSamples>| cell.into_iter().map(|hits| hits.into_stats(limited)).collect();
    cells.into_iter().map(slots).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Nanos = SECOND / 1000;

    fn fate(due: Nanos, took: Nanos, outcome: Result<u16, RequestFault>) -> CompletedRequest {
        let (sent, end) = (Some(due), due + took);
        CompletedRequest {
            target_index: 0,
            due,
            sent_at: sent,
            generator_lag: 0,
            end,
            outcome,
            response_body_bytes: 0,
            retries: 0,
            connection_timings: None,
        }
    }

    fn slot(fates: impl IntoIterator<Item = CompletedRequest>) -> CellStats {
        let mut hits = CellSamples::default();
        fates.into_iter().for_each(|fate| hits.add(&fate));
        hits.into_stats(false).unwrap()
    }

    #[test]
    fn times_count_from_when_this_machine_came_to_send() {
        let late = |at: u64| CompletedRequest { generator_lag: 2 * MS, ..fate(at * MS, 12 * MS, Ok(200)) };
        let slot = slot((0..20).map(late));
        assert!(
            (slot.interquartile_geometric_mean.unwrap() - 0.010).abs() < 1e-9 && !slot.is_generator_limited,
            "{slot:?}"
        );
    }

    #[test]
    fn what_was_not_answered_in_time_is_as_late_as_was_waited_and_what_failed_at_once_has_no_time() {
        let slow = (0..10).map(|at| fate(at, 900 * MS, Err(RequestFault::Aborted)));
        let hung = (0..10).map(|at| fate(at, 900 * MS, Err(RequestFault::Timeout)));
        let bad = (0..5).map(|at| fate(at, MS, Ok(503)));
        let slot = slot(slow.chain(hung).chain(bad));
        assert_eq!((slot.requests, slot.failed), (25, 15));
        assert!((slot.interquartile_geometric_mean.unwrap() - 0.9).abs() < 1e-9);
    }

    #[test]
    fn a_machine_that_sends_late_or_has_no_ports_was_the_limit() {
        let sent = |lag: Nanos| {
            move |at: u64| CompletedRequest { generator_lag: lag, ..fate(at, 8 * MS + lag, Ok(200)) }
        };
        let differs = |lag, other| {
            let of = |lag| slot((0..50).map(sent(lag))).lateness;
            of(lag).differs(&of(other))
        };
        assert!(!differs(MS, 0));
        assert!(differs(3 * MS, MS) && differs(0, 3 * MS), "more than a quarter of 8 ms");
        assert!(!differs(15 * MS, 8 * MS), "as late for one as for the other");
        assert!(!slot((0..50).map(sent(79 * MS))).is_generator_limited);
        assert!(
            slot((0..50).map(sent(81 * MS))).is_generator_limited,
            "more than ten times 8 ms, whatever the other was"
        );
        let lack = || fate(0, 0, Err(RequestFault::Local(std::io::ErrorKind::AddrNotAvailable)));
        assert!(slot((0..50).map(sent(0)).chain([lack()])).is_generator_limited);
        assert!(!slot((0..200).map(sent(0)).chain([lack()])).is_generator_limited);
    }

    #[test]
    fn a_slot_of_shares_is_that_of_all_their_hits_to_a_thousandth() {
        let hit = |at: u64| {
            fate(at * MS, (10 + at * at % 17) * MS, if at.is_multiple_of(9) { Ok(503) } else { Ok(200) })
        };
        let mut shares = vec![CellSamples::default(); 3];
        (0..600).for_each(|at| shares[at as usize % 3].add(&hit(at)));
        let shares: Vec<_> = shares.iter().filter_map(|hits| hits.to_cell_share(false)).collect();
        let (joined, whole) = (
            CellShare::merge_into_stats(&shares.iter().collect::<Vec<_>>(), false).unwrap(),
            slot((0..600).map(hit)),
        );
        assert_eq!(
            (joined.requests, joined.failed, joined.is_generator_limited),
            (whole.requests, whole.failed, false)
        );
        let near = |one: Option<f64>, other: Option<f64>| (one.unwrap() / other.unwrap() - 1.0).abs() < 2e-3;
        assert!(
            near(joined.interquartile_geometric_mean, whole.interquartile_geometric_mean)
                && near(joined.tail, whole.tail),
            "{joined:?} {whole:?}"
        );
        assert_eq!(CellShare::merge_into_stats(&[], false), None);
    }

    #[test]
    fn a_cell_counts_when_all_of_it_has_ended_and_what_settles_does_not() {
        let mut cells = CellCollector::new(2 * MS, 10 * MS, 3, 2);
        // One request is due in each of 30 milliseconds.
        (0..30).for_each(|at| cells.add(&fate(at * MS, MS, Ok(200)), at as usize % 2));
        let (complete, times) = cells.into_complete(|at| at.div_ceil(MS));
        let told = cell_stats(complete, false);
        assert_eq!(told.len(), 2, "the third lacks two");
        assert_eq!(times.iter().map(LatencyHistogram::count).sum::<u64>(), 28);
        assert!(told.iter().flatten().all(|slot| slot.unwrap().requests == 5));
    }
}
