//! Signs: observations that support or contradict a cause. Each sign is a pure function from the experiments to an outcome and a
//! description.
//!
//! The thresholds are from the study with real servers. [`crate::odds`] has the probability of each outcome under each cause. A sign has no
//! outcome if no experiment shows it.

use crate::cause_size_estimates;
use crate::diagnosis_input::DiagnosisInput;
use crate::experiment_stats::{
    ExperimentStats, SortedSamples, Stall, answers_phase_coherence, phase_coherence, stalls,
};
use crate::observed_requests::{ObservedOutcome, ObservedRequest, RequestConnection};

/// The outcome of a sign and its description; no value if the sign cannot be read. Outcome 1 of two means that the sign is present.
pub type SignOutcome = Option<(usize, String)>;

fn sign_present(holds: bool, seen: String) -> SignOutcome {
    Some((usize::from(holds), seen))
}

fn ms(seconds: f64) -> String {
    let places = if seconds < 0.01 { 1 } else { 0 };
    format!("{:.places$} ms", unsigned(seconds) * 1e3)
}

fn percent(share: f64) -> String {
    let places = if share > 0.0 && share < 0.1 { 1 } else { 0 };
    format!("{:.places$} %", unsigned(share) * 100.0)
}

/// Turns -0.0, the sum of an empty iterator, into 0.0.
fn unsigned(number: f64) -> f64 {
    number + 0.0
}

/// Returns the share of requests that the target refused with a status, or 0 if refusals took longer than good responses at low
/// load, or if there were no good responses to compare with. A timeout or a full queue takes longer. A limiter does not, but it
/// need not be faster: the network and the proxies before it can take most of the time.
fn refused(case: &DiagnosisInput<'_>, view: &ExperimentStats<'_>) -> f64 {
    let refusals = SortedSamples::of(
        view.requests.iter().filter(|hit| hit.outcome.is_bad_response()).map(ObservedRequest::service_time),
    );
    let is_fast =
        case.half_limit_response_times().count() > 0 && refusals.median() < case.service_time() + 0.005;
    if is_fast { view.share_where(|hit| hit.outcome.is_bad_response()) } else { 0.0 }
}

/// Sign: the target refuses requests below the limit at a constant rate. A rate limiter does not, because its bucket never runs dry there.
pub fn refuses_near_limit(case: &DiagnosisInput<'_>) -> SignOutcome {
    let near = case.last_experiment_named("90 % of the limit")?.stats;
    // After a stall, all delayed requests arrive at once. Such a burst can empty a bucket, so requests near a stall do not count.
    let [teeth, gaps] = stalls(&near);
    let stalled = |hit: &ObservedRequest| {
        let near = |stall: &Stall| hit.due > stall.began - 0.02 && hit.due < stall.began + 2.0 * stall.length;
        teeth.iter().chain(&gaps).any(near)
    };
    let calm = near.count_where(|hit| hit.outcome.is_bad_response() && !stalled(hit));
    let share = if refused(case, &near) > 0.0 { calm / near.count() } else { 0.0 };
    sign_present(
        share > 0.01 && calm > 1.5,
        format!("at 90 % of the limit, the target refused {} of the requests", percent(share)),
    )
}

/// Sign: the target refuses requests above the limit quickly.
pub fn refuses_quickly_over_limit(case: &DiagnosisInput<'_>) -> SignOutcome {
    let over = case.strongest_overload()?;
    let share = refused(case, &over.stats);
    sign_present(
        share > 0.02 && share * over.stats.count() > 4.5,
        format!("at {:.0}/s, the target quickly refused {} of the requests", over.rate(), percent(share)),
    )
}

/// Returns whether p95 of the good responses is nearly the same as at half the limit.
fn is_flat(case: &DiagnosisInput<'_>, view: &ExperimentStats<'_>) -> bool {
    let times = view.response_times();
    times.count() > 0 && times.quantile(0.95) < 1.6 * case.half_limit_response_times().quantile(0.95) + 0.005
}

/// Sign: good responses above the limit are as fast as at half the limit.
pub fn stays_fast_in_overload(case: &DiagnosisInput<'_>) -> SignOutcome {
    let (over, base) = (case.strongest_overload()?.stats, case.half_limit_response_times());
    let (now, before) = (over.response_times().quantile(0.95), base.quantile(0.95));
    sign_present(
        is_flat(case, &over),
        format!(
            "p95 of the response time: {} at rates above the limit, {} at half the limit",
            ms(now),
            ms(before)
        ),
    )
}

/// Sign: response times grow throughout the overload.
pub fn slows_down_in_overload(case: &DiagnosisInput<'_>) -> SignOutcome {
    let last = case.strongest_overload()?.stats.last_third().response_times();
    let (median, service) = (last.median(), case.service_time());
    let seen = format!(
        "p50 of the response time was {} in the last third of the overload and {} at low load",
        ms(median),
        ms(service)
    );
    sign_present(last.count() > 0 && median > 2.0 * service + 0.01, seen)
}

fn goodput(case: &DiagnosisInput<'_>) -> Option<(f64, String)> {
    let over = case.strongest_overload()?;
    let share = over.stats.goodput() / case.search_findings.limit_rate;
    Some((
        share,
        format!("goodput was {:.2} times the limit at an offered rate of {:.0}/s", share, over.rate()),
    ))
}

/// Sign: goodput above the limit is below the limit, about the limit, or above it.
pub fn overload_goodput_level(case: &DiagnosisInput<'_>) -> SignOutcome {
    let (share, seen) = goodput(case)?;
    Some((usize::from(share >= 0.97) + usize::from(share > 1.05), seen))
}

/// Sign: requests above the limit hang while the other requests are as fast as before.
pub fn hangs_in_overload(case: &DiagnosisInput<'_>) -> SignOutcome {
    let over = case.strongest_overload()?.stats;
    let share = over.share_where(|hit| hit.outcome.hangs());
    let seen = format!("at a rate above the limit, {} of the requests got no response", percent(share));
    sign_present(share > 0.05 && (is_flat(case, &over) || over.response_times().count() < 5), seen)
}

/// The least number of hanging requests on connections that shows which connections hang.
const HANGING: usize = 5;
/// The least number of hanging requests for a suspicion, which an experiment with held connections then tests.
const SUSPECTED: usize = 2;
/// The share of hanging requests on connections without an earlier request from which connections hang, not requests.
const ON_NEW: f64 = 0.95;

/// Sign: requests hang only on connections that have carried no earlier request, while other connections serve one request after another.
///
/// A cap on connections serves a connection or does not. A limiter counts requests, so requests on served connections hang, too.
pub fn hangs_only_on_new_connections(case: &DiagnosisInput<'_>) -> SignOutcome {
    let (on_new, all) = hanging_on_new(case)?;
    let seen = format!("{on_new} of {all} requests without a response were the first on their connection");
    (all >= HANGING).then(|| (usize::from(on_new as f64 >= ON_NEW * all as f64), seen))
}

/// Returns whether some requests hang, and only on connections that have carried no earlier request, even if too few for the
/// sign.
#[must_use]
pub fn saw_hangs_only_on_new_connections(case: &DiagnosisInput<'_>) -> bool {
    hanging_on_new(case).is_some_and(|(on_new, all)| all >= SUSPECTED && on_new as f64 >= ON_NEW * all as f64)
}

/// Returns the requests that hang on connections without an earlier request, and on all connections; none if connections are not
/// kept.
fn hanging_on_new(case: &DiagnosisInput<'_>) -> Option<(usize, usize)> {
    if !case.search_findings.keep_alive || !are_kept(case) {
        return None;
    }
    let loads = [case.strongest_overload()?, case.last_experiment_named("90 % of the limit")?];
    let hits = loads.iter().flat_map(|done| done.stats.requests.iter());
    let hanging: Vec<_> = hits
        .filter(|hit| hit.outcome.hangs() && hit.sent.is_some())
        .filter_map(|hit| hit.carrying_connection)
        .collect();
    let on_new = hanging.iter().filter(|carrier| carrier.earlier_requests_on_connection == 0).count();
    Some((on_new, hanging.len()))
}

fn cut(view: &ExperimentStats<'_>) -> f64 {
    view.share_where(|hit| hit.outcome.is_connection_refused_or_closed())
}

/// Returns the share of requests whose connection was closed before it had carried any request.
fn cut_new(view: &ExperimentStats<'_>) -> f64 {
    view.share_where(|hit| {
        hit.outcome.is_connection_refused_or_closed()
            && hit.carrying_connection.is_none_or(|carrier| carrier.earlier_requests_on_connection == 0)
    })
}

/// Sign: the target closes new connections above the limit but not at half the limit.
pub fn cuts_new_connections_over_limit(case: &DiagnosisInput<'_>) -> SignOutcome {
    let base = cut_new(&case.half_limit_experiment()?.stats);
    let loads = [case.strongest_overload(), case.last_experiment_named("many connections")];
    let over = loads.iter().flatten().map(|done| cut_new(&done.stats)).reduce(f64::max)?;
    let seen = format!(
        "at a rate above the limit, the target closed the new connections of {} of the requests; at half the limit, the share was {}",
        percent(over),
        percent(base)
    );
    sign_present(over > 0.03 && base < (over / 8.0).max(0.005), seen)
}

/// Returns whether connections carry more than one request each. A server that closes each connection without notice, such as
/// uWSGI's http-socket, has no keep-alive race.
fn are_kept(case: &DiagnosisInput<'_>) -> bool {
    let valid = case.experiments.iter().filter(|tried| tried.observation.invalid_reason.is_none());
    let views = valid.map(|tried| ExperimentStats::new(&tried.observation));
    views
        .flat_map(|view| view.good_requests())
        .filter(|hit| hit.carrying_connection.is_some_and(|one| one.earlier_requests_on_connection > 0))
        .count()
        > 2
}

/// Returns the number of requests that lost a reused connection, with the silently retried ones.
fn races(case: &DiagnosisInput<'_>, view: &ExperimentStats<'_>) -> f64 {
    if !are_kept(case) {
        return 0.0;
    }
    let cut = |carrier: &RequestConnection| carrier.earlier_requests_on_connection > 0;
    let lost = view.count_where(|hit| {
        hit.outcome.is_connection_refused_or_closed() && hit.carrying_connection.as_ref().is_some_and(cut)
    });
    (lost + view.observation.silent_retry_count as f64).min(view.count())
}

/// Sign: the target closes reused connections under requests at the same share at every rate.
pub fn cuts_reused_connections(case: &DiagnosisInput<'_>) -> SignOutcome {
    let calm = [
        case.half_limit_experiment(),
        case.last_experiment_named("90 % of the limit"),
        case.last_experiment_named("half the limit for 4 s"),
    ];
    let (mut ends, mut requests) = (0.0, 0.0_f64);
    for done in calm.iter().flatten() {
        ends += races(case, &done.stats);
        requests += done.stats.count();
    }
    let over = case.strongest_overload()?.stats;
    let share = ends / requests.max(1.0);
    let alike = cut(&over) - cut_new(&over) < 4.0 * share + 0.01;
    let seen = format!(
        "at rates below the limit, the target closed the reused connection of {ends:.0} of {requests:.0} requests"
    );
    case.half_limit_experiment()?;
    sign_present(ends >= 2.0 && alike, seen)
}

/// Returns the number of requests in the named experiment that lost a reused connection.
fn raced(case: &DiagnosisInput<'_>, name: &'static str) -> f64 {
    case.last_experiment_named(name).map_or(0.0, |done| races(case, &done.stats))
}

/// Sign: requests on two heavily reused connections lose their connection. No loss does not contradict a server that closes idle
/// connections.
pub fn cuts_heavily_reused_connections(case: &DiagnosisInput<'_>) -> SignOutcome {
    let view = case.last_experiment_named("two connections")?.stats;
    let ends = races(case, &view);
    if ends < 2.0 && raced(case, "idle connections") >= 2.0 {
        return None;
    }
    let opened = view.observation.opened_connection_count;
    let seen = format!(
        "with two connections at a time, the target closed the connection after {ends:.0} of {:.0} requests, so the client opened {opened} connections in all",
        view.count()
    );
    sign_present(ends >= 2.0, seen)
}

/// Sign: requests on idle connections lose their connection. No loss does not contradict a server that closes connections after a number of
/// requests.
pub fn cuts_idle_connections(case: &DiagnosisInput<'_>) -> SignOutcome {
    let done = case.last_experiment_named("idle connections")?;
    let ends = races(case, &done.stats);
    if ends < 2.0 && (raced(case, "two connections") >= 2.0 || saw_keep_alive_race(case)) {
        return None;
    }
    let idle = cause_size_estimates::idle_time_between_bursts(&done).unwrap_or(0.0);
    let all = done.stats.count();
    let seen = format!(
        "when connections were idle for {}, the target closed the connection of {ends:.0} of {all:.0} requests",
        ms(idle)
    );
    sign_present(ends >= 2.0, seen)
}

/// The default period of a CPU quota, in seconds (`cpu.max`, kernel documentation of cgroup v2).
const PERIOD: f64 = 0.1;
/// The least number of stalls that shows whether stalls end with the quota's periods. With this number, chance alone is in step once in 170
/// cases.
const STILL: usize = 8;
/// The phase coherence from which stalls count as in step with the period.
const IN_STEP: f64 = 0.8;

/// Returns whether stalls end when a period of the CPU quota ends.
///
/// Stalls at a regular distance that is a multiple of the period also end in step. They are pauses, not throttling: a quota stops the
/// target in each busy period or in random ones.
fn is_throttled(case: &DiagnosisInput<'_>) -> bool {
    let loads = ["half the limit", "90 % of the limit", "half the limit for 4 s", "150 % of the limit"]
        .into_iter()
        .flat_map(|name| case.experiments_named(name));
    let ways: Vec<_> = loads.map(|done| stalls(&done.stats)).collect();
    [0, 1].into_iter().any(|way| {
        let (mut count, mut step, mut distances) = (0, 0.0, Vec::new());
        for stalls in ways.iter().map(|ways| &ways[way]).filter(|stalls| stalls.len() > 2) {
            let ends = stalls.iter().map(|stall| stall.began + stall.length);
            count += stalls.len();
            step += stalls.len() as f64 * phase_coherence(ends, PERIOD);
            let distance =
                |pair: &[Stall]| (pair[1].began + pair[1].length - pair[0].began - pair[0].length) / PERIOD;
            distances.extend(stalls.windows(2).map(|pair| distance(pair).round()));
        }
        let distances = SortedSamples::of(distances.into_iter());
        let own = distances.median() > 1.0 && distances.share_near_median(0.0, 0.5) > 0.8;
        count >= STILL && step > IN_STEP * count as f64 && !own
    })
}

/// Sign: stalls end with the periods of a CPU quota.
pub fn stalls_follow_cpu_quota(case: &DiagnosisInput<'_>) -> SignOutcome {
    case.half_limit_experiment()?;
    let holds = is_throttled(case);
    let not = if holds { "" } else { "not " };
    sign_present(
        holds,
        format!("the target's stalls were {not}in step with the 100 ms period of a CPU quota"),
    )
}

/// Returns the median length of the stalls in seconds; 0 without a stall.
#[must_use]
pub fn median_stall_seconds(case: &DiagnosisInput<'_>) -> f64 {
    let [teeth, gaps] = still(case);
    if teeth.all.count() > 0 { teeth.all.median() } else { gaps.all.median() }
}

/// Sign: the target stalls for a constant time, even below the limit. The sign has no outcome if a CPU quota causes the stalls.
pub fn stalls_for_constant_time(case: &DiagnosisInput<'_>) -> SignOutcome {
    case.half_limit_experiment()?;
    if is_throttled(case) {
        return None;
    }
    let [teeth, gaps] = still(case);
    let holds = |stalls: &StallLengths| {
        alike(&stalls.base, 2) || stalls.base.count() > 0 && alike(&stalls.all, 3) || alike(&stalls.all, 4)
    };
    let told = if holds(&gaps) && !holds(&teeth) { &gaps } else { &teeth };
    let seen = match told.all.count() {
        0 => "the target did not stall".to_owned(),
        times => format!("the target stalled {times} times; the median stall took {}", ms(told.all.median())),
    };
    sign_present(holds(&teeth) || holds(&gaps), seen)
}

fn alike(stalls: &SortedSamples, least: usize) -> bool {
    stalls.count() >= least && stalls.share_near_median(0.3, 0.01) > 0.75
}

/// Lengths of stalls, in seconds.
struct StallLengths {
    /// Stalls at half the limit.
    base: SortedSamples,
    /// Stalls at half the limit, near the limit, and above the limit if no queue grows there.
    all: SortedSamples,
}

/// Returns the lengths of stalls, found by each of the two methods of [`stalls`].
fn still(case: &DiagnosisInput<'_>) -> [StallLengths; 2] {
    let calm: Vec<_> = case
        .experiments_named("half the limit")
        .chain(case.experiments_named("half the limit for 4 s"))
        .map(|done| stalls(&done.stats))
        .collect();
    // Without a queue, the overload also shows pauses: they occur at any rate.
    let queues = slows_down_in_overload(case).is_some_and(|(outcome, _)| outcome == 1);
    let over = ["150 % of the limit", "250 % of the limit"]
        .into_iter()
        .filter(|_| !queues)
        .flat_map(|name| case.experiments_named(name));
    let near = case
        .experiments_named("90 % of the limit")
        .chain(case.experiments_named("two connections"))
        .chain(over);
    let near: Vec<_> = near.map(|done| stalls(&done.stats)).collect();
    [0, 1].map(|way| {
        let base: Vec<_> = calm.iter().flat_map(|ways| ways[way].iter().map(|stall| stall.length)).collect();
        let all = near
            .iter()
            .flat_map(|ways| ways[way].iter().map(|stall| stall.length))
            .chain(base.iter().copied());
        let all = SortedSamples::of(all);
        StallLengths { base: SortedSamples::of(base.into_iter()), all }
    })
}

/// Returns whether a stall was seen at or below 90 % of the limit, even if too rarely for the sign.
#[must_use]
pub fn saw_stall_below_limit(case: &DiagnosisInput<'_>) -> bool {
    let calm = case.experiments_named("half the limit").chain(case.experiments_named("90 % of the limit"));
    calm.flat_map(|done| stalls(&done.stats)).any(|stalls| !stalls.is_empty())
}

/// Returns whether a reused connection was closed under a request at any rate.
#[must_use]
pub fn saw_keep_alive_race(case: &DiagnosisInput<'_>) -> bool {
    ["half the limit", "90 % of the limit", "150 % of the limit"]
        .into_iter()
        .filter_map(|name| case.last_experiment_named(name))
        .any(|done| races(case, &done.stats) > 0.0)
}

/// Sign: responses come in step with the period of a CPU quota.
pub fn responses_follow_cpu_quota(case: &DiagnosisInput<'_>) -> SignOutcome {
    let loads = [case.last_experiment_named("90 % of the limit"), case.strongest_overload()];
    // With fewer responses, chance alone is in step (causes-study.md, section 5).
    let loads =
        loads.iter().flatten().filter(|done| done.stats.good_requests().count() >= 60 && done.rate() > 25.0);
    let strength = loads.map(|done| answers_phase_coherence(&done.stats, PERIOD)).reduce(f64::max)?;
    let not = if strength > 0.3 { "" } else { "not " };
    sign_present(
        strength > 0.3,
        format!(
            "responses were {not}in step with the 100 ms period of a CPU quota (phase coherence {strength:.2} of at most 1)"
        ),
    )
}

/// Sign: DNS lookups take a large part of the response time.
pub fn lookups_dominate(case: &DiagnosisInput<'_>) -> SignOutcome {
    let [base, over] = [case.half_limit_experiment()?.stats, case.strongest_overload()?.stats];
    let share = |view: &ExperimentStats<'_>| {
        let sum: f64 = view.observation.seconds_of_each_lookup.iter().sum();
        let all: f64 = view.good_requests().map(ObservedRequest::response_time).sum();
        if all > 0.0 { (sum / all).clamp(0.0, 1.0) } else { 0.0 }
    };
    let (calm, busy) = (share(&base), share(&over));
    let each = ms(SortedSamples::of(base.observation.seconds_of_each_lookup.iter().copied()).median());
    let seen = format!(
        "DNS lookups (median {each}) took {} of the response time at half the limit and {} above the limit",
        percent(calm),
        percent(busy)
    );
    sign_present(calm > 0.3 || busy > 0.5, seen)
}

/// Sign: response bodies at the limit need less than 2 Mbit/s, which fills no link.
pub fn needs_little_bandwidth(case: &DiagnosisInput<'_>) -> SignOutcome {
    let bytes = case.half_limit_experiment()?.stats.mean_bytes() * case.search_findings.limit_rate;
    sign_present(
        bytes < 250e3,
        format!("at the limit, response bodies take {:.0} kB/s of bandwidth", bytes / 1e3),
    )
}

/// A connect takes at least this long, in seconds, if the kernel retransmitted its SYN, which it does after a second.
const RETRANSMITTED: f64 = 0.95;

/// Sign: TLS handshakes or connects become slower above the limit.
///
/// Without keep-alive and without TLS, an unchanged connect time proves nothing: the kernel completes connects even if the server is slow
/// to accept. The sign then has no outcome.
pub fn handshakes_slow_down(case: &DiagnosisInput<'_>) -> SignOutcome {
    let (base, over) = (case.half_limit_experiment()?.stats, case.strongest_overload()?.stats.last_third());
    // A connect that waited for a retransmitted SYN shows a full accept queue, not the cost of a handshake.
    let at_once = |carrier: &RequestConnection| carrier.connect < RETRANSMITTED;
    if over.opened_connections().count() > 2 * over.opened_connections().filter(at_once).count() {
        return None;
    }
    let opening = |carrier: RequestConnection| carrier.tls_handshake_seconds.unwrap_or(0.0) + carrier.connect;
    let [before, after] = [base, over]
        .map(|view| SortedSamples::of(view.opened_connections().filter(at_once).map(opening)).median());
    let seen = format!(
        "opening a connection took {} at half the limit and {} above the limit",
        ms(before),
        ms(after)
    );
    // With keep-alive, connections cost nothing at the limit. New connections that a queue causes come after the limit.
    let opens = base.observation.opened_connection_count as f64 > 0.3 * base.count();
    let grow = opens && after > 3.0 * before + 0.005;
    let hidden = !case.search_findings.keep_alive && !case.search_findings.tls;
    (grow || !hidden).then_some((usize::from(grow), seen))
}

/// Sign: connects took whole seconds, because the kernel retransmitted the SYN.
pub fn retransmits_syn(case: &DiagnosisInput<'_>) -> SignOutcome {
    let over = case.strongest_overload()?.stats;
    let late = |carrier: &RequestConnection| {
        carrier.connect > RETRANSMITTED && carrier.connect % 1.0 < 0.15 + 0.02 * carrier.connect
    };
    let late = over.opened_connections().filter(late).count();
    let none = over.count_where(|hit| hit.outcome == ObservedOutcome::ConnectTimedOut);
    let seen = format!(
        "{late} connects took a whole number of seconds, because the kernel retransmitted the SYN; {none:.0} connects failed"
    );
    sign_present(late >= 2 || none >= 2.0, seen)
}

/// Sign: requests above the limit fail with a gateway's status after a constant time.
pub fn gateway_times_out(case: &DiagnosisInput<'_>) -> SignOutcome {
    gave_up(&case.strongest_overload()?.stats)
}

/// Sign: requests in a long queue fail with a gateway's status after a constant time.
pub fn gateway_times_out_queued(case: &DiagnosisInput<'_>) -> SignOutcome {
    gave_up(&case.last_experiment_named("long queue")?.stats)
}

fn gave_up(view: &ExperimentStats<'_>) -> SignOutcome {
    let gateway = |hit: &&ObservedRequest| {
        matches!(hit.outcome, ObservedOutcome::BadResponse(500..=599)) && hit.response_time() > 0.15
    };
    let times = SortedSamples::of(view.requests.iter().filter(gateway).map(ObservedRequest::response_time));
    let seen = match times.count() {
        0 => "no request failed with a gateway's status (5xx) after more than 150 ms".to_owned(),
        count => {
            format!(
                "{count} requests failed with a gateway's status (5xx), after a median of {}",
                ms(times.median())
            )
        }
    };
    sign_present(times.count() >= 8 && times.share_near_median(0.03, 0.005) > 0.8, seen)
}

/// Sign: late in the overload, some responses stay fast while others become slower and slower.
pub fn some_responses_slow_down(case: &DiagnosisInput<'_>) -> SignOutcome {
    let last = case.strongest_overload()?.stats.last_third().response_times();
    let (base, service) = (case.half_limit_response_times(), case.service_time());
    let (fast, slow) = (last.quantile(0.2), last.quantile(0.93));
    let holds = fast < 1.6 * service + 0.005 && slow > 4.0 * base.quantile(0.95) + 0.02;
    sign_present(
        holds,
        format!(
            "in the last third of the overload, the fastest 20 % of responses took at most {} and the slowest 7 % took at least {}",
            ms(fast),
            ms(slow)
        ),
    )
}

/// Sign: this machine has no free local port.
pub fn no_port(case: &DiagnosisInput<'_>) -> SignOutcome {
    case.half_limit_experiment()?;
    let loads = [
        case.half_limit_experiment(),
        case.last_experiment_named("90 % of the limit"),
        case.strongest_overload(),
    ];
    let share = loads
        .iter()
        .flatten()
        .map(|done| done.stats.share_where(|hit| hit.outcome == ObservedOutcome::NoPort))
        .fold(0.0, f64::max);
    sign_present(
        share > 0.01,
        format!("this machine had no free local port for {} of the requests", percent(share)),
    )
}

/// Sign: the name of the target does not resolve.
pub fn name_does_not_resolve(case: &DiagnosisInput<'_>) -> SignOutcome {
    let share =
        case.strongest_overload()?.stats.share_where(|hit| hit.outcome == ObservedOutcome::NameUnresolved);
    sign_present(
        share > 0.01,
        format!("the lookup of the target's name found no address for {} of the requests", percent(share)),
    )
}

/// Sign: one client without pauses gets one response per limit interval, although the target is idle: a limiter spaces the responses.
pub fn delays_single_client(case: &DiagnosisInput<'_>) -> SignOutcome {
    let times = case.last_experiment_named("one client")?.stats.response_times();
    let base = case.half_limit_response_times();
    let service = base.mean().min(1.45 * base.median());
    // A delay cannot be seen if a response takes about as long as the distance between responses (causes-study.md, section 3).
    if times.count() < 5 || case.search_findings.limit_rate * service > 0.5 {
        return None;
    }
    // The median, because a CPU quota delays only some responses.
    let (middle, distance) = (times.median(), 1.0 / case.search_findings.limit_rate);
    // A delay within the machine's jitter does not count, unless the distance itself is that short.
    let waits = middle > 1.7 * service + (0.2 * distance).min(0.000_5);
    let holds = waits && (0.75..1.35).contains(&(middle / distance));
    sign_present(
        holds,
        format!(
            "one client that sends without pauses waited {} for each response; at low load, a response took {}",
            ms(middle),
            ms(service)
        ),
    )
}

/// Sign: requests that arrive together, as many as the target serves concurrently, wait for one another.
pub fn simultaneous_requests_wait(case: &DiagnosisInput<'_>) -> SignOutcome {
    let done = case.last_experiment_named("bursts of the concurrent capacity")?;
    let crate::experiment::ExperimentLoad::Bursts { size, .. } = done.experiment.load else { return None };
    let all = case
        .experiments_named("bursts of the concurrent capacity")
        .flat_map(|done| done.stats.good_requests().map(ObservedRequest::response_time));
    let (times, base) = (SortedSamples::of(all), case.half_limit_response_times());
    let (size, mean, service) = (size as f64, times.mean(), base.mean());
    let share = 0.5 * (size - 1.0) / size;
    // The middle between concurrent and sequential service. A mean close to that middle has no outcome.
    let middle = service * (1.0 + 0.5 * share + 0.03);
    // The standard error comes from the base load, because the spread of the bursts is what this sign measures.
    let more = (1.0 + base.count() as f64 / times.count().max(1) as f64).sqrt();
    if (mean - middle).abs() < base.standard_error() * more {
        return None;
    }
    let holds = mean > middle;
    sign_present(
        holds,
        format!(
            "{size:.0} requests that were sent together took {} on average; at half the limit, a request took {}",
            ms(mean),
            ms(service)
        ),
    )
}

/// Bounds between a CPU quota, one core, more than one core, and a pool. The study measured 0.82 to 1.10 for one core. Network time can
/// only increase the number, so a pool of two is at least two.
const SERVED: [f64; 4] = [0.55, 0.8, 1.25, 1.75];

/// Sign: how many requests the target serves concurrently: less than one core's worth, one, or more.
pub fn concurrent_capacity_level(case: &DiagnosisInput<'_>) -> SignOutcome {
    let many = case.last_experiment_named("many clients")?.stats;
    // With many refusals, the good responses come from a burst and do not show the throughput.
    if many.good_requests().count() < 10 || many.share_where(|hit| hit.outcome.is_bad_response()) > 0.2 {
        return None;
    }
    // Clients whose requests hang on unserved connections load no worker.
    if many.share_where(|hit| hit.outcome.hangs()) > 0.1 && saw_hangs_only_on_new_connections(case) {
        return None;
    }
    let places = many.closed_loop_goodput() * case.work_time();
    let outcome = |places: f64| SERVED.iter().filter(|bound| places >= **bound).count();
    // If up to half of the response time may be the machine's, the work time is uncertain. Both estimates must then agree.
    let most = many.closed_loop_goodput() * case.service_time();
    if case.work_time() <= 0.5 * case.service_time() && outcome(places) != outcome(most) {
        return None;
    }
    Some((
        outcome(places),
        format!(
            "the target completed {:.0} requests/s of {} each, so it serves about {places:.2} requests concurrently",
            many.closed_loop_goodput(),
            ms(case.service_time())
        ),
    ))
}

/// Bounds on the requests in flight at the limit below which workers are hardly busy. One sequential worker has about 1. A cap of two
/// refuses one request in a thousand at 0.046 (Erlang B).
const BUSY: [f64; 2] = [0.55, 0.04];

/// Sign: whether the requests in flight at the limit can keep one worker, only a small cap, or nothing busy.
pub fn in_flight_level_at_limit(case: &DiagnosisInput<'_>) -> SignOutcome {
    case.half_limit_experiment()?;
    let places = case.in_flight_at_limit();
    let outcome = BUSY.iter().filter(|bound| places < **bound).count();
    Some((outcome, format!("at the limit, the target has {places:.2} requests in flight on average")))
}

/// The requests admitted in three bursts and the tokens that a bucket regains between two bursts, summed over all runs of the
/// experiment.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct BurstAdmissions {
    /// The admitted requests of the first, second and third burst, summed over all runs.
    pub admitted_per_burst: [f64; 3],
    /// The tokens that a bucket regains between two bursts, summed over all runs.
    pub tokens_regained: f64,
    /// The refused requests of the first burst, summed over all runs.
    pub refused_in_first_burst: f64,
    /// The number of runs of the experiment.
    pub experiment_count: f64,
}

/// Sums the admitted and refused requests over all runs of the experiment.
#[must_use]
pub fn sum_burst_admissions(case: &DiagnosisInput<'_>) -> BurstAdmissions {
    let mut admitted = BurstAdmissions::default();
    for done in case.experiments_named("three bursts in a row") {
        let crate::experiment::ExperimentLoad::Bursts { every, .. } = done.experiment.load else { continue };
        let gap = every.as_secs_f64().max(1e-6);
        for hit in done.stats.requests {
            let burst = (hit.due / gap).round().clamp(0.0, 2.0) as usize;
            let good = hit.outcome == ObservedOutcome::Good;
            admitted.admitted_per_burst[burst] += f64::from(u8::from(good));
            admitted.refused_in_first_burst += f64::from(u8::from(burst == 0 && !good));
        }
        admitted.tokens_regained += gap * case.search_findings.limit_rate;
        admitted.experiment_count += 1.0;
    }
    admitted
}

/// Sign: whether the second of three bursts finds new tokens or occupied places. The bursts are 0.6 response times apart. At the third
/// burst all places are free again, but a time window has not ended yet.
pub fn admits_second_burst(case: &DiagnosisInput<'_>) -> SignOutcome {
    let BurstAdmissions {
        admitted_per_burst: [first, second, third],
        tokens_regained: bucket,
        refused_in_first_burst: refused,
        experiment_count: rows,
    } = sum_burst_admissions(case);
    if rows == 0.0 {
        return None;
    }
    let taken = second <= (0.25 * bucket).max(0.2 * first) && third >= 0.5 * first && first >= 2.0 * rows;
    let came = second >= 0.5 * bucket && bucket >= 1.5 || third <= 0.25 * first;
    let outcome = match () {
        () if refused == 0.0 => 2,
        () if taken => 0,
        () if came => 1,
        () => 2,
    };
    let seen = format!(
        "the target admitted {first:.0} requests of the first burst, {second:.0} of the second and {third:.0} of the third (a rate limiter regains {bucket:.1} tokens between two bursts)"
    );
    Some((outcome, seen))
}

/// Sign: goodput after the first refusal is below the limit, about the limit, or above it. A bucket admits its fill rate. A cap admits more
/// under a higher load and starts to refuse far below its capacity.
pub fn goodput_after_refusal(case: &DiagnosisInput<'_>) -> SignOutcome {
    let over = case.strongest_overload()?;
    if refused(case, &over.stats) < 0.02 {
        return None;
    }
    let from = over.stats.requests.iter().find(|hit| hit.outcome.is_bad_response())?.due;
    let rest = over.stats.span() - from;
    let good = over.stats.good_requests().filter(|hit| hit.due > from).count() as f64;
    if rest < 0.5 || good < 30.0 {
        return None;
    }
    let share = good / rest / case.search_findings.limit_rate;
    let seen = format!("after the first refusal, goodput was {share:.2} times the limit");
    Some((usize::from(share >= 0.93) + usize::from(share > 1.2), seen))
}

/// Bounds on the probability that more requests were in flight at a refusal than at an admission: likely and almost certain.
const MORE_UNDER_WAY: [f64; 2] = [0.8, 0.93];
/// The largest sample of each kind.
const SAMPLE: usize = 200;

/// Sign: whether refusals depend on the requests in flight. A cap refuses exactly when its places are taken. A bucket refuses by the
/// earlier arrivals, however quickly they were served.
pub fn refuses_by_in_flight_count(case: &DiagnosisInput<'_>) -> SignOutcome {
    let over = case.strongest_overload()?.stats;
    if refused(case, &over) < 0.02 {
        return None;
    }
    // An admitted request is itself in flight when it is sent, so it does not count.
    let at = |good: bool| {
        let hits: Vec<_> = over
            .requests
            .iter()
            .filter(
                |hit| if good { hit.outcome == ObservedOutcome::Good } else { hit.outcome.is_bad_response() },
            )
            .collect();
        let step = (hits.len() / SAMPLE).max(1);
        let sent = hits.into_iter().step_by(step).filter_map(|hit| hit.sent);
        sent.map(|at| over.good_requests_in_flight_at(at) - f64::from(u8::from(good))).collect::<Vec<_>>()
    };
    let (through, not) = (at(true), at(false));
    if through.len() < 20 || not.len() < 10 {
        return None;
    }
    // The Mann–Whitney statistic: the probability that more requests were in flight at a refusal than at an admission.
    let wins = |one: f64, other: f64| {
        if one > other {
            1.0
        } else if one < other {
            0.0
        } else {
            0.5
        }
    };
    let sum: f64 = not.iter().map(|one| through.iter().map(|other| wins(*one, *other)).sum::<f64>()).sum();
    let share = sum / (not.len() * through.len()) as f64;
    let outcome = MORE_UNDER_WAY.iter().filter(|bound| share >= **bound).count();
    let [refused, served] = [not, through].map(|counts| SortedSamples::of(counts.into_iter()).mean());
    let seen = format!(
        "on average, {refused:.1} requests were in flight when a refused request was sent, and {served:.1} when an accepted request was sent"
    );
    Some((outcome, seen))
}

/// Sign: idle connections make other requests fail.
pub fn held_connections_block_others(case: &DiagnosisInput<'_>) -> SignOutcome {
    let done = case.last_experiment_named("idle connections held open")?;
    let failed = done.stats.share_where(|hit| {
        !matches!(
            hit.outcome,
            ObservedOutcome::Good | ObservedOutcome::NoPort | ObservedOutcome::NameUnresolved
        )
    });
    let held = done.experiment.variation.held_idle_connections;
    sign_present(
        failed > 0.5,
        format!(
            "at 40 % of the limit, {} of the requests failed while {held} idle connections were open",
            percent(failed)
        ),
    )
}

/// Returns whether the second experiment did better than the first: `by` times the goodput, or a far lower median.
fn raises_goodput(before: &ExperimentStats<'_>, after: &ExperimentStats<'_>, by: f64) -> (bool, String) {
    let (x, y) = (before.goodput(), after.goodput());
    let (p, q) = (before.response_times().median(), after.response_times().median());
    let chance = (x / before.span().max(0.1) + y / after.span().max(0.1)).sqrt();
    let holds = y > by * x && y - x > 3.0 * chance || q > 0.0 && q < 0.3 * p && y > 0.8 * x;
    (
        holds,
        format!(
            "goodput was {y:.0}/s and p50 was {}; without this change, goodput was {x:.0}/s and p50 was {}",
            ms(q),
            ms(p)
        ),
    )
}

/// Sign: keep-alive raises the limit.
pub fn keep_alive_raises_limit(case: &DiagnosisInput<'_>) -> SignOutcome {
    let done = case.last_experiment_named("with keep-alive")?;
    let (holds, seen) = raises_goodput(&case.strongest_overload()?.stats, &done.stats, 1.2);
    sign_present(holds, format!("with keep-alive, {seen}"))
}

/// Sign: requests no longer hang when each request opens a new connection.
pub fn new_connections_stop_hangs(case: &DiagnosisInput<'_>) -> SignOutcome {
    let done = case.last_experiment_named("without keep-alive")?;
    let [before, after] = [case.strongest_overload()?.stats, done.stats]
        .map(|view| view.share_where(|hit| hit.outcome.hangs()));
    if before < 0.05 {
        return None;
    }
    let seen = format!(
        "{} of the requests got no response with a new connection per request, and {} with reused connections",
        percent(after),
        percent(before)
    );
    sign_present(after < 0.2 * before, seen)
}

/// Sign: requests no longer lose their connection when each request opens a new connection.
pub fn new_connections_stop_cuts(case: &DiagnosisInput<'_>) -> SignOutcome {
    let done = case.last_experiment_named("without keep-alive")?;
    let before =
        races(case, &case.half_limit_experiment()?.stats).max(races(case, &case.strongest_overload()?.stats));
    if before < 2.0 {
        return None;
    }
    let after = races(case, &done.stats)
        + done.stats.count_where(|hit| hit.outcome.is_connection_refused_or_closed());
    sign_present(
        after < 0.2 * before,
        format!(
            "the target closed the connection of {after:.0} requests with a new connection per request, and of {before:.0} requests with reused connections"
        ),
    )
}

/// Sign: responses without bodies (HEAD) raise the limit.
pub fn head_raises_limit(case: &DiagnosisInput<'_>) -> SignOutcome {
    let done = case.last_experiment_named("HEAD requests")?;
    // If the server refuses HEAD, the experiment shows nothing.
    let unknown = done
        .stats
        .share_where(|hit| matches!(hit.outcome, ObservedOutcome::BadResponse(400 | 404 | 405 | 501)));
    if unknown > 0.5 {
        return None;
    }
    let (holds, seen) = raises_goodput(&case.strongest_overload()?.stats, &done.stats, 1.25);
    sign_present(holds, format!("with HEAD requests, {seen}"))
}

/// Sign: another source address has free ports.
pub fn other_source_frees_ports(case: &DiagnosisInput<'_>) -> SignOutcome {
    let done = case.last_experiment_named("another source address")?;
    let share = done.stats.share_where(|hit| hit.outcome == ObservedOutcome::NoPort);
    sign_present(
        share < 0.01,
        format!("from another source address, {} of the requests had no free local port", percent(share)),
    )
}

/// Sign: requests are faster without the DNS lookup.
pub fn skipping_dns_helps(case: &DiagnosisInput<'_>) -> SignOutcome {
    let done = case.last_experiment_named("IP address instead of name")?;
    let [before, after] =
        [case.half_limit_experiment()?.stats, done.stats].map(|view| view.response_times().median());
    sign_present(
        after < 0.7 * before,
        format!(
            "p50 of the response time was {} without DNS lookups and {} with DNS lookups",
            ms(after),
            ms(before)
        ),
    )
}

/// Sign: the number of hanging requests is the same at one rate and at twice that rate.
pub fn hanging_count_is_constant(case: &DiagnosisInput<'_>) -> SignOutcome {
    let number = |done: crate::diagnosis_input::ValidExperiment<'_>| {
        let hang = done.stats.count_where(|hit| hit.outcome.hangs() && hit.sent.is_some());
        (hang, done.rate())
    };
    let (one, other) = (
        number(case.last_experiment_named("many connections")?),
        number(case.last_experiment_named("many connections at twice the rate")?),
    );
    let same = |one: f64, other: f64| one > 10.0 && (one - other).abs() <= 2.0;
    let seen = format!(
        "{:.0} requests got no response at {:.0}/s, and {:.0} requests at {:.0}/s",
        one.0, one.1, other.0, other.1
    );
    sign_present(same(one.0, other.0), seen)
}

/// Sign: requests on a few connections do not hang.
pub fn few_connections_avoid_hangs(case: &DiagnosisInput<'_>) -> SignOutcome {
    let done = case.last_experiment_named("few connections")?;
    let sent = |hit: &ObservedRequest| hit.sent.is_some();
    let hang = done.stats.count_where(|hit| hit.outcome == ObservedOutcome::TimedOut && sent(hit));
    let share = hang / done.stats.count_where(sent).max(1.0);
    let most = done.experiment.variation.max_connections.unwrap_or(0);
    sign_present(
        share < 0.1,
        format!("with at most {most} connections, {} of the sent requests timed out", percent(share)),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment_plans;
    use crate::experiment_selection::SearchFindings;
    use crate::observed_requests::ExperimentObservation;
    use crate::report::ExperimentRecord;

    #[test]
    fn nothing_has_no_sign() {
        let nothing: f64 = [].iter().sum();
        assert_eq!((percent(nothing), ms(nothing)), ("0 %".to_owned(), "0.0 ms".to_owned()));
    }

    const KNOWN: SearchFindings = SearchFindings {
        limit_rate: 20.0,
        service_time: 0.005,
        timeout: 30.0,
        failure_share_at_any_rate: 0.0,
        keep_alive: true,
        tls: false,
        target_is_name: false,
        max_rate: None,
        generator_max_rate: None,
        time_budget: std::time::Duration::MAX,
    };

    /// Requests of the opening experiments, each on a connection with so many earlier requests.
    fn tried(over: Vec<(ObservedOutcome, RequestConnection)>) -> Vec<ExperimentRecord> {
        let nothing = DiagnosisInput { search_findings: &KNOWN, experiments: &[] };
        let good = |earlier| {
            let carrier =
                RequestConnection { earlier_requests_on_connection: earlier, ..RequestConnection::default() };
            (ObservedOutcome::Good, carrier)
        };
        let calm: Vec<_> = (0..40).map(good).collect();
        let experiments = [
            (experiment_plans::half_the_limit(&nothing), calm.clone()),
            (experiment_plans::near_the_limit(&nothing), calm),
            (experiment_plans::overload(&nothing), over),
        ];
        let request = |at: usize, (outcome, carrier): (ObservedOutcome, RequestConnection)| {
            let due = at as f64 / 20.0;
            ObservedRequest {
                due,
                sent: Some(due + carrier.connect),
                generator_lag: 0.0,
                end: due + carrier.connect + 0.005,
                outcome,
                bytes: 2,
                carrying_connection: Some(carrier),
            }
        };
        let record = |(experiment, requests): (_, Vec<_>)| {
            let requests = requests.into_iter().enumerate().map(|(at, one)| request(at, one)).collect();
            let observation = ExperimentObservation {
                requests,
                opened_connection_count: 40,
                ..ExperimentObservation::default()
            };
            ExperimentRecord { experiment, observation, summary: String::new() }
        };
        experiments.into_iter().map(record).collect()
    }

    fn of_over(
        over: impl Iterator<Item = (ObservedOutcome, u64, f64)>,
        read: fn(&DiagnosisInput<'_>) -> SignOutcome,
    ) -> Option<usize> {
        let carrier = |(outcome, earlier_requests_on_connection, connect)| {
            (
                outcome,
                RequestConnection { earlier_requests_on_connection, connect, ..RequestConnection::default() },
            )
        };
        let tried = tried(over.map(carrier).collect());
        read(&DiagnosisInput { search_findings: &KNOWN, experiments: &tried }).map(|(outcome, _)| outcome)
    }

    /// A server that handles one connection at a time was called a hanging limiter.
    #[test]
    fn requests_that_hang_only_on_new_connections_mean_a_cap_on_connections() {
        use ObservedOutcome::{Good, UnansweredAtEnd};
        let hanging = |each: u64, earlier: u64| {
            let one = move |at: u64| {
                if at.is_multiple_of(each) { (UnansweredAtEnd, earlier, 0.0) } else { (Good, at, 0.0) }
            };
            of_over((1..61).map(one), hangs_only_on_new_connections)
        };
        assert_eq!(hanging(10, 0), Some(1));
        assert_eq!(hanging(10, 3), Some(0), "a limiter lets requests hang on served connections, too");
        assert_eq!(hanging(20, 0), None, "too few for a sign");
        let tried = tried(vec![(UnansweredAtEnd, RequestConnection::default()); 2]);
        assert!(saw_hangs_only_on_new_connections(&DiagnosisInput {
            search_findings: &KNOWN,
            experiments: &tried
        }));
    }

    /// Recorded: a server that handles one connection at a time was called a CPU quota, because most clients had no served connection.
    #[test]
    fn clients_whose_requests_hang_show_not_how_many_requests_are_served_at_once() {
        use ObservedOutcome::{Good, UnansweredAtEnd};
        let new = (UnansweredAtEnd, RequestConnection::default());
        let with_clients = |hanging: usize, over: usize| {
            let kept = |earlier| {
                (
                    Good,
                    RequestConnection {
                        earlier_requests_on_connection: earlier,
                        ..RequestConnection::default()
                    },
                )
            };
            let calm = (0..58).map(kept);
            let mut tried = tried(calm.chain(vec![new; over]).collect());
            let mut clients = tried[0].clone();
            clients.experiment.name = "many clients";
            clients
                .observation
                .requests
                .iter_mut()
                .take(hanging)
                .for_each(|hit| hit.outcome = UnansweredAtEnd);
            tried.push(clients);
            concurrent_capacity_level(&DiagnosisInput { search_findings: &KNOWN, experiments: &tried })
                .is_some()
        };
        assert!(with_clients(0, 6) && with_clients(8, 0));
        assert!(!with_clients(8, 6));
    }

    /// A server that handles one connection at a time had the cause churn-cost: most of its connects waited a second for a place in the
    /// accept queue.
    #[test]
    fn a_connect_that_waits_for_a_retransmitted_syn_is_no_slow_handshake() {
        use ObservedOutcome::Good;
        let connects = |seconds: f64| of_over((0..60).map(|_| (Good, 0, seconds)), handshakes_slow_down);
        assert_eq!(connects(0.050), Some(1));
        assert_eq!(connects(1.016), None);
        assert_eq!(connects(0.000_2), Some(0));
    }
}
