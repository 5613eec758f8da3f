//! Sends for a number of clients instead of a rate, and reduces their requests to the blocks for [`seawall_search::closed_loop`].
//!
//! All clients begin at once. A client begins its next request when its last one has ended, and after a failure also waits for
//! [`pause`]. So the number in flight is the number of clients without the waiting ones. The times of ended requests also show
//! which requests are late, so the search need not know a request before its end. The time of a request starts when its client
//! begins it and includes the connect.
//!
//! Two rules bound the load on a target that refuses: the pause, and [`ClosedTrialSpec::is_enough`], which ends a trial if half
//! of its requests fail after the first second.

use std::time::Duration;

use seawall_load::clock::{Nanos, nanos};
use seawall_load::completed_request::CompletedRequest;
use seawall_load::plan::LoadSpec;
use seawall_load::schedule::{ArrivalModel, StopCondition};
use seawall_search::closed_loop::{ClosedTarget, ClosedTrialSpec};
use seawall_search::observation::{BLOCK_SECONDS, BlockCounts, TrialObservation, sum};

use super::blocks::{block_index, block_start, count_ended, entry_mut, late_bound_nanos};
use super::load_sessions::SessionError;
use super::outage_detector::OutageDetector;
use super::validity::{join_reasons, port_shortage};
use super::{LocalDriver, experiment_conversion, port_range, run_load};
use crate::generator_resources::MOST_IN_FLIGHT;

impl LocalDriver {
    /// Returns the most clients that this machine can keep busy. Each needs a connection, and so a descriptor, unless connections
    /// carry several requests.
    pub(super) fn max_busy_clients(&self) -> u32 {
        let room = if self.session_config().multiplexes() { usize::MAX } else { self.room };
        u32::try_from(room.min(MOST_IN_FLIGHT as usize)).unwrap_or(u32::MAX)
    }

    fn try_clients(&mut self, offer: &ClosedTrialSpec) -> Result<TrialObservation, SessionError> {
        let load = kept_busy(offer);
        let mut blocks = ClientBlockBuilder::new(offer, self.bound);
        let (mut enough, mut no_port, mut away) = (false, 0, OutageDetector::default());
        let Self { sessions, stop, fastest, .. } = self;
        let carried = run_load(sessions.unvaried_session(FASTER * *fastest)?, &load, stop, |progress| {
            no_port += experiment_conversion::count_without_port(progress.completed_requests);
            if !enough {
                away.record(progress.completed_requests);
                progress.completed_requests.iter().for_each(|fate| blocks.ended(fate));
            }
            while !enough && blocks.complete_one(progress.known_until) {
                enough = offer.is_enough(blocks.complete());
            }
            enough
        })?;
        let blocks = blocks.into_complete();
        self.fastest = self.fastest.max(
            sum(&blocks, BlockCounts::ended_count) / (blocks.len() as f64 * BLOCK_SECONDS).max(BLOCK_SECONDS),
        );
        let lack = port_shortage(no_port, carried.outcome.total_stats.completed, false, port_range());
        let against = self.invalid_reasons(&carried, f64::from(offer.clients), no_port);
        let invalid = join_reasons(lack.into_iter().chain(against.into_iter().flatten()));
        Ok(TrialObservation {
            blocks,
            invalid_reason: invalid,
            requests_without_port: no_port,
            target_is_down: away.is_target_down(),
            ..TrialObservation::default()
        })
    }
}

/// The factor by which the rate of the next trial may exceed the highest rate so far, for the number of threads. A trial has at
/// most twice as many clients as the one before.
const FASTER: f64 = 2.0;

/// The shortest pause after a failure. The search asks for the response time of one client. Before it knows that time, or if
/// responses take microseconds, one client would have thousands of failures per second.
pub(super) const MIN_FAILURE_PAUSE: Duration = Duration::from_millis(10);

fn pause(offer: &ClosedTrialSpec) -> Duration {
    offer.pause_after_failure.max(MIN_FAILURE_PAUSE)
}

/// Returns the load of a trial. It ends a moment after the last block of the trial.
fn kept_busy(offer: &ClosedTrialSpec) -> LoadSpec {
    let blocks = (offer.max_duration.as_secs_f64() / BLOCK_SECONDS).ceil() as usize;
    let until =
        StopCondition { stop_time: block_start(blocks.saturating_add(2)), ..StopCondition::default() };
    let load = LoadSpec {
        stop_condition: until,
        failure_pause: pause(offer),
        ..LoadSpec::new(ArrivalModel::Closed, offer.clients as usize)
    };
    experiment_conversion::record_every_request(load, offer.drain)
}

impl ClosedTarget for LocalDriver {
    fn carry_out(&mut self, offer: &ClosedTrialSpec) -> TrialObservation {
        self.timed(|rig| rig.try_clients(offer))
    }

    fn rest(&mut self, time: Duration) -> bool {
        self.stop.sleep(time)
    }
}

/// The blocks of a running trial with clients. This type is pure and uses the time of the trial.
#[derive(Debug)]
struct ClientBlockBuilder {
    /// The pause of a client after a failure.
    pause: Nanos,
    /// The time above which responses are late; none if no response is late.
    bound: Option<Nanos>,
    /// The complete blocks, and later ones for which something is known already.
    blocks: Vec<BlockCounts>,
    /// The requests by the block in which they begin.
    begun: Vec<u32>,
    /// The requests in flight at the end of the last complete block. A request begins some microseconds after its client may, so
    /// the number is too high by one if a block begins in between.
    in_flight: i64,
    /// The requests by the block in which their bound passes, and the number of them that had ended by then.
    passing: Vec<(u32, u32)>,
    complete: usize,
    /// The requests whose bound has passed and that are not yet counted as late. A request begins some microseconds after the
    /// last one ended. If its bound passes in the next block, it was counted too early, and this number is negative.
    overdue: i64,
}

impl ClientBlockBuilder {
    /// Creates a builder for a trial whose clients all begin with the first block. Responses later than the bound are late.
    fn new(offer: &ClosedTrialSpec, bound: Option<Duration>) -> Self {
        let (bound, pause) = (late_bound_nanos(bound), nanos(pause(offer)));
        let (blocks, begun, passing) = Default::default();
        let mut all = Self { pause, bound, blocks, begun, in_flight: 0, passing, complete: 0, overdue: 0 };
        all.begin(0, offer.clients);
        all
    }

    /// Records that this many requests begin at this time.
    fn begin(&mut self, when: Nanos, so_many: u32) {
        *entry_mut(&mut self.begun, block_index(when)) += so_many;
        if let Some(bound) = self.bound {
            entry_mut(&mut self.passing, block_index(when.saturating_add(bound))).0 += so_many;
        }
    }

    /// Records an ended request. Its client begins the next one at once or after a pause.
    fn ended(&mut self, fate: &CompletedRequest) {
        let passes = self.bound.map(|bound| fate.due.saturating_add(bound));
        let in_time = passes.is_none_or(|passes| fate.end <= passes);
        count_ended(entry_mut(&mut self.blocks, block_index(fate.end)), fate, in_time);
        if let Some(passes) = passes.filter(|_| in_time) {
            entry_mut(&mut self.passing, block_index(passes)).1 += 1;
        }
        let pause = if fate.is_good() { 0 } else { self.pause };
        self.begin(fate.end.saturating_add(pause), 1);
    }

    /// Completes the next block if it has ended by this instant, and all requests that ended before are known.
    fn complete_one(&mut self, by: Nanos) -> bool {
        if block_start(self.complete + 1) > by {
            return false;
        }
        let (passing, in_time) = self.passing.get(self.complete).copied().unwrap_or_default();
        self.overdue += i64::from(passing) - i64::from(in_time);
        let late = u32::try_from(self.overdue).unwrap_or(0);
        self.overdue -= i64::from(late);
        let begun = self.begun.get(self.complete).copied().unwrap_or_default();
        let block = entry_mut(&mut self.blocks, self.complete);
        self.in_flight += i64::from(begun) - i64::from(block.ended_count());
        block.sent = begun;
        block.late += late;
        block.in_flight = u32::try_from(self.in_flight).unwrap_or(0);
        self.complete += 1;
        true
    }

    /// Returns the complete blocks.
    fn complete(&self) -> &[BlockCounts] {
        &self.blocks[..self.complete]
    }

    /// Returns the complete blocks without the incomplete ones.
    fn into_complete(mut self) -> Vec<BlockCounts> {
        self.blocks.truncate(self.complete);
        self.blocks
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use seawall_load::clock::SECOND;
    use seawall_load::request_failure_reason::RequestFault;

    use super::super::blocks::tests::ended_request;
    use super::*;

    const MS: Nanos = SECOND / 1000;

    fn offer(clients: u32, pause: Duration) -> ClosedTrialSpec {
        let standard = seawall_search::closed_loop::ClosedCriteria {
            goal: seawall_search::goal::SearchGoal::ERRORS_ONLY,
            settle: 0.3,
            service_time: pause.as_secs_f64(),
        };
        let second = Duration::from_secs(1);
        ClosedTrialSpec {
            purpose: seawall_search::trial_spec::TrialPurpose::NarrowBracket,
            clients,
            pause_after_failure: pause,
            min_duration: second,
            max_duration: second,
            rule: seawall_search::closed_loop::ClosedStopRule::FullDurationUnlessBad,
            criteria: standard,
            drain: second / 2,
        }
    }

    /// Returns the blocks of clients with the shortest pause.
    fn blocks(
        clients: u32,
        bound: Option<Duration>,
        hits: &[CompletedRequest],
        so_many: usize,
    ) -> Vec<BlockCounts> {
        patient(&offer(clients, Duration::ZERO), bound, hits, so_many)
    }

    fn patient(
        offer: &ClosedTrialSpec,
        bound: Option<Duration>,
        hits: &[CompletedRequest],
        so_many: usize,
    ) -> Vec<BlockCounts> {
        let mut blocks = ClientBlockBuilder::new(offer, bound);
        hits.iter().for_each(|hit| blocks.ended(hit));
        while blocks.complete_one(block_start(so_many)) {}
        blocks.into_complete()
    }

    #[test]
    fn a_client_is_in_flight_all_the_time_and_sends_whenever_it_was_answered() {
        let hits = [
            ended_request(0, 10 * MS, Ok(200)),
            ended_request(10 * MS, 20 * MS, Ok(503)),
            ended_request(0, 100 * MS, Ok(200)),
        ];
        let seen = blocks(3, None, &hits, 2);
        let told: Vec<_> = seen.iter().map(|b| (b.sent, b.good, b.errors, b.in_flight)).collect();
        assert_eq!(told, [(5, 1, 1, 3), (1, 1, 0, 3)]);
        assert_eq!(
            (seen[1].latency_sum, seen[1].late, seen[0].late),
            (0.1, 0, 1),
            "what fails is late at once"
        );
    }

    #[test]
    fn a_client_waits_a_moment_after_a_failure_even_where_answers_take_none() {
        assert_eq!([1, 30].map(|ms| pause(&offer(1, Duration::from_millis(ms))).as_millis()), [10, 30]);
        assert_eq!(
            kept_busy(&offer(1, Duration::ZERO)).failure_pause,
            MIN_FAILURE_PAUSE,
            "nor in the baseline"
        );
    }

    #[test]
    fn a_client_that_was_refused_is_not_in_flight_until_it_asks_again() {
        let hits = [ended_request(0, 10 * MS, Ok(503)), ended_request(100 * MS, 110 * MS, Ok(200))];
        let seen = patient(&offer(2, Duration::from_millis(90)), None, &hits, 2);
        let told: Vec<_> = seen.iter().map(|b| (b.sent, b.good, b.errors, b.in_flight)).collect();
        let waits = (2, 0, 1, 1);
        assert_eq!(told, [waits, (2, 1, 0, 2)]);
    }

    #[test]
    fn clients_that_hang_are_late_when_their_bound_passes_and_are_told_once() {
        let late = |hits: &[CompletedRequest]| -> Vec<u32> {
            blocks(2, Some(Duration::from_millis(100)), hits, 4).iter().map(|b| b.late).collect()
        };
        assert_eq!(late(&[]), [0, 2, 0, 0]);
        assert_eq!(
            late(&[ended_request(0, 230 * MS, Ok(200))]),
            [0, 2, 0, 0],
            "an answer after that changes nothing"
        );
        assert_eq!(
            late(&[ended_request(0, 90 * MS, Ok(200))]),
            [0, 1, 1, 0],
            "nor is the next one forgotten"
        );
    }

    #[test]
    fn a_request_that_begins_a_moment_after_the_last_is_told_once_although_a_block_begins_between() {
        let bound = Some(Duration::from_nanos(block_start(1)));
        let (end, next) = (block_start(1) - 1, block_start(1) + 1);
        let hits = [
            ended_request(0, end, Ok(200)),
            ended_request(next, next + MS, Ok(200)),
            ended_request(next + MS, block_start(2) + MS, Ok(200)),
        ];
        let seen = blocks(1, bound, &hits, 8);
        // One request was counted too early. So the last one, which has no response, is not counted again.
        assert_eq!(sum(&seen, |block| block.late), 1.0, "{seen:?}");
    }

    #[test]
    fn no_client_is_lost_where_an_offer_is_made_a_load() {
        let second = Duration::from_secs(1);
        let offer = ClosedTrialSpec { max_duration: second, ..offer(77, second / 50) };
        let load = kept_busy(&offer);
        assert_eq!(
            (load.in_flight_limit.limit, load.drain_timeout, load.report_each_request),
            (77, Some(second / 2), true)
        );
        assert_eq!(load.failure_pause, second / 50);
        assert!(matches!(load.arrivals, ArrivalModel::Closed) && load.stop_condition.stop_time > SECOND);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn sums_of_blocks_are_what_happened(seed: u64, clients in 1..40_u32, so_many in 1..40_usize, bound in 1..400_u64, slow in 1..600_u64, pause in 10..100_u64) {
            let (end, bound, pause, mut state) = (block_start(so_many), bound * MS, pause * MS, seed | 1);
            let mut random = || {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                state >> 33
            };
            let mut hits = Vec::new();
            for _ in 0..clients {
                let mut due = 0;
                while due < end + SECOND {
                    let outcome = if random() % 4 == 0 { Err(RequestFault::Timeout) } else { Ok(200) };
                    let hit = ended_request(due, due + 1 + random() % (slow * MS), outcome);
                    due = hit.end + if hit.is_good() { 0 } else { pause };
                    hits.push(hit);
                }
            }
            // The builder gets the ended requests, and some that end after the last block.
            let told: Vec<_> = hits.iter().filter(|hit| hit.end < end + SECOND / 5).copied().collect();
            let offer = offer(clients, Duration::from_nanos(pause));
            let seen = patient(&offer, Some(Duration::from_nanos(bound)), &told, so_many);
            let all = |happened: &dyn Fn(&CompletedRequest) -> bool| hits.iter().filter(|hit| happened(hit)).count() as f64;
            let in_time = |hit: &CompletedRequest| hit.is_good() && hit.end <= hit.due + bound;
            prop_assert_eq!(sum(&seen, |b| b.good), all(&|hit| hit.end < end && hit.is_good()));
            prop_assert_eq!(sum(&seen, |b| b.errors), all(&|hit| hit.end < end && !hit.is_good()));
            prop_assert_eq!(sum(&seen, |b| b.timely), all(&|hit| hit.end < end && in_time(hit)));
            prop_assert_eq!(sum(&seen, |b| b.sent), all(&|hit| hit.due < end));
            prop_assert_eq!(sum(&seen, |b| b.late), all(&|hit| hit.end.min(hit.due + bound) < end && !in_time(hit)));
            for (at, block) in seen.iter().enumerate() {
                let by = block_start(at + 1);
                prop_assert_eq!(f64::from(block.in_flight), all(&|hit| hit.due < by && hit.end >= by));
            }
        }
    }
}
