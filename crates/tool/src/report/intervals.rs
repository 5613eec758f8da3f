//! Intervals instead of results: what `attack --intervals` writes, of one generator or of several that sent slices of one run.
//!
//! Files that begin at one instant are one run, and are added up exactly, an interval at a time. What is said of a run is
//! what `attack` said of it: the same summary of the same figures. [`generator`] reads a file, [`drawn`] makes series for the
//! page. What only single results hold is refused.

pub(crate) mod drawn;
mod generator;
mod plans;
mod slices;

use std::process::ExitCode;

use anyhow::{anyhow, bail};
use seawall_lab::judgement::Judgement;
use seawall_lab::verdict::VerdictReason;
use seawall_load::clock::Nanos;
use seawall_load::configuration::SCHEMA;
use seawall_load::engine::RunOutcome;
use seawall_load::interval::{IntervalStats, IntervalsMerge};
use seawall_load::stats::LoadStats;
use seawall_load::summary::Summary;
use serde::Serialize;
use serde_json::Value;

use self::drawn::IntervalRows;
pub(crate) use self::generator::is_intervals;
use self::generator::{GeneratorConfig, GeneratorFile, IntervalsHeader};
use super::hist::{BucketCounts, Buckets};
use super::input::InputSource;
use super::output::Output;
use super::series::{POINTS, RunSeries};
use super::{KEPT, ReportArgs, ReportKind, hdrplot, html, warn_and_exit_code, words};
use crate::attack::intervals::IntervalsFooter;
use crate::attack::summary;

/// Said to whoever wants single results of a file that has none.
pub(crate) fn refuse(name: &str, wanted: &str) -> anyhow::Error {
    anyhow!(
        "{name} holds intervals, and {wanted} needs single results: see `seawall report`, whose types all take intervals"
    )
}

/// Adds files up and reports them.
pub(super) fn run(
    kind: &ReportKind,
    args: &ReportArgs,
    inputs: Vec<InputSource>,
) -> anyhow::Result<ExitCode> {
    if let (Some(input), true) = (inputs.first(), args.every.0 > 0) {
        bail!("-every is for results as they come in, and {} holds intervals", input.name);
    }
    let generators = inputs.into_iter().map(GeneratorFile::open).collect::<anyhow::Result<Vec<_>>>()?;
    let runs = group_by_run(generators);
    runs.iter().try_for_each(|run| plans::belong_together(run))?;
    let runs: Vec<_> =
        runs.into_iter().map(|run| IntervalsRun::sum(run, matches!(kind, ReportKind::Html))).collect();
    let problems: Vec<_> = runs.iter().flat_map(|run| run.problems.iter().cloned()).collect();
    if runs.iter().all(|run| run.outcome.total.done == 0) && !problems.is_empty() {
        bail!(problems.join("; "));
    }
    let report = match kind {
        ReportKind::Html => page(&runs)?,
        _ => only_run(&runs)?.render(kind, args)?,
    };
    Output::open(&args.output)?.write(&report, false)?;
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

/// The only run, where one report is of one.
fn only_run(runs: &[IntervalsRun]) -> anyhow::Result<&IntervalsRun> {
    let [run, others @ ..] = runs else { bail!("no intervals") };
    let Some(other) = others.first() else { return Ok(run) };
    let [at, begins] = [run, other].map(|run| run.start.as_deref().unwrap_or("an instant without a name"));
    bail!(
        "{} begins at {at} and {} at {begins}: generators add up to one run if they had one --start-at; \
         -type=html compares runs",
        run.file,
        other.file
    )
}

/// What the generators of a run came to.
struct IntervalsRun {
    /// The first one's.
    file: String,
    /// The attack's, or else the file's.
    name: String,
    /// RFC 3339.
    start: Option<String>,
    warm_up: Nanos,
    /// The first line of each file.
    generators: Vec<Value>,
    outcome: RunOutcome,
    reasons: Vec<VerdictReason>,
    /// What is drawn; empty if nothing is to be.
    rows: IntervalRows,
    /// What is wrong with the files.
    problems: Vec<String>,
    /// Which of the run's files are not here.
    missing: Vec<String>,
}

/// A run for programs.
#[derive(Serialize)]
struct IntervalsReport<'a> {
    schema: u32,
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
    /// Of one generator or more.
    fn sum(mut generators: Vec<GeneratorFile>, drawn: bool) -> Self {
        let (mut whole, mut rows) = (IntervalStats::default(), IntervalRows::new(POINTS));
        let added = IntervalsMerge::new(generators.iter_mut()).try_for_each(|interval| {
            let interval = interval?;
            if drawn {
                rows.add(&interval, None);
            }
            whole.extend(&interval)
        });
        let broken = generators.iter().filter_map(|generator| generator.problem.clone());
        let problems = broken.chain(added.err().map(|gap| gap.to_string())).collect();
        let parts: Vec<_> =
            generators.iter().map(|one| (one.name.as_str(), one.header.configuration.slice)).collect();
        let missing = slices::missing(&parts);
        let reasons = reasons(&generators);
        let outcome = outcome(&generators, whole.stats);
        let IntervalsHeader { start, configuration: GeneratorConfig { name, warm_up, .. }, .. } =
            &generators[0].header;
        let file = generators[0].name.clone();
        Self {
            name: if name.is_empty() { file.clone() } else { name.clone() },
            file,
            start: start.clone(),
            warm_up: *warm_up,
            generators: generators.iter().map(|generator| generator.about.clone()).collect(),
            outcome,
            reasons,
            rows,
            problems,
            missing,
        }
    }

    fn render(&self, kind: &ReportKind, args: &ReportArgs) -> anyhow::Result<String> {
        let times = || self.outcome.total.all_times().response;
        Ok(match kind {
            ReportKind::Text | ReportKind::Summary => {
                let summary = Summary::new(&self.outcome);
                summary::text(&Judgement::from_reasons(self.reasons.clone()), &summary)
            }
            ReportKind::Json => self.json(args)?,
            ReportKind::Hist(buckets) => BucketCounts::of(buckets.clone(), times().distribution()).render(),
            ReportKind::HdrPlot => hdrplot::render(times().distribution()),
            ReportKind::Html => page(std::slice::from_ref(self))?,
        })
    }

    fn json(&self, args: &ReportArgs) -> anyhow::Result<String> {
        let times = self.outcome.total.all_times().response;
        let counts = |buckets: &Buckets| BucketCounts::of(buckets.clone(), times.distribution()).json();
        let buckets = args.buckets.as_ref().map(|buckets| serde_json::from_str(&counts(buckets)));
        let report = IntervalsReport {
            schema: SCHEMA,
            start: self.start.as_deref(),
            generators: &self.generators,
            judgement: &Judgement::from_reasons(self.reasons.clone()),
            summary: &Summary::new(&self.outcome),
            buckets: buckets.transpose()?,
        };
        Ok(serde_json::to_string(&report)? + "\n")
    }
}

/// What speaks against any of the generators, and against which.
fn reasons(generators: &[GeneratorFile]) -> Vec<VerdictReason> {
    let of = |generator: &GeneratorFile| {
        let file = if generators.len() > 1 { format!("{}: ", generator.name) } else { String::new() };
        let named = move |reason: VerdictReason| VerdictReason {
            measured: file.clone() + &reason.measured,
            ..reason
        };
        generator.end().findings.into_iter().map(named)
    };
    generators.iter().flat_map(of).collect()
}

/// What a run came to.
fn outcome(generators: &[GeneratorFile], total: LoadStats) -> RunOutcome {
    let ends: Vec<_> = generators.iter().map(GeneratorFile::end).collect();
    let scheduled = ends.iter().try_fold(0_u64, |sum, end| Some(sum.saturating_add(end.scheduled?)));
    let longest = |of: fn(&IntervalsFooter) -> Nanos| ends.iter().map(of).max().unwrap_or(0);
    RunOutcome {
        scheduled,
        began_unix_ns: generators.first().map_or(0, GeneratorFile::began_unix_ns),
        elapsed: longest(|end| end.elapsed),
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
    html::render("Load report", started + &of, None, &series, &words::of_intervals())
}

fn series(run: &IntervalsRun, name: &str) -> RunSeries {
    let figures = (&run.outcome, &Summary::new(&run.outcome));
    drawn::series(name.to_owned(), figures, &run.rows, run.warm_up)
}

/// What a run is called; what others before it are called gets a number.
fn name(runs: &[IntervalsRun], at: usize) -> String {
    let name = &runs[at].name;
    match runs[..at].iter().filter(|before| before.name == *name).count() {
        0 => name.clone(),
        before => format!("{name} #{}", before + 1),
    }
}
