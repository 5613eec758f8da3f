//! `seawall find`: the rate at which a target breaks, and why.
//!
//! [`args`] defines the flags, [`plan`] makes a checked plan of them, [`search_setup`] joins the search to the load engine, `lab`
//! carries the run out, [`progress`] reports on it, [`screen`] and [`html_report`] show the result, [`crate::atomic_file`] writes files
//! as a whole or not at all, [`reach_check`] first checks that the target is reachable, [`resume_sent_nothing`] says why a resumed run sent
//! nothing, [`request_fingerprint`] records the requests that a resumed run must send again, [`signals`] end the run early, and
//! [`run_comparison`] compares two runs. This module has no search algorithm and no causes.

pub(crate) mod args;
pub(crate) mod formatting;
mod html_report;
pub(crate) mod plan;
mod pods;
pub(crate) mod progress;
pub(crate) mod reach_check;
mod request_fingerprint;
mod resume_sent_nothing;
pub(crate) mod run_comparison;
pub(crate) mod screen;
pub(crate) mod search_setup;
pub(crate) mod signals;
#[cfg(test)]
pub(crate) mod tests;

use std::io::{Write as _, stderr, stdout};
use std::num::NonZero;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context as _, ensure};
use seawall_lab::find::find_report::{FindOutcome, FindReport, FindStopReason};
use seawall_lab::find::server_evidence::InstrumentedDriver;
use seawall_lab::find::{closed_loop, empty_report, find, has_nothing_left, read_report};
use seawall_load::input_files::InputFiles as Read;

pub(crate) use self::args::FindArgs;
use self::plan::FindCommandPlan;
use self::pods::FindPodGroup;
use self::progress::{FindProgress, PageUpdater};
use self::search_setup::{FindSessionConfig, SearchSetup};
use self::signals::TerminationSignals;
use crate::atomic_file::ReportFiles;
use crate::distributed::ready_pods::{self, AcquireOutcome};
use crate::distributed::{self, DistributedOptions};
use crate::exit;
use crate::live_search_page::SearchPage;
use crate::text_wrap::terminal_columns;

/// Runs the command, with no more than `cpus` threads that send.
///
/// # Errors
/// Bad input, named: nothing was sent then. Or a file that could not be written.
pub(crate) fn run(args: &FindArgs, cpus: Option<NonZero<usize>>) -> anyhow::Result<ExitCode> {
    args.check()?;
    if let [before, after] = &args.compare[..] {
        return run_comparison::run(before, after);
    }
    if let Some(asked) = args.distributed_options()? {
        let files = Read::capturing();
        let planned = plan::plan_find(args, plan::available_cores(), &files)?;
        let asked = asked.with_load_duration(planned.0.plan.budget);
        if distributed::print_if_dry_run(&asked, &args.command_io(), &files)? {
            return Ok(ExitCode::SUCCESS);
        }
        return from_pods(args, planned, &asked, &files);
    }
    let (order, kit) =
        plan::plan_find(args, cpus.map_or_else(plan::available_cores, NonZero::get), &Read::default())?;
    let page = args.live_page.map(crate::live_page::PageServer::bind).transpose()?;
    ensure!(page.is_none() || !is_complete(&order)?, WHOLE);
    let files = ReportFiles::create(args.json.as_deref(), args.html.as_deref())?;
    let progress = FindProgress::for_stderr()?;
    let site = search_setup::build_local_driver_setup(kit, progress.block_observer())?;
    carry_out(&order, site, page, files, progress).map(ExitCode::from)
}

/// Runs the search from pods.
fn from_pods(
    args: &FindArgs,
    (order, kit): (FindCommandPlan, FindSessionConfig),
    asked: &DistributedOptions,
    files: &Read,
) -> anyhow::Result<ExitCode> {
    ensure!(
        order.closed_loop.is_none(),
        "--closed-loop does not work with --on, because pods send at a given rate"
    );
    let page = args.live_page.map(crate::live_page::PageServer::bind).transpose()?;
    ensure!(page.is_none() || !is_complete(&order)?, WHOLE);
    let drafts = ReportFiles::create(args.json.as_deref(), args.html.as_deref())?;
    let crew = match ready_pods::acquire_pods(asked, &args.command_io(), files)? {
        AcquireOutcome::Ready(crew, _) => *crew,
        AcquireOutcome::Interrupted(code) => return Ok(code),
    };
    let progress = FindProgress::for_stderr()?;
    let most = asked.max_pods.map_or(crew.fleet.size(), |most| most as usize);
    let pods = FindPodGroup::new(crew, asked.on_pod_loss, most, progress.block_observer());
    let (stop, bound) = (pods::stop_callback(&pods.stop_switch()), kit.latency_bound);
    let site = SearchSetup {
        driver: Box::new(pods),
        stop_now: stop,
        server_side_source: search_setup::server_side_source(kit.server_side_reader),
        late_after: bound,
        reach_check: None,
    };
    carry_out(&order, site, page, drafts, progress).map(ExitCode::from)
}

const WHOLE: &str = "--live-page: the run of --resume is complete; use --html to write its page";

/// Returns true if the run of `--resume` is complete.
fn is_complete(order: &FindCommandPlan) -> anyhow::Result<bool> {
    let whole = order.previous_report.as_ref().map(|before| has_nothing_left(&order.plan, before));
    Ok(whole.transpose().context("--resume")?.unwrap_or(false))
}

/// Runs the search with this setup, whatever sends the load, and returns the exit code.
fn carry_out(
    order: &FindCommandPlan,
    site: SearchSetup,
    page: Option<crate::live_page::PageServer>,
    files: ReportFiles,
    progress: FindProgress,
) -> anyhow::Result<u8> {
    let SearchSetup {
        driver: mut ground,
        stop_now: stop,
        server_side_source: sight,
        late_after: bound,
        reach_check: reach,
    } = site;
    let signals = TerminationSignals::listen(boxed_stop(&stop), files.temporary_paths())?;
    if let Some(reach) = reach
        && let Err(error) = reach.run(&order.plan.target_info.url, || signals.first_signal().is_some())
    {
        progress.end();
        return Err(error);
    }
    let known = || order.previous_report.clone().unwrap_or_else(|| empty_report(&order.plan));
    let mut page = page.map(|site| SearchPage::start(site, known(), boxed_stop(&stop))).transpose()?;
    let mut ground = InstrumentedDriver::new(&mut *ground, sight, bound);
    let mut watcher = (progress, page.as_mut().map(PageUpdater::for_run));
    let found = match order.closed_loop {
        Some(clients) => Ok(closed_loop::find(&mut ground, &order.plan, clients.max_clients, &mut watcher)),
        None => find(&mut ground, &order.plan, order.previous_report.as_ref(), &mut watcher),
    };
    watcher.0.end();
    let mut answer = found.context("--resume")?;
    // A whole run has had its word already.
    if order.previous_report.as_ref() != Some(&answer) {
        ground.add_server_evidence(&mut answer, order.previous_report.as_ref());
    }
    let written = write(&answer, files);
    if let Some(why) = order
        .previous_report
        .as_ref()
        .and_then(|before| resume_sent_nothing::why_nothing_was_sent(before, &answer))
    {
        writeln!(stderr(), "{why}")?;
    }
    let code = exit_code(&answer, signals.first_signal());
    if let Some(page) = page {
        page.end(answer);
    }
    written.and(Ok(code))
}

fn boxed_stop(stop: &Arc<dyn Fn() + Send + Sync>) -> Box<dyn Fn() + Send> {
    let stop = Arc::clone(stop);
    Box::new(move || stop())
}

/// The screen after the files: it is the file that must not be lost.
fn write(answer: &FindReport, files: ReportFiles) -> anyhow::Result<()> {
    let has_stdout = files.has_stdout;
    let columns = if has_stdout { terminal_columns(stderr()) } else { terminal_columns(stdout()) };
    let text = screen::format_screen(answer, columns.unwrap_or(screen::MAX_COLUMNS));
    let written = files.write(|| Ok(answer.to_json()?), || html_report::render(answer));
    written.and(if has_stdout { print_to_stderr(&text) } else { show(&text) })
}

fn show(text: &str) -> anyhow::Result<()> {
    let mut out = stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).context("cannot write to standard output")
}

/// Writes a text to standard error, which may be closed; standard output is a file's.
fn print_to_stderr(text: &str) -> anyhow::Result<()> {
    let _ = stderr().lock().write_all(text.as_bytes());
    Ok(())
}

/// Reads the report of an earlier run.
fn read_earlier_report(path: &Path) -> anyhow::Result<FindReport> {
    let file = std::fs::File::open(path).with_context(|| format!("cannot read {}", path.display()))?;
    read_report::read(file).with_context(|| path.display().to_string())
}

/// A signal that cut a run off comes first; then how it ended.
fn exit_code(answer: &FindReport, signal: Option<i32>) -> u8 {
    match (signal, answer.stop_reason, answer.outcome) {
        (Some(signal), Some(FindStopReason::Signal), _) => exit::from_signal(signal),
        (_, _, FindOutcome::Found) => exit::SUCCESS,
        (_, _, FindOutcome::Metastable) => exit::METASTABLE,
        (_, _, FindOutcome::NoLimitFound) => exit::NO_LIMIT_FOUND,
        (_, _, FindOutcome::GeneratorLimited) => exit::GENERATOR_LIMITED,
        (_, _, FindOutcome::UnstableBaseline) => exit::UNSTABLE_BASELINE,
        (_, _, FindOutcome::TargetDied) => exit::TARGET_DIED,
        (_, _, FindOutcome::Undecided | FindOutcome::Interrupted) => exit::UNDECIDED,
    }
}
