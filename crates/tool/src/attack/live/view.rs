//! The view as cells: rates, latencies, errors and progress on one page, for windows of any size.
//!
//! Pure: facts, rows and a moment in, a picture out. What matters most comes first when there is little room: a window
//! too small for the page gets the plain line, wrapped.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Style, Stylize as _};
use ratatui::text::{Line, Span};
use ratatui::widgets::{LineGauge, Paragraph, Sparkline, Wrap};

use seawall_load::clock::Nanos;
use seawall_load::interval_row::{LiveRow, LiveRowHistory, Quantiles, RunInfo, RunStatus};

use super::formatting::{format_clock, format_rate};
use super::plain_line;
use crate::attack::generator_pods::{self, PodTracker};
use crate::brief_time::format_brief_time;

/// The data of one frame.
pub(super) struct LiveFrame<'a> {
    /// The facts that do not change during the run.
    pub(super) run_info: &'a RunInfo,
    /// The seconds so far.
    pub(super) history: &'a LiveRowHistory,
    /// This moment.
    pub(super) status: RunStatus,
    /// The pods that send; empty if this program sends.
    pub(super) pods: &'a PodTracker,
    /// Keys have changed the rate.
    pub(super) is_rate_changed_by_keys: bool,
}

/// The smallest window that the whole page fits into.
const WIDTH: u16 = 72;
const HEIGHT: u16 = 18;

/// Lines of the page that are always there: header, rates, latencies, keys.
const FIXED: u16 = 4 + 3 + 8 + 1;

/// Higher charts show no more.
const HIGHEST_CHART: u16 = 14;

/// Draws the page.
pub(super) fn draw(frame: &mut Frame<'_>, scene: &LiveFrame<'_>) {
    let area = frame.area();
    if area.width < WIDTH || area.height < HEIGHT {
        return small(frame, scene);
    }
    let none = LiveRow::default();
    let row = scene.history.last().unwrap_or(&none);
    let listed = pods_height(area.height, scene);
    let chart = chart_height(area.height - listed);
    let [head, rates, charts, times, table, errors, keys] = Layout::vertical([
        Constraint::Length(4),
        Constraint::Length(3),
        Constraint::Length(chart),
        Constraint::Length(8),
        Constraint::Length(listed),
        Constraint::Min(2),
        Constraint::Length(1),
    ])
    .areas(area);
    header(frame, head, scene);
    frame.render_widget(Paragraph::new(rate_lines(scene, row)), rates);
    if chart > 0 {
        draw_charts(frame, charts, scene.history);
    }
    frame.render_widget(Paragraph::new(latencies(scene.run_info, row)), times);
    if listed > 0 {
        frame.render_widget(Paragraph::new(pod_lines(scene, listed)), table);
    }
    frame.render_widget(Paragraph::new(error_lines(row)).wrap(Wrap { trim: false }), errors);
    frame.render_widget(Paragraph::new(help(scene.run_info)), keys);
}

/// Returns the height of the chart: the rows that the errors leave, or 0 if fewer than four remain.
fn chart_height(window: u16) -> u16 {
    let rest = window - FIXED;
    let errors = 2 + rest / 6;
    Some(rest.saturating_sub(errors)).filter(|&left| left >= 4).map_or(0, |left| left.min(HIGHEST_CHART))
}

/// Lines of the table of pods, its head among them; it makes room only in a window that has some, or where something is wrong.
fn pods_height(window: u16, scene: &LiveFrame<'_>) -> u16 {
    let (all, wrong) = scene.pods.pod_and_problem_counts(scene.status.elapsed);
    let rest = window - HEIGHT;
    let most = if rest >= 10 {
        rest / 3
    } else if wrong > 0 {
        rest.min(4)
    } else {
        0
    };
    let rows = if rest >= 10 { all } else { wrong };
    let rows = u16::try_from(rows.saturating_add(1)).unwrap_or(u16::MAX);
    if most < 2 || all == 0 { 0 } else { rows.min(most) }
}

/// Pods, those with problems first.
fn pod_lines(scene: &LiveFrame<'_>, height: u16) -> Vec<Line<'static>> {
    let now = scene.status.elapsed;
    let head = ["sent", "good", "p99", "gen. lag"].map(|name| format!("{name:>10}")).concat();
    let mut lines = vec![Line::from(vec![format!("{:<24}", "Pod").bold(), Span::raw(head).dim()])];
    for row in scene.pods.most_urgent_pods(now, usize::from(height) - 1) {
        let name: String = row.name.chars().take(22).collect();
        let figures = [
            row.sent.to_string(),
            row.good.to_string(),
            format_brief_time(row.response_time_p99),
            format_brief_time(row.generator_lag_p99),
        ];
        let figures = figures.map(|figure| format!("{figure:>10}")).concat();
        let wrong = generator_pods::describe_problem(&row, now);
        let style = if wrong.is_some() { Style::new().fg(Color::Red) } else { Style::new() };
        lines.push(Line::from(vec![
            Span::raw(format!("{name:<24}")).style(style),
            Span::raw(figures),
            Span::raw(wrong.map(|wrong| format!("  {wrong}")).unwrap_or_default()).style(style),
        ]));
    }
    lines
}

/// The line that a pipe would get, in as many lines as it takes.
fn small(frame: &mut Frame<'_>, scene: &LiveFrame<'_>) {
    let line = match scene.history.last() {
        Some(row) => plain_line::format_plain_line(
            scene.run_info,
            row,
            scene.pods.reporting_text(row.status.elapsed).as_deref(),
        ),
        None => state(scene),
    };
    let text = vec![Line::from(line), help(scene.run_info)];
    frame.render_widget(Paragraph::new(text).wrap(Wrap { trim: true }), frame.area());
}

fn header(frame: &mut Frame<'_>, area: Rect, scene: &LiveFrame<'_>) {
    let [title, load, progress, _] = Layout::vertical([Constraint::Length(1); 4]).areas(area);
    let target = Line::from(vec!["seawall attack  ".bold(), Span::raw(scene.run_info.target.as_str())]);
    frame.render_widget(Paragraph::new(target), title);
    let style = if scene.status.ending { Style::new().fg(Color::Yellow) } else { Style::new() };
    frame.render_widget(Paragraph::new(Line::from(state(scene)).style(style)), load);
    let gauge = share(scene).map(|share| {
        LineGauge::default()
            .ratio(share)
            .label(progress_label(scene, share))
            .filled_symbol("━")
            .unfilled_symbol("─")
            .filled_style(Style::new().fg(Color::Green))
            .unfilled_style(Style::new().fg(Color::DarkGray))
    });
    match gauge {
        Some(gauge) => frame.render_widget(gauge, progress),
        None => frame.render_widget(
            Paragraph::new(format!("{}  until stopped", format_clock(scene.status.elapsed))),
            progress,
        ),
    }
}

fn state(scene: &LiveFrame<'_>) -> String {
    let LiveFrame { run_info: facts, status: now, .. } = scene;
    if now.ending {
        return format!("stopping: waiting for {} responses; q or Ctrl-C ends at once", now.in_flight);
    }
    let steered = if scene.is_rate_changed_by_keys { ", changed manually" } else { "" };
    let warming = if now.elapsed < facts.warm_up_end { "  warming up: nothing is counted yet" } else { "" };
    format!("{}{steered}{warming}", facts.load_description)
}

/// Returns the finished share of the run, by time or by requests, whichever is larger.
fn share(scene: &LiveFrame<'_>) -> Option<f64> {
    let LiveFrame { run_info: facts, status: now, history, .. } = scene;
    let part = |done: u64, of: u64| done as f64 / of.max(1) as f64;
    let by_time = facts.end.map(|end| part(now.elapsed, end));
    let by_hits = facts.max_requests.map(|hits| part(history.last().map_or(0, |row| row.total_sent), hits));
    by_time.into_iter().chain(by_hits).reduce(f64::max).map(|share| share.min(1.0))
}

fn progress_label(scene: &LiveFrame<'_>, share: f64) -> String {
    let of = match (scene.run_info.end, scene.run_info.max_requests) {
        (Some(end), _) => format!(" of {}", format_clock(end)),
        (None, Some(hits)) => format!(", {hits} requests"),
        (None, None) => String::new(),
    };
    format!("{}{of}  {:.0} %", format_clock(scene.status.elapsed), share * 100.0)
}

fn rate_lines(scene: &LiveFrame<'_>, row: &LiveRow) -> Vec<Line<'static>> {
    let now = scene.status;
    let offered = row.offered_rate.filter(|_| scene.run_info.is_open_loop);
    let offered = offered.map(|offered| fact("offered", &format_rate(offered))).unwrap_or_default();
    let per_second = [
        vec!["Rate /s   ".bold()],
        offered,
        fact("achieved", &format_rate(row.achieved_rate)),
        fact("good", &format_rate(row.goodput)),
    ];
    let requests = [
        vec!["Requests  ".bold()],
        fact("sent", &row.total_sent.to_string()),
        fact("done", &row.total_completed.to_string()),
        fact("in flight", &format!("{} of {}", now.in_flight, scene.run_info.max_in_flight)),
        fact("connections", &now.connections.to_string()),
    ];
    let told = scene.pods.reporting_text(now.elapsed).map(|told| {
        let is_whole = !told.contains('(');
        let style = if is_whole { Style::new() } else { Style::new().fg(Color::Red).bold() };
        Line::from(vec!["Pods      ".bold(), Span::raw(told).style(style)])
    });
    vec![Line::from(per_second.concat()), Line::from(requests.concat()), told.unwrap_or_default()]
}

fn fact(name: &'static str, value: &str) -> Vec<Span<'static>> {
    vec![Span::raw(name).dim(), Span::raw(" "), Span::raw(format!("{value:<9}  "))]
}

fn draw_charts(frame: &mut Frame<'_>, area: Rect, history: &LiveRowHistory) {
    let [left, right] = Layout::horizontal([Constraint::Fill(1); 2]).spacing(2).areas(area);
    chart(
        frame,
        left,
        history,
        "Good responses /s",
        |row| row.goodput as u64,
        |value| format_rate(value as f64),
    );
    chart(
        frame,
        right,
        history,
        "Response time p99",
        |row| row.latencies.response_time.p99,
        format_brief_time,
    );
}

/// A column per second, the newest the rightmost, from zero to the highest in sight.
fn chart(
    frame: &mut Frame<'_>,
    area: Rect,
    history: &LiveRowHistory,
    name: &str,
    figure: impl Fn(&LiveRow) -> u64,
    unit: impl Fn(u64) -> String,
) {
    let [title, columns, _] =
        Layout::vertical([Constraint::Length(1), Constraint::Min(1), Constraint::Length(1)]).areas(area);
    let values = history.series(usize::from(columns.width), figure);
    let highest = values.iter().copied().max().unwrap_or(0);
    let scale = if highest == 0 { "nothing yet".to_owned() } else { format!("up to {}", unit(highest)) };
    let head = Line::from(vec![Span::raw(format!("{name}  ")).bold(), Span::raw(scale).dim()]);
    frame.render_widget(Paragraph::new(head), title);
    let sparkline = Sparkline::default().data(values).max(highest.max(1)).style(Style::new().fg(Color::Cyan));
    frame.render_widget(sparkline, columns);
}

/// Response time, service time and lag side by side: of the last second and of the run.
fn latencies(facts: &RunInfo, row: &LiveRow) -> Vec<Line<'static>> {
    let columns = ["p50", "p90", "p99", "p99.9", "max"].map(|name| format!("{name:>10}")).concat();
    let mut table = vec![Line::from(vec![format!("{:<18}", "Latency").bold(), Span::raw(columns).dim()])];
    let mut rows = |name: &'static str, second: &Quantiles, whole: &Quantiles| {
        table.push(latency(name, "last 1s", second));
        table.push(latency("", "so far", whole).dim());
    };
    rows("response", &row.latencies.response_time, &row.run_latencies.response_time);
    rows("service", &row.latencies.service_time, &row.run_latencies.service_time);
    if facts.is_open_loop {
        rows("lag", &row.latencies.send_lag, &row.run_latencies.send_lag);
    }
    table
}

fn latency(name: &'static str, span: &'static str, times: &Quantiles) -> Line<'static> {
    let Quantiles { count, p50, p90, p99, p999, max } = *times;
    let cell = |value: Nanos| {
        if count == 0 { format!("{:>10}", "-") } else { format!("{:>10}", format_brief_time(value)) }
    };
    let cells = [p50, p90, p99, p999, max].map(cell).concat();
    Line::from(vec![
        Span::raw(format!("{name:<10}")),
        Span::raw(format!("{span:<8}")).dim(),
        Span::raw(cells),
    ])
}

fn error_lines(row: &LiveRow) -> Vec<Line<'static>> {
    if row.errors.is_empty() {
        return vec![Line::from(vec!["Errors    ".bold(), "none".into()])];
    }
    let share = row.total_failed() as f64 / row.total_completed.max(1) as f64 * 100.0;
    let without = if row.is_unreachable() { "; no connection so far" } else { "" };
    let total = format!("{} of {} ({share:.2} %){without}", row.total_failed(), row.total_completed);
    let kinds = row.errors.iter().map(|error| {
        let fresh = if error.last_second_count > 0 {
            format!(" (+{})", error.last_second_count)
        } else {
            String::new()
        };
        format!("{} {}{fresh}", error.kind, error.count)
    });
    let kinds = kinds.collect::<Vec<_>>().join("   ");
    vec![Line::from(vec!["Errors    ".bold(), Span::raw(total).fg(Color::Red)]), Line::from(kinds)]
}

fn help(facts: &RunInfo) -> Line<'static> {
    let steering = if facts.steerable { "up/down or +/- rate 10 %   PgUp/PgDn double/halve   " } else { "" };
    Line::from(format!("{steering}q stop, q again: at once")).dim()
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use seawall_load::clock::SECOND;

    use super::super::test_fixtures::{self, sample_history, sample_run_info, sample_run_status};
    use super::*;

    fn picture(width: u16, height: u16, scene: &LiveFrame<'_>) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(frame, scene)).unwrap();
        terminal.backend().to_string()
    }

    #[test]
    fn a_terminal_of_the_usual_size() {
        let (facts, history) = (sample_run_info(), sample_history(12));
        let scene = LiveFrame {
            run_info: &facts,
            history: &history,
            status: sample_run_status(12 * SECOND),
            pods: &PodTracker::default(),
            is_rate_changed_by_keys: false,
        };
        insta::assert_snapshot!(picture(80, 24, &scene));
    }

    #[test]
    fn a_large_terminal() {
        let (facts, history) = (sample_run_info(), sample_history(90));
        let scene = LiveFrame {
            run_info: &facts,
            history: &history,
            status: sample_run_status(45 * SECOND),
            pods: &PodTracker::default(),
            is_rate_changed_by_keys: true,
        };
        insta::assert_snapshot!(picture(120, 40, &scene));
    }

    #[test]
    fn a_closed_loop_that_is_being_stopped() {
        let facts = RunInfo {
            load_description: "closed loop of 64".to_owned(),
            end: None,
            is_open_loop: false,
            steerable: false,
            ..sample_run_info()
        };
        let now = RunStatus { ending: true, ..sample_run_status(5 * SECOND) };
        insta::assert_snapshot!(picture(
            80,
            24,
            &LiveFrame {
                run_info: &facts,
                history: &sample_history(5),
                status: now,
                pods: &PodTracker::default(),
                is_rate_changed_by_keys: false
            }
        ));
    }

    #[test]
    fn pods_that_are_lost_or_late_stand_first_within_the_windows_height() {
        let (facts, history) = (sample_run_info(), sample_history(12));
        let now = sample_run_status(12 * SECOND);
        for (height, rows) in [(24, 3), (40, 30), (18, 30)] {
            let pods = test_fixtures::sample_pod_tracker(rows);
            let scene = LiveFrame {
                run_info: &facts,
                history: &history,
                status: now,
                pods: &pods,
                is_rate_changed_by_keys: false,
            };
            insta::assert_snapshot!(format!("pods_{height}"), picture(100, height, &scene));
        }
    }

    #[test]
    fn a_small_terminal_gets_the_line() {
        let (facts, history) = (sample_run_info(), sample_history(3));
        let scene = LiveFrame {
            run_info: &facts,
            history: &history,
            status: sample_run_status(3 * SECOND),
            pods: &PodTracker::default(),
            is_rate_changed_by_keys: false,
        };
        insta::assert_snapshot!(picture(40, 10, &scene));
    }

    #[test]
    fn no_size_is_too_small_or_too_large_and_the_first_second_has_no_row() {
        let facts = sample_run_info();
        for history in [LiveRowHistory::default(), sample_history(9)] {
            for (width, height) in [(1, 1), (2, 60), (300, 2), (72, 18), (72, 22), (500, 200)] {
                picture(
                    width,
                    height,
                    &LiveFrame {
                        run_info: &facts,
                        history: &history,
                        status: sample_run_status(0),
                        pods: &PodTracker::default(),
                        is_rate_changed_by_keys: false,
                    },
                );
            }
        }
    }
}
