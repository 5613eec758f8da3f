//! The facts in two pages of metrics about the window between them.

use std::collections::BTreeMap;

use seawall_cause::class::CauseClass;

use super::cgroup::core_usage_likelihood_ratios;
use super::rules::{COUNTER_RULES, GAUGE_RULES, MetricRule, PAUSE_COUNTERS, QUEUE_WORDS, SILENCE_RATIO};
use super::{ClientLoad, Fact};
use crate::server_side::exposition::{MetricKind, MetricSample, MetricSeries, MetricsPage};

/// Two pages, the seconds between them, and the requests that were sent between them.
pub(super) struct MetricsPagePair<'a> {
    pub(super) begin: &'a MetricsPage,
    pub(super) end: &'a MetricsPage,
    pub(super) span_seconds: f64,
    pub(super) client_load: Option<ClientLoad>,
}

/// The most facts of one kind, because a page may have any number of names.
const MOST_FACTS: usize = 16;

/// The likelihood ratio below which a fact is not worth reporting.
const LEAST: f64 = 1.2;

impl MetricsPagePair<'_> {
    /// Returns the facts.
    pub(super) fn facts(&self) -> Vec<Fact> {
        // Differences between two processes mean nothing.
        if let Some(anew) = self.anew() {
            return vec![anew];
        }
        let rises = self.rises();
        let mut facts: Vec<Fact> =
            rises.iter().filter_map(|((name, at), by)| self.rise(name, &COUNTER_RULES[*at], *by)).collect();
        facts.truncate(MOST_FACTS);
        facts.extend(self.silent(&rises));
        facts.extend(self.opened());
        facts.extend(self.queues());
        facts.extend([self.cores(), self.files(), self.still()].into_iter().flatten());
        facts
    }

    /// Returns a fact if the counters started again, because the server was restarted or another process answered.
    fn anew(&self) -> Option<Fact> {
        let start = "process_start_time_seconds";
        let started = self
            .begin
            .sum(start)
            .zip(self.end.sum(start))
            .is_some_and(|(begin, end)| (end - begin).abs() > 1.0);
        let fell = |(series, sample): (&MetricSeries, &MetricSample)| {
            let begin = self.begin.sample(series);
            sample.kind == MetricKind::Counter && begin.is_some_and(|begin| begin.value > sample.value)
        };
        (started || self.end.samples().any(fell)).then(|| {
            let says = "the counters restarted, because the server was restarted or another server responded; seawall ignores these metrics";
            Fact::new(says.to_owned(), &[])
        })
    }

    /// Returns the increase of a series. A new series began at zero.
    fn increase(&self, series: &MetricSeries, sample: MetricSample) -> f64 {
        let begin = self.begin.sample(series).map_or(0.0, |begin| begin.value);
        let rise = sample.value - begin;
        if rise.is_finite() { rise } else { 0.0 }
    }

    /// Returns the known counters by name and index of their rule, with their increases.
    fn rises(&self) -> BTreeMap<(&str, usize), f64> {
        let mut rises = BTreeMap::new();
        for (series, sample) in self.end.samples().filter(|(_, sample)| sample.kind == MetricKind::Counter) {
            if let Some(at) = COUNTER_RULES.iter().position(|rule| rule.fits(series)) {
                *rises.entry((&*series.name, at)).or_insert(0.0) += self.increase(series, *sample);
            }
        }
        rises
    }

    fn rise(&self, name: &str, rule: &MetricRule, by: f64) -> Option<Fact> {
        if by <= 0.0 {
            return None;
        }
        let of = self.client_load.map_or_else(String::new, |load| {
            format!(" while {} requests failed or were late", load.failed_or_late)
        });
        let says = format!("{by:.0} {}{of} ({name}, {:.1}/s)", rule.says, by / self.span_seconds);
        let weighed = rule.likelihood_ratios.iter().map(|(class, ratio)| (*class, self.weighed(*ratio, by)));
        let speaks_for = weighed.filter(|(_, ratio)| *ratio >= LEAST).collect();
        Some(Fact { text: says, likelihood_ratios: speaks_for, is_unchanged: false })
    }

    /// Returns the weighted ratio of a rise. The rise counts in full if it explains at least half of the failed or late requests,
    /// and not at all without such requests.
    fn weighed(&self, ratio: f64, by: f64) -> f64 {
        match self.client_load {
            None => ratio.sqrt(),
            Some(ClientLoad { failed_or_late: 0, .. }) => 1.0,
            Some(load) => ratio.powf((2.0 * by / load.failed_or_late as f64).min(1.0)),
        }
    }

    /// Returns a fact about counters that would show a class and did not rise, although requests failed or were late.
    fn silent(&self, rises: &BTreeMap<(&str, usize), f64>) -> Option<Fact> {
        self.client_load.filter(|load| load.failed_or_late > 0)?;
        let told = |rose: bool| {
            let of = rises.iter().filter(move |(_, by)| (**by > 0.0) == rose);
            of.flat_map(|((_, at), _)| COUNTER_RULES[*at].classes_excluded_by_silence())
        };
        let rose: Vec<CauseClass> = told(true).collect();
        let mut classes: Vec<CauseClass> = told(false).filter(|class| !rose.contains(class)).collect();
        classes.sort_unstable();
        classes.dedup();
        let silent = rises.iter().filter(|((_, at), by)| {
            **by <= 0.0
                && COUNTER_RULES[*at].classes_excluded_by_silence().any(|class| classes.contains(&class))
        });
        let names: Vec<&str> = silent.map(|((name, _), _)| *name).collect();
        (!names.is_empty()).then(|| {
            let against: Vec<_> = classes.iter().map(|class| (*class, SILENCE_RATIO)).collect();
            Fact {
                is_unchanged: true,
                ..Fact::new(format!("counters that did not rise: {}", names.join(", ")), &against)
            }
        })
    }

    fn opened(&self) -> impl Iterator<Item = Fact> {
        GAUGE_RULES.iter().filter_map(|rule| {
            let open = |page: &MetricsPage| {
                page.samples().filter(|(series, _)| rule.fits(series)).any(|(_, sample)| sample.value > 0.0)
            };
            (open(self.end) && !open(self.begin))
                .then(|| Fact::new(rule.says.to_owned(), rule.likelihood_ratios))
        })
    }

    /// Returns facts about gauges of waiting work that grew. Whatever the cause is, it is behind such a queue and not in front of
    /// it.
    fn queues(&self) -> impl Iterator<Item = Fact> {
        let grown = self.end.samples().filter_map(|(series, sample)| {
            let begin = self.begin.sample(series)?.value;
            let waits =
                sample.kind == MetricKind::Gauge && QUEUE_WORDS.iter().any(|word| series.name.contains(word));
            (waits && sample.value >= 10.0 && sample.value >= 2.0 * begin).then_some((
                &series.name,
                begin,
                sample.value,
            ))
        });
        grown.take(MOST_FACTS).map(|(name, begin, end)| {
            let behind = [
                (CauseClass::PoolSaturation, 2.0),
                (CauseClass::CpuSaturation, 2.0),
                (CauseClass::DelayingLimiter, 1.5),
            ];
            Fact::new(format!("{name} grew from {begin:.0} to {end:.0}"), &behind)
        })
    }

    fn cores(&self) -> Option<Fact> {
        let name = "process_cpu_seconds_total";
        let used = (self.end.sum(name)? - self.begin.sum(name)?) / self.span_seconds;
        used.is_finite().then(|| {
            Fact::new(format!("the process used {used:.2} cores"), core_usage_likelihood_ratios(used))
        })
    }

    fn files(&self) -> Option<Fact> {
        let (open, most) = (self.end.sum("process_open_fds")?, self.end.sum("process_max_fds")?);
        (most > 0.0 && open >= 0.98 * most).then(|| {
            Fact::new(
                format!("the process has {open:.0} open files; its limit is {most:.0}"),
                &[(CauseClass::ConnectionCap, 20.0)],
            )
        })
    }

    fn still(&self) -> Option<Fact> {
        let name = PAUSE_COUNTERS.into_iter().find(|name| self.end.sum(name).is_some())?;
        let rises = self.end.samples_named(name).map(|(series, sample)| self.increase(series, *sample));
        let share = rises.sum::<f64>() / self.span_seconds;
        let speaks_for: &[(CauseClass, f64)] = match share {
            0.05.. => &[(CauseClass::Pauses, 8.0)],
            ..0.001 => &[(CauseClass::Pauses, 0.5)],
            _ => &[],
        };
        Some(Fact::new(
            format!(
                "the process paused for garbage collection during {:.1} % of the time ({name})",
                100.0 * share
            ),
            speaks_for,
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server_side::exposition::ExpositionFormat;

    fn page(text: &str) -> MetricsPage {
        MetricsPage::parse(text.as_bytes(), ExpositionFormat::Prometheus).unwrap()
    }

    fn change(begin: &str, end: &str, troubled: Option<u64>) -> Vec<Fact> {
        let (begin, end) = (page(begin), page(end));
        let load = troubled.map(|troubled| ClientLoad { requests: 1000, failed_or_late: troubled });
        MetricsPagePair { begin: &begin, end: &end, span_seconds: 10.0, client_load: load }.facts()
    }

    fn ratio(facts: &[Fact], class: CauseClass) -> f64 {
        let ratios = facts.iter().flat_map(|fact| &fact.likelihood_ratios).filter(|(of, _)| *of == class);
        ratios.map(|(_, ratio)| *ratio).product()
    }

    const ENVOY: &str = "\
# TYPE envoy_cluster_upstream_rq_pending_overflow counter
envoy_cluster_upstream_rq_pending_overflow{envoy_cluster_name=\"a\"} 5
envoy_cluster_upstream_rq_pending_overflow{envoy_cluster_name=\"b\"} 0
# TYPE envoy_cluster_ratelimit_over_limit counter
envoy_cluster_ratelimit_over_limit{envoy_cluster_name=\"a\"} 7
# TYPE envoy_cluster_circuit_breakers_default_rq_open gauge
envoy_cluster_circuit_breakers_default_rq_open{envoy_cluster_name=\"a\"} 0
# TYPE envoy_cluster_upstream_rq_pending_active gauge
envoy_cluster_upstream_rq_pending_active{envoy_cluster_name=\"a\"} 1
";

    fn overflown() -> String {
        let end = ENVOY.replace("{envoy_cluster_name=\"b\"} 0", "{envoy_cluster_name=\"b\"} 400");
        end.replace("rq_open{envoy_cluster_name=\"a\"} 0", "rq_open{envoy_cluster_name=\"a\"} 1")
    }

    #[test]
    fn a_breaker_that_explains_what_clients_missed_speaks_for_a_cap() {
        let facts = change(ENVOY, &overflown(), Some(400));
        let says = "400 requests refused by a cluster's circuit breaker while 400 requests failed or were late \
                    (envoy_cluster_upstream_rq_pending_overflow, 40.0/s)";
        assert_eq!(facts[0].text, says);
        assert_eq!(ratio(&facts, CauseClass::ConcurrencyCap), 30.0 * 10.0, "the breaker was seen open, too");
        assert_eq!(facts[1].text, "counters that did not rise: envoy_cluster_ratelimit_over_limit");
        assert_eq!(ratio(&facts, CauseClass::RateLimiter), SILENCE_RATIO);
    }

    #[test]
    fn a_rise_counts_as_far_as_it_explains_what_clients_missed() {
        let cap = |troubled| {
            change(ENVOY, &overflown(), troubled)[0]
                .likelihood_ratios
                .first()
                .map_or(1.0, |(_, ratio)| *ratio)
        };
        assert_eq!(cap(Some(400)), 30.0);
        assert_eq!(cap(Some(800)), 30.0, "half of them");
        let tenth = cap(Some(4000));
        assert!((1.5..3.0).contains(&tenth), "{tenth}");
        assert_eq!(cap(Some(0)), 1.0, "nobody missed anything");
        let unknown = cap(None);
        assert!((5.0..6.0).contains(&unknown), "{unknown}");
    }

    #[test]
    fn counters_that_stand_still_say_nothing_while_nothing_fails() {
        assert_eq!(change(ENVOY, ENVOY, None), []);
        assert_eq!(change(ENVOY, ENVOY, Some(0)), []);
        assert_eq!(ratio(&change(ENVOY, ENVOY, Some(9)), CauseClass::ConcurrencyCap), SILENCE_RATIO);
    }

    #[test]
    fn local_rate_limits_of_any_name_are_known() {
        for name in
            ["envoy_http_local_rate_limit_rate_limited", "envoy_mine_http_local_rate_limit_rate_limited"]
        {
            let text = |by| format!("# TYPE {name} counter\n{name} {by}\n");
            assert_eq!(
                ratio(&change(&text(1), &text(101), Some(100)), CauseClass::RateLimiter),
                50.0,
                "{name}"
            );
        }
    }

    #[test]
    fn lookups_that_fail_speak_for_dns_and_those_that_do_not_are_passed_over() {
        let text = |fine, failed| {
            format!(
                "# TYPE coredns_dns_responses_total counter\n\
                 coredns_dns_responses_total{{rcode=\"NOERROR\"}} {fine}\ncoredns_dns_responses_total{{rcode=\"SERVFAIL\"}} {failed}\n"
            )
        };
        assert_eq!(change(&text(1, 1), &text(900, 1), Some(50)), []);
        let facts = change(&text(1, 1), &text(900, 51), Some(50));
        assert_eq!((facts.len(), ratio(&facts, CauseClass::Dns)), (1, 10.0));
    }

    #[test]
    fn a_counter_that_appears_in_the_window_began_at_zero() {
        let facts =
            change("", "# TYPE x_rejected_total counter\nx_rejected_total{why=\"full\"} 9\n", Some(9));
        assert_eq!(
            facts[0].text,
            "9 rejected requests (judged by the metric's name) while 9 requests failed or were late (x_rejected_total, 0.9/s)"
        );
        assert_eq!(ratio(&facts, CauseClass::ConcurrencyCap), 3.0);
    }

    #[test]
    fn of_a_process_that_began_anew_nothing_else_is_said() {
        let restarted = change("process_start_time_seconds 100\n", "process_start_time_seconds 205\n", None);
        assert!(restarted[0].text.starts_with("the counters restarted"));
        let mut fell = change(&overflown(), ENVOY, Some(400));
        assert_eq!((fell.len(), fell.remove(0).likelihood_ratios), (1, vec![]));
    }

    #[test]
    fn a_queue_that_grows_is_told() {
        let text = |waiting| format!("# TYPE work_queue_depth gauge\nwork_queue_depth {waiting}\n");
        assert_eq!(change(&text(2), &text(250), None)[0].text, "work_queue_depth grew from 2 to 250");
        assert_eq!(change(&text(2), &text(9), None), [], "small");
        assert_eq!(change(&text(200), &text(250), None), [], "it was long before");
    }

    #[test]
    fn a_process_tells_of_its_cores_files_and_pauses() {
        let text = |cpu, pauses| {
            format!(
                "# TYPE process_cpu_seconds_total counter\nprocess_cpu_seconds_total {cpu}\nprocess_open_fds 1023\nprocess_max_fds 1024\n\
                 # TYPE go_gc_duration_seconds summary\ngo_gc_duration_seconds_sum {pauses}\ngo_gc_duration_seconds_count 1\n"
            )
        };
        let facts = change(&text(1.0, 0.1), &text(10.9, 1.1), None);
        let says: Vec<_> = facts.iter().map(|fact| &*fact.text).collect();
        let pauses = "the process paused for garbage collection during 10.0 % of the time (go_gc_duration_seconds_sum)";
        assert_eq!(
            says,
            ["the process used 0.99 cores", "the process has 1023 open files; its limit is 1024", pauses]
        );
        let classes = [CauseClass::CpuSaturation, CauseClass::ConnectionCap, CauseClass::Pauses];
        assert_eq!(classes.map(|class| ratio(&facts, class)), [8.0, 20.0, 8.0]);
    }

    /// The pages are real: a proxy and an agent before and after some requests, neither at a limit.
    #[test]
    fn real_pages_of_targets_that_were_fine_accuse_nobody() {
        let agent = MetricsPage::parse(
            include_bytes!("../../../tests/pages/agent.txt"),
            ExpositionFormat::OpenMetrics,
        )
        .unwrap();
        let before = MetricsPage::parse(
            include_bytes!("../../../tests/pages/agent-before.txt"),
            ExpositionFormat::OpenMetrics,
        )
        .unwrap();
        let (go, go_before) = (
            page(include_str!("../../../tests/pages/go.txt")),
            page(include_str!("../../../tests/pages/go-before.txt")),
        );
        let load = Some(ClientLoad { requests: 20, failed_or_late: 0 });
        assert_eq!(
            MetricsPagePair { begin: &before, end: &agent, span_seconds: 1.0, client_load: load }.facts(),
            []
        );
        let facts =
            MetricsPagePair { begin: &go_before, end: &go, span_seconds: 1.0, client_load: load }.facts();
        assert!(
            facts.iter().flat_map(|fact| &fact.likelihood_ratios).all(|(_, ratio)| *ratio < 1.0),
            "{facts:?}"
        );
        assert_eq!(facts.len(), 2, "cores and pauses: {facts:?}");
    }
}
