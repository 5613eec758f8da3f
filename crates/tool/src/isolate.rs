//! `seawall isolate`: finds out which of several variants of a request path is slower, and which are not.
//!
//! [`args`] defines the flags, [`factors`] makes the variants of built-in factors, [`mod@experiment_file`] reads variants from an
//! experiment file, and [`plan`] makes a checked plan of all of them. `lab` carries the plan out, with [`pods`] if they send.
//! [`capacity_search`] searches the limits of the variants that matter, and [`screen`] and [`page`] show the result. This module has no
//! statistics.

mod args;
mod capacity_search;
mod experiment_file;
mod factors;
mod page;
pub(crate) mod plan;
mod pods;
mod screen;
#[cfg(test)]
mod tests;
mod variant_draft;

use std::io::{IsTerminal as _, Write as _, stderr, stdout};
use std::num::NonZero;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use seawall_isolate::study::Study;
use seawall_lab::generator_resources::available_cores;
use seawall_lab::isolate::isolate_report::{IsolateOutcome, IsolateReport, VariantVerdict};
use seawall_lab::isolate::variant_capacity::{CapacityPlan, CapacityReport};
use seawall_lab::isolate::{IsolatePlan, VariantRunner, empty_report, isolate};
use seawall_lab::rig::StopSwitch;
use seawall_load::input_files::InputFiles as Read;

pub(crate) use self::args::IsolateArgs;
use self::plan::IsolateRun;
use self::pods::IsolatePods;
use crate::atomic_file::ReportFiles;
use crate::distributed;
use crate::distributed::ready_pods::{self, AcquireOutcome};
use crate::exit;
use crate::find::formatting::{format_wait, pluralize};
use crate::find::signals::TerminationSignals;
use crate::live_page::PageServer;
use crate::live_search_page::{ActivityFormatter, SearchPage};
use crate::text_wrap::{terminal_columns, truncate_line};

/// Runs the command, with no more than `cpus` threads that send.
///
/// # Errors
/// Bad input, named: no load was sent then. Or a file that could not be written.
pub(crate) fn run(args: &IsolateArgs, cpus: Option<NonZero<usize>>) -> anyhow::Result<ExitCode> {
    args.check()?;
    if let Some(asked) = args.distributed_options()? {
        let files = Read::capturing();
        return from_pods(args, &asked.with_load_duration(Some(args.total_budget())), &files);
    }
    let order =
        plan::plan_local_run(args, cpus.map_or_else(available_cores, NonZero::get), &Read::default())?;
    let page = args.live_page.map(PageServer::bind).transpose()?;
    let files = ReportFiles::create(args.json.as_deref(), args.html.as_deref())?;
    carry_out(order, page, files, args.compares_two_urls()).map(ExitCode::from)
}

/// Runs the comparison from pods.
fn from_pods(
    args: &IsolateArgs,
    asked: &distributed::DistributedOptions,
    read: &Read,
) -> anyhow::Result<ExitCode> {
    ensure!(!args.searches_capacity(), plan::CAPACITY_NOT_WITH_PODS);
    plan::check_plan_for_pods(args, read, usize::try_from(asked.pod_count()).unwrap_or(usize::MAX))?;
    if distributed::print_if_dry_run(asked, &args.command_io(), read)? {
        return Ok(ExitCode::SUCCESS);
    }
    let page = args.live_page.map(PageServer::bind).transpose()?;
    let files = ReportFiles::create(args.json.as_deref(), args.html.as_deref())?;
    let crew = match ready_pods::acquire_pods(asked, &args.command_io(), read)? {
        AcquireOutcome::Ready(crew, _) => crew,
        AcquireOutcome::Interrupted(code) => return Ok(code),
    };
    let mut pods = IsolatePods::new(*crew, asked.on_pod_loss);
    let stop = pods.stop_switch();
    let button = stop.clone();
    let signals = TerminationSignals::listen(Box::new(move || stop.stop()), files.temporary_paths())?;
    let ways = match (pods.fetch_variants(), signals.first_signal()) {
        (_, Some(signal)) => return Ok(ExitCode::from(exit::from_signal(signal))),
        (ways, None) => ways?,
    };
    let plan = plan::plan_from_pods(args, ways, pods.pod_count())?;
    let mut page =
        page.map(|site| SearchPage::start(site, empty_report(&plan), stop_callback(button))).transpose()?;
    let answer = compared(&mut pods, &plan, None, page.as_mut());
    drop(pods);
    ended(answer, page, files, &signals, args.compares_two_urls()).map(ExitCode::from)
}

fn stop_callback(stop: StopSwitch) -> Box<dyn Fn() + Send> {
    Box::new(move || stop.stop())
}

fn carry_out(
    order: IsolateRun,
    page: Option<PageServer>,
    files: ReportFiles,
    is_comparison: bool,
) -> anyhow::Result<u8> {
    let IsolateRun { plan, capacity_plan: searches, runner: mut bench, reach_checks: reaches } = order;
    let signals = TerminationSignals::listen(stop_callback(bench.stop_switch()), files.temporary_paths())?;
    plan::check_reachability(reaches, || signals.first_signal().is_some())?;
    let mut page = page
        .map(|site| SearchPage::start(site, empty_report(&plan), stop_callback(bench.stop_switch())))
        .transpose()?;
    let answer = compared(&mut bench, &plan, searches.as_ref(), page.as_mut());
    let capacity = searches
        .map(|searches| capacity_search::run_capacity_searches(&bench, &searches, &answer, page.as_mut()));
    ended(answer.with_capacity_report(capacity), page, files, &signals, is_comparison)
}

/// Runs the comparison, reports its progress, and returns its result.
fn compared(
    paths: &mut dyn VariantRunner,
    plan: &IsolatePlan,
    searches: Option<&CapacityPlan>,
    mut page: Option<&mut SearchPage<IsolateReport>>,
) -> IsolateReport {
    let is_live = stderr().is_terminal();
    // Standard error may be closed; the experiment goes on.
    let beforehand = screen::plan_summary(plan, searches) + "\n";
    let beforehand =
        terminal_columns(stderr()).map_or(beforehand.clone(), |wide| screen::wrap_lines(&beforehand, wide));
    let _ = write!(stderr(), "{beforehand}");
    let answer = isolate(paths, plan, &mut |study, so_far| {
        print_progress(plan, study, is_live);
        if let Some(page) = &mut page {
            page.set_interim_report(so_far());
            page.show_activity(progress_text(plan, study));
        }
    });
    if is_live {
        let _ = write!(stderr(), "\r\x1b[K");
    }
    answer
}

/// Everything is told; the exit code.
fn ended(
    answer: IsolateReport,
    page: Option<SearchPage<IsolateReport>>,
    files: ReportFiles,
    signals: &TerminationSignals,
    is_comparison: bool,
) -> anyhow::Result<u8> {
    let written = show(&answer, files);
    let code = code(&answer, signals.first_signal(), is_comparison);
    if let Some(page) = page {
        page.end(answer);
    }
    written.and(Ok(code))
}

/// The screen after the files: it is the file that must not be lost.
fn show(answer: &IsolateReport, files: ReportFiles) -> anyhow::Result<()> {
    let has_stdout = files.has_stdout;
    let columns = if has_stdout { terminal_columns(stderr()) } else { terminal_columns(stdout()) };
    let text = columns.map_or_else(
        || screen::format_report(answer),
        |columns| screen::format_report_in_columns(answer, columns),
    );
    let json = || {
        Ok(format!("{}\n", serde_json::to_string_pretty(answer).context("cannot encode the report as JSON")?))
    };
    let written = files.write(json, || Ok(page::render(answer)));
    if has_stdout {
        let _ = stderr().lock().write_all(text.as_bytes());
    } else {
        let mut out = stdout().lock();
        out.write_all(text.as_bytes())
            .and_then(|()| out.flush())
            .context("cannot write to standard output")?;
    }
    written
}

/// Returns the progress text, a function of the time since the last segment ended.
fn progress_text(plan: &IsolatePlan, study: &Study) -> ActivityFormatter {
    let (spent, budget) = (study.spent(), format_wait(plan.config.budget.as_secs_f64()));
    let cells = pluralize(study.time_bucket_stats().count() as u64, "time bucket");
    let ways = pluralize(plan.config.designs.len() as u64, "variant");
    let decided = study.decided_count();
    Box::new(move |since| {
        let spent = format_wait((spent + since).as_secs_f64());
        format!("{spent} of {budget} · {cells} · {decided} of {ways} are decided")
    })
}

/// One line that lives on a terminal, elsewhere one for each segment.
fn print_progress(plan: &IsolatePlan, study: &Study, is_live: bool) {
    let line = progress_text(plan, study)(Duration::ZERO);
    let _ = if is_live {
        // A line that goes on below itself is not written over.
        let wide = terminal_columns(stderr()).unwrap_or(80).saturating_sub(1).max(1);
        write!(stderr(), "\r\x1b[K{}", truncate_line(&line, wide))
    } else {
        writeln!(stderr(), "{line}")
    };
}

/// A signal comes first; then how it ended.
fn code(answer: &IsolateReport, signal: Option<i32>, is_comparison: bool) -> u8 {
    let is_worse = answer.variants.iter().any(|way| {
        matches!(way.verdict, VariantVerdict::Slower | VariantVerdict::P99Slower | VariantVerdict::MoreErrors)
    });
    let is_unlike = answer
        .variants_with_verdict(VariantVerdict::Equal)
        .any(|way| screen::describe_suspicious_tail(answer, way).is_some());
    let is_untold = answer.capacity.as_ref().is_some_and(|found| !found.is_conclusive());
    let is_interrupted = answer.outcome == IsolateOutcome::Interrupted
        || answer.capacity.as_ref().is_some_and(CapacityReport::is_interrupted);
    let bears_less = answer.capacity.as_ref().is_some_and(CapacityReport::has_lower_capacity);
    match (signal, answer.outcome) {
        (Some(signal), _) if is_interrupted => exit::from_signal(signal),
        // The searches are held beside each other, however the comparison ended.
        _ if is_comparison && bears_less => exit::SLO_MISSED,
        // Where a tail is lacking the middle is told all the same.
        (_, IsolateOutcome::Decided | IsolateOutcome::Undecided) if is_comparison && is_worse => {
            exit::SLO_MISSED
        }
        // What the one build answers at this rate, and the other does not, is no matter of the rate.
        (_, IsolateOutcome::Overloaded) if is_comparison && answer.overloaded_variant().is_some() => {
            exit::SLO_MISSED
        }
        // Whoever lets a build through for this must not let one of a thousand slow requests through, nor a limit that nobody knows.
        (_, IsolateOutcome::Decided) if is_comparison && (is_unlike || is_untold) => exit::UNDECIDED,
        (_, IsolateOutcome::Decided) => exit::SUCCESS,
        (_, IsolateOutcome::GeneratorLimited) => exit::GENERATOR_LIMITED,
        (_, IsolateOutcome::Undecided | IsolateOutcome::Overloaded | IsolateOutcome::Interrupted) => {
            exit::UNDECIDED
        }
        (_, IsolateOutcome::Failed) => exit::ERROR,
    }
}
