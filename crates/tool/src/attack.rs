//! `seawall attack`: sends, and writes down what came back.
//!
//! [`args`] says what may be typed, [`plan`] makes a checked plan of it, the engine opens a session for it with one trial, [`summary`] and [`machine`] say what
//! it came to, `lab` judges whether this machine was the limit, [`signals`] end it early, [`helm`] and [`page`] let others steer it.

mod about;
pub(crate) mod aim;
pub(crate) mod args;
mod facts;
pub(crate) mod helm;
pub(crate) mod intervals;
mod live;
mod log;
mod machine;
mod many;
mod page;
pub(crate) mod plan;
mod pods;
mod prometheus;
mod running;
pub(crate) mod signals;
pub(crate) mod summary;
pub(crate) mod travel;
mod written;

use std::io::{Write, stderr, stdout};
use std::num::NonZero;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use seawall_lab::carry::{Carriage, Carried};
use seawall_lab::judgement::Judgement;
use seawall_lab::means;
use seawall_load::control::Early;
use seawall_load::engine::{Plan, Session, StartError};
use seawall_load::files::Files;
use seawall_load::results::EncodeError;
use seawall_load::rows::Facts;
use seawall_load::schedule::Arrivals;
use seawall_load::summary::Summary;

use self::about::About;
pub(crate) use self::args::Args;
use self::args::SummaryFormat;
use self::helm::{Hand, Helm};
use self::intervals::{End, Intervals};
use self::live::{Live, Stage};
use self::log::Blank;
use self::many::Many;
use self::many::records::{self, Records};
use self::page::{Page, Shown};
use self::pods::{Pods, Row};
use self::prometheus::Exporter;
use self::running::{Finished, News, Running};
use self::signals::{Held, Signals};
use self::written::Written;
use crate::exit;
use crate::on::crew::{self, Called};
use crate::on::{self, Asked};
use crate::page::Site;

/// Runs the command, with no more than `cpus` threads that send unless `--threads` says otherwise.
///
/// # Errors
/// Bad input, named; results, or another file, that could not be written.
pub(crate) fn run(args: &Args, cpus: Option<NonZero<usize>>) -> anyhow::Result<ExitCode> {
    if let Some(asked) = args.asked()? {
        return from_pods(args, &asked);
    }
    let plan = plan::plan(args, cpus.map_or_else(means::cores, NonZero::get), &Files::default(), 1)?;
    let beside = Beside::open(args, &plan)?;
    // After that, because it empties a file.
    let results = plan::results(args)?;
    let (setup, load) = plan.split();
    let mut session = Session::open(setup)?;
    let signals = Held::hold()?;
    let trial = session.trial(&load, results).map_err(late)?;
    // Before anything that may fail: what was begun is to be ended by whoever asks.
    let signals = signals.listen(trial.steer())?;
    see(args, beside, Box::new(Carriage::new(trial, load.warm_up)), &signals)
}

/// The same from pods.
fn from_pods(args: &Args, asked: &Asked) -> anyhow::Result<ExitCode> {
    let files = Files::keeping();
    let plan = plan::plan(args, means::cores(), &files, asked.pods())?;
    let (clients, pods) = (plan.load.in_flight.most as u64, asked.pods());
    ensure!(
        clients >= pods,
        "{clients} in flight at most are fewer than {pods} pods, each of which has one at least"
    );
    let asked = asked.lasting(plan.load.ends().map(Duration::from_nanos));
    if asked.written == on::Written::Here {
        records::check(&plan.load, asked.pods())?;
    }
    if on::prints(&asked, &args.beside(), &files)? {
        return Ok(ExitCode::SUCCESS);
    }
    let beside = Beside::open(args, &plan)?;
    // After that, because it empties a file.
    let results = if asked.written == on::Written::Here { plan::results(args)? } else { None };
    let (crew, signals) = match crew::called(&asked, &args.beside(), &files)? {
        Called::Ready(crew, signals) => (*crew, signals),
        Called::Interrupted(code) => return Ok(code),
    };
    // What fills the terminal shows news of pods itself, and whoever reads on finds them below it.
    let pods = Pods::new(!beside.stage.is_view());
    let records = results.map(Records::new);
    let run = Many::begin(crew, &plan.load, pods, records, asked.when_pod_fails)?;
    let signals = signals.listen(run.steer())?;
    see(args, beside, Box::new(run), &signals)
}

/// Who shows a run, steers it and writes it down.
struct Beside {
    metrics: Option<Exporter>,
    stage: Stage,
    site: Option<Site>,
    helm: Option<Helm>,
    log: Option<Blank>,
    intervals: Option<Intervals>,
    about: About,
    facts: Facts,
    /// Only a signal ends the run.
    is_endless: bool,
}

impl Beside {
    /// All that is asked for. Empties the files that will be written, last.
    fn open(args: &Args, plan: &Plan) -> anyhow::Result<Self> {
        Ok(Self {
            metrics: metrics(args, plan)?,
            stage: Stage::of(args, plan)?,
            site: args.page.map(Site::bind).transpose()?,
            helm: args.control.as_deref().map(Helm::bind).transpose()?,
            log: args.hdr.as_deref().map(Blank::create).transpose()?,
            intervals: args.intervals.as_deref().map(Intervals::create).transpose()?,
            about: About::of(plan),
            facts: facts::of(args, plan),
            is_endless: is_endless(plan),
        })
    }
}

/// Sees a run to its end, and says what it came to.
fn see(
    args: &Args,
    beside: Beside,
    mut run: Box<dyn Running + '_>,
    signals: &Signals,
) -> anyhow::Result<ExitCode> {
    let Beside { metrics, stage, site, mut helm, log, intervals, mut about, facts, is_endless } = beside;
    if let Some(helm) = &mut helm {
        helm.steer(run.steer(), plan::most_clients()?)?;
    }
    let live = stage.start(run.steer(), run.pods())?;
    about.begins(run.began_unix_ns());
    let mut page = site.map(|site| open(site, facts, &about, &*run)).transpose()?;
    let mut written = Written::begin(log, intervals, run.began_unix_ns(), &about);
    watch(&mut *run, &mut written, metrics.as_ref(), live, page.as_mut());
    let Finished { carried: Carried { outcome, summary, judgement }, pods, mistakes } =
        run.finish(args.slo.as_ref());
    let end = End::of(&outcome, &judgement);
    let mut errors = written.end(&end);
    errors.extend(mistakes.into_iter().map(anyhow::Error::msg));
    errors.extend(report(args, &about, (&judgement, &summary), &pods).err());
    if let Some(page) = page {
        page.end(end, summary::warnings(&judgement, &summary));
    }
    let whole = check_results(outcome.written, outcome.mistake, signals.received())
        .map_err(|error| errors.push(error))
        .unwrap_or(false);
    all(errors)?;
    let interrupted = signals.received().filter(|_| !is_endless || !whole || signals.insisted());
    Ok(ExitCode::from(code(&judgement, outcome.early, interrupted)))
}

/// Names the flag.
fn late(error: StartError) -> anyhow::Error {
    match error {
        StartError::Late(_) => anyhow::Error::from(error).context("--start-at"),
        StartError::System(_) | StartError::Spent | StartError::Gone => error.into(),
    }
}

/// The metrics endpoint, if one is asked for. It listens before anything is sent.
fn metrics(args: &Args, plan: &Plan) -> anyhow::Result<Option<Exporter>> {
    let address = Some(args.prometheus_addr.as_str()).filter(|address| !address.is_empty());
    address.map(|address| Exporter::listen(address, &plan.setup.source)).transpose()
}

/// Opens the page of a run that has begun.
fn open(site: Site, facts: Facts, about: &About, run: &dyn Running) -> anyhow::Result<Page> {
    let hand = Hand { control: run.steer(), most_clients: plan::most_clients()? };
    Page::start(site, Shown::new(facts, about.start(), hand, run.pods()))
}

/// Sees the trial to its end, interval by interval; whoever shows it is done with it then.
fn watch(
    run: &mut dyn Running,
    written: &mut Written,
    metrics: Option<&Exporter>,
    mut live: Option<Live>,
    mut page: Option<&mut Page>,
) {
    run.watch(&mut |news| {
        let News::Measured(interval) = news else {
            if let Some(page) = &page {
                page.changed();
            }
            return;
        };
        written.add(interval);
        if let Some(metrics) = metrics {
            metrics.add(interval);
        }
        if let Some(live) = &mut live {
            live.add(interval);
        }
        if let Some(page) = &mut page {
            page.add(interval);
        }
    });
}

/// Whether a signal is the only way to end the run, so that it is no interruption.
fn is_endless(plan: &Plan) -> bool {
    let goes_on = match &plan.load.arrivals {
        Arrivals::Open(schedule) => schedule.end().is_none(),
        Arrivals::Closed => true,
    };
    goes_on && plan.load.until == Default::default()
}

/// The summary, where it does not mix with results.
fn report(
    args: &Args,
    about: &About,
    (judgement, summary): (&Judgement, &Summary),
    pods: &[Row],
) -> anyhow::Result<()> {
    let machine = &judgement.machine[..];
    let on_stdout = plan::results_on_stdout(args);
    let format = args.summary.unwrap_or(if on_stdout { SummaryFormat::None } else { SummaryFormat::Text });
    let text = match format {
        SummaryFormat::Text => {
            summary::text(judgement, summary) + &pods::table(pods) + &machine::notes(machine)
        }
        SummaryFormat::Json => {
            serde_json::to_string(&machine::Report { about, judgement, summary, machine, pods })? + "\n"
        }
        SummaryFormat::None => summary::warnings(judgement, summary),
    };
    let written = if on_stdout || format == SummaryFormat::None {
        stderr().write_all(text.as_bytes())
    } else {
        stdout().write_all(text.as_bytes()).and_then(|()| stdout().flush())
    };
    written.context("cannot write the summary")
}

/// Results that are not all there, and targets that could not be read to the end, are errors whatever was measured; but
/// who interrupts the run twice has asked for it, and is told. True when the results are whole, or nobody wants the rest.
fn check_results(
    written: Result<u64, EncodeError>,
    mistake: Option<seawall_load::target::Mistake>,
    signal: Option<i32>,
) -> anyhow::Result<bool> {
    if let Some(mistake) = mistake {
        return Err(mistake.into());
    }
    match written {
        // The reader has seen enough: `seawall attack | head` is no mistake.
        Err(EncodeError::Io(error)) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(true),
        Err(EncodeError::Unread) if signal.is_some() => {
            // Standard error may be closed; the exit code says it, too.
            let _ = writeln!(stderr(), "seawall: results are incomplete: {}", EncodeError::Unread);
            Ok(false)
        }
        Err(error) => Err(error).context("results could not be written"),
        Ok(_) => Ok(true),
    }
}

/// Says all of them: the last where the program ends, the others here.
fn all(mut errors: Vec<anyhow::Error>) -> anyhow::Result<()> {
    let last = errors.pop();
    for error in errors {
        // Standard error may be closed; the exit code says it, too.
        let _ = writeln!(stderr(), "seawall: {error:#}");
    }
    last.map_or(Ok(()), Err)
}

/// The exit code of a run that took place. That of a signal comes first; then a generator that was the limit, for what it measured
/// proves nothing.
fn code(judgement: &Judgement, early: Option<Early>, signal: Option<i32>) -> u8 {
    if let Some(signal) = signal {
        return exit::signalled(signal);
    }
    let Some(holds) = judgement.holds() else { return exit::GENERATOR_LIMITED };
    for missed in &judgement.missed {
        // Standard error may be closed; the exit code says it, too.
        let _ = writeln!(stderr(), "seawall: missed {}: {}", missed.objective, missed.measured);
    }
    let spent = early == Some(Early::ErrorBudget);
    if holds && !spent { 0 } else { exit::OBJECTIVE_MISSED }
}
