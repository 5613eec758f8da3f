//! Intervals instead of results: what `attack --timeseries` writes, of one generator or of several that sent shards of one run.
//!
//! Files that begin at one instant are one run. Their intervals are added up exactly, and the report has the same summary as
//! `attack`. [`generator_file`] reads a file, and [`interval_series`] makes series for the page. A report that needs single results is refused.

mod generator_file;
pub(crate) mod interval_series;
mod missing_shards;
mod same_run;

use std::process::ExitCode;

use anyhow::{anyhow, bail};
use seawall_lab::generator_verdict::VerdictReason;
use seawall_lab::trial_judgement::Judgement;
use seawall_load::clock::Nanos;
use seawall_load::configuration::DOCUMENT_VERSION;
use seawall_load::engine::RunOutcome;
use seawall_load::interval::{IntervalStats, IntervalsMerge};
use seawall_load::stats::LoadStats;
use seawall_load::summary::Summary;
use serde::Serialize;
use serde_json::Value;

pub(crate) use self::generator_file::is_intervals_file;
use self::generator_file::{GeneratorConfig, GeneratorFile, IntervalsHeader};
use self::interval_series::DownsampledIntervals;
use super::hist::{BucketBounds, BucketCounts};
use super::input::InputSource;
use super::output::ReportOutput;
use super::series::{MAX_POINTS, RunSeries};
use super::{KEPT, ReportArgs, ReportKind, glossary, hdrplot, html, warn_and_exit_code};
use crate::attack::summary;
use crate::attack::timeseries_file::IntervalsFooter;

/// The error for a report that needs single results, about a file that has intervals only.
pub(crate) fn needs_results_error(name: &str, wanted: &str) -> anyhow::Error {
    anyhow!(
        "{name} contains intervals, but {wanted} needs results of single requests; every type of `seawall report` takes intervals"
    )
}

/// Adds the files up and writes the report.
pub(super) fn report_from_interval_files(
    kind: &ReportKind,
    args: &ReportArgs,
    inputs: Vec<InputSource>,
) -> anyhow::Result<ExitCode> {
    if let (Some(input), true) = (inputs.first(), args.every.0 > 0) {
        bail!(
            "{} contains intervals, but -every needs results of single requests from a running attack",
            input.name
        );
    }
    let generators = inputs.into_iter().map(GeneratorFile::open).collect::<anyhow::Result<Vec<_>>>()?;
    let runs = group_by_run(generators);
    runs.iter().try_for_each(|run| same_run::check_same_run(run))?;
    let runs: Vec<_> =
        runs.into_iter().map(|run| IntervalsRun::sum(run, matches!(kind, ReportKind::Html))).collect();
    let problems: Vec<_> = runs.iter().flat_map(|run| run.problems.iter().cloned()).collect();
    if runs.iter().all(|run| run.outcome.total_stats.completed == 0) && !problems.is_empty() {
        bail!(problems.join("; "));
    }
    let report = match kind {
        ReportKind::Html => page(&runs)?,
        _ => only_run(&runs)?.render(kind, args)?,
    };
    ReportOutput::open(&args.output)?.write(&report, false)?;
    let kept = problems.iter().map(|problem| format!("{problem}; {KEPT}"));
    Ok(warn_and_exit_code(kept.chain(runs.iter().flat_map(|run| run.missing.iter().cloned()))))
}

/// The generators of each run, in the order of the files.
fn group_by_run(generators: Vec<GeneratorFile>) -> Vec<Vec<GeneratorFile>> {
    let mut runs: Vec<Vec<GeneratorFile>> = Vec::new();
    for generator in generators {
        let is_its = |run: &&mut Vec<GeneratorFile>| run[0].header.start == generator.header.start;
        match runs.iter_mut().find(is_its) {
            Some(run) => run.push(generator),
            None => runs.push(vec![generator]),
        }
    }
    runs
}

/// The only run, for reports about a single run.
fn only_run(runs: &[IntervalsRun]) -> anyhow::Result<&IntervalsRun> {
    let [run, others @ ..] = runs else { bail!("no intervals") };
    let Some(other) = others.first() else { return Ok(run) };
    let [at, begins] = [run, other].map(|run| run.start.as_deref().unwrap_or("an unknown instant"));
    bail!(
        "{} begins at {at} and {} at {begins}: generators of one run need the same --start-at; to compare runs use \
         -type=html",
        run.file,
        other.file
    )
}

/// A run: the sum of its generators.
struct IntervalsRun {
    /// The name of the first file.
    file: String,
    /// The name of the attack, or of the file if the attack has none.
    name: String,
    /// The start in the form of RFC 3339.
    start: Option<String>,
    warm_up: Nanos,
    /// The first line of each file.
    generators: Vec<Value>,
    outcome: RunOutcome,
    reasons: Vec<VerdictReason>,
    /// The series to draw. They are empty if the report has no charts.
    rows: DownsampledIntervals,
    /// Problems of the files.
    problems: Vec<String>,
    /// The files of the run that are missing.
    missing: Vec<String>,
}

/// The JSON document of `report -type=json` about intervals.
#[derive(Serialize)]
struct IntervalsReport<'a> {
    /// The kind of the document: `report`.
    kind: &'static str,
    /// The version of the summary of `attack`, whose keys the document has.
    version: u32,
    start: Option<&'a str>,
    generators: &'a [Value],
    #[serde(flatten)]
    judgement: &'a Judgement,
    #[serde(flatten)]
    summary: &'a Summary,
    #[serde(skip_serializing_if = "Option::is_none")]
    buckets: Option<Value>,
}

impl IntervalsRun {
    /// Adds up one generator or more.
    fn sum(mut generators: Vec<GeneratorFile>, drawn: bool) -> Self {
        let (mut whole, mut rows) = (IntervalStats::default(), DownsampledIntervals::new(MAX_POINTS));
        let added = IntervalsMerge::new(generators.iter_mut()).try_for_each(|interval| {
            let interval = interval?;
            if drawn {
                rows.add_interval(&interval, None);
            }
            whole.append_next_interval(&interval)
        });
        let broken = generators.iter().filter_map(|generator| generator.read_problem.clone());
        let problems = broken.chain(added.err().map(|gap| gap.to_string())).collect();
        let parts: Vec<_> =
            generators.iter().map(|one| (one.name.as_str(), one.header.config.shard)).collect();
        let missing = missing_shards::describe_missing_shards(&parts);
        let reasons = reasons(&generators);
        let outcome = outcome(&generators, whole.stats);
        let IntervalsHeader { start, config: GeneratorConfig { name, warm_up, .. }, .. } =
            &generators[0].header;
        let file = generators[0].name.clone();
        Self {
            name: if name.is_empty() { file.clone() } else { name.clone() },
            file,
            start: start.clone(),
            warm_up: *warm_up,
            generators: generators.iter().map(|generator| generator.raw_header.clone()).collect(),
            outcome,
            reasons,
            rows,
            problems,
            missing,
        }
    }

    fn render(&self, kind: &ReportKind, args: &ReportArgs) -> anyhow::Result<String> {
        let times = || self.outcome.total_stats.all_times().response_time;
        Ok(match kind {
            ReportKind::Text | ReportKind::Summary => {
                let summary = Summary::new(&self.outcome);
                summary::format_summary(&Judgement::from_reasons(self.reasons.clone()), &summary)
            }
            ReportKind::Json => self.json(args)?,
            ReportKind::Hist(buckets) => {
                BucketCounts::from_distribution(buckets.clone(), times().distribution()).render()
            }
            ReportKind::HdrPlot => hdrplot::render(times().distribution()),
            ReportKind::Html => page(std::slice::from_ref(self))?,
        })
    }

    fn json(&self, args: &ReportArgs) -> anyhow::Result<String> {
        let times = self.outcome.total_stats.all_times().response_time;
        let counts = |buckets: &BucketBounds| {
            BucketCounts::from_distribution(buckets.clone(), times.distribution()).to_json()
        };
        let buckets = args.buckets.as_ref().map(|buckets| serde_json::from_str(&counts(buckets)));
        let report = IntervalsReport {
            kind: "report",
            version: DOCUMENT_VERSION,
            start: self.start.as_deref(),
            generators: &self.generators,
            judgement: &Judgement::from_reasons(self.reasons.clone()),
            summary: &Summary::new(&self.outcome),
            buckets: buckets.transpose()?,
        };
        Ok(serde_json::to_string(&report)? + "\n")
    }
}

/// The findings against the generators. Each names its generator if there are several.
fn reasons(generators: &[GeneratorFile]) -> Vec<VerdictReason> {
    let of = |generator: &GeneratorFile| {
        let file = if generators.len() > 1 { format!("{}: ", generator.name) } else { String::new() };
        let named = move |reason: VerdictReason| VerdictReason {
            measured: file.clone() + &reason.measured,
            ..reason
        };
        generator.footer().findings.into_iter().map(named)
    };
    generators.iter().flat_map(of).collect()
}

/// The outcome of a run.
fn outcome(generators: &[GeneratorFile], total: LoadStats) -> RunOutcome {
    let ends: Vec<_> = generators.iter().map(GeneratorFile::footer).collect();
    let scheduled = ends.iter().try_fold(0_u64, |sum, end| Some(sum.saturating_add(end.offered?)));
    let longest = |of: fn(&IntervalsFooter) -> Nanos| ends.iter().map(of).max().unwrap_or(0);
    RunOutcome {
        scheduled_count: scheduled,
        began_unix_ns: generators.first().map_or(0, GeneratorFile::began_unix_ns),
        elapsed_after_warm_up: longest(|end| end.elapsed),
        threads: ends.iter().map(|end| end.threads).fold(0, usize::saturating_add),
        ..RunOutcome::from_stats(total, longest(|end| end.duration))
    }
}

fn page(runs: &[IntervalsRun]) -> anyhow::Result<String> {
    let series: Vec<_> = runs.iter().enumerate().map(|(at, run)| series(run, &name(runs, at))).collect();
    let of = if let [run] = runs {
        let many = if run.generators.len() == 1 { "" } else { "s" };
        format!("{} generator{many}", run.generators.len())
    } else {
        format!("{} runs", runs.len())
    };
    let first = runs.iter().filter_map(|run| run.start.as_deref()).min();
    let started = first.map_or_else(String::new, |first| format!("Started {first}. "));
    html::render("Load report", started + &of, None, &series, &glossary::intervals_glossary())
}

fn series(run: &IntervalsRun, name: &str) -> RunSeries {
    let figures = (&run.outcome, &Summary::new(&run.outcome));
    interval_series::build_run_series(name.to_owned(), figures, &run.rows, run.warm_up)
}

/// The name of a run, with a number if an earlier run has the same name.
fn name(runs: &[IntervalsRun], at: usize) -> String {
    let name = &runs[at].name;
    match runs[..at].iter().filter(|before| before.name == *name).count() {
        0 => name.clone(),
        before => format!("{name} #{}", before + 1),
    }
}
