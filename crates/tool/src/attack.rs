//! `seawall attack`: sends, and writes down what came back.
//!
//! [`args`] says what may be typed, [`plan`] makes a checked plan of it, the engine opens a session for it with one trial, [`summary`] and [`attack_report`] say what
//! it came to, `lab` judges whether this machine was the limit, [`signals`] end it early, [`control_socket`] and [`page`] let others steer it.

pub(crate) mod args;
mod attack_report;
pub(crate) mod connection_args;
pub(crate) mod control_socket;
mod distributed_attack;
mod generator_pods;
mod hdr_log;
mod interval_files;
mod json_run_metadata;
mod latency_chart;
mod live;
pub(crate) mod load_args;
mod load_description;
mod objectives;
mod page;
pub(crate) mod plan;
mod prometheus;
pub(crate) mod request_args;
mod running_attack;
pub(crate) mod signals;
pub(crate) mod summary;
pub(crate) mod targets;
pub(crate) mod timeseries_file;
mod unreachable_warning;

use std::io::{Write, stderr, stdout};
use std::num::NonZero;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use seawall_lab::generator_resources;
use seawall_lab::objective::Objectives;
use seawall_lab::running_trial::{RunningTrial, TrialResult};
use seawall_lab::trial_judgement::Judgement;
use seawall_load::configuration::DOCUMENT_VERSION;
use seawall_load::control::RunStopReason;
use seawall_load::engine::{LoadSession, RunPlan, TrialStartError};
use seawall_load::input_files::InputFiles;
use seawall_load::interval_row::RunInfo;
use seawall_load::results::EncodeError;
use seawall_load::schedule::ArrivalModel;
use seawall_load::summary::Summary;

pub(crate) use self::args::AttackArgs;
use self::args::SummaryFormat;
use self::control_socket::{CommandHandler, ControlSocket};
use self::distributed_attack::DistributedAttack;
use self::distributed_attack::records::{self, AllPodsRecords};
use self::generator_pods::{AttackPodStatus, PodTracker};
use self::hdr_log::PendingHdrLog;
use self::interval_files::IntervalOutputFiles;
use self::json_run_metadata::RunMetadata;
use self::live::{LiveDisplay, LiveSetup};
use self::load_args::RecordsOutput;
use self::objectives::ObjectiveReport;
use self::page::{AttackPage, AttackPageContent};
use self::prometheus::Exporter;
use self::running_attack::{FinishedAttack, RunUpdate, RunningAttack};
use self::signals::{PendingSignals, ReceivedSignals};
use self::timeseries_file::{IntervalsFooter, IntervalsWriter};
use self::unreachable_warning::UnreachableWarning;
use crate::distributed::ready_pods::{self, AcquireOutcome};
use crate::distributed::{self, DistributedOptions};
use crate::exit;
use crate::generator_state;
use crate::live_page::PageServer;

/// Runs the command, with no more than `cpus` threads that send unless `--threads` says otherwise.
///
/// # Errors
/// Bad input, named; results, or another file, that could not be written.
pub(crate) fn run(args: &AttackArgs, cpus: Option<NonZero<usize>>) -> anyhow::Result<ExitCode> {
    if let Some(asked) = args.distributed_options()? {
        return from_pods(args, &asked);
    }
    let plan = plan::plan_attack(
        args,
        cpus.map_or_else(generator_resources::available_cores, NonZero::get),
        &InputFiles::default(),
        1,
    )?;
    let beside = AttackOutputs::open(args, &plan)?;
    // After that, because it empties a file.
    let results = plan::open_results_output(args)?;
    let (setup, load) = plan.split();
    let mut session = LoadSession::open(setup)?;
    let signals = PendingSignals::catch()?;
    let trial = session.start_trial(&load, results).map_err(label_start_error)?;
    // Before anything that may fail: what was begun is to be ended by whoever asks.
    let signals = signals.listen(trial.control())?;
    run_to_end(args, beside, Box::new(RunningTrial::new(trial, load.warm_up)), &signals)
}

/// The same from pods.
fn from_pods(args: &AttackArgs, asked: &DistributedOptions) -> anyhow::Result<ExitCode> {
    let files = InputFiles::capturing();
    let plan = plan::plan_attack(args, generator_resources::available_cores(), &files, asked.pod_count())?;
    let (clients, pods) = (plan.load.in_flight_limit.limit as u64, asked.pod_count());
    ensure!(
        clients >= pods,
        "the limit of {clients} requests in flight is below the number of pods, {pods}: each pod needs at least one request in flight"
    );
    let asked = asked.with_load_duration(plan.load.known_end().map(Duration::from_nanos));
    if asked.record_destination == distributed::RecordDestination::Local {
        records::check_records_fit(&plan.load, asked.pod_count())?;
    }
    if distributed::print_if_dry_run(&asked, &args.command_io(), &files)? {
        return Ok(ExitCode::SUCCESS);
    }
    let beside = AttackOutputs::open(args, &plan)?;
    // After that, because it empties a file.
    let results = if asked.record_destination == distributed::RecordDestination::Local {
        plan::open_results_output(args)?
    } else {
        None
    };
    let (crew, signals) = match ready_pods::acquire_pods(&asked, &args.command_io(), &files)? {
        AcquireOutcome::Ready(crew, signals) => (*crew, signals),
        AcquireOutcome::Interrupted(code) => return Ok(code),
    };
    // What fills the terminal shows news of pods itself, and whoever reads on finds them below it.
    let pods = PodTracker::new(!beside.live.is_full_screen());
    let records = results.map(AllPodsRecords::new);
    let run = DistributedAttack::begin(crew, &plan.load, pods, records, asked.on_pod_loss)?;
    let signals = signals.listen(run.control())?;
    run_to_end(args, beside, Box::new(run), &signals)
}

/// Who shows a run, steers it and writes it down.
struct AttackOutputs {
    metrics: Option<Exporter>,
    live: LiveSetup,
    page_server: Option<PageServer>,
    control_socket: Option<ControlSocket>,
    log: Option<PendingHdrLog>,
    intervals: Option<IntervalsWriter>,
    metadata: RunMetadata,
    facts: RunInfo,
    /// Only a signal ends the run.
    is_endless: bool,
}

impl AttackOutputs {
    /// All that is asked for. Empties the files that will be written, last.
    fn open(args: &AttackArgs, plan: &RunPlan) -> anyhow::Result<Self> {
        let facts = load_description::build_run_info(args, plan);
        if args.needs_default_duration() {
            // Nothing is lost if nobody can read it.
            let _ = writeln!(
                stderr(),
                "seawall: {} (defaults; -q, -n, -c and -z change them)",
                load_description::format_headline(&facts)
            );
        }
        if args.slo.iter().any(Objectives::limits_wrong_answers) && !plan::can_fail_expectations(plan) {
            check_wrong_answers_are_possible(plan)?;
        }
        Ok(Self {
            metrics: metrics(args, plan)?,
            live: LiveSetup::from_args(args, plan)?,
            page_server: args.live_page.map(PageServer::bind).transpose()?,
            control_socket: args.control_socket.as_deref().map(ControlSocket::bind).transpose()?,
            log: args.hdr.as_deref().map(PendingHdrLog::create).transpose()?,
            intervals: args.timeseries.as_deref().map(IntervalsWriter::create).transpose()?,
            metadata: RunMetadata::from_plan(plan),
            facts,
            is_endless: is_endless(plan),
        })
    }
}

/// An objective on wrong answers without a condition on responses: only a gRPC call can fail it, and gRPC needs HTTP/2.
///
/// # Errors
/// Every request is sent over HTTP/1.1, so the objective would always be met.
fn check_wrong_answers_are_possible(plan: &RunPlan) -> anyhow::Result<()> {
    anyhow::ensure!(
        plan::can_use_http2(plan),
        "--slo wrong-answers needs a condition on responses: add --expect, for example --expect 'body!~error' \
         (see seawall help conditions)"
    );
    // Nothing is lost if nobody can read it.
    let _ = writeln!(
        stderr(),
        "seawall: --slo wrong-answers: without --expect, only a failed gRPC call is a wrong answer"
    );
    Ok(())
}

/// Sees a run to its end, and says what it came to.
fn run_to_end(
    args: &AttackArgs,
    beside: AttackOutputs,
    mut run: Box<dyn RunningAttack + '_>,
    signals: &ReceivedSignals,
) -> anyhow::Result<ExitCode> {
    let AttackOutputs {
        metrics,
        live: stage,
        page_server: site,
        control_socket: mut helm,
        log,
        intervals,
        metadata: mut about,
        facts,
        is_endless,
    } = beside;
    if let Some(helm) = &mut helm {
        helm.start(run.control(), plan::max_closed_loop_clients()?)?;
    }
    let load = load_description::format_headline(&facts);
    // The view has the terminal for itself and says the same.
    let unreachable = (!stage.is_full_screen()).then(UnreachableWarning::default);
    let live = stage.start(run.control(), run.pods())?;
    about.set_start(run.began_unix_ns());
    let mut page = site.map(|site| open(site, facts, &about, &*run)).transpose()?;
    let mut written = IntervalOutputFiles::begin(log, intervals, run.began_unix_ns(), &about);
    watch(&mut *run, &mut written, metrics.as_ref(), (live, unreachable), page.as_mut());
    let FinishedAttack {
        trial_result: TrialResult { outcome, summary, judgement },
        pods,
        pod_errors: mistakes,
    } = run.finish(Objectives::merge_all(&args.slo).as_ref());
    let end = IntervalsFooter::from_outcome(&outcome, &judgement);
    let mut errors = written.finish(&end);
    errors.extend(mistakes.into_iter().map(anyhow::Error::msg));
    let chart = latency_chart::render(outcome.total_stats.all_times().response_time.distribution());
    let has_spent_errors = outcome.stop_reason == Some(RunStopReason::ErrorBudget);
    let head = summary::format_headline(&load, &judgement, has_spent_errors);
    errors.extend(report(args, &about, (&judgement, &summary), &pods, (head, chart)).err());
    if let Some(page) = page {
        page.end(end, summary::format_warnings(&judgement, &summary));
    }
    let whole = check_results(outcome.records_written, outcome.input_error, signals.first_signal())
        .map_err(|error| errors.push(error))
        .unwrap_or(false);
    if let RecordsOutput::File(file) = args.records_output() {
        errors.extend(generator_state::write_generator_state(file, &judgement).err());
    }
    report_errors(errors)?;
    let interrupted = signals.first_signal().filter(|_| !is_endless || !whole || signals.was_repeated());
    Ok(ExitCode::from(exit_code(&judgement, outcome.stop_reason, interrupted)))
}

/// Names the flag.
fn label_start_error(error: TrialStartError) -> anyhow::Error {
    match error {
        TrialStartError::Late(_) => anyhow::Error::from(error).context("--start-at"),
        TrialStartError::System(_) | TrialStartError::TargetsUsedUp | TrialStartError::SenderDied => {
            error.into()
        }
    }
}

/// The metrics endpoint, if one is asked for. It listens before anything is sent.
fn metrics(args: &AttackArgs, plan: &RunPlan) -> anyhow::Result<Option<Exporter>> {
    let address = Some(args.prometheus_addr.as_str()).filter(|address| !address.is_empty());
    address.map(|address| Exporter::listen(address, &plan.session.source)).transpose()
}

/// Opens the page of a run that has begun.
fn open(
    site: PageServer,
    facts: RunInfo,
    about: &RunMetadata,
    run: &dyn RunningAttack,
) -> anyhow::Result<AttackPage> {
    let hand = CommandHandler { control: run.control(), max_concurrency: plan::max_closed_loop_clients()? };
    AttackPage::start(site, AttackPageContent::new(facts, about.start(), hand, run.pods()))
}

/// Sees the trial to its end, interval by interval; whoever shows it is done with it then.
fn watch(
    run: &mut dyn RunningAttack,
    written: &mut IntervalOutputFiles,
    metrics: Option<&Exporter>,
    (mut live, mut unreachable): (Option<LiveDisplay>, Option<UnreachableWarning>),
    mut page: Option<&mut AttackPage>,
) {
    run.watch(&mut |news| {
        let RunUpdate::IntervalMeasured(interval) = news else {
            if let Some(page) = &page {
                page.notify_pods_changed();
            }
            return;
        };
        written.write_interval(interval);
        if let Some(metrics) = metrics {
            metrics.add_interval(interval);
        }
        if let Some(live) = &mut live {
            live.add_interval(interval);
        }
        if let Some(warning) =
            unreachable.as_mut().and_then(|unreachable| unreachable.check_interval(interval))
        {
            // Standard error may be closed; the run goes on.
            let _ = writeln!(stderr(), "seawall: {warning}");
        }
        if let Some(page) = &mut page {
            page.add_interval(interval);
        }
    });
}

/// Whether a signal is the only way to end the run, so that it is no interruption.
fn is_endless(plan: &RunPlan) -> bool {
    let goes_on = match &plan.load.arrivals {
        ArrivalModel::Open(schedule) => schedule.end().is_none(),
        ArrivalModel::Closed => true,
    };
    goes_on && plan.load.stop_condition == Default::default()
}

/// The summary, where it does not mix with results.
fn report(
    args: &AttackArgs,
    about: &RunMetadata,
    (judgement, summary): (&Judgement, &Summary),
    pods: &[AttackPodStatus],
    (head, chart): (String, String),
) -> anyhow::Result<()> {
    let machine = &judgement.machine_findings[..];
    let on_stdout = plan::are_results_on_stdout(args);
    let format = args.summary.unwrap_or(if on_stdout { SummaryFormat::None } else { SummaryFormat::Text });
    let text = match format {
        SummaryFormat::Text => {
            head + &summary::format_summary(judgement, summary)
                + &chart
                + &generator_pods::format_table(pods)
                + &attack_report::format_machine_notes(machine)
        }
        SummaryFormat::Json => {
            let (kind, version) = ("attack", DOCUMENT_VERSION);
            let objectives = ObjectiveReport::all_from_judgement(judgement);
            let report = attack_report::AttackReport {
                kind,
                version,
                metadata: about,
                objectives,
                judgement,
                summary,
                machine,
                pods,
            };
            serde_json::to_string(&report)? + "\n"
        }
        SummaryFormat::None => summary::format_warnings(judgement, summary),
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
    mistake: Option<seawall_load::target::TargetError>,
    signal: Option<i32>,
) -> anyhow::Result<bool> {
    if let Some(mistake) = mistake {
        return Err(mistake.into());
    }
    match written {
        // The reader has seen enough: `seawall attack | head` is no mistake.
        Err(EncodeError::Io(error)) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(true),
        Err(EncodeError::EndedWhileOutputBlocked) if signal.is_some() => {
            // Standard error may be closed; the exit code says it, too.
            let _ = writeln!(
                stderr(),
                "seawall: results are incomplete: {}",
                EncodeError::EndedWhileOutputBlocked
            );
            Ok(false)
        }
        Err(error) => Err(error).context("cannot write the results"),
        Ok(_) => Ok(true),
    }
}

/// Says all of them: the last where the program ends, the others here.
fn report_errors(mut errors: Vec<anyhow::Error>) -> anyhow::Result<()> {
    let last = errors.pop();
    for error in errors {
        // Standard error may be closed; the exit code says it, too.
        let _ = writeln!(stderr(), "seawall: {error:#}");
    }
    last.map_or(Ok(()), Err)
}

/// The exit code of a run that took place. That of a signal comes first; then a generator that was the limit, for what it measured
/// proves nothing.
fn exit_code(judgement: &Judgement, early: Option<RunStopReason>, signal: Option<i32>) -> u8 {
    if let Some(signal) = signal {
        return exit::from_signal(signal);
    }
    let Some(holds) = judgement.meets_objectives() else {
        // Standard error may be closed; the exit code says it, too.
        let _ = writeln!(stderr(), "seawall: {}", attack_report::describe_missing_verdict(judgement));
        return exit::GENERATOR_LIMITED;
    };
    for missed in judgement.missed_objectives() {
        // Standard error may be closed; the exit code says it, too.
        let _ = writeln!(stderr(), "seawall: missed {}: {}", missed.objective, missed.measured_text);
    }
    let spent = early == Some(RunStopReason::ErrorBudget);
    if spent {
        // Standard error may be closed; the exit code says it, too.
        let _ = writeln!(stderr(), "seawall: {}", summary::STOPPED_BY_MAX_ERRORS);
    }
    if holds && !spent { 0 } else { exit::SLO_MISSED }
}
