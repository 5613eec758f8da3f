//! `seawall find`: the rate at which a target breaks, and why.
//!
//! [`args`] says what may be typed, [`plan`] makes a checked plan of it, [`search_setup`] is where what offers the load is joined, `lab`
//! carries the run out, [`progress`] tells of it, [`screen`] and [`page`] show what it came to, [`crate::atomic_file`] writes files that are
//! there as a whole or not at all, [`first_request`] asks first whether there is a target, [`resumed`] says why a continued run sent nothing, [`sent_requests`]
//! keeps what a continued run must send again, [`signals`] end it early, [`gate`] compares two runs. Knows no search and no cause.

pub(crate) mod args;
pub(crate) mod first_request;
pub(crate) mod gate;
mod page;
pub(crate) mod plan;
mod pods;
pub(crate) mod progress;
mod resumed;
pub(crate) mod screen;
pub(crate) mod search_setup;
mod sent_requests;
pub(crate) mod signals;
#[cfg(test)]
pub(crate) mod tests;
pub(crate) mod words;

use std::io::{Write as _, stderr, stdout};
use std::num::NonZero;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context as _, ensure};
use seawall_lab::find::answer::{FindOutcome, FindReport, FindStopReason};
use seawall_lab::find::server_evidence::InstrumentedDriver;
use seawall_lab::find::{closed, empty_report, find, has_nothing_left, read_report};
use seawall_load::files::InputFiles as Read;

pub(crate) use self::args::FindArgs;
use self::plan::FindCommandPlan;
use self::pods::FindPodGroup;
use self::progress::{FindProgress, PageWatcher};
use self::search_setup::{FindSessionConfig, SearchSetup};
use self::signals::TerminationSignals;
use crate::atomic_file::ReportFiles;
use crate::exit;
use crate::on::ready_pods::{self, AcquireOutcome};
use crate::on::{self, DistributedOptions};
use crate::searching::SearchPage;
use crate::wrap::columns;

/// Runs the command, with no more than `cpus` threads that send.
///
/// # Errors
/// Bad input, named: nothing was sent then. Or a file that could not be written.
pub(crate) fn run(args: &FindArgs, cpus: Option<NonZero<usize>>) -> anyhow::Result<ExitCode> {
    args.check()?;
    if let [before, after] = &args.compare[..] {
        return gate::run(before, after);
    }
    if let Some(asked) = args.distributed_options()? {
        let files = Read::capturing();
        let planned = plan::plan(args, plan::available_cores(), &files)?;
        let asked = asked.with_duration(planned.0.plan.budget);
        if on::print_if_dry_run(&asked, &args.command_context(), &files)? {
            return Ok(ExitCode::SUCCESS);
        }
        return from_pods(args, planned, &asked, &files);
    }
    let (order, kit) =
        plan::plan(args, cpus.map_or_else(plan::available_cores, NonZero::get), &Read::default())?;
    let page = args.live_page.map(crate::page::PageServer::bind).transpose()?;
    ensure!(page.is_none() || !is_complete(&order)?, WHOLE);
    let files = ReportFiles::create(args.json.as_deref(), args.html.as_deref())?;
    let progress = FindProgress::to_stderr()?;
    let site = search_setup::build_search_setup(kit, progress.observer())?;
    carry_out(&order, site, page, files, progress).map(ExitCode::from)
}

/// The same from pods.
fn from_pods(
    args: &FindArgs,
    (order, kit): (FindCommandPlan, FindSessionConfig),
    asked: &DistributedOptions,
    files: &Read,
) -> anyhow::Result<ExitCode> {
    ensure!(order.closed.is_none(), "--closed-loop does not work with --on: pods send at rates");
    let page = args.live_page.map(crate::page::PageServer::bind).transpose()?;
    ensure!(page.is_none() || !is_complete(&order)?, WHOLE);
    let drafts = ReportFiles::create(args.json.as_deref(), args.html.as_deref())?;
    let crew = match ready_pods::acquire_pods(asked, &args.command_context(), files)? {
        AcquireOutcome::Ready(crew, _) => *crew,
        AcquireOutcome::Interrupted(code) => return Ok(code),
    };
    let progress = FindProgress::to_stderr()?;
    let most = asked.max_pods.map_or(crew.fleet.size(), |most| most as usize);
    let pods = FindPodGroup::new(crew, asked.on_pod_loss, most, progress.observer());
    let (stop, bound) = (pods::stop_callback(&pods.stop()), kit.latency_bound);
    let site = SearchSetup {
        ground: Box::new(pods),
        stop,
        sight: search_setup::sight(kit.server_side),
        latency_bound: bound,
        reach: None,
    };
    carry_out(&order, site, page, drafts, progress).map(ExitCode::from)
}

const WHOLE: &str = "--live-page: the run of --resume is complete; use --html to write its page";

/// Whether the run that is continued is at its end.
fn is_complete(order: &FindCommandPlan) -> anyhow::Result<bool> {
    let whole = order.previous.as_ref().map(|before| has_nothing_left(&order.plan, before));
    Ok(whole.transpose().context("--resume")?.unwrap_or(false))
}

/// The run on a ground, whatever that is; answers with the exit code.
fn carry_out(
    order: &FindCommandPlan,
    site: SearchSetup,
    page: Option<crate::page::PageServer>,
    files: ReportFiles,
    progress: FindProgress,
) -> anyhow::Result<u8> {
    let SearchSetup { mut ground, stop, sight, latency_bound: bound, reach } = site;
    let signals = TerminationSignals::listen(boxed_stop(&stop), files.temporary_paths())?;
    if let Some(reach) = reach
        && let Err(error) = reach.run(&order.plan.target.url, || signals.received().is_some())
    {
        progress.end();
        return Err(error);
    }
    let known = || order.previous.clone().unwrap_or_else(|| empty_report(&order.plan));
    let mut page = page.map(|site| SearchPage::open(site, known(), boxed_stop(&stop))).transpose()?;
    let mut ground = InstrumentedDriver::new(&mut *ground, sight, bound);
    let mut watcher = (progress, page.as_mut().map(PageWatcher::whole));
    let found = match order.closed {
        Some(clients) => Ok(closed::find(&mut ground, &order.plan, clients.max_clients, &mut watcher)),
        None => find(&mut ground, &order.plan, order.previous.as_ref(), &mut watcher),
    };
    watcher.0.end();
    let mut answer = found.context("--resume")?;
    // A whole run has had its word already.
    if order.previous.as_ref() != Some(&answer) {
        ground.add_server_evidence(&mut answer, order.previous.as_ref());
    }
    let written = write(&answer, files);
    if let Some(why) =
        order.previous.as_ref().and_then(|before| resumed::why_nothing_was_sent(before, &answer))
    {
        writeln!(stderr(), "{why}")?;
    }
    let code = exit_code(&answer, signals.received());
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
    let columns = if has_stdout { columns(stderr()) } else { columns(stdout()) };
    let text = screen::text(answer, columns.unwrap_or(screen::WIDE));
    let written = files.write(|| Ok(answer.to_json()?), || page::render(answer));
    written.and(if has_stdout { print_to_stderr(&text) } else { show(&text) })
}

fn show(text: &str) -> anyhow::Result<()> {
    let mut out = stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).context("cannot write to standard output")
}

/// What is shown where standard output is a file's; it may be closed.
fn print_to_stderr(text: &str) -> anyhow::Result<()> {
    let _ = stderr().lock().write_all(text.as_bytes());
    Ok(())
}

/// Reads a run that was written down.
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
