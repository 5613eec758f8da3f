//! Makes an [`Answer`] of what a search and an inquiry know, and puts into words why a trial points where it does.

use std::time::Duration;

use seawall_cause::class::Class;
use seawall_cause::report as cause;
use seawall_search::belief::Bracket;
use seawall_search::evidence::Share;
use seawall_search::offer::Purpose;
use seawall_search::report::{self, Report};
use seawall_search::search::Search;
use seawall_search::seen::{Beside, Block, mean_latency};
use seawall_search::vote;

use super::answer::{self, Answer, Cut, Generator, Limit, Outcome, SCHEMA, Trial, Vote};
use super::plan::Plan;

/// A run that was ended before it had begun.
pub(super) fn nothing(plan: &Plan, generator: Generator, took: Duration) -> Answer {
    let report = Search::new(plan.goal, plan.profile, plan.bounds(None)).report();
    let answer = search(plan, &report, Some(Cut::Signal));
    Answer { generator, took: took.as_secs_f64(), ..answer }
}

/// What is known without the cause.
pub(crate) fn search(plan: &Plan, report: &Report, cut: Option<Cut>) -> Answer {
    let outcome = outcome(report);
    let is_between = !matches!(
        outcome,
        Outcome::Capped | Outcome::GeneratorLimited | Outcome::UnstableBaseline | Outcome::Gone
    );
    let limit = |limit: &report::Limit| self::limit(limit, report, is_between);
    Answer {
        schema: SCHEMA,
        outcome,
        cut,
        left_out: cut.filter(|cut| *cut == Cut::Budget).map(|_| TRIALS.to_owned()).into_iter().collect(),
        asked: plan.asked(),
        generator: Generator::default(),
        cliff: limit(&report.cliff),
        knee: report.knee.map(|knee| limit(&kept(knee, report))).unwrap_or_default(),
        fails: report.kind.map(Into::into),
        goodput: report.goodput.filter(|_| report.cliff.bad.is_some()),
        burst: report.burst,
        depletion: report
            .depletion
            .map(|found| answer::Depletion { after: found.after, goodput: found.goodput }),
        allowance: report.allowance.filter(|held| held.held >= HELD).map(|held| answer::Allowance {
            rate: held.rate,
            held: held.held.as_secs_f64(),
            requests: held.requests,
        }),
        closed: None,
        recovery: answer::Recovery {
            calm: report.recovery.calm.map(|calm| calm.as_secs_f64()),
            holds: report.recovery.holds,
        },
        cause: None,
        also: Vec::new(),
        ties: Vec::new(),
        excluded: Vec::new(),
        untested: Vec::new(),
        experiments: Vec::new(),
        gone: None,
        server_side: Vec::new(),
        trials: report.trials.iter().map(trial).collect(),
        grants: Vec::new(),
        took: report.took.as_secs_f64(),
    }
}

/// What a search has no time left for.
const TRIALS: &str = "trials that the search still wanted";

/// Adds the experiment that an inquiry had no time left for.
pub(super) fn left_out(answer: &mut Answer, experiment: Option<&str>) {
    let first = experiment.map(|name| format!("the experiment \"{name}\" and what follows it"));
    answer.left_out.push(first.unwrap_or_else(|| "experiments on the cause".to_owned()));
}

/// Whether there is a limit to ask the cause of.
pub(super) fn is_found(report: &Report) -> bool {
    matches!(outcome(report), Outcome::Found | Outcome::Metastable)
}

/// A search that had no more time has found what was between two rates that were tested.
fn outcome(report: &Report) -> Outcome {
    match report.outcome {
        Some(report::Outcome::Found) => Outcome::Found,
        Some(report::Outcome::Metastable) => Outcome::Metastable,
        Some(report::Outcome::Capped) => Outcome::Capped,
        Some(report::Outcome::GeneratorLimited) => Outcome::GeneratorLimited,
        Some(report::Outcome::UnstableBaseline) => Outcome::UnstableBaseline,
        Some(report::Outcome::Gone) => Outcome::Gone,
        None if report.cliff.is_told() => Outcome::Found,
        Some(report::Outcome::Interrupted) | None => Outcome::Interrupted,
    }
}

/// What ended a search that is over.
pub(super) fn ended_by(search: &Search) -> Option<Cut> {
    match search.report().outcome {
        Some(report::Outcome::Interrupted) => Some(Cut::Signal),
        None => Some(Cut::Budget),
        Some(_) => None,
    }
}

/// A bracket is stated where rates to both sides of the limit were offered; else the rates tested are all that is known.
fn limit(limit: &report::Limit, report: &Report, is_between: bool) -> Limit {
    let bracket = limit.bracket.filter(|_| is_between && limit.bad.is_some());
    let at = |of: fn(Bracket) -> f64| bracket.map(of);
    let held = report
        .trials
        .iter()
        .filter(|trial| Some(trial.offer.rate) == limit.good && trial.vote != vote::Vote::Bad);
    Limit {
        lower: at(|bracket| bracket.lower),
        upper: at(|bracket| bracket.upper),
        point: at(|bracket| bracket.point),
        good: limit.good,
        good_for: held.map(|held| trial(held).lasted()).reduce(f64::max),
        bad: limit.bad,
    }
}

/// A rate that was passed on the way up was not held, however few answers were late.
const HELD: Duration = Duration::from_secs(1);

/// The knee with the highest rate at which a trial was good in every respect.
fn kept(knee: report::Limit, report: &Report) -> report::Limit {
    let share = report.goal.late_share();
    let is_good = |trial: &&report::Trial| {
        trial.vote == vote::Vote::Good
            && trial.weight > 0.1
            && trial.evidence.late.value() <= share
            && knee.bad.is_none_or(|bad| trial.offer.rate < bad)
    };
    let good = report.trials.iter().filter(is_good).map(|trial| trial.offer.rate).reduce(f64::max);
    report::Limit { good, ..knee }
}

/// Mean response time of the baseline, in seconds.
pub(super) fn service(report: &Report) -> Option<f64> {
    let baseline = report.trials.iter().rfind(|trial| trial.offer.purpose == Purpose::Baseline)?;
    mean_latency(&baseline.seen.blocks)
}

/// The highest rate that was offered and is believed, if anything was ever answered well.
pub(super) fn highest(report: &Report) -> Option<f64> {
    let believed = || report.trials.iter().filter(|trial| trial.vote != vote::Vote::Invalid);
    let answered = |trial: &report::Trial| trial.seen.blocks.iter().any(|block| block.good > 0);
    believed().any(answered).then(|| believed().map(|trial| trial.offer.rate).reduce(f64::max)).flatten()
}

/// The share of requests that fails at any rate; 0 where errors have a rate from which on they are, or are none.
pub(super) fn failing(report: &Report) -> f64 {
    if report.outcome != Some(report::Outcome::UnstableBaseline) {
        return 0.0;
    }
    let counting =
        || report.trials.iter().filter(|trial| trial.weight > 0.1).map(|trial| trial.evidence.errors);
    let (count, of) = counting().fold((0.0, 0.0), |(count, of), share| (count + share.count, of + share.of));
    if of > 0.0 { count / of } else { 0.0 }
}

/// One trial.
pub(super) fn trial(trial: &report::Trial) -> Trial {
    let evidence = &trial.evidence;
    Trial {
        purpose: purpose(trial.offer.purpose).to_owned(),
        rate: trial.offer.rate,
        clients: None,
        began: trial.began.as_secs_f64(),
        took: trial.seen.took.as_secs_f64(),
        vote: trial.vote.into(),
        why: why(trial),
        fails: trial.kind.map(Into::into),
        weight: trial.weight,
        goodput: evidence.goodput,
        errors: evidence.errors.value(),
        failing: trial.seen.beside.failing.clone(),
        quantiles: trial.seen.beside.quantiles,
        late: (evidence.late.of > 0.0).then(|| evidence.late.value()),
        invalid: trial.seen.invalid.clone(),
        no_port: trial.seen.no_port,
        away: trial.seen.away,
        interrupted: trial.seen.interrupted,
        blocks: trial.seen.blocks.iter().map(block).collect(),
    }
}

pub(super) fn block(block: &Block) -> answer::Block {
    let Block { sent, good, errors, timely, late, in_flight, latency, slowest } = *block;
    (sent, good, errors, timely, late, in_flight, latency, slowest)
}

/// As in the JSON form.
#[must_use]
pub fn purpose(purpose: Purpose) -> &'static str {
    match purpose {
        Purpose::Baseline => "baseline",
        Purpose::Ladder => "ladder",
        Purpose::Arm => "arm",
        Purpose::Narrow => "narrow",
        Purpose::Confirm => "confirm",
        Purpose::Retest => "retest",
        Purpose::Probe => "probe",
        Purpose::Again => "again",
        Purpose::Cold => "cold",
        Purpose::Knee => "knee",
        Purpose::Recovery => "recovery",
    }
}

/// A share of failures that stands for all of them.
const MOSTLY: f64 = 0.95;

/// Why a trial points where it does.
fn why(trial: &report::Trial) -> String {
    if let Some(invalid) = &trial.seen.invalid {
        return invalid.clone();
    }
    let evidence = &trial.evidence;
    let errors = errors(evidence.errors, &trial.seen.beside);
    let flight = format!("in flight {:.0} to {:.0}", evidence.from, evidence.to);
    match (trial.vote, trial.kind) {
        (vote::Vote::Bad, Some(vote::Kind::Rejecting)) => errors,
        (vote::Vote::Bad, Some(vote::Kind::BoundedQueue)) => format!("{errors}, {flight}"),
        (vote::Vote::Bad, _) => flight,
        (vote::Vote::Good, _) if evidence.errors.count > 0.0 => format!("held, {errors}"),
        (vote::Vote::Good, _) => "held".to_owned(),
        _ => format!("{errors}, {flight}"),
    }
}

/// How many failed, and how.
pub(super) fn errors(share: Share, beside: &Beside) -> String {
    let of = match &beside.failing {
        Some((way, part)) if *part < MOSTLY => format!(" ({} of them {way})", percent(*part)),
        Some((way, _)) => format!(" ({way})"),
        None => String::new(),
    };
    format!("{} errors{}", percent(share.value()), if share.count > 0.0 { &of } else { "" })
}

/// With as many digits as it takes to tell it from nothing.
pub(super) fn percent(share: f64) -> String {
    let percent = 100.0 * share;
    match percent {
        10.0.. => format!("{percent:.0} %"),
        0.1.. => format!("{percent:.1} %"),
        _ if percent > 0.0 => format!("{percent:.3} %"),
        _ => "0 %".to_owned(),
    }
}

/// The highest rate at which this machine lacked ports, where that is why nothing more could be offered.
pub(super) fn lacked_ports(answer: &Answer) -> Option<f64> {
    let last = answer.trials.iter().rev().find(|trial| trial.invalid.is_some());
    let short = last.is_some_and(|last| last.no_port > 0) && answer.outcome == Outcome::GeneratorLimited;
    let without = answer.trials.iter().filter(|trial| trial.no_port > 0).map(|trial| trial.rate);
    without.reduce(f64::max).filter(|_| short)
}

/// The generator's limit is nothing of the target's: it had no ports, or could not send more.
pub(super) fn blame_generator(answer: &mut Answer) {
    let invalid = answer.trials.iter().rev().find_map(|trial| trial.invalid.clone());
    let seen = invalid.unwrap_or_else(|| answer.generator.how.clone());
    let evidence = answer::Evidence { seen, by: "the machine beside the trials".to_owned(), ratio: None };
    let class = if lacked_ports(answer).is_some() { Class::Ports } else { Class::Generator };
    answer.cause = Some(answer::Cause {
        class: class.slug().to_owned(),
        confidence: 1.0,
        evidence: vec![evidence],
        figures: Vec::new(),
    });
}

/// Adds what an inquiry found out about the ports that are the cause: of the target it says nothing without them.
pub(super) fn ports(answer: &mut Answer, report: &cause::Report) {
    let mut asked = answer.clone();
    cause(&mut asked, report);
    let is_ports = |class: &str| class == Class::Ports.slug();
    let told = asked.cause.into_iter().chain(asked.also).find(|cause| is_ports(&cause.class));
    if let (Some(cause), Some(told)) = (&mut answer.cause, told) {
        cause.evidence.extend(told.evidence);
        cause.figures = told.figures;
    }
    answer.untested = asked.untested.into_iter().filter(|not| is_ports(&not.class)).collect();
    answer.experiments = asked.experiments;
}

/// Adds what an inquiry found out.
pub(super) fn cause(answer: &mut Answer, report: &cause::Report) {
    let blamed = answer.outcome == Outcome::GeneratorLimited;
    let mut causes = report.causes.iter().map(|cause| excuse(one(cause), blamed));
    let unknown = || answer::Cause {
        class: Class::Unknown.slug().to_owned(),
        confidence: 0.0,
        evidence: Vec::new(),
        figures: Vec::new(),
    };
    answer.cause = Some(causes.next().unwrap_or_else(unknown));
    answer.also = causes.collect();
    answer.ties = report.ties.iter().map(tie).collect();
    let slug = |class: Class| class.slug().to_owned();
    let excluded = |out: &cause::Excluded| answer::Excluded { class: slug(out.class), how: out.how.clone() };
    answer.excluded = report.excluded.iter().map(excluded).collect();
    let untested = |not: &cause::Untested| answer::Untested { class: slug(not.class), why: not.why.clone() };
    answer.untested = report.untested.iter().map(untested).collect();
    answer.gone = report.gone.map(str::to_owned);
    answer.experiments = experiments(report);
    suspect_targets(answer);
}

/// Adds what was tried while more is to be: which cause it is may be another after that.
pub(super) fn tried(answer: Answer, report: &cause::Report) -> Answer {
    Answer { experiments: experiments(report), ..answer }
}

fn experiments(report: &cause::Report) -> Vec<answer::Tried> {
    let tried = |tried: &cause::Tried| answer::Tried {
        name: tried.experiment.name.to_owned(),
        says: tried.says.clone(),
    };
    report.tried.iter().map(tried).collect()
}

/// Of several targets that were given one may refuse while another delays: that is as uneven as a balancer, and no balancer's doing.
fn suspect_targets(answer: &mut Answer) {
    let (targets, uneven) = (answer.asked.targets, Class::UnevenBalancing.slug());
    if targets < 2 {
        return;
    }
    let uneven_ones = answer.cause.iter_mut().chain(&mut answer.also).filter(|cause| cause.class == uneven);
    for cause in uneven_ones {
        let seen = format!(
            "{targets} targets were given, and they may differ by themselves: search each alone first"
        );
        let by = "the list of targets".to_owned();
        cause.evidence.insert(0, answer::Evidence { seen, by, ratio: None });
    }
    for tie in answer.ties.iter_mut().filter(|tie| tie.between.iter().any(|class| class == uneven)) {
        tie.tell =
            format!("first search each of the {targets} targets that were given alone; then {}", tie.tell);
    }
}

/// Where trials that were believed say how the target is, that this machine could not send what an inquiry asked for is no word on why.
fn excuse(cause: answer::Cause, blamed: bool) -> answer::Cause {
    if !blamed && cause.class == Class::Generator.slug() {
        return answer::Cause { class: Class::Unknown.slug().to_owned(), confidence: 0.0, ..cause };
    }
    cause
}

fn one(cause: &cause::Cause) -> answer::Cause {
    let sign = |sign: &cause::Evidence| answer::Evidence {
        seen: sign.seen.clone(),
        by: sign.by.to_owned(),
        ratio: finite(sign.ratio),
    };
    let figure = |figure: &cause::Figure| answer::Figure {
        name: figure.name.to_owned(),
        value: finite(figure.value),
        unit: figure.unit.to_owned(),
    };
    answer::Cause {
        class: cause.class.slug().to_owned(),
        confidence: finite(cause.confidence).unwrap_or(0.0),
        evidence: cause.evidence.iter().map(sign).collect(),
        figures: cause.figures.iter().map(figure).collect(),
    }
}

fn tie(tie: &cause::Tie) -> answer::Tie {
    let between = tie.between.iter().map(|class| class.slug().to_owned()).collect();
    answer::Tie { between, tell: tie.tell.clone() }
}

fn finite(figure: f64) -> Option<f64> {
    Some(figure).filter(|figure| figure.is_finite())
}

impl From<vote::Vote> for Vote {
    fn from(vote: vote::Vote) -> Self {
        match vote {
            vote::Vote::Good => Self::Good,
            vote::Vote::Bad => Self::Bad,
            vote::Vote::Undecided => Self::Undecided,
            vote::Vote::Invalid => Self::Invalid,
        }
    }
}

impl From<vote::Kind> for answer::Failing {
    fn from(kind: vote::Kind) -> Self {
        match kind {
            vote::Kind::Rejecting => Self::Rejecting,
            vote::Kind::Hanging => Self::Hanging,
            vote::Kind::BoundedQueue => Self::BoundedQueue,
            vote::Kind::Queueing => Self::Queueing,
            vote::Kind::Dying => Self::Dying,
        }
    }
}
