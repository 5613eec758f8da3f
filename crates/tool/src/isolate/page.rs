//! `--html`: the experiment as one offline page without a script: the interval of each variant, all curves and all figures.

use std::fmt::{self, Write as _};

use seawall_isolate::looks::null_difference;
use seawall_lab::isolate::isolate_report::{
    ConfidenceInterval, IsolateReport, ResponseTimeQuantile, VariantResult, VariantStats, VariantVerdict,
};
use seawall_lab::isolate::variant_capacity::CapacityReport;
use serde::Serialize;

use super::{capacity_search, screen};
use crate::find::formatting::{format_seconds, format_wait, pluralize};
use crate::live_search_page::{SearchPageReport, SearchStatus};
use crate::report::axis_scale::AxisScale;
use crate::report::chart::{ChartLine, Panel, Stroke, run_colour};
use crate::report::html;
use crate::report::svg;

const STYLE: &str = include_str!("../report/page/page.css");

/// The styles of this page beside the style of all pages.
const OWN: &str = "\
.ways{display:block;width:100%;max-width:1000px}.ways text{font:13px system-ui,sans-serif;fill:var(--ink)}\
.ways .soft{fill:var(--soft)}.ways .margin{fill:var(--shade)}.ways .axis{stroke:var(--line)}.ways .zero{stroke:var(--soft)}\
.ways line.bar{stroke-width:3;display:inline}.ways .good{stroke:var(--good);fill:var(--good)}.ways .bad{stroke:var(--bad);fill:var(--bad)}\
.ways .plain{stroke:var(--plain);fill:var(--plain)}section{margin-top:22px}\
.ways.narrow{display:none}@media(max-width:640px){.ways.wide{display:none}.ways.narrow{display:block}\
.curves{overflow-x:auto}.curves svg{min-width:560px}}\
@media(prefers-color-scheme:dark){:root{--paper:#14171a;--card:#1b1f23;--ink:#e7eaed;--soft:#9ca7b2;--line:#343b42;--grid:#282e34;\
--shade:#22272c;--good:#4fc596;--bad:#ff7a8a;--plain:#9aa5b1}}.curves svg{width:100%;height:auto;max-width:760px}";

const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; img-src data:";

/// The script of the live page: it takes changes from the offline page that the server sends.
const SWAP: &str = include_str!("../report/page/swap.js");

/// Returns the page.
pub(super) fn render(answer: &IsolateReport) -> String {
    offline(answer, None)
}

/// Returns the page with this note at its top.
fn offline(answer: &IsolateReport, note: Option<&str>) -> String {
    let mut out = String::new();
    // Formatting into memory cannot fail.
    let _ = page(&mut out, answer, POLICY, note).and_then(|()| writeln!(out, "</body>\n</html>"));
    out
}

/// The data that an open page receives.
#[derive(Serialize)]
struct Data {
    live: SearchStatus,
    /// The current offline page.
    page: String,
}

impl SearchPageReport for IsolateReport {
    fn offline_page(&self, note: Option<&str>) -> anyhow::Result<String> {
        Ok(offline(self, note))
    }

    fn live_page(&self, live: SearchStatus) -> anyhow::Result<String> {
        let mut out = String::new();
        page(&mut out, self, html::LIVE_PAGE_CSP, None)?;
        let data = html::to_script_json(&Data { live, page: String::new() })?;
        let script = html::SEARCH_PAGE_SCRIPT;
        writeln!(
            out,
            "<script type=\"application/json\" id=\"data\">{data}</script>\n\
             <script>\n(() => {{\n\"use strict\";\n{script}{SWAP}}})();\n</script>\n</body>\n</html>"
        )?;
        Ok(out)
    }

    fn live_event(&self, live: SearchStatus) -> anyhow::Result<String> {
        Ok(serde_json::to_string(&Data { live, page: render(self) })?)
    }
}

/// Writes the whole page except its end.
fn page(out: &mut String, answer: &IsolateReport, policy: &str, note: Option<&str>) -> fmt::Result {
    let headline = escaped(&title(answer));
    writeln!(
        out,
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{policy}\">\n\
         <link rel=\"icon\" href=\"data:,\">\n<title>{headline}</title>\n<style>\n{STYLE}{OWN}\n</style>\n</head>\n<body>\n<main>"
    )?;
    head(out, answer, &headline)?;
    if let Some(note) = note {
        writeln!(out, "<p class=\"note\">{}</p>", escaped(note))?;
    }
    sections(out, answer)?;
    writeln!(out, "</main>")
}

/// The headline as a title, which begins with a capital letter or the name of a variant.
fn title(answer: &IsolateReport) -> String {
    let headline = screen::format_headline(answer);
    let begins_with_name = |way: &VariantStats| headline.starts_with(way.name.as_str());
    let mut letters = headline.chars();
    match letters.next() {
        Some(first) if !answer.variant_stats().any(begins_with_name) => {
            first.to_uppercase().chain(letters).collect()
        }
        _ => headline,
    }
}

fn head(out: &mut String, answer: &IsolateReport, headline: &str) -> fmt::Result {
    writeln!(
        out,
        "<h1>{headline}</h1>\n<p class=\"when\">{} · {:.0}/s in total · {} of {} · seed {}</p>",
        escaped(&answer.config.target),
        answer.config.rate,
        format_wait(answer.duration_seconds),
        format_wait(answer.config.budget_seconds),
        answer.config.seed
    )?;
    if let Some(detail) = &answer.stop_detail {
        writeln!(out, "<p class=\"note\">Cut short: {}</p>", escaped(detail))?;
    }
    for limit in &answer.generator_warnings {
        writeln!(out, "<p class=\"note\">The generator: {}</p>", escaped(limit))?;
    }
    Ok(())
}

fn sections(out: &mut String, answer: &IsolateReport) -> fmt::Result {
    section(out, "Time saved by each variant", |out| {
        FORESTS.iter().try_for_each(|layout| forest(out, answer, layout))
    })?;
    section(out, "Curves", |out| curves(out, answer))?;
    if let Some(found) = &answer.capacity {
        section(out, "Limit of each variant", |out| bears(out, found))?;
    }
    section(out, "Verdicts", |out| verdicts(out, answer))?;
    section(out, "All variants", |out| figures(out, answer))?;
    if answer.variant_stats().any(VariantStats::has_failures_or_retries) {
        section(out, "Failed requests", |out| failures(out, answer))?;
    }
    section(out, "Time buckets", |out| cells(out, answer))?;
    section(out, "Terms", |out| words(out, answer))
}

fn section(out: &mut String, title: &str, body: impl FnOnce(&mut String) -> fmt::Result) -> fmt::Result {
    writeln!(out, "<section class=\"card\">\n<h2>{title}</h2>")?;
    body(out)?;
    writeln!(out, "</section>")
}

/// The picture of intervals for one width of the window.
struct ForestLayout {
    class: &'static str,
    width: f64,
    /// The edges of the intervals.
    left: f64,
    right: f64,
    /// The height of a variant, and where its interval is in it.
    line: f64,
    interval: f64,
    /// Name and verdict are above the interval, because there is no space beside it.
    is_stacked: bool,
}

/// Both are in the page, which shows one: a wide picture has letters of 5 pixels on a phone.
const FORESTS: [ForestLayout; 2] = [
    ForestLayout {
        class: "wide",
        width: 1000.0,
        left: 220.0,
        right: 780.0,
        line: 34.0,
        interval: 25.5,
        is_stacked: false,
    },
    ForestLayout {
        class: "narrow",
        width: 340.0,
        left: 14.0,
        right: 326.0,
        line: 62.0,
        interval: 50.0,
        is_stacked: true,
    },
];

/// Draws an interval for each variant beside the margin, the largest differences first.
fn forest(out: &mut String, answer: &IsolateReport, layout: &ForestLayout) -> fmt::Result {
    let ways = in_order(answer);
    let reach = reach(answer);
    let ForestLayout { class, width, left, right, line, interval, is_stacked } = *layout;
    let x = |share: f64| left + (right - left) * (share.clamp(-reach, reach) + reach) / (2.0 * reach);
    let base = line * (ways.len() as f64 - 1.0) + interval + 25.5;
    let height = base + if is_stacked { 64.0 } else { 44.0 };
    writeln!(
        out,
        "<svg class=\"ways {class}\" viewBox=\"0 0 {width} {height}\" role=\"img\"><title>Interval of each variant</title>"
    )?;
    let margin = answer.config.margin;
    writeln!(
        out,
        "<rect class=\"margin\" x=\"{:.1}\" y=\"4\" width=\"{:.1}\" height=\"{base:.1}\"/>",
        x(-margin),
        x(margin) - x(-margin)
    )?;
    for tick in [-1.0, -0.5, 0.0, 0.5, 1.0] {
        let (at, class) = (x(tick * reach), if tick == 0.0 { "zero" } else { "axis" });
        writeln!(
            out,
            "<line class=\"{class}\" x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"4\" y2=\"{:.1}\"/>",
            base + 4.0
        )?;
        let percent = 100.0 * tick * reach;
        // At the picture's edge a number in the middle of its tick would be cut off.
        let anchor = match tick {
            -1.0 if is_stacked => "start",
            1.0 if is_stacked => "end",
            _ => "middle",
        };
        writeln!(
            out,
            "<text class=\"soft\" x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\">{percent:.0} %</text>",
            base + 20.0
        )?;
    }
    for (at, way) in ways.iter().enumerate() {
        bar(out, way, line * at as f64 + interval, layout, x)?;
    }
    let below = if is_stacked { base + 58.0 } else { base + 38.0 };
    let reference = escaped(&shortened(&answer.reference.name));
    writeln!(
        out,
        "<text class=\"soft\" x=\"{left}\" y=\"{:.1}\">slower</text><text class=\"soft\" x=\"{right}\" y=\"{below:.1}\" text-anchor=\"end\">faster, in percent of the time of {reference}</text></svg>",
        base + 38.0
    )
}

fn bar(
    out: &mut String,
    way: &VariantResult,
    y: f64,
    layout: &ForestLayout,
    x: impl Fn(f64) -> f64,
) -> fmt::Result {
    let ForestLayout { left, right, is_stacked, .. } = *layout;
    let name = escaped(&shortened(&way.stats.name));
    let verdict = escaped(&screen::format_verdict(way));
    let [(name_x, name_y, anchor), (verdict_x, verdict_y, _)] = if is_stacked {
        [(left, y - 30.0, "start"), (left, y - 13.0, "start")]
    } else {
        [(left - 14.0, y + 4.0, "end"), (right + 14.0, y + 4.0, "start")]
    };
    writeln!(out, "<text x=\"{name_x:.1}\" y=\"{name_y:.1}\" text-anchor=\"{anchor}\">{name}</text>")?;
    writeln!(out, "<text class=\"soft\" x=\"{verdict_x:.1}\" y=\"{verdict_y:.1}\">{verdict}</text>")?;
    if is_of_failures(way) {
        let side = match way.verdict {
            VariantVerdict::MoreErrors => f64::MIN,
            VariantVerdict::FewerErrors => f64::MAX,
            _ => 0.0,
        };
        return cross(out, way, y, x(side));
    }
    let Some(gain) = way.time_saved_ratio else { return Ok(()) };
    let (lower, upper) = (gain.lower.unwrap_or(f64::MIN), gain.upper.unwrap_or(f64::MAX));
    let class = colour(way.verdict);
    writeln!(
        out,
        "<line class=\"bar {class}\" x1=\"{:.1}\" x2=\"{:.1}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/><circle class=\"{class}\" cx=\"{:.1}\" cy=\"{y:.1}\" r=\"5\"><title>{name}: {}</title></circle>",
        x(lower),
        x(upper),
        x(gain.estimate),
        screen::format_confidence_interval(gain)
    )
}

/// Returns true if failures distinguish the variant: then the times of its few good responses say nothing.
fn is_of_failures(way: &VariantResult) -> bool {
    way.verdict.is_failure_difference() || way.stats.all_failed()
}

/// In place of an interval of times, at the side that tells whether it is better or worse.
fn cross(out: &mut String, way: &VariantResult, y: f64, x: f64) -> fmt::Result {
    let class = colour(way.verdict);
    for slope in [-1.0, 1.0] {
        let [above, below] = [y - 6.0 * slope, y + 6.0 * slope];
        writeln!(
            out,
            "<line class=\"bar {class}\" x1=\"{:.1}\" x2=\"{:.1}\" y1=\"{above:.1}\" y2=\"{below:.1}\"><title>{}: {}</title></line>",
            x - 6.0,
            x + 6.0,
            escaped(&way.stats.name),
            escaped(&screen::format_verdict(way))
        )?;
    }
    Ok(())
}

/// Those that differ, in their order, then the others in theirs.
fn in_order(answer: &IsolateReport) -> Vec<&VariantResult> {
    let others = answer.variants.iter().filter(|way| !way.verdict.is_difference());
    answer.rank_differing_variants().into_iter().chain(others).collect()
}

/// Half of what the picture of intervals shows: all points, their ends as far as they are of that size, and the margin. What takes more
/// than twice the time stands at its edge, or it would make one point of all others.
fn reach(answer: &IsolateReport) -> f64 {
    let far = |gain: ConfidenceInterval| {
        let ends = [gain.lower, gain.upper].into_iter().flatten().map(f64::abs);
        ends.fold(gain.estimate.abs(), f64::max).min(3.0 * gain.estimate.abs().max(answer.config.margin))
    };
    let most = answer
        .variants
        .iter()
        .filter(|way| !is_of_failures(way))
        .filter_map(|way| way.time_saved_ratio)
        .map(far)
        .fold(2.0 * answer.config.margin, f64::max);
    [0.1, 0.2, 0.3, 0.5].into_iter().find(|reach| *reach >= most).unwrap_or(1.0)
}

fn shortened(name: &str) -> String {
    if name.chars().count() <= 28 { name.to_owned() } else { name.chars().take(27).chain(['…']).collect() }
}

fn word(word: VariantVerdict) -> &'static str {
    match word {
        VariantVerdict::Faster => "faster",
        VariantVerdict::Slower => "slower",
        VariantVerdict::P99Faster => "faster at p99",
        VariantVerdict::P99Slower => "slower at p99",
        VariantVerdict::MoreErrors => "more errors",
        VariantVerdict::FewerErrors => "fewer errors",
        VariantVerdict::Equal => "not the cause",
        VariantVerdict::Undecided => "undecided",
        VariantVerdict::Invalid => "invalid",
    }
}

fn colour(word: VariantVerdict) -> &'static str {
    match word {
        VariantVerdict::Faster | VariantVerdict::FewerErrors | VariantVerdict::P99Faster => "good",
        VariantVerdict::Slower | VariantVerdict::MoreErrors | VariantVerdict::P99Slower => "bad",
        VariantVerdict::Equal | VariantVerdict::Undecided | VariantVerdict::Invalid => "plain",
    }
}

/// Percentiles by the count of nines, as in reports.
fn curves(out: &mut String, answer: &IsolateReport) -> fmt::Result {
    let point = |known: &ResponseTimeQuantile| (-(1.0 - known.quantile).log10(), Some(known.seconds * 1e9));
    let line = |(at, way): (usize, &VariantStats)| ChartLine {
        name: way.name.clone(),
        colour: run_colour(at),
        stroke: if at == 0 { Stroke::Dashed } else { Stroke::Solid },
        points: way.response_time_quantiles.iter().map(point).collect(),
    };
    let lines: Vec<_> =
        answer.variant_stats().enumerate().map(line).filter(|line| !line.points.is_empty()).collect();
    if lines.is_empty() {
        return writeln!(out, "<p class=\"empty\">No variant has a response.</p>");
    }
    let points = || lines.iter().flat_map(|line| &line.points);
    let x = AxisScale::percentile_nines(points().map(|point| point.0).fold(1.0, f64::max));
    let y = AxisScale::log_nanoseconds(points().filter_map(|point| point.1));
    let panel = Panel {
        name: "Times by percentile",
        unit: "from the send to the end of the response",
        suffix: "",
        below: "percentile",
        x,
        y,
        few: None,
        lines,
    };
    writeln!(out, "<div class=\"curves\">{}</div>", svg::render_panel(&panel))
}

/// Writes the results of the searches: times by rate of each variant, its limit, and the variants that were not searched.
fn bears(out: &mut String, found: &CapacityReport) -> fmt::Result {
    match capacity_search::response_time_panel(found) {
        Some(panel) => writeln!(out, "<div class=\"curves\">{}</div>", svg::render_panel(&panel))?,
        None => {
            let why = found.skipped_because.as_deref().unwrap_or("no search has a response");
            writeln!(out, "<p class=\"empty\">Not searched: {}.</p>", escaped(why))?;
        }
    }
    let rows = capacity_search::table_rows(found);
    if rows.is_empty() { Ok(()) } else { table(out, &capacity_search::TABLE_COLUMNS, rows.into_iter(), 5) }
}

fn verdicts(out: &mut String, answer: &IsolateReport) -> fmt::Result {
    let said = |way: &VariantResult| match way.verdict {
        VariantVerdict::Undecided => {
            screen::why_not_equal(answer, way).unwrap_or_else(|| screen::describe_time_to_decide(way))
        }
        VariantVerdict::Invalid => screen::describe_invalid(way),
        VariantVerdict::Equal => {
            let after = way
                .decided_after_seconds
                .map_or_else(String::new, |after| format!(", decided after {}", format_wait(after)));
            let unlike = screen::describe_suspicious_tail(answer, way).unwrap_or_default();
            let what = match way.time_saved_ratio {
                Some(_) => format!("equal within {}", screen::format_share(answer.config.margin)),
                None => screen::describe_equal(answer, way),
            };
            format!("{what}{after}{unlike}")
        }
        _ => screen::describe_difference(way),
    };
    let row = |way: &&VariantResult| {
        [way.stats.name.clone(), word(way.verdict).to_owned(), said(way), way.stats.description.clone()]
    };
    table(out, &["Variant", "Verdict", "Why", "What differs"], in_order(answer).iter().map(row), 4)
}

fn figures(out: &mut String, answer: &IsolateReport) -> fmt::Result {
    table(out, &reordered(screen::TABLE_COLUMNS), screen::table_rows(answer).into_iter().map(reordered), 1)
}

/// The time saved directly behind the name: a phone shows the first columns, and this one is the point of the table.
fn reordered<T>(mut row: [T; screen::TABLE_COLUMNS.len()]) -> [T; screen::TABLE_COLUMNS.len()] {
    row[1..=screen::TIME_SAVED_COLUMN_INDEX].rotate_right(1);
    row
}

fn failures(out: &mut String, answer: &IsolateReport) -> fmt::Result {
    let rows = answer.variant_stats().flat_map(|way| {
        let row = |what: &str, count: u64| [way.name.clone(), what.to_owned(), count.to_string()];
        let failed = way.failures.iter().map(move |failure| row(&failure.reason, failure.count));
        failed.chain(screen::no_response_and_retried_counts(way).map(move |(what, count)| row(what, count)))
    });
    table(out, &["Variant", "Instead of a good response", "Requests"], rows, 2)
}

fn cells(out: &mut String, answer: &IsolateReport) -> fmt::Result {
    let names: Vec<_> = answer.variant_stats().map(|way| way.name.as_str()).collect();
    let name = |at: usize| names.get(at).copied().unwrap_or_default().to_owned();
    let time = |took: Option<f64>| took.map_or_else(|| "–".to_owned(), format_seconds);
    let rows = answer.time_buckets.iter().map(|row| {
        let limited = if row.is_generator_limited { "the generator was the limit" } else { "" };
        [
            name(row.variant),
            row.design.to_owned(),
            row.time_bucket.to_string(),
            row.requests.to_string(),
            row.failed.to_string(),
            time(row.location_seconds),
            time(row.p99_seconds),
            limited.to_owned(),
        ]
    });
    writeln!(out, "<details><summary>{}</summary>", pluralize(answer.time_buckets.len() as u64, "row"))?;
    table(
        out,
        &["Variant", "Design", "Time bucket", "Requests", "Failed", "Middle half", "p99", "Not counted"],
        rows,
        2,
    )?;
    writeln!(out, "</details>")
}

/// Rows, of which the first columns hold text.
fn table<const N: usize>(
    out: &mut String,
    columns: &[&str; N],
    rows: impl Iterator<Item = [String; N]>,
    texts: usize,
) -> fmt::Result {
    let class = |at: usize| if at < texts { "" } else { " class=\"n\"" };
    writeln!(out, "<div class=\"scroll\"><table><tr>")?;
    for (at, column) in columns.iter().enumerate() {
        write!(out, "<th{}>{column}</th>", class(at))?;
    }
    writeln!(out, "</tr>")?;
    for row in rows {
        write!(out, "<tr>")?;
        for (at, cell) in row.iter().enumerate() {
            write!(out, "<td{}>{}</td>", class(at), escaped(cell))?;
        }
        writeln!(out, "</tr>")?;
    }
    writeln!(out, "</table></div>")
}

fn words(out: &mut String, answer: &IsolateReport) -> fmt::Result {
    let margin = screen::format_share(answer.config.margin);
    let words = [
        ("faster, slower", format!("The middle half of the response times differs by more than {}. Each interval has the error rate of a single evaluation: it misses the true difference in at most 1.6 % of cases.", screen::format_share(null_difference(answer.config.margin)))),
        ("more errors or fewer errors", "The share of failed requests differs by more than 1 % of requests, whatever the response times. The chart shows such a variant as a cross at the edge.".to_owned()),
        ("not the cause", format!("The response times are the same within {margin}. A smaller difference may exist.")),
        ("undecided", "The measurements show neither a difference nor equality. The table shows how much more time isolate probably needs to decide.".to_owned()),
        ("time bucket", "Variants are compared within each time bucket. It is two seconds long if the variants are interleaved, and one second if each variant runs alone.".to_owned()),
        ("p (difference), p (equivalence)", "p (difference) is the probability of such measurements if the variant equals the reference. p (equivalence) is the probability of such measurements if the variant differs from the reference by the margin. Both are adjusted for the number of variants (Holm).".to_owned()),
    ];
    writeln!(out, "<dl>")?;
    for (name, meaning) in words {
        writeln!(out, "<dt>{name}</dt><dd>{meaning}</dd>")?;
    }
    writeln!(out, "</dl>")
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
