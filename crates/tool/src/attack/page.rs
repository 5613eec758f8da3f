//! `--live-page` of an attack: the page of `seawall report` while the run goes on, and its buttons.
//!
//! [`AttackPage`] is where intervals go: handed to the page's thread without waiting, joined while there is no room for them, so that a
//! page may be late and is never wrong. [`AttackPageContent`] lives in that thread: it makes of intervals what `report` makes of a file of
//! them, and the buttons' commands are those of `--control-socket`.

use seawall_load::clock::{Nanos, SECOND};
use seawall_load::interval::IntervalStats;
use seawall_load::interval_row::{LiveRow, LiveRowBuilder, Quantiles, RunInfo, RunStatus};
use seawall_load::run_outcome::{RunOutcome, requests_handed_out};
use seawall_load::summary::Summary;
use serde::Serialize;

use super::control_socket::CommandHandler;
use super::generator_pods::PodTracker;
use super::timeseries_file::IntervalsFooter;
use crate::live_page::{PageContent, PageFeed, PageServer};
use crate::report::glossary;
use crate::report::html::{self, ReportPageData};
use crate::report::intervals::interval_series::{self, DownsampledIntervals};
use crate::report::series::{MAX_POINTS, RunSeries};

/// A run that is being shown; dropping it ends the page.
pub(super) struct AttackPage {
    /// The intervals that the page has not received yet.
    pending: IntervalStats,
    feed: PageFeed<AttackPageUpdate>,
}

impl AttackPage {
    /// Serves the page, and says where.
    ///
    /// # Errors
    /// As [`PageServer::start`].
    pub(super) fn start(site: PageServer, shown: AttackPageContent) -> anyhow::Result<Self> {
        Ok(Self { pending: IntervalStats::default(), feed: site.start(shown)? })
    }

    /// Shows what was measured, once that is a second of it and the page has room.
    pub(super) fn add_interval(&mut self, interval: &IntervalStats) {
        self.pending.to = interval.to;
        self.pending.stats.merge(&interval.stats);
        if self.pending.to.saturating_sub(self.pending.from) < SECOND {
            return;
        }
        let next = IntervalStats { from: self.pending.to, to: self.pending.to, ..IntervalStats::default() };
        let news = AttackPageUpdate::IntervalMeasured(Box::new(std::mem::replace(&mut self.pending, next)));
        if let Err(AttackPageUpdate::IntervalMeasured(interval)) = self.feed.try_send(news) {
            self.pending = *interval;
        }
    }

    /// Something of its pods is new. Where there is no room for that, there is news that show it as well.
    pub(super) fn notify_pods_changed(&self) {
        let _ = self.feed.try_send(AttackPageUpdate::PodsChanged);
    }

    /// Shows how it ended and what is to be said of it; an open page has a moment to hear that.
    pub(super) fn end(self, end: IntervalsFooter, warnings: String) {
        self.feed.send_last(AttackPageUpdate::Finished(Box::new(self.pending), end, warnings));
    }
}

/// An update that the thread of the page receives.
pub(super) enum AttackPageUpdate {
    /// The next measured interval.
    IntervalMeasured(Box<IntervalStats>),
    /// The state of the pods has changed.
    PodsChanged,
    /// The last interval, the end of the run, and the warnings about it.
    Finished(Box<IntervalStats>, IntervalsFooter, String),
}

/// A run as its page shows it.
pub(super) struct AttackPageContent {
    facts: RunInfo,
    subtitle: String,
    hand: CommandHandler,
    pods: PodTracker,
    rows: DownsampledIntervals,
    whole: IntervalStats,
    meter: LiveRowBuilder,
    /// The last second.
    row: Option<LiveRow>,
    over: Option<(IntervalsFooter, String)>,
}

const TITLE: &str = "Load report";

impl AttackPageContent {
    /// Starts the content of a run that begins now.
    pub(super) fn new(facts: RunInfo, start: Option<&str>, hand: CommandHandler, pods: PodTracker) -> Self {
        let started = start.map_or_else(String::new, |start| format!("Started {start}. "));
        Self {
            subtitle: format!("{started}{}, {}", without_password(&facts.target), facts.load_description),
            facts,
            hand,
            pods,
            rows: DownsampledIntervals::new(MAX_POINTS),
            whole: IntervalStats::default(),
            meter: LiveRowBuilder::default(),
            row: None,
            over: None,
        }
    }

    fn add(&mut self, interval: &IntervalStats) {
        let (control, facts) = (&self.hand.control, &self.facts);
        let due = |at| control.due_before(at, facts.end, facts.max_requests);
        let between = due(interval.to).zip(due(interval.from));
        self.rows.add_interval(interval, between.map(|(to, from)| to.saturating_sub(from)));
        self.row =
            self.meter.add_interval(interval, RunStatus::of(control, facts.end), due).or(self.row.take());
        self.whole.to = interval.to;
        self.whole.stats.merge(&interval.stats);
    }

    /// The run so far; none before anything was counted.
    fn series(&self) -> Option<RunSeries> {
        let warm_up = self.facts.warm_up_end;
        (self.whole.to > warm_up || self.over.is_some()).then(|| {
            let outcome = self.outcome();
            let series = |summary| {
                interval_series::build_run_series("run".to_owned(), (&outcome, &summary), &self.rows, warm_up)
            };
            let mut series = series(Summary::new(&outcome));
            if self.over.is_none() {
                self.correct(&mut series, &outcome);
            }
            series
        })
    }

    /// Returns the outcome of the run; during the run, as if it ended now and only the requests handed out so far had been due.
    fn outcome(&self) -> RunOutcome {
        let total = self.whole.stats.clone();
        if let Some((end, _)) = &self.over {
            let (scheduled, elapsed, threads) = (end.offered, end.elapsed, end.threads);
            return RunOutcome {
                scheduled_count: scheduled,
                elapsed_after_warm_up: elapsed,
                threads,
                ..RunOutcome::from_stats(total, end.duration)
            };
        }
        let scheduled = self.facts.is_open_loop.then(|| requests_handed_out(&total));
        RunOutcome { scheduled_count: scheduled, ..RunOutcome::from_stats(total, self.counted()) }
    }

    /// The counted time so far.
    fn counted(&self) -> Nanos {
        self.whole.to.min(self.facts.end.unwrap_or(Nanos::MAX)).saturating_sub(self.facts.warm_up_end)
    }

    /// Corrects figures of an unfinished run: waiting requests have not failed, and the schedule says how many are due.
    fn correct(&self, series: &mut RunSeries, outcome: &RunOutcome) {
        let RunInfo { end, max_requests: hits, warm_up_end: warm_up, .. } = self.facts;
        let due = |at| self.hand.control.due_before(at, end, hits);
        let figures = &mut series.figures;
        if let Some((now, before)) = due(self.whole.to).zip(due(warm_up)) {
            figures.requests = now.saturating_sub(before).max(outcome.total_stats.completed);
            figures.rates.offered = figures.requests as f64 * SECOND as f64 / self.counted().max(1) as f64;
        }
        // Not a number before anything came to an end, which is written as null.
        figures.success = outcome.total_stats.good_count() as f64 / outcome.total_stats.completed as f64;
    }

    /// Passes the current content to `then`, which makes a page or data of it.
    fn shown<T>(
        &self,
        note: Option<&str>,
        then: impl FnOnce(ReportPageData<'_>) -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        let runs: Vec<_> = self.series().into_iter().collect();
        let pods = self.pods.to_table(self.hand.control.elapsed(), self.facts.warm_up_end);
        then(
            ReportPageData::from_runs(
                TITLE,
                self.subtitle.clone(),
                note,
                &runs,
                &glossary::live_run_glossary(),
            )
            .with_pods(pods),
        )
    }

    /// Returns the warnings that stand before the figures.
    fn note(&self) -> Option<&str> {
        self.over.as_ref().map(|(_, warnings)| warnings.trim()).filter(|warnings| !warnings.is_empty())
    }
}

/// The status of the run and the possible actions. Times are in nanoseconds unless they are said to be seconds.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct AttackStatus<'a> {
    /// running, paused, ending or over.
    state: &'static str,
    /// Seconds.
    elapsed: f64,
    /// Seconds, if there is one.
    end: Option<f64>,
    load: &'a str,
    /// Nothing is counted yet.
    warming: bool,
    /// Hits are due at a rate.
    open: bool,
    /// The rate can be changed here.
    steerable: bool,
    /// Due per second, by the schedule at this moment.
    rate: Option<f64>,
    /// The number of clients of a closed loop.
    clients: usize,
    in_flight: usize,
    most_in_flight: usize,
    connections: usize,
    last: Option<LastSecond>,
    /// The offline report of a finished run, embedded because the server of the page has ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<String>,
}

/// The last second.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct LastSecond {
    offered: Option<f64>,
    achieved: f64,
    good: f64,
    /// None where nothing came to an end.
    p50: Option<Nanos>,
    p99: Option<Nanos>,
    lag: Option<Nanos>,
    /// Requests that failed in it.
    failed: u64,
}

impl From<&LiveRow> for LastSecond {
    fn from(row: &LiveRow) -> Self {
        let known = |times: &Quantiles, value| (times.count > 0).then_some(value);
        let (response, lag) = (&row.latencies.response_time, &row.latencies.send_lag);
        Self {
            offered: row.offered_rate,
            achieved: row.achieved_rate,
            good: row.goodput,
            p50: known(response, response.p50),
            p99: known(response, response.p99),
            lag: known(lag, lag.p99),
            failed: row.errors.iter().map(|error| error.last_second_count).sum(),
        }
    }
}

impl AttackPageContent {
    fn live(&self) -> anyhow::Result<AttackStatus<'_>> {
        let (control, facts) = (&self.hand.control, &self.facts);
        let now = RunStatus::of(control, facts.end);
        let seconds = |ns: Nanos| ns as f64 / SECOND as f64;
        Ok(AttackStatus {
            state: self.state(),
            elapsed: seconds(now.elapsed),
            end: facts.end.map(seconds),
            load: &facts.load_description,
            warming: now.elapsed < facts.warm_up_end,
            open: facts.is_open_loop,
            steerable: facts.steerable,
            rate: control.offered_rate(),
            clients: control.concurrency(),
            in_flight: now.in_flight,
            most_in_flight: facts.max_in_flight,
            connections: now.connections,
            last: self.row.as_ref().map(LastSecond::from),
            file: if self.is_final() { self.report()? } else { None },
        })
    }

    fn state(&self) -> &'static str {
        match &self.hand.control {
            _ if self.over.is_some() => "over",
            control if control.has_stopped_sending() => "ending",
            control if control.is_paused() => "paused",
            _ => "running",
        }
    }
}

impl PageContent for AttackPageContent {
    type News = AttackPageUpdate;

    fn update(&mut self, news: AttackPageUpdate) {
        match news {
            AttackPageUpdate::IntervalMeasured(interval) => self.add(&interval),
            AttackPageUpdate::PodsChanged => {}
            AttackPageUpdate::Finished(rest, end, warnings) => {
                if rest.to > rest.from {
                    self.add(&rest);
                }
                self.over = Some((end, warnings));
            }
        }
    }

    fn is_final(&self) -> bool {
        self.over.is_some()
    }

    fn page(&self) -> anyhow::Result<String> {
        let live = serde_json::to_value(self.live()?)?;
        self.shown(self.note(), |data| html::render_live_page(&data.with_live_status(live)))
    }

    fn event(&self) -> anyhow::Result<String> {
        let live = serde_json::to_value(self.live()?)?;
        self.shown(self.note(), |data| Ok(serde_json::to_string(&data.with_live_status(live))?))
    }

    fn report(&self) -> anyhow::Result<Option<String>> {
        if self.series().is_none() {
            return Ok(None);
        }
        let cut = format!("Saved during the attack, {} s after its start.", self.whole.to / SECOND);
        let note = if self.is_final() { self.note() } else { Some(cut.as_str()) };
        self.shown(note, |data| html::render_page(TITLE, &data)).map(Some)
    }

    fn run_command(&self, line: &str) -> String {
        self.hand.run_command(line)
    }
}

/// A target without the user and password of its URL: a page is shown and passed on.
fn without_password(target: &str) -> String {
    let Some((before, rest)) = target.split_once("://") else { return target.to_owned() };
    let (authority, path) = rest.split_at(rest.find(['/', '?', '#', ' ', ',']).unwrap_or(rest.len()));
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    format!("{before}://{host}{path}")
}

#[cfg(test)]
mod tests;
