//! `seawall find`: the rate at which a target breaks, and why.
//!
//! [`args`] says what may be typed, [`plan`] makes a checked plan of it, [`ground`] is where what offers the load is joined, `lab`
//! carries the run out, [`progress`] tells of it, [`screen`] and [`page`] show what it came to, [`crate::draft`] writes files that are there as a
//! whole or not at all, [`reach`] asks first whether there is a target, [`sent`] keeps what a continued run must send again, [`signals`] end it early, [`gate`] compares two runs. Knows no search and no cause.

pub(crate) mod args;
pub(crate) mod gate;
pub(crate) mod ground;
mod page;
pub(crate) mod plan;
mod pods;
pub(crate) mod progress;
pub(crate) mod reach;
pub(crate) mod screen;
mod sent;
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
use seawall_lab::find::answer::{Answer, Cut, Outcome};
use seawall_lab::find::witness::Witnessed;
use seawall_lab::find::{closed, find, has_nothing_left, nothing_yet, read};
use seawall_load::files::Files as Read;

pub(crate) use self::args::Args;
use self::ground::{Kit, Site};
use self::plan::Order;
use self::pods::Pods;
use self::progress::{Followed, Progress};
use self::signals::Signals;
use crate::draft::Files;
use crate::exit;
use crate::on::crew::{self, Called};
use crate::on::{self, Asked};
use crate::searching::Page;
use crate::wrap::columns;

/// Runs the command, with no more than `cpus` threads that send.
///
/// # Errors
/// Bad input, named: nothing was sent then. Or a file that could not be written.
pub(crate) fn run(args: &Args, cpus: Option<NonZero<usize>>) -> anyhow::Result<ExitCode> {
    args.check()?;
    if let [before, after] = &args.compare[..] {
        return gate::run(before, after);
    }
    if let Some(asked) = args.asked()? {
        let files = Read::keeping();
        let planned = plan::plan(args, plan::cores(), &files)?;
        let asked = asked.lasting(planned.0.plan.budget);
        if on::prints(&asked, &args.beside(), &files)? {
            return Ok(ExitCode::SUCCESS);
        }
        return from_pods(args, planned, &asked, &files);
    }
    let (order, kit) = plan::plan(args, cpus.map_or_else(plan::cores, NonZero::get), &Read::default())?;
    let page = args.page.map(crate::page::Site::bind).transpose()?;
    ensure!(page.is_none() || !is_whole(&order)?, WHOLE);
    let files = Files::create(args.json.as_deref(), args.html.as_deref())?;
    let progress = Progress::to_stderr()?;
    let site = ground::open(kit, progress.observer())?;
    carry_out(&order, site, page, files, progress).map(ExitCode::from)
}

/// The same from pods.
fn from_pods(
    args: &Args,
    (order, kit): (Order, Kit),
    asked: &Asked,
    files: &Read,
) -> anyhow::Result<ExitCode> {
    ensure!(order.closed.is_none(), "--closed: pods offer rates, and no clients that wait for answers");
    let page = args.page.map(crate::page::Site::bind).transpose()?;
    ensure!(page.is_none() || !is_whole(&order)?, WHOLE);
    let drafts = Files::create(args.json.as_deref(), args.html.as_deref())?;
    let crew = match crew::called(asked, &args.beside(), files)? {
        Called::Ready(crew, _) => *crew,
        Called::Interrupted(code) => return Ok(code),
    };
    let progress = Progress::to_stderr()?;
    let most = asked.most_pods.map_or(crew.fleet.size(), |most| most as usize);
    let pods = Pods::new(crew, asked.when_pod_fails, most, progress.observer());
    let (stop, bound) = (pods::ending(&pods.stop()), kit.late);
    let site = Site { ground: Box::new(pods), stop, sight: ground::sight(kit.side), bound, reach: None };
    carry_out(&order, site, page, drafts, progress).map(ExitCode::from)
}

const WHOLE: &str = "--page: the run of --from has nothing left to do, so that there is nothing to follow: --html writes its page";

/// Whether the run that is continued is at its end.
fn is_whole(order: &Order) -> anyhow::Result<bool> {
    let whole = order.before.as_ref().map(|before| has_nothing_left(&order.plan, before));
    Ok(whole.transpose().context("--from")?.unwrap_or(false))
}

/// The run on a ground, whatever that is; answers with the exit code.
fn carry_out(
    order: &Order,
    site: Site,
    page: Option<crate::page::Site>,
    files: Files,
    progress: Progress,
) -> anyhow::Result<u8> {
    let Site { mut ground, stop, sight, bound, reach } = site;
    let signals = Signals::listen(box_of(&stop), files.drafts())?;
    if let Some(reach) = reach
        && let Err(error) = reach.ask(&order.plan.target.url, || signals.received().is_some())
    {
        progress.end();
        return Err(error);
    }
    let known = || order.before.clone().unwrap_or_else(|| nothing_yet(&order.plan));
    let mut page = page.map(|site| Page::open(site, known(), box_of(&stop))).transpose()?;
    let mut ground = Witnessed::new(&mut *ground, sight, bound);
    let mut watcher = (progress, page.as_mut().map(Followed::whole));
    let found = match order.closed {
        Some(clients) => Ok(closed::find(&mut ground, &order.plan, clients.most, &mut watcher)),
        None => find(&mut ground, &order.plan, order.before.as_ref(), &mut watcher),
    };
    watcher.0.end();
    let mut answer = found.context("--from")?;
    // A whole run has had its word already.
    if order.before.as_ref() != Some(&answer) {
        ground.testify(&mut answer, order.before.as_ref());
    }
    let written = write(&answer, files);
    let code = code(&answer, signals.received());
    if let Some(page) = page {
        page.end(answer);
    }
    written.and(Ok(code))
}

fn box_of(stop: &Arc<dyn Fn() + Send + Sync>) -> Box<dyn Fn() + Send> {
    let stop = Arc::clone(stop);
    Box::new(move || stop())
}

/// The screen after the files: it is the file that must not be lost.
fn write(answer: &Answer, files: Files) -> anyhow::Result<()> {
    let has_stdout = files.has_stdout;
    let columns = if has_stdout { columns(stderr()) } else { columns(stdout()) };
    let text = screen::text(answer, columns.unwrap_or(screen::WIDE));
    let written = files.write(|| Ok(answer.to_json()?), || page::render(answer));
    written.and(if has_stdout { tell(&text) } else { show(&text) })
}

fn show(text: &str) -> anyhow::Result<()> {
    let mut out = stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).context("cannot write to standard output")
}

/// What is shown where standard output is a file's; it may be closed.
fn tell(text: &str) -> anyhow::Result<()> {
    let _ = stderr().lock().write_all(text.as_bytes());
    Ok(())
}

/// Reads a run that was written down.
fn earlier(path: &Path) -> anyhow::Result<Answer> {
    let file = std::fs::File::open(path).with_context(|| format!("cannot read {}", path.display()))?;
    read::read(file).with_context(|| path.display().to_string())
}

/// A signal that cut a run off comes first; then how it ended.
fn code(answer: &Answer, signal: Option<i32>) -> u8 {
    match (signal, answer.cut, answer.outcome) {
        (Some(signal), Some(Cut::Signal), _) => exit::signalled(signal),
        (_, _, Outcome::Found) => exit::FOUND,
        (_, _, Outcome::Metastable) => exit::METASTABLE,
        (_, _, Outcome::Capped) => exit::CAPPED,
        (_, _, Outcome::GeneratorLimited) => exit::GENERATOR_LIMITED,
        (_, _, Outcome::UnstableBaseline) => exit::UNSTABLE,
        (_, _, Outcome::Gone) => exit::GONE,
        (_, _, Outcome::Interrupted) => exit::CANNOT_TELL,
    }
}
