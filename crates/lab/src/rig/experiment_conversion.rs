//! Translates experiments into loads of the engine, and the results of the engine into observations. These functions are pure.

use std::io::ErrorKind;
use std::time::Duration;

use seawall_cause::experiment::{self, Experiment};
use seawall_cause::observed_requests::{ObservedOutcome, ObservedRequest, RequestConnection};
use seawall_load::clock::{Nanos, nanos};
use seawall_load::completed_request::CompletedRequest;
use seawall_load::latency_distribution::Distribution;
use seawall_load::plan::LoadSpec;
use seawall_load::rate::RequestRate;
use seawall_load::record;
use seawall_load::request_failure_reason::{OutcomeClass, RequestFault, TlsFault, WrongAnswer};
use seawall_load::schedule::{ArrivalModel, ArrivalSpacing, Schedule, StopCondition};

use super::blocks::ENGINE_INTERVAL;
use super::late_send_bursts::{LateBurstErrorTally, LateSendBursts};
use crate::generator_resources::MOST_IN_FLIGHT;

/// The most requests of one experiment. Each takes some hundred bytes during the analysis, and more requests show nothing more.
const MOST_HITS: u64 = 1 << 20;

/// The most lookups of one experiment that are reported.
const MOST_LOOKUPS: usize = 10_000;

/// The room in flight above the limit of an experiment, in seconds of its rate, for the requests until the limit is noticed.
const MARGIN: f64 = 0.25;
/// The least room in flight above the limit of an experiment, in requests, for low rates.
const LEAST_MARGIN: usize = 64;

/// Returns the rate for the engine, at least a thousandth of a request per second; none if the engine cannot send it.
pub(crate) fn to_request_rate(per_second: f64) -> Option<RequestRate> {
    RequestRate::from_per_second(per_second.max(0.001))
}

/// Returns the load of an experiment; none if its numbers exceed the engine's limits.
pub(super) fn load_spec(experiment: &Experiment, seed: u64) -> Option<LoadSpec> {
    let (arrivals, until, in_flight) = match experiment.load {
        experiment::ExperimentLoad::Rate { rate: per_second, lasts, spacing } => {
            let spacing = match spacing {
                experiment::RequestSpacing::Constant => ArrivalSpacing::Constant,
                experiment::RequestSpacing::Poisson => ArrivalSpacing::Poisson(seed),
            };
            let arrivals = ArrivalModel::Open(Schedule::constant(to_request_rate(per_second)?, spacing));
            let margin = (per_second * MARGIN) as usize;
            (
                arrivals,
                StopCondition { stop_time: nanos(lasts), max_requests: MOST_HITS },
                experiment.in_flight_cap.saturating_add(margin),
            )
        }
        experiment::ExperimentLoad::Clients { clients, lasts, requests } => (
            ArrivalModel::Closed,
            StopCondition { stop_time: nanos(lasts), max_requests: requests.min(MOST_HITS) },
            clients,
        ),
        experiment::ExperimentLoad::Bursts { size, times, every, .. } => {
            let burst =
                Schedule::constant(RequestRate::new(size, nanos(every))?, ArrivalSpacing::Burst(size));
            let hits = size.saturating_mul(times).min(MOST_HITS);
            let room = usize::try_from(size).unwrap_or(usize::MAX).max(experiment.in_flight_cap);
            (
                ArrivalModel::Open(burst),
                StopCondition { max_requests: hits, ..StopCondition::default() },
                room,
            )
        }
    };
    let (margin, pause) = match arrivals {
        ArrivalModel::Open(_) => (LEAST_MARGIN, Duration::ZERO),
        // A client that is refused at once would otherwise send thousands of requests per second.
        ArrivalModel::Closed => (0, super::closed_loop::MIN_FAILURE_PAUSE),
    };
    let load = LoadSpec {
        stop_condition: until,
        failure_pause: pause,
        ..LoadSpec::new(arrivals, in_flight.saturating_add(margin))
    };
    Some(record_every_request(load, experiment.drain))
}

/// Makes the engine report every request of a load, and wait at most `drain` for outstanding requests.
pub(crate) fn record_every_request(mut load: LoadSpec, drain: Duration) -> LoadSpec {
    let most = usize::try_from(MOST_IN_FLIGHT).unwrap_or(usize::MAX);
    load.in_flight_limit.limit = load.in_flight_limit.limit.clamp(1, most);
    LoadSpec { interval: ENGINE_INTERVAL, report_each_request: true, drain_timeout: Some(drain), ..load }
}

/// Returns the requests per second that decide how many threads send.
pub(super) fn request_rate(experiment: &Experiment) -> f64 {
    match experiment.load {
        experiment::ExperimentLoad::Rate { rate, .. } => rate,
        experiment::ExperimentLoad::Clients { .. } | experiment::ExperimentLoad::Bursts { .. } => 0.0,
    }
}

/// Returns the silence before the load.
pub(super) fn quiet_period(experiment: &Experiment) -> Duration {
    match experiment.load {
        experiment::ExperimentLoad::Bursts { quiet, .. } => quiet,
        experiment::ExperimentLoad::Rate { .. } | experiment::ExperimentLoad::Clients { .. } => {
            Duration::ZERO
        }
    }
}

/// Removes failures in or right after late bursts of this machine. In a load of bursts, bursts are intended. `parts` is the
/// number of generators that share the rate.
pub(super) fn exclude_late_burst_failures(
    experiment: &Experiment,
    parts: f64,
    fates: &mut Vec<CompletedRequest>,
) -> LateBurstErrorTally {
    let experiment::ExperimentLoad::Rate { rate, .. } = experiment.load else {
        return LateBurstErrorTally::default();
    };
    let mut bunches = LateSendBursts::new(rate / parts);
    bunches.record(fates);
    fates.retain(|fate| !bunches.excludes(fate));
    bunches.tally()
}

/// Returns the number of these requests that found no free port.
pub(super) fn count_without_port(fates: &[CompletedRequest]) -> u64 {
    fates.iter().filter(|fate| observed_outcome(fate) == ObservedOutcome::NoPort).count() as u64
}

/// Returns the sent requests in the order of their due times. Their times count from the first of them, or from the start of the
/// load if this is a part of it.
pub(super) fn observed_requests(mut fates: Vec<CompletedRequest>, is_part: bool) -> Vec<ObservedRequest> {
    fates.retain(|fate| fate.outcome.err().is_none_or(RequestFault::was_attempted));
    fates.sort_by_key(|fate| fate.due);
    let first = fates.first().filter(|_| !is_part).map_or(0, |fate| fate.due);
    fates.iter().map(|fate| hit(fate, first)).collect()
}

fn hit(fate: &CompletedRequest, first: Nanos) -> ObservedRequest {
    let since = |at: Nanos| seconds(at.saturating_sub(first));
    ObservedRequest {
        due: since(fate.due),
        sent: fate.sent_at.map(since),
        generator_lag: seconds(fate.generator_lag),
        end: since(fate.end),
        outcome: observed_outcome(fate),
        bytes: fate.response_body_bytes,
        carrying_connection: fate.connection_timings.map(carrier),
    }
}

fn carrier(told: record::ConnectionTimings) -> RequestConnection {
    RequestConnection {
        number: told.connection_id,
        earlier_requests_on_connection: told.reuse_count,
        idle: seconds(told.idle),
        connect: seconds(told.connect),
        tls_handshake_seconds: told.tls.map(seconds),
        first_byte: told.first_byte.map(seconds),
        // The kept data of a response does not name its server.
    }
}

fn seconds(nanos: Nanos) -> f64 {
    Duration::from_nanos(nanos).as_secs_f64()
}

/// Returns the outcome of a request as an experiment sees it.
pub(super) fn observed_outcome(fate: &CompletedRequest) -> ObservedOutcome {
    match fate.outcome {
        Ok(status) if OutcomeClass::of_status(status) == OutcomeClass::Good => ObservedOutcome::Good,
        Ok(status) => ObservedOutcome::BadResponse(status),
        Err(fault) => of_fault(fault, fate.sent_at.is_some()),
    }
}

fn of_fault(fault: RequestFault, was_sent: bool) -> ObservedOutcome {
    match fault {
        RequestFault::Resolve(_) => ObservedOutcome::NameUnresolved,
        RequestFault::Connect(kind) => of_connecting(kind),
        RequestFault::Local(ErrorKind::AddrNotAvailable | ErrorKind::AddrInUse)
        | RequestFault::SourceAddress(_, ErrorKind::AddrNotAvailable | ErrorKind::AddrInUse) => {
            ObservedOutcome::NoPort
        }
        RequestFault::Tls(TlsFault::Closed) | RequestFault::ClosedEarly | RequestFault::Truncated => {
            ObservedOutcome::Cut
        }
        RequestFault::ConnectionIoError(kind) => of_breaking(kind),
        RequestFault::Timeout => ObservedOutcome::TimedOut,
        RequestFault::Deadline if was_sent => ObservedOutcome::TimedOut,
        RequestFault::NoConnection | RequestFault::Deadline => ObservedOutcome::ConnectTimedOut,
        RequestFault::Aborted => ObservedOutcome::UnansweredAtEnd,
        RequestFault::WrongAnswer(wrong) => ObservedOutcome::BadResponse(status_of(wrong)),
        RequestFault::Local(_)
        | RequestFault::SourceAddress(..)
        | RequestFault::Tls(_)
        | RequestFault::Proxy(_)
        | RequestFault::Head(_)
        | RequestFault::InvalidChunks
        | RequestFault::Http2
        | RequestFault::NotHttp2
        | RequestFault::RefusedStream
        | RequestFault::TooManyRedirects
        | RequestFault::BadLocation
        | RequestFault::InvalidFilledTemplate
        | RequestFault::DeadlineBeforeSend
        | RequestFault::Dropped => ObservedOutcome::OtherFailureWithoutResponse,
    }
}

/// Returns the status with which a plain HTTP server would have refused the request, because a wrong answer is a refusal without
/// a telling status. gRPC codes map to a status as in its gateway (grpc-gateway, `runtime/errors.go`, `HTTPStatusFromCode`).
fn status_of(wrong: WrongAnswer) -> u16 {
    match wrong {
        WrongAnswer::Grpc(4) => 504,
        WrongAnswer::Grpc(8) => 429,
        WrongAnswer::Grpc(14) => 503,
        WrongAnswer::Grpc(2 | 13 | 15) | WrongAnswer::UnknownGrpcStatus | WrongAnswer::NoGrpcStatus => 500,
        WrongAnswer::Grpc(_)
        | WrongAnswer::Condition(_)
        | WrongAnswer::BodyTooLong
        | WrongAnswer::BodyCompressed => 200,
    }
}

/// Returns the outcome of a failed connect. A server that accepts and closes at once causes a reset during the connect.
fn of_connecting(kind: ErrorKind) -> ObservedOutcome {
    match kind {
        ErrorKind::ConnectionRefused => ObservedOutcome::ConnectionRefused,
        ErrorKind::TimedOut => ObservedOutcome::ConnectTimedOut,
        ErrorKind::ConnectionReset | ErrorKind::ConnectionAborted => ObservedOutcome::Cut,
        ErrorKind::AddrNotAvailable | ErrorKind::AddrInUse => ObservedOutcome::NoPort,
        _ => ObservedOutcome::OtherFailureWithoutResponse,
    }
}

/// Returns the outcome of a broken connection. The kernel itself gives up on a peer that acknowledges nothing.
fn of_breaking(kind: ErrorKind) -> ObservedOutcome {
    match kind {
        ErrorKind::TimedOut => ObservedOutcome::TimedOut,
        ErrorKind::ConnectionReset
        | ErrorKind::ConnectionAborted
        | ErrorKind::BrokenPipe
        | ErrorKind::NotConnected
        | ErrorKind::UnexpectedEof => ObservedOutcome::Cut,
        _ => ObservedOutcome::OtherFailureWithoutResponse,
    }
}

/// Returns the durations of the lookups, in seconds and to three digits, in order of duration.
pub(super) fn lookup_seconds(times: &Distribution) -> Vec<f64> {
    let each = times.buckets().flat_map(|(value, count)| {
        std::iter::repeat_n(seconds(value), usize::try_from(count).unwrap_or(usize::MAX))
    });
    each.take(MOST_LOOKUPS).collect()
}

#[cfg(test)]
mod tests {
    use seawall_cause::experiment::Variation;
    use seawall_load::request_failure_reason::NameFault;
    use seawall_load::stats::LatencyHistogram;

    use super::*;

    fn experiment(load: experiment::ExperimentLoad) -> Experiment {
        let drain = Duration::from_millis(300);
        Experiment { name: "a test", load, variation: Variation::NONE, in_flight_cap: 100, drain }
    }

    #[test]
    fn bursts_are_due_all_at_one_instant_and_as_often_as_is_asked() {
        let every = Duration::from_millis(250);
        let bursts = experiment::ExperimentLoad::Bursts { size: 700, times: 3, every, quiet: Duration::ZERO };
        let load = load_spec(&experiment(bursts), 1).unwrap();
        let ArrivalModel::Open(schedule) = &load.arrivals else {
            panic!("a burst does not wait for answers")
        };
        let before = |at| schedule.hits_before(nanos(at)).min(load.stop_condition.max_requests);
        let told = [Duration::from_nanos(1), every, every + Duration::from_nanos(1), every * 9].map(before);
        assert_eq!(told, [700, 700, 1400, 2100]);
        assert!(load.in_flight_limit.limit > 700, "none waits for room");
        assert_eq!((load.report_each_request, load.drain_timeout), (true, Some(Duration::from_millis(300))));
    }

    #[test]
    fn clients_send_no_more_than_they_may_and_a_rate_no_longer() {
        let lasts = Duration::from_secs(2);
        let clients = load_spec(
            &experiment(experiment::ExperimentLoad::Clients { clients: 7, lasts, requests: 30 }),
            1,
        )
        .unwrap();
        assert_eq!(
            (clients.in_flight_limit.limit, clients.stop_condition),
            (7, StopCondition { stop_time: nanos(lasts), max_requests: 30 })
        );
        let spacing = experiment::RequestSpacing::Poisson;
        let paced = experiment::ExperimentLoad::Rate { rate: 220.000_000_000_000_03, lasts, spacing };
        let paced = load_spec(&experiment(paced), 9).unwrap();
        let ArrivalModel::Open(schedule) = &paced.arrivals else {
            panic!("a rate does not wait for answers")
        };
        assert_eq!((schedule.spacing(), schedule.peak()), (ArrivalSpacing::Poisson(9), 220.0));
        assert_eq!(paced.stop_condition.stop_time, nanos(lasts));
    }

    /// Regression: two connections to a limiter that refuses in 0.1 ms sent 20,000 requests per second, whatever --max-rate said.
    #[test]
    fn clients_that_are_refused_wait_before_they_ask_again() {
        let clients =
            experiment::ExperimentLoad::Clients { clients: 2, lasts: Duration::from_secs(4), requests: 1800 };
        assert!(load_spec(&experiment(clients), 1).unwrap().failure_pause >= Duration::from_millis(10));
    }

    #[test]
    fn numbers_beyond_the_engines_make_no_load() {
        let spacing = experiment::RequestSpacing::Constant;
        for rate in [f64::INFINITY, 1e30] {
            let load = load_spec(
                &experiment(experiment::ExperimentLoad::Rate { rate, lasts: Duration::MAX, spacing }),
                1,
            );
            assert!(load.is_none(), "{rate}");
        }
    }

    #[test]
    fn each_failure_is_what_the_client_sees_of_it() {
        let how = |fault| of_fault(fault, true);
        let cases = [
            (RequestFault::Resolve(NameFault::Busy), ObservedOutcome::NameUnresolved),
            (RequestFault::Connect(ErrorKind::ConnectionRefused), ObservedOutcome::ConnectionRefused),
            (RequestFault::Connect(ErrorKind::TimedOut), ObservedOutcome::ConnectTimedOut),
            (RequestFault::Local(ErrorKind::AddrNotAvailable), ObservedOutcome::NoPort),
            (RequestFault::Local(ErrorKind::Other), ObservedOutcome::OtherFailureWithoutResponse),
            (RequestFault::NoConnection, ObservedOutcome::ConnectTimedOut),
            (RequestFault::ClosedEarly, ObservedOutcome::Cut),
            (RequestFault::Truncated, ObservedOutcome::Cut),
            (RequestFault::ConnectionIoError(ErrorKind::ConnectionReset), ObservedOutcome::Cut),
            (RequestFault::Timeout, ObservedOutcome::TimedOut),
            (RequestFault::Aborted, ObservedOutcome::UnansweredAtEnd),
            (RequestFault::InvalidChunks, ObservedOutcome::OtherFailureWithoutResponse),
            (RequestFault::WrongAnswer(WrongAnswer::BodyTooLong), ObservedOutcome::BadResponse(200)),
            (RequestFault::WrongAnswer(WrongAnswer::Grpc(8)), ObservedOutcome::BadResponse(429)),
        ];
        for (fault, expected) in cases {
            assert_eq!(how(fault), expected, "{fault}");
        }
        assert_eq!(of_fault(RequestFault::Deadline, false), ObservedOutcome::ConnectTimedOut);
    }

    #[test]
    fn what_fails_in_a_bunch_is_left_out_unless_bursts_were_asked_for() {
        let lasts = Duration::from_secs(1);
        let fate = |generator_lag| CompletedRequest {
            target_index: 0,
            due: 0,
            sent_at: None,
            generator_lag,
            end: 90_000_000,
            outcome: Ok(503),
            response_body_bytes: 0,
            retries: 0,
            connection_timings: None,
        };
        let left = |load| {
            let mut fates = vec![fate(50_000_000), fate(0)];
            exclude_late_burst_failures(&experiment(load), 1.0, &mut fates);
            fates.len()
        };
        let spacing = experiment::RequestSpacing::Constant;
        let bursts =
            experiment::ExperimentLoad::Bursts { size: 100, times: 1, every: lasts, quiet: Duration::ZERO };
        assert_eq!(left(experiment::ExperimentLoad::Rate { rate: 100.0, lasts, spacing }), 1);
        assert_eq!(left(experiment::ExperimentLoad::Clients { clients: 2, lasts, requests: 9 }), 2);
        assert_eq!(left(bursts), 2);
    }

    #[test]
    fn hits_are_in_the_order_in_which_they_were_due_and_count_from_the_first() {
        let fate = |due, outcome| CompletedRequest {
            target_index: 0,
            due,
            sent_at: None,
            generator_lag: 0,
            end: due + 500,
            outcome,
            response_body_bytes: 1,
            retries: 0,
            connection_timings: None,
        };
        let ended = vec![fate(3_000, Ok(503)), fate(1_000, Ok(200)), fate(2_000, Err(RequestFault::Dropped))];
        assert_eq!(observed_requests(ended.clone(), true).first().map(|hit| hit.due), Some(1e-6));
        let told = observed_requests(ended, false);
        let told: Vec<_> = told.iter().map(|hit| (hit.due, hit.end, hit.outcome)).collect();
        assert_eq!(
            told,
            [(0.0, 5e-7, ObservedOutcome::Good), (2e-6, 2.5e-6, ObservedOutcome::BadResponse(503))]
        );
    }

    #[test]
    fn lookups_are_told_one_by_one() {
        let mut times = LatencyHistogram::default();
        [1_000_000, 1_000_000, 30_000_000].into_iter().for_each(|time| times.record(time));
        let told: Vec<_> =
            lookup_seconds(times.distribution()).iter().map(|time| (time * 1e3).round()).collect();
        assert_eq!(told, [1.0, 1.0, 30.0]);
    }
}
