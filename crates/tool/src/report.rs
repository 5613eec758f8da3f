//! `seawall report`: what a set of results says, as text, JSON, histograms or one HTML page.
//!
//! This file reads the flags and chooses; [`input`] reads results, [`totals`] and [`runs`] add them up, and each kind of
//! report has its own module that turns sums into text. [`intervals`] and [`hdr_logs`] are read instead of results.

pub(crate) mod axis_scale;
pub(crate) mod chart;
pub(crate) mod glossary;
pub(crate) mod hdr_logs;
pub(crate) mod hdrplot;
pub(crate) mod hist;
pub(crate) mod html;
pub(crate) mod input;
pub(crate) mod intervals;
pub(crate) mod json;
pub(crate) mod output;
pub(crate) mod pod_table;
pub(crate) mod rates;
pub(crate) mod runs;
pub(crate) mod series;
pub(crate) mod summary;
pub(crate) mod svg;
pub(crate) mod text;
pub(crate) mod totals;

use std::io::{Write as _, stderr};
use std::process::ExitCode;
use std::str::FromStr;

use anyhow::{Context as _, bail};
use seawall_load::record::Record;

use self::glossary::{GLOSSARY, RESULTS_LIMITS_NOTE};
use self::hist::{BucketBounds, BucketCounts};
use self::input::{ClassifiedInputs, InputReader, InputSource, RecordSink, WakeReason};
use self::output::ReportOutput;
use self::runs::Runs;
use self::series::RunSeries;
use self::totals::Totals;
use crate::generator_state;
use crate::go_format::GoDuration;

/// Flags of `seawall report`.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP, args_override_self = true)]
pub(crate) struct ReportArgs {
    /// Report type: summary, text, json, `hist[0,1ms,10ms]`, hdrplot or html
    /// [default: summary on a terminal, else text]
    #[arg(long = "type", value_name = "TYPE", verbatim_doc_comment)]
    kind: Option<String>,
    /// Lower bounds of latency buckets for hist and json, such as `[0,1ms,10ms]`
    #[arg(long, value_name = "BOUNDS")]
    buckets: Option<BucketBounds>,
    /// Write the report again at this interval while results arrive
    #[arg(long, value_name = "DURATION", default_value = "0")]
    every: GoDuration,
    /// Output file
    #[arg(long, value_name = "FILE", default_value = "stdout")]
    output: String,
    /// Results (gob, JSON or CSV), or intervals of attack --timeseries; report detects the format [default: stdin]
    #[arg(value_name = "FILE")]
    files: Vec<String>,
}

const HELP: &str = "\
Types:
  summary  for people: every number with what it means
  text     vegeta's lines; json is the same on one line for programs
  hist     exact counts between bounds, -type='hist[0,10ms,100ms]' or -type=hist -buckets=...;
           with -type=json, -buckets adds them to the JSON
  hdrplot  quantiles for https://hdrhistogram.github.io/HdrHistogram/plotFiles.html
  html     one page with charts that needs no network; see also `seawall plot`

What text and json say (vegeta's definitions, so that reports can be compared):
  Requests    total; rate = total / attack (N requests over N-1 intervals: a little above what
              was offered); throughput = good responses / (attack + wait)
  Duration    total = attack + wait; attack = first to last scheduled send; wait = last
              scheduled send to last response
  Latencies   from the scheduled send of a request to its last byte or failure; failures and
              timeouts are included. min leaves out latencies of 0. Percentiles come from an HDR
              histogram: at most 0.1 % above the true value, never below. (vegeta interpolates
              between about 200 points, so its 99th can be any percentile from 98.85 to 99.15.)
  Bytes       total and mean of response and request bodies
  Success     share of responses with status 200 to 399
  Status      count per code; code 0: no response, or a wrong one (--expect)
  Error Set   each text once (summary and html count them); after 1000 different texts, the
              others are counted together

Inputs can be HDR logs (as HdrHistogram's tools write them, in nanoseconds) instead of results:
report adds them up exactly, and -type=text or hdrplot reports them by tag. Together with results,
they add send lag and service time to the page.

Inputs can be intervals (`attack --timeseries FILE`) instead of results. If they are shards of one
run, with one plan and one start, report adds them up exactly. text and summary print the lines of
the attack's summary; json prints the summary's JSON object and each file's first line under
generators. hist and hdrplot count the response times of sent requests, hist to 0.1 % of a bound.
html also counts the requests that were never sent, which results do not contain, and compares runs
with different starts.

report merges several inputs in the order of time. If an input is cut or damaged, report names it on
standard error, reports the results before the damage, and exits with 1. On a pipe, after the first
Ctrl-C, report waits for the remaining responses; a second Ctrl-C ends report at once. Memory does
not depend on the length of the run.

Examples:
  echo 'GET http://127.0.0.1:8080/' | seawall attack -rate=100 -duration=10s | seawall report
  seawall report -type=json results.gob | jq '.latencies.\"99th\" / 1e6'
  seawall report -type=html -output=report.html before.gob after.gob
  seawall report -type=html -output=report.html generator-1.intervals generator-2.intervals
  seawall attack -rate=100 < targets.txt | tee results.gob | seawall report -every=1s";

/// A kind of report, with what it alone needs.
#[derive(Debug, Clone)]
enum ReportKind {
    Summary,
    Text,
    Json,
    Hist(BucketBounds),
    HdrPlot,
    Html,
}

impl ReportArgs {
    fn kind(&self, terminal: bool) -> anyhow::Result<ReportKind> {
        let default = if terminal { "summary" } else { "text" };
        Ok(match self.kind.as_deref().unwrap_or(default) {
            "summary" => ReportKind::Summary,
            "text" => ReportKind::Text,
            "json" => ReportKind::Json,
            "hdrplot" => ReportKind::HdrPlot,
            "html" => ReportKind::Html,
            "plot" => bail!("for plots see `seawall plot`, or -type=html"),
            other => match (other.strip_prefix("hist"), &self.buckets) {
                (Some(_), Some(buckets)) => ReportKind::Hist(buckets.clone()),
                (Some(bounds), None) => ReportKind::Hist(
                    BucketBounds::from_str(bounds).with_context(|| format!("bad -type={other}"))?,
                ),
                (None, _) => {
                    bail!(
                        "unknown report type {other:?}: expected summary, text, json, hist[...], hdrplot or html"
                    )
                }
            },
        })
    }
}

/// Runs the command.
///
/// # Errors
/// Bad flags, inputs that cannot be opened, an output that cannot be written.
#[expect(clippy::needless_pass_by_value, reason = "the command owns its arguments")]
pub(crate) fn run(args: ReportArgs) -> anyhow::Result<ExitCode> {
    // Whatever is wrong with a flag is said before an existing report is emptied.
    let kind = args.kind(output::is_terminal(&args.output))?;
    let ClassifiedInputs { mut results, hdr_logs: logs, intervals } =
        ClassifiedInputs::classify(input::open_inputs(&args.files)?)?;
    if !intervals.is_empty() {
        input::reject_mixed_inputs(&intervals, &mut results, &logs)?;
        return intervals::report_from_interval_files(&kind, &args, intervals);
    }
    match (&kind, results.is_empty(), logs.is_empty()) {
        (_, _, true) | (ReportKind::Html, false, _) => {}
        (_, true, _) => return hdr_logs::run(&kind, &args, logs),
        _ => bail!("HDR logs together with results need -type=html or `seawall plot`"),
    }
    let sum = ReportData::new(&kind, &args, &results);
    let inputs = input::merge_inputs(results);
    let mut output = ReportOutput::open(&args.output)?;
    let every = u64::try_from(args.every.0).ok().filter(|ns| *ns > 0).map(std::time::Duration::from_nanos);
    let mut reading = InputReader::start(inputs, sum, input::reads_stdin(&args.files))?;
    let mut again = false;
    let mut problems = loop {
        match reading.wait(every) {
            WakeReason::Tick => {
                again = true;
                let report = reading.lock_sum().render(&kind)?;
                output.write(&report, again)?;
            }
            WakeReason::Interrupted => break Vec::new(),
            WakeReason::Finished(problems) => break problems,
        }
    };
    let mut sum = reading.lock_sum();
    if sum.totals.requests == 0 && !problems.is_empty() {
        bail!(problems.join("; "));
    }
    if let Some(runs) = &mut sum.runs {
        problems.extend(hdr_logs::add_logs_to_runs(runs, logs));
    }
    output.write(&sum.render(&kind)?, again)?;
    // Standard error may be closed; the report stands.
    let _ = stderr().write_all(generator_state::read_warnings(&args.files).as_bytes());
    Ok(report_problems(&problems))
}

/// Says which inputs were not read to their end. The report in front of it holds what was read.
pub(crate) fn report_problems(problems: &[String]) -> ExitCode {
    warn_and_exit_code(problems.iter().map(|problem| format!("{problem}; {KEPT}")))
}

/// Said of an input that was not read to its end.
const KEPT: &str = "the report includes the records before this point";

/// Says what makes a report less than it seems to be, and gives the exit code.
fn warn_and_exit_code(problems: impl Iterator<Item = String>) -> ExitCode {
    let mut code = ExitCode::SUCCESS;
    for problem in problems {
        // Nobody may read it any more; the exit code says it, too.
        let _ = writeln!(stderr(), "seawall: {problem}");
        code = ExitCode::from(crate::exit::ERROR);
    }
    code
}

/// The data that the chosen kind of report needs, and no more.
#[derive(Debug)]
struct ReportData {
    totals: Totals,
    histogram: Option<BucketCounts>,
    runs: Option<Runs>,
}

impl ReportData {
    fn new(kind: &ReportKind, args: &ReportArgs, inputs: &[InputSource]) -> Self {
        let buckets = match kind {
            ReportKind::Hist(buckets) => Some(buckets.clone()),
            _ => args.buckets.clone(),
        };
        let runs = matches!(kind, ReportKind::Html | ReportKind::Summary).then(|| Runs::new(inputs));
        Self { totals: Totals::default(), histogram: buckets.map(BucketCounts::new), runs }
    }

    fn render(&self, kind: &ReportKind) -> anyhow::Result<String> {
        Ok(match (kind, &self.histogram, &self.runs) {
            (ReportKind::Hist(_), Some(histogram), _) => histogram.render(),
            (ReportKind::Html, _, Some(runs)) => html::render(
                "Load report",
                html::format_subtitle(runs),
                Some(RESULTS_LIMITS_NOTE),
                &drawn(runs),
                GLOSSARY,
            )?,
            (ReportKind::Summary, _, Some(runs)) => summary::render(runs),
            (ReportKind::Json, histogram, _) => json::render(&self.totals, histogram.as_ref()),
            (ReportKind::HdrPlot, ..) => hdrplot::render(&self.totals.latency),
            _ => text::render(&self.totals),
        })
    }
}

fn drawn(runs: &Runs) -> Vec<RunSeries> {
    runs.iter_with_names().map(|(name, run)| RunSeries::new(name, run, series::MAX_POINTS)).collect()
}

impl RecordSink for ReportData {
    fn add(&mut self, source: usize, record: &Record) {
        self.totals.add_record(record);
        if let Some(histogram) = &mut self.histogram {
            histogram.add_latency(record.latency_ns);
        }
        if let Some(runs) = &mut self.runs {
            runs.add(source, record);
        }
    }
}
