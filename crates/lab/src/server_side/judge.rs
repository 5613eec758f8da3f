//! The facts about the target between two readings, and the causes that they support or contradict. These functions are pure.
//!
//! A likelihood ratio says how much likelier the fact is with this cause than without it: above 1 it supports the cause, below 1
//! it contradicts it. The ratios are judgements by the documentation of each counter, not measurements. They are small if the
//! same figure can have other reasons.
//!
//! Facts of one window depend on each other (a used-up quota shows in two of them). So the caller that joins them with the
//! observations of clients uses the strongest fact per class, not their product.

use std::time::Duration;

use seawall_cause::class::CauseClass;

use super::{ServerSideSnapshot, Timestamped};

mod cgroup;
mod metrics;
mod rules;

/// The facts about a window from the target's side.
#[derive(Debug, Clone, PartialEq)]
pub struct WindowObservation {
    /// The start of the first reading.
    pub from: Duration,
    /// The end of the last reading.
    pub to: Duration,
    /// The facts, first those of the control group, then those of the metrics.
    pub facts: Vec<Fact>,
    /// The readings that were impossible, with the reason in words.
    pub untested: Vec<String>,
}

/// A fact about the target.
#[derive(Debug, Clone, PartialEq)]
pub struct Fact {
    /// The fact in words, with its figures: "the quota of 0.10 cores throttled the control group in 28 of 30 periods".
    pub text: String,
    /// The causes that the fact concerns, each with its likelihood ratio; below 1 the fact speaks against the cause.
    pub likelihood_ratios: Vec<(CauseClass, f64)>,
    /// True if the fact lists counters that did not rise.
    pub is_unchanged: bool,
}

/// The load in the window, as the clients saw it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClientLoad {
    /// The number of requests.
    pub requests: u64,
    /// The number of failed or late requests, which a cause must explain.
    pub failed_or_late: u64,
}

/// The shortest window with a verdict: five periods of a CPU quota, and far longer than a reading takes.
const SHORTEST: Duration = Duration::from_millis(500);

/// The largest part of a window by which the time of a page may be uncertain. A page describes an instant between its request and
/// its end.
const MOST_BLUR: f64 = 0.2;

/// Returns the facts about the time between two readings. Without `load`, a rise of a counter cannot be compared with the failed
/// requests and weighs less.
#[must_use]
pub fn compare_snapshots(
    begin: &ServerSideSnapshot,
    end: &ServerSideSnapshot,
    load: Option<ClientLoad>,
) -> WindowObservation {
    let mut told = FactCollector::default();
    told.groups(begin, end);
    told.pages(begin, end, load);
    let (from, to) = (begin.times().map(|(from, _)| from).min(), end.times().map(|(_, to)| to).max());
    let (from, to) = (from.unwrap_or_default(), to.unwrap_or_default());
    WindowObservation { from, to, facts: told.facts, untested: told.untested }
}

impl WindowObservation {
    /// Returns the strongest fact about each class, with its likelihood ratio, to be joined with other signs. The facts count as
    /// evidence only in a window with failed or late requests; in others they show why the target did not break.
    #[must_use]
    pub fn strongest_facts(&self) -> Vec<(CauseClass, f64, &Fact)> {
        let strength = |(_, ratio, _): &(CauseClass, f64, &Fact)| ratio.ln().abs();
        let said = |class| {
            let facts = self
                .facts
                .iter()
                .flat_map(|fact| fact.likelihood_ratios.iter().map(move |of| (of.0, of.1, fact)));
            facts.filter(move |of| of.0 == class)
        };
        let most = CauseClass::ALL
            .into_iter()
            .filter_map(|class| said(class).max_by(|one, other| strength(one).total_cmp(&strength(other))));
        most.collect()
    }
}

impl ServerSideSnapshot {
    fn times(&self) -> impl Iterator<Item = (Duration, Duration)> {
        let page = self.page.as_ref().map(|page| (page.from, page.to));
        page.into_iter().chain(self.cgroup.as_ref().map(|levels| (levels.from, levels.to)))
    }
}

#[derive(Default)]
struct FactCollector {
    facts: Vec<Fact>,
    untested: Vec<String>,
}

impl FactCollector {
    fn groups(&mut self, begin: &ServerSideSnapshot, end: &ServerSideSnapshot) {
        let (Some(begin), Some(end)) = (&begin.cgroup, &end.cgroup) else { return };
        match span(begin, end) {
            Ok(span) => self.facts.extend(cgroup::facts(&begin.value, &end.value, span, &mut self.untested)),
            Err(why) => self.untested.push(format!("control group: {why}")),
        }
    }

    fn pages(&mut self, begin: &ServerSideSnapshot, end: &ServerSideSnapshot, load: Option<ClientLoad>) {
        let (Some(begin), Some(end)) = (&begin.page, &end.page) else { return };
        let span = span(begin, end).map_err(str::to_owned);
        let both = span.and_then(|span| match (&begin.value, &end.value) {
            (Ok(begin), Ok(end)) => {
                Ok(metrics::MetricsPagePair { begin, end, span_seconds: span, client_load: load })
            }
            (Err(why), _) | (_, Err(why)) => Err(why.to_string()),
        });
        match both {
            Ok(change) => self.facts.extend(change.facts()),
            Err(why) => self.untested.push(format!("metrics: {why}")),
        }
    }
}

/// Returns the seconds from one reading to the other, from middle to middle.
fn span<A, B>(begin: &Timestamped<A>, end: &Timestamped<B>) -> Result<f64, &'static str> {
    let length = |from: Duration, to: Duration| to.saturating_sub(from).as_secs_f64();
    let (first, last) = (length(begin.from, begin.to), length(end.from, end.to));
    let span = length(begin.from, end.to) - (first + last) / 2.0;
    match () {
        () if length(begin.to, end.from) < SHORTEST.as_secs_f64() => {
            Err("the time between the two reads of the server's measurements is too short")
        }
        () if (first + last) / 2.0 > MOST_BLUR * span => Err(
            "each read of the server's measurements took too long compared with the time between the two reads",
        ),
        () => Ok(span),
    }
}

impl Fact {
    fn new(text: String, speaks_for: &[(CauseClass, f64)]) -> Self {
        Self { text, likelihood_ratios: speaks_for.to_vec(), is_unchanged: false }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::server_side::exposition::{ExpositionFormat, MetricsPage};

    fn look(from: u64, to: u64, page: &str) -> ServerSideSnapshot {
        let page = MetricsPage::parse(page.as_bytes(), ExpositionFormat::Prometheus).map_err(Into::into);
        let taken =
            Timestamped { from: Duration::from_millis(from), to: Duration::from_millis(to), value: page };
        ServerSideSnapshot { page: Some(Arc::new(taken)), cgroup: None }
    }

    #[test]
    fn a_window_is_from_the_first_looks_begin_to_the_last_ones_end() {
        let observation = compare_snapshots(&look(0, 10, ""), &look(3000, 3010, ""), None);
        assert_eq!((observation.from, observation.to), (Duration::ZERO, Duration::from_millis(3010)));
        assert_eq!((observation.facts, observation.untested), (vec![], vec![]));
    }

    #[test]
    fn a_window_that_is_too_short_or_too_blurred_says_nothing() {
        let (page, later) = (
            "envoy_http_local_rate_limit_rate_limited_total 1\n",
            "envoy_http_local_rate_limit_rate_limited_total 9\n",
        );
        let untested = |begin: &ServerSideSnapshot, end: &ServerSideSnapshot| {
            let observation = compare_snapshots(begin, end, None);
            assert_eq!(observation.facts, []);
            observation.untested.concat()
        };
        assert_eq!(
            untested(&look(0, 10, page), &look(400, 410, later)),
            "metrics: the time between the two reads of the server's measurements is too short"
        );
        let blurred = untested(&look(0, 900, page), &look(1500, 2500, later));
        assert_eq!(
            blurred,
            "metrics: each read of the server's measurements took too long compared with the time between the two reads"
        );
        let same = look(0, 10, page);
        assert_eq!(
            untested(&same, &same),
            "metrics: the time between the two reads of the server's measurements is too short"
        );
    }

    #[test]
    fn a_page_that_was_not_there_is_untested_and_never_fine() {
        let observation = compare_snapshots(&look(0, 10, "a 1\n"), &look(3000, 3010, "<html>\n"), None);
        let why = "metrics: the response is not a metrics page: line 1: the sample has no value";
        assert_eq!((observation.facts, observation.untested), (vec![], vec![why.to_owned()]));
    }

    #[test]
    fn of_what_is_said_of_a_class_the_strongest_counts() {
        let fact = |says: &str, ratio| {
            Fact::new(says.to_owned(), &[(CauseClass::Pauses, ratio), (CauseClass::Dns, 1.5)])
        };
        let facts = vec![fact("a", 3.0), fact("b", 0.1), fact("c", 8.0)];
        let observation =
            WindowObservation { from: Duration::ZERO, to: Duration::ZERO, facts, untested: vec![] };
        let strongest: Vec<_> = observation
            .strongest_facts()
            .into_iter()
            .map(|(class, ratio, fact)| (class, ratio, &*fact.text))
            .collect();
        assert_eq!(strongest, [(CauseClass::Pauses, 0.1, "b"), (CauseClass::Dns, 1.5, "c")]);
    }

    #[test]
    fn who_was_not_asked_has_nothing_untested() {
        let nothing = ServerSideSnapshot { page: None, cgroup: None };
        assert_eq!(compare_snapshots(&nothing, &nothing, None).untested, Vec::<String>::new());
    }
}
