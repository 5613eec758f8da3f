//! HDR logs among the inputs.
//!
//! Alone they are response times of one or several generators, added up exactly: distributions and nothing else, so
//! they can be shown as text and as hdrplot. Beside results they tell a picture what results do not hold: how late the
//! generator was, and the time from the real send.

use std::fmt::Write;
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use seawall_load::latency_distribution::Distribution;
use seawall_load::results::hdr;

use super::input::InputSource;
use super::output::ReportOutput;
use super::runs::Runs;
use super::{ReportArgs, ReportKind, hdrplot, report_problems};
use crate::go_format::{GoDuration, align_columns};

/// The error for reports that HDR logs alone cannot make: they have no rate, status or error.
pub(crate) const LOG_HOLDS_ONLY_TIMES: &str = "an HDR log contains only times: use `seawall report` with -type=text or -type=hdrplot, or give the results of the run, too";

/// Adds to each run what the logs say about its time; names what is wrong with them.
pub(crate) fn add_logs_to_runs(runs: &mut Runs, logs: Vec<InputSource>) -> Vec<String> {
    let mut problems = Vec::new();
    for InputSource { name, mut reader } in logs {
        let mut strangers = 0;
        let read = hdr::read(&mut reader, |logged| {
            strangers += u64::from(!runs.add_log_entry(&logged));
            Ok(())
        });
        problems.extend(read.err().map(|damage| format!("{name}: {damage}")));
        if strangers > 0 {
            problems.push(format!("{name}: {strangers} intervals belong to none of the runs in the results"));
        }
    }
    problems
}

/// Adds logs up and reports them alone.
pub(super) fn run(kind: &ReportKind, args: &ReportArgs, logs: Vec<InputSource>) -> anyhow::Result<ExitCode> {
    let (mut sums, mut problems) = (Vec::new(), Vec::new());
    for InputSource { name, mut reader } in logs {
        if let Err(damage) = hdr::add_log_by_tag(&mut reader, &mut sums) {
            problems.push(format!("{name}: {damage}"));
        }
    }
    let report = match kind {
        ReportKind::Text | ReportKind::Summary => table(&sums),
        ReportKind::HdrPlot => hdrplot::render(responses(&sums)?),
        _ => bail!(LOG_HOLDS_ONLY_TIMES),
    };
    ReportOutput::open(&args.output)?.write(&report, false)?;
    Ok(report_problems(&problems))
}

/// Returns the response times among several tags, or the only tag.
fn responses(sums: &[(String, Distribution)]) -> anyhow::Result<&Distribution> {
    let named = sums.iter().find(|(tag, _)| tag == "response");
    let chosen = named.or_else(|| sums.first().filter(|_| sums.len() == 1));
    chosen.map(|(_, values)| values).context("the logs have no histogram with the tag \"response\"")
}

fn table(sums: &[(String, Distribution)]) -> String {
    let mut rows = "Histogram\tvalues\tmin\tmean\t50\t90\t95\t99\t99.9\tmax\n".to_owned();
    for (tag, values) in sums {
        let tag = if tag.is_empty() { "(no tag)" } else { tag };
        let quantiles = [0.5, 0.9, 0.95, 0.99, 0.999].map(|q| values.quantile(q));
        let times = [values.min(), values.mean()].into_iter().chain(quantiles).chain([values.max()]);
        let times = times.map(|ns| GoDuration(ns).rounded().to_string()).collect::<Vec<_>>().join("\t");
        // Formatting into memory cannot fail.
        let _ = writeln!(rows, "{tag}\t{}\t{times}", values.count());
    }
    align_columns(&rows)
}
