//! `--capacity`: searches the limits of the variants that matter, and shows them beside that of the reference.
//!
//! `lab` decides which variants are searched, in which order and for how long ([`seawall_lab::isolate::variant_capacity`]). Progress and
//! results are shown as `find` shows them.

use std::fmt::{self, Write as _};
use std::io::{Write as _, stderr};

use seawall_lab::find::find;
use seawall_lab::find::find_report::{
    FindOutcome, FindReport as Run, FindStopReason, ReportedTrial, ReportedVerdict,
};
use seawall_lab::isolate::isolate_report::IsolateReport;
use seawall_lab::isolate::local_runner::LocalVariantRunner;
use seawall_lab::isolate::variant_capacity::{
    CapacityPlan, CapacityReport, CapacitySearches, CapacityVerdict, NextSearch, VariantCapacity,
};
use seawall_search::target::SearchTarget as _;

use crate::find::formatting::{format_rate_without_unit, format_seconds};
use crate::find::progress::{FindProgress, PageUpdater};
use crate::find::run_comparison::describe_change;
use crate::find::screen::{format_limit_range, format_outcome_line, format_slo};
use crate::live_search_page::SearchPage;
use crate::report::axis_scale::AxisScale;
use crate::report::chart::{ChartLine, ChartPoints, Panel, Stroke, run_colour};

/// Runs the searches that the result of an experiment calls for.
pub(super) fn run_capacity_searches(
    bench: &LocalVariantRunner,
    searches: &CapacityPlan,
    answer: &IsolateReport,
    mut page: Option<&mut SearchPage<IsolateReport>>,
) -> CapacityReport {
    let mut limits = CapacitySearches::new(searches, answer);
    while let Some(next) = limits.next_search() {
        // Standard error may be closed; the search goes on.
        let _ = writeln!(stderr(), "{}", announced(&next));
        match carry_out(bench, &next, page.as_deref_mut()) {
            Ok(run) => limits.record_finished_search(next, run),
            Err(error) => {
                let _ = writeln!(stderr(), "{}: {error:#}", next.name);
                limits.record_failure(&next, &format!("cannot search: {error:#}"));
            }
        }
        if let Some(page) = &mut page {
            page.set_interim_report(IsolateReport {
                capacity: Some(limits.clone().finish()),
                ..answer.clone()
            });
        }
    }
    limits.finish()
}

fn announced(next: &NextSearch) -> String {
    let more = match next.remaining {
        0 => "the last search".to_owned(),
        1 => "one more search follows".to_owned(),
        more => format!("{more} more searches follow"),
    };
    format!("searching for the limit of {} ({more})", next.name)
}

fn carry_out(
    bench: &LocalVariantRunner,
    next: &NextSearch,
    page: Option<&mut SearchPage<IsolateReport>>,
) -> anyhow::Result<Run> {
    let mut rig = bench.create_variant_search_driver(
        next.variant_index,
        next.plan.goal.latency_goal.map(|late| late.latency_limit),
    )?;
    let progress = FindProgress::for_stderr()?;
    if let Some(observer) = progress.block_observer() {
        rig = rig.with_block_observer(observer);
    }
    // Whoever ends it meanwhile has ended the search, too, which says so.
    rig.rest(next.pause);
    let followed = page.map(|page| PageUpdater::for_part_of_run(page, &announced(next)));
    let mut watcher = (progress, followed);
    let run = find(&mut rig, &next.plan, None, &mut watcher);
    watcher.0.end();
    Ok(run?)
}

/// Names the variants that sustain more or less than the reference, for the first line; `None` if there are none.
pub(super) fn format_headline(answer: &IsolateReport) -> Option<String> {
    let found = answer.capacity.as_ref()?;
    let said = found.variants.iter().filter_map(|way| {
        Some(match found.verdict(way)? {
            _ if way.find.outcome == FindOutcome::TargetDied => {
                format!("{} stopped answering during its search", way.name)
            }
            CapacityVerdict::Less => format!("{} breaks at a lower rate", way.name),
            CapacityVerdict::More => format!("{} breaks at a higher rate", way.name),
        })
    });
    Some(said.collect::<Vec<_>>().join(", ")).filter(|said| !said.is_empty())
}

/// The section of the screen.
pub(super) fn write_screen_section(out: &mut String, answer: &IsolateReport) -> fmt::Result {
    let Some(found) = &answer.capacity else { return Ok(()) };
    if let Some(why) = &found.skipped_because {
        return writeln!(out, "\nLimit of each variant\n  not searched: {why}");
    }
    let goal =
        found.variants.first().map_or_else(String::new, |way| format!(" ({})", format_slo(&way.find.config)));
    writeln!(out, "\nLimit of each variant{goal}")?;
    let names = found.variants.iter().map(|way| &way.name).chain(found.not_run.iter().map(|way| &way.name));
    let widest = names.map(|name| name.chars().count()).max().unwrap_or(0);
    for way in &found.variants {
        writeln!(out, "  {:widest$}  {}", way.name, describe_limit(&way.find))?;
        if let Some(beside) = compared_to_reference(found, way) {
            writeln!(out, "  {:widest$}  {beside}", "")?;
        }
    }
    for way in &found.not_run {
        writeln!(out, "  {:widest$}  not searched: {}", way.name, way.reason)?;
    }
    Ok(())
}

/// Describes how a search ended, where the variant breaks, from where responses are late, and whether a longer budget would help.
fn describe_limit(run: &Run) -> String {
    let is_late = run.config.slo.latency.is_some()
        && run.latency_breaking_rate.lowest_bad_rate.is_some()
        && !run.is_latency_limit();
    let late = if is_late {
        format!("; responses become late {}", format_limit_range(&run.latency_breaking_rate))
    } else {
        String::new()
    };
    let is_short = run.stop_reason == Some(FindStopReason::Budget) && run.outcome == FindOutcome::Interrupted;
    let more = if is_short { "; use a longer --budget" } else { "" };
    format_outcome_line(run) + &late + more
}

/// Compares a variant with the reference as `find --compare` does; `None` for the reference itself.
fn compared_to_reference(found: &CapacityReport, way: &VariantCapacity) -> Option<String> {
    let reference = &found.variants.first()?;
    Some(match way.vs_reference.as_ref()? {
        Ok(compared) => {
            let change =
                describe_change(compared, &reference.find, &way.find, &format!("by {}", reference.name));
            format!("compared with {}: {change}", reference.name)
        }
        Err(why) => format!("cannot compare with {}: {why}", reference.name),
    })
}

/// The columns of the table of searches; the first of them are text.
pub(super) const TABLE_COLUMNS: [&str; 8] = [
    "Variant",
    "Limit",
    "Compared with the reference",
    "Cliff /s",
    "Knee /s",
    "Sustained /s",
    "Trials",
    "Took",
];

/// Returns the rows of the table of searches.
pub(super) fn table_rows(found: &CapacityReport) -> Vec<[String; 8]> {
    let none = || "–".to_owned();
    let bracket = |limit: &seawall_lab::find::find_report::ReportedLimit| match (limit.lower, limit.upper) {
        (Some(lower), Some(upper)) => {
            format!("{} – {}", format_rate_without_unit(lower), format_rate_without_unit(upper))
        }
        _ => none(),
    };
    let searched = found.variants.iter().map(|way| {
        let run = &way.find;
        [
            way.name.clone(),
            describe_limit(run),
            compared_to_reference(found, way).unwrap_or_else(none),
            bracket(&run.breaking_rate),
            bracket(&run.latency_breaking_rate),
            run.breaking_rate
                .highest_good_rate
                .or_else(|| seawall_lab::find::compare::highest_held_rate(run))
                .map_or_else(none, format_rate_without_unit),
            run.trials.len().to_string(),
            format_seconds(run.duration_seconds),
        ]
    });
    let left_out = found.not_run.iter().map(|way| {
        let why = format!("not searched: {}", way.reason);
        [way.name.clone(), why, none(), none(), none(), none(), none(), none()]
    });
    searched.chain(left_out).collect()
}

/// The fewest good responses of a trial with a 99th percentile.
const LEAST_OF_TAIL: u32 = 100;
/// Rates that differ by less than this share count as one.
const SAME: f64 = 0.01;

/// Makes one chart of all variants: response times by offered rate, and breaking rates; `None` without any responses.
pub(super) fn response_time_panel(found: &CapacityReport) -> Option<Panel> {
    let mut lines: Vec<_> =
        found.variants.iter().flat_map(of_way).filter(|line| !line.points.is_empty()).collect();
    let points = || lines.iter().flat_map(|line| &line.points);
    let times = || points().filter_map(|point| point.1);
    let (low, high) = times().fold((f64::MAX, 0.0), |(low, high), time| (time.min(low), time.max(high)));
    let (x, y) =
        (AxisScale::linear_counts(points().map(|point| point.0)), AxisScale::log_nanoseconds(times()));
    if lines.is_empty() {
        return None;
    }
    let breaks = found.variants.iter().filter_map(|way| Some((way, way.find.breaking_rate.estimate?)));
    lines.extend(breaks.map(|(way, rate)| {
        let points = vec![(rate, Some(low)), (rate, Some(high))];
        ChartLine { name: String::new(), colour: run_colour(way.variant), stroke: Stroke::Dashed, points }
    }));
    Some(Panel {
        name: "Response time by rate",
        unit: "99th percentile of good responses (thin line: median, dashed line: breaking rate)",
        suffix: "",
        below: "offered, requests per second",
        x,
        y,
        few: None,
        lines,
    })
}

/// Returns the median and the 99th percentile of a variant. The percentile has the name; if there is none, the median has it.
fn of_way(way: &VariantCapacity) -> [ChartLine; 2] {
    let [median, tail] = [0, 1].map(|at| points(&way.find, at));
    let nameless = if tail.is_empty() { way.name.clone() } else { String::new() };
    let line = |name, stroke, points| ChartLine { name, colour: run_colour(way.variant), stroke, points };
    [line(nameless, Stroke::Thin, median), line(way.name.clone(), Stroke::Solid, tail)]
}

/// Returns the median (0) or the 99th percentile (1) at each rate; of several trials at one rate, the middle value.
fn points(run: &Run, at: usize) -> ChartPoints {
    let time = |trial: &ReportedTrial| {
        let good: u32 = trial.blocks.iter().map(|block| block.1).sum();
        let is_known = trial.tests_rate()
            && trial.verdict != ReportedVerdict::Invalid
            && (at == 0 || good >= LEAST_OF_TAIL);
        let times = trial.response_seconds.filter(|_| is_known)?;
        Some((trial.rate, if at == 0 { times.p50 } else { times.p99 }))
    };
    let mut all: Vec<_> = run.trials.iter().filter_map(time).collect();
    all.sort_by(|one, other| one.0.total_cmp(&other.0));
    let groups = all.chunk_by(|one, other| other.0 <= one.0 * (1.0 + SAME));
    let middle = |group: &[(f64, f64)]| {
        let mut times: Vec<_> = group.iter().map(|point| point.1).collect();
        times.sort_by(f64::total_cmp);
        (group[group.len() / 2].0, Some(times[times.len() / 2] * 1e9))
    };
    groups.map(middle).collect()
}
