//! The charts of a report: their names, axes, lines and colours, the charts that are left out, and the reasons for that.
//!
//! Only this module chooses charts: [`super::svg`] draws them, and the page holds them as data that `page/page.js` draws. It
//! draws nothing itself and knows no sizes. Empty charts are not drawn; their names are listed among the omitted ones.

use serde::Serialize;

use super::axis_scale::AxisScale;
use super::series::RunSeries;

/// All charts of a report.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Charts {
    pub(crate) panels: Vec<Panel>,
    pub(crate) left_out: Vec<OmittedLine>,
}

/// One chart: its axes and its lines, of which it has at least one.
#[derive(Debug, Serialize)]
pub(crate) struct Panel {
    pub(crate) name: &'static str,
    /// The quantity on the vertical axis.
    pub(crate) unit: &'static str,
    /// The suffix of a single value, beside the unit that the axis gives it.
    pub(crate) suffix: &'static str,
    /// The quantity on the horizontal axis.
    pub(crate) below: &'static str,
    pub(crate) x: AxisScale,
    pub(crate) y: AxisScale,
    /// The position on `x` from which fewer than four responses remain, if it is on the axis, and its label.
    pub(crate) few: Option<(f64, &'static str)>,
    pub(crate) lines: Vec<ChartLine>,
}

/// Positions and values; `None` if the value is unknown.
pub(crate) type ChartPoints = Vec<(f64, Option<f64>)>;

/// One line of a chart.
#[derive(Debug, Serialize)]
pub(crate) struct ChartLine {
    /// The name; empty for a line that belongs to a named one of the same colour.
    pub(crate) name: String,
    /// One of [`COLOUR_NAMES`].
    pub(crate) colour: &'static str,
    pub(crate) stroke: Stroke,
    pub(crate) points: ChartPoints,
}

/// The style of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Stroke {
    Solid,
    /// A thin line for extremes, which leaves the other lines visible.
    Thin,
    /// A dashed line for values that were asked for, or measured in another way.
    Dashed,
    /// Points without a line.
    Dots,
}

/// A line that the chart lacks.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(crate) struct OmittedLine {
    pub(crate) name: String,
    pub(crate) why: &'static str,
}

/// Names of colours. `page/page.css` and the style of the SVG picture define them for light and dark.
pub(crate) const COLOUR_NAMES: [&str; 10] = ["c1", "c2", "c3", "c4", "c5", "c6", "c7", "c8", "bad", "plain"];

/// The colour of a run beside others, in charts and tables.
pub(crate) fn run_colour(at: usize) -> &'static str {
    const RUNS: usize = 8;
    COLOUR_NAMES[at % RUNS]
}

/// The reason for a line of which nothing is known over time, or at all.
const NO_TIMES: &str = "No request has a response time.";
const NOTHING_OVER_TIME: &str = "The run is too short, or it has no counted requests.";
const NOT_DUE: &str = "Intervals do not contain the scheduled time of each request. The page shows only the offered rate of the whole run.";
const NOTHING_DUE: &str = "A closed loop has no schedule.";
const NOT_SENT: &str = "Results do not contain the real send time. Log this time with attack --hdr FILE, and give that file \
                        together with the results.";

/// The charts of these runs: one run shows its quantiles and outcomes, several show one line each.
pub(crate) fn build_charts(runs: &[RunSeries]) -> Charts {
    let drafts: Vec<PanelDraft> = match runs {
        [run] => single_run(run).into(),
        _ => several_runs(runs).into(),
    };
    let mut charts = Charts { panels: Vec::new(), left_out: Vec::new() };
    for draft in drafts {
        charts.take(draft, runs);
    }
    charts
}

/// A chart before it is known which of its lines there are.
struct PanelDraft {
    name: &'static str,
    kind: PanelKind,
    lines: Vec<ChartLine>,
    /// The reasons for missing lines, in the order of the lines.
    why: Vec<&'static str>,
}

/// The axes of a chart.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PanelKind {
    /// Response times by the count of nines.
    ResponseTimeByPercentile,
    ResponseTimeOverTime,
    SendLagOverTime,
    Rates,
    InFlight,
}

const FASTER: &str = "share of requests that were faster";
const CURVE: &str = "Response time by percentile";
const RATE: &str = "Rate over time";
const FLYING: &str = "In flight over time";
const LAG: &str = "Send lag of the generator (actual minus scheduled send time), 99th percentile";

/// The charts of one run.
fn single_run(run: &RunSeries) -> [PanelDraft; 5] {
    use Stroke::{Dashed, Solid, Thin};
    let line =
        |name: &str, colour, points| ChartLine { name: name.to_owned(), colour, stroke: Solid, points };
    let [not_due, not_sent] = if run.is_closed_loop { [NOTHING_DUE; 2] } else { [NOT_DUE, NOT_SENT] };
    let service = ChartLine {
        stroke: Dashed,
        ..line("99 % from the real send", "plain", logged(run, &run.service_time_p99))
    };
    [
        PanelDraft::new(
            CURVE,
            PanelKind::ResponseTimeByPercentile,
            NO_TIMES,
            vec![line("all requests", "c1", curve(run))],
        ),
        PanelDraft::new(
            "Response time over time",
            PanelKind::ResponseTimeOverTime,
            NO_TIMES,
            vec![
                ChartLine { stroke: Thin, ..line("largest", "c5", times(run, &run.max_response_time)) },
                line("99 %", "c2", times(run, &run.response_time_p99)),
                line("90 %", "c6", times(run, &run.response_time_p90)),
                line("median", "c1", times(run, &run.response_time_p50)),
            ],
        )
        .with_line(service, NOT_SENT),
        PanelDraft::new(
            RATE,
            PanelKind::Rates,
            NOTHING_OVER_TIME,
            vec![
                line("achieved", "c1", counts(run, &run.achieved_rate)),
                line("good", "c3", counts(run, &run.good_rate)),
                line("errors", "bad", counts(run, &run.error_rate)),
            ],
        )
        .with_line(
            ChartLine { stroke: Dashed, ..line("offered", "plain", counts(run, &run.offered_rate)) },
            not_due,
        ),
        PanelDraft::new(
            FLYING,
            PanelKind::InFlight,
            NOTHING_OVER_TIME,
            vec![line("in flight", "c4", counts(run, &run.mean_in_flight))],
        ),
        PanelDraft::new(
            LAG,
            PanelKind::SendLagOverTime,
            not_sent,
            vec![line("lag", "c7", logged(run, &run.send_lag_p99))],
        ),
    ]
}

/// The charts of several runs, in which each has a line.
fn several_runs(runs: &[RunSeries]) -> [PanelDraft; 9] {
    let draft = |name, kind, why, points: fn(&RunSeries) -> ChartPoints| {
        let line = |(at, run): (usize, &RunSeries)| {
            let (name, colour) = (run.name.clone(), run_colour(at));
            ChartLine { name, colour, stroke: Stroke::Solid, points: points(run) }
        };
        PanelDraft::new(name, kind, why, runs.iter().enumerate().map(line).collect())
    };
    let rate = |name, points| draft(name, PanelKind::Rates, NOTHING_OVER_TIME, points);
    [
        draft(CURVE, PanelKind::ResponseTimeByPercentile, NO_TIMES, curve),
        draft("Median response time over time", PanelKind::ResponseTimeOverTime, NO_TIMES, |run| {
            times(run, &run.response_time_p50)
        }),
        draft("99 % response time over time", PanelKind::ResponseTimeOverTime, NO_TIMES, |run| {
            times(run, &run.response_time_p99)
        }),
        draft("Offered rate over time", PanelKind::Rates, NOT_DUE, |run| counts(run, &run.offered_rate)),
        rate("Achieved rate over time", |run| counts(run, &run.achieved_rate)),
        rate("Good responses over time", |run| counts(run, &run.good_rate)),
        rate("Errors over time", |run| counts(run, &run.error_rate)),
        draft(FLYING, PanelKind::InFlight, NOTHING_OVER_TIME, |run| counts(run, &run.mean_in_flight)),
        draft(LAG, PanelKind::SendLagOverTime, NOT_SENT, |run| logged(run, &run.send_lag_p99)),
    ]
}

impl PanelDraft {
    fn new(name: &'static str, kind: PanelKind, why: &'static str, lines: Vec<ChartLine>) -> Self {
        let why = vec![why; lines.len()];
        Self { name, kind, lines, why }
    }

    fn with_line(mut self, line: ChartLine, why: &'static str) -> Self {
        self.lines.push(line);
        self.why.push(why);
        self
    }
}

impl Charts {
    /// A line each for those who shared a run's load.
    pub(crate) fn add_pod_rates(&mut self, of: &[(String, ChartPoints)], runs: &[RunSeries]) {
        let lines = of.iter().enumerate().map(|(at, (name, points))| ChartLine {
            name: name.clone(),
            colour: run_colour(at),
            stroke: Stroke::Solid,
            points: points.clone(),
        });
        let lines: Vec<_> = lines.filter(|line| line.is_seen(false)).collect();
        // Behind the rate that is their sum; without it nothing was counted.
        let sum = self.panels.iter().position(|panel| panel.name == RATE);
        if let Some(at) = sum.filter(|_| !lines.is_empty()) {
            self.panels.insert(at + 1, Panel::new("Achieved rate by pod", PanelKind::Rates, lines, runs));
        }
    }

    /// Keeps of a draft what there is to see, and says what there is not.
    fn take(&mut self, draft: PanelDraft, runs: &[RunSeries]) {
        let PanelDraft { name, kind, lines, why } = draft;
        let (shown, empty): (Vec<_>, Vec<_>) =
            lines.into_iter().zip(why).partition(|(line, _)| line.is_seen(kind.is_of_times()));
        if shown.is_empty() {
            let why = empty.first().map(|(_, why)| OmittedLine { name: name.to_owned(), why });
            self.left_out.extend(why);
            return;
        }
        let without =
            |(line, why): (ChartLine, _)| OmittedLine { name: format!("{name}: {}", line.name), why };
        self.left_out.extend(empty.into_iter().map(without));
        self.panels.push(Panel::new(name, kind, shown.into_iter().map(|(line, _)| line).collect(), runs));
    }
}

impl Panel {
    fn new(name: &'static str, kind: PanelKind, lines: Vec<ChartLine>, runs: &[RunSeries]) -> Self {
        let (unit, suffix) = kind.unit();
        let values = lines.iter().flat_map(|line| line.points.iter().filter_map(|point| point.1));
        let y = if kind.is_of_times() {
            AxisScale::log_nanoseconds(values)
        } else {
            AxisScale::linear_counts(values)
        };
        let (x, below) = match kind {
            PanelKind::ResponseTimeByPercentile => (
                AxisScale::percentile_nines(last(runs, |run| run.quantile_curve.last().map(|at| at.0))),
                FASTER,
            ),
            _ if runs.len() == 1 => (clock(runs), "time since the start"),
            _ => (clock(runs), "time since the start of each run"),
        };
        let few = match runs {
            [run]
                if kind == PanelKind::ResponseTimeByPercentile
                    && x.relative_position(run.few_responses_from) < 1.0 =>
            {
                Some((run.few_responses_from, "fewer than 4 responses"))
            }
            _ => None,
        };
        Self { name, unit, suffix, below, few, x, y, lines }
    }
}

/// One axis for every chart over time, for a page shows the same part of all of them.
fn clock(runs: &[RunSeries]) -> AxisScale {
    AxisScale::linear_seconds(last(runs, |run| run.point_start_seconds.last().copied()))
}

fn last(runs: &[RunSeries], of: fn(&RunSeries) -> Option<f64>) -> f64 {
    runs.iter().filter_map(of).fold(0.0, f64::max)
}

impl PanelKind {
    fn is_of_times(self) -> bool {
        matches!(self, Self::ResponseTimeByPercentile | Self::ResponseTimeOverTime | Self::SendLagOverTime)
    }

    /// Returns the unit and the suffix of single values.
    fn unit(self) -> (&'static str, &'static str) {
        match self {
            Self::ResponseTimeByPercentile | Self::ResponseTimeOverTime => ("response time", ""),
            Self::SendLagOverTime => ("lag", ""),
            Self::Rates => ("requests per second", " /s"),
            Self::InFlight => ("requests in flight", ""),
        }
    }
}

impl ChartLine {
    /// Returns true if any point is visible on its axis: a logarithmic axis has no place for zero.
    fn is_seen(&self, is_of_times: bool) -> bool {
        self.points.iter().any(|(_, value)| value.is_some_and(|value| !is_of_times || value > 0.0))
    }
}

fn curve(run: &RunSeries) -> ChartPoints {
    run.quantile_curve.iter().map(|(at, ns)| (*at, Some(*ns as f64))).collect()
}

fn times(run: &RunSeries, values: &[Option<i64>]) -> ChartPoints {
    run.point_start_seconds
        .iter()
        .copied()
        .zip(values.iter().map(|value| value.map(|ns| ns as f64)))
        .collect()
}

fn counts(run: &RunSeries, values: &[Option<f64>]) -> ChartPoints {
    run.point_start_seconds.iter().copied().zip(values.iter().copied()).collect()
}

/// Logged once a second, whatever the width of the points: the line goes on over those without a value.
fn logged(run: &RunSeries, values: &[Option<i64>]) -> ChartPoints {
    times(run, values).into_iter().filter(|(_, value)| value.is_some()).collect()
}

#[cfg(test)]
mod tests;
