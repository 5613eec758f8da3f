//! How large a cause is: bucket and fill, places, connections, times. Pure functions of what was tried, called for causes that are named.

use crate::case::{Case, Done};
use crate::class::Class;
use crate::experiment::Load;
use crate::report::Figure;
use crate::view::{Sorted, View, stalls};
use crate::watched::{Carrier, Hit, How};

/// What is known of the size of a cause.
#[must_use]
pub fn of(class: Class, case: &Case<'_>) -> Vec<Figure> {
    match class {
        Class::RateLimiter | Class::HangingLimiter => bucket(case),
        Class::DelayingLimiter => [figure("fill", goodput(case), "requests/s"), queue(case)].concat(),
        Class::PoolSaturation => [workers(case), queue(case)].concat(),
        Class::CpuSaturation => figure("served at once", served(case), ""),
        Class::CfsThrottling => {
            [figure("share of a core", served(case), ""), figure("period", Some(0.1), "s")].concat()
        }
        Class::ConcurrencyCap => cap(case),
        Class::ConnectionCap => connections(case),
        Class::ChurnCost => handshake(case),
        Class::KeepAliveRace => race(case),
        Class::TimeoutChain => chain(case),
        Class::Pauses => pauses(case),
        Class::UnevenBalancing => uneven(case),
        Class::Dns => figure("lookup", lookups(case), "s"),
        Class::Ports => ports(case),
        Class::Bandwidth => bandwidth(case),
        Class::Generator | Class::Unknown => Vec::new(),
    }
}

fn figure(name: &'static str, value: Option<f64>, unit: &'static str) -> Vec<Figure> {
    value.filter(|value| value.is_finite()).map(|value| Figure { name, value, unit }).into_iter().collect()
}

fn goodput(case: &Case<'_>) -> Option<f64> {
    case.over().map(|over| over.view.goodput())
}

/// When the first request failed, and how many were admitted by then.
fn first_failure(done: &Done<'_>) -> Option<(f64, f64)> {
    let at = done.view.hits.iter().position(|hit| hit.how.is_status() || hit.how.hangs())?;
    let due = done.view.hits.get(at)?.due;
    Some((due, at as f64))
}

fn bucket(case: &Case<'_>) -> Vec<Figure> {
    let Some(over) = case.over() else { return Vec::new() };
    let Some((time, admitted)) = first_failure(&over) else { return Vec::new() };
    let span = over.view.span();
    let later = over.view.good().filter(|hit| hit.due > time).count() as f64;
    // Too short a rest says less of the rate than the search has.
    let fill = if span - time > 0.5 { later / (span - time) } else { case.known.limit };
    // Who lets nobody through any more fills nothing.
    if fill <= 0.0 {
        return Vec::new();
    }
    let size = (admitted - fill * time).max(1.0).round();
    [figure("bucket", Some(size), "requests"), figure("fill", Some(fill), "requests/s")].concat()
}

fn served(case: &Case<'_>) -> Option<f64> {
    let many = case.last("many clients")?.view;
    Some(many.throughput() * case.work())
}

fn workers(case: &Case<'_>) -> Vec<Figure> {
    let workers = served(case).unwrap_or(case.places());
    figure("workers", Some(workers.round().max(1.0)), "")
}

/// Requests that wait before one is refused.
fn queue(case: &Case<'_>) -> Vec<Figure> {
    let Some(over) = case.over() else { return Vec::new() };
    let refused = over.view.hits.iter().filter(|hit| hit.how.is_status()).filter_map(|hit| hit.sent);
    let waiting = Sorted::of(refused.take(50).map(|at| over.view.under_way(at))).median();
    let room = waiting - case.places();
    figure("queue", (waiting > 0.0).then_some(room.round().max(0.0)), "requests")
}

fn cap(case: &Case<'_>) -> Vec<Figure> {
    let Some(over) = case.over() else { return Vec::new() };
    let refused = over.view.hits.iter().filter(|hit| hit.how.is_status()).filter_map(|hit| hit.sent);
    let places = Sorted::of(refused.take(200).map(|at| over.view.under_way(at))).median();
    // By Erlang's formula one in a thousand is refused at 0.31 of what ten places carry; more places come closer.
    let places_figure = figure("places", (places > 0.0).then_some(places), "requests");
    let safe = one_in_a_thousand(places.round().max(1.0)) / case.service().max(1e-6);
    [places_figure, figure("one in a thousand refused at", (places > 0.0).then_some(safe), "requests/s")]
        .concat()
}

/// The load, in requests under way, of which so many places refuse one in a thousand (Erlang's formula B, 1917, by its recursion).
#[must_use]
pub fn one_in_a_thousand(places: f64) -> f64 {
    let refuses = |load: f64| (1..=places as u32).fold(1.0, |b, n| load * b / (f64::from(n) + load * b));
    let (mut low, mut high) = (0.0, places);
    for _ in 0..40 {
        let middle = (low + high) / 2.0;
        if refuses(middle) < 0.001 { low = middle } else { high = middle }
    }
    low
}

fn connections(case: &Case<'_>) -> Vec<Figure> {
    let Some(over) = case.over() else { return Vec::new() };
    let serving = |done: &Done<'_>| {
        let mut numbers: Vec<_> =
            done.view.good().filter_map(|hit| hit.carrier.map(|carrier: Carrier| carrier.number)).collect();
        numbers.sort_unstable();
        numbers.dedup();
        numbers.len() as f64
    };
    // Of those that close, how many stood when one more was closed; of those that do not read, how many were read.
    let cut = over.view.hits.iter().filter(|hit| hit.how.is_cut()).filter_map(|hit| hit.sent);
    let at_cut = Sorted::of(cut.take(100).map(|at| over.view.under_way(at)));
    let most = if at_cut.count() > 2 { at_cut.quantile(0.9) } else { serving(&over) };
    [figure("connections", (most > 0.0).then_some(most), ""), unread(case)].concat()
}

/// Connections that stand and that nobody reads; a backlog has room for one more than it was told.
fn unread(case: &Case<'_>) -> Vec<Figure> {
    let hang = |done: Done<'_>| done.view.number(|hit| hit.how.hangs() && hit.sent.is_some());
    let both = case.last("much over").map(hang).zip(case.last("twice as much over").map(hang));
    let same = both.filter(|(one, other)| (one - other).abs() <= 2.0 && *one > 10.0).map(|(one, _)| one);
    let power = same
        .map(|count| 2f64.powf(count.log2().round()))
        .filter(|power| same.is_some_and(|count| (count - power).abs() <= 1.0));
    let beside = same.and(goodput(case));
    [
        figure("cap", same, "connections"),
        figure("power of two", power, "connections"),
        figure("beside a capacity of", beside, "requests/s"),
    ]
    .concat()
}

fn handshake(case: &Case<'_>) -> Vec<Figure> {
    let opening =
        |view: View<'_>| Sorted::of(view.opened().map(|one| one.tls.unwrap_or(0.0) + one.connect)).median();
    let name = if case.known.tls { "handshake" } else { "connect" };
    figure(name, case.base().map(|base| opening(base.view)).filter(|time| *time > 0.0), "s")
}

/// How long connections of bursts have nothing to carry, in seconds; none of other loads.
#[must_use]
pub fn idle_time(done: &Done<'_>) -> Option<f64> {
    let Load::Bursts { every, .. } = done.experiment.load else { return None };
    Some((every.as_secs_f64() - done.view.times().median()).max(0.0))
}

/// A connection is closed under a request at about the time that others have just outlived: no earlier than this share of it.
const JUST: f64 = 0.8;

/// Seconds without a request that connections have outlived, and the least that none has; none where they are not closed by time.
#[must_use]
pub fn idle_between(case: &Case<'_>) -> Option<(f64, f64)> {
    let names = ["base", "near", "over", "two connections", "idle connections", "idle for"];
    let all: Vec<_> = names.into_iter().flat_map(|name| case.all(name)).collect();
    let used = || all.iter().flat_map(|done| done.view.hits).filter_map(|hit| Some((hit.how, hit.carrier?)));
    let used = || used().filter(|(_, carrier)| carrier.before > 0);
    let of = |holds: fn(How) -> bool| {
        Sorted::of(used().filter(move |(how, _)| holds(*how)).map(|(_, carrier)| carrier.idle))
    };
    let (alive, cut) = (of(|how| how == How::Good).quantile(1.0).max(0.000_1), of(How::is_cut));
    if cut.count() > 0 && cut.median() < JUST * alive {
        return None;
    }
    let forgets = |done: &&Done<'_>| {
        done.experiment.name.starts_with("idle")
            && done.view.good().all(|hit| hit.carrier.is_none_or(|one| one.before == 0))
    };
    let forgotten = all.iter().filter(forgets).filter_map(idle_time);
    let cut = used().filter(|(how, one)| how.is_cut() && one.idle >= JUST * alive).map(|(_, one)| one.idle);
    let closed = forgotten.chain(cut).fold(f64::INFINITY, f64::min);
    closed.is_finite().then_some((alive.min(closed), alive.max(closed)))
}

/// How much further apart the two may lie that are told as one.
pub const IDLE_APART: f64 = 1.2;

/// After how many requests, or how long without one, a connection is closed.
fn race(case: &Case<'_>) -> Vec<Figure> {
    let all = ["base", "near", "over", "two connections"].into_iter().filter_map(|name| case.last(name));
    let (mut cut, mut most) = (Vec::new(), 0.0_f64);
    for hit in all.flat_map(|done| done.view.hits) {
        let before = hit.carrier.map_or(0.0, |carrier| carrier.before as f64);
        match hit.how {
            How::Good => most = most.max(before),
            how if how.is_cut() && before > 0.0 => cut.push(before),
            _ => {}
        }
    }
    let cut = Sorted::of(cut.into_iter());
    if cut.count() > 1 && cut.alike(0.05, 1.0) > 0.8 {
        return figure("requests per connection", Some(cut.median()), "requests");
    }
    match idle_between(case) {
        Some((alive, closed)) if closed < IDLE_APART * alive => {
            figure("closes connections idle for", Some((alive * closed).sqrt()), "s")
        }
        Some((_, closed)) => figure("closes connections idle for at most", Some(closed), "s"),
        None => figure("requests per connection", (most > 0.0).then_some(most + 1.0), "requests"),
    }
}

fn chain(case: &Case<'_>) -> Vec<Figure> {
    let given_up = |done: Option<Done<'_>>| {
        let view = done?.view;
        let late = view.hits.iter().filter(|hit| hit.how.is_status() && hit.response() > 0.15);
        let times = Sorted::of(late.map(Hit::response));
        (times.count() > 0).then(|| (view.times().quantile(1.0), times.median()))
    };
    // What is answered took no more than one try: the slowest good answer is at least as late as that one's end.
    let Some((slowest, time)) = given_up(case.over()).or_else(|| given_up(case.last("long line"))) else {
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

fn pauses(case: &Case<'_>) -> Vec<Figure> {
    let loads = ["base", "near", "long base"].into_iter().filter_map(|name| case.last(name));
    let (mut lengths, mut distances) = (Vec::new(), Vec::new());
    for done in loads {
        let [teeth, gaps] = stalls(&done.view);
        let stalls = if teeth.is_empty() { gaps } else { teeth };
        lengths.extend(stalls.iter().map(|stall| stall.length));
        distances.extend(stalls.windows(2).map(|pair| pair[1].began - pair[0].began));
    }
    let (length, every) =
        (Sorted::of(lengths.into_iter()).median(), Sorted::of(distances.into_iter()).median());
    [
        figure("length", (length > 0.0).then_some(length), "s"),
        figure("every", (every > 0.0).then_some(every), "s"),
    ]
    .concat()
}

fn uneven(case: &Case<'_>) -> Vec<Figure> {
    let Some(over) = case.over() else { return Vec::new() };
    let last = over.view.last_third();
    let bound = 1.6 * case.service() + 0.02;
    let slow =
        last.good().filter(|hit| hit.response() > bound).count() as f64 / last.good().count().max(1) as f64;
    let servers = (slow > 0.0).then(|| (1.0 / slow).round());
    [figure("servers", servers, ""), figure("share that is slow", Some(slow), "")].concat()
}

fn lookups(case: &Case<'_>) -> Option<f64> {
    let base = case.base()?;
    Some(Sorted::of(base.view.watched.lookups.iter().copied()).median())
}

fn ports(case: &Case<'_>) -> Vec<Figure> {
    let opened: u64 = case
        .tried
        .iter()
        .filter(|tried| !tried.experiment.variation.another_source)
        .map(|tried| tried.watched.connections)
        .sum();
    figure("connections opened before", (opened > 0).then_some(opened as f64), "")
}

fn bandwidth(case: &Case<'_>) -> Vec<Figure> {
    let bytes = case.over().map(|over| over.view.goodput() * over.view.bytes());
    figure("bytes", bytes, "bytes/s")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::battery;
    use crate::inquiry::Known;
    use crate::report::Tried;
    use crate::watched::Watched;

    fn between(idle: &[(How, f64)]) -> Option<(f64, f64)> {
        let known = Known {
            limit: 100.0,
            service: 0.001,
            timeout: 30.0,
            failing: 0.0,
            keep_alive: true,
            tls: false,
            named: false,
            max_rate: None,
            generator: None,
            budget: Duration::from_secs(30),
        };
        let hit = |(how, idle): &(How, f64)| {
            let carrier = Some(Carrier { before: 1, idle: *idle, ..Carrier::default() });
            Hit { due: 0.0, sent: Some(0.0), lag: 0.0, end: 0.001, how: *how, bytes: 0, carrier }
        };
        let experiment = battery::base(&Case { known: &known, tried: &[] });
        let watched = Watched { hits: idle.iter().map(hit).collect(), ..Watched::default() };
        let tried = [Tried { experiment, watched, says: String::new() }];
        idle_between(&Case { known: &known, tried: &tried })
    }

    /// A request that came a little later was answered, so that the time was none, and the figure a number of requests.
    #[test]
    fn a_connection_cut_just_before_others_were_served_is_closed_by_time() {
        let between = between(&[(How::Good, 0.0089), (How::Good, 0.009), (How::Cut, 0.0088)]);
        assert_eq!(between, Some((0.0088, 0.009)));
    }

    #[test]
    fn a_connection_cut_long_before_is_closed_by_something_else() {
        assert_eq!(between(&[(How::Good, 0.5), (How::Cut, 0.002), (How::Cut, 0.003)]), None);
        assert_eq!(between(&[(How::Good, 0.5)]), None);
    }
}
