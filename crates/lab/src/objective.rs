//! The objectives of a run, such as `p99<100ms,errors<0.1%`.
//!
//! Latencies are response times from the intended instant, over all offered requests. Requests without a good response count as
//! slower than any limit ([`LatenciesOfAllOffered`]). A mean that includes such a request does, too. With an additional objective
//! on errors, the mean covers the good responses only.
//!
//! Errors are all offered requests without a good response. Wrong answers are those of them that failed `--expect` or a gRPC
//! call. `attack --slo` checks objectives, and `find --slo` uses them as the goal of a search.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use seawall_load::clock::{Nanos, nanos};
use seawall_load::rate::parse_duration;
use seawall_load::request_failure_reason::OutcomeClass;
use seawall_load::summary::{Latencies, LatenciesOfAllOffered, Summary};
use seawall_search::goal::{LatencyGoal, SearchGoal};

/// A list of conditions that must all hold.
#[derive(Debug, Clone, PartialEq)]
pub struct Objectives(Vec<Objective>);

impl Objectives {
    /// Returns the conditions of a flag that was given several times, or `None` if it was never given.
    pub fn merge_all(all: &[Self]) -> Option<Self> {
        let conditions: Vec<Objective> = all.iter().flat_map(|one| &one.0).copied().collect();
        (!conditions.is_empty()).then_some(Self(conditions))
    }
}

/// A condition on one figure.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Objective {
    Quantile { quantile: Quantile, below: Nanos },
    Mean { below: Nanos },
    Errors(ShareLimit),
    WrongAnswers(ShareLimit),
}

/// The share of all offered requests that may be bad.
#[derive(Debug, Clone, Copy, PartialEq)]
struct ShareLimit {
    share: f64,
    /// True for `<=`, which allows the share itself.
    is_inclusive: bool,
}

/// A quantile that a summary has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Quantile {
    P50,
    P90,
    P95,
    P99,
    P999,
    P9999,
    Max,
}

/// The text is not a valid condition.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not an objective: expected p50, p90, p95, p99, p99.9, p99.99, max or mean below a duration (p99<100ms), \
     or errors or wrong-answers below a share (errors<0.1%, wrong-answers<=0); seawall help slo shows more"
)]
pub struct ObjectiveError(String);

/// The conditions can be checked for a run but are not the goal of a search.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("cannot search for the limit of {objective}: {why}")]
pub struct UnsearchableObjective {
    objective: String,
    why: &'static str,
}

/// An objective with the measured figure.
#[derive(Debug, Clone, PartialEq)]
pub struct CheckedObjective {
    /// The condition, such as `p99 < 250ms`.
    pub objective: String,
    /// The limit of the condition.
    pub limit: ObjectiveValue,
    /// The measured figure. `None` if the run has no such figure, because a request without a good response stands at its place.
    pub measured_value: Option<ObjectiveValue>,
    /// The figure as text, with the reason of a miss that the figure alone does not show.
    pub measured_text: String,
    /// True if the figure meets the condition.
    pub is_met: bool,
    /// The service time, if it meets a condition that the response time misses. The difference is the delay of this generator, or
    /// a wait for a free connection.
    pub service_time_if_it_alone_meets_limit: Option<String>,
}

/// The limit or the figure of an objective.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ObjectiveValue {
    /// A latency.
    Latency(Nanos),
    /// A share of all offered requests, from 0 to 1.
    Ratio(f64),
}

impl FromStr for Objectives {
    type Err = ObjectiveError;

    fn from_str(text: &str) -> Result<Self, ObjectiveError> {
        text.split(',')
            .map(|part| objective(part).ok_or_else(|| ObjectiveError(part.to_owned())))
            .collect::<Result<_, _>>()
            .map(Self)
    }
}

fn objective(text: &str) -> Option<Objective> {
    let (figure, limit) = text.split_once('<')?;
    // At a resolution of one nanosecond, `<=` equals `<`. Shares are exact: 1 of 1,000 is 0.1 %.
    let is_inclusive = limit.starts_with('=');
    let (figure, limit) = (figure.trim(), joined(limit.strip_prefix('=').unwrap_or(limit)));
    let below = || parse_duration(&limit).ok().map(nanos);
    let share = || Some(ShareLimit { share: share(&limit)?, is_inclusive });
    let quantile = match figure {
        "errors" => return Some(Objective::Errors(share()?)),
        "wrong-answers" => return Some(Objective::WrongAnswers(share()?)),
        "mean" => return Some(Objective::Mean { below: below()? }),
        _ => [
            Quantile::P50,
            Quantile::P90,
            Quantile::P95,
            Quantile::P99,
            Quantile::P999,
            Quantile::P9999,
            Quantile::Max,
        ]
        .into_iter()
        .find(|quantile| quantile.name() == figure)?,
    };
    Some(Objective::Quantile { quantile, below: below()? })
}

/// Joins a number and its unit, such as `250 ms` to `250ms`. Two numbers stay apart.
fn joined(text: &str) -> String {
    let pieces = text.split_whitespace();
    pieces.fold(String::new(), |mut whole, piece| {
        if !whole.is_empty() && piece.starts_with(|first: char| first.is_ascii_digit() || first == '.') {
            whole.push(' ');
        }
        whole + piece
    })
}

/// Parses a share, such as `0.1%` or `0.001`. A plain `1` is invalid: it would mean 100 %, but the user probably means 1 %.
fn share(text: &str) -> Option<f64> {
    let Some(percent) = text.strip_suffix('%') else {
        return text.trim().parse().ok().filter(|share: &f64| (0.0..1.0).contains(share));
    };
    percent
        .trim()
        .parse()
        .ok()
        .map(|percent: f64| percent / 100.0)
        .filter(|share| (0.0..=1.0).contains(share))
}

impl Quantile {
    fn name(self) -> &'static str {
        match self {
            Self::P50 => "p50",
            Self::P90 => "p90",
            Self::P95 => "p95",
            Self::P99 => "p99",
            Self::P999 => "p99.9",
            Self::P9999 => "p99.99",
            Self::Max => "max",
        }
    }

    /// Returns the share of responses that may be slower; none for the maximum.
    fn beyond(self) -> Option<f64> {
        match self {
            Self::P50 => Some(0.5),
            Self::P90 => Some(0.1),
            Self::P95 => Some(0.05),
            Self::P99 => Some(0.01),
            Self::P999 => Some(0.001),
            Self::P9999 => Some(0.000_1),
            Self::Max => None,
        }
    }

    /// Returns a note if a run has too few requests for the quantile, which is then its slowest request. The note is empty
    /// otherwise.
    fn sample_note(self, offered: u64) -> String {
        let least = self.beyond().map_or(0.0, |share| (1.0 / share).round());
        if offered == 0 || offered as f64 >= least {
            return String::new();
        }
        format!(
            "; this is the slowest of only {offered} requests, but {} needs at least {least}",
            self.name()
        )
    }

    fn of(self, judged: &LatenciesOfAllOffered) -> Option<Nanos> {
        match self {
            Self::P50 => judged.p50,
            Self::P90 => judged.p90,
            Self::P95 => judged.p95,
            Self::P99 => judged.p99,
            Self::P999 => judged.p999,
            Self::P9999 => judged.p9999,
            Self::Max => judged.max,
        }
    }

    fn in_class(self, times: &Latencies) -> Nanos {
        match self {
            Self::P50 => times.p50,
            Self::P90 => times.p90,
            Self::P95 => times.p95,
            Self::P99 => times.p99,
            Self::P999 => times.p999,
            Self::P9999 => times.p9999,
            Self::Max => times.max,
        }
    }
}

impl ShareLimit {
    /// Returns whether a share meets the limit. Zero meets every limit, so `errors<0` allows no error.
    fn is_met(self, ratio: f64) -> bool {
        // 0.1 % divided by 100 may be a hair away from 1 divided by 1,000.
        let is_equal = (ratio - self.share).abs() <= 4.0 * f64::EPSILON * self.share;
        if is_equal { self.is_inclusive || ratio == 0.0 } else { ratio < self.share || ratio == 0.0 }
    }
}

impl fmt::Display for ShareLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", if self.is_inclusive { "<=" } else { "<" }, percent(self.share))
    }
}

/// The measured figure for an objective.
struct MeasuredFigure {
    is_met: bool,
    figure: Option<ObjectiveValue>,
    text: String,
}

impl Objective {
    /// Checks the objective for a run. `has_error_bound` is true if another objective limits errors.
    fn check(&self, summary: &Summary, has_error_bound: bool) -> CheckedObjective {
        let judged = &summary.slo;
        let good = summary.response_time_by_class.get(OutcomeClass::Good.name());
        let MeasuredFigure { is_met, figure, text } = match *self {
            Self::Quantile { quantile, below } => {
                let mut measured =
                    in_time(quantile.of(judged), good.map(|good| quantile.in_class(good)), below, judged);
                if measured.figure.is_some() {
                    measured.text.push_str(&quantile.sample_note(judged.offered));
                }
                measured
            }
            Self::Mean { below } => {
                let is_whole = judged.good >= judged.offered || has_error_bound;
                in_time(
                    judged.mean_of_good_responses.filter(|_| is_whole),
                    judged.mean_of_good_responses,
                    below,
                    judged,
                )
            }
            Self::Errors(limit) => bad_share(summary.error_ratio, limit, &wrong_answers(summary)),
            Self::WrongAnswers(limit) => {
                let count = summary.failures.get(OutcomeClass::WrongAnswer.name()).copied().unwrap_or(0);
                let ratio = if count == 0 { 0.0 } else { count as f64 / judged.offered.max(count) as f64 };
                bad_share(ratio, limit, &wrong_answers(summary))
            }
        };
        // A run without a request meets nothing.
        let offered = judged.offered > 0;
        let is_met = is_met && offered;
        let met_by_service_time = self.service_time(summary).filter(|_| !is_met && offered);
        let (objective, limit, measured) = (self.to_string(), self.limit(), text);
        CheckedObjective {
            objective,
            limit,
            measured_value: figure,
            measured_text: measured,
            is_met,
            service_time_if_it_alone_meets_limit: met_by_service_time,
        }
    }

    fn limit(&self) -> ObjectiveValue {
        match *self {
            Self::Quantile { below, .. } | Self::Mean { below } => ObjectiveValue::Latency(below),
            Self::Errors(limit) | Self::WrongAnswers(limit) => ObjectiveValue::Ratio(limit.share),
        }
    }
}

/// Checks a share of bad requests against its limit.
fn bad_share(ratio: f64, limit: ShareLimit, reason: &str) -> MeasuredFigure {
    MeasuredFigure {
        is_met: limit.is_met(ratio),
        figure: Some(ObjectiveValue::Ratio(ratio)),
        text: percent(rounded(ratio, limit.share)) + reason,
    }
}

/// Returns a note with the most frequent reason of wrong answers, which their status does not show; empty without wrong answers.
fn wrong_answers(summary: &Summary) -> String {
    let count = summary.wrong_answers.values().copied().fold(0, u64::saturating_add);
    let commonest = summary.wrong_answers.iter().max_by_key(|(_, count)| **count);
    commonest.map_or_else(String::new, |(reason, _)| {
        format!("; {count} wrong answers, most often because {reason}")
    })
}

impl Objective {
    /// Returns the quantile of the service time, if it meets the limit and all requests up to the quantile had a good response.
    fn service_time(&self, summary: &Summary) -> Option<String> {
        let Self::Quantile { quantile, below } = *self else { return None };
        quantile.of(&summary.slo)?;
        let time = quantile.in_class(&summary.service_time);
        (time < below).then(|| self::time(rounded(time as f64, below as f64) as Nanos))
    }
}

/// Checks a latency against its limit. If a failed request stands at its place, the text says whether the good responses alone
/// met the limit: then failures are the only reason of the miss.
fn in_time(
    latency: Option<Nanos>,
    good_alone: Option<Nanos>,
    below: Nanos,
    judged: &LatenciesOfAllOffered,
) -> MeasuredFigure {
    let shown = |latency: Nanos| time(rounded(latency as f64, below as f64) as Nanos);
    let failed = judged.offered.saturating_sub(judged.good);
    let text = match (latency, good_alone) {
        (Some(latency), _) => shown(latency),
        (None, Some(good)) if good < below => format!(
            "missed only because {failed} of {} requests had no good response and count as slower than any limit; \
             good responses alone: {}",
            judged.offered,
            shown(good)
        ),
        (None, Some(good)) => format!("good responses alone: {}", shown(good)),
        (None, None) => {
            format!("not measurable: {failed} of {} requests had no good response", judged.offered)
        }
    };
    let is_met = latency.is_some_and(|latency| latency < below);
    MeasuredFigure { is_met, figure: latency.map(ObjectiveValue::Latency), text }
}

/// Rounds a figure to few digits, at least three, so that it stays on its side of the bound.
fn rounded(figure: f64, bound: f64) -> f64 {
    let written = |digits: usize| format!("{figure:.digits$e}").parse().unwrap_or(figure);
    (2..15)
        .map(written)
        .find(|shown: &f64| shown.partial_cmp(&bound) == figure.partial_cmp(&bound))
        .unwrap_or(figure)
}

impl fmt::Display for Objective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Quantile { quantile, below } => write!(f, "{} < {}", quantile.name(), time(*below)),
            Self::Mean { below } => write!(f, "mean < {}", time(*below)),
            Self::Errors(limit) => write!(f, "errors {limit}"),
            Self::WrongAnswers(limit) => write!(f, "wrong-answers {limit}"),
        }
    }
}

fn time(ns: Nanos) -> String {
    format!("{:?}", Duration::from_nanos(ns))
}

fn percent(of_one: f64) -> String {
    // Ten digits hide that 0.1 % is not exact in binary.
    format!("{} %", (of_one * 1e12).round() / 1e10)
}

impl Objectives {
    /// Checks all conditions for a run.
    #[must_use]
    pub fn check(&self, summary: &Summary) -> Vec<CheckedObjective> {
        let has_error_bound = self.0.iter().any(|objective| matches!(objective, Objective::Errors(_)));
        self.0.iter().map(|objective| objective.check(summary, has_error_bound)).collect()
    }
}

impl Objectives {
    /// Returns true if an objective limits wrong answers. Without conditions on responses there are none.
    #[must_use]
    pub fn limits_wrong_answers(&self) -> bool {
        self.0.iter().any(|objective| matches!(objective, Objective::WrongAnswers(_)))
    }

    /// Returns the goal of a search: one bound on a quantile, one on errors, or both. Without an objective for errors, the bound
    /// on errors is one in a thousand ([`SearchGoal::ERRORS_ONLY`]).
    ///
    /// # Errors
    /// [`UnsearchableObjective`].
    pub fn goal(&self) -> Result<SearchGoal, UnsearchableObjective> {
        let (mut errors, mut late) = (None, None);
        for objective in &self.0 {
            match objective.sought()? {
                Sought::Errors(share) if errors.is_none() => errors = Some(share),
                Sought::Late(lateness) if late.is_none() => late = Some(lateness),
                Sought::Errors(_) => {
                    return Err(
                        objective.unsearchable("a search takes only one errors objective; remove the others")
                    );
                }
                Sought::Late(_) => {
                    return Err(objective
                        .unsearchable("a search takes only one latency objective; remove the others"));
                }
            }
        }
        Ok(SearchGoal {
            max_error_share: errors.unwrap_or(SearchGoal::ERRORS_ONLY.max_error_share),
            latency_goal: late,
        })
    }
}

/// The part of a search's goal that one condition sets.
enum Sought {
    Errors(f64),
    Late(LatencyGoal),
}

impl Objective {
    fn sought(&self) -> Result<Sought, UnsearchableObjective> {
        match *self {
            Self::Errors(ShareLimit { share, .. }) if share <= 0.0 || share >= 1.0 => {
                Err(self.unsearchable("the share must be between 0 and 1, such as errors<0.1%"))
            }
            Self::Errors(ShareLimit { share, .. }) => Ok(Sought::Errors(share)),
            Self::WrongAnswers(_) => {
                Err(self.unsearchable("a search counts wrong answers as errors: use errors<0.1% instead"))
            }
            Self::Mean { .. } => Err(self.unsearchable(
                "a search needs a percentile such as p99, because trials count late responses",
            )),
            Self::Quantile { below: 0, .. } => Err(self.unsearchable("the duration must be above 0")),
            Self::Quantile { quantile, below } => {
                let share = quantile.beyond().ok_or_else(|| {
                    self.unsearchable(
                        "a search needs a percentile up to p99.99, because trials count late responses",
                    )
                })?;
                Ok(Sought::Late(LatencyGoal {
                    max_late_share: share,
                    latency_limit: Duration::from_nanos(below),
                }))
            }
        }
    }

    fn unsearchable(&self, why: &'static str) -> UnsearchableObjective {
        UnsearchableObjective { objective: self.to_string(), why }
    }
}

#[cfg(test)]
mod tests {
    use seawall_load::clock::SECOND;
    use seawall_load::request_failure_reason::{RequestFault, WrongAnswer};
    use seawall_load::run_outcome::RunOutcome;
    use seawall_load::stats::{FinishedRequest, LoadStats};

    use super::*;

    /// Returns a summary with this many good responses of 1 ms, failures that took no time, and scheduled requests.
    fn summary(good: u64, failed: u64, scheduled: u64, fault: RequestFault) -> Summary {
        let mut total = LoadStats { sent: good + failed, ..LoadStats::default() };
        for hit in 0..good + failed {
            let (outcome, end) = if hit < good { (Ok(200), SECOND / 1000) } else { (Err(fault), 0) };
            total.record_finished(&FinishedRequest {
                target_index: 0,
                outcome,
                due: 0,
                sent_at: Some(0),
                first_response_byte_at: None,
                end,
                bytes_in: 0,
                bytes_out: 0,
            });
        }
        let outcome =
            RunOutcome { scheduled_count: Some(scheduled), ..RunOutcome::from_stats(total, SECOND) };
        Summary::new(&outcome)
    }

    fn missed(text: &str) -> usize {
        missed_by(text, &summary(99, 1, 100, RequestFault::Timeout)).len()
    }

    fn missed_by(text: &str, summary: &Summary) -> Vec<CheckedObjective> {
        let mut checked = text.parse::<Objectives>().unwrap().check(summary);
        checked.retain(|checked| !checked.is_met);
        checked
    }

    /// Returns the text of a latency objective that good responses of 1 ms would meet.
    fn failures_alone(count: &str) -> String {
        format!(
            "missed only because {count} requests had no good response and count as slower than any limit; good \
             responses alone: 1ms"
        )
    }

    /// Regression: one reason was reported as two misses, `p99` and `errors`.
    #[test]
    fn a_latency_that_only_failures_miss_says_so_and_one_that_is_slow_too_says_that() {
        let limited = summary(19, 181, 200, RequestFault::Timeout);
        let missed = missed_by("p99<1s,p50<500us,errors<1%", &limited);
        let said: Vec<_> = missed.iter().map(|missed| missed.measured_text.as_str()).collect();
        assert_eq!(said, [failures_alone("181 of 200").as_str(), "good responses alone: 1ms", "90.5 %"]);
        let dead = summary(0, 9, 9, RequestFault::Timeout);
        assert_eq!(
            missed_by("p99<1s", &dead)[0].measured_text,
            "not measurable: 9 of 9 requests had no good response"
        );
        let figures: Vec<_> = missed.iter().map(|missed| (missed.limit, missed.measured_value)).collect();
        let errors = (ObjectiveValue::Ratio(0.01), Some(ObjectiveValue::Ratio(limited.error_ratio)));
        assert_eq!(figures[0], (ObjectiveValue::Latency(SECOND), None));
        assert_eq!(figures[2], errors);
    }

    #[test]
    fn wrong_answers_have_an_objective_of_their_own() {
        let wrong = RequestFault::WrongAnswer(WrongAnswer::BodyTooLong);
        let one = summary(999, 1, 1000, wrong);
        assert_eq!(missed_by("wrong-answers<=0.1%,wrong-answers<0.2%,errors<=0.1%", &one), []);
        let missed = missed_by("wrong-answers<=0,wrong-answers<0.1%", &one);
        let said: Vec<_> = missed.iter().map(|missed| (&*missed.objective, &*missed.measured_text)).collect();
        assert_eq!(said, [("wrong-answers <= 0 %", "0.1 %"), ("wrong-answers < 0.1 %", "0.1 %")]);
        let other = summary(999, 1, 1000, RequestFault::Timeout);
        assert_eq!(missed_by("wrong-answers<=0", &other), []);
        assert_eq!(missed_by("wrong-answers<=0", &summary(0, 0, 0, wrong)).len(), 1, "nothing was sent");
    }

    #[test]
    fn spaces_stand_around_the_sign_and_before_a_unit() {
        let same = |text: &str| text.parse::<Objectives>() == "p99<250ms,errors<0.1%".parse();
        for text in [
            "p99 < 250 ms, errors < 0.1 %",
            " p99< 250ms ,errors <0.1% ",
            "p99<250\tms,errors<0.1%",
            "p99<=250ms,errors<0.1%",
        ] {
            assert!(same(text), "{text}");
        }
        for text in ["p99<2 50ms", "p 99<250ms", "p99<250m s 1", "errors<0. 1%"] {
            assert!(text.parse::<Objectives>().is_err(), "{text}");
        }
    }

    #[test]
    fn each_condition_is_judged() {
        assert_eq!(missed("p99<2ms"), 0);
        assert_eq!(missed("p99<1ms"), 1);
        assert_eq!(missed("max<500ms, errors<1.1%, mean<1s"), 1);
        assert_eq!(missed("errors<1%,p50<1us,p99.9<1s"), 3);
        assert_eq!(missed("errors<0.02"), 0);
    }

    #[test]
    fn a_mean_alone_is_missed_while_one_request_fails() {
        let limited = summary(19, 181, 200, RequestFault::Timeout);
        let missed = missed_by("mean<1s", &limited);
        assert_eq!(missed[0].measured_text, failures_alone("181 of 200"));
        assert_eq!(missed_by("mean<1s,errors<95%", &limited), []);
        assert_eq!(missed_by("mean<1s", &summary(200, 0, 200, RequestFault::Timeout)), []);
    }

    #[test]
    fn what_was_measured_is_rounded_but_never_across_its_bound() {
        assert_eq!(
            missed_by("errors<0.1%", &summary(77, 4, 81, RequestFault::Timeout))[0].measured_text,
            "4.94 %"
        );
        assert_eq!(rounded(0.049_382_716_049, 0.001), 0.0494);
        assert_eq!(rounded(253_089_016.0, 100_000_000.0), 253_000_000.0);
        assert_eq!(rounded(0.001_000_04, 0.001), 0.001_000_04);
        assert_eq!(rounded(99_999_999.0, 100_000_000.0), 99_999_999.0);
        assert_eq!(rounded(0.0, 0.001), 0.0);
    }

    /// A refused connection takes nearly no time.
    #[test]
    fn a_hit_without_a_good_answer_is_slower_than_any_bound() {
        for fault in [
            RequestFault::Connect(std::io::ErrorKind::ConnectionRefused),
            RequestFault::Dropped,
            RequestFault::DeadlineBeforeSend,
        ] {
            let dead = summary(0, 200, 200, fault);
            assert_eq!(missed_by("p50<1h,p99<1h,max<1h,mean<1h", &dead).len(), 4, "{fault:?}");
            let cut = summary(99, 2, 101, fault);
            assert_eq!(missed_by("p50<2ms,p95<2ms,mean<2ms,errors<3%", &cut), [], "{fault:?}");
            assert_eq!(missed_by("mean<2ms", &cut).len(), 1, "{fault:?}");
            assert_eq!(missed_by("p99<1h", &cut).len(), 1, "{fault:?}");
        }
    }

    #[test]
    fn hits_that_were_never_sent_are_the_tail_that_was_cut_off() {
        let cut = summary(103, 0, 200, RequestFault::Dropped);
        let [missed] = &missed_by("p50<2ms,p99<4s", &cut)[..] else { panic!("one of two") };
        assert_eq!(
            (missed.objective.as_str(), missed.measured_text.as_str()),
            ("p99 < 4s", failures_alone("97 of 200").as_str())
        );
    }

    /// Regression: a p99 of five requests was reported like one of a million.
    #[test]
    fn a_percentile_of_too_few_requests_says_so() {
        let measured = |count| {
            let checked = "p99<1s,p50<1s,max<1s".parse::<Objectives>().unwrap();
            let checked = checked.check(&summary(count, 0, count, RequestFault::Timeout));
            checked.into_iter().map(|one| one.measured_text).collect::<Vec<_>>()
        };
        let few = measured(5);
        assert!(
            few[0].ends_with("; this is the slowest of only 5 requests, but p99 needs at least 100"),
            "{few:?}"
        );
        assert!(few[1..].iter().all(|text| !text.contains("needs")), "{few:?}");
        assert!(measured(100).iter().all(|text| !text.contains("needs")));
    }

    #[test]
    fn a_run_without_a_hit_meets_nothing() {
        assert_eq!(missed_by("p99<1h,errors<1%", &summary(0, 0, 0, RequestFault::Timeout)).len(), 2);
    }

    #[test]
    fn what_is_no_condition_is_refused() {
        for text in [
            "",
            "p99",
            "p98<1s",
            "p99<1",
            "errors<1s",
            "errors<200%",
            "errors<1",
            "errors<=1",
            "p99>1s",
            "wrong-answers<1s",
            "wrong-answers=0",
        ] {
            assert!(text.parse::<Objectives>().is_err(), "{text}");
        }
    }

    /// Regression: the last `--slo` silently replaced the others, so a check with two flags tested only one.
    #[test]
    fn the_conditions_of_a_repeated_flag_all_hold() {
        let each = ["p99<1s", "errors<1%"].map(|text| text.parse::<Objectives>().unwrap());
        assert_eq!(Objectives::merge_all(&each), Some("p99<1s,errors<1%".parse().unwrap()));
        assert_eq!(Objectives::merge_all(&[]), None);
    }

    #[test]
    fn a_bound_on_a_quantile_and_one_on_errors_are_a_goal() {
        let goal = |text: &str| text.parse::<Objectives>().unwrap().goal().map_err(|error| error.to_string());
        let late = LatencyGoal { max_late_share: 0.01, latency_limit: Duration::from_millis(250) };
        assert_eq!(
            goal("p99<250ms,errors<0.5%"),
            Ok(SearchGoal { max_error_share: 0.005, latency_goal: Some(late) })
        );
        assert_eq!(goal("errors<0.1%"), Ok(SearchGoal::ERRORS_ONLY));
        assert_eq!(goal("p99<250ms"), Ok(SearchGoal { latency_goal: Some(late), ..SearchGoal::ERRORS_ONLY }));
        for (text, why) in [
            ("mean<1s", "a percentile such as p99"),
            ("p99<1s,p90<1s", "one latency objective"),
            ("errors<1%,errors<2%", "one errors objective"),
            ("errors<0%", "between 0 and 1"),
            ("wrong-answers<=0", "as errors"),
            ("max<1s", "a percentile up to p99.99"),
            ("p99<0s", "above 0"),
        ] {
            assert!(goal(text).is_err_and(|error| error.contains(why)), "{text}");
        }
    }
}
