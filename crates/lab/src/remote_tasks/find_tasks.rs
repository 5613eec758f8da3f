//! The tasks of a search and of an inquiry, and the results of one generator's part of each.
//!
//! The blocks of all parts add up to those of the whole trial, and so do the figures for readers. The requests of an experiment
//! are reported after its end, as far as there is room for them.

use std::time::Duration;

use seawall_cause::experiment::Experiment;
use seawall_cause::observed_requests::ExperimentObservation;
use seawall_load::interval::{CompactInterval, IntervalStats};
use seawall_load::stats::LoadStats;
use seawall_search::observation::{BlockCounts, TrialObservation};
use seawall_search::trial_spec::TrialSpec;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::packed_json::{pack, unpack};
use super::serde_mirrors::{BlockRow, ExperimentMirror, ObservedRequestRow, TrialSpecMirror};
use crate::target_driver::Calibration;

/// The most bytes for the requests of one part.
const MOST_OF_HITS: usize = 2 << 20;

/// A task for a generator.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SearchTask {
    /// Run a part of a trial.
    Offer(#[serde(with = "TrialSpecMirror")] TrialSpec),
    /// Run a part of an experiment.
    Experiment(#[serde(with = "ExperimentMirror")] Experiment),
    /// Measure the capacity of this generator.
    Calibrate,
    /// Close all connections to the target.
    HangUp,
}

/// The result of a task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SearchTaskResult {
    /// The result of a trial.
    Offer(Box<TrialPartResult>),
    /// The result of an experiment.
    Experiment(ExperimentPartResult),
    /// The result of a calibration.
    Calibrated(CalibrationResult),
    /// The connections are closed.
    HungUp,
}

/// Complete blocks, in order and without a gap.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct BlockList(pub Vec<BlockCounts>);

impl Serialize for BlockList {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().map(BlockRow::from))
    }
}

impl<'de> Deserialize<'de> for BlockList {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let rows = Vec::<BlockRow>::deserialize(deserializer)?;
        Ok(Self(rows.into_iter().map(BlockCounts::from).collect()))
    }
}

impl BlockList {
    /// Adds up the blocks of parts that were sent at the same time, as far as all of them are known.
    #[must_use]
    pub fn merge(parts: &[&[BlockCounts]]) -> Vec<BlockCounts> {
        let complete = parts.iter().map(|part| part.len()).min().unwrap_or(0);
        (0..complete)
            .map(|at| parts.iter().map(|part| part[at]).fold(BlockCounts::default(), beside))
            .collect()
    }
}

fn beside(one: BlockCounts, other: BlockCounts) -> BlockCounts {
    BlockCounts {
        sent: one.sent.saturating_add(other.sent),
        good: one.good.saturating_add(other.good),
        errors: one.errors.saturating_add(other.errors),
        timely: one.timely.saturating_add(other.timely),
        late: one.late.saturating_add(other.late),
        in_flight: one.in_flight.saturating_add(other.in_flight),
        latency_sum: one.latency_sum + other.latency_sum,
        slowest: one.slowest.max(other.slowest),
    }
}

/// The observations of a part of a trial, without its blocks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrialPartResult {
    /// The duration, with the wait for outstanding responses.
    pub took: Duration,
    /// The reason why the part is invalid because of this generator, in words.
    pub invalid: Option<String>,
    /// The requests for which this generator had no free port.
    pub no_port: u64,
    /// True if the target was down at the end.
    pub away: bool,
    /// True if everything is to stop.
    pub interrupted: bool,
    /// All figures at full resolution.
    #[serde(serialize_with = "whole")]
    pub total: IntervalStats,
}

fn whole<S: Serializer>(total: &IntervalStats, serializer: S) -> Result<S::Ok, S::Error> {
    CompactInterval::exact(total).serialize(serializer)
}

impl TrialPartResult {
    /// Creates the result from the observations of a driver.
    #[must_use]
    pub fn new(seen: TrialObservation, stats: LoadStats) -> Self {
        let TrialObservation {
            took,
            invalid_reason: invalid,
            requests_without_port: no_port,
            target_is_down: away,
            interrupted,
            ..
        } = seen;
        let to = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        Self { took, invalid, no_port, away, interrupted, total: IntervalStats { from: 0, to, stats } }
    }
}

/// The observations of a part of an experiment.
#[derive(Debug, Clone, PartialEq)]
pub struct ExperimentPartResult(pub ExperimentObservation);

/// The observations of a part of an experiment as one line.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct TriedLine {
    hits: String,
    connections: u64,
    retried: u64,
    lookups: Vec<f64>,
    held: usize,
    took: Duration,
    invalid: Option<String>,
    impossible: Option<String>,
    interrupted: bool,
}

impl Serialize for ExperimentPartResult {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let told = &self.0;
        let hits = pack(&told.requests.iter().map(ObservedRequestRow::from).collect::<Vec<_>>());
        let hits = hits.filter(|hits| hits.len() <= MOST_OF_HITS);
        let too_many = hits.is_none().then(|| {
            format!("the requests of this pod are too many for its report: {}", told.requests.len())
        });
        TriedLine {
            hits: hits.unwrap_or_default(),
            connections: told.opened_connection_count,
            retried: told.silent_retry_count,
            lookups: told.seconds_of_each_lookup.clone(),
            held: told.held_connections_still_open,
            took: told.took,
            invalid: told.invalid_reason.clone().or(too_many),
            impossible: told.impossible_reason.clone(),
            interrupted: told.interrupted,
        }
        .serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for ExperimentPartResult {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let line = TriedLine::deserialize(deserializer)?;
        let rows: Vec<ObservedRequestRow> = match line.hits.as_str() {
            "" => Vec::new(),
            hits => unpack(hits).ok_or_else(|| serde::de::Error::custom("expected requests in base64"))?,
        };
        Ok(Self(ExperimentObservation {
            requests: rows.into_iter().map(Into::into).collect(),
            opened_connection_count: line.connections,
            silent_retry_count: line.retried,
            seconds_of_each_lookup: line.lookups,
            held_connections_still_open: line.held,
            took: line.took,
            invalid_reason: line.invalid,
            impossible_reason: line.impossible,
            interrupted: line.interrupted,
        }))
    }
}

impl ExperimentPartResult {
    /// Merges the parts of one experiment. Requests are in the order of their due times, counted from the first. Connections of
    /// different parts stay apart.
    #[must_use]
    pub fn merge(parts: Vec<Self>) -> ExperimentObservation {
        let mut all = ExperimentObservation::default();
        for (place, Self(part)) in (0_u64..).zip(parts) {
            // No generator opens that many connections in one experiment.
            let number = |number: u64| (place << 32) | (number & u64::from(u32::MAX));
            all.requests.extend(part.requests.into_iter().map(|mut hit| {
                hit.carrying_connection
                    .iter_mut()
                    .for_each(|carrier| carrier.number = number(carrier.number));
                hit
            }));
            all.opened_connection_count =
                all.opened_connection_count.saturating_add(part.opened_connection_count);
            all.silent_retry_count = all.silent_retry_count.saturating_add(part.silent_retry_count);
            all.seconds_of_each_lookup.extend(part.seconds_of_each_lookup);
            all.held_connections_still_open += part.held_connections_still_open;
            all.took = all.took.max(part.took);
            all.invalid_reason = all.invalid_reason.or(part.invalid_reason);
            all.impossible_reason = all.impossible_reason.or(part.impossible_reason);
            all.interrupted |= part.interrupted;
        }
        all.requests.sort_by(|one, other| one.due.total_cmp(&other.due));
        let first = all.requests.first().map_or(0.0, |hit| hit.due);
        for hit in &mut all.requests {
            hit.due -= first;
            hit.end -= first;
            hit.sent = hit.sent.map(|sent| sent - first);
        }
        all
    }
}

/// A [`Calibration`] with the number of clients that the generator can keep busy.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CalibrationResult {
    /// The requests per second that the generator can send by itself; none if unknown.
    pub most: Option<f64>,
    /// The method of the measurement.
    pub how: String,
    /// The duration of the measurement.
    pub took: Duration,
    /// True if everything is to stop.
    pub interrupted: bool,
    /// The most clients that the generator can keep busy.
    pub clients: u32,
}

impl CalibrationResult {
    /// Creates the result of a driver that keeps at most this many clients busy.
    #[must_use]
    pub fn new(calibration: Calibration, clients: u32) -> Self {
        let Calibration { max_rate: most, explanation: how, took, interrupted } = calibration;
        Self { most, how, took, interrupted, clients }
    }
}

#[cfg(test)]
mod tests {
    use seawall_cause::experiment::{ExperimentLoad, RequestSpacing, Variation};
    use seawall_cause::observed_requests::{ObservedOutcome, ObservedRequest, RequestConnection};
    use seawall_search::goal::{LatencyGoal, SearchGoal};
    use seawall_search::trial_spec::{StopRule, TrialPurpose};
    use seawall_search::trial_verdict::TrialCriteria;

    use super::*;

    fn again<T: Serialize + serde::de::DeserializeOwned>(value: &T) -> T {
        serde_json::from_str(&serde_json::to_string(value).unwrap()).unwrap()
    }

    #[test]
    fn works_are_read_as_they_were_written() {
        let late = Some(LatencyGoal { max_late_share: 0.01, latency_limit: Duration::from_millis(250) });
        let goal = SearchGoal { max_error_share: 0.001, latency_goal: late };
        let standard = TrialCriteria {
            goal,
            growth_tolerance: 0.1,
            settle: 0.3,
            min_settled_seconds_for_good: 2.0,
            service_time: 1.0 / 3.0,
            baseline_slowest: 0.9,
        };
        let (least, most) = (Duration::from_secs(2), Duration::from_secs(20));
        for rule in [
            StopRule::FullDurationUnlessBad(standard),
            StopRule::Decided(standard),
            StopRule::FailingShare(0.5),
            StopRule::FastResponses(0.1),
        ] {
            let (purpose, drain) = (TrialPurpose::NarrowBracket, Duration::from_millis(300));
            let offer = TrialSpec {
                purpose,
                rate: 1e3 / 7.0,
                min_duration: least,
                max_duration: most,
                rule,
                in_flight_cap: 99.5,
                drain,
            };
            assert_eq!(again(&SearchTask::Offer(offer)), SearchTask::Offer(offer));
        }
        let (rule, purpose, drain) =
            (StopRule::FastResponses(f64::INFINITY), TrialPurpose::RecoveryProbe, Duration::ZERO);
        let offer = TrialSpec {
            purpose,
            rate: 1.0,
            min_duration: least,
            max_duration: most,
            rule,
            in_flight_cap: f64::INFINITY,
            drain,
        };
        assert_eq!(again(&SearchTask::Offer(offer)), SearchTask::Offer(offer), "without a bound");
        let loads = [
            ExperimentLoad::Rate { rate: 7.1, lasts: most, spacing: RequestSpacing::Poisson },
            ExperimentLoad::Clients { clients: 7, lasts: most, requests: 99 },
            ExperimentLoad::Bursts { size: 7, times: 3, every: least, quiet: most },
        ];
        for load in loads {
            let variation = Variation { keep_alive: Some(false), timeout: Some(most), ..Variation::NONE };
            // The protocol does not send the name, which is for reports.
            let tried = Experiment { name: "", load, variation, in_flight_cap: 5, drain: least };
            assert_eq!(again(&SearchTask::Experiment(tried.clone())), SearchTask::Experiment(tried));
        }
        assert_eq!(
            again(&[SearchTask::Calibrate, SearchTask::HangUp]),
            [SearchTask::Calibrate, SearchTask::HangUp]
        );
    }

    fn hit(due: f64, number: u64) -> ObservedRequest {
        let carrier = Some(RequestConnection {
            number,
            earlier_requests_on_connection: 2,
            first_byte: Some(0.1),
            ..RequestConnection::default()
        });
        ObservedRequest {
            due,
            sent: Some(due + 0.1),
            generator_lag: 0.01,
            end: due + 1.0,
            outcome: ObservedOutcome::BadResponse(503),
            bytes: 5,
            carrying_connection: carrier,
        }
    }

    #[test]
    fn an_experiment_in_parts_is_one_in_the_order_in_which_requests_were_due() {
        let part = |hits: Vec<ObservedRequest>| {
            ExperimentPartResult(ExperimentObservation {
                requests: hits,
                opened_connection_count: 2,
                ..ExperimentObservation::default()
            })
        };
        let parts = vec![part(vec![hit(1.0, 1), hit(3.0, 2)]), part(vec![hit(2.0, 1)])];
        assert_eq!(parts.iter().map(again).collect::<Vec<_>>(), parts);
        let all = ExperimentPartResult::merge(parts);
        assert_eq!(all.requests.iter().map(|hit| hit.due).collect::<Vec<_>>(), [0.0, 1.0, 2.0]);
        assert_eq!((all.opened_connection_count, all.requests[1].end), (4, 2.0));
        let mut numbers: Vec<_> =
            all.requests.iter().filter_map(|hit| Some(hit.carrying_connection?.number)).collect();
        numbers.dedup();
        assert_eq!(numbers.len(), 3, "connections of two generators are two");
    }

    #[test]
    fn hits_for_which_there_is_no_room_are_not_told_and_that_is_said() {
        let mut random = 1_u64;
        let mut next = || {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (random >> 11) as f64 / 1e9
        };
        let mut one = |number| ObservedRequest {
            generator_lag: next(),
            end: next(),
            sent: Some(next()),
            ..hit(next(), number)
        };
        let hits: Vec<_> = (0..60_000).map(&mut one).collect();
        let told = again(&ExperimentPartResult(ExperimentObservation {
            requests: hits,
            ..ExperimentObservation::default()
        }))
        .0;
        assert_eq!(told.requests.len(), 0);
        assert!(told.invalid_reason.is_some_and(|why| why.ends_with("too many for its report: 60000")));
    }

    #[test]
    fn blocks_of_parts_are_those_of_the_whole_as_far_as_all_have_come() {
        let block = |sent, latency| BlockCounts {
            sent,
            latency_sum: latency,
            slowest: latency,
            ..BlockCounts::default()
        };
        let (one, other) = ([block(1, 0.5), block(2, 1.0)], [block(3, 0.25)]);
        let together = BlockList::merge(&[&one, &other]);
        assert_eq!(together, [BlockCounts { slowest: 0.5, ..block(4, 0.75) }]);
        let read = again(&BlockList(one.to_vec()));
        assert_eq!(read.0, one);
    }
}
