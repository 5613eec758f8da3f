//! The available experiments: the load and variation of each, its cost, and the conditions for it.
//!
//! Loads and durations are those of the study with real servers (causes-study.md, sections 3 and 9). [`crate::experiment_selection`] chooses among them
//! by expected information.

use std::time::Duration;

use crate::diagnosis_input::DiagnosisInput;
use crate::experiment::{Experiment, ExperimentLoad, RequestSpacing, Variation};
use crate::observed_requests::ObservedOutcome;
use crate::signs;

/// An experiment that the inquiry may choose.
pub struct ExperimentPlan {
    /// The name, which [`crate::odds::SignRule::experiment_name`] uses.
    pub name: &'static str,
    /// Makes the experiment; none if it would say nothing about this target.
    make: fn(&DiagnosisInput<'_>) -> Option<Experiment>,
    /// The most runs of this experiment.
    pub max_times: usize,
    /// True if the experiment overloads the target or holds its connections. Such experiments run last.
    pub is_harmful: bool,
}

impl ExperimentPlan {
    /// Returns the experiment; none if it would say nothing about this target or would exceed `--max-rate`.
    #[must_use]
    pub fn experiment(&self, case: &DiagnosisInput<'_>) -> Option<Experiment> {
        (self.make)(case).filter(|experiment| !exceeds(experiment, case))
    }

    /// Returns whether `--max-rate` alone rules out this experiment.
    #[must_use]
    pub fn is_ruled_out_by_max_rate(&self, case: &DiagnosisInput<'_>) -> bool {
        let is_bounded = case.search_findings.max_rate.is_some() && case.half_limit_experiment().is_some();
        is_bounded && (self.make)(case).is_some_and(|experiment| exceeds(&experiment, case))
    }
}

fn exceeds(experiment: &Experiment, case: &DiagnosisInput<'_>) -> bool {
    case.search_findings.max_rate.is_some_and(|most| max_requests_per_second(&experiment.load) > most)
}

/// Returns the most requests that a load sends in any second. Clients without pauses may send all their requests in one second.
#[must_use]
pub fn max_requests_per_second(load: &ExperimentLoad) -> f64 {
    match load {
        ExperimentLoad::Rate { rate, .. } => *rate,
        ExperimentLoad::Clients { requests, .. } => *requests as f64,
        ExperimentLoad::Bursts { size, times, every, .. } => {
            let begin = (1.0 / every.as_secs_f64().max(1e-6)).floor() + 1.0;
            *size as f64 * begin.min(*times as f64)
        }
    }
}

/// Returns whether a load may send many requests at its start or end, so that a pause must separate it from the loads before and
/// after.
#[must_use]
pub fn is_bursty(load: &ExperimentLoad) -> bool {
    !matches!(load, ExperimentLoad::Rate { .. })
}

const fn plan(name: &'static str, make: fn(&DiagnosisInput<'_>) -> Option<Experiment>) -> ExperimentPlan {
    ExperimentPlan { name, make, max_times: 1, is_harmful: false }
}

/// The optional experiments beside base, near and over, harmless ones first.
pub static OPTIONAL_PLANS: &[ExperimentPlan] = &[
    plan("one client", one_client),
    plan("many clients", many_clients),
    ExperimentPlan { max_times: 2, ..plan("bursts of the concurrent capacity", at_once) },
    ExperimentPlan { max_times: 4, ..plan("three bursts in a row", row) },
    plan("IP address instead of name", ip_address_target),
    plan("another source address", another_source),
    plan("two connections", two_connections),
    plan("idle connections", idle),
    plan("half the limit for 4 s", long_base),
    plan("HEAD requests", head),
    plan("with keep-alive", keep_alive_on),
    plan("without keep-alive", keep_alive_off),
    ExperimentPlan { is_harmful: true, ..plan("250 % of the limit", far_over) },
    ExperimentPlan { is_harmful: true, ..plan("long queue", long_queue) },
    ExperimentPlan { is_harmful: true, ..plan("idle connections held open", held) },
];

/// The least time limit of a response, in seconds. Behind a queue of 30 s timeouts, a longer wait would fill the whole budget.
const PATIENCE: f64 = 2.0;
/// The most extra requests in flight, as seconds of the rate. By then the growth of a queue is plain.
const DAMAGE: f64 = 0.7;

fn response_time_limit(case: &DiagnosisInput<'_>) -> f64 {
    PATIENCE.max(10.0 * case.service_time()).min(case.search_findings.timeout)
}

fn max_in_flight(case: &DiagnosisInput<'_>, rate: f64) -> usize {
    (DAMAGE * rate + 4.0 * rate * case.service_time() + 30.0) as usize
}

fn seconds(time: f64) -> Duration {
    Duration::from_secs_f64((time * 1e3).round() / 1e3)
}

/// Returns the highest rate of a load, in requests per second.
fn max_experiment_rate(case: &DiagnosisInput<'_>) -> f64 {
    user_max_rate(case).min(case.search_findings.generator_max_rate.unwrap_or(f64::INFINITY))
}

/// Returns the most requests in one second: `--max-rate`.
fn user_max_rate(case: &DiagnosisInput<'_>) -> f64 {
    case.search_findings.max_rate.unwrap_or(f64::INFINITY)
}

/// Poisson spacing, or constant spacing if a random second could exceed `--max-rate` (by five standard deviations).
fn by_chance(case: &DiagnosisInput<'_>, rate: f64) -> RequestSpacing {
    if rate + 5.0 * rate.sqrt() + 5.0 > user_max_rate(case) {
        RequestSpacing::Constant
    } else {
        RequestSpacing::Poisson
    }
}

/// Rounds a rate to four digits, but not above `most`. The load engine refuses rates with more digits.
fn rounded(rate: f64, most: f64) -> f64 {
    let rate = rate.min(most);
    let unit = 10f64.powf(rate.max(1e-6).log10().floor() - 3.0);
    let whole = |digits: f64| if unit < 1.0 { digits / (1.0 / unit).round() } else { digits * unit.round() };
    let (near, below) = (whole((rate / unit).round()), whole((rate / unit).round() - 1.0));
    if near > most { below } else { near }
}

fn experiment(case: &DiagnosisInput<'_>, name: &'static str, load: ExperimentLoad, rate: f64) -> Experiment {
    let patience = response_time_limit(case);
    let variation = Variation { timeout: Some(seconds(patience)), ..Variation::NONE };
    Experiment {
        name,
        load,
        variation,
        in_flight_cap: max_in_flight(case, rate),
        drain: seconds(patience + 0.2),
    }
}

fn experiment_at_share(
    case: &DiagnosisInput<'_>,
    name: &'static str,
    share: f64,
    lasts: f64,
    spacing: RequestSpacing,
) -> Experiment {
    let rate = rounded(case.search_findings.limit_rate * share, max_experiment_rate(case));
    let spacing = if spacing == RequestSpacing::Poisson { by_chance(case, rate) } else { spacing };
    experiment(case, name, ExperimentLoad::Rate { rate, lasts: seconds(lasts), spacing }, rate)
}

/// Returns the experiment with another variation but the same time limit.
fn with_variation(experiment: Experiment, mut variation: Variation) -> Experiment {
    variation.timeout = experiment.variation.timeout;
    Experiment { variation, ..experiment }
}

/// Returns the duration of this many requests at a share of the limit, in seconds, from `least` to twice that.
fn duration_for_requests(case: &DiagnosisInput<'_>, share: f64, least: f64, requests: f64) -> f64 {
    (requests / (case.search_findings.limit_rate * share)).clamp(least, 2.0 * least)
}

/// Returns the experiment at half the limit.
#[must_use]
pub fn half_the_limit(case: &DiagnosisInput<'_>) -> Experiment {
    experiment_at_share(
        case,
        "half the limit",
        0.5,
        duration_for_requests(case, 0.5, 2.0, 60.0),
        RequestSpacing::Constant,
    )
}

/// Returns the experiment at 90 % of the limit with constant spacing: a cap refuses requests there, and a token bucket does not.
#[must_use]
pub fn near_the_limit(case: &DiagnosisInput<'_>) -> Experiment {
    experiment_at_share(
        case,
        "90 % of the limit",
        0.9,
        duration_for_requests(case, 0.9, 1.5, 60.0),
        RequestSpacing::Constant,
    )
}

/// Returns the experiment at 150 % of the limit, with random spacing. With constant spacing, a limiter without a bucket would
/// interfere with the pattern.
#[must_use]
pub fn overload(case: &DiagnosisInput<'_>) -> Experiment {
    experiment_at_share(
        case,
        "150 % of the limit",
        1.5,
        duration_for_requests(case, 1.5, 2.0, 60.0),
        RequestSpacing::Poisson,
    )
}

/// Returns the recovery check: 40 % of the limit after an overload.
#[must_use]
pub fn recovery_check(case: &DiagnosisInput<'_>) -> Experiment {
    experiment_at_share(
        case,
        "recovery check",
        0.4,
        duration_for_requests(case, 0.4, 0.5, 12.0),
        RequestSpacing::Constant,
    )
}

fn one_client(case: &DiagnosisInput<'_>) -> Option<Experiment> {
    Some(clients(case, "one client", 1))
}

fn many_clients(case: &DiagnosisInput<'_>) -> Option<Experiment> {
    let places = case.in_flight_at_limit().ceil().clamp(1.0, 250.0);
    let all = 4 * places as usize + 4;
    // With fewer than two requests per client, the load is only a burst and shows no throughput.
    let experiment = clients(case, "many clients", all);
    let least = ExperimentLoad::Clients { clients: all, lasts: seconds(0.0), requests: 2 * all as u64 };
    (max_requests_per_second(&least) <= user_max_rate(case)).then_some(experiment)
}

fn clients(case: &DiagnosisInput<'_>, name: &'static str, clients: usize) -> Experiment {
    let lasts = 0.8_f64.max(12.0 * case.service_time()).min(2.0);
    let requests = (3.0 * case.search_findings.limit_rate).ceil().min(user_max_rate(case).floor()) as u64;
    let load = ExperimentLoad::Clients { clients, lasts: seconds(lasts), requests };
    let experiment = experiment(case, name, load, case.search_findings.limit_rate);
    Experiment { in_flight_cap: clients, ..experiment }
}

fn at_once(case: &DiagnosisInput<'_>) -> Option<Experiment> {
    let places = case.in_flight_at_limit();
    if !(1.5..=400.0).contains(&places) {
        return None;
    }
    let size = (places * 0.98).round().max(2.0);
    // The distance between bursts must be long enough for all requests to end, whether the target serves them concurrently or one by one.
    let every = (2.5 * case.service_time() + 1.5 * size / case.search_findings.limit_rate).max(0.02);
    // At most this many bursts can start in one second under `--max-rate`.
    let begin = (user_max_rate(case) / size).floor();
    let every = if begin < 1.0 { every } else { every.max(1.02 / begin) };
    let times = (2.5 / every).clamp(5.0, 20.0) as u64;
    Some(bursts(case, "bursts of the concurrent capacity", (size as u64, times), every, 0.1))
}

fn bursts(
    case: &DiagnosisInput<'_>,
    name: &'static str,
    (size, times): (u64, u64),
    every: f64,
    quiet: f64,
) -> Experiment {
    let load = ExperimentLoad::Bursts { size, times, every: seconds(every), quiet: seconds(quiet) };
    let experiment = experiment(case, name, load, case.search_findings.limit_rate);
    Experiment { in_flight_cap: (2 * size) as usize + 30, ..experiment }
}

fn row(case: &DiagnosisInput<'_>) -> Option<Experiment> {
    let places = case.in_flight_at_limit();
    // With long-tailed service times, places become free as fast as a bucket gets tokens (causes-study.md, section 3).
    let spread = case.half_limit_response_times().quantile(0.95) > 2.5 * case.service_time();
    if case.service_time() < 0.001 || spread || case.times_attempted("three bursts in a row") >= rows(places)
    {
        return None;
    }
    // A cap starts to refuse far below its capacity, so it may have several times as many places as there are requests in flight.
    let size = (3.0 * places + 20.0).ceil() as u64;
    let every = (0.6 * case.service_time() * 1e4).round() / 1e4;
    let load =
        ExperimentLoad::Bursts { size, times: 3, every: Duration::from_secs_f64(every), quiet: seconds(0.5) };
    let experiment = experiment(case, "three bursts in a row", load, case.search_findings.limit_rate);
    Some(Experiment { in_flight_cap: 3 * size as usize + 30, ..experiment })
}

/// Returns the number of rows. Few places admit few requests, so chance needs more rows to even out.
fn rows(places: f64) -> usize {
    if places < 5.0 { 4 } else { 2 }
}

fn ip_address_target(case: &DiagnosisInput<'_>) -> Option<Experiment> {
    if !case.search_findings.target_is_name
        || case.half_limit_experiment()?.stats.observation.seconds_of_each_lookup.is_empty()
    {
        return None;
    }
    let experiment =
        experiment_at_share(case, "IP address instead of name", 0.5, 1.0, RequestSpacing::Constant);
    Some(with_variation(experiment, Variation { skip_dns: true, ..Variation::NONE }))
}

fn another_source(case: &DiagnosisInput<'_>) -> Option<Experiment> {
    if !case.strongest_overload()?.stats.requests.iter().any(|hit| hit.outcome == ObservedOutcome::NoPort) {
        return None;
    }
    let lasts = (20.0 / case.search_findings.limit_rate).clamp(0.3, 1.0);
    let experiment =
        experiment_at_share(case, "another source address", 0.5, lasts, RequestSpacing::Constant);
    Some(with_variation(experiment, Variation { uses_another_source: true, ..Variation::NONE }))
}

/// The number of requests over two connections. Few servers allow more than a thousand requests per connection.
const USES: f64 = 1_800.0;
/// The least and the longest duration, in seconds.
const LONG: (f64, f64) = (4.0, 15.0);
/// The expected number of failures at which two failures are enough evidence.
const HABIT: f64 = 4.0;

fn two_connections(case: &DiagnosisInput<'_>) -> Option<Experiment> {
    if !case.search_findings.keep_alive {
        return None;
    }
    let (service, limit) = (case.service_time(), case.search_findings.limit_rate);
    let connections = Variation { max_connections: Some(2), ..Variation::NONE };
    let long = |rate: f64| (USES / rate).min(until_some_fail(case, rate));
    // Two clients without pauses are too much load for a target that serves only one or two requests concurrently.
    let experiment = if user_max_rate(case).is_finite() {
        let rate = (0.8 * limit).min(1.6 / service.max(1e-6));
        experiment_at_share(case, "two connections", rate / limit, long(rate), RequestSpacing::Constant)
    } else if case.in_flight_at_limit() > 3.0 {
        let lasts = seconds((USES / 2.0 * service).min(4.0));
        let load = ExperimentLoad::Clients { clients: 2, lasts, requests: USES as u64 };
        experiment(case, "two connections", load, limit)
    } else {
        experiment_at_share(case, "two connections", 0.8, long(0.8 * limit), RequestSpacing::Constant)
    };
    Some(with_variation(experiment, connections))
}

/// Four seconds, or longer if failures are rare: until enough failures are expected to tell a habit from chance.
fn until_some_fail(case: &DiagnosisInput<'_>, rate: f64) -> f64 {
    let (least, most) = LONG;
    let failures = rate * case.search_findings.failure_share_at_any_rate;
    if failures > 0.0 { (HABIT / failures).clamp(least, most) } else { least }
}

/// Bursts with 0.6 s of idle time between them, three in all. A server or middlebox that closes idle connections meets the next burst.
fn idle(case: &DiagnosisInput<'_>) -> Option<Experiment> {
    case.search_findings.keep_alive.then(|| bursts_with_idle_time(case, "idle connections", 2, 0.6))
}

/// Returns two bursts on a few connections, with this idle time between them, in seconds.
#[must_use]
pub fn bursts_with_idle_between(case: &DiagnosisInput<'_>, idle: f64) -> Experiment {
    bursts_with_idle_time(case, "idle timeout", 1, idle)
}

fn bursts_with_idle_time(case: &DiagnosisInput<'_>, name: &'static str, times: u64, idle: f64) -> Experiment {
    // The burst is no larger than the concurrent capacity, because a request that waits shortens the idle time.
    let size = (0.8 * case.in_flight_at_limit()).clamp(2.0, 8.0);
    let size = size.min((user_max_rate(case) / (times + 1) as f64).max(1.0)) as u64;
    bursts(case, name, (size, times + 1), idle + case.service_time(), 0.0)
}

fn long_base(case: &DiagnosisInput<'_>) -> Option<Experiment> {
    Some(experiment_at_share(case, "half the limit for 4 s", 0.5, 4.0, RequestSpacing::Constant))
}

fn head(case: &DiagnosisInput<'_>) -> Option<Experiment> {
    if case.half_limit_experiment()?.stats.mean_bytes() < 500.0 {
        return None;
    }
    let experiment = experiment_at_share(
        case,
        "HEAD requests",
        1.5,
        duration_for_requests(case, 1.5, 1.5, 60.0),
        RequestSpacing::Poisson,
    );
    Some(with_variation(experiment, Variation { uses_head_method: true, ..Variation::NONE }))
}

fn keep_alive_on(case: &DiagnosisInput<'_>) -> Option<Experiment> {
    if case.search_findings.keep_alive {
        return None;
    }
    let experiment = experiment_at_share(
        case,
        "with keep-alive",
        1.5,
        duration_for_requests(case, 1.5, 1.5, 60.0),
        RequestSpacing::Poisson,
    );
    Some(with_variation(experiment, Variation { keep_alive: Some(true), ..Variation::NONE }))
}

fn keep_alive_off(case: &DiagnosisInput<'_>) -> Option<Experiment> {
    if !case.search_findings.keep_alive {
        return None;
    }
    let experiment = experiment_at_share(
        case,
        "without keep-alive",
        1.5,
        duration_for_requests(case, 1.5, 1.5, 60.0),
        RequestSpacing::Poisson,
    );
    Some(with_variation(experiment, Variation { keep_alive: Some(false), ..Variation::NONE }))
}

/// Returns a stronger overload, because a little more than the fill rate does not empty a large bucket in two seconds.
fn far_over(case: &DiagnosisInput<'_>) -> Option<Experiment> {
    let over = case.last_experiment_named("150 % of the limit")?;
    let sound = over.stats.share_where(|hit| hit.outcome != ObservedOutcome::Good) < 0.1;
    let quick = over.stats.response_times().quantile(0.95)
        < 1.6 * case.half_limit_response_times().quantile(0.95) + 0.005;
    let may = FAR * case.search_findings.limit_rate <= max_experiment_rate(case);
    (sound && quick && may)
        .then(|| experiment_at_share(case, "250 % of the limit", FAR, 2.0, RequestSpacing::Poisson))
}

/// The most connections of an experiment.
const MOST_IN_FLIGHT: f64 = 6_000.0;
/// The load of strong overloads, as a multiple of the limit.
const FAR: f64 = 2.5;
/// The longest wait of the last request in the queue, in seconds, and the shortest that is worth the experiment. The queue of [`overload`]
/// grows to one second.
const LINE: (f64, f64) = (1.8, 1.1);
/// The time limit for a proxy that tries three times, in seconds.
const TRIED: f64 = 4.5;

/// Returns a longer queue than that of [`overload`], with a long time limit. It shows proxies that give up after more than a
/// second or that retry.
fn long_queue(case: &DiagnosisInput<'_>) -> Option<Experiment> {
    let waits = LINE.0.min(MOST_IN_FLIGHT / case.search_findings.limit_rate);
    let queues = matches!(signs::slows_down_in_overload(case), Some((1, _)))
        && !matches!(signs::gateway_times_out(case), Some((1, _)));
    if !queues || waits < LINE.1 || FAR * case.search_findings.limit_rate > max_experiment_rate(case) {
        return None;
    }
    let experiment =
        experiment_at_share(case, "long queue", FAR, waits / (FAR - 1.0), RequestSpacing::Constant);
    let patience = TRIED.min(case.search_findings.timeout);
    let variation = Variation { timeout: Some(seconds(patience)), ..Variation::NONE };
    Some(Experiment {
        variation,
        in_flight_cap: MOST_IN_FLIGHT as usize,
        drain: seconds(patience + 0.2),
        ..experiment
    })
}

fn held(case: &DiagnosisInput<'_>) -> Option<Experiment> {
    let held = (1.5 * case.in_flight_at_limit()).ceil() as usize + 50;
    let experiment = experiment_at_share(
        case,
        "idle connections held open",
        0.4,
        duration_for_requests(case, 0.4, 1.0, 30.0),
        RequestSpacing::Constant,
    );
    Some(with_variation(experiment, Variation { held_idle_connections: held, ..Variation::NONE }))
}

/// Returns a load of more connections than a common backlog holds, at one rate or at twice that rate. The number of hanging
/// requests shows whether a cap causes them.
#[must_use]
pub fn many_new_connections(case: &DiagnosisInput<'_>, twice: bool) -> Option<Experiment> {
    let rate = rounded(
        (3.0 * case.search_findings.limit_rate).max(500.0) * if twice { 2.0 } else { 1.0 },
        f64::INFINITY,
    );
    if rate > max_experiment_rate(case) {
        return None;
    }
    let name = if twice { "many connections at twice the rate" } else { "many connections" };
    let lasts = seconds((1_700.0 / rate * if twice { 2.0 } else { 1.0 }).clamp(1.0, 3.6));
    let experiment =
        experiment(case, name, ExperimentLoad::Rate { rate, lasts, spacing: RequestSpacing::Constant }, rate);
    Some(Experiment {
        in_flight_cap: MOST_IN_FLIGHT as usize,
        variation: Variation { timeout: Some(seconds(5.0)), ..Variation::NONE },
        drain: seconds(0.5),
        ..experiment
    })
}

/// Returns a high rate over fewer connections than the target serves. A rate limiter makes requests hang there, too; a connection
/// cap does not.
#[must_use]
pub fn few_connections(case: &DiagnosisInput<'_>) -> Experiment {
    let few = (case.in_flight_at_limit() * 0.8).floor().max(1.0);
    let rate = rounded(
        (3.0 * case.search_findings.limit_rate).min(500.0).max(1.5 * case.search_findings.limit_rate),
        max_experiment_rate(case),
    );
    let load = ExperimentLoad::Rate { rate, lasts: seconds(1.5), spacing: RequestSpacing::Constant };
    let experiment = experiment(case, "few connections", load, rate);
    let variation =
        Variation { max_connections: Some(few as usize), timeout: Some(seconds(2.5)), ..Variation::NONE };
    Experiment { variation, in_flight_cap: 3_000, drain: seconds(1.5), ..experiment }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_has_four_digits_and_is_no_higher_than_may_be() {
        assert_eq!(rounded(123.456, f64::INFINITY), 123.5);
        assert_eq!(rounded(123.47, 123.46), 123.4);
        assert_eq!(rounded(50.0, 40.0), 40.0);
    }

    #[test]
    fn a_second_has_all_requests_of_clients_and_the_bursts_that_begin_in_it() {
        let lasts = Duration::from_secs(2);
        assert_eq!(
            max_requests_per_second(&ExperimentLoad::Clients { clients: 3, lasts, requests: 60 }),
            60.0
        );
        let bursts = |every| ExperimentLoad::Bursts { size: 10, times: 3, every, quiet: lasts };
        assert_eq!(max_requests_per_second(&bursts(Duration::from_millis(600))), 20.0);
        assert_eq!(max_requests_per_second(&bursts(Duration::from_millis(100))), 30.0);
        assert_eq!(max_requests_per_second(&bursts(lasts)), 10.0);
    }
}
