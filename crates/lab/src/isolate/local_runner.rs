//! Runs segments with sessions of the load engine. Each segment gets new, warm connections.

use std::io::ErrorKind;
use std::time::Duration;

use seawall_isolate::cell::CellStatsByVariant;
use seawall_isolate::segment::{Segment, VariantOrder};
use seawall_load::clock::{Nanos, RunClock, nanos};
use seawall_load::load_session::LoadSession;
use seawall_load::plan::{LoadSpec, SessionSetup, TransportOptions};
use seawall_load::request::{PreparedRequest, RequestFraming};
use seawall_load::request_failure_reason::RequestFault;
use seawall_load::request_source::{RequestList, RequestSource};
use seawall_load::schedule::{ArrivalModel, ArrivalSpacing, Schedule, ScheduleShard, StopCondition};
use seawall_load::stats::LatencyHistogram;
use seawall_load::target::Weight;

use super::cells::{CellCollector, CellSamples, cell_stats};
use super::failure_counts::RequestCounts;
use super::variant_setup::VariantRequests;
use super::{IsolateStopReason, SegmentResult, VariantRunner};
use crate::generator_resources;
use crate::generator_verdict::GeneratorVerdict;
use crate::rig::{
    LocalDriver, SessionConfig, SessionError, StopSwitch, record_every_request, run_load, to_request_rate,
    unanswered,
};

/// The warm connections of each variant before a segment. The significance levels of the experiment were tested with this number.
const WARM: usize = 8;
/// The time for which late responses are awaited after a segment.
const DRAIN: Duration = Duration::from_secs(1);
/// The requests in flight above which the rate is too high: those of this many seconds, and a constant.
const OUTSTANDING: (f64, f64) = (2.0, 64.0);
/// The least additional requests in flight for each of several generators, because a few slow responses are not a queue.
const LEAST_OUTSTANDING: f64 = 8.0;

/// Runs the segments of an experiment from this machine.
pub struct LocalVariantRunner {
    ways: Vec<VariantRequests>,
    /// The transport options of a variant that is measured alone.
    travel: TransportOptions,
    /// The transport options of variants whose connections are open at the same time.
    shared: TransportOptions,
    style: RequestFraming,
    cpus: usize,
    stop: StopSwitch,
}

impl LocalVariantRunner {
    /// Creates a runner for these variants, the reference first. It raises the soft limit of open files.
    ///
    /// # Errors
    /// The system refuses the limit.
    pub fn new(
        ways: Vec<VariantRequests>,
        travel: TransportOptions,
        style: RequestFraming,
        cpus: usize,
    ) -> std::io::Result<Self> {
        let room = usize::try_from(
            generator_resources::raise_open_files()?
                .saturating_sub(generator_resources::RESERVED_DESCRIPTORS),
        );
        let each = (room.unwrap_or(usize::MAX) / ways.len().max(1)).max(1);
        let shared = TransportOptions { max_connections: travel.max_connections.min(each), ..travel.clone() };
        Ok(Self { ways, travel, shared, style, cpus, stop: StopSwitch::default() })
    }

    pub(super) fn variant_count(&self) -> usize {
        self.ways.len()
    }

    /// Returns the switch that stops everything at once.
    #[must_use]
    pub fn stop_switch(&self) -> StopSwitch {
        self.stop.clone()
    }

    /// Returns the driver that searches the limit of this variant alone, with all resources of this machine. Responses that take
    /// longer than `bound` are late. [`LocalVariantRunner::stop_switch`] ends the search, too.
    ///
    /// # Errors
    /// The variant does not exist, it has no requests, or the system refuses.
    pub fn create_variant_search_driver(
        &self,
        way: usize,
        bound: Option<Duration>,
    ) -> std::io::Result<LocalDriver> {
        let nothing = || std::io::Error::new(ErrorKind::InvalidInput, "the variant has no requests");
        let way = self.ways.get(way).ok_or_else(nothing)?;
        let list = way.request_list().map_err(|_| nothing())?;
        let travel = way.transport(&self.travel).clone();
        let kit = SessionConfig {
            request_list: list,
            transport: travel,
            request_framing: self.style.clone(),
            max_sender_threads: self.cpus,
            max_busy_poll: None,
        };
        Ok(LocalDriver::new(kit, ArrivalSpacing::Constant, bound)?.with_stop(self.stop.clone()))
    }

    /// Returns a session with warm connections for this many requests per second.
    pub(super) fn session(
        &self,
        list: RequestList,
        travel: &TransportOptions,
        rate: f64,
    ) -> Result<LoadSession, SessionError> {
        let threads = generator_resources::sender_threads(rate, self.cpus);
        let (source, travel, style) = (RequestSource::List(list), travel.clone(), self.style.clone());
        let mut session = LoadSession::open(SessionSetup {
            source,
            transport: travel,
            framing: style,
            max_threads: threads,
            busy_poll_max_wait: generator_resources::max_busy_poll(threads),
        })?;
        // Each of many generators sends little and needs at most as many connections as requests per second.
        session.warm(WARM.min(rate.ceil() as usize))?;
        Ok(session)
    }

    fn interleaved(&self, segment: &Segment, rate: f64) -> Result<Part, SessionError> {
        let (mut session, of) = self.open_interleaved_session(segment, rate, ScheduleShard::default())?;
        let cells = self.new_cell_collector_of_segment(segment, segment.cell_count);
        let load = ContinuousLoad::by_itself(segment.send_duration(), rate);
        Ok(self.run_load(&mut session, &load, cells, |target| of[target])?.part())
    }

    /// Returns this many empty time buckets of a segment.
    pub(super) fn new_cell_collector_of_segment(&self, segment: &Segment, cells: usize) -> CellCollector {
        CellCollector::new(
            nanos(segment.settle),
            nanos(segment.measured_time_per_variant),
            cells,
            self.ways.len(),
        )
    }

    /// Returns a session for all variants of an interleaved segment, and the variant of each request.
    ///
    /// Each shard has its own order and sends every request of it. If all shards shared one order, some numbers of variants and
    /// shards would go wrong. With two variants and two generators, each generator would send one variant only, or more of one
    /// than of the other in random rounds. With its own order, each shard sends each variant equally often.
    pub(super) fn open_interleaved_session(
        &self,
        segment: &Segment,
        rate: f64,
        shard: ScheduleShard,
    ) -> Result<(LoadSession, Vec<usize>), SessionError> {
        let (requests, of) = self.requests(&segment.members);
        let own = rate / shard.shard_count() as f64;
        let each = usize::try_from(shard.shard_count()).unwrap_or(usize::MAX);
        let order = order(segment, &of, own).into_iter().flat_map(|place| std::iter::repeat_n(place, each));
        let list = RequestList::new(requests).ok().and_then(|list| list.with_order(order.collect()));
        let list = list.ok_or_else(|| SessionError::Impossible("the variant has no requests".into()))?;
        Ok((self.session(list, &self.shared, own)?, of))
    }

    /// Returns the sessions of a segment in blocks by variant, each for this many requests per second.
    pub(super) fn block_sessions(
        &self,
        segment: &Segment,
        rate: f64,
    ) -> Result<Vec<Option<LoadSession>>, SessionError> {
        let mut sessions: Vec<Option<LoadSession>> = self.ways.iter().map(|_| None).collect();
        for &member in &segment.members {
            let way =
                self.ways.get(member).ok_or_else(|| SessionError::Impossible("unknown variant".into()))?;
            let list = way.request_list().map_err(|bad| SessionError::Impossible(bad.to_string()))?;
            sessions[member] = Some(self.session(list, way.transport(&self.shared), rate)?);
        }
        Ok(sessions)
    }

    fn blocks(&self, segment: &Segment, rate: f64) -> Result<Part, SessionError> {
        let mut sessions = self.block_sessions(segment, rate)?;
        let mut whole = Part::new(self.ways.len());
        for round in segment.blocks() {
            let mut cell: Option<CellStatsByVariant> = Some(vec![None; self.ways.len()]);
            for member in round {
                let Some(session) = &mut sessions[member] else { continue };
                let load = ContinuousLoad::by_itself(segment.send_duration(), rate);
                let part = self
                    .run_load(session, &load, self.new_cell_collector_of_segment(segment, 1), |_| member)?
                    .part();
                whole.add(&part);
                whole.limits.extend(part.limits);
                if part.cut.is_some() {
                    return Ok(Part { cut: part.cut, ..whole });
                }
                cell = add_block_to_cell(cell, member, part.cells.into_iter().next());
            }
            whole.cells.extend(cell);
        }
        Ok(whole)
    }

    /// Returns all requests of these variants, and the variant of each request.
    fn requests(&self, members: &[usize]) -> (Vec<(PreparedRequest, Weight)>, Vec<usize>) {
        let each = members.iter().flat_map(|&member| {
            self.ways[member]
                .requests
                .iter()
                .map(move |request| ((request.clone(), Weight::default()), member))
        });
        each.unzip()
    }

    /// Sends a load and collects its results.
    pub(super) fn run_load(
        &self,
        session: &mut LoadSession,
        sending: &ContinuousLoad,
        mut cells: CellCollector,
        of: impl Fn(usize) -> usize,
    ) -> Result<ContinuousLoadResult, SessionError> {
        let (load, schedule, most) = sending.load()?;
        let (mut ended, mut overloaded) = (0, false);
        let mut given_up = vec![0; self.ways.len()];
        let carried = run_load(session, &load, &self.stop, |progress| {
            ended += progress.completed_requests.len() as u64;
            for fate in progress.completed_requests {
                let is_given_up = fate.outcome == Err(RequestFault::Aborted);
                given_up[of(fate.target_index)] += usize::from(is_given_up);
                if !(is_given_up && self.stop.is_stopped()) {
                    cells.add(fate, of(fate.target_index));
                }
            }
            overloaded |= unanswered(&load, progress, ended) > most;
            overloaded
        })?;
        let limited = carried.judgement.generator_verdict == GeneratorVerdict::GeneratorLimited;
        let counts = cells.counts();
        let due_before = |at: Nanos| {
            load.shard.requests_among(schedule.hits_before(at.min(load.stop_condition.stop_time)))
        };
        let (cells, times) = cells.into_complete(due_before);
        let worst = (0..given_up.len()).max_by_key(|&way| given_up[way]).unwrap_or(0);
        let cut = match (self.stop.is_stopped(), overloaded) {
            (true, _) => Some(IsolateStopReason::Stopped),
            (_, true) => Some(IsolateStopReason::Overloaded(worst)),
            _ => None,
        };
        let limiting = carried
            .judgement
            .reasons
            .into_iter()
            .filter(|reason| reason.verdict == GeneratorVerdict::GeneratorLimited);
        let limits = limiting.map(|reason| reason.measured).collect();
        Ok(ContinuousLoadResult {
            cells,
            is_generator_limited: limited,
            response_times: times,
            counts,
            stop_reason: cut,
            generator_limits: limits,
        })
    }
}

/// A load that is sent without a pause: a whole interleaved segment, or one block.
pub(super) struct ContinuousLoad {
    pub(super) duration: Duration,
    /// The total requests per second of all parts.
    pub(super) total_rate: f64,
    /// The part of the load that this generator sends.
    pub(super) schedule_shard: ScheduleShard,
    /// The start, in nanoseconds since the Unix epoch. `None` starts at once.
    pub(super) start_at: Option<i64>,
}

impl ContinuousLoad {
    fn by_itself(duration: Duration, rate: f64) -> Self {
        Self { duration, total_rate: rate, schedule_shard: ScheduleShard::default(), start_at: None }
    }

    /// Returns the load for the engine, its schedule, and the most requests that may be outstanding here.
    fn load(&self) -> Result<(LoadSpec, Schedule, u64), SessionError> {
        let rate = to_request_rate(self.total_rate)
            .ok_or_else(|| SessionError::Impossible("the rate is out of range".into()))?;
        let schedule = Schedule::constant(rate, ArrivalSpacing::Constant);
        let until = StopCondition { stop_time: nanos(self.duration), ..StopCondition::default() };
        let of = self.schedule_shard.shard_count() as f64;
        let most =
            (OUTSTANDING.0 * self.total_rate / of + (OUTSTANDING.1 / of).max(LEAST_OUTSTANDING)) as u64;
        let load = LoadSpec {
            stop_condition: until,
            ..LoadSpec::new(ArrivalModel::Open(schedule.clone()), 2 * most as usize)
        };
        let load = LoadSpec {
            shard: self.schedule_shard,
            start_unix_ns: self.start_at,
            ..record_every_request(load, DRAIN)
        };
        Ok((load, schedule, most))
    }
}

/// The raw observations of a load.
pub(super) struct ContinuousLoadResult {
    /// The complete time buckets.
    pub(super) cells: Vec<Vec<CellSamples>>,
    /// True if this machine was the limit of all time buckets.
    pub(super) is_generator_limited: bool,
    pub(super) response_times: Vec<LatencyHistogram>,
    pub(super) counts: Vec<RequestCounts>,
    pub(super) stop_reason: Option<IsolateStopReason>,
    pub(super) generator_limits: Vec<String>,
}

impl ContinuousLoadResult {
    fn part(self) -> Part {
        let Self {
            cells,
            is_generator_limited: limited,
            response_times: times,
            counts,
            stop_reason: cut,
            generator_limits: limits,
        } = self;
        Part { cells: cell_stats(cells, limited), times, counts, cut, limits }
    }
}

/// The observations of one or several loads.
struct Part {
    cells: Vec<CellStatsByVariant>,
    times: Vec<LatencyHistogram>,
    counts: Vec<RequestCounts>,
    cut: Option<IsolateStopReason>,
    limits: Vec<String>,
}

impl Part {
    fn new(ways: usize) -> Self {
        let (times, counts) = (vec![LatencyHistogram::default(); ways], vec![RequestCounts::default(); ways]);
        Self { cells: Vec::new(), times, counts, cut: None, limits: Vec::new() }
    }

    /// Adds the times and counts of a block.
    fn add(&mut self, block: &Self) {
        self.times.iter_mut().zip(&block.times).for_each(|(all, one)| all.merge(one));
        self.counts.iter_mut().zip(&block.counts).for_each(|(all, one)| all.merge(one));
    }
}

impl VariantRunner for LocalVariantRunner {
    fn carry_out(&mut self, segment: &Segment, rate: f64) -> SegmentResult {
        let clock = RunClock::start();
        let seen = match segment.design {
            VariantOrder::Interleaved => self.interleaved(segment, rate),
            VariantOrder::OneVariantPerBlock => self.blocks(segment, rate),
        };
        let failed = |error: SessionError| Part {
            cut: Some(IsolateStopReason::Failed(error.to_string())),
            ..Part::new(0)
        };
        let Part { cells, times, counts, cut, limits } = seen.unwrap_or_else(failed);
        SegmentResult {
            cells,
            took: Duration::from_nanos(clock.now()),
            stop_reason: cut,
            generator_limits: limits,
            response_times: times,
            counts,
        }
    }
}

/// Adds a variant's block to the time bucket of its round; none if a block is incomplete.
#[must_use]
pub fn add_block_to_cell(
    cell: Option<CellStatsByVariant>,
    member: usize,
    block: Option<CellStatsByVariant>,
) -> Option<CellStatsByVariant> {
    let (mut cell, block) = (cell?, block?);
    cell[member] = block[member];
    Some(cell)
}

/// Returns the indices of requests in the list, in the order in which they are sent: each variant once per round, and its own
/// requests in turn.
fn order(segment: &Segment, of: &[usize], rate: f64) -> Vec<u32> {
    let hits = (segment.send_duration().as_secs_f64() * rate) as usize + 1;
    let mut own: Vec<_> = segment
        .members
        .iter()
        .map(|member| {
            let places = (0..of.len()).filter(|&place| of[place] == *member);
            (*member, places.collect::<Vec<_>>().into_iter().cycle())
        })
        .collect();
    let rounds = segment.rounds(hits / segment.members.len() + 1).into_iter().flatten();
    let place = |member| own.iter_mut().find(|(of, _)| *of == member)?.1.next();
    rounds.filter_map(place).filter_map(|place| u32::try_from(place).ok()).collect()
}

#[cfg(test)]
mod tests {
    use seawall_isolate::cell::CellStats;
    use seawall_isolate::segment::SegmentTimes;

    use super::*;

    /// Regression: an incomplete block ended the experiment as if a signal had stopped it.
    #[test]
    fn a_round_of_which_a_block_is_incomplete_is_left_out() {
        let slot = |took| Some(CellStats::from_response_times(vec![took; 9], 9, 0, false));
        let block = |member: usize| {
            let mut block = vec![None; 3];
            block[member] = slot(member as f64);
            Some(block)
        };
        let begun = add_block_to_cell(Some(vec![None; 3]), 2, block(2));
        assert_eq!(add_block_to_cell(begun.clone(), 0, block(0)), Some(vec![slot(0.0), None, slot(2.0)]));
        assert_eq!(add_block_to_cell(add_block_to_cell(begun, 0, None), 1, block(1)), None);
    }

    #[test]
    fn each_way_is_sent_as_often_as_any_other_with_all_of_its_requests() {
        let segment =
            Segment::new(VariantOrder::Interleaved, vec![0, 2], 100.0, SegmentTimes::DEFAULT_DURATIONS, 3);
        // The first variant has two requests, the other one has one.
        let order = order(&segment, &[0, 0, 2], 100.0);
        assert!(order.len() >= 1020);
        let count = |place| order.iter().filter(|&&at| at == place).count();
        assert_eq!((count(0) + count(1), count(0)), (count(2), count(1) + count(2) % 2));
        assert!(order.windows(2).any(|pair| pair == [2, 2]), "not simply in turn");
    }
}
