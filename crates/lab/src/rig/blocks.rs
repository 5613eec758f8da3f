//! Reduces requests and a schedule to the blocks that a search sees. These functions are pure and use the time of the trial.
//!
//! The schedule decides when a request is due. A request that waits for a connection, or that this machine has not sent yet, is
//! in flight like any other, because the search asks how the target treats arrivals. A request that fails in or right after one
//! of this machine's [`LateSendBursts`] counts as in flight until its end and in no other figure. Other code judges whether this
//! machine was too late for the whole trial.

use std::time::Duration;

use seawall_load::clock::{Nanos, SECOND, nanos};
use seawall_load::completed_request::CompletedRequest;
use seawall_load::schedule::{Schedule, ScheduleShard};
use seawall_search::observation::{BLOCKS_PER_SECOND as BLOCKS_OF_A_SECOND, BlockCounts};

use super::late_send_bursts::{LateBurstErrorTally, LateSendBursts};

const A_SECOND: Nanos = BLOCKS_OF_A_SECOND as Nanos;

/// The length of an engine interval. It ends no sooner than a block, and at most a microsecond per hour later.
pub(super) const ENGINE_INTERVAL: Duration = Duration::from_nanos(SECOND.div_ceil(A_SECOND));

/// The longest trial. A response with a later bound is never known to be late.
const LONGEST: Duration = Duration::from_secs(3600);

/// Returns the start of a block.
pub(super) fn block_start(block: usize) -> Nanos {
    (block as Nanos).saturating_mul(SECOND).div_ceil(A_SECOND)
}

/// Returns the bound in nanoseconds, if it can pass during a trial.
pub(super) fn late_bound_nanos(bound: Option<Duration>) -> Option<Nanos> {
    bound.filter(|bound| *bound <= LONGEST).map(nanos)
}

/// Returns the index of the block that contains an instant.
pub(super) fn block_index(at: Nanos) -> usize {
    let block = u128::from(at) * u128::from(A_SECOND) / u128::from(SECOND);
    usize::try_from(block).unwrap_or(usize::MAX)
}

/// The blocks of a running trial.
#[derive(Debug)]
pub(super) struct BlockBuilder<'s> {
    schedule: &'s Schedule,
    /// The part of the load that this generator sends.
    shard: ScheduleShard,
    /// The time above which responses are late; none if no response is late.
    bound: Option<Nanos>,
    /// The complete blocks, and later ones for which something is known already.
    blocks: Vec<BlockCounts>,
    /// The requests that ended in time, by the block in which their bound passes.
    in_time: Vec<u32>,
    bunches: LateSendBursts,
    /// The excluded requests, by the block in which they ended.
    excused: Vec<u32>,
    complete: usize,
    /// The requests that ended in complete blocks.
    ended: u64,
}

impl<'s> BlockBuilder<'s> {
    /// Creates a builder for a shard of a schedule that starts with the first block. Responses later than the bound are late.
    pub(super) fn new(schedule: &'s Schedule, shard: ScheduleShard, bound: Option<Duration>) -> Self {
        Self {
            schedule,
            shard,
            bound: late_bound_nanos(bound),
            blocks: Vec::new(),
            in_time: Vec::new(),
            bunches: LateSendBursts::new(schedule.peak() / shard.shard_count() as f64),
            excused: Vec::new(),
            complete: 0,
            ended: 0,
        }
    }

    /// Records requests that have ended. It passes each to `tell`, with true if it is excluded because this machine sent it in a
    /// late burst.
    pub(super) fn record_ended(
        &mut self,
        fates: &[CompletedRequest],
        mut tell: impl FnMut(&CompletedRequest, bool),
    ) {
        self.bunches.record(fates);
        fates.iter().for_each(|fate| tell(fate, self.one_ended(fate)));
    }

    fn one_ended(&mut self, fate: &CompletedRequest) -> bool {
        let passes = self.bound.map(|bound| fate.due.saturating_add(bound));
        let in_time = passes.is_none_or(|passes| fate.end <= passes);
        let block = block_index(fate.end);
        let is_excused = self.bunches.excludes(fate);
        if is_excused {
            *entry_mut(&mut self.excused, block) += 1;
        } else {
            count_ended(entry_mut(&mut self.blocks, block), fate, in_time);
        }
        if let Some(passes) = passes.filter(|_| in_time) {
            *entry_mut(&mut self.in_time, block_index(passes)) += 1;
        }
        is_excused
    }

    /// Completes the next block if it has ended by this instant, and all requests that ended before are known.
    pub(super) fn complete_one(&mut self, by: Nanos) -> bool {
        let (from, to) = (block_start(self.complete), block_start(self.complete + 1));
        if to > by {
            return false;
        }
        let overdue = self.overdue(from, to);
        let (sent, due) = (self.due(from, to), self.due_before(to));
        let excused = self.excused.get(self.complete).copied().unwrap_or(0);
        let block = entry_mut(&mut self.blocks, self.complete);
        block.sent = count(sent);
        block.late += overdue;
        self.ended += u64::from(block.ended_count()) + u64::from(excused);
        block.in_flight = count(due.saturating_sub(self.ended));
        self.complete += 1;
        true
    }

    /// Returns the complete blocks.
    pub(super) fn completed_blocks(&self) -> &[BlockCounts] {
        &self.blocks[..self.complete]
    }

    /// Returns the outcomes of all ended requests, divided by whether this machine sent them in a late burst.
    pub(super) fn late_burst_tally(&self) -> LateBurstErrorTally {
        self.bunches.tally()
    }

    /// Returns the complete blocks without the incomplete ones.
    pub(super) fn into_complete(mut self) -> Vec<BlockCounts> {
        self.blocks.truncate(self.complete);
        self.blocks
    }

    fn due(&self, from: Nanos, to: Nanos) -> u64 {
        self.due_before(to).saturating_sub(self.due_before(from))
    }

    fn due_before(&self, at: Nanos) -> u64 {
        self.shard.requests_among(self.schedule.hits_before(at))
    }

    /// Returns the requests whose bound passes in this block and that have not ended by then.
    fn overdue(&self, from: Nanos, to: Nanos) -> u32 {
        let Some(bound) = self.bound else { return 0 };
        let passing = self.due(from.saturating_sub(bound), to.saturating_sub(bound));
        let in_time = self.in_time.get(self.complete).copied().unwrap_or(0);
        count(passing).saturating_sub(in_time)
    }
}

/// Counts a request in the block in which it ended. A request that ended late was already counted as late.
pub(super) fn count_ended(block: &mut BlockCounts, fate: &CompletedRequest, in_time: bool) {
    if fate.is_good() {
        let response = Duration::from_nanos(fate.response_time()).as_secs_f64();
        block.good += 1;
        block.latency_sum += response;
        block.slowest = block.slowest.max(response);
        block.timely += u32::from(in_time);
    } else {
        block.errors += 1;
        block.late += u32::from(in_time);
    }
}

pub(super) fn entry_mut<T: Default + Clone>(all: &mut Vec<T>, index: usize) -> &mut T {
    if index >= all.len() {
        all.resize(index + 1, T::default());
    }
    &mut all[index]
}

fn count(hits: u64) -> u32 {
    u32::try_from(hits).unwrap_or(u32::MAX)
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;
    use seawall_load::rate::RequestRate;
    use seawall_load::request_failure_reason::RequestFault;
    use seawall_load::schedule::{ArrivalSpacing, NextArrival, ScheduleCursor, StopCondition};
    use seawall_search::observation::sum;

    use super::*;

    const MS: Nanos = SECOND / 1000;

    fn even(rate: u64) -> Schedule {
        Schedule::constant(RequestRate::new(rate, SECOND).unwrap(), ArrivalSpacing::Constant)
    }

    /// Returns a request that was sent when it was due.
    pub(in crate::rig) fn ended_request(
        due: Nanos,
        end: Nanos,
        outcome: Result<u16, RequestFault>,
    ) -> CompletedRequest {
        CompletedRequest {
            target_index: 0,
            due,
            sent_at: Some(due),
            generator_lag: 0,
            end,
            outcome,
            response_body_bytes: 0,
            retries: 0,
            connection_timings: None,
        }
    }

    /// Returns the blocks of these requests, of which this many are complete.
    fn blocks(
        schedule: &Schedule,
        bound: Option<Duration>,
        hits: &[CompletedRequest],
        so_many: usize,
    ) -> Vec<BlockCounts> {
        let mut blocks = BlockBuilder::new(schedule, ScheduleShard::default(), bound);
        blocks.record_ended(hits, |_, _| ());
        while blocks.complete_one(block_start(so_many)) {}
        blocks.into_complete()
    }

    #[test]
    fn a_second_has_fifteen_blocks_and_none_drifts() {
        assert_eq!((block_start(0), block_start(15), block_start(15 * 3600)), (0, SECOND, 3600 * SECOND));
        for block in [0, 1, 2, 14, 15, 54_001] {
            assert_eq!(
                (block_index(block_start(block)), block_index(block_start(block + 1) - 1)),
                (block, block)
            );
        }
        assert!(
            ENGINE_INTERVAL.as_nanos() as u64 >= block_start(1),
            "an interval must be long enough to complete a block"
        );
    }

    #[test]
    fn an_answer_is_in_the_block_in_which_it_came_and_until_then_in_flight() {
        // One request each 100 ms: at 0, 100 and 200 ms.
        let hits = [ended_request(0, 150 * MS, Ok(200)), ended_request(100 * MS, 110 * MS, Ok(503))];
        let seen = blocks(&even(10), None, &hits, 4);
        let told: Vec<_> = seen.iter().map(|b| (b.sent, b.good, b.errors, b.in_flight)).collect();
        assert_eq!(told, [(1, 0, 0, 1), (1, 0, 1, 1), (0, 1, 0, 0), (1, 0, 0, 1)]);
        assert_eq!((seen[2].latency_sum, seen[2].slowest), (0.15, 0.15));
    }

    #[test]
    fn blocks_of_shards_add_up_to_those_of_the_whole() {
        let (schedule, bound) = (even(70), Some(Duration::from_millis(50)));
        let due = |seq: u64| seq * SECOND / 70;
        let hit = |seq: u64| {
            let outcome = if seq.is_multiple_of(9) { Ok(503) } else { Ok(200) };
            ended_request(due(seq), due(seq) + seq % 7 * 20 * MS, outcome)
        };
        let of = |shard: ScheduleShard| {
            let mine: Vec<_> = (0..120).filter(|&seq| shard.thread_of(seq, 1).is_some()).map(hit).collect();
            let mut blocks = BlockBuilder::new(&schedule, shard, bound);
            blocks.record_ended(&mine, |_, _| ());
            while blocks.complete_one(block_start(25)) {}
            blocks.into_complete()
        };
        let whole = of(ScheduleShard::default());
        let parts: Vec<_> = (0..3).map(|index| of(ScheduleShard::new(index, 3).unwrap())).collect();
        for (at, block) in whole.iter().enumerate() {
            let sum = |of: fn(&BlockCounts) -> u32| parts.iter().map(|part| of(&part[at])).sum::<u32>();
            let sums =
                [sum(|b| b.sent), sum(|b| b.good), sum(|b| b.errors), sum(|b| b.timely), sum(|b| b.late)];
            assert_eq!(sums, [block.sent, block.good, block.errors, block.timely, block.late], "{at}");
            assert_eq!(sum(|b| b.in_flight), block.in_flight, "{at}");
        }
    }

    #[test]
    fn that_an_answer_is_late_is_known_when_its_bound_passes_and_is_said_once() {
        // Due at 0 and 100 ms with a bound of 50 ms, so lateness is known at 50 and 150 ms.
        let hits = [ended_request(0, 180 * MS, Ok(200)), ended_request(100 * MS, 120 * MS, Ok(200))];
        let seen = blocks(&even(10), Some(Duration::from_millis(50)), &hits, 3);
        let told: Vec<_> = seen.iter().map(|b| (b.late, b.timely)).collect();
        assert_eq!(told, [(1, 0), (0, 1), (0, 0)]);
        // The other requests never end: the third is due at 200 ms and late at 250 ms.
        let seen = blocks(&even(10), Some(Duration::from_millis(50)), &hits, 4);
        assert_eq!((seen[3].late, seen[3].in_flight), (1, 1));
    }

    #[test]
    fn what_fails_is_late_when_it_fails_or_when_its_bound_passes() {
        let failed = |end| vec![ended_request(0, end, Err(RequestFault::ClosedEarly))];
        let late = |hits: &[CompletedRequest]| -> Vec<u32> {
            blocks(&even(1), Some(Duration::from_millis(100)), hits, 3).iter().map(|b| b.late).collect()
        };
        assert_eq!(late(&failed(10 * MS)), [1, 0, 0]);
        assert_eq!(late(&failed(140 * MS)), [0, 1, 0], "the bound passed before the failure");
        assert_eq!(late(&[]), [0, 1, 0]);
    }

    #[test]
    fn what_fails_beside_a_bunch_is_in_flight_until_then_and_neither_an_error_nor_late() {
        let late = |outcome| CompletedRequest {
            sent_at: Some(100 * MS),
            generator_lag: 100 * MS,
            ..ended_request(0, 110 * MS, outcome)
        };
        let told = |outcome| -> Vec<_> {
            let seen = blocks(&even(10), Some(Duration::from_millis(150)), &[late(outcome)], 3);
            seen.iter().map(|b| (b.sent, b.ended_count(), b.late + b.timely, b.in_flight)).collect()
        };
        assert_eq!(told(Ok(503)), [(1, 0, 0, 1), (1, 0, 0, 1), (0, 0, 0, 1)]);
        assert_eq!(told(Ok(200)), [(1, 0, 0, 1), (1, 1, 1, 1), (0, 0, 0, 1)], "a good response counts");
    }

    #[test]
    fn a_block_is_not_complete_before_it_has_ended() {
        let schedule = even(10);
        let mut blocks = BlockBuilder::new(&schedule, ScheduleShard::default(), None);
        blocks.record_ended(&[ended_request(0, MS, Ok(200))], |_, _| ());
        assert!(!blocks.complete_one(block_start(1) - 1) && blocks.completed_blocks().is_empty());
        assert!(blocks.complete_one(block_start(1)) && !blocks.complete_one(block_start(1)));
        assert_eq!(blocks.into_complete().len(), 1);
    }

    /// Returns the requests that a schedule makes due before an instant, each with an end drawn from a seed.
    fn drawn(schedule: &Schedule, until: Nanos, slow: Nanos, seed: u64) -> Vec<CompletedRequest> {
        let arrivals = seawall_load::schedule::ArrivalModel::Open(schedule.clone());
        let mut cursor = ScheduleCursor::new(arrivals.into(), StopCondition::default(), 0, 1);
        let mut state = seed | 1;
        let mut random = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            state >> 33
        };
        let mut hits = Vec::new();
        while let NextArrival::Due(hit) = cursor.next(until - 1) {
            let outcome = if random() % 4 == 0 { Err(RequestFault::Timeout) } else { Ok(200) };
            // One of sixteen requests was sent late, by enough for a burst at some rates or by next to nothing.
            let generator_lag = if random() % 16 == 0 { random() % (50 * MS) } else { random() % 1000 };
            let sent = hit.due + generator_lag;
            hits.push(CompletedRequest {
                sent_at: Some(sent),
                generator_lag,
                ..ended_request(hit.due, sent + random() % slow, outcome)
            });
        }
        hits
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn sums_of_blocks_are_what_happened(
            seed: u64,
            rate in 1..2000_u64,
            poisson: bool,
            so_many in 1..40_usize,
            bound in 1..400_u64,
            slow in 1..600_u64,
        ) {
            let spacing = if poisson { ArrivalSpacing::Poisson(seed) } else { ArrivalSpacing::Constant };
            let schedule = Schedule::constant(RequestRate::new(rate, SECOND).unwrap(), spacing);
            let (end, bound) = (block_start(so_many), bound * MS);
            // More requests are due and end than the blocks cover.
            let hits = drawn(&schedule, end + SECOND / 5, slow * MS, seed);
            let seen = blocks(&schedule, Some(Duration::from_nanos(bound)), &hits, so_many);
            prop_assert_eq!(seen.len(), so_many);
            let all = |happened: &dyn Fn(&CompletedRequest) -> bool| hits.iter().filter(|hit| happened(hit)).count() as f64;
            let in_time = |hit: &CompletedRequest| hit.is_good() && hit.end <= hit.due + bound;
            // A span begins when a late request was sent and lasts as long as its lag.
            let least = (SECOND / rate).max(MS);
            let late = |hit: &CompletedRequest| hit.generator_lag >= least;
            let beside = |of: &CompletedRequest, hit: &CompletedRequest| (of.launch_time()..=of.launch_time() + of.generator_lag).contains(&hit.launch_time());
            let spans: Vec<_> = hits.iter().filter(|hit| late(hit)).collect();
            let excused = |hit: &CompletedRequest| !hit.is_good() && spans.iter().any(|of| beside(of, hit));
            // An excluded request counts as late only if its bound passed before its end.
            let is_late = |hit: &CompletedRequest| !(in_time(hit) || excused(hit) && hit.end <= hit.due + bound);
            let known = |hit: &CompletedRequest| hit.end.min(hit.due + bound);
            prop_assert_eq!(sum(&seen, |b| b.sent), all(&|hit| hit.due < end));
            prop_assert_eq!(sum(&seen, |b| b.good), all(&|hit| hit.end < end && hit.is_good()));
            prop_assert_eq!(sum(&seen, |b| b.errors), all(&|hit| hit.end < end && !hit.is_good() && !excused(hit)));
            prop_assert_eq!(sum(&seen, |b| b.timely), all(&|hit| hit.end < end && in_time(hit)));
            prop_assert_eq!(sum(&seen, |b| b.late), all(&|hit| known(hit) < end && is_late(hit)));
            let last = seen.last().map_or(0, |block| block.in_flight);
            prop_assert_eq!(f64::from(last), all(&|hit| hit.due < end && hit.end >= end));
        }
    }
}
