//! Counts the blocks of a trial from the send time of each request, for trials that this machine sent late. These functions are
//! pure.
//!
//! [`super::blocks`] counts a request from its due time, so the delay of this machine looks like a delay of the target. If this
//! machine runs other programs, too, it is late at good and at bad rates alike, and no trial would ever count. Blocks by send
//! time have the load that the target really got, and its own responses to that load.
//!
//! They replace the others if the verdict does not depend on the delay. If each request reaches a queue at most a time L late,
//! the queue changes by at most the requests of that time. A good trial must stay good, and a bad trial must stay bad, even if
//! all of them are added at its beginning or removed at its end.

use std::time::Duration;

use seawall_load::clock::{Nanos, SECOND};
use seawall_load::completed_request::CompletedRequest;
use seawall_load::request_failure_reason::RequestFault;
use seawall_search::evidence::TrialEvidence;
use seawall_search::observation::{BlockCounts, sum};
use seawall_search::trial_spec::{StopRule, TrialSpec};
use seawall_search::trial_verdict::{TrialCriteria, TrialVerdict};

use super::blocks::{block_index, count_ended, entry_mut, late_bound_nanos};

/// The requests by the blocks in which this machine sent them.
#[derive(Debug, Default)]
pub(super) struct BlocksBySendTime {
    /// The time after the send above which responses are late; none if no response is late.
    bound: Option<Nanos>,
    blocks: Vec<BlockCounts>,
    /// The excluded requests, by the block in which they ended.
    excused: Vec<u32>,
    max_lag: Nanos,
    /// True if this machine dropped requests without sending them.
    has_given_up: bool,
}

impl BlocksBySendTime {
    pub(super) fn new(bound: Option<Duration>) -> Self {
        Self { bound: late_bound_nanos(bound), ..Self::default() }
    }

    /// Records an ended request. `is_excused` is true if its failure is excluded because this machine sent it in a late burst.
    pub(super) fn record(&mut self, fate: &CompletedRequest, is_excused: bool) {
        let given_up = matches!(fate.outcome, Err(RequestFault::Dropped | RequestFault::DeadlineBeforeSend));
        self.has_given_up |= given_up;
        self.max_lag = self.max_lag.max(fate.generator_lag);
        let launched = fate.launch_time();
        let from_send = CompletedRequest { due: launched, ..*fate };
        entry_mut(&mut self.blocks, block_index(launched)).sent += 1;
        let passes = self.bound.map(|bound| launched.saturating_add(bound));
        let in_time = passes.is_none_or(|passes| fate.end <= passes);
        if is_excused {
            *entry_mut(&mut self.excused, block_index(fate.end)) += 1;
        } else {
            count_ended(entry_mut(&mut self.blocks, block_index(fate.end)), &from_send, in_time);
        }
        if let Some(passes) = passes.filter(|_| !in_time) {
            entry_mut(&mut self.blocks, block_index(passes)).late += 1;
        }
    }

    /// Returns the first blocks of the trial, if the verdict on it does not depend on the delay. All requests must have ended.
    /// `due` are the same blocks by due time.
    pub(super) fn blocks_if_same_verdict(
        self,
        offer: &TrialSpec,
        due: &[BlockCounts],
    ) -> Option<Vec<BlockCounts>> {
        let (StopRule::FullDurationUnlessBad(criteria) | StopRule::Decided(criteria)) = offer.rule else {
            return None;
        };
        // This many requests are due during the largest lag.
        let delayed = offer.rate * self.max_lag as f64 / SECOND as f64;
        let has_given_up = self.has_given_up;
        let blocks = self.into_blocks(due.len());
        let missing = sum(due, |block| block.sent) - sum(&blocks, |block| block.sent);
        let of = |blocks: &[BlockCounts]| TrialEvidence::of(offer.rate, blocks, &criteria);
        let (by_due, by_send) = (of(due), of(&blocks));
        let verdict = criteria.judge(&by_due);
        let is_same = verdict == criteria.judge(&by_send);
        let is_sure = holds_without_delay(&criteria, &by_due, verdict, delayed);
        (!has_given_up && missing <= delayed + 1.0 && is_same && is_sure).then_some(blocks)
    }

    fn into_blocks(mut self, count: usize) -> Vec<BlockCounts> {
        self.blocks.resize(count, BlockCounts::default());
        let mut in_flight: i64 = 0;
        for (at, block) in self.blocks.iter_mut().enumerate() {
            let excused = self.excused.get(at).copied().unwrap_or(0);
            in_flight += i64::from(block.sent) - i64::from(block.ended_count()) - i64::from(excused);
            block.in_flight = u32::try_from(in_flight.max(0)).unwrap_or(u32::MAX);
        }
        self.blocks
    }
}

/// Returns whether a verdict stays the same whatever effect the delay of this many requests had on the queue.
fn holds_without_delay(
    criteria: &TrialCriteria,
    evidence: &TrialEvidence,
    verdict: TrialVerdict,
    delayed: f64,
) -> bool {
    let judged = |from: f64, to: f64, slope: f64| {
        criteria.judge(&TrialEvidence {
            in_flight_settled: from,
            in_flight_end: to,
            in_flight_slope: slope,
            ..evidence.clone()
        }) == verdict
    };
    let TrialEvidence { in_flight_settled: from, in_flight_end: to, in_flight_slope: slope, .. } = *evidence;
    match verdict {
        TrialVerdict::Good => judged((from - delayed).max(0.0), to, slope),
        // The trial is bad by failures alone, or by a queue.
        TrialVerdict::Bad => judged(from, from, 0.0) || judged(from, (to - delayed).max(from), slope),
        TrialVerdict::Undecided | TrialVerdict::Invalid => false,
    }
}

#[cfg(test)]
mod tests {
    use seawall_search::goal::{LatencyGoal, SearchGoal};
    use seawall_search::observation::BLOCKS_PER_SECOND;
    use seawall_search::trial_spec::TrialPurpose;

    use super::super::blocks::tests::ended_request;
    use super::*;

    const MS: Nanos = SECOND / 1000;

    fn offer(rate: f64, late: Option<LatencyGoal>) -> TrialSpec {
        let goal = SearchGoal { max_error_share: 0.001, latency_goal: late };
        let criteria = TrialCriteria {
            goal,
            growth_tolerance: 0.25,
            settle: 0.3,
            min_settled_seconds_for_good: 1.0,
            service_time: 0.01,
            baseline_slowest: 0.01,
        };
        let time = Duration::from_secs(4);
        let rule = StopRule::Decided(criteria);
        let purpose = TrialPurpose::NarrowBracket;
        TrialSpec {
            purpose,
            rate,
            min_duration: time,
            max_duration: time,
            rule,
            in_flight_cap: 1e6,
            drain: Duration::from_millis(600),
        }
    }

    /// Returns four seconds at 100 requests/s for one worker with this service time. In each second, this machine stops once for
    /// this long and then sends the requests that came due meanwhile.
    fn requests(service: Nanos, stops: Nanos, status: impl Fn(u64) -> u16) -> Vec<CompletedRequest> {
        let mut free = 0;
        let request = |seq: u64| {
            let due = seq * 10 * MS;
            let into = (due % SECOND).checked_sub(500 * MS).filter(|into| *into < stops);
            let generator_lag = into.map_or(0, |into| stops - into);
            let sent = due + generator_lag;
            free = free.max(sent) + service;
            CompletedRequest {
                sent_at: Some(sent),
                generator_lag,
                ..ended_request(due, free, Ok(status(seq)))
            }
        };
        (0..400).map(request).collect()
    }

    /// Returns the blocks by due time and, if the verdict does not depend on the delay, the blocks by send time.
    fn believed(
        requests: &[CompletedRequest],
        late: Option<LatencyGoal>,
    ) -> (Vec<BlockCounts>, Option<Vec<BlockCounts>>) {
        let bound = late.map(|late| late.latency_limit);
        let of = |requests: &mut dyn Iterator<Item = CompletedRequest>| {
            let mut blocks = BlocksBySendTime::new(bound);
            requests.for_each(|request| blocks.record(&request, false));
            blocks
        };
        let count = 4 * BLOCKS_PER_SECOND;
        let punctual = &mut requests.iter().map(|request| CompletedRequest { generator_lag: 0, ..*request });
        let due = of(punctual).into_blocks(count);
        let sent = of(&mut requests.iter().copied()).blocks_if_same_verdict(&offer(100.0, late), &due);
        (due, sent)
    }

    #[test]
    fn a_good_trial_that_this_machine_sent_late_is_good_and_its_answers_are_late_only_by_the_target() {
        let goal = LatencyGoal { max_late_share: 0.01, latency_limit: Duration::from_millis(50) };
        let late = |blocks: &[BlockCounts]| sum(blocks, |block| block.late);
        let (due, sent) = believed(&requests(2 * MS, 100 * MS, |_| 200), Some(goal));
        assert_eq!((late(&due), sent.map(|sent| late(&sent))), (28.0, Some(0.0)));
    }

    #[test]
    fn a_target_that_fails_requests_is_bad_however_late_they_were_sent() {
        let failing = |seq: u64| if seq.is_multiple_of(4) { 429 } else { 200 };
        assert!(believed(&requests(2 * MS, 100 * MS, failing), None).1.is_some());
    }

    #[test]
    fn a_queue_that_is_longer_than_this_machine_was_late_makes_a_trial_bad() {
        assert!(believed(&requests(14 * MS, 100 * MS, |_| 200), None).1.is_some());
    }

    #[test]
    fn a_verdict_that_the_delay_may_have_made_is_not_believed() {
        // The queue grows by less than the requests that come due while this machine stops.
        assert_eq!(believed(&requests(10_600_000, 400 * MS, |_| 200), None).1, None);
        // This machine stops until the end and does not send the rest.
        let mut late = requests(2 * MS, 100 * MS, |_| 200);
        late.truncate(300);
        let whole = requests(2 * MS, 100 * MS, |_| 200);
        let mut blocks = BlocksBySendTime::new(None);
        late.iter().for_each(|request| blocks.record(request, false));
        let mut due = BlocksBySendTime::new(None);
        whole
            .iter()
            .for_each(|request| due.record(&CompletedRequest { generator_lag: 0, ..*request }, false));
        let due = due.into_blocks(4 * BLOCKS_PER_SECOND);
        assert_eq!(blocks.blocks_if_same_verdict(&offer(100.0, None), &due), None);
    }

    #[test]
    fn a_trial_with_requests_that_were_given_up_is_not_believed() {
        let mut late = requests(2 * MS, 100 * MS, |_| 200);
        late[7].outcome = Err(RequestFault::Dropped);
        assert_eq!(believed(&late, None).1, None);
    }
}
