//! Results told apart by run, for everything that is drawn or compared.
//!
//! A run is one attack name in one input, so two files of the same name stay apart and one file may hold several. What
//! is kept per run does not grow with its length: totals, a [`Timeline`], when requests ended, and a bounded number of targets.

use std::collections::{HashMap, HashSet};

use seawall_load::charted_timeline::Timeline;
use seawall_load::latency_distribution::Distribution;
use seawall_load::record::Record;
use seawall_load::results::hdr::HdrLogEntry;

use super::input::{InputSource, RecordSink};
use super::rates::CompletionHistogram;
use super::totals::{Totals, is_never_sent};

/// More runs than this are of no use in one picture; results of further ones are added up as one.
const MAX_RUNS: usize = 12;

/// More targets than this are added up as one: URLs can hold ids.
const MAX_TARGETS: usize = 50;

/// The name of what was added up.
const OTHERS: &str = "all others";

/// All runs, in the order of their first result.
#[derive(Debug)]
pub(crate) struct Runs {
    /// Names of the inputs, for runs without a name of their own.
    inputs: Vec<String>,
    runs: Vec<RunResults>,
    last: usize,
}

/// One run.
#[derive(Debug)]
pub(crate) struct RunResults {
    source: usize,
    attack: String,
    pub(crate) totals: Totals,
    pub(crate) timeline: Timeline,
    pub(crate) completion_histogram: CompletionHistogram,
    pub(crate) targets: CountsByTarget,
}

impl Runs {
    /// None yet.
    pub(crate) fn new(inputs: &[InputSource]) -> Self {
        let inputs = inputs.iter().map(|input| input.name.clone()).collect();
        Self { inputs, runs: Vec::new(), last: 0 }
    }

    /// The runs and their names, which differ from each other: what two would share gets a number.
    pub(crate) fn iter_with_names(&self) -> impl Iterator<Item = (String, &RunResults)> {
        let mut taken = HashSet::new();
        self.runs.iter().map(move |run| {
            let name = self.name(run);
            let numbered = (2..).map(|number| format!("{name} #{number}"));
            let free = std::iter::once(name.clone()).chain(numbered).find(|name| taken.insert(name.clone()));
            (free.unwrap_or(name), run)
        })
    }

    /// Adds what an HDR log says to the run that went on then; `false` if none did, or the log's tag is not known.
    pub(crate) fn add_log_entry(&mut self, logged: &HdrLogEntry) -> bool {
        let at = (logged.start * 1e9) as i128;
        let Some(run) = self.runs.iter_mut().find(|run| run.goes_on(at)) else { return false };
        let row = run.timeline.row_mut(at);
        match logged.tag.as_str() {
            "lag" => row.send_lags.merge(&logged.values),
            "service" => row.service_times.merge(&logged.values),
            "response" => {}
            _ => return false,
        }
        true
    }

    fn name(&self, run: &RunResults) -> String {
        let input = self.inputs.get(run.source).map_or("results", String::as_str);
        let twins = self.runs.iter().filter(|other| other.attack == run.attack).count();
        match (run.attack.as_str(), twins) {
            ("", 1) if self.inputs.len() < 2 => "results".to_owned(),
            ("", _) => input.to_owned(),
            (attack, 1) => attack.to_owned(),
            (attack, _) => format!("{attack} ({input})"),
        }
    }

    fn run_mut(&mut self, source: usize, attack: &str) -> &mut RunResults {
        let is_it = |run: &RunResults| run.source == source && run.attack == attack;
        // Results of one run mostly follow each other.
        if !self.runs.get(self.last).is_some_and(is_it) {
            self.last = self.runs.iter().position(is_it).unwrap_or_else(|| self.start(source, attack));
        }
        &mut self.runs[self.last]
    }

    fn start(&mut self, source: usize, attack: &str) -> usize {
        if self.runs.len() > MAX_RUNS {
            return MAX_RUNS;
        }
        let (source, attack) =
            if self.runs.len() == MAX_RUNS { (usize::MAX, OTHERS) } else { (source, attack) };
        self.runs.push(RunResults {
            source,
            attack: attack.to_owned(),
            totals: Totals::default(),
            timeline: Timeline::default(),
            completion_histogram: CompletionHistogram::default(),
            targets: CountsByTarget::default(),
        });
        self.runs.len() - 1
    }
}

impl RunResults {
    /// True from a second before the first request was due to a second after the last answer: a log's intervals are
    /// not the run's.
    fn goes_on(&self, at_ns: i128) -> bool {
        const SLACK_NS: i128 = 1_000_000_000;
        let (from, to) = (self.totals.earliest().unix_ns(), self.totals.end_time().unix_ns());
        (from - SLACK_NS..=to + SLACK_NS).contains(&at_ns)
    }
}

impl RecordSink for Runs {
    fn add(&mut self, source: usize, record: &Record) {
        let run = self.run_mut(source, &record.attack);
        run.totals.add_record(record);
        run.timeline.add_record(record);
        run.completion_histogram.add_record(record);
        if is_never_sent(record) {
            // Where its failure is counted, so that one can be taken from the other.
            run.timeline.row_mut(record.end_unix_ns()).dropped += 1;
        }
        run.targets.add(record);
    }
}

/// Counts and latencies per method and URL.
#[derive(Debug, Default)]
pub(crate) struct CountsByTarget {
    targets: Vec<TargetTotals>,
    places: HashMap<(String, String), usize>,
    last: usize,
}

/// One method and URL.
#[derive(Debug)]
pub(crate) struct TargetTotals {
    method: String,
    url: String,
    pub(crate) requests: u64,
    pub(crate) successes: u64,
    pub(crate) latency: Distribution,
}

impl TargetTotals {
    /// `GET http://…`.
    pub(crate) fn name(&self) -> String {
        format!("{} {}", self.method, self.url).trim().to_owned()
    }
}

impl CountsByTarget {
    /// In the order of their first result.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &TargetTotals> {
        self.targets.iter()
    }

    fn add(&mut self, record: &Record) {
        let is_it = |target: &TargetTotals| target.url == record.url && target.method == record.method;
        if !self.targets.get(self.last).is_some_and(is_it) {
            self.last = self.place(&record.method, &record.url);
        }
        let target = &mut self.targets[self.last];
        target.requests += 1;
        target.successes += u64::from(record.is_success());
        target.latency.record(record.latency_ns);
    }

    fn place(&mut self, method: &str, url: &str) -> usize {
        let key = (method.to_owned(), url.to_owned());
        if let Some(place) = self.places.get(&key) {
            return *place;
        }
        if self.targets.len() > MAX_TARGETS {
            return MAX_TARGETS;
        }
        let (method, url) = if self.targets.len() == MAX_TARGETS {
            (String::new(), OTHERS.to_owned())
        } else {
            self.places.insert(key.clone(), self.targets.len());
            key
        };
        let latency = Distribution::default();
        self.targets.push(TargetTotals { method, url, requests: 0, successes: 0, latency });
        self.targets.len() - 1
    }
}
