//! Statistics of one experiment: shares, quantiles, rates, requests in flight. These are pure functions of the observation;
//! [`crate::signs`] interprets them.

use crate::observed_requests::{ExperimentObservation, ObservedOutcome, ObservedRequest, RequestConnection};

/// The number of consecutive unanswered requests that shows that the target is down.
const LEFT: usize = 5;

/// Statistics of one experiment.
#[derive(Debug, Clone, Copy)]
pub struct ExperimentStats<'a> {
    /// The requests, or a part of them.
    pub requests: &'a [ObservedRequest],
    /// The whole observation.
    pub observation: &'a ExperimentObservation,
}

impl<'a> ExperimentStats<'a> {
    /// Statistics of all requests of an observation.
    #[must_use]
    pub fn new(watched: &'a ExperimentObservation) -> Self {
        Self { requests: &watched.requests, observation: watched }
    }

    /// Returns whether every request found the target unreachable or got a 5xx status, which a proxy sends if its upstream is
    /// down.
    #[must_use]
    pub fn is_down(&self) -> bool {
        let deserted = |hit: &ObservedRequest| {
            hit.outcome.is_unreachable() || matches!(hit.outcome, ObservedOutcome::BadResponse(500..=599))
        };
        !self.requests.is_empty() && self.requests.iter().all(deserted)
    }

    /// Returns whether the target was unreachable in the last fifth of the requests, given enough requests.
    #[must_use]
    pub fn is_down_at_end(&self) -> bool {
        let end = self.requests.get(self.requests.len() * 4 / 5..).unwrap_or_default();
        (end.len() >= LEFT || end.len() == self.requests.len())
            && !end.is_empty()
            && end.iter().all(|hit| hit.outcome.is_unreachable())
    }

    /// Returns the number of requests.
    #[must_use]
    pub fn count(&self) -> f64 {
        self.requests.len() as f64
    }

    /// Statistics of the last third of the requests.
    #[must_use]
    pub fn last_third(&self) -> ExperimentStats<'a> {
        ExperimentStats {
            requests: &self.requests[self.requests.len() * 2 / 3..],
            observation: self.observation,
        }
    }

    /// Returns the seconds from the first request to one interval after the last.
    #[must_use]
    pub fn span(&self) -> f64 {
        let (Some(first), Some(last)) = (self.requests.first(), self.requests.last()) else { return 0.0 };
        (last.due - first.due) * (1.0 + 1.0 / (self.count() - 1.0).max(1.0))
    }

    /// Returns the share of requests that match the predicate; 0 without requests.
    pub fn share_where(&self, holds: impl Fn(&ObservedRequest) -> bool) -> f64 {
        self.count_where(holds) / self.count().max(1.0)
    }

    /// Returns the number of requests that match the predicate.
    pub fn count_where(&self, holds: impl Fn(&ObservedRequest) -> bool) -> f64 {
        self.requests.iter().filter(|hit| holds(hit)).count() as f64
    }

    /// Returns the requests with good responses.
    pub fn good_requests(&self) -> impl Iterator<Item = &'a ObservedRequest> + use<'a> {
        self.requests.iter().filter(|hit| hit.outcome == ObservedOutcome::Good)
    }

    /// Returns the sorted response times of good responses, in seconds.
    #[must_use]
    pub fn response_times(&self) -> SortedSamples {
        SortedSamples::of(self.good_requests().map(ObservedRequest::response_time))
    }

    /// Returns the good responses per second that came while load was sent.
    #[must_use]
    pub fn goodput(&self) -> f64 {
        let (span, first) = (self.span(), self.requests.first().map_or(0.0, |hit| hit.due));
        if span <= 0.0 {
            0.0
        } else {
            self.good_requests().filter(|hit| hit.end - first <= span).count() as f64 / span
        }
    }

    /// Returns the good responses per second from the first to the last response, for a load from clients without pauses.
    #[must_use]
    pub fn closed_loop_goodput(&self) -> f64 {
        let first = self.good_requests().map(|hit| hit.end).fold(f64::INFINITY, f64::min);
        let last = self.good_requests().map(|hit| hit.end).fold(0.0, f64::max);
        let good = self.good_requests().count() as f64;
        if good < 2.0 || last <= first { 0.0 } else { (good - 1.0) / (last - first) }
    }

    /// Returns the connections of the requests, one per request, for any outcome.
    pub fn connection_of_each_request(&self) -> impl Iterator<Item = RequestConnection> + 'a {
        self.requests.iter().filter_map(|hit| hit.carrying_connection)
    }

    /// Returns the connections that a request opened.
    pub fn opened_connections(&self) -> impl Iterator<Item = RequestConnection> + 'a {
        self.connection_of_each_request().filter(|carrier| carrier.earlier_requests_on_connection == 0)
    }

    /// Returns the number of successful requests in flight at an instant.
    #[must_use]
    pub fn good_requests_in_flight_at(&self, at: f64) -> f64 {
        self.good_requests().filter(|hit| hit.sent.is_some_and(|sent| sent <= at) && hit.end > at).count()
            as f64
    }

    /// Returns the mean body size of good responses, in bytes.
    #[must_use]
    pub fn mean_bytes(&self) -> f64 {
        let (mut sum, mut count) = (0.0, 0.0_f64);
        for hit in self.good_requests() {
            sum += hit.bytes as f64;
            count += 1.0;
        }
        sum / count.max(1.0)
    }
}

/// A sorted list of finite numbers.
#[derive(Debug, Clone, PartialEq)]
pub struct SortedSamples(Vec<f64>);

impl SortedSamples {
    /// Sorts the finite ones of these numbers.
    #[must_use]
    pub fn of(numbers: impl Iterator<Item = f64>) -> Self {
        let mut numbers: Vec<_> = numbers.filter(|number| number.is_finite()).collect();
        numbers.sort_by(f64::total_cmp);
        Self(numbers)
    }

    /// Returns the number of samples.
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Returns a quantile by rank; 0 without samples.
    #[must_use]
    pub fn quantile(&self, share: f64) -> f64 {
        let rank = (self.0.len() as f64 * share) as usize;
        self.0.get(rank.min(self.0.len().saturating_sub(1))).copied().unwrap_or(0.0)
    }

    /// Returns the median; 0 without samples.
    #[must_use]
    pub fn median(&self) -> f64 {
        self.quantile(0.5)
    }

    /// Returns the standard error of the mean; infinite with fewer than three samples.
    #[must_use]
    pub fn standard_error(&self) -> f64 {
        let (mean, count) = (self.mean(), self.0.len() as f64);
        if count < 3.0 {
            return f64::INFINITY;
        }
        let squares: f64 = self.0.iter().map(|number| (number - mean).powi(2)).sum();
        (squares / (count - 1.0) / count).sqrt()
    }

    /// Returns the mean; 0 without samples.
    #[must_use]
    pub fn mean(&self) -> f64 {
        self.0.iter().sum::<f64>() / (self.0.len() as f64).max(1.0)
    }

    /// Returns the share of samples within this share of the median, or within `least`, whichever is wider.
    #[must_use]
    pub fn share_near_median(&self, share: f64, least: f64) -> f64 {
        let middle = self.median();
        let width = (middle * share).max(least);
        let near = self.0.iter().filter(|number| (**number - middle).abs() <= width).count();
        near as f64 / (self.0.len() as f64).max(1.0)
    }
}

impl ObservedOutcome {
    /// Returns whether a response came, with any status.
    #[must_use]
    pub fn is_answer(self) -> bool {
        self == Self::Good || self.is_bad_response()
    }

    /// Returns whether the target was unreachable: no connection, or a connection without a response.
    #[must_use]
    pub fn is_unreachable(self) -> bool {
        matches!(
            self,
            Self::ConnectionRefused | Self::ConnectTimedOut | Self::Cut | Self::OtherFailureWithoutResponse
        )
    }

    /// Returns whether the response had a status that is not good.
    #[must_use]
    pub fn is_bad_response(self) -> bool {
        matches!(self, Self::BadResponse(_))
    }

    /// Returns whether no response or no connection came in time.
    #[must_use]
    pub fn hangs(self) -> bool {
        matches!(self, Self::TimedOut | Self::UnansweredAtEnd | Self::ConnectTimedOut)
    }

    /// Returns whether the target refused, closed or reset the connection.
    #[must_use]
    pub fn is_connection_refused_or_closed(self) -> bool {
        matches!(self, Self::Cut | Self::ConnectionRefused)
    }
}

/// A time in which the target served nothing: requests that were due at different times ended together.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Stall {
    /// The beginning, in seconds since the first request was due.
    pub began: f64,
    /// The length in seconds.
    pub length: f64,
}

/// The shortest stall, in seconds. Shorter ones can be hiccups of the machine, which take 5 to 20 ms.
const LEAST_STALL: f64 = 0.03;

/// Returns the stalls in order, found by two methods.
///
/// The first looks for a run of responses that are less and less late; the service time must vary little. The second looks for a gap in the
/// responses followed by many at once; the rate must be high.
#[must_use]
pub fn stalls(view: &ExperimentStats<'_>) -> [Vec<Stall>; 2] {
    [teeth(view), gaps(view)].map(|mut stalls| {
        stalls.retain(|stall| !is_generators(stall, view));
        stalls
    })
}

/// Returns whether the generator itself stalled, so that it sent the requests of that time late. Waiting for a connection does
/// not count as the generator's delay.
fn is_generators(stall: &Stall, view: &ExperimentStats<'_>) -> bool {
    let during = |hit: &&ObservedRequest| (stall.began..stall.began + stall.length).contains(&hit.due);
    view.requests.iter().filter(during).any(|hit| hit.generator_lag > 0.5 * stall.length)
}

fn answered(hit: &ObservedRequest) -> bool {
    hit.outcome.is_answer()
}

/// Finds stalls by runs of late responses: all requests that are due in a stall wait for its end, and the earlier ones wait longer.
fn teeth(view: &ExperimentStats<'_>) -> Vec<Stall> {
    let times = view.response_times();
    let (usual, steady) = (times.median(), times.quantile(0.8) < 1.6 * times.median() + 0.002);
    // Variable service times cause queues that look alike, so a stall must be far longer than that variation.
    let varies = times.quantile(0.6) - times.quantile(0.4);
    let least = usual + LEAST_STALL.max(0.3 * usual).max(18.0 * varies);
    let slow = |hit: &ObservedRequest| answered(hit) && hit.response_time() > least;
    let runs = view
        .requests
        .chunk_by(|one, other| slow(one) == slow(other))
        .filter(|run| run.first().is_some_and(slow));
    runs.filter_map(|run| tooth(run, usual, steady)).collect()
}

fn tooth(run: &[ObservedRequest], usual: f64, steady: bool) -> Option<Stall> {
    let (first, last) = (run.first()?, run.last()?);
    let length = run.iter().map(|hit| hit.response_time()).fold(0.0, f64::max) - usual;
    let (due, end) = (last.due - first.due, (last.end - first.end).abs());
    let falls = run.windows(2).all(|pair| pair[1].response_time() < pair[0].response_time() + 0.2 * length);
    // Two requests are enough if service is steady and both end at the same time.
    let together = steady && run.len() == 2 && due > 0.25 * length && end < 0.1 * due + 0.003;
    let whole = run.len() >= 3 && due > 0.4 * length && end < 0.6 * due + 0.004;
    let from_above = first.response_time() - usual > 0.7 * length;
    (falls && (whole || together) && from_above).then_some(Stall { began: first.due, length })
}

/// The least number of expected responses in a gap that is not random.
const GAP: f64 = 6.0;

fn gaps(view: &ExperimentStats<'_>) -> Vec<Stall> {
    let ends = SortedSamples::of(view.requests.iter().filter(|hit| answered(hit)).map(|hit| hit.end)).0;
    let rate = view.count() / view.span().max(1e-3);
    let least = LEAST_STALL.max(GAP / rate.max(1e-3));
    let stall = |(index, pair): (usize, &[f64])| {
        let gap = pair[1] - pair[0];
        let after = ends[index + 1..].iter().take_while(|end| **end < pair[1] + 0.35 * gap).count() as f64;
        (gap > least && after > 0.5 * rate * gap).then_some(Stall { began: pair[0], length: gap })
    };
    ends.windows(2).enumerate().filter_map(stall).collect()
}

/// Returns how closely good responses follow a period, from 0 to 1.
#[must_use]
pub fn answers_phase_coherence(view: &ExperimentStats<'_>, period: f64) -> f64 {
    phase_coherence(view.good_requests().map(|hit| hit.end), period)
}

/// Returns how closely instants follow a period, from 0 to 1 (Rayleigh's statistic).
#[must_use]
pub fn phase_coherence(instants: impl Iterator<Item = f64>, period: f64) -> f64 {
    let (mut sine, mut cosine, mut count) = (0.0, 0.0, 0.0_f64);
    for at in instants {
        let angle = std::f64::consts::TAU * at / period;
        sine += angle.sin();
        cosine += angle.cos();
        count += 1.0;
    }
    sine.hypot(cosine) / count.max(1.0)
}
