//! Estimates how large a cause is, such as its bucket, places, connections or times. These are pure functions of the experiments, called
//! for the named causes.

use crate::class::CauseClass;
use crate::diagnosis_input::{DiagnosisInput, ValidExperiment};
use crate::experiment::ExperimentLoad;
use crate::experiment_stats::{ExperimentStats, SortedSamples, stalls};
use crate::observed_requests::{ObservedOutcome, ObservedRequest, RequestConnection};
use crate::report::CauseFigure;

/// Estimates the sizes of a cause from the experiments.
#[must_use]
pub fn estimate_cause_figures(class: CauseClass, case: &DiagnosisInput<'_>) -> Vec<CauseFigure> {
    match class {
        CauseClass::RateLimiter | CauseClass::HangingLimiter => bucket(case),
        CauseClass::DelayingLimiter => [figure("refill", goodput(case), "requests/s"), queue(case)].concat(),
        CauseClass::PoolSaturation => [workers(case), queue(case)].concat(),
        CauseClass::CpuSaturation => figure("served at once", served(case), ""),
        CauseClass::CfsThrottling => {
            [figure("share of a core", served(case), ""), figure("period", Some(0.1), "s")].concat()
        }
        CauseClass::ConcurrencyCap => cap(case),
        CauseClass::ConnectionCap => connections(case),
        CauseClass::ChurnCost => handshake(case),
        CauseClass::KeepAliveRace => race(case),
        CauseClass::TimeoutChain => chain(case),
        CauseClass::Pauses => pauses(case),
        CauseClass::UnevenBalancing => uneven(case),
        CauseClass::Dns => figure("lookup", lookups(case), "s"),
        CauseClass::Ports => ports(case),
        CauseClass::Bandwidth => bandwidth(case),
        CauseClass::Generator | CauseClass::Unknown => Vec::new(),
    }
}

fn figure(name: &'static str, value: Option<f64>, unit: &'static str) -> Vec<CauseFigure> {
    value
        .filter(|value| value.is_finite())
        .map(|value| CauseFigure { name, value, unit })
        .into_iter()
        .collect()
}

fn goodput(case: &DiagnosisInput<'_>) -> Option<f64> {
    case.strongest_overload().map(|over| over.stats.goodput())
}

/// Returns the time of the first refused or hanging request, and the number of requests before it.
fn first_failure(done: &ValidExperiment<'_>) -> Option<(f64, f64)> {
    let at =
        done.stats.requests.iter().position(|hit| hit.outcome.is_bad_response() || hit.outcome.hangs())?;
    let due = done.stats.requests.get(at)?.due;
    Some((due, at as f64))
}

fn bucket(case: &DiagnosisInput<'_>) -> Vec<CauseFigure> {
    let Some(over) = case.strongest_overload() else { return Vec::new() };
    let Some((time, admitted)) = first_failure(&over) else { return Vec::new() };
    let span = over.stats.span();
    let later = over.stats.good_requests().filter(|hit| hit.due > time).count() as f64;
    // If the load lasted too short after the first failure, the limit of the search is a better estimate of the fill rate.
    let fill = if span - time > 0.5 { later / (span - time) } else { case.search_findings.limit_rate };
    // A target that admits nothing more has no fill rate.
    if fill <= 0.0 {
        return Vec::new();
    }
    let size = (admitted - fill * time).max(1.0).round();
    [figure("burst allowance", Some(size), "requests"), figure("refill", Some(fill), "requests/s")].concat()
}

fn served(case: &DiagnosisInput<'_>) -> Option<f64> {
    let many = case.last_experiment_named("many clients")?.stats;
    Some(many.closed_loop_goodput() * case.work_time())
}

fn workers(case: &DiagnosisInput<'_>) -> Vec<CauseFigure> {
    let workers = served(case).unwrap_or(case.in_flight_at_limit());
    figure("workers", Some(workers.round().max(1.0)), "")
}

/// Returns the number of requests that wait in the queue before the target refuses one.
fn queue(case: &DiagnosisInput<'_>) -> Vec<CauseFigure> {
    let Some(over) = case.strongest_overload() else { return Vec::new() };
    let refused =
        over.stats.requests.iter().filter(|hit| hit.outcome.is_bad_response()).filter_map(|hit| hit.sent);
    let waiting =
        SortedSamples::of(refused.take(50).map(|at| over.stats.good_requests_in_flight_at(at))).median();
    let room = waiting - case.in_flight_at_limit();
    figure("queue", (waiting > 0.0).then_some(room.round().max(0.0)), "requests")
}

fn cap(case: &DiagnosisInput<'_>) -> Vec<CauseFigure> {
    let Some(over) = case.strongest_overload() else { return Vec::new() };
    let refused =
        over.stats.requests.iter().filter(|hit| hit.outcome.is_bad_response()).filter_map(|hit| hit.sent);
    let places =
        SortedSamples::of(refused.take(200).map(|at| over.stats.good_requests_in_flight_at(at))).median();
    // By Erlang B, ten places refuse one request in a thousand at 0.31 of their capacity; with more places this share rises.
    let places_figure = figure("places", (places > 0.0).then_some(places), "requests");
    let safe = concurrency_at_permille_refusals(places.round().max(1.0)) / case.service_time().max(1e-6);
    [places_figure, figure("one in a thousand refused at", (places > 0.0).then_some(safe), "requests/s")]
        .concat()
}

/// Returns the load, as mean requests in flight, at which this many places refuse one request in a thousand (Erlang B, 1917, by
/// its recursion).
#[must_use]
pub fn concurrency_at_permille_refusals(places: f64) -> f64 {
    let refuses = |load: f64| (1..=places as u32).fold(1.0, |b, n| load * b / (f64::from(n) + load * b));
    let (mut low, mut high) = (0.0, places);
    for _ in 0..40 {
        let middle = (low + high) / 2.0;
        if refuses(middle) < 0.001 { low = middle } else { high = middle }
    }
    low
}

fn connections(case: &DiagnosisInput<'_>) -> Vec<CauseFigure> {
    let Some(over) = case.strongest_overload() else { return Vec::new() };
    let serving = |done: &ValidExperiment<'_>| {
        let mut numbers: Vec<_> = done
            .stats
            .good_requests()
            .filter_map(|hit| hit.carrying_connection.map(|carrier: RequestConnection| carrier.number))
            .collect();
        numbers.sort_unstable();
        numbers.dedup();
        numbers.len() as f64
    };
    // If the target closes connections: the number that were open when it closed one more. Otherwise: the number of connections that got
    // good responses.
    let cut = over
        .stats
        .requests
        .iter()
        .filter(|hit| hit.outcome.is_connection_refused_or_closed())
        .filter_map(|hit| hit.sent);
    let at_cut = SortedSamples::of(cut.take(100).map(|at| over.stats.good_requests_in_flight_at(at)));
    let most = if at_cut.count() > 2 { at_cut.quantile(0.9) } else { serving(&over) };
    [figure("connections", (most > 0.0).then_some(most), ""), unread(case)].concat()
}

/// Returns the number of open connections that the target never reads. A backlog has room for one connection more than
/// configured.
fn unread(case: &DiagnosisInput<'_>) -> Vec<CauseFigure> {
    let hang =
        |done: ValidExperiment<'_>| done.stats.count_where(|hit| hit.outcome.hangs() && hit.sent.is_some());
    let both = case
        .last_experiment_named("many connections")
        .map(hang)
        .zip(case.last_experiment_named("many connections at twice the rate").map(hang));
    let same = both.filter(|(one, other)| (one - other).abs() <= 2.0 && *one > 10.0).map(|(one, _)| one);
    let power = same
        .map(|count| 2f64.powf(count.log2().round()))
        .filter(|power| same.is_some_and(|count| (count - power).abs() <= 1.0));
    let beside = same.and(goodput(case));
    [
        figure("cap", same, "connections"),
        figure("power of two", power, "connections"),
        figure("goodput", beside, "requests/s"),
    ]
    .concat()
}

fn handshake(case: &DiagnosisInput<'_>) -> Vec<CauseFigure> {
    let opening = |view: ExperimentStats<'_>| {
        SortedSamples::of(
            view.opened_connections().map(|one| one.tls_handshake_seconds.unwrap_or(0.0) + one.connect),
        )
        .median()
    };
    let name = if case.search_findings.tls { "handshake" } else { "connect" };
    figure(name, case.half_limit_experiment().map(|base| opening(base.stats)).filter(|time| *time > 0.0), "s")
}

/// Returns the idle time of connections between bursts, in seconds; none for other loads.
#[must_use]
pub fn idle_time_between_bursts(done: &ValidExperiment<'_>) -> Option<f64> {
    let ExperimentLoad::Bursts { every, .. } = done.experiment.load else { return None };
    Some((every.as_secs_f64() - done.stats.response_times().median()).max(0.0))
}

/// A close counts as a close by time if the idle time was at least this share of the longest idle time that a connection survived.
const JUST: f64 = 0.8;

/// Returns the longest idle time that connections survived and the shortest that closed one, in seconds; none if idle time does
/// not close connections.
#[must_use]
pub fn idle_timeout_bounds(case: &DiagnosisInput<'_>) -> Option<(f64, f64)> {
    let names = [
        "half the limit",
        "90 % of the limit",
        "150 % of the limit",
        "two connections",
        "idle connections",
        "idle timeout",
    ];
    let all: Vec<_> = names.into_iter().flat_map(|name| case.experiments_named(name)).collect();
    let used = || {
        all.iter()
            .flat_map(|done| done.stats.requests)
            .filter_map(|hit| Some((hit.outcome, hit.carrying_connection?)))
    };
    let used = || used().filter(|(_, carrier)| carrier.earlier_requests_on_connection > 0);
    let of = |holds: fn(ObservedOutcome) -> bool| {
        SortedSamples::of(used().filter(move |(how, _)| holds(*how)).map(|(_, carrier)| carrier.idle))
    };
    let (alive, cut) = (
        of(|how| how == ObservedOutcome::Good).quantile(1.0).max(0.000_1),
        of(ObservedOutcome::is_connection_refused_or_closed),
    );
    if cut.count() > 0 && cut.median() < JUST * alive {
        return None;
    }
    let forgets = |done: &&ValidExperiment<'_>| {
        done.experiment.name.starts_with("idle")
            && done
                .stats
                .good_requests()
                .all(|hit| hit.carrying_connection.is_none_or(|one| one.earlier_requests_on_connection == 0))
    };
    let forgotten = all.iter().filter(forgets).filter_map(idle_time_between_bursts);
    let cut = used()
        .filter(|(how, one)| how.is_connection_refused_or_closed() && one.idle >= JUST * alive)
        .map(|(_, one)| one.idle);
    let closed = forgotten.chain(cut).fold(f64::INFINITY, f64::min);
    closed.is_finite().then_some((alive.min(closed), alive.max(closed)))
}

/// The largest ratio of the two idle times at which the report gives one time.
pub const MAX_RATIO_FOR_SINGLE_IDLE_TIMEOUT: f64 = 1.2;

/// Returns the number of requests or the idle time after which the target closes a connection.
fn race(case: &DiagnosisInput<'_>) -> Vec<CauseFigure> {
    let all = ["half the limit", "90 % of the limit", "150 % of the limit", "two connections"]
        .into_iter()
        .filter_map(|name| case.last_experiment_named(name));
    let (mut cut, mut most) = (Vec::new(), 0.0_f64);
    for hit in all.flat_map(|done| done.stats.requests) {
        let before =
            hit.carrying_connection.map_or(0.0, |carrier| carrier.earlier_requests_on_connection as f64);
        match hit.outcome {
            ObservedOutcome::Good => most = most.max(before),
            how if how.is_connection_refused_or_closed() && before > 0.0 => cut.push(before),
            _ => {}
        }
    }
    let cut = SortedSamples::of(cut.into_iter());
    if cut.count() > 1 && cut.share_near_median(0.05, 1.0) > 0.8 {
        return figure("requests per connection", Some(cut.median()), "requests");
    }
    match idle_timeout_bounds(case) {
        Some((alive, closed)) if closed < MAX_RATIO_FOR_SINGLE_IDLE_TIMEOUT * alive => {
            figure("closes connections idle for", Some((alive * closed).sqrt()), "s")
        }
        Some((_, closed)) => figure("closes connections idle for at most", Some(closed), "s"),
        None => figure("requests per connection", (most > 0.0).then_some(most + 1.0), "requests"),
    }
}

fn chain(case: &DiagnosisInput<'_>) -> Vec<CauseFigure> {
    let given_up = |done: Option<ValidExperiment<'_>>| {
        let view = done?.stats;
        let late =
            view.requests.iter().filter(|hit| hit.outcome.is_bad_response() && hit.response_time() > 0.15);
        let times = SortedSamples::of(late.map(ObservedRequest::response_time));
        (times.count() > 0).then(|| (view.response_times().quantile(1.0), times.median()))
    };
    // A good response took at most one try, so the slowest good response estimates the length of one try.
    let Some((slowest, time)) =
        given_up(case.strongest_overload()).or_else(|| given_up(case.last_experiment_named("long queue")))
    else {
        return Vec::new();
    };
    let tries = if slowest > 0.0 { (time / slowest).round().clamp(1.0, 5.0) } else { 1.0 };
    [
        figure("gives up after", Some(time), "s"),
        figure("tries", Some(tries), ""),
        figure("one try", Some(time / tries), "s"),
    ]
    .concat()
}

fn pauses(case: &DiagnosisInput<'_>) -> Vec<CauseFigure> {
    let loads = ["half the limit", "90 % of the limit", "half the limit for 4 s"]
        .into_iter()
        .filter_map(|name| case.last_experiment_named(name));
    let (mut lengths, mut distances) = (Vec::new(), Vec::new());
    for done in loads {
        let [teeth, gaps] = stalls(&done.stats);
        let stalls = if teeth.is_empty() { gaps } else { teeth };
        lengths.extend(stalls.iter().map(|stall| stall.length));
        distances.extend(stalls.windows(2).map(|pair| pair[1].began - pair[0].began));
    }
    let (length, every) =
        (SortedSamples::of(lengths.into_iter()).median(), SortedSamples::of(distances.into_iter()).median());
    [
        figure("length", (length > 0.0).then_some(length), "s"),
        figure("every", (every > 0.0).then_some(every), "s"),
    ]
    .concat()
}

fn uneven(case: &DiagnosisInput<'_>) -> Vec<CauseFigure> {
    let Some(over) = case.strongest_overload() else { return Vec::new() };
    let last = over.stats.last_third();
    let bound = 1.6 * case.service_time() + 0.02;
    let slow = last.good_requests().filter(|hit| hit.response_time() > bound).count() as f64
        / last.good_requests().count().max(1) as f64;
    let servers = (slow > 0.0).then(|| (1.0 / slow).round());
    [figure("servers", servers, ""), figure("share that is slow", Some(slow), "")].concat()
}

fn lookups(case: &DiagnosisInput<'_>) -> Option<f64> {
    let base = case.half_limit_experiment()?;
    Some(SortedSamples::of(base.stats.observation.seconds_of_each_lookup.iter().copied()).median())
}

fn ports(case: &DiagnosisInput<'_>) -> Vec<CauseFigure> {
    let opened: u64 = case
        .experiments
        .iter()
        .filter(|tried| !tried.experiment.variation.uses_another_source)
        .map(|tried| tried.observation.opened_connection_count)
        .sum();
    figure("connections opened before", (opened > 0).then_some(opened as f64), "")
}

fn bandwidth(case: &DiagnosisInput<'_>) -> Vec<CauseFigure> {
    let bytes = case.strongest_overload().map(|over| over.stats.goodput() * over.stats.mean_bytes());
    figure("bytes", bytes, "bytes/s")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::experiment_plans;
    use crate::experiment_selection::SearchFindings;
    use crate::observed_requests::ExperimentObservation;
    use crate::report::ExperimentRecord;

    fn between(idle: &[(ObservedOutcome, f64)]) -> Option<(f64, f64)> {
        let known = SearchFindings {
            limit_rate: 100.0,
            service_time: 0.001,
            timeout: 30.0,
            failure_share_at_any_rate: 0.0,
            keep_alive: true,
            tls: false,
            target_is_name: false,
            max_rate: None,
            generator_max_rate: None,
            time_budget: Duration::from_secs(30),
        };
        let hit = |(how, idle): &(ObservedOutcome, f64)| {
            let carrier = Some(RequestConnection {
                earlier_requests_on_connection: 1,
                idle: *idle,
                ..RequestConnection::default()
            });
            ObservedRequest {
                due: 0.0,
                sent: Some(0.0),
                generator_lag: 0.0,
                end: 0.001,
                outcome: *how,
                bytes: 0,
                carrying_connection: carrier,
            }
        };
        let experiment =
            experiment_plans::half_the_limit(&DiagnosisInput { search_findings: &known, experiments: &[] });
        let watched = ExperimentObservation {
            requests: idle.iter().map(hit).collect(),
            ..ExperimentObservation::default()
        };
        let tried = [ExperimentRecord { experiment, observation: watched, summary: String::new() }];
        idle_timeout_bounds(&DiagnosisInput { search_findings: &known, experiments: &tried })
    }

    /// Regression: a later request on such a connection succeeded, so the result was a number of requests instead of a time.
    #[test]
    fn a_connection_cut_just_before_others_were_served_is_closed_by_time() {
        let between = between(&[
            (ObservedOutcome::Good, 0.0089),
            (ObservedOutcome::Good, 0.009),
            (ObservedOutcome::Cut, 0.0088),
        ]);
        assert_eq!(between, Some((0.0088, 0.009)));
    }

    #[test]
    fn a_connection_cut_long_before_is_closed_by_something_else() {
        assert_eq!(
            between(&[
                (ObservedOutcome::Good, 0.5),
                (ObservedOutcome::Cut, 0.002),
                (ObservedOutcome::Cut, 0.003)
            ]),
            None
        );
        assert_eq!(between(&[(ObservedOutcome::Good, 0.5)]), None);
    }
}
