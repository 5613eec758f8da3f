//! `seawall isolate`: which of several ways to a target is slower, and which are not.
//!
//! [`args`] says what may be typed, [`vary`] which ways the built-in factors are, [`mod@file`] reads ways from an experiment file, [`plan`]
//! makes of all of them a checked plan, `lab` carries it out, on [`pods`] where these are to send, [`limits`] has the ways that matter searched for what they bear, [`screen`] and [`page`] show what it came to. Knows no statistics.

mod args;
mod file;
mod limits;
mod page;
pub(crate) mod plan;
mod pods;
mod screen;
#[cfg(test)]
mod tests;
mod vary;
mod way;

use std::io::{IsTerminal as _, Write as _, stderr, stdout};
use std::num::NonZero;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use seawall_isolate::study::Study;
use seawall_lab::isolate::answer::{Answer, Outcome, Word};
use seawall_lab::isolate::limits::{Found, Searches};
use seawall_lab::isolate::{Paths, Plan, isolate, nothing_yet};
use seawall_lab::means::cores;
use seawall_lab::rig::Stop;
use seawall_load::files::Files as Read;

pub(crate) use self::args::Args;
use self::plan::Order;
use self::pods::Pods;
use crate::draft::Files;
use crate::exit;
use crate::find::signals::Signals;
use crate::find::words::{many, waiting};
use crate::on;
use crate::on::crew::{self, Called};
use crate::page::Site;
use crate::searching::{Doing, Page};
use crate::wrap::{columns, cut};

/// Runs the command, with no more than `cpus` threads that send.
///
/// # Errors
/// Bad input, named: no load was sent then. Or a file that could not be written.
pub(crate) fn run(args: &Args, cpus: Option<NonZero<usize>>) -> anyhow::Result<ExitCode> {
    args.check()?;
    if let Some(asked) = args.asked()? {
        let files = Read::keeping();
        return from_pods(args, &asked.lasting(Some(args.budget())), &files);
    }
    let order = plan::plan(args, cpus.map_or_else(cores, NonZero::get), &Read::default())?;
    let page = args.page.map(Site::bind).transpose()?;
    let files = Files::create(args.json.as_deref(), args.html.as_deref())?;
    carry_out(order, page, files, args.is_comparison()).map(ExitCode::from)
}

/// The same from pods.
fn from_pods(args: &Args, asked: &on::Asked, read: &Read) -> anyhow::Result<ExitCode> {
    ensure!(!args.searches(), plan::NO_SEARCH);
    plan::check(args, read, usize::try_from(asked.pods()).unwrap_or(usize::MAX))?;
    if on::prints(asked, &args.beside(), read)? {
        return Ok(ExitCode::SUCCESS);
    }
    let page = args.page.map(Site::bind).transpose()?;
    let files = Files::create(args.json.as_deref(), args.html.as_deref())?;
    let crew = match crew::called(asked, &args.beside(), read)? {
        Called::Ready(crew, _) => crew,
        Called::Interrupted(code) => return Ok(code),
    };
    let mut pods = Pods::new(*crew, asked.when_pod_fails);
    let stop = pods.stop();
    let button = stop.clone();
    let signals = Signals::listen(Box::new(move || stop.now()), files.drafts())?;
    let ways = match (pods.ways(), signals.received()) {
        (_, Some(signal)) => return Ok(ExitCode::from(exit::signalled(signal))),
        (ways, None) => ways?,
    };
    let plan = plan::plan_told(args, ways, pods.size())?;
    let mut page = page.map(|site| Page::open(site, nothing_yet(&plan), ending(button))).transpose()?;
    let answer = compared(&mut pods, &plan, None, page.as_mut());
    drop(pods);
    ended(answer, page, files, &signals, args.is_comparison()).map(ExitCode::from)
}

fn ending(stop: Stop) -> Box<dyn Fn() + Send> {
    Box::new(move || stop.now())
}

fn carry_out(order: Order, page: Option<Site>, files: Files, is_comparison: bool) -> anyhow::Result<u8> {
    let Order { plan, searches, mut bench, reaches } = order;
    let signals = Signals::listen(ending(bench.stop()), files.drafts())?;
    plan::reach(reaches, || signals.received().is_some())?;
    let mut page = page.map(|site| Page::open(site, nothing_yet(&plan), ending(bench.stop()))).transpose()?;
    let answer = compared(&mut bench, &plan, searches.as_ref(), page.as_mut());
    let find = searches.map(|searches| limits::search(&bench, &searches, &answer, page.as_mut()));
    ended(answer.with(find), page, files, &signals, is_comparison)
}

/// What the comparison comes to, of which is told while it goes on.
fn compared(
    paths: &mut dyn Paths,
    plan: &Plan,
    searches: Option<&Searches>,
    mut page: Option<&mut Page<Answer>>,
) -> Answer {
    let is_live = stderr().is_terminal();
    // Standard error may be closed; the experiment goes on.
    let beforehand = screen::beforehand(plan, searches) + "\n";
    let beforehand = columns(stderr()).map_or(beforehand.clone(), |wide| screen::fitted(&beforehand, wide));
    let _ = write!(stderr(), "{beforehand}");
    let answer = isolate(paths, plan, &mut |study, so_far| {
        tell(plan, study, is_live);
        if let Some(page) = &mut page {
            page.knows(so_far());
            page.does(doing(plan, study));
        }
    });
    if is_live {
        let _ = write!(stderr(), "\r\x1b[K");
    }
    answer
}

/// Everything is told; the exit code.
fn ended(
    answer: Answer,
    page: Option<Page<Answer>>,
    files: Files,
    signals: &Signals,
    is_comparison: bool,
) -> anyhow::Result<u8> {
    let written = show(&answer, files);
    let code = code(&answer, signals.received(), is_comparison);
    if let Some(page) = page {
        page.end(answer);
    }
    written.and(Ok(code))
}

/// The screen after the files: it is the file that must not be lost.
fn show(answer: &Answer, files: Files) -> anyhow::Result<()> {
    let has_stdout = files.has_stdout;
    let columns = if has_stdout { columns(stderr()) } else { columns(stdout()) };
    let text = columns.map_or_else(|| screen::text(answer), |columns| screen::within(answer, columns));
    let json =
        || Ok(format!("{}\n", serde_json::to_string_pretty(answer).context("cannot be written as JSON")?));
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

/// How far it is, so long after its last segment ended.
fn doing(plan: &Plan, study: &Study) -> Doing {
    let (spent, budget) = (study.spent(), waiting(plan.asked.budget.as_secs_f64()));
    let cells = many(study.cells().count() as u64, "cell");
    let ways = many(plan.asked.designs.len() as u64, "way");
    let decided = study.decided();
    Box::new(move |since| {
        let spent = waiting((spent + since).as_secs_f64());
        format!("{spent} of {budget} · {cells} · {decided} of {ways} decided")
    })
}

/// One line that lives on a terminal, elsewhere one for each segment.
fn tell(plan: &Plan, study: &Study, is_live: bool) {
    let line = doing(plan, study)(Duration::ZERO);
    let _ = if is_live {
        // A line that goes on below itself is not written over.
        let wide = columns(stderr()).unwrap_or(80).saturating_sub(1).max(1);
        write!(stderr(), "\r\x1b[K{}", cut(&line, wide))
    } else {
        writeln!(stderr(), "{line}")
    };
}

/// A signal comes first; then how it ended.
fn code(answer: &Answer, signal: Option<i32>, is_comparison: bool) -> u8 {
    let is_worse = answer
        .variants
        .iter()
        .any(|way| matches!(way.verdict, Word::Slower | Word::TailSlower | Word::FailsMore));
    let is_unlike = answer.said(Word::Equal).any(|way| screen::unlike_tail(answer, way).is_some());
    let is_untold = answer.find.as_ref().is_some_and(|found| !found.is_told());
    let is_interrupted =
        answer.outcome == Outcome::Interrupted || answer.find.as_ref().is_some_and(Found::is_interrupted);
    let bears_less = answer.find.as_ref().is_some_and(Found::has_worse);
    match (signal, answer.outcome) {
        (Some(signal), _) if is_interrupted => exit::signalled(signal),
        // The searches are held beside each other, however the comparison ended.
        _ if is_comparison && bears_less => exit::OBJECTIVE_MISSED,
        // Where a tail is lacking the middle is told all the same.
        (_, Outcome::Decided | Outcome::Undecided) if is_comparison && is_worse => exit::OBJECTIVE_MISSED,
        // What the one build answers at this rate, and the other does not, is no matter of the rate.
        (_, Outcome::Overloaded) if is_comparison && answer.bears_less().is_some() => exit::OBJECTIVE_MISSED,
        // Whoever lets a build through for this must not let one of a thousand slow requests through, nor a limit that nobody knows.
        (_, Outcome::Decided) if is_comparison && (is_unlike || is_untold) => exit::CANNOT_TELL,
        (_, Outcome::Decided) => exit::FOUND,
        (_, Outcome::GeneratorLimited) => exit::GENERATOR_LIMITED,
        (_, Outcome::Undecided | Outcome::Overloaded | Outcome::Interrupted) => exit::CANNOT_TELL,
        (_, Outcome::Failed) => exit::BAD_INPUT,
    }
}
