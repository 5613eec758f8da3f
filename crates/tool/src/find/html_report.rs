//! `--html`: the run as one offline page: which rates were tried and how each trial went, what answers took and how many were good at
//! each rate, what was in flight during each, the cause with what was excluded, and every trial in a table.
//!
//! Only chooses what is shown; the page's machinery is that of `report`.

use seawall_lab::find::find_report::{
    FindReport, ReportedCause, ReportedLimit, ReportedTrial, ReportedVerdict, ServerSideFact,
    ServerSideWindow,
};
use seawall_search::observation::BLOCK_SECONDS;
use serde::Serialize;

use super::formatting::{
    format_clients, format_confidence, format_named_estimate, format_percent, format_rate_without_unit,
    format_seconds,
};
use super::screen::{self, format_limit_range};
use crate::live_search_page::{SearchPageReport, SearchStatus};
use crate::report::axis_scale::AxisScale;
use crate::report::chart::{ChartLine, ChartPoints, Charts, OmittedLine, Panel, Stroke};
use crate::report::html;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Data {
    title: String,
    subtitle: String,
    note: Option<String>,
    tiles: Vec<Tile>,
    charts: Charts,
    tables: Vec<Table>,
    words: Vec<(&'static str, &'static str)>,
    /// The status of the search on a live page.
    #[serde(skip_serializing_if = "Option::is_none")]
    live: Option<SearchStatus>,
}

/// A figure that is seen first.
#[derive(Serialize)]
struct Tile {
    value: String,
    name: &'static str,
}

/// A table: its columns, of which some hold numbers, and its rows.
#[derive(Serialize)]
struct Table {
    name: &'static str,
    columns: Vec<(&'static str, bool)>,
    rows: Vec<Vec<String>>,
}

/// The whole page.
///
/// # Errors
/// None that is known: everything in it has a form.
pub(super) fn render(answer: &FindReport) -> anyhow::Result<String> {
    let data = data(answer);
    html::render_page(&data.title, &data)
}

fn data(answer: &FindReport) -> Data {
    let (headline, rest) = screen::format_headline_target_goal(answer);
    Data {
        title: headline,
        subtitle: rest.join(" · "),
        note: screen::describe_stop_reason(answer).map(|(name, text)| format!("{name} {text}")),
        tiles: tiles(answer),
        charts: charts(answer),
        tables: tables(answer).into_iter().filter(|table| !table.rows.is_empty()).collect(),
        words: WORDS.to_vec(),
        live: None,
    }
}

/// Returns the data of a running search, whose outcome is unknown.
fn data_so_far(answer: &FindReport) -> Data {
    Data { title: so_far(answer), ..data(answer) }
}

const NOTHING: &str = "So far: no limit is known";

fn so_far(answer: &FindReport) -> String {
    if answer.closed_loop.is_none() && (answer.is_found() || answer.breaking_rate.lower.is_some()) {
        let (what, limit) = if answer.is_latency_limit() {
            ("responses become late", &answer.latency_breaking_rate)
        } else {
            ("the target breaks", &answer.breaking_rate)
        };
        return format!("So far: {what} {}", format_limit_range(limit));
    }
    match (&answer.closed_loop, answer.breaking_rate.highest_good_rate) {
        (Some(closed), _) => match closed.client_limit.most_good_clients {
            Some(good) => format!("So far: {} sustained", format_clients(good)),
            None => NOTHING.to_owned(),
        },
        (None, Some(good)) => format!("So far: {}/s sustained", format_rate_without_unit(good)),
        (None, None) => NOTHING.to_owned(),
    }
}

impl SearchPageReport for FindReport {
    fn offline_page(&self, note: Option<&str>) -> anyhow::Result<String> {
        let Some(note) = note else { return render(self) };
        let data = Data { note: Some(note.to_owned()), ..data_so_far(self) };
        html::render_page(&data.title, &data)
    }

    fn live_page(&self, live: SearchStatus) -> anyhow::Result<String> {
        let data = data_live(self, live);
        html::render_live_search_page(&data.title, &data)
    }

    fn live_event(&self, live: SearchStatus) -> anyhow::Result<String> {
        Ok(serde_json::to_string(&data_live(self, live))?)
    }
}

fn data_live(answer: &FindReport, live: SearchStatus) -> Data {
    let data = if live.is_running() { data_so_far(answer) } else { data(answer) };
    Data { live: Some(live), ..data }
}

const WORDS: [(&str, &str); 7] = [
    (
        "error cliff",
        "Above this rate, more requests fail than the goal allows, or the number of requests in flight grows without end.",
    ),
    ("latency knee", "Above this rate, more responses are late than the goal allows."),
    (
        "97 % interval",
        "The limit lies in this interval with a probability of 97 %, given all trials. Without an interval, only the tested rates are known.",
    ),
    (
        "verdict",
        "The verdict of a single trial. Just above the limit, a trial of practical length can still be good.",
    ),
    (
        "not counted",
        "The baseline, trials that other trials contradict, and trials that ran before the search had detected a burst allowance.",
    ),
    (
        "burst-drain, recovery-probe",
        "Overloads that use up the burst allowance (requests above the limit that the target serves before it breaks), and single requests until the target is fast again. The charts by rate exclude both.",
    ),
    (
        "times likelier",
        "The likelihood ratio of the observation: this cause compared with the next likely cause.",
    ),
];

fn tiles(answer: &FindReport) -> Vec<Tile> {
    let between = |limit: &ReportedLimit| match (
        limit.lower,
        limit.upper,
        limit.highest_good_rate,
        limit.lowest_bad_rate,
    ) {
        (Some(lower), Some(upper), ..) => {
            Some(format!("{} – {}", format_rate_without_unit(lower), format_rate_without_unit(upper)))
        }
        (_, _, Some(good), Some(bad)) => {
            Some(format!("{} / {}", format_rate_without_unit(good), format_rate_without_unit(bad)))
        }
        (_, _, Some(good), None) => Some(format!("> {}", format_rate_without_unit(good))),
        _ => None,
    };
    let named = |limit: &ReportedLimit, [bracket, tested]: [&'static str; 2]| {
        if limit.lower.is_some() { bracket } else { tested }
    };
    let clients = answer.closed_loop.as_ref().map(screen::closed_loop::format_bracket);
    let saturation = answer
        .closed_loop
        .and_then(|closed| closed.saturation)
        .map(|found| format_rate_without_unit(found.rate));
    let (candidates, is_unknown) =
        (screen::candidate_causes(answer), answer.cause.as_ref().is_some_and(screen::is_unknown_cause));
    let tiles = [
        (clients.flatten(), "clients"),
        (saturation, "most good responses/s"),
        (
            between(&answer.breaking_rate),
            named(&answer.breaking_rate, ["error cliff, requests/s", "error cliff, tested good / bad"]),
        ),
        (
            between(&answer.latency_breaking_rate),
            named(
                &answer.latency_breaking_rate,
                ["latency knee, requests/s", "latency knee, tested good / bad"],
            ),
        ),
        (answer.goodput.map(format_rate_without_unit), "good responses/s in overload"),
        (answer.recovery.time_seconds.map(format_seconds), "from the end of the overload to fast responses"),
        (
            answer.cause.as_ref().map(|_| candidates.join(" or ")),
            if is_unknown { "cause: no known cause fits" } else { "cause" },
        ),
        (
            answer
                .cause
                .as_ref()
                .filter(|cause| !is_unknown && !screen::is_generator_cause(cause))
                .map(|cause| format_confidence(cause.score)),
            if candidates.len() > 1 { "sure that one of these is the cause" } else { "sure of the cause" },
        ),
        (Some(answer.trials.len().to_string()), "trials"),
        (Some(format_seconds(answer.duration_seconds)), "in total"),
    ];
    tiles.into_iter().filter_map(|(value, name)| Some(Tile { value: value?, name })).collect()
}

/// The groups of trials, each with its colour.
const GROUPS: [(&str, &str); 4] =
    [("good", "c3"), ("bad", "bad"), ("undecided", "c1"), ("not counted", "plain")];

fn group(trial: &ReportedTrial) -> usize {
    match trial.verdict {
        _ if !trial.has_weight() => 3,
        ReportedVerdict::Good => 0,
        ReportedVerdict::Bad => 1,
        ReportedVerdict::Undecided => 2,
        ReportedVerdict::Invalid => 3,
    }
}

/// Returns the offered load: clients, or requests per second.
fn load(trial: &ReportedTrial) -> f64 {
    trial.clients.map_or(trial.rate, f64::from)
}

fn below(answer: &FindReport) -> &'static str {
    if answer.closed_loop.is_some() { "clients (closed loop)" } else { "offered, requests per second" }
}

/// Returns a line for each group that has trials. Trials that only use up a burst allowance, or test the recovery of the target,
/// are left out because they would distort the axes.
fn grouped(
    answer: &FindReport,
    stroke: Stroke,
    points: impl Fn(&ReportedTrial) -> ChartPoints,
) -> Vec<ChartLine> {
    let lines = GROUPS.iter().enumerate().map(|(at, (name, colour))| {
        let shown =
            |trial: &&ReportedTrial| group(trial) == at && (stroke != Stroke::Dots || trial.tests_rate());
        let mut all: ChartPoints = answer.trials.iter().filter(shown).flat_map(&points).collect();
        if stroke == Stroke::Dots {
            all.sort_by(|a, b| a.0.total_cmp(&b.0));
        }
        ChartLine { name: (*name).to_owned(), colour, stroke, points: all }
    });
    lines.filter(|line| line.points.iter().any(|point| point.1.is_some())).collect()
}

fn charts(answer: &FindReport) -> Charts {
    let mut charts = Charts { panels: Vec::new(), left_out: Vec::new() };
    for panel in [rates_over_time(answer), latency(answer), goodput(answer), in_flight(answer)] {
        if panel.lines.is_empty() {
            charts
                .left_out
                .push(OmittedLine { name: panel.name.to_owned(), why: "No trial has this value." });
        } else {
            charts.panels.push(panel);
        }
    }
    charts
}

/// When each rate was tried, and the bracket that it came to.
fn rates_over_time(answer: &FindReport) -> Panel {
    let end = end(answer);
    let mut lines = grouped(answer, Stroke::Dots, |trial| vec![(trial.start_seconds, Some(load(trial)))]);
    let bounds = match &answer.closed_loop {
        Some(closed) => [
            (closed.client_limit.lower.map(f64::from), "limit, lower bound"),
            (closed.client_limit.upper.map(f64::from), "limit, upper bound"),
        ],
        None => [
            (answer.breaking_rate.lower, "error cliff, lower bound"),
            (answer.breaking_rate.upper, "error cliff, upper bound"),
        ],
    };
    for (bound, name) in bounds {
        let points = bound.map(|bound| vec![(0.0, Some(bound)), (end, Some(bound))]);
        lines.extend(points.map(|points| ChartLine {
            name: name.to_owned(),
            colour: "c2",
            stroke: Stroke::Dashed,
            points,
        }));
    }
    let (x, y) = (AxisScale::linear_seconds(end), AxisScale::linear_counts(values(&lines)));
    let (name, units) = match answer.closed_loop {
        Some(_) => ("Tested clients", ["clients", "", "time since the start"]),
        None => ("Tested rates", ["requests per second", " /s", "time since the start"]),
    };
    panel(name, units, x, y, lines)
}

/// Makes the chart of response times by rate.
fn latency(answer: &FindReport) -> Panel {
    let nanos = |seconds: f64| seconds * 1e9;
    let mut lines =
        grouped(answer, Stroke::Dots, |trial| vec![(load(trial), trial.mean_response_seconds().map(nanos))]);
    let shown = answer.trials.iter().filter(|trial| trial.tests_rate());
    let mut slowest: ChartPoints =
        shown.map(|trial| (load(trial), trial.max_response_seconds().map(nanos))).collect();
    slowest.sort_by(|a, b| a.0.total_cmp(&b.0));
    if slowest.iter().any(|point| point.1.is_some()) {
        let name = "slowest of each trial".to_owned();
        lines.push(ChartLine { name, colour: "c7", stroke: Stroke::Dots, points: slowest });
    }
    for line in &mut lines {
        line.name =
            if line.colour == "c7" { std::mem::take(&mut line.name) } else { format!("mean, {}", line.name) };
    }
    let (x, y) = (rates(answer), AxisScale::log_nanoseconds(values(&lines)));
    panel(
        if answer.closed_loop.is_some() { "Response time by clients" } else { "Response time by rate" },
        ["response time of good responses", "", below(answer)],
        x,
        y,
        lines,
    )
}

/// Makes the chart of good responses by rate.
fn goodput(answer: &FindReport) -> Panel {
    let mut lines = grouped(answer, Stroke::Dots, |trial| vec![(load(trial), Some(trial.goodput))]);
    // As far as was offered: what is missing from it is what failed.
    let most = answer.trials.iter().filter(|trial| trial.tests_rate()).map(load).fold(0.0, f64::max);
    if !lines.is_empty() && answer.closed_loop.is_none() {
        let points = vec![(0.0, Some(0.0)), (most, Some(most))];
        lines.push(ChartLine { name: "offered".to_owned(), colour: "plain", stroke: Stroke::Dashed, points });
    }
    let (x, y) = (rates(answer), AxisScale::linear_counts(values(&lines)));
    panel(
        if answer.closed_loop.is_some() { "Good responses by clients" } else { "Good responses by rate" },
        ["good responses per second", " /s", below(answer)],
        x,
        y,
        lines,
    )
}

/// Makes the chart of requests in flight during each trial.
fn in_flight(answer: &FindReport) -> Panel {
    let lines = grouped(answer, Stroke::Solid, |trial| {
        let at = |(n, block): (usize, &_)| {
            let &(.., in_flight, _, _): &seawall_lab::find::find_report::ReportedBlock = block;
            (trial.start_seconds + (n + 1) as f64 * BLOCK_SECONDS, Some(f64::from(in_flight)))
        };
        // Nothing joins one trial to the next.
        let gap = (trial.start_seconds + trial.sending_seconds() + BLOCK_SECONDS, None);
        trial.blocks.iter().enumerate().map(at).chain([gap]).collect()
    });
    let (x, y) = (AxisScale::linear_seconds(end(answer)), AxisScale::linear_counts(values(&lines)));
    panel("In flight during each trial", ["requests in flight", "", "time since the start"], x, y, lines)
}

fn panel(
    name: &'static str,
    [unit, suffix, below]: [&'static str; 3],
    x: AxisScale,
    y: AxisScale,
    lines: Vec<ChartLine>,
) -> Panel {
    Panel { name, unit, suffix, below, x, y, few: None, lines }
}

fn values(lines: &[ChartLine]) -> impl Iterator<Item = f64> {
    lines.iter().flat_map(|line| line.points.iter().filter_map(|point| point.1))
}

fn rates(answer: &FindReport) -> AxisScale {
    AxisScale::linear_counts(answer.trials.iter().filter(|trial| trial.tests_rate()).map(load))
}

fn end(answer: &FindReport) -> f64 {
    answer.trials.iter().map(|trial| trial.start_seconds + trial.duration_seconds).fold(0.0, f64::max)
}

fn tables(answer: &FindReport) -> [Table; 7] {
    let text = |name| (name, false);
    let number = |name| (name, true);
    let table = |name, columns, rows| Table { name, columns, rows };
    let causes = answer.cause.iter().chain(&answer.other_causes);
    [
        table(
            "Cause",
            vec![
                text("Class"),
                number("Confidence"),
                text("Evidence"),
                text("Experiment"),
                number("Times likelier"),
            ],
            causes.flat_map(evidence).collect(),
        ),
        table(
            "Causes that this run cannot tell apart",
            vec![text("Causes"), text("How to tell")],
            answer
                .ambiguous_causes
                .iter()
                .map(|tie| vec![tie.causes.join(", "), tie.how_to_tell.clone()])
                .collect(),
        ),
        table(
            "Excluded",
            vec![text("Class"), text("Why")],
            answer.excluded_causes.iter().map(|out| vec![out.name.clone(), out.reason.clone()]).collect(),
        ),
        table(
            "Undecided",
            vec![text("Class"), text("Why")],
            answer.undecided_causes.iter().map(|not| vec![not.name.clone(), not.reason.clone()]).collect(),
        ),
        table(
            "Experiments",
            vec![text("Experiment"), text("Result")],
            answer.experiments.iter().map(|tried| vec![tried.name.clone(), tried.result.clone()]).collect(),
        ),
        table(
            "Server metrics",
            [
                &["From", "To"].map(number)[..],
                &["During", "Observation", "Class"].map(text)[..],
                &["Times likelier"].map(number)[..],
            ]
            .concat(),
            answer.server_metrics.iter().flat_map(window).collect(),
        ),
        table("Trials", of_trials(answer), answer.trials.iter().map(trial).collect()),
    ]
}

/// The columns of the rows that [`trial`] makes.
fn of_trials(answer: &FindReport) -> Vec<(&'static str, bool)> {
    let load = if answer.closed_loop.is_some() { "Clients" } else { "Offered /s" };
    let numbers = ["At", load, "Lasted", "Good /s", "Mean", "Slowest", "Failed", "Late", "Most in flight"];
    let texts = ["Purpose", "Verdict", "Why"];
    numbers.map(|name| (name, true)).into_iter().chain(texts.map(|name| (name, false))).collect()
}

/// A row for each sign of a cause, the first with its name; its size is the last.
fn evidence(cause: &ReportedCause) -> Vec<Vec<String>> {
    let empty = String::new;
    let mut rows: Vec<Vec<String>> = cause
        .evidence
        .iter()
        .map(|sign| {
            vec![
                empty(),
                empty(),
                sign.observation.clone(),
                sign.experiment.clone(),
                sign.likelihood_ratio.map_or_else(empty, format_rate_without_unit),
            ]
        })
        .collect();
    let figures: Vec<_> = cause.estimates.iter().filter_map(format_named_estimate).collect();
    if !figures.is_empty() {
        rows.push(vec![empty(), empty(), figures.join(", "), "size".to_owned(), empty()]);
    }
    if rows.is_empty() {
        rows.push(vec![empty(); 5]);
    }
    if let Some(first) = rows.first_mut() {
        let sure = if screen::is_unknown_cause(cause) || screen::is_generator_cause(cause) {
            "–".to_owned()
        } else {
            format_confidence(cause.score)
        };
        (first[0], first[1]) = (cause.name.clone(), sure);
    }
    rows
}

/// A row for each fact, and for each thing that could not be looked at.
fn window(window: &ServerSideWindow) -> Vec<Vec<String>> {
    let row = |what: &str, of: &str, ratio: Option<f64>| {
        let times = ratio.map_or_else(String::new, |ratio| format!("{ratio:.2}"));
        let (from, to) = (format_seconds(window.start_seconds), format_seconds(window.end_seconds));
        vec![from, to, window.phase.clone(), what.to_owned(), of.to_owned(), times]
    };
    let said = |said: &ServerSideFact| {
        row(&said.text, said.cause.as_deref().unwrap_or_default(), said.likelihood_ratio)
    };
    let untested = |why: &String| row(&format!("not available: {why}"), "", None);
    window.facts.iter().map(said).chain(window.unavailable.iter().map(untested)).collect()
}

fn trial(trial: &ReportedTrial) -> Vec<String> {
    let dash = || "–".to_owned();
    let (name, _) = GROUPS[group(trial)];
    vec![
        format_seconds(trial.start_seconds),
        format_rate_without_unit(load(trial)),
        format_seconds(trial.sending_seconds()),
        format_rate_without_unit(trial.goodput),
        trial.mean_response_seconds().map_or_else(dash, format_seconds),
        trial.max_response_seconds().map_or_else(dash, format_seconds),
        format_percent(trial.error_ratio),
        trial.late_ratio.map_or_else(dash, format_percent),
        trial.max_in_flight().to_string(),
        trial.purpose.clone(),
        name.to_owned(),
        trial.reason.clone(),
    ]
}
